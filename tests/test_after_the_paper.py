"""What the chapters after the paper leave to tests: who sees whom under every option, Hugging Face's models on padded text, kill and resume."""
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_transformer.attention import causal_mask
from annotated_transformer.decoder_only import Continuation, DecoderOnly, after_separator, as_long, continued, drawing, joined, narrowed
from annotated_transformer.decoder_only import next_symbols
from annotated_transformer.encoder_only import IGNORED, MASK, SEPARATOR, EncoderOnly, draw, learn, loss_at, mask_words, one_hidden, tabled
from annotated_transformer.files import InputError
from annotated_transformer.model import BASE, END, PAD, START
from annotated_transformer.span_corruption import corrupted

SMALL = replace(BASE, vocab_size=30, n_layers=2, d_model=32, d_ff=64, n_heads=4, d_k=8, d_v=8, dropout=0.0)
OPTIONS = [{}, {"pre_norm": True}, {"positions": "learned", "max_length": 16, "attention_bias": True}]


def seen(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    "[output, input]: whether an output depends on an input, by the gradient."
    x = model.embedding(ids).detach().requires_grad_()
    model.embedding.forward = lambda _: x
    return torch.stack([torch.autograd.grad(out.square().sum() + out[0], x, retain_graph=True)[0][0].abs().sum(-1) > 0 for out in model(ids)[0]])


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
    assert (ids[chosen] > END).all() and (inputs[chosen] > END).all()


def test_one_hidden_hides_one_word_of_each_sentence():
    ids = torch.tensor([[START, 7, 8, 9, END], [START, 7, END, PAD, PAD]])
    for seed in range(20):
        inputs, targets = one_hidden(ids, seed=seed)
        assert ((inputs == MASK).sum(1) == 1).all() and torch.equal(inputs == MASK, targets != IGNORED)
        assert torch.equal(torch.where(targets != IGNORED, targets, inputs), ids)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_kept_keys_and_values_change_nothing(options):
    torch.manual_seed(1)
    model = DecoderOnly(replace(SMALL, n_layers=3, **options)).eval()
    text = torch.randint(4, 30, (5, 11))
    with torch.no_grad():
        growing = Continuation(model)
        steps = torch.stack([growing.step(column) for column in text.T], 1)
        torch.testing.assert_close(steps, model.logits(text), atol=1e-5, rtol=1e-5)


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
    assert next_symbols(text, after_separator(text))[1].tolist() == [[IGNORED] * 3 + [17, END], [IGNORED] * 2 + [19, END, IGNORED]]


def test_no_number_of_layers_fits_every_model():
    with pytest.raises(ValueError, match="threes"):
        as_long(replace(BASE, n_layers=2))
    assert as_long(BASE).n_layers == 14


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
        return loss_at(model, *next_symbols(*draw(4, ids)))

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
