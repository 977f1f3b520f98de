"""Searches against a search that has no cache, no batch, no tree and no early end, on models of many shapes."""

import copy
import itertools
import math
import os
import pickle
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from checking import without_checker
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from annotated_transformer.commands.translate import save_attention
from annotated_transformer.corpus.sources import sacrebleu_files
from annotated_transformer.corpus.vocabulary import BytePairVocabulary, WordPieceVocabulary, adopt_model
from annotated_transformer.decoding import translation
from annotated_transformer.decoding.scores import bleu
from annotated_transformer.decoding.ensembles import Ensemble, ensemble
from annotated_transformer.decoding.search import (
    Constraint, SearchConfig, beam_search, greedy, plain_beam_search, sample, search)
from annotated_transformer.decoding.evaluation import evaluate, target_probabilities
from annotated_transformer.decoding.translation import Translator, load, side_by_side
from annotated_transformer.engine.kernels import DEFAULT_PRECISION
from annotated_transformer.engine.kv_cache import DecoderState, fill, weights_stamp
from annotated_transformer.imports.imported import imported_vocabulary, order_of_rows
from annotated_transformer.model.symbols import END, PAD, START, UNKNOWN
from annotated_transformer.model.transformer import BASE, Transformer
from annotated_transformer.tools.files import InputError
from annotated_transformer.training.regularization import measure
from annotated_transformer.training.runs import Run, ship
from here import examples, fails

SMALL = replace(BASE, vocab_size=13, n_layers=2, d_model=16, d_ff=24, n_heads=2, d_k=8, d_v=8, max_length=64)
SHAPES = [{}, {"pre_norm": True}, {"positions": "learned"}, {"parameter_heads": 2, "n_p": 6}, {"attention_bias": True},
          {"d_k": 3, "d_v": 5}]
few = settings(max_examples=examples(25), deadline=None)


def model_of(seed: int, ends: bool = True, **changes) -> Transformer:
    torch.manual_seed(seed)
    model = Transformer(replace(SMALL, **changes)).double().eval()
    with torch.no_grad():
        model.embedding.weight[PAD + 1:] *= 3
        # in a post-norm model whose last bias is this row's opposite, the end token's logit is far below the others'
        if not ends:
            model.decoder[-1].residuals[2].norm.bias -= 4 * model.embedding.weight[END]
    return model


