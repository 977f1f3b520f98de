"""The playground in a browser: from disk, without a network, and in a frame without privileges."""
import json
import random
import time
from pathlib import Path

import pytest

from annotated_transformer.commands import cli
from annotated_transformer.decoding.translation import load
from annotated_transformer.inside import playground
from browser import Page

HAT = "der Mann kauft einen Hut , weil er rot ist ."
INSIDE = "document.querySelector('iframe.live')?.contentDocument?.body"
READY = "document.body && document.body.dataset.ready"
pytestmark = pytest.mark.xdist_group("playground")


@pytest.fixture(scope="module")
def html(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    cli.main(["play", str(path)])
    return path


@pytest.fixture
def opened(page, html) -> Page:
    return open_(page, html)


def open_(page: Page, html: Path, address: str = "") -> Page:
    page.size(1280)
    page.asked.clear()
    page.open(f"{html.as_uri()}?{random.random()}{address}", READY)
    return page


def wait(page: Page, condition: str, seconds: int = 300) -> None:
    "A busy machine may take long; that it ends is all that counts."
    end = time.time() + seconds
    while not page.js(f"!!({condition})"):
        assert time.time() < end, condition
        time.sleep(0.1)


def told(page: Page) -> str:
    return page.js("$('told').hidden ? '' : $('told').textContent")


def few(page: Page, updates: int = 2) -> None:
    "Tasks of a few updates: what they show does not matter."
    page.js(f"TASKS.forEach(task => {{ task.until = {updates}; }}); 0")


# --- one file -------------------------------------------------------------------------------------

def test_a_file_that_trains_before_it_is_whole(html):
    text = html.read_bytes()
    assert len(text) <= 250_000 and text.index(b'id="given"') <= 80_000
    assert b"http://" not in text.replace(b"http://www.w3.org/2000/svg", b"") and b"<link" not in text


# --- it learns ------------------------------------------------------------------------------------

def test_it_learns_and_what_it_learned_is_looked_into(opened, tmp_path):
    page = opened
    assert page.js("$('open').disabled && !running && last(run).right === 0")
    page.click(*page.js("(() => { const r = $('go').getBoundingClientRect(); return [r.x + 9, r.y + 9]; })()"))
    wait(page, "last(run).right >= 180")  # by then no two words are nearly as likely
    page.js("running && $('go').click(); 0")  # at 190 it has paused by itself, and a click would make it go on
    wait(page, "!running && $('go').textContent === 'Go on'")
    assert page.js("$('numbers').textContent").startswith(page.js("percent(last(run).right, 200)"))
    assert page.js("last(run).loss < 1.6 && document.querySelectorAll('#sentences .right').length > 20")
    page.js("taken().then(files => { window.out = files; }); 0")
    wait(page, "window.out")
    for name in page.js("Object.keys(out)"):
        content = page.js(f"typeof out['{name}'] === 'string' ? out['{name}'] : [...new Uint8Array(out['{name}'])]")
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else bytes(content))
    lines = [english.replace(" .", ".").replace(" ,", ",") for english, _ in playground.SENTENCES]
    ours = [line.split() for line in page.js("last(run).german.map(words => words.join(' '))")]
    theirs, rounded = ([line.replace(",", " ,").replace(".", " .").split()
                        for line in load(tmp_path, precision).translate(lines, beam_size=1)]
                       for precision in ("float32", None))
    assert theirs == ours, "the package translates with these weights as the page does"
    page.js("$('open').click()")
    wait(page, f"{INSIDE}?.dataset.ready")
    words = page.js(f"[...{INSIDE}.querySelectorAll('#before .word:not(.end)')]"
                    ".map(word => word.firstChild.textContent)")
    assert words == rounded[playground.SENTENCES.index(["the man buys a hat because it is red .", HAT])]
    assert not page.errors
    assert {url.split(":")[0] for url in page.asked} <= {"file", "blob", "about"}


