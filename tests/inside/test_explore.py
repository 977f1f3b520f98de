"""The page's engine against Python's plain model, and the page itself in a browser, from disk and without a network."""
import itertools
import json
import random
import shutil
import subprocess
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from annotated_transformer.commands import cli
from annotated_transformer.corpus import grammar
from annotated_transformer.corpus.vocabulary import BytePairVocabulary, WordPieceVocabulary
from annotated_transformer.decoding.translation import Translator, load
from annotated_transformer.imports.imported import imported_vocabulary
from annotated_transformer.inside import explore
from annotated_transformer.inside.attention_figures import SUBLAYERS, offset_means
from annotated_transformer.inside.intervening import intervening, mean_outputs
from annotated_transformer.model.attention import recording
from annotated_transformer.model.symbols import END, START, UNKNOWN
from annotated_transformer.model.transformer import BASE, Transformer
from annotated_transformer.tools.files import InputError
from annotated_transformer.training.runs import shipped_runs
from browser import Page, browser

NODE = shutil.which("node")
pytestmark = pytest.mark.xdist_group("explore")  # one page, one browser
needs_node = pytest.mark.skipif(NODE is None, reason="no Node.js")
KINDS = ["none", "zero", "mean", "cut", "redirect", "cut in every head", "all of them"]
Given = tuple[dict, dict]  # what `intervening` takes


def sources(n: int, seed: int = 21) -> list[str]:
    return [e.src for e in itertools.islice(grammar.examples(seed), n)]


def engine(folder: Path, requests: list[dict], averages: dict | None = None, plain: bool = False) -> list:
    "The answers of the page's engine, in Node, to [{method, given}, ...]."
    vocabularies = {name: next((str(p) for s in (".model", ".json") if (p := folder / f"{stem}{s}").exists()), None)
                    for name, stem in (("vocabulary", "vocabulary"), ("sourceVocabulary", "src_vocabulary"))}
    given = {"files": {"config": str(folder / "config.json"), "weights": str(folder / "averaged.safetensors"),
                       **vocabularies},
             "requests": requests, "averages": averages, "plain": plain}
    ran = subprocess.run([NODE, Path(__file__).with_name("explore_node.js"), str(explore.PAGE)],
                         input=json.dumps(given).encode(), capture_output=True)
    assert not ran.returncode, ran.stderr.decode()
    return json.loads(ran.stdout)[1:]


def in_javascript(heads: dict, edges: dict, means: dict) -> dict:
    "Interventions as the page writes them."
    return {"heads": {".".join(map(str, head)): "zero" if isinstance(value, float) else "mean" for head,
                      value in heads.items()},
            "edges": [{"stack": stack, "layer": layer, "head": head, "query": q, "key": k, "to": None if to == "cut"
                       else to}
                      for (stack, layer, head, q, k), to in edges.items()]}


def drawn(kind: str, t: Translator, n: int, means: dict, rng: random.Random) -> Given:
    "Interventions of a kind on a sentence of `n` tokens, at random places."
    c, heads, edges = t.model.config, {}, {}
    for _ in range(2):
        head = rng.choice(list(SUBLAYERS)), rng.randrange(c.n_layers), rng.randrange(c.n_heads)
        if kind in ("zero", "all of them"):
            heads[head] = 0.0
        if kind in ("mean", "all of them"):
            heads[head[0], head[1], (head[2] + 1) % c.n_heads] = means[head[0], head[1], (head[2] + 1) % c.n_heads]
    for how in {"cut": "ccc", "redirect": "rrr", "cut in every head": "e", "all of them": "ccrre"}.get(kind, ""):
        stack, q = rng.choice(list(SUBLAYERS)), rng.randrange(n)
        keys = rng.sample(range(q + 1 if stack == "decoder" else n), min(2, q + 1 if stack == "decoder" else n))
        head = None if how == "e" else rng.randrange(c.n_heads)
        edges[stack, rng.randrange(c.n_layers), head, q, keys[0]] = keys[-1] if how == "r" and len(keys) > 1 else "cut"
    return heads, edges


