"""The site, built once, in a browser with the network cut: no errors, no dead links, narrow screens, accessibility."""
import functools
import html.parser
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urljoin, urlparse

import pytest

from browser import Page, browser
from here import ROOT

sys.path[:0] = [str(ROOT / "site"), str(ROOT / ".ci")]

import build  # noqa: E402
from chapters import read_chapters  # noqa: E402

LIMIT = 1_500_000  # bytes of a page with all that it loads
pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.slow]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    if os.environ.get("ANNOTATED_SITE"):  # one that is built already
        return Path(os.environ["ANNOTATED_SITE"])
    out = tmp_path_factory.mktemp("site")
    made = subprocess.run([sys.executable, ROOT / "site" / "build.py", "--out", out], text=True, capture_output=True,
                          cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert made.returncode == 0, made.stderr
    assert "WARNING" not in made.stderr and "ERROR" not in made.stderr, made.stderr
    return out


@pytest.fixture(scope="module")
def address(site) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()


@pytest.fixture(scope="module")
def page(address, tmp_path_factory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile"), local=True) as page:
        yield page


def files(site: Path) -> dict[str, Path]:
    "The site's pages by name: `model/attention`."
    found = {path.relative_to(site).with_suffix("").as_posix(): path for path in sorted(site.rglob("*.html"))}
    return {name: path for name, path in found.items() if not name.startswith("_")}


# --- files ------------------------------------------------------------------------------------------------------------

class Links(html.parser.HTMLParser):
    "What a page links to and loads, and the ids that it has."

    def __init__(self, path: Path):
        super().__init__()
        self.links, self.loads, self.ids = [], [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids.update(filter(None, (given.get("id"), given.get("name") if tag == "a" else None)))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag in ("script", "img", "link", "iframe", "source") and given.get("rel") != "canonical":
            self.loads += filter(None, (given.get("src"), given.get("href") if tag == "link" else None))


def test_every_link_leads_somewhere(site):
    read = {f"{name}.html": Links(path) for name, path in files(site).items()}
    dead = []
    for name, found in read.items():
        for way in found.links + found.loads:
            to = urlparse(urljoin(name, way))
            if to.scheme:
                continue
            target = unquote(to.path) or name
            if not (site / target).is_file():
                dead.append(f"{name}: {way}")
            elif to.fragment and target in read and unquote(to.fragment) not in read[target].ids and to.fragment != "":
                dead.append(f"{name}: {way} (no such heading)")
    assert not dead, "\n".join(dead[:40])


def test_nothing_is_loaded_from_elsewhere(site):
    away = {link for path in files(site).values() for link in Links(path).loads if urlparse(urljoin("x/", link)).netloc}
    assert not away, away


def test_a_page_is_light(site):
    "With its scripts, style sheets and first picture; the others, and what brings charts to life, come when asked for."
    large = {}
    for name, path in files(site).items():
        ways = [way for way in Links(path).loads if not way.startswith("data:") and not way.endswith(".html")]
        loads = list(dict.fromkeys(unquote(urlparse(urljoin(f"{name}.html", way)).path) for way in ways))
        later = {*[way for way in loads if way.endswith((".png", ".svg"))][2:]}  # the first is the tab's icon
        formulas = [f"_static/mathjax/{part}" for part in build.FORMULAS if any("mathjax" in way for way in loads)]
        loads = {*loads, *formulas} - later
        total = path.stat().st_size + sum((site / way).stat().st_size for way in loads)
        if total > LIMIT:
            large[name] = total
    assert not large, large


def test_a_link_to_a_page_has_words_and_a_picture(site):
    words = (site / "model" / "attention.html").read_text(encoding="utf-8")
    assert re.search(r'<meta name="description" content="[^"]{40,}">', words)
    picture = re.search(r'property="og:image" content="https://[^"]+/(_static/[^"]+)"', words)[1]
    assert (site / picture).exists()


def test_directives_and_imports_are_out_of_view(site):
    for name, path in files(site).items():
        words = re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8"))
        assert not re.search(r"^#\| ?(?:export|hide|default_exp)", words, re.M), name


def test_every_public_function_is_in_the_index(site):
    listed = Links(site / "api.html").links
    for name in ("model/attention.html#model.attention.attention",
                 "model/transformer.html#model.transformer.Transformer",
                 "decoding/search.html#decoding.search.beam_search", "training/loop.html#training.loop.train"):
        assert name in listed, name
    assert "beam_search(" in (site / "api.html").read_text(encoding="utf-8")


# --- in a browser -----------------------------------------------------------------------------------------------------

DRAWN = """[...document.querySelectorAll('figure.chart')].every(f => f.view) && !document.querySelector('mjx-merror')
    && (!document.querySelector('span.math, div.math') || !!document.querySelector('mjx-container'))"""


def test_pages_load_without_an_error(site, address, page):
    page.size(1400)
    for name in files(site):
        page.errors.clear()
        page.asked.clear()
        page.open(f"{address}{name}.html")
        page.js("document.querySelectorAll('figure.chart').forEach(f => draw(f)), 0")
        for _ in range(600):
            if page.js(DRAWN):
                break
            time.sleep(0.1)
        assert page.js(DRAWN), (f"{name}: a chart or a formula was not drawn: "
                                f"{page.js('document.querySelector(`mjx-merror`)?.textContent')}")
        assert page.errors == [], f"{name}: {json.dumps(page.errors)[:600]}"
        assert not [url for url in page.asked if not url.startswith((address, "data:", "blob:"))], name


# what is wider than the screen and is no code, no formula and no wide table (these scroll in a box of their own)
SPILLS = """(() => { const wide = document.documentElement.scrollWidth;
    const found = wide > innerWidth ? ['page ' + wide] : [];
    for (const e of document.querySelectorAll('.bd-article *')) {
        if (e.closest('pre, mjx-container, div.math, details:not([open]), .vega-embed')) continue;
        const table = e.querySelector('table');
        const scrolls = ['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && e.clientWidth > 0;
        const wideTable = table && [...table.rows].some(row => row.cells.length > 3);
        const may = wideTable || table?.querySelector('mjx-container');
        if (e.scrollWidth > e.clientWidth + 1 && scrolls && !may && !e.closest('figure.chart'))
            found.push(e.tagName + '.' + e.className + ' ' + e.scrollWidth);
    }
    return found; })()"""


def test_a_narrow_screen_scrolls_nothing_but_code_and_wide_tables(site, address, page):
    page.size(400, 800)
    spilled = {}
    for name in files(site):
        page.open(f"{address}{name}.html")
        if found := page.js(SPILLS):
            spilled[name] = found
    assert not spilled, spilled


def test_88_columns_of_code_fit(site, address, page):
    "At 1280 pixels; a longer line scrolls within its box, and a folded cell has none."
    page.size(1280)
    for name in files(site):
        page.open(f"{address}{name}.html")
        wide = page.js("""[...document.querySelectorAll('pre')]
            .filter(e => e.innerText && e.scrollWidth > e.clientWidth + 1)
            .filter(e => e.innerText.split('\\n').every(line => line.length <= 88))
            .map(e => e.innerText.slice(0, 80))""")
        assert not wide, f"{name}: {wide}"


# what makes a page hard to use for those who see little, or nothing, or have no mouse: all of axe's rules, on the whole
# page with its charts alive; all code has the same colours, so that a page's first blocks stand for the others
LOOKED_AT = {"include": [["body"]], "exclude": [["div.highlight[data-like-the-first]"], ["mjx-assistive-mml"]]}
READY = """document.querySelectorAll('div.highlight').forEach((e, i) => i > 3 && (e.dataset.likeTheFirst = 1)),
    Promise.all([...document.querySelectorAll('figure.chart')].slice(0, 3).map(f => draw(f)))
        .then(() => window.MathJax?.startup?.promise).then(reachable)"""


@pytest.mark.parametrize("theme, width", [("light", 1400), ("dark", 400)])
def test_pages_are_accessible(site, address, page, theme, width):
    page.size(width)
    page.open(f"{address}index.html")
    page.js(f"localStorage.setItem('mode', '{theme}'), localStorage.setItem('theme', '{theme}'), 0")
    found = {}
    for name in files(site):
        page.open(f"{address}{name}.html", "typeof draw == 'function'")
        page.js(READY)
        if result := page.violations(json.dumps(LOOKED_AT)):
            found[name] = result
    assert not found, json.dumps(found, indent=1)[:3000]


def test_what_to_try_loads_when_it_is_opened(site, address, page):
    page.size(1280)
    page.open(f"{address}model/attention.html")
    look = ("[...document.querySelectorAll('details.try iframe')].filter(e => e.src)"
            ".map(e => e.contentWindow.location.hash)")
    assert page.js("document.querySelectorAll('details.try').length") > 1 and page.js(look) == []
    page.js("document.querySelector('details.try > summary').click()")
    for _ in range(200):
        if page.js(f"{look}[0] > ''"):
            break
        time.sleep(0.05)
    assert page.js(look) == ["#task=mask"]
    assert page.js("document.querySelector('details.try[open] > a').href").endswith("/playground.html#task=mask")


def test_a_chapter_opens_on_a_hosted_notebook(site):
    settings = dict(re.findall(r"^(\w+) = (.*)$", (ROOT / "settings.ini").read_text(encoding="utf-8"), re.M))
    for name in ("model/attention", "start_here"):
        found = re.findall(r'href="(https://colab[^"]*)"', files(site)[name].read_text(encoding="utf-8"))
        place = f"{settings['user']}/{settings['repo']}/blob/{settings['branch']}/nbs/{name}.ipynb"
        assert set(found) == {f"https://colab.research.google.com/github/{place}"}
        assert (ROOT / "nbs" / f"{name}.ipynb").exists()


def test_the_search_finds(site, address, page):
    page.size(1400)
    # the list ends before the lines that it quotes: each comes from its page
    page.open(f"{address}search.html?q=warm-up",
              "typeof Search == 'object' && Search.title?.textContent == _('Search Results') && "
              "[...document.querySelectorAll('#search-results li')].every(e => e.querySelector('.context'))")
    assert page.js("[...document.querySelectorAll('#search-results a')]"
                   ".some(a => a.href.includes('training/optimizer'))")
    quoted = page.js("[...document.querySelectorAll('#search-results p.context')].map(p => p.innerText).join(' ')")
    assert quoted and not re.search("Show code|Hide code|Open issue|In this chapter|System Settings", quoted)


def test_the_contents_fold_by_part(site, address, page):
    page.size(1400)
    page.open(f"{address}model/attention.html")
    part = next(c.part for c in read_chapters(ROOT / "nbs") if c.name == "model/attention")
    opened = page.js("[...document.querySelectorAll('nav.chapters > details[open] > summary')].map(e => e.innerText)")
    assert opened == ["In one hour", part]
    assert page.js("document.querySelector('nav.chapters [aria-current=page]').innerText") == "Attention"


def test_a_chart_is_alive(site, address, page):
    page.size(1400)
    page.open(f"{address}model/attention.html")
    page.js("document.querySelector('figure.chart').click()")
    for _ in range(200):
        if page.js("!!document.querySelector('figure.chart svg.marks')"):
            return
        time.sleep(0.1)
    raise AssertionError("the first chart stayed a picture")
