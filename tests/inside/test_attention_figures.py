"""The attention figures: what is recorded, which heads are found, and that a drawing shows the weights."""
import itertools
import re

import numpy as np
import pytest
import torch

from annotated_transformer.corpus import grammar
from annotated_transformer.decoding.translation import Translator, load
from annotated_transformer.inside import attention_figures
from annotated_transformer.inside.attention_figures import (
    MIN_WEIGHT, Drawing, figure_3, figure_4, figure_5, head_view, labels, head_lines, matrix_view, offset_means,
    overview, heads_above_average, view, word_places)
from annotated_transformer.model.attention import recording
from annotated_transformer.tools.files import InputError

SENTENCE = "The cow that my sister could see is old, but it plays."
STACKS = ("encoder", "decoder", "cross")


@pytest.fixture(scope="module")
def t() -> Translator:
    return load("grammar")


def opacities(drawing: Drawing) -> list[float]:
    "Of each line of a drawing."
    paths = re.findall(r'<path d="([^"]+)"[^>]*stroke-opacity="([^"]+)"', drawing.svg)
    return [float(opacity) for d, opacity in paths for _ in range(d.count("M"))]


# --- what is recorded -----------------------------------------------------------------------------

def test_a_batch_has_the_weights_of_its_sentences(t):
    sources = [e.src for e in itertools.islice(grammar.examples(seed=9), 4)] + [""]
    targets = [t.translate(line) for line in sources]
    for given in (None, targets):
        for line, target, together in zip(sources, targets, t.attention(sources, given), strict=True):
            alone = t.attention(line, target)
            assert alone[:3] == together[:3]
            for stack in ("encoder", "decoder", "cross"):
                for a, b in zip(getattr(alone, stack), getattr(together, stack), strict=True):
                    assert a.shape == b.shape == (1, t.model.config.n_heads, *a.shape[2:])
                    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_recording_leaves_no_trace(t):
    ids = torch.randint(4, len(t.vocabulary), (3, 12), generator=torch.Generator().manual_seed(0))
    ids[1, 7:] = ids[2, 3:] = 0
    for mode in (t.model.eval(), t.model.train()):
        torch.manual_seed(1)
        before = mode(ids, ids)
        torch.manual_seed(1)
        with recording(mode) as kept:
            during = mode(ids, ids)
        assert torch.equal(before, during) and all(len(weights) == 1 for weights in kept.values())
    t.model.eval()
    assert not any(m._forward_pre_hooks for m in t.model.modules())


def test_as_many_targets_as_sources(t):
    with pytest.raises(InputError, match="2 sources and 1 targets"):
        t.attention(["a", "b"], ["c"])


# --- words and labels -----------------------------------------------------------------------------

def test_every_token_is_in_one_word(t):
    for example in itertools.islice(grammar.examples(seed=4), 50):
        symbols = t.vocabulary.pieces(t.encode([example.src])[0])
        words = word_places(symbols)
        assert [i for word in words for i in word] == list(range(len(symbols)))
        text = labels(symbols, words, joined=True)
        assert "".join(text) == example.src.replace(" ", "") + "</s>"
        assert all(len(re.findall(r"\w+|[^\w\s]+", word)) == 1 for word in text[:-1])


def test_joined_words_share_out_all_weight(t):
    for stack in STACKS:
        pieces, words = (view(t, "Unbekannt sleeps, \u2603 and Xyzzy plays.", None, stack, joined)
                         for joined in (False, True))
        assert words.weights.shape[2:] == (len(words.queries), len(words.keys))
        assert len(words.keys) < len(pieces.keys) or stack == "decoder"
        np.testing.assert_allclose(words.weights.sum(-1), 1, rtol=1e-5)


def test_the_query_has_read_what_the_last_one_wrote(t):
    for stack in ("decoder", "cross"):
        seen = view(t, SENTENCE, None, stack, joined=False)
        read, written = zip(*(label.split(" \u2192 ") for label in seen.queries))
        assert read[0] == "<s>" and written[-1] == "</s>" and read[1:] == written[:-1]
    assert view(t, SENTENCE, None, "decoder", False).keys == list(read)


# --- heads ----------------------------------------------------------------------------------------

def test_averages_are_of_every_pair_at_an_offset(t):
    sources = [e.src for e in itertools.islice(grammar.examples(seed=9), 3)]
    found = offset_means(t, sources)
    for stack, special in (("encoder", -1), ("decoder", 0), ("cross", -1)):
        pairs = {}
        for line in sources:
            weights = torch.cat(getattr(t.attention(line), stack)).numpy()[1, 2]
            for q, k in np.ndindex(weights.shape):
                if stack != "decoder" or k <= q:
                    at = "no word" if k == special % weights.shape[1] else k - q
                    pairs.setdefault(at, []).append(weights[q, k])
        for at, weights in pairs.items():
            place = -1 if at == "no word" else attention_figures.FARTHEST + at
            assert found[stack][1, 2, place] == pytest.approx(np.mean(weights), abs=1e-5), (stack, at)


