"""The attention figures as files and in a browser: a page that draws itself without a network, and answers to a pointer."""
import base64
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from annotated_transformer.corpus import grammar
from annotated_transformer.decoding.translation import Translator, load
from annotated_transformer.drawing.charts import Shown
from annotated_transformer.inside.attention_figures import (
    FAINT,
    FULL,
    LEAST,
    MOST,
    figure_3,
    figure_4,
    figure_5,
    head_view,
    labels,
    links,
    matrix_view,
    most_unlike,
    overview,
    sharpest_heads,
    view,
    views,
    word_places,
)
from annotated_transformer.model.attention import recording
from annotated_transformer.tools.files import InputError
from browser import Page, browser

SENTENCE = "The cow that my sister could see is old, but it plays."


@pytest.fixture(scope="module")
def t() -> Translator:
    return load("grammar")


def tables(shown: Shown) -> list[list[dict]]:
    return list(shown.chart.to_dict()["datasets"].values())


def drawn(shown: Shown) -> list[dict]:
    "The links in a chart of one view."
    (rows,) = [rows for rows in tables(shown) if rows and "w" in rows[0]]
    return rows


# --- what is recorded ----------------------------------------------------------------------------------------------------------------

def test_a_batch_has_the_weights_of_its_sentences(t):
    sources = [e.src for e in itertools.islice(grammar.examples(seed=9), 12)] + [""]
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
    assert all(getattr(m, "recorded", None) is None for m in t.model.modules())


def test_as_many_targets_as_sources(t):
    with pytest.raises(InputError, match="2 sources and 1 targets"):
        t.attention(["a", "b"], ["c"])


# --- words and labels ----------------------------------------------------------------------------------------------------------------

def test_every_symbol_is_in_one_word(t):
    for example in itertools.islice(grammar.examples(seed=4), 50):
        symbols = t.vocabulary.pieces(t.encode([example.src])[0])
        words = word_places(symbols)
        assert [i for word in words for i in word] == list(range(len(symbols)))
        text = labels(symbols, words, joined=True)
        assert "".join(text) == example.src.replace(" ", "") + "</s>"
        assert all(len(re.findall(r"\w+|[^\w\s]+", word)) == 1 for word in text[:-1])


def test_joined_words_share_out_all_weight(t):
    for stack in ("encoder", "decoder", "cross"):
        pieces, words = (views(t, "Unbekannt sleeps, \u2603 and Xyzzy plays.", None, stack, joined) for joined in (False, True))
        for a, b in zip(pieces, words, strict=True):
            assert b.weights.shape == (t.model.config.n_heads, len(b.queries), len(b.keys))
            assert len(b.keys) < len(a.keys) or stack == "decoder"
            np.testing.assert_allclose(b.weights.sum(-1), 1, rtol=1e-5)


def test_the_query_has_read_what_the_last_one_wrote(t):
    for stack in ("decoder", "cross"):
        for view in views(t, SENTENCE, None, stack, joined=False):
            read, written = zip(*(label.split(" \u2192 ") for label in view.queries))
            assert read[0] == "<s>" and written[-1] == "</s>" and read[1:] == written[:-1]
    assert views(t, SENTENCE, None, "decoder", False)[0].keys == list(read)


# --- charts --------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("source", ["", " ", "\u2603", "The cow sleeps \u2603\u2603 \U0001f404.", "The cow sleeps.", "x" * 400])
@pytest.mark.parametrize("stack", ["encoder", "decoder", "cross"])
def test_odd_sentences_are_drawn(t, source, stack):
    target = "" if source == "" else "Die Kuh schl\u00e4ft."
    weights = getattr(t.attention(source, target), stack)[-1]
    assert len(drawn(head_view(t, source, target, stack))) == (weights >= LEAST).sum()
    for shown in (overview(t, source, target, stack, joined=True), matrix_view(t, source, target, stack)):
        assert shown.chart.to_dict()