def sources(lengths: list[int], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    src = torch.full((len(lengths), max(lengths)), PAD)
    for row, n in zip(src, lengths):
        row[:n] = torch.tensor([*torch.randint(4, SMALL.vocab_size, (n - 1,), generator=generator).tolist(), END])
    return src


@few
@given(st.integers(0, 10_000), st.sampled_from(SHAPES), st.lists(st.integers(1, 6), min_size=1, max_size=4),
       st.integers(1, 5), st.integers(1, 5),
       st.sampled_from([0.0, 0.6, 1.0, 3.0]), st.integers(0, 5))
def test_searches_of_every_shape_of_model_find_what_the_plain_one_finds(seed, shape, lengths, beam_size, most, alpha,
                                                                        extra):
    "With fewer wanted than the beam has, a search may end before all have."
    model, src, wanted = model_of(seed, **shape), sources(lengths, seed), min(most, beam_size)
    for row, n, found in zip(src, lengths,
                             beam_search(model, src, SearchConfig(beam_size, alpha, extra, n_best=wanted))):
        expected = plain_beam_search(model, row[None, :n], beam_size, alpha, extra)[:wanted]
        assert [h.ids for h in found] == [ids for _, ids in expected]
        assert [h.score for h in found] == pytest.approx([score for score, _ in expected], rel=1e-9)


@pytest.mark.slow
@few
@given(st.integers(0, 10_000), st.integers(2, 6))
def test_forgetting_dead_branches_changes_nothing(seed, beam_size):
    model, src = model_of(seed, ends=False), sources([5, 3], seed)
    kept, config = [], SearchConfig(beam_size, max_extra_tokens=50, n_best=beam_size, early_stopping=False)

    def never(state):
        kept.append(state.ancestors.size(-1))

    with pytest.MonkeyPatch.context() as patch:
        found = beam_search(model, src, config)
        patch.setattr(DecoderState, "prune", never)
        whole = beam_search(model, src, config)
    for few_keys, all_keys in zip(itertools.chain(*found), itertools.chain(*whole)):
        assert few_keys.ids == all_keys.ids and few_keys.score == pytest.approx(all_keys.score, rel=1e-12)
    assert len(kept) == 3 and all(len(h.ids) > 48 for h in found[0])  # steps 16, 32, 48: there was something to forget


@pytest.mark.slow
def test_a_long_search_forgets_its_dead_branches(monkeypatch):
    "Every sixteenth step leaves at least three keys of four that some beginning still descends from."
    model, src, known = model_of(1, ends=False), sources([5], 1), []
    reorder = DecoderState.reorder

    def watched(state, parent):
        reorder(state, parent)
        if state.position % 16 == 0:
            alive = state.ancestors[:, :, : state.length].any(1).sum(1).max()
            known.append((state.length, int(alive)))

    monkeypatch.setattr(DecoderState, "reorder", watched)
    beam_search(model, src, beam_size=8, max_extra_tokens=200, early_stopping=False)
    assert len(known) == 12 and all(alive > 0.75 * length for length, alive in known)
    assert known[-1][0] < 1 + 8 * 191, "no key was dropped in 192 steps"


@few
@example(234, [1, 2], [4])
@given(st.integers(0, 10_000), st.lists(st.integers(1, 6), min_size=1, max_size=3),
       st.lists(st.integers(4, 12), max_size=3))
def test_a_forced_prefix_is_followed_by_what_follows_it(seed, lengths, prefix):
    model, src = model_of(seed), sources(lengths, seed)
    config = SearchConfig(3, max_extra_tokens=5, prefix=[prefix, *([] for _ in lengths[1:])])
    for found in (greedy(model, src, config), [h[0] for h in beam_search(model, src, config)],
                  sample(model, src, config)):
        assert found[0].ids[:len(prefix)] == prefix
        for h, row, n in zip(found, src, lengths):
            out = torch.tensor([h.ids + [END] * (len(h.token_log_probabilities) > len(h.ids))])
            with torch.no_grad():
                logs = model(row[None, :n], torch.cat((torch.tensor([[START]]), out[:, :-1]), 1)).log_softmax(-1)
            assert h.token_log_probabilities == pytest.approx(logs.gather(2, out[:, :, None])[0, :, 0].tolist(),
                                                              rel=1e-9, abs=1e-9)
            assert h.log_probability == pytest.approx(sum(h.token_log_probabilities))
    for (h,), (alone,) in list(zip(beam_search(model, src, config, prefix=None), beam_search(model, src, config)))[1:]:
        assert h.ids == alone.ids and h.score == pytest.approx(alone.score,
                                                               rel=1e-12)  # another batch: the last bit may differ


@pytest.mark.parametrize("prefix, said", [([[PAD]], "prefix 0"), ([[START]], "prefix 0"), ([[END]], "prefix 0"),
                                          ([[4] * 6], "shorter than 6"),
                                          ([[4], [4]], "2 prefixes for 1")])
def test_a_prefix_that_cannot_be_is_refused(prefix, said):
    model, src = model_of(0), sources([3], 0)
    for decode in (greedy, beam_search, sample):
        with pytest.raises(ValueError, match=said):
            decode(model, src, max_extra_tokens=3, prefix=prefix)


class Nothing(Constraint):
    "Allows no token."

    start, advance = lambda self, src: self, lambda self, *step: self

    def mask_logits(self, logs, state):
        return logs.fill_(-math.inf)


def test_a_sentence_without_an_output_is_told():
    for decode in (greedy, beam_search):
        with pytest.raises(InputError, match="without an output"):
            decode(model_of(0), sources([3], 0), constraint=Nothing())


def test_learned_positions_end_an_output():
    model, src = model_of(3, positions="learned", max_length=7), sources([6], 3)
    assert search(model, src, beam_size=3, early_stopping=False).token.shape[0] <= 7
    assert all(len(h.token_log_probabilities) <= 7
               for h in (*beam_search(model, src, beam_size=3)[0], *greedy(model, src)))


@few
@given(st.integers(0, 1000), st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3), st.integers(1, 4),
       st.integers(1, 4))
