"""What the chapters after the paper leave to tests: who sees whom under every option, Hugging Face's models on
padded text, kill and resume."""
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_transformer.after.rlhf import (
    Actor,
    Scorer,
    advantages,
    answer_mask,
    collect,
    grammatical,
    log_probabilities,
    policy_loss,
    ppo,
    ppo_loss,
    standardise,
    token_rewards,
    value_loss,
)
from annotated_transformer.after.decoder_only import (
    DecoderOnly,
    after_separator,
    as_long,
    continued,
    drawing,
    joined,
    narrowed,
    next_tokens,
    short_pairs,
    translations,
)
from annotated_transformer.after.encoder_only import (
    IGNORED,
    MASK,
    SEPARATOR,
    SHIPPED,
    EncoderOnly,
    Words,
    draw,
    keep_model,
    kept_model,
    learn,
    loss_at,
    mask_words,
    one_hidden,
    tabled,
)
from annotated_transformer.after.preferences import answer_log_probability, best_of, best_of_kl, dpo_loss
from annotated_transformer.after.span_corruption import corrupted
from annotated_transformer.corpus.grammar import parse
from annotated_transformer.decoding.search import greedy
from annotated_transformer.model.attention import causal_mask
from annotated_transformer.model.symbols import END, PAD, START, UNKNOWN
from annotated_transformer.model.transformer import BASE, Transformer
from annotated_transformer.tools.files import InputError

SMALL = replace(BASE, vocab_size=30, n_layers=2, d_model=32, d_ff=64, n_heads=4, d_k=8, d_v=8, dropout=0.0)
OPTIONS = [{}, {"pre_norm": True}, {"positions": "learned", "max_length": 16, "attention_bias": True}]


def seen(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    "[output, input]: whether an output depends on an input, by the gradient."
    x = model.embedding(ids).detach().requires_grad_()
    model.embedding.forward = lambda _: x
    return torch.stack([torch.autograd.grad(out.square().sum() + out[0], x, retain_graph=True)[0][0].abs().sum(-1) > 0
                        for out in model(ids)[0]])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", [EncoderOnly, DecoderOnly])
def test_the_gradient_reaches_what_the_mask_allows_and_nothing_else(kind, options):
    torch.manual_seed(0)
    found = seen(kind(replace(SMALL, **options)), torch.tensor([[START, 7, 8, 9, END, PAD, PAD]]))
    allowed = torch.ones(5, 5, dtype=torch.bool) if kind is EncoderOnly else causal_mask(5)
    assert torch.equal(found[:5, :5], allowed)
    assert not found[:5, 5:].any()


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**31), st.floats(0.0, 1.0))
def test_masking_asks_for_words_alone_and_tells_the_truth(seed, rate):
    torch.manual_seed(seed)
    ids = torch.randint(0, 30, (4, 12))
    inputs, targets = mask_words(ids, 30, rate)
    chosen = targets != IGNORED
    assert torch.equal(inputs[~chosen], ids[~chosen]) and torch.equal(targets[chosen], ids[chosen])
    assert (ids[chosen] > SEPARATOR).all() and (inputs[chosen] > END).all()


def test_one_hidden_hides_one_word_of_each_sentence():
    ids = torch.tensor([[START, 7, 8, SEPARATOR, 9, END], [START, 7, SEPARATOR, END, PAD, PAD]])
    ids = ids.repeat(20, 1)
    inputs, targets = one_hidden(ids)
    assert ((inputs == MASK).sum(1) == 1).all() and torch.equal(inputs == MASK, targets != IGNORED)
    assert torch.equal(torch.where(targets != IGNORED, targets, inputs), ids) and not (targets == SEPARATOR).any()


def test_where_no_word_is_known_none_is_hidden():
    ids = torch.tensor([[START, UNKNOWN, END], [START, 7, END]])
    inputs, targets = one_hidden(ids)
    assert inputs.tolist() == [[START, UNKNOWN, END], [START, MASK, END]] and (targets[0] == IGNORED).all()


def test_greedy_continuation_equals_whole_prefixes_with_prompts_of_different_lengths():
    torch.manual_seed(2)
    model = DecoderOnly(SMALL).eval()
    prompts = tabled([[START, 9, SEPARATOR], [START, 9, 10, 11, 12, SEPARATOR]])
    written = continued(model, prompts, 14)
    for prompt, line in zip(prompts, written):
        text = prompt[prompt != PAD].tolist()
        while len(text) < written.size(1) and text[-1] != END:
            with torch.no_grad():
                logits = model.logits(torch.tensor([text]))[0, -1]
            logits[[PAD, START]] = -torch.inf
            text.append(int(logits.argmax()))
        assert line[: len(text)].tolist() == text and (line[len(text):] == PAD).all()