@pytest.mark.parametrize("stack", STACKS)
def test_heads_lie_farthest_above_their_average(t, stack):
    averages = offset_means(t, [e.src for e in itertools.islice(grammar.examples(seed=9), 5)])
    seen = view(t, SENTENCE, stack=stack, averages=averages)
    for query in range(len(seen.queries)):
        most = {}
        for layer, head in np.ndindex(seen.weights.shape[:2]):
            keys = [k for k in range(len(seen.keys)) if k not in seen.special and (stack == "cross" or k != query)]
            most[layer, head] = max((seen.above[layer, head, query, k] for k in keys), default=0)
        found = heads_above_average(seen, 3, query)
        assert [most[head] for head in found] == pytest.approx(sorted(most.values(), reverse=True)[:3], abs=1e-6)


# --- drawings -------------------------------------------------------------------------------------

@pytest.mark.parametrize("source", ["", " ", "\u2603", "The cow sleeps \u2603\u2603 \U0001f404.", "x" * 400])
@pytest.mark.parametrize("stack", STACKS)
def test_odd_sentences_are_drawn(t, source, stack):
    target = "" if source == "" else "Die Kuh schl\u00e4ft."
    weights = getattr(t.attention(source, target), stack)[-1]
    assert len(opacities(head_view(t, source, target, stack))) == (weights >= MIN_WEIGHT).sum()
    assert overview(t, source, target, stack).chart.to_dict()
    cells = matrix_view(t, source, target, stack).chart.to_dict()["datasets"]
    assert sorted(map(len, cells.values())) == [(weights[0, 0] >= MIN_WEIGHT).sum()]


def test_a_line_is_as_opaque_as_its_weight(t):
    weights = t.attention(SENTENCE).encoder[1][0]
    drawn = sorted(opacities(head_view(t, SENTENCE)))
    assert drawn == pytest.approx(sorted(weights[weights >= MIN_WEIGHT].tolist()), abs=0.0101)
    it = opacities(head_view(t, SENTENCE, word="it", heads=[1]))
    of_it = weights[1, t.attention(SENTENCE).src.index("\u2581it")]
    assert sorted(it) == pytest.approx(sorted(of_it[of_it >= MIN_WEIGHT].tolist()), abs=0.0101)


def test_the_three_figures(t):
    averages = offset_means(t, [e.src for e in itertools.islice(grammar.examples(seed=9), 5)])
    seen = view(t, SENTENCE, averages=averages)
    for figure, word, n in ((figure_3, "it", 4), (figure_4, "it", 2), (figure_5, None, 2)):
        found = heads_above_average(seen, n, None if word is None else seen.queries.index(word))
        options = {} if word is None else {"word": word}
        by_rule = figure(t, SENTENCE, **options, averages=averages)
        named = figure(t, SENTENCE, **options, heads=found)
        assert by_rule.svg == named.svg != figure(t, SENTENCE, **options, heads=found[::-1]).svg
        assert "<script" not in named.svg and "<button" not in named.svg
    only = Drawing(head_lines(seen, [(1, 1)], "it", seen.queries.index("it")))
    assert opacities(figure_3(t, SENTENCE, word="it", heads=[(1, 1)])) == opacities(only)
    for figure in (figure_3, figure_4):
        with pytest.raises(InputError, match="word 'making': none of the words that look"):
            figure(t, SENTENCE, word="making", averages=averages)


def test_what_a_user_can_get_wrong(t):
    wrong = [("stack", "both", "stack 'both'"), ("layer", 2, "layers 0 to 1"), ("heads", [], "heads"),
             ("heads", [-1], "0 to 3")]
    for option, value, says in wrong:
        with pytest.raises(InputError, match=says):
            head_view(t, SENTENCE, **{option: value})
    with pytest.raises(InputError, match="stack"):
        overview(t, SENTENCE, stack="both")


def test_saving(t, tmp_path):
    drawing = head_view(t, "The cow <sleeps> & plays.", "Die Kuh schl\u00e4ft.")
    assert drawing.save(tmp_path / "new" / "head.svg").read_text(encoding="utf-8") == drawing.svg
    assert drawing.save(tmp_path / "head.png").read_bytes().startswith(b"\x89PNG")
    assert "<sleeps>" not in drawing.svg  # escaped
    with pytest.raises(ValueError, match="head.gif"):
        drawing.save(tmp_path / "head.gif")