def test_an_ensemble_finds_what_the_plain_search_finds_in_the_mean_of_the_probabilities(seed, shapes, beam_size, most):
    members, src = [model_of(seed + i, **shape) for i, shape in enumerate(shapes)], sources([4, 2], seed)
    mean = lambda src, tgt: torch.stack([m(src, tgt).softmax(-1) for m in members]).mean(0).log()  # noqa: E731
    wanted = min(most, beam_size)
    together = beam_search(Ensemble(members), src, beam_size=beam_size, max_extra_tokens=3, n_best=wanted)
    for row, size, found in zip(src, (4, 2), together):
        expected = plain_beam_search(mean, row[None, :size], beam_size, 0.6, 3)[:wanted]
        assert [h.ids for h in found] == [ids for _, ids in expected]
        assert [h.score for h in found] == pytest.approx([score for score, _ in expected], rel=1e-9)


def test_an_ensemble_of_different_vocabularies_is_refused_and_the_shortest_table_of_positions_binds():
    for models in ([], [model_of(0), model_of(1, vocab_size=14)]):
        with pytest.raises(ValueError, match="one vocabulary"):
            Ensemble(models)
    short, src = model_of(3, positions="learned", max_length=7), sources([6], 3)
    for members in ([model_of(4), short], [short, model_of(4, positions="learned", max_length=64)]):
        assert search(Ensemble(members), src, beam_size=3, early_stopping=False).token.shape[0] <= 7


def test_a_beam_wider_than_the_vocabulary():
    model, src = model_of(5), sources([2, 3], 5)
    wide = beam_search(model, src, beam_size=40, max_extra_tokens=1, n_best=40)
    for hypotheses, n in zip(wide, (2, 3)):
        assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses) >= 13
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)


def test_sampling_is_repeatable_and_a_temperature_must_be_above_zero():
    model, src = model_of(0), sources([4, 4], 2)
    drawn = [sample(model, src, seed=s, max_extra_tokens=6) for s in (0, 1, 2, 3, 3)]
    assert drawn[-1] == drawn[-2] and len({tuple(found.ids) for found, _ in drawn}) > 1
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="temperature"):
            sample(model, src, temperature=wrong)


# --- positions that were learned --------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def of_twenty():
    "A translator that has learned twenty positions, and a text longer than that."
    vocabulary = BytePairVocabulary.learn(["a b c d e f g h i j k l m n o p q r s t u v w x y z"] * 20, 57)
    torch.manual_seed(0)
    model = Transformer(replace(SMALL, vocab_size=len(vocabulary), positions="learned", max_length=20))
    return Translator(model, vocabulary), "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 2


def test_what_is_longer_than_the_positions_is_told_before_the_work(of_twenty, monkeypatch):
    translator, long = of_twenty
    monkeypatch.setattr(Translator, "translate", lambda *args, **options: pytest.fail("translated first"))
    for src, tgt, told in ((["a", long], ["a", "b"], "source, line 2"), (["a", "b"], [long, "b"], "reference, line 1")):
        for work in (translator.measure, partial(evaluate, translator)):
            with pytest.raises(InputError, match=f"{told}: .* 20 positions: "):
                work(src, tgt)


def test_attention_of_an_output_that_the_positions_cut(of_twenty):
    translator, long = of_twenty
    record = translator.attention(long[:30])
    assert record.cross[0].shape[-2] == len(record.tgt_outputs) <= 20


@pytest.mark.parametrize("extra", [2, 10, 50])
def test_a_prefix_has_the_room_of_the_search(of_twenty, extra):
    translator, _ = of_twenty
    source = "a b"  # and its end
    limit = min(len(translator.encode([source])[0]) + extra, 20)
    for symbols in (1, limit - 1, limit, limit + 1):
        search = partial(translator.search, [source], prefix=[[5] * symbols], max_extra_tokens=extra)
        if symbols < limit:
            assert search()[0][0].ids[:symbols] == [5] * symbols
        else:
            fails(partial(search, first_line=7), f"line 7: up to {symbols} tokens")
    assert len(translator.search([source, ""], prefix=[[5], [5] * limit], max_extra_tokens=extra)) == 2


# --- what a caller may ask --------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def bytewise():
    "A random translator whose vocabulary falls back to bytes, each of which it likes to write."
    vocabulary = BytePairVocabulary.learn(["the old cow sees a young cow", "the young dog plays",
                                           "a dog sees the old"] * 20, 310, byte_fallback=True)
    return Translator(model_of(7, vocab_size=len(vocabulary)), vocabulary)


@few
@given(st.sampled_from(["the", "the o", "the old c", "a you", "a dog", "th", "t", "\N{SNOWMAN}", "sees \N{SNOWMAN}x"]),
       st.integers(0, 99), st.booleans())