@torch.inference_mode()
def in_python(t: Translator, line: str, given: Given) -> tuple[list[list[int]], dict, np.ndarray]:
    "The outputs of greedy search and of beam 4; of the greedy ones the weights and the log-probabilities."
    with intervening(t.model, *given):
        found = [h.ids + [END] * (len(h.token_log_probabilities) - len(h.ids))
                 for h in (t.search([line], beam_size=size)[0][0] for size in (1, 4))]
        with recording(t.model) as weights:
            logits = t.model(torch.tensor(t.encode([line])), torch.tensor([[START, *found[0][:-1]]]))
    logs = logits[0].log_softmax(-1).gather(1, torch.tensor(found[0])[:, None])[:, 0]
    return found, {name: kept[-1][0] for name, kept in weights.items()}, logs.numpy()


def check_twin(folder: Path, t: Translator, lines: list[str], kinds: list[str], plain: bool = False,
               each: int = len(KINDS)) -> None:
    "`each`: how many of the kinds a sentence is tried with, in turn."
    means, rng, asked, wanted = mean_outputs(t, lines[:5]), random.Random(0), [], []
    averages = {"means": {".".join(map(str, head)): mean.tolist() for head, mean in means.items()}}
    for i, line in enumerate(lines):
        for kind in itertools.islice(itertools.cycle(kinds), i * each, i * each + min(each, len(kinds))):
            given = drawn(kind, t, len(t.encode([line])[0]), means, rng)
            wanted.append((line, kind, *in_python(t, line, given)))
            asked += [{"method": "translate", "given": {"text": line, "beams": beams,
                                                        "changes": in_javascript(*given, means)}} for beams in (1, 4)]
    answers = engine(folder, asked, averages, plain)
    for (line, kind, ids, weights, logs), greedy, beam in zip(wanted, answers[::2], answers[1::2], strict=True):
        assert [greedy["output"], beam["output"]] == ids, (line, kind)
        np.testing.assert_allclose([step["log"] for step in greedy["next"]], logs, atol=1e-4, err_msg=f"{line}: {kind}")
        for stack, name in SUBLAYERS.items():
            for layer, head in itertools.product(range(t.model.config.n_layers), range(t.model.config.n_heads)):
                for q, row in enumerate(greedy["maps"][f"{stack}.{layer}.{head}"]):
                    np.testing.assert_allclose(row, weights[name.format(layer)][head, q, : len(row)], atol=1e-5,
                                               err_msg=f"{line}: {kind}")


# --- the same as Python ---------------------------------------------------------------------------

@needs_node
@pytest.mark.parametrize("run, n, each", [
    ("grammar", 6, 2), pytest.param("grammar", 50, len(KINDS), marks=pytest.mark.slow),
    pytest.param("ende", 50, 2, marks=pytest.mark.slow)])
def test_the_page_translates_as_python_does(run, n, each):
    "Ids by greedy and beam search, attention and log-probabilities, under every kind of intervention."
    check_twin(shipped_runs()[run], load(run), sources(n), KINDS, each=each)


def run_of(folder: Path, vocabulary, source=None, **numbers) -> Translator:
    "A run with random weights, as the page reads it."
    torch.manual_seed(0)
    sizes = {"vocab_size": len(vocabulary), "src_vocab_size": len(source) if source else 0, "n_layers": 2,
             "d_model": 24, "d_ff": 20, "n_heads": 2, "d_k": 12, "d_v": 12}
    model = Transformer(replace(BASE, **sizes | numbers)).eval()
    model.embedding.weight.data[UNKNOWN] *= 9  # likely, yet never written
    vocabulary = type(vocabulary)(vocabulary.content, source)
    vocabulary.save(folder)
    save_file(model.state_dict(), folder / "averaged.safetensors")
    data = {"name": "odd", "src": "en", "tgt": "de", "vocabulary": vocabulary.digest}
    (folder / "config.json").write_text(json.dumps({"kind": "transformer", "model": asdict(model.config),
                                                    "training": {}, "data": data}))
    return load(folder)


LINES = cache(lambda: sources(400))