def test_sampling_follows_the_distribution():
    torch.manual_seed(3)
    logits = torch.randn(6)
    drawn = drawing(0.7, top_p=0.9)(logits.expand(40_000, -1))
    expected = narrowed(logits, 0.7, top_p=0.9).softmax(-1)
    found = torch.bincount(drawn, minlength=6) / 40_000
    assert ((found - expected).abs() <= 5 * (expected * (1 - expected) / 40_000).sqrt() + 1e-12).all()


@pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.1}])
def test_impossible_draws_are_refused(wrong):
    with pytest.raises(ValueError, match="temperature"):
        narrowed(torch.zeros(3), **wrong)


def test_only_the_answer_is_scored():
    src, tgt = torch.tensor([[7, 8, END], [9, END, PAD]]), torch.tensor([[START, 17, END], [START, 19, END]])
    text = tabled(joined(src, tgt))
    assert text.tolist() == [[START, 7, 8, SEPARATOR, 17, END], [START, 9, SEPARATOR, 19, END, PAD]]
    assert next_tokens(text, after_separator(text))[1].tolist() == [[IGNORED] * 3 + [17, END],
                                                                     [IGNORED] * 2 + [19, END, IGNORED]]


def test_no_number_of_layers_fits_every_model():
    with pytest.raises(ValueError, match="threes"):
        as_long(replace(BASE, n_layers=2))
    with pytest.raises(ValueError, match="d_k 32"):
        as_long(replace(BASE, d_k=32))
    assert as_long(BASE).n_layers == 14


def test_a_text_ends_where_no_more_positions_were_learned():
    model = DecoderOnly(replace(SMALL, positions="learned", max_length=16)).eval()
    assert continued(model, torch.tensor([[START, 7]]), 40,
                     lambda logits: torch.full((len(logits),), 9)).shape == (1, 16)


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 60), st.integers(0, 1000), st.floats(0.05, 0.9), st.floats(1.0, 5.0))
def test_what_is_cut_out_can_be_put_back(n, seed, rate, mean):
    text, sentinels = [1000 + i for i in range(n)], range(100)
    source, target = corrupted(text, sentinels, Random(seed), rate, mean)
    marks = [i for i, symbol in enumerate(target) if symbol < 100]
    assert [target[i] for i in marks] == list(range(len(marks))) and marks[-1] == len(target) - 1
    spans = {target[a]: target[a + 1:b] for a, b in zip(marks, marks[1:])}
    assert all(spans.values()) and [s for symbol in source for s in spans.get(symbol, [symbol])] == text


def test_too_few_sentinels_are_refused():
    with pytest.raises(ValueError, match="sentinel"):
        corrupted(list(range(50)), [100], Random(0))


def trained(keep: Path | None, steps: int, stop_at: int | None = None) -> tuple[DecoderOnly, list[dict]]:
    torch.manual_seed(5)
    model, ids = DecoderOnly(replace(SMALL, dropout=0.1)), torch.randint(4, 30, (40, 8))
    torch.manual_seed(6)

    def loss(step: int) -> torch.Tensor:
        if step == stop_at:
            raise KeyboardInterrupt
        return loss_at(model, *next_tokens(*draw(4, ids)))

    return model, learn(model, loss, steps, every=4, keep=keep)


def test_a_killed_training_goes_on_as_if_it_had_not_been(tmp_path: Path):
    whole, curve = trained(None, 13)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "state.pt", 13, stop_at=11)
    again, curve_again = trained(tmp_path / "state.pt", 13)
    assert curve == curve_again and [line["step"] for line in curve] == [4, 8, 12, 13]
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), again.parameters()))
    torch.manual_seed(0)
    assert trained(tmp_path / "state.pt", 13)[1] == curve  # finished: nothing is left to do


def test_a_state_of_something_else_is_one_line(tmp_path: Path):
    torch.save({"model": {}}, tmp_path / "state.pt")
    with pytest.raises(InputError, match="remove it to begin anew"):
        trained(tmp_path / "state.pt", 3)


# --- alignment --------------------------------------------------------------------------------------------------------

TOY = replace(BASE, vocab_size=12, n_layers=1, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8, dropout=0.0)


