"""What a cell shows, in a frame of an opaque origin and without privileges, as some hosts of notebooks make it."""
import itertools
import json
import time
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from annotated_transformer.decoding.translation import load
from annotated_transformer.drawing.charts import Shown
from annotated_transformer.inside import explore, playground
from browser import Page

pytestmark = pytest.mark.xdist_group("frames")


def telling(html: str, name: str, then: str, answer: str) -> str:
    "A page that says again and again, to the outermost window, what went wrong; after `then`, what `answer` is."
    return html.replace("<head>", f"""<head><script>
        const wrong = [];
        for (const kind of ["error", "unhandledrejection"])
          addEventListener(kind, event => wrong.push(String(event.message ?? event.reason)));
        let done = false;
        setInterval(() => {{
          try {{ done ||= {then}; }} catch {{ /* it is not there yet */ }}
          top.postMessage(["{name}", origin, wrong, done ? {answer} : null], "*"); }}, 100);</script>""", 1)


@pytest.fixture
def framed(page, tmp_path, monkeypatch):
    "`framed(show)` opens in a frame what `show()` displays; each page's last message stands in `said`, by its name."
    displayed = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: displayed.append(data["text/html"]) or Mock())

    def framed(show: Callable[[], None]) -> Page:
        show()
        cell, outer = json.dumps("".join(displayed)).replace("<", "\\u003c"), tmp_path / "outer.html"
        outer.write_text(f"""<!doctype html><body><script>
            const said = {{}}, frame = document.createElement("iframe");
            onmessage = ({{data: [name, ...rest]}}) => {{ said[name] = rest; }};
            frame.sandbox = "allow-scripts"; frame.style = "width: 900px; height: 900px";
            frame.srcdoc = {cell}; document.body.append(frame);</script>""", encoding="utf-8")
        page.open(outer.as_uri())
        return page

    return framed


def hears(page: Page, name: str, meanwhile: Callable[[], None] = lambda: None):
    "What a page answers at last; nothing may have gone wrong there, and its origin is opaque."
    end = time.time() + 300
    while not page.js(f"said.{name}?.[2]"):
        assert time.time() < end, page.js("said")
        meanwhile()
        time.sleep(0.1)
    origin, wrong, answer = page.js(f"said.{name}")
    assert (origin, wrong) == ("null", [])
    return answer


def test_the_live_page(framed, monkeypatch):
    monkeypatch.setattr(explore, "page", lambda *given, page=explore.page: telling(
        page(*given), "live", "document.body.dataset.ready && (setEdge(6, 1, null), true)",
        "shown.now.text !== shown.before.text && [shown.before.text, shown.now.text]"))
    monkeypatch.setattr(explore, "sentences", lambda translator: ["The dog is old."])  # few averages to compute
    page = framed(lambda: explore.explore(load("grammar")))
    assert hears(page, "live") == [f"Der Hund ist alt, aber {it} spielt." for it in ("er", "sie")]


def test_the_playground(framed, monkeypatch):
    monkeypatch.setattr(playground, "assembled", lambda data, assembled=playground.assembled: telling(
        assembled(data), "inner", "document.body.dataset.ready", "[shown.now.text]"))
    monkeypatch.setattr(playground, "playground_page", lambda *given, page=playground.playground_page: telling(
        page(*given), "outer",
        "document.body.dataset.ready && (last(run)?.step >= 3 ? (lookInside('encoder.0.0'), true) "
        ": (running || $('go').click(), false))", "last(run).step"))
    page = framed(playground.play)
    assert hears(page, "outer") >= 3 and hears(page, "inner")


def test_a_chart(framed):
    "Drawn by the Vega that Altair brings; the mouse on a bar gets its tooltip."
    import altair as alt
    import pandas as pd
    bars = alt.Chart(pd.DataFrame({"x": ["a", "b"], "y": [3, 3]})).mark_bar(size=80).encode(x="x", y="y", tooltip="y")
    html = telling(Shown(bars.properties(width=200)).chart.to_html(inline=True), "chart",
                   "document.querySelector('#vg-tooltip-element.visible')",
                   "document.querySelector('#vg-tooltip-element').innerText.trim()")
    page, places = framed(lambda: explore.show_page(html, "A chart", 'alt=""')), itertools.cycle(range(40, 300, 7))
    assert hears(page, "chart", lambda: page.mouse("mouseMoved", next(places), 120)) == "3"