def test_the_lines_of_a_long_sentence_are_bounded_and_the_chart_says_so():
    rng = np.random.default_rng(0)
    for n, spread in ((100, 1.0), (100, 0.0), (300, 0.5), (300, 3.0)):
        weights = rng.dirichlet(np.full(n, 0.02), size=(8, n)) if spread == 3.0 else np.exp(spread * rng.normal(size=(8, n, n)))
        weights /= weights.sum(-1, keepdims=True)
        columns, least = links(weights, range(8))
        kept = weights >= least
        assert len(columns["w"]) == kept.sum() <= MOST and least >= LEAST
        assert least == LEAST or (weights >= least - 0.0011).sum() > MOST  # no more left out than needed
        assert columns["w"] == sorted(columns["w"]) and len(json.dumps(columns)) < 1_000_000
        h, q, k = (np.array(columns[name], dtype=int) for name in "hqk")
        np.testing.assert_allclose(weights[h - 1, q, k], columns["w"], atol=6e-4)


def test_a_chart_of_a_hundred_symbols_is_small(t):
    words = " ".join(w for e in itertools.islice(grammar.examples(seed=3), 40) for w in e.src.split())
    for symbols in (100, 300):
        shown = head_view(t, " ".join(words.split()[: symbols - 1]), "Die Kuh.")
        spec = shown.chart.to_dict()
        least = re.search(r"Weights under ([\d.]+) left out", str(spec["title"]["subtitle"]))[1]
        weights = [r["w"] for rows in spec["datasets"].values() if "w" in rows[0] for r in rows]
        assert len(json.dumps(spec)) < 2_000_000 and LEAST <= float(least) <= min(weights)
        assert symbols == 300 or float(least) == LEAST


def test_the_three_figures(t):
    third = figure_3(t, SENTENCE, word="see")
    assert "datum.q == 6" in str(third.chart.to_dict()) and {r["h"] for r in drawn(third)} == {1, 2, 3, 4}
    assert {r["h"] for r in drawn(figure_3(t, SENTENCE, word="see", heads=[2]))} == {3}
    fourth = figure_4(t, SENTENCE, word="it", heads=[3, 1])
    above, below = map(str, fourth.chart.to_dict()["vconcat"])
    assert "datum.q == 11" not in above and "datum.q == 11" in below
    assert [{r["h"] for r in rows} for rows in tables(fourth) if "w" in rows[0]] == [{4}, {2, 4}]
    fifth = figure_5(t, SENTENCE).chart.to_dict()
    (first, second) = ({r["h"] for r in rows} for rows in fifth["datasets"].values() if "w" in rows[0])
    pair = most_unlike(views(t, SENTENCE, None, "encoder", True)[0].weights)
    assert first | second == {h + 1 for h in pair} and len(pair) == 2
    for figure in (figure_3, figure_4):
        with pytest.raises(InputError, match="word 'making': none of the words that look"):
            figure(t, SENTENCE, word="making")


def test_the_sharpest_heads_pass_over_the_word_itself_and_the_end(t):
    drawn = view(t, SENTENCE, layer=-1)
    for query in range(len(drawn.queries)):
        best = {h: max(w for k, w in enumerate(drawn.weights[h, query]) if k != query and drawn.keys[k] != "</s>") for h in range(4)}
        assert sharpest_heads(drawn, query, 4) == sorted(best, key=lambda h: -best[h])


def test_in_the_cross_stack_no_source_word_is_the_query_itself(t):
    drawn = view(t, SENTENCE, stack="cross", layer=-1)
    for query in range(len(drawn.queries)):
        best = {h: max(w for k, w in enumerate(drawn.weights[h, query]) if drawn.keys[k] != "</s>") for h in range(4)}
        assert sharpest_heads(drawn, query, 4) == sorted(best, key=lambda h: -best[h])


def strength(rows: list[dict], keys: list[str], full: dict[int, float]) -> dict[tuple, float]:
    "By hand: a weight as a part of its head's full one; on the end symbol a fifth of that."
    return {(r["h"], r["q"], r["k"]): min(1, r["w"] / max(full[r["h"]], FULL)) * (FAINT if keys[r["k"]] == "</s>" else 1) for r in rows}