def test_a_translation_begins_with_its_prefix_and_an_open_word_may_go_on(bytewise, prefix, seed, drawn):
    config = SearchConfig(3, max_extra_tokens=20, n_best=3, sample=drawn, seed=seed)
    for asked in (prefix, prefix + " "):
        for found in bytewise.search(["the old cow", "a dog"], config, prefix=[asked, ""])[0]:
            text = bytewise.vocabulary.decode(found.ids)
            assert text.startswith(prefix)
            if asked != prefix:
                assert found.ids[:len(bytewise.vocabulary.encode(prefix))] == bytewise.vocabulary.encode(prefix)


def test_a_prefix_that_ends_inside_a_word_is_no_word_of_its_own():
    translator, source = load("ende"), "The parliament rejected the proposal."
    assert translator.translate(source,
                                prefix="Das Parl") == translator.translate(
                                    source, prefix="Das ") == "Das Parlament lehnte den Vorschlag ab."
    assert translator.translate(source, prefix="Das Parl ").startswith("Das Parl")


@pytest.mark.parametrize("prefix", ["gru\u0308", "gr\u00adü", "\u2581grü"])
def test_a_prefix_is_read_as_the_vocabulary_reads_text(prefix):
    vocabulary = BytePairVocabulary.learn(["die grüne Kuh", "die Kuh grüßt"] * 20, 30, normaliser="nfc")
    translator = Translator(model_of(7, vocab_size=len(vocabulary)), vocabulary)
    assert translator.translate("die Kuh", prefix=prefix) == translator.translate("die Kuh", prefix="grü") != ""


def test_a_prefix_is_read_as_other_programs_models_read_text(tmp_path):
    import sentencepiece
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["die grüne Kuh", "die Kuh grüßt"] * 20), model_prefix=str(tmp_path / "own"),
        vocab_size=30, model_type="bpe", normalization_rule_name="nmt_nfkc_cf", minloglevel=3)
    cut = imported_vocabulary(["<s>", "<pad>", "</s>", "<unk>", "d@@", "ie", "k@@", "u@@", "h"],
                              order_of_rows(9, 1, 3, 2, 2), lowercase=True, merges=[["i", "e</w>"]])
    for vocabulary in (adopt_model(tmp_path / "own.model"), cut):
        translator = Translator(model_of(7, vocab_size=len(vocabulary)), vocabulary)
        assert translator.translate("die kuh", prefix="Die Kuh").startswith("die kuh")


def test_a_prefix_is_never_cut(bytewise):
    "Its last word may be spelled with more pieces than usual."
    fails(lambda: bytewise.translate("a dog", prefix="a young", max_length=7), "up to 7 tokens")
    assert bytewise.translate("a dog", prefix="a young", max_length=8).startswith("a young")


def test_no_text_comes_twice_and_each_is_one_line(bytewise):
    found = bytewise.n_best(["the old cow", "a dog"], 12, beam_size=12, max_extra_tokens=6)
    for translations in found:
        texts = [t.text for t in translations]
        assert len(texts) == len({*texts}) and all(t.isprintable() or not {*t} & {"\n", "\r", "\x85", "\u2028"}
                                                   for t in texts)
    alike = translation.text_of([bytewise.vocabulary.encode("a")[0],
                                 *bytewise.vocabulary._processor.PieceToId(["<0x0A>", "<0x0D>", "<0x00>"]),
                                 *bytewise.vocabulary.encode("dog")], bytewise.vocabulary)
    assert alike == "a  dog"


def test_what_is_unknown_is_never_written():
    model, src = model_of(0), sources([4, 2], 0)
    with torch.no_grad():
        model.decoder[-1].residuals[2].norm.bias += 8 * model.embedding.weight[UNKNOWN]
    for ids in (*(h.ids for found in beam_search(model, src, n_best=4) for h in found),
                *(h.ids for h in sample(model, src))):
        assert UNKNOWN not in ids


def test_draws_of_a_translator_are_repeatable_and_none_comes_twice(bytewise):
    drawn = bytewise.n_best(["the cow", "", "a dog"], 5, sample=True, temperature=2.0, seed=4)
    assert drawn == bytewise.n_best(["the cow", "", "a dog"], 5, sample=True, temperature=2.0, seed=4)
    assert drawn != bytewise.n_best(["the cow", "", "a dog"], 5, sample=True, temperature=2.0, seed=5)
    assert 1 < len(drawn[0]) <= 5 and len(drawn[1]) == 1 and [t.score
                                                              for t in drawn[2]] == sorted(
                                                                  (t.score for t in drawn[2]), reverse=True)