def test_the_copied_python_is_the_same_run(opened, capsys):
    page = opened
    page.js("Object.assign(state, {n_heads: 1, seed: 2, off: ['scale', 'post_norm', 'label_smoothing']}); "
            "goal = task = null")
    page.js("begin(false).then(() => ask('train', {until: 6})).then(report => { window.end = report; }); 0")
    wait(page, "window.end")
    script = page.js("python()")
    assert "train(400, n_heads=1, seed=2, scale=False, pre_norm=True, label_smoothing=0)" in script
    exec(script.replace("400", "6"), {})
    loss = float(capsys.readouterr().out.split("loss ")[1].split(",")[0])
    assert loss == pytest.approx(page.js("end.loss"), abs=2e-3)


# --- switches, tasks, the address -----------------------------------------------------------------

def test_a_switch_begins_again_and_earlier_runs_stay(opened):
    page = opened
    page.js("$('go').click()")
    wait(page, "run.reports.length > 2")
    page.js("$('part-positions').click()")
    wait(page, "running && run.name === 'no positions' && run.reports.length > 2")
    assert page.js("runs.map(({name}) => name)") == ["the paper\u2019s model", "no positions"]
    assert page.js("document.querySelectorAll('#curve .line').length") == 2
    assert "no positions" in page.js("$('runs').textContent") and page.js("location.hash") == "#off=positions"
    first = page.js("runs.map(({reports}) => reports[0].loss)")
    page.js("$('n_layers').value = 1; $('n_layers').dispatchEvent(new Event('change'))")
    wait(page, "run.name === '1 layer, no positions' && run.reports.length")
    page.js("$('n_layers').value = 2; $('n_layers').dispatchEvent(new Event('change')); $('part-positions').click()")
    wait(page, "run.name.startsWith('the paper') && run.reports.length")
    assert page.js("run.reports[0].loss") == first[0], "the same seed"
    page.js("$('part-heads').click(); $('part-label_smoothing').click()")
    wait(page, "run.name === 'one head, no smoothing' && running")
    page.js("$('go').click()")
    wait(page, "!running")
    address = page.js("address()")
    assert not page.errors
    page.js(f"location.hash = {json.dumps(address + '&d_model=64')}")
    wait(page, "run.name === 'width 64, one head, no smoothing' && run.reports.length")


def test_a_run_that_has_learned_ends_there(opened):
    "On the report that says so: an update more might be worse, and the run would end without a word."
    page = opened
    page.js("LEARN.enough = 0; $('go').click()")
    wait(page, "$('told').querySelector('.question')")
    assert page.js("!running && last(run).step < 1500")
    page.js("""window.made = Object.assign(Object.create(Training.prototype), {spent: 0, drawn: () => [], n: 0,
        trainer: {step: 0, update() { const end = performance.now() + 300; this.step += 1;
            while (performance.now() < end); }},
        report() { this.n += 1; return {right: this.n, of: 4, step: this.trainer.step}; }});
        window.reports = [];
        made.train({until: 40, enough: 0.5}, r => reports.push(r)).then(end => { window.end = end; }); 0""")
    wait(page, "window.end")
    assert page.js("[reports.map(r => r.right), end.right]") == [[1], 2]


def test_the_run_that_others_are_compared_with_stays(opened):
    page = opened
    page.js("runs = Array.from({length: 6}, (_, i) => ({state: {...PAPER, seed: i + 1}, name: `${i}`, colour: i + 1, "
            "reports: [last(run), last(run)]})); state.rate = 2; begin(false); 0")
    wait(page, "run.name === 'rate \u00d7 2' && run.reports.length")
    assert page.js("runs.map(({name}) => name)") == ["0", "2", "3", "4", "5", "rate \u00d7 2"]