@pytest.mark.parametrize("word", [None, "it"])
def test_each_head_is_drawn_in_full_once_and_the_end_symbol_faintly(t, word):
    drawn_view, rows = view(t, SENTENCE, layer=-1), drawn(head_view(t, SENTENCE, word=word, joined=True))
    words = [i for i, key in enumerate(drawn_view.keys) if key != "</s>"]
    seen = drawn_view.weights[:, :, words] if word is None else drawn_view.weights[:, [drawn_view.queries.index(word)]][:, :, words]
    expected = strength(rows, drawn_view.keys, {h + 1: w.max() for h, w in enumerate(seen)})
    assert {(r["h"], r["q"], r["k"]): r["s"] for r in rows} == pytest.approx(expected, abs=0.006)
    shown = [r for r in rows if word is None or drawn_view.queries[r["q"]] == word]
    assert {r["h"] for r in shown if r["s"] == 1 and r["k"] in words} == {1, 2, 3, 4}
    assert max(r["s"] for r in rows if r["k"] not in words) <= FAINT


def test_every_layer_with_a_slider(t):
    shown = head_view(t, SENTENCE, layer=None)
    (slider,) = [p for p in shown.chart.to_dict()["params"] if "bind" in p]
    assert (slider["bind"]["min"], slider["bind"]["max"], slider["value"]) == (1, 2, 2)
    for layer in (0, 1):
        alone = {(r["h"], r["q"], r["k"], r["w"]) for r in drawn(head_view(t, SENTENCE, layer=layer))}
        assert alone == {(r["h"], r["q"], r["k"], r["w"]) for r in drawn(shown) if r["l"] == layer + 1}


def test_what_a_user_can_get_wrong(t):
    wrong = ("stack", "both", "stack 'both'"), ("layer", 2, "layers 0 to 1"), ("heads", [], "heads"), ("heads", [-1], "0 to 3")
    for option, value, says in wrong:
        with pytest.raises(InputError, match=says):
            head_view(t, SENTENCE, **{option: value})
    with pytest.raises(InputError, match="stack"):
        overview(t, SENTENCE, stack="both")


@pytest.mark.xdist_group("browser")
def test_saving(t, tmp_path):
    shown = matrix_view(t, "The cow sleeps.", "Die Kuh schl\u00e4ft.")
    assert shown.save(tmp_path / "new" / "head") == tmp_path / "new" / "head"
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["head.html", "head.png", "head.svg"]
    assert (tmp_path / "new/head.png").read_bytes().startswith(b"\x89PNG") and "<svg" in (tmp_path / "new/head.svg").read_text()
    page = (tmp_path / "new/head.html").read_text(encoding="utf-8")
    assert not re.findall(r"<(?:script|link)\b[^>]*(?:src|href)=|@import|(?<!\w)import\(", page)
    assert "<h1>encoder, layer 2 of 2, head 1; weights under 0.01 left out</h1>" in page
    with pytest.raises(ValueError, match="head.gif"):
        shown.save(tmp_path / "head.gif")


# --- in a browser --------------------------------------------------------------------------------------------------------------------

def open_chart(page: Page, path: Path):
    page.open(path.as_uri(), "!!window.view")
    return page.js(ITEMS)


# every mark on the page, at its centre in the window's pixels
ITEMS = """window.items = async () => {
    await view.runAsync();
    const found = [], svg = document.querySelector('#chart svg.marks'), frame = svg.getBoundingClientRect();
    const [left, top] = view.origin(), around = view.padding(), large = frame.width / svg.viewBox.baseVal.width;
    const walk = (mark, x, y) => { for (const item of mark.items || [])
        if (mark.marktype === 'group') (item.items || []).forEach(m => walk(m, x + (item.x || 0), y + (item.y || 0)));
        else found.push({mark: mark.marktype, ...item.datum, fill: item.fillOpacity, line: item.strokeOpacity, label: item.text,
                         x: frame.left + large * (x + (item.bounds.x1 + item.bounds.x2) / 2),
                         y: frame.top + large * (y + (item.bounds.y1 + item.bounds.y2) / 2)}); };
    walk(view.scenegraph().root, around.left + left, around.top + top);
    return found; }; 0"""


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


def lines(items: list[dict]) -> set[tuple]:
    return {(i["h"], i["q"], i["k"]) for i in items if i["mark"] == "rule"}