def test_an_output_is_no_longer_than_it_may_be(bytewise):
    for config in (SearchConfig(max_length=3), SearchConfig(max_extra_tokens=-100),
                   SearchConfig(sample=True, max_length=2)):
        for (found,) in bytewise.search(["the old cow sees", "a"], config):
            assert len(found.token_log_probabilities) <= (config.max_length or 1)


@without_checker()
@pytest.mark.parametrize("options", [{"beam_size": 2.5}, {"beam_size": True}, {"beam_size": "4"}, {"beam_size": 10**9},
                                     {"beam_size": None}, {"alpha": math.nan},
                                     {"alpha": math.inf}, {"alpha": "0.6"}, {"max_extra_tokens": 1.5}, {"n_best": 5},
                                     {"max_length": 0}, {"temperature": 0}, {"seed": -1},
                                     {"beam": 4}, {"prefix": 3}, {"prefix": [None]}, {"prefix": [[1.5]]},
                                     {"prefix": [b"a"]}, {"prefix": "\U0001F600" * 400}, {"prefix": "a \udcff"}],
                         ids=lambda options: f"{options}"[:40])
def test_wrong_options_are_told_in_a_line(of_twenty, options):
    with pytest.raises(InputError) as told:
        of_twenty[0].translate(["a b"], **options)
    assert len(str(told.value)) < 250 and "\n" not in str(told.value)


@without_checker()
@pytest.mark.parametrize("lines", [[None], ["a", b"a"], b"a", 3, None, [["a"]], [1.5]], ids=repr)
def test_lines_that_are_no_text_are_told(of_twenty, lines):
    for ask in (of_twenty[0].translate, of_twenty[0].search, of_twenty[0].n_best):
        with pytest.raises(InputError):
            ask(lines)


def test_warnings_count_the_lines_of_a_stream(capsys):
    translator = load("grammar")
    long = "The cow is old . " * 300
    list(translator.stream(["The cow is old .", long], ahead=1))
    assert "warning: line 2 has" in capsys.readouterr().err


@pytest.mark.parametrize("library, use", [
    ("tokenizers", lambda: WordPieceVocabulary.learn(["a b c"], 20)),
    ("sacrebleu", lambda: sacrebleu_files("wmt13", "en-de")),
    ("sacrebleu.metrics", lambda: bleu(["a"], ["b"])),
    ("altair", lambda: save_attention(load("grammar"), "The cow is old."))],
    ids=["tokenizers", "sacrebleu", "metrics", "altair"])