def test_an_address_is_the_whole_setting(page, html):
    open_(page, html, "#d_model=64&n_layers=1&rate=1.5&seed=7&off=warmup+causal_mask+nonsense")
    assert page.js("state") == {"d_model": 64, "n_layers": 1, "n_heads": 4, "rate": 1.5, "seed": 7,
                                "off": ["warmup", "causal_mask"]}
    page.js("begun(); begun(); 0")
    assert page.js("[...$('seed').options].filter(({ value }) => value === '7').length") == 1
    assert page.js("[...$('n_heads').options].map(({ disabled }) => disabled)") == [False] * 4
    assert page.js("!running && $('seed').value === '7' && !$('part-warmup').checked && $('part-scale').checked")
    open_(page, html, "#task=cut")
    assert page.js("state.n_heads") == 2 and told(page).startswith("Cut what you have just trained")
    assert page.js("address()") == "#task=cut" and page.js("!running")


def test_each_task_closes_with_a_question_and_leads_to_the_next(opened):
    page = opened
    few(page)
    page.js("document.querySelector('[data-task=learn]').click()")
    for number in range(6):
        wait(page, f"$('told').querySelector('.question')?.textContent === TASKS[{number}].ask")
        assert page.js("last(run).step") == 2 and page.js(f"task === TASKS[{number}]")
        page.js("{ const next = [...$('told').querySelectorAll('button')].find(b => b.textContent.startsWith('Next')); "
                "next.focus(); next.click(); }")
        assert page.js("document.activeElement === $('go')")
    wait(page, "$('told').textContent.includes('We cut')")
    page.js("[...$('told').querySelectorAll('button')].find(b => b.textContent === 'Cut it yourself').click()")
    wait(page, f"{INSIDE}?.dataset.ready")
    assert not page.errors


def test_what_to_expect_is_read(opened):
    page = opened
    assert not page.js("!GIVEN.expected && document.querySelectorAll('.expect').length")
    page.js("""GIVEN.expected = {updates: 400, seeds: 5, paper: {exact: [0.94, 0.98]},
        off: {positions: {exact: [0.25, 0.3], loss: [1.5, 1.6]}}}; build(); begun(); 0""")
    assert page.js("[...document.querySelectorAll('.expect')].map(p => p.textContent)") == [
        "Off: 25 to 30% right, loss 1.50 to 1.60."]
    assert page.js("$('usual').textContent") == (
        " With all parts on, 94 to 98% of the sentences are exactly right after 400 updates (5 seeds).")


# --- what goes wrong, who looks away --------------------------------------------------------------

def test_a_run_that_breaks_says_so(opened):
    page = opened
    page.js("state.rate = 1e30; changed()")
    wait(page, "run.failed")
    assert "It went wrong" in told(page) and "Lower the rate" in told(page) and page.js("$('go').disabled")
    page.js("state.rate = 1; state.n_heads = 3; begin(true)")
    wait(page, "run.failed && $('told').textContent.includes('The reason: d_model is 32 and n_heads 3')")
    assert page.js("$('numbers').textContent === '' && $('download').disabled")
    page.js("$('thumbs').children[0].click()")
    assert not page.errors
    page.js("Object.assign(state, PAPER); begin(false)")
    wait(page, "!run.failed && run.reports.length")
    page.js("run.goal = null; show({...last(run), step: 400})")
    assert "has not learned" in told(page)


@pytest.mark.parametrize("setting", ["seed: 4, off: ['positions']", "seed: 2, n_heads: 1, n_layers: 1"])
def test_a_first_word_that_is_none(opened, setting):
    "The vocabulary is filled up with words that are none: a model that knows nothing may write one."
    opened.js(f"Object.assign(state, {{{setting}}}); task = goal = null; begin(false)")
    wait(opened, "run.failed || run.reports.length")
    assert opened.js("!run.failed && last(run).german.flat().includes('\u2047')")
    assert opened.js("$('download').disabled") == ("positions" in setting)


def test_a_browser_without_simd_is_told(page, html, tmp_path):
    none = "WebAssembly.Module = class { constructor() { throw new WebAssembly.CompileError(); } };"
    (tmp_path / "page.html").write_text(html.read_text(encoding="utf-8").replace(
        '<script id="trainer">', f'<script id="trainer">{none}'), encoding="utf-8")
    page.open((tmp_path / "page.html").as_uri())
    wait(page, "run.failed && !$('told').hidden")
    assert "WebAssembly with SIMD, which this browser does not run" in told(page) and page.js("$('go').disabled")