@pytest.mark.xdist_group("browser")
def test_a_page_without_a_network_answers_to_the_pointer(t, page, tmp_path):
    shown = head_view(t, SENTENCE, stack="encoder")
    open_chart(page, shown.save(tmp_path / "view.html"))
    every = {(r["h"], r["q"], r["k"]) for r in drawn(shown)}
    items = page.js("items()")
    assert lines(items) == every
    assert {round(i["line"], 3) for i in items if i["mark"] == "rule"} == {r["s"] for r in drawn(shown)}
    swatch = {i["h"]: i for i in items if i["mark"] == "rect" and "middle" in i}
    word = {side: {i[side]: i for i in items if i["mark"] == "text" and side in i and "word" in i} for side in "qk"}
    assert len(swatch) == 4 and len(word["q"]) == len(word["k"]) == len(t.encode([SENTENCE])[0])

    def at(item: dict) -> tuple[float, float]:
        return item["x"], item["y"]

    page.click(*at(swatch[2]))  # off
    assert lines(page.js("items()")) == {link for link in every if link[0] != 2}
    page.click(*at(swatch[4]))  # off as well
    assert lines(page.js("items()")) == {link for link in every if link[0] in (1, 3)}
    page.click(*at(swatch[2]))  # on again
    assert lines(page.js("items()")) == {link for link in every if link[0] != 4}
    page.click(*at(swatch[4]))
    page.double_click(*at(swatch[3]))  # it alone
    assert lines(page.js("items()")) == {link for link in every if link[0] == 3}
    page.double_click(*at(swatch[3]))  # all again
    assert lines(page.js("items()")) == every

    page.mouse("mouseMoved", *at(word["q"][3]))
    items = page.js("items()")
    assert lines(items) == {link for link in every if link[1] == 3}
    strongest = {}  # the blocks beside the words follow
    for r in drawn(shown):
        if r["q"] == 3:
            strongest[r["h"], r["k"]] = r["s"]
    assert {(i["h"], i["k"]): round(i["fill"], 3) for i in items if i["mark"] == "rect" and "s" in i and "k" in i} == strongest
    assert {i["q"]: i["fill"] for i in items if i["mark"] == "text" and "q" in i} == {q: 1 if q == 3 else 0.5 for q in word["q"]}
    page.mouse("mouseMoved", *at(word["k"][9]))
    assert lines(page.js("items()")) == {link for link in every if link[2] == 9}
    line = max((i for i in items if i["mark"] == "rule"), key=lambda i: i["line"])
    for x, y in (at(line), (5, 5)):  # a line, or the ground, isolates nothing
        page.mouse("mouseMoved", x, y)
        assert lines(page.js("items()")) == every
    page.click(*at(line))
    assert lines(page.js("items()")) == every
    assert page.errors == [] and all(url.startswith(("file:", "data:", "blob:")) for url in page.asked), page.asked


@pytest.mark.xdist_group("browser")
def test_an_isolated_word_gives_way_to_the_one_pointed_at(t, page, tmp_path):
    shown = figure_4(t, SENTENCE, word="it", heads=[0, 1])
    open_chart(page, shown.save(tmp_path / "figure_4.html"))
    items = page.js("items()")
    middle = sorted({i["y"] for i in items if i["mark"] == "rect" and "middle" in i})[1]  # below: the second chart

    def below() -> set[tuple]:
        return lines([i for i in page.js("items()") if i["y"] > middle])

    assert {q for _, q, _ in below()} == {11}
    (cow,) = [i for i in items if i["mark"] == "text" and i.get("q") == 1 and i["y"] > middle]
    page.call("Emulation.setDeviceMetricsOverride", width=1400, height=1600, deviceScaleFactor=1, mobile=False)
    page.mouse("mouseMoved", cow["x"], cow["y"])
    assert {q for _, q, _ in below()} == {1}
    page.mouse("mouseMoved", 5, 5)
    assert {q for _, q, _ in below()} == {11}
    picture = base64.b64decode(page.call("Page.captureScreenshot")["data"])
    assert picture.startswith(b"\x89PNG")