def test_what_lacks_a_library_says_which(library, use, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    with pytest.raises(InputError,
                       match=f"^{library.split('.')[0]}.* is not installed, and this needs it: pip install"):
        use()


@pytest.mark.parametrize("precision", ["float16", *(pytest.param(name, marks=pytest.mark.slow)
                                                   for name in ("bfloat16", "int8"))])
def test_rounded_products_translate_nearly_the_same(precision):
    from annotated_transformer.corpus import grammar
    lines = [example.src for _, example in zip(range(examples(200)), grammar.examples(seed=11))]
    exact, rounded = (load("grammar", p).translate(lines) for p in ("float32", precision))
    assert sum(a == b for a, b in zip(exact, rounded)) >= 0.925 * len(lines)


def test_shipped_weights_load_with_8_and_16_bits(finished, tmp_path):
    run, exact = Run.open(finished), load(finished, "float32").model.state_dict()
    for bits, steps in ((16, 2**11), (8, 254)):
        ship(run, tmp_path / str(bits), bits)
        for name, tensor in load(tmp_path / str(bits), "float32").model.state_dict().items():
            largest = exact[name].abs().max() if exact[name].dim() < 2 else exact[name].abs().amax(1, keepdim=True)
            assert ((tensor - exact[name]).abs() <= largest / (steps if exact[name].dim() > 1
                                                               else 2**11) * 1.001 + 1e-7).all(), name
    size = {bits: (tmp_path / str(bits) / "averaged.safetensors").stat().st_size for bits in (8, 16)}
    assert size[8] < 0.8 * size[16]  # rows of 8 numbers: of wider ones the scale is a smaller part


@without_checker()
def test_a_search_needs_no_more_than_its_packed_weights(finished, tmp_path):
    "The model reads its matrices when somebody asks for it: from the same file, rounded alike, and then they count."
    if torch.cuda.is_available():
        pytest.skip("on a GPU a model is whole at once")
    folder = shutil.copytree(finished, tmp_path / "run")
    state, translator = torch.get_rng_state(), load(folder)
    assert torch.equal(torch.get_rng_state(), state)  # nothing is drawn for weights that are read
    whole = Run.open(folder).model()
    fill(whole, Run.open(folder).weights(), "float16")
    line, matrix = ["a b c"], "decoder.0.cross_attention.query.weight"
    found = translator.translate(line)
    assert translator.network.get_parameter(matrix).is_meta and translator.weights
    assert found == Translator(whole, translator.vocabulary, precision="float16").translate(line)
    for name, tensor in translator.model.state_dict().items():
        torch.testing.assert_close(tensor, whole.state_dict()[name], rtol=0, atol=0)
    assert translator.weights is None and translator.translate(line) == found
    before = target_probabilities(translator, line, line)[0]
    translator.model.get_parameter(matrix).data.mul_(-3)
    translator.prepare_search()
    assert target_probabilities(translator, line, line)[0] != before
    late = load(folder)
    shutil.copy(folder / "averaged.safetensors", folder / "other")
    os.replace(folder / "other", folder / "averaged.safetensors")
    assert late.translate(line) == found
    fails(lambda: late.model, folder / "averaged.safetensors", "has changed since it was loaded")
    os.remove(folder / "averaged.safetensors")
    fails(lambda: late.model, folder / "averaged.safetensors", "has changed since it was loaded")


@without_checker()
def test_a_model_is_read_from_where_it_was_loaded(finished, tmp_path, monkeypatch):
    shutil.copytree(finished, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    translator = load("run")
    monkeypatch.chdir("/")
    assert translator.model.embedding.weight.isfinite().all()


# --- what is computed is what is scored -------------------------------------------------------------------------------

LOADED = cache(lambda: load("grammar"))  # for tests that leave it as it is
in_float64 = cache(lambda: Translator(load("grammar", "float32").model.double(), LOADED().vocabulary))
LINES = ["The cow is old, but it plays.", "A dog sleeps.", "The teachers paint the child.", "The dog is young."]


@pytest.fixture
def grammar_translator():
    "One of the test's own, which it may change."
    return load("grammar")


def test_a_translation_scores_what_its_search_said():
    translator = load("grammar")
    found = translator.n_best(LINES, 2)
    for rank in (0, 1):
        scored = target_probabilities(translator, LINES, [of[rank].text for of in found])
        for pairs, translation_ in zip(scored, found):
            assert [p for _, p in pairs] == pytest.approx(translation_[rank].log_probabilities, rel=1e-4, abs=1e-4)


def test_an_evaluation_says_what_the_model_thinks_of_each_reference_token():
    "Asked for one pair at a time, in a whole; references that fit and others that do not."
    translator, references = LOADED(), ["Die Kuh ist alt, aber sie spielt.", "Eine Katze schläft.", "Die Kuh.", "Ja."]
    logs, right = [], []
    for src, tgt in zip(translator.encode(LINES), translator.encode(references, "tgt")):
        with torch.no_grad():
            ids = (torch.tensor([side], device=translator.device) for side in (src, [START, *tgt[:-1]]))
            p = translator.model(*ids)[0].log_softmax(-1).cpu()
        logs += p[range(len(tgt)), tgt].tolist()
        right += (p.argmax(-1) == torch.tensor(tgt)).tolist()
    found = evaluate(translator, LINES, references, samples=0).metrics
    assert 0 < np.mean(right) < 1 and found["accuracy"] == pytest.approx(np.mean(right))
    assert found["perplexity"] == pytest.approx(math.exp(-np.mean(logs)), rel=1e-3)


def test_one_precision_for_all_that_is_computed():
    translator, exact = load("grammar"), load("grammar", "float32")
    assert translator.precision == DEFAULT_PRECISION == "float16"
    rounded = {name: (w.half().float() if w.dim() > 1 else w) for name, w in exact.model.state_dict().items()}
    assert all(torch.equal(weight, rounded[name]) for name, weight in translator.model.state_dict().items())
    fails(lambda: ensemble([translator, exact]), "float16 and float32")


@pytest.mark.parametrize("precision", [pytest.param("float32", marks=pytest.mark.slow), "float16"])
def test_searches_see_every_change_of_a_weight(precision):
    "Also through `.data`, which raises no version; an exchange of two rows leaves every sum as it was."
    translator = load("grammar", precision)
    short = {"beam_size": 2, "max_length": 8}
    before, embedding = translator.translate(LINES, **short), translator.model.embedding.weight.data
    changes = (lambda w: w.neg_(), lambda w: w.copy_(w.flip(0)), lambda w: w.copy_(w.roll(1, 1)))
    for change in changes:
        kept = embedding.clone()
        change(embedding)
        found = translator.translate(LINES, **short)
        assert found == Translator(translator.model, translator.vocabulary).translate(LINES, **short) != before
        embedding.copy_(kept)
        assert translator.translate(LINES, **short) == before


def test_a_stamp_tells_weights_apart():
    weight = torch.nn.Linear(64, 1100, bias=False)
    stamp, data = weights_stamp(weight), weight.weight.data
    for change in (lambda: data[0, 0].add_(1e-6), lambda: data.copy_(data.roll(1, 1)), lambda: data[:2, 5].neg_(),
                   lambda: data.view(torch.int32).bitwise_not_(),
                   lambda: data.neg_(), lambda: data.copy_(data[[1, 0, *range(2, 1100)]]),
                   lambda: data.copy_(data[[1021, *range(1, 1021), 0, *range(1022, 1100)]])):
        before = data.clone()
        change()
        assert weights_stamp(weight) != stamp
        data.copy_(before)
        assert weights_stamp(weight) == stamp


def test_hooks_fire_in_whatever_a_translator_does(grammar_translator):
    translator, seen = grammar_translator, []
    before, quality = translator.translate(LINES), translator.measure(LINES, LINES)
    hook = translator.model.decoder[0].feed_forward.register_forward_hook(lambda *_: seen.append(1))
    for ask in (lambda: translator.translate(LINES), lambda: translator.measure(LINES, LINES),
                lambda: translator.attention(LINES[0], LINES[0]), lambda: ensemble([translator] * 2).translate(LINES)):
        seen.clear()
        ask()
        assert seen
    assert translator.translate(LINES) == before
    assert translator.measure(LINES, LINES).perplexity == pytest.approx(quality.perplexity, rel=1e-4)
    hook.remove()
    seen.clear()
    assert translator.translate(LINES) == before and not seen


def test_a_translators_model_is_a_module_like_any_other(grammar_translator):
    translator = grammar_translator
    names = {*vars(translator.model)}
    translator.translate(LINES)
    assert {*vars(translator.model)} == names == {*vars(Transformer(translator.model.config))}
    again = Translator(pickle.loads(pickle.dumps(translator.model)), translator.vocabulary)
    assert again.translate(LINES) == translator.translate(LINES) == copy.deepcopy(translator).translate(LINES)


def test_a_translator_goes_to_another_process():
    translator = load("grammar", "float16")
    sent, before = pickle.dumps(translator), translator.translate(LINES)
    for again in map(pickle.loads, (sent, pickle.dumps(translator), pickle.dumps(ensemble([translator] * 2)))):
        assert again.translate(LINES) == before and again.precision == "float16"


def test_a_model_in_training_mode_writes_without_dropout(grammar_translator):
    translator = grammar_translator
    before, weights = translator.translate(LINES), translator.attention(LINES[0])
    frozen = translator.model.train().encoder[0].eval()
    assert translator.translate(LINES) == before
    assert measure(translator.model, []).tokens == 0
    assert all(map(torch.equal, translator.attention(LINES[0]).cross, weights.cross))
    assert translator.model.training and translator.model.decoder[0].training and not frozen.training


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(0, 2**40), st.integers(1, 3), st.integers(5, 200),
       st.lists(st.sampled_from(LINES), min_size=1, max_size=9))
def test_a_seed_and_a_lines_number_fix_its_draws(seed, ahead, batch_tokens, lines):
    """Whatever the batches and the pace, and whatever stands in the other lines. In float64: in float32, rounding
    decides one text in some hundreds."""
    translator = in_float64()
    options = dict(sample=True, temperature=1.5, seed=seed, max_length=10)
    drawn = translator.translate(lines, **options)
    assert drawn == translator.translate(lines, batch_tokens=batch_tokens, workers=1, **options)
    assert drawn == [*translator.stream(lines, ahead=ahead, **options)]
    others = ["The old teacher sees the child." if i % 2 else line for i, line in enumerate(lines)]
    assert drawn[::2] == translator.translate(others, **options)[::2]


def test_equal_lines_are_drawn_apart_however_many():
    drawn = LOADED().translate(["A dog sleeps."] * 60, sample=True, temperature=3.0, max_length=12)
    assert len({*drawn}) == 60


def test_draws_follow_the_probabilities():
    model, src = model_of(3), sources([4], 3)
    n = 4000
    drawn = sample(model, src.expand(n, -1), max_extra_tokens=-3)
    with torch.no_grad():
        p = model(src, torch.tensor([[START]]))[0, -1].softmax(-1)
    p[[PAD, START, UNKNOWN]] = 0
    p /= p.sum()
    counts = torch.tensor([sum((h.ids or [END])[0] == token for h in drawn) for token in range(len(p))])
    assert ((counts - n * p) / (n * p * (1 - p)).sqrt().clamp(min=1)).abs().max() < 4.5


@pytest.mark.parametrize("decode", [beam_search, greedy, sample])
def test_a_batch_of_nothing_is_told_in_a_line(decode):
    for shape in ((0, 5), (3, 0)):
        fails(lambda: decode(model_of(0), torch.zeros(shape, dtype=torch.long)), f"{shape[0]} sentences")


@pytest.mark.parametrize("place", ["embedding.weight", "encoder.0.self_attention.query.weight",
                                   "decoder.1.residuals.2.norm.bias"])
def test_a_weight_that_is_no_number_is_told(place, grammar_translator, finished, tmp_path):
    translator = grammar_translator
    translator.model.get_parameter(place).data.view(-1)[-1] = math.nan
    for ask in (lambda: translator.translate(LINES), lambda: translator.translate(LINES, sample=True),
                lambda: translator.n_best(LINES, 2)):
        fails(ask, place, "NaN")
    fails(lambda: translator.measure(LINES, LINES), "NaN")
    for decode in (beam_search, greedy, sample):
        fails(lambda: decode(translator.model, torch.tensor([[5, 6, 7, 8, END], [6, END, PAD, PAD, PAD]])), "NaN")
    folder = shutil.copytree(finished, tmp_path / "run")
    weights = load_file(folder / "averaged.safetensors")
    weights["embedding.weight"][5, 5] = math.inf
    save_file(weights, folder / "averaged.safetensors")
    fails(lambda: load(folder), folder, "embedding.weight", "infinite")


@without_checker()
def test_options_of_the_wrong_type():
    translator = LOADED()
    assert translator.translate(LINES[:1], progress=None) == translator.translate(LINES[:1])
    fails(lambda: translator.translate(LINES[:1], progress=3), "progress 3")
    for name in ("sample", "early_stopping"):
        for wrong in ("no", 1, None):
            fails(lambda: SearchConfig(**{name: wrong}), f"{name} {wrong!r}")


def closed_after_the_last(search_):
    "As whoever counts the parts does: the generator is not asked once more."
    found = [next(search_) for _ in range(3)]
    search_.close()
    return found


@pytest.mark.parametrize("finish", [list, closed_after_the_last])
def test_searches_in_several_threads_leave_each_others_settings_alone(finish):
    "One begins within the other and ends after it: both, and every later thread, have the threads from before."
    before, parts, cpu = torch.get_num_threads(), [np.arange(1)] * 4, torch.device("cpu")
    searches = [side_by_side(lambda part: [torch.get_num_threads()], parts, cpu) for _ in range(2)]
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other, ThreadPoolExecutor(1) as third:
        try:
            torch.set_num_threads(8)
            for thread, search_ in zip((one, other), searches):
                assert thread.submit(next, search_).result() == [2]
            for thread, search_ in zip((one, other), searches):
                assert thread.submit(finish, search_).result() == [[2]] * 3
            assert [thread.submit(torch.get_num_threads).result() for thread in (one, other, third)] == [8] * 3
            assert torch.get_num_threads() == 8
            assert [*side_by_side(lambda part: [torch.get_num_threads()], parts, cpu, workers=1)] == [[8]] * 4
        finally:
            torch.set_num_threads(before)