def test_what_is_no_sentence():
    assert not grammatical("") and not grammatical("the") and not grammatical("zebras sleep .")


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31), st.floats(0.5, 1.0), st.floats(0.0, 1.0))
def test_advantages_are_the_discounted_sum_of_surprises(seed, gamma, lam):
    torch.manual_seed(seed)
    rewards, values = torch.randn(2, 6), torch.randn(2, 6)
    mask = torch.tensor([[False, True, True, True, True, True], [False, True, True, False, False, False]])
    found, targets = advantages(rewards * mask, values, mask, gamma, lam)
    for row, last in ((0, 5), (1, 2)):
        for t in range(1, last + 1):
            surprises = [rewards[row, s] + gamma * (values[row, s + 1] if s < last else 0) - values[row, s]
                         for s in range(t, last + 1)]
            expected = sum((gamma * lam) ** i * surprise for i, surprise in enumerate(surprises))
            torch.testing.assert_close(found[row, t], torch.as_tensor(expected), atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(targets[row, t], found[row, t] + values[row, t], atol=1e-5, rtol=1e-5)
    assert (found[~mask] == 0).all() and (targets[~mask] == 0).all()


def test_the_penalty_is_taken_at_each_token_and_the_score_at_the_last():
    mask = torch.tensor([[False, True, True], [True, False, False]])
    log_p, reference = torch.tensor([[5.0, -1, -2], [-3, 5, 5]]), torch.tensor([[0.0, -1.5, -1], [-1, 0, 0]])
    found = token_rewards(torch.tensor([10.0, 20.0]), log_p, reference, mask, beta=2.0)
    assert found.tolist() == [[0.0, -1.0, 12.0], [24.0, 0.0, 0.0]]


def test_on_its_own_answers_ppo_begins_as_policy_gradient():
    torch.manual_seed(0)
    log_p = torch.randn(3, 4).log_softmax(-1).requires_grad_()
    advantage, mask = torch.randn(3, 4), torch.rand(3, 4) < 0.7
    policy_loss(log_p, log_p.detach(), advantage, mask).backward()
    torch.testing.assert_close(log_p.grad, -advantage * mask / mask.sum())


def test_the_clipped_value_loss_is_never_below_the_plain_one():
    torch.manual_seed(0)
    values, old, targets, mask = torch.randn(4, 5), torch.randn(4,
                                                                5), torch.randn(4, 5), torch.ones(
                                                                    4, 5, dtype=torch.bool)
    plain = 0.5 * ((values - targets) ** 2).mean()
    assert value_loss(values, old, targets, mask) >= plain
    torch.testing.assert_close(value_loss(old, old, targets, mask), 0.5 * ((old - targets) ** 2).mean())
    torch.testing.assert_close(value_loss(values, old, targets, mask, eps=1e9), plain)


def test_ppo_pulls_the_critic_towards_its_targets():
    "On answers just given, by half of what it is wrong on average: the bias shifts every value alike."
    torch.manual_seed(0)
    reference = DecoderOnly(TOY).eval()
    actor = Actor(reference).eval()
    torch.nn.init.normal_(actor.critic.output.weight)
    rollout = collect(actor, reference, share_of_seven, tabled([[START, 6, SEPARATOR]] * 8), 0.1)
    ppo_loss(actor, rollout).backward()
    wrong = (rollout.values - rollout.targets)[rollout.mask].mean()
    torch.testing.assert_close(actor.critic.output.bias.grad, 0.5 * wrong[None])


def test_log_probabilities_of_answers_are_those_of_whole_texts():
    torch.manual_seed(0)
    model = DecoderOnly(TOY).eval()
    texts = tabled([[START, 6, SEPARATOR, 8, 9, END], [START, 7, SEPARATOR, END]])
    with torch.no_grad():
        logs = model.logits(texts).log_softmax(-1)
        assert torch.allclose(answer_log_probability(model, texts), torch.stack(
            [logs[0, 2, 8] + logs[0, 3, 9] + logs[0, 4, END], logs[1, 2, END]]), atol=1e-5)
        assert torch.allclose((log_probabilities(model, texts) * answer_mask(texts)).sum(1),
                              answer_log_probability(model, texts))


def test_the_reward_of_a_text_is_read_at_its_last_token():
    torch.manual_seed(0)
    scorer = Scorer(DecoderOnly(TOY).eval())
    torch.nn.init.normal_(scorer.output.weight)
    texts = tabled([[START, 6, SEPARATOR, 8, 9, END], [START, 7, SEPARATOR, END]])
    with torch.no_grad():
        alone = torch.stack([scorer(texts[:1])[0, 5], scorer(texts[1:, :4])[0, 3]])
        torch.testing.assert_close(scorer.at_end(texts), alone)
        standardise(scorer, texts)
        torch.testing.assert_close(scorer.at_end(texts).mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
        torch.testing.assert_close(scorer.at_end(texts).std(), torch.tensor(1.0), atol=1e-5, rtol=0)


def share_of_seven(ids: torch.Tensor) -> torch.Tensor:
    mask = answer_mask(ids)
    return ((ids[:, 1:] == 7) & mask).sum(1) / mask.sum(1)


@pytest.mark.slow
def test_a_large_penalty_keeps_the_policy_where_it_was():
    moved = []
    for beta in (0.0, 10.0):
        torch.manual_seed(0)
        reference, prompts = DecoderOnly(TOY).eval(), tabled([[START, 6, SEPARATOR]] * 64)
        reference.embedding.weight.data *= 0.3
        policy, _ = ppo(reference, share_of_seven, prompts, beta=beta, iterations=12, rate=3e-3)
        moved.append(collect(Actor(policy), reference, share_of_seven, prompts, beta).kl)
    assert abs(moved[1]) < 0.2 < moved[0]


def test_best_of_n_takes_the_best_of_each_prompts_answers():
    torch.manual_seed(0)
    model = DecoderOnly(TOY).eval()
    scorer = Scorer(model)
    torch.nn.init.normal_(scorer.output.weight)
    prompts = tabled([[START, 6, SEPARATOR], [START, 7, SEPARATOR]])
    means = []
    for n in (1, 16):
        texts = best_of(model, scorer, prompts.repeat(20, 1), n)
        assert texts[:, 1].tolist() == [6, 7] * 20
        means.append(scorer.at_end(texts).mean().item())
    assert means[1] > means[0] and best_of_kl(1) == 0


def test_dpo_with_equal_chances_has_the_gradient_of_the_paper():
    torch.manual_seed(0)
    better, worse, before = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True), torch.randn(2, 5)
    dpo_loss(better, worse, before[0], before[1], 0.3).backward()
    margin = 0.3 * ((better - before[0]) - (worse - before[1])).detach()
    torch.testing.assert_close(better.grad, -0.3 * torch.sigmoid(-margin) / 5)
    torch.testing.assert_close(worse.grad, 0.3 * torch.sigmoid(-margin) / 5)


# --- the models that ship -------------------------------------------------------------------------

def test_the_models_that_ship_are_small_and_do_what_the_chapters_say():
    files = sorted(SHIPPED.glob("*.safetensors"))
    assert [path.stem for path in files] == ["gap_filler", "span_filler", "translator", "writer"]
    assert all(path.stat().st_size <= 300 << 10 for path in files)

    reader, words = kept_model(EncoderOnly, "gap_filler")
    for verb, ending in (("is", False), ("are", True)):
        line = torch.tensor([[START, *words.encode(["the"]), MASK, *words.encode(f"{verb} old .".split()), END]])
        first = [words.words[i] for i in reader.logits(line)[0, 2].topk(3).indices]
        assert all(word.endswith(("s", "men", "children")) == ending for word in first), first

    writer, words = kept_model(DecoderOnly, "writer")
    torch.manual_seed(0)
    texts = continued(writer, torch.full((10, 1), START), 24, drawing(0.5))
    assert sum(bool(parse(words.decode(text))) for text in texts) >= 8

    translator, words = kept_model(DecoderOnly, "translator")
    pairs = short_pairs(300)[:30]
    written = translations(translator, words, [english for english, _ in pairs])
    assert sum(line == " ".join(german) for line, (_, german) in zip(written, pairs)) >= 20

    model, words = kept_model(Transformer, "span_filler")
    (found,) = greedy(model, torch.tensor([[*words.encode("the ⟨1⟩ are old .".split()), END]]))
    assert words.decode(found.ids).startswith("⟨1⟩ ") and words.decode(found.ids).endswith(" ⟨2⟩")


def test_a_kept_vocabulary_may_be_large(tmp_path):
    words = Words([[f"word{i}" for i in range(30_010)]], most=40_000)
    keep_model("x", EncoderOnly(replace(SMALL, vocab_size=len(words))), words, tmp_path)
    assert kept_model(EncoderOnly, "x", tmp_path)[1].words == words.words


def test_a_kept_model_is_the_same_but_for_half_precision(tmp_path):
    model, words = EncoderOnly(replace(SMALL, vocab_size=8)).eval(), Words([["a", "b"]])
    keep_model("x", model, words, tmp_path)
    again, its_words = kept_model(EncoderOnly, "x", tmp_path)
    assert its_words.words == words.words and again.config == model.config
    ids = torch.tensor([[START, 6, 7, END]])
    torch.testing.assert_close(again.logits(ids), model.logits(ids), rtol=1e-2, atol=1e-2)