@needs_node
@pytest.mark.slow
@pytest.mark.parametrize("numbers, two", [
    ({"pre_norm": True, "attention_bias": True}, True), ({"pre_norm": True}, False),
    ({"positions": "learned", "max_length": 40}, True), ({"attention_bias": True}, True),
    ({"d_ff": 22, "d_k": 5, "d_v": 7}, False)], ids=str)
def test_other_models_too(numbers, two, tmp_path):
    "With one vocabulary or `two`, by the SIMD kernel and in plain JavaScript."
    first = WordPieceVocabulary.learn(LINES(), 301)
    t = run_of(tmp_path, first, BytePairVocabulary.learn(LINES(), 303) if two else None, **numbers)
    check_twin(tmp_path, t, sources(3), ["none", "all of them"])
    check_twin(tmp_path, t, sources(1), ["all of them"], plain=True)


def odd_texts(n: int) -> list[str]:
    rng = random.Random(3)
    parts = [*"abcdefghij.,-'()_~$`^", "The", "dog", " ", "  ", "\u2581", "\t", "\x1c", "\x1f", "\x85", "\xa0",
             "\u3000", "\ufeff", "\u200b", "\u00ad", "e\u0301", "\u00e9",
             "\u2603", "\U0001f404", "\u00df", "\u3002", "\u2014", "</s>", "<unk>", "\u2047", "x" * 30]
    return ["", " ", *("".join(rng.choice(parts) for _ in range(rng.randrange(1, 25))) for _ in range(n))]


@needs_node
@pytest.mark.parametrize("kind", ["grammar", "ende", "grammar-trees", "word pieces", "bytes", "whole"])
def test_the_same_ids_for_any_text(kind, tmp_path):
    folder, texts = shipped_runs().get(kind, tmp_path), odd_texts(400) + LINES()[:50]
    if kind in shipped_runs():
        vocabulary = load(kind).vocabulary
    else:
        vocabulary = {"word pieces": lambda: WordPieceVocabulary.learn([*LINES(), "- ( ) ' . _ \u3002"], 400),
                      "bytes": lambda: BytePairVocabulary.learn(LINES(), 500, byte_fallback=True),
                      "whole": lambda: BytePairVocabulary.learn(LINES(), 300, whole=["dog", "cow", "</x>"])}[kind]()
        run_of(tmp_path, vocabulary)
    script = "".join((explore.PAGE / "vocabulary.js").read_text(encoding="utf-8")) + """
        const fs = require("fs"), [name, texts, normaliser] = JSON.parse(fs.readFileSync(0, "utf8"));
        const bytes = fs.readFileSync(name);
        const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
        const v = readVocabulary(buffer, name, normaliser);
        const both = text => { const ids = v.encode(text); return [ids, v.decode(ids)]; };
        process.stdout.write(JSON.stringify(texts.map(both)));"""
    name = str(next(p for p in folder.glob("vocabulary.*")))
    given = json.dumps([name, texts, vocabulary.normaliser]).encode()
    ran = subprocess.run([NODE, "-e", script], input=given, capture_output=True)
    assert not ran.returncode, ran.stderr.decode()
    for text, (ids, decoded) in zip(texts, json.loads(ran.stdout), strict=True):
        assert ids == vocabulary.encode(text), repr(text)
        assert decoded == vocabulary.decode(ids), repr(text)


@needs_node
def test_a_run_that_composes_its_letters_does_so_in_the_page(tmp_path):
    t = run_of(tmp_path, BytePairVocabulary.learn([*LINES(), "\u00e9t\u00e9"], 300))
    config = json.loads((tmp_path / "config.json").read_text())
    lengths = {}
    for normaliser in ("nfc", "none"):
        (tmp_path / "config.json").write_text(
            json.dumps(config | {"data": config["data"] | {"normaliser": normaliser}}))
        (found,) = engine(tmp_path, [{"method": "translate",
                                      "given": {"text": "the e\u0301\u00adt\u200be\u0301 \ufeff", "changes": {}}}])
        lengths[normaliser] = found["src"]
    assert lengths["nfc"] == [*t.vocabulary.pieces(t.vocabulary.encode("the \u00e9t\u00e9")), "</s>"] != lengths["none"]