def test_a_double_click_begins_and_the_button_stays(opened):
    page = opened
    place = page.js("(() => { const r = $('go').getBoundingClientRect(); return [r.x + 9, r.y + 9]; })()")
    for count in (1, 2):
        for kind in ("mousePressed", "mouseReleased"):
            page.mouse(kind, *place, button="left", clickCount=count)
    wait(page, "running && last(run).step > 0")
    assert page.js(f"document.elementFromPoint({place[0]}, {place[1]}) === $('go')")
    page.js("$('go').click()")
    wait(page, "!running")


def test_it_sleeps_while_nobody_looks(opened):
    page = opened
    page.js("$('go').click()")
    wait(page, "run.reports.length > 1")
    page.js("away = true; rest()")
    wait(page, "!running && asleep")
    step = page.js("last(run).step")
    page.js("away = false; rest()")
    wait(page, f"running && last(run).step > {step} && !$('slept').hidden")
    page.js("$('go').click()")
    wait(page, "!running")


def test_nothing_starts_by_itself_where_motion_is_reduced(page, html):
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    open_(page, html, "#off=scale")
    page.js("$('part-norm').click()")
    wait(page, "run.name === 'no \u221ad_k, no normalisation' && run.reports.length")
    assert page.js("!running && last(run).step === 0 && $('go').textContent === 'Train'")
    page.call("Emulation.setEmulatedMedia", features=[])


def test_in_a_frame_without_privileges(page, html, tmp_path):
    "An opaque origin, as the output of a notebook may have."
    report = "<script>setInterval(() => parent.postMessage([last(run)?.step, origin, run.failed], '*'), 200); "
    inner = html.read_text(encoding="utf-8") + report + "setTimeout(() => $('go').click(), 1500)</script>"
    outer = tmp_path / "outer.html"
    inside = json.dumps(inner).replace("<", "\\u003c")
    outer.write_text(f"""<!doctype html><body><script>
        onmessage = ({{data}}) => {{ window.said = data; document.body.dataset.ready = 1; }};
        const frame = document.createElement("iframe"); frame.sandbox = "allow-scripts";
        frame.style = "width: 900px; height: 700px"; frame.srcdoc = {inside}; document.body.append(frame);</script>""")
    page.open(outer.as_uri(), READY)
    wait(page, "said[0] >= 3")
    assert page.js("said.slice(1)") == ["null", None]


# --- for everyone ---------------------------------------------------------------------------------

@pytest.mark.parametrize("width, dark", [(1280, True), (390, False)], ids=["wide, dark", "narrow, light"])
def test_for_everyone(page, html, width, dark):
    page.call("Emulation.setEmulatedMedia",
              features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
    open_(page, html)
    page.call("Page.setBypassCSP", enabled=True)
    page.size(width)
    few(page)
    page.js("document.querySelector('[data-task=learn]').click()")
    wait(page, "$('told').querySelector('.question') && !running")
    assert page.js("document.documentElement.scrollWidth") <= width
    found = page.violations()
    page.call("Emulation.setEmulatedMedia", features=[])
    assert not found, json.dumps(found, indent=1)
    assert "sentences are exactly right" in page.js("$('said').textContent")


def test_by_keyboard_alone(opened):
    page = opened

    def press(key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      **({"text": "\r", "windowsVirtualKeyCode": 13} if key == "Enter" and kind == "keyDown" else {}))

    page.js("$('go').focus()")
    press("Enter")
    wait(page, "running")
    press("Enter")
    wait(page, "!running && document.activeElement === $('go')")
    page.js("document.querySelector('#thumbs [aria-checked=true]').focus()")
    for _ in range(3):
        press("ArrowRight")
    assert page.js("document.activeElement.getAttribute('aria-checked') === 'true' && chosen.kept")
    assert page.js("$('where').textContent").startswith(page.js("document.activeElement.getAttribute('aria-label')"))