@needs_node
def test_averages_are_pythons():
    t, lines = load("grammar"), sources(6)
    (answer,), means, offsets = engine(t.run.folder,
                                       [{"method": "average",
                                         "given": {"sentences": lines}}]), mean_outputs(t, lines), offset_means(
                                             t, lines)
    for stack, layer, head in means:
        found = np.array(answer["offsets"][f"{stack}.{layer}.{head}"], dtype=float)
        np.testing.assert_allclose(found, offsets[stack][layer, head], atol=1e-5)
    text = "The dog is old, but it plays."
    heads = {head: mean for head, mean in list(means.items())[5:20:4]}
    averages = {"means": {".".join(map(str, head)): mean.tolist() for head, mean in means.items()}}
    by_averaging = engine(t.run.folder,
                          [{"method": "average", "given": {"sentences": lines}},
                           {"method": "translate",
                            "given": {"text": text, "changes": in_javascript(heads, {}, means)}}])
    (given,) = engine(t.run.folder, [{"method": "translate",
                                      "given": {"text": text, "changes": in_javascript(heads, {}, means)}}], averages)
    np.testing.assert_allclose([s["log"] for s in by_averaging[1]["next"]], [s["log"] for s in given["next"]],
                               atol=1e-5)


@needs_node
@torch.inference_mode()
def test_what_matters_is_what_python_says():
    t, line = load("grammar"), "The dog is old, but it plays."
    ids, place = t.search([line], beam_size=1)[0][0].ids, {"stack": "encoder", "layer": 1, "head": 1}

    def log(*given) -> float:
        with intervening(t.model, *given):
            logs = t.model(torch.tensor(t.encode([line])), torch.tensor([[START, *ids]]))[0].log_softmax(-1)
        return logs[6, ids[6]].item()

    ask = {"text": line, "output": [*ids, END], "token": 6, "place": place}
    heads, edges = engine(t.run.folder, [{"method": "rank", "given": {**ask, "what": what, "how": "zero"}}
                                         for what in ("heads", "edges")])
    assert heads["tried"] == 3 * t.model.config.n_layers * t.model.config.n_heads and heads["base"] == pytest.approx(
        log(), abs=1e-4)
    assert (heads["found"][0]["stack"], heads["found"][0]["layer"], heads["found"][0]["head"]) == ("encoder", 1, 1)
    for one in heads["found"]:
        assert one["change"] == pytest.approx(log({(one["stack"], one["layer"], one["head"]): 0.0}) - log(), abs=1e-4)
    assert [edges["found"][0][part] for part in ("query", "key")] == [6, 1]  # it, dog
    for one in edges["found"]:
        assert one["change"] == pytest.approx(log({}, {("encoder", 1, 1, one["query"], one["key"]): "cut"}) - log(),
                                              abs=1e-4)
    assert 0 < edges["random"]["n"] <= 20 and edges["random"]["most"] < abs(edges["found"][0]["change"]) / 4


@needs_node
def test_a_count_is_what_python_counts():
    t, lines = load("grammar"), [line for line in sources(150) if " it " in line][:6] + sources(2)
    line, edge = "The dog is old, but it plays.", {"stack": "encoder", "layer": 1, "head": 1, "query": 6, "key": 1,
                                                   "to": None}
    ids = t.search([line], beam_size=1)[0][0].ids
    one_head, one_edge = engine(t.run.folder,
                                [{"method": "count", "given": {"sentences": lines, "text": line, "output": [*ids, END],
                                                               "changes": changes}}
                                               for changes in ({"heads": {"cross.1.0": "zero"}}, {"edges": [edge]})])
    before = t.translate(lines, beam_size=1)
    with intervening(t.model, {("cross", 1, 0): 0.0}):
        after = [t.translate(line, beam_size=1) for line in lines]
    assert one_head["n"] == len(lines) and one_head["changed"] == sum(a != b for a, b in zip(before, after))
    changed, n, it = 0, 0, t.vocabulary.encode("dog it")[-1]
    for line, as_trained in zip(lines, before):
        src = t.encode([line])[0]
        weights = t.attention([line], [as_trained])[0].encoder[1][0, 1]
        edges = {("encoder", 1, 1, q, int(weights[q, :-1].argmax())): "cut" for q, token in enumerate(src)
                 if token == it}
        with intervening(t.model, {}, edges):
            n, changed = n + bool(edges), changed + (bool(edges) and t.translate(line, beam_size=1) != as_trained)
    assert (one_edge["n"], one_edge["changed"]) == (n, changed) and n >= 6 and one_edge["control"] < changed
    assert sum(one_edge["swaps"].values()) >= changed


# --- what is refused ------------------------------------------------------------------------------

def test_models_that_it_cannot_run_are_named(tmp_path, capsys):
    t = load("grammar")
    odd = Translator(Transformer(replace(t.model.config, parameter_heads=2)), t.vocabulary)
    size = t.model.config.vocab_size
    theirs = Translator(t.model, imported_vocabulary(["a"] * size, [*range(size)]))
    for translator, named in ((load("grammar-trees"), "a parser"), (odd, "attention over parameters"),
                              (theirs, "another program's vocabulary")):
        with pytest.raises(InputError, match=named):
            explore.page(translator)
    with pytest.raises(SystemExit) as end:
        cli.main(["explore", "grammar-trees", str(tmp_path / "page.html")])
    assert end.value.code == 2 and "a parser" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_large_weights_are_stored_in_half_precision_or_refused(monkeypatch):
    t = Translator(load("grammar").model, load("grammar").vocabulary)
    size = len(explore.weights_of(t))
    monkeypatch.setattr(explore, "MOST", size * 3 // 4)
    assert len(explore.weights_of(t)) < size * 0.51
    monkeypatch.setattr(explore, "MOST", size // 3)
    with pytest.raises(InputError, match="MB of weights"):
        explore.weights_of(t)


# --- in a browser, from disk ----------------------------------------------------------------------

@pytest.fixture(scope="module")
def html(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    lines = [line for line in sources(150) if " it " in line][:14] + sources(20)  # to count over, and to average
    (path.parent / "text").write_text("\n".join(lines), encoding="utf-8")
    cli.main(["explore", "grammar", str(path), "--sentences", str(path.parent / "text")])
    return path


READY = "document.body && document.body.dataset.ready"


def opened(page: Page, html: Path, address: str = "") -> None:
    page.size(1400)
    page.open(f"{html.as_uri()}?{random.random()}{address}", READY)


def after(page: Page, action: str) -> None:
    "Does it, and waits until the page has drawn what comes of it."
    before = page.js("document.body.dataset.ready")
    page.js(f"{{ {action} }}; 0")
    wait(page, f"document.body.dataset.ready !== '{before}'")


def text_of(page: Page, row: str) -> str:
    return page.js(f"shown.{row}.text")


def centre(page: Page, selector: str) -> tuple[float, float]:
    return page.js(f"""(() => {{
        const node = document.querySelector({json.dumps(selector)});
        node.scrollIntoView({{block: 'center'}});
        const box = node.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()""")


def cell(q: int, k: int) -> str:
    return f'.cell[data-q="{q}"][data-k="{k}"]'


def wait(page: Page, condition: str) -> None:
    assert page.js(f"""(async () => {{
        for (let i = 0; i < 4000; i++) {{
            if ({condition}) return true;
            await new Promise(done => setTimeout(done, 5));
        }}
        return false; }})()"""), condition


def test_one_click_makes_the_dog_feminine(page, html):
    page.asked.clear()
    opened(page, html)
    assert text_of(page, "before") == load("grammar").translate("The dog is old, but it plays.",
                                                                beam_size=1) == "Der Hund ist alt, aber er spielt."
    page.click(*centre(page, cell(6, 1)))
    assert "it looks at dog with 1.00" in page.js("document.getElementById('edge').textContent")
    page.click(*centre(page, "#cut"))
    wait(page, "shown.now.text !== shown.before.text")
    assert text_of(page, "now") == "Der Hund ist alt, aber sie spielt."
    assert page.js("[...document.querySelectorAll('#now mark')].map(m => m.textContent)") == ["sie"]
    assert page.js("document.getElementById('task').textContent").startswith("\u2713")
    assert "it \u2192 dog cut" in page.js("document.getElementById('changes').textContent")
    page.click(*centre(page, "#undo"))
    wait(page, "shown.now.text === shown.before.text")
    assert not page.errors and {url.split(":")[0] for url in page.asked} <= {"file", "blob"}


def test_an_edge_is_dragged_to_another_word(page, html):
    opened(page, html)
    after(page, "document.querySelectorAll('#presets button')[1].click()")
    (x, y), (to, _) = centre(page, cell(7, 1)), centre(page, cell(7, 4))
    page.mouse("mouseMoved", x, y)
    page.mouse("mousePressed", x, y, button="left", clickCount=1)
    for part in (0.3, 0.7, 1):
        page.mouse("mouseMoved", x + part * (to - x), y + 3, button="left", buttons=1)
    page.mouse("mouseReleased", to, y + 3, button="left", clickCount=1)
    wait(page, "shown.now.text !== shown.before.text")
    assert page.js("state.edges") == [{"stack": "encoder", "layer": 1, "head": 1, "query": 7, "key": 1, "to": 4}]
    assert text_of(page, "now") == "Die Kuh sieht das Pferd, aber es spielt."


@pytest.mark.slow
def test_the_copied_python_says_the_same(page, html, capsys):
    opened(page, html)
    for action in ("setEdge(6, 1, null)", "setHead('cross.1.0', 'zero')", "setHead('decoder.0.3', 'mean')",
                   "$('beams').value = 4; $('beams').dispatchEvent(new Event('change'))"):
        after(page, action)
        capsys.readouterr()
        exec(page.js("python()"), {})
        assert capsys.readouterr().out.strip() == text_of(page, "now")
    after(page, "$('hold').click()")
    exec(page.js("python()"), {})
    assert text_of(page, "now") == text_of(page, "before")
    np.testing.assert_allclose(json.loads(capsys.readouterr().out), page.js("shown.now.next.map(({log}) => log)"),
                               atol=2e-4)


def test_an_address_is_the_whole_state(page, html):
    opened(page, html)
    after(page, "setText('The cow sees the horse, but it plays.')")
    for action in ("setEdge(7, 1, 4)", "setHead('cross.1.0', 'mean')", "state.every = true; setEdge(2, 3, null)",
                   "$('hold').click()"):
        after(page, action)
    page.js("$('relative').click(); $('above').click(); document.querySelectorAll('#now .word')[3].click()")
    address, state, figure = page.js("address()"), page.js(
        "{ const { edge, every, ...rest } = state; JSON.stringify(rest) }"), page.js(
            "standalone($('figure').firstChild)")
    opened(page, html, address)
    assert page.js("{ const { edge, every, ...rest } = state; JSON.stringify(rest) }") == state
    assert page.js("address()") == address and page.js("standalone($('figure').firstChild)") == figure


@pytest.mark.parametrize("address", ["#s=The+dog&head=e9.9", "#s=The+dog&off=e1.9:zero", "#s=The+dog&edges=x1.1:1-1"])
def test_an_address_of_another_model_is_no_harm(page, html, address):
    opened(page, html, address)
    assert text_of(page, "before") == "Der Hund ist alt, aber er spielt." and not page.errors


def test_what_to_do_with_an_edge_is_in_sight(page, html):
    "On a phone and on a small laptop: its bar sticks to the lower edge."
    opened(page, html)
    for width, height in (390, 844), (1280, 700):
        page.size(width, height)
        page.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")  # drawn anew
        page.click(*centre(page, cell(6, 1)))
        top, bottom = page.js("(({top, bottom}) => [top, bottom])($('cut').getBoundingClientRect())")
        assert 0 < top and bottom <= height
        page.js("state.edge = null; renderEdge()")
    assert page.js("$('said').textContent").startswith("Der Hund ist alt, aber er spielt. computed in")


def test_a_new_sentence_clears_edges_and_undo_brings_both_back(page, html):
    opened(page, html)
    after(page, "setEdge(6, 1, null)")
    after(page, "$('text').value = 'The cow sleeps.'; $('form').requestSubmit()")
    assert text_of(page, "now") == "Die Kuh schl\u00e4ft." and page.js("state.edges.length") == 0
    after(page, "$('undo').click()")
    assert text_of(page, "now") == "Der Hund ist alt, aber sie spielt."
    after(page, "$('redo').click()")
    assert text_of(page, "now") == "Die Kuh schl\u00e4ft."


@pytest.mark.parametrize("lines", [["", "\u2603", "</s> <b>x</b>", " ", "The cow sleeps \u2603\u2603 \U0001f404."],
                                   pytest.param(["dog " * 300], marks=pytest.mark.slow)], ids=["short", "long"])
def test_odd_sentences(page, html, lines):
    opened(page, html)
    for line in lines:
        after(page, f"$('text').value = {json.dumps(line)}; $('form').requestSubmit()")
        assert text_of(page, "now") == load("grammar").translate(" ".join(line.split()[:127]), beam_size=1)
        assert not page.errors


def test_which_matters_and_in_how_many(page, html):
    opened(page, html)
    page.js("document.querySelectorAll('#before .word')[6].click()")  # er
    page.js("$('rank-edges').click()")
    wait(page, "$('ranking').children.length")
    assert page.js("document.querySelector('#ranking button').textContent") == "it \u2192 dog"
    page.js("$('rank-heads').click()")
    wait(page, "document.querySelector('#ranking button').textContent === 'Encoder, layer 2, head 2'")
    after(page, "setText('The cow sleeps.')")
    assert page.js("$('ranking').children.length") == 0
    after(page, "travel(past, future)")
    after(page, "setEdge(6, 1, null)")
    page.js(
        "RUN.sentences = RUN.sentences.filter(s => / it /.test(s)).slice(0, 12); renderChanges(); $('count').click()")
    wait(page, "$('counted').querySelector('dl')")
    said = page.js("$('counted').textContent")
    assert "12 of 12" in said and "\u2192 sie" in said and "random head" in said
    after(page, "$('clear').click()")
    assert page.js("$('counted').textContent") == "" and page.js("$('count').disabled")


def test_by_keyboard_alone(page, html):
    opened(page, html)

    def press(*keys: str) -> None:
        for key in keys:
            for kind in ("keyDown", "keyUp"):
                page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=key if len(key) == 1
                          and kind == "keyDown" else "")

    page.js("document.querySelector('.map[aria-selected=true]').focus()")
    press("ArrowLeft", "ArrowRight")
    assert page.js("state.chosen") == "encoder.1.1"
    press("0")
    wait(page, "shown.now.text !== shown.before.text")
    assert text_of(page, "now") == "Die Hund ist alt, aber sie spielt."
    press("1")
    wait(page, "shown.now.text === shown.before.text")
    page.js("document.querySelector('#switch [aria-checked=true]').focus()")
    for how in ("zero", "mean", "on"):
        press("ArrowRight")
        wait(page, f"document.activeElement.textContent === '{how}' && document.activeElement.tabIndex === 0")
    page.js("document.querySelector('#before .word').focus()")
    page.js("document.activeElement.click()")
    assert page.js("document.activeElement.getAttribute('aria-pressed')") == "true"
    page.js("document.activeElement.click()")
    page.js("document.querySelector('.cell[tabindex=\"0\"]').focus()")
    press(*["ArrowDown"] * 6, "ArrowRight")
    assert page.js("document.activeElement.getAttribute('aria-label')").startswith("it to dog: 1.00")
    press("x")
    wait(page, "shown.now.text !== shown.before.text")
    assert text_of(page, "now") == "Der Hund ist alt, aber sie spielt."
    assert page.js("document.activeElement.getAttribute('aria-label')") == "it to dog: 0.00, cut"


def test_what_is_downloaded(page, html):
    opened(page, html)
    after(page, "setEdge(6, 1, null)")
    rows = page.js("table()").splitlines()
    assert rows[0].startswith("query_position,query") and len(
        rows) == 1 + 10 * 10 and '7,"it",2,"dog",0,0.99' in page.js("table()")
    whole = json.loads(page.js("whole()"))
    assert whole["now"]["translation"] == "Der Hund ist alt, aber sie spielt." and whole["interventions"]["edges"][0][
        "query"] == 6
    assert np.allclose(np.array(whole["now"]["attention"]["encoder.1.1"]).sum(-1), 1, atol=1e-5)
    svg = page.js("standalone($('figure').firstChild)")
    assert svg.startswith("<svg") and "var(" not in svg and "currentColor" not in svg
    page.js(
        "window.saved = []; save = (content, type, name) => saved.push([content.size ?? content.length, type, name])")
    page.js("document.querySelectorAll('[data-take]').forEach(button => button.click())")
    wait(page, "saved.length === 4")
    assert {name for _, _, name in page.js("saved")} == {"grammar-encoder-2-2.svg", "grammar-encoder-2-2.png",
                                                         "grammar-encoder-2-2.csv", "grammar.json"}
    assert all(size > 1000 for size, _, _ in page.js("saved"))


def test_a_runs_folder_is_opened(page, html, tmp_path):
    opened(page, html)
    for name in ("config.json", "averaged.safetensors", "vocabulary.model"):
        shutil.copy(shipped_runs()["grammar"] / name, tmp_path)
    assert page.js("$('switch').children.length") == 3
    page.js("offsets = null; renderHead(); 0")
    assert page.js("$('switch').children.length") == 2
    page.js("RUN.sentences = RUN.sentences.slice(0, 5); document.querySelector('details').open = true")
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    node = page.call("DOM.querySelector", nodeId=root, selector="#folder")["nodeId"]
    page.call("DOM.setFileInputFiles", nodeId=node, files=[str(tmp_path)])
    wait(page, "RUN.averages === false && offsets && $('progress').hidden")
    after(page, "setHead('encoder.1.1', 'mean')")
    assert text_of(page, "before") == "Der Hund ist alt, aber er spielt." != text_of(page, "now")
    after(page, "begin({ text: 'A cow sleeps.' })")  # a page without examples
    assert page.js("$('task').hidden")


def test_without_a_worker(tmp_path_factory, html):
    with browser(tmp_path_factory.mktemp("browser")) as page:
        page.call("Page.addScriptToEvaluateOnNewDocument",
                  source="window.Worker = class { constructor() { throw new Error('none'); } }")
        opened(page, html)
        after(page, "setEdge(6, 1, null)")
        assert text_of(page, "now") == "Der Hund ist alt, aber sie spielt."


@pytest.mark.parametrize("width, dark", [(1400, False), (360, True)], ids=["wide, light", "narrow, dark"])
def test_for_everyone(page, html, width, dark):
    page.call("Emulation.setEmulatedMedia",
              features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
    opened(page, html)
    page.call("Page.setBypassCSP", enabled=True)
    page.size(width)
    found = page.violations()
    for action in ("setEdge(6, 1, null)", "setHead('cross.0.1', 'mean')"):
        after(page, action)
    page.js("document.querySelectorAll('#now .word')[6].click(); document.querySelector('details').open = true")
    assert page.js("document.documentElement.scrollWidth") <= width
    found += page.violations()
    page.call("Emulation.setEmulatedMedia", features=[])
    assert not found, json.dumps(found, indent=1)


# --- in a notebook --------------------------------------------------------------------------------

@pytest.mark.slow
def test_a_saved_notebook_keeps_the_picture_alone(tmp_path):
    import nbformat
    from nbclient import NotebookClient
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(
        "from annotated_transformer.decoding.translation import load\n"
        "from annotated_transformer.inside.explore import explore\nexplore(load('grammar'))")])
    NotebookClient(nb, timeout=300).execute()
    kept = nbformat.writes(nb)
    assert len(kept) < 30_000 and "data:image/svg+xml;base64," in kept and "srcdoc" not in kept
