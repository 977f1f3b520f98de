"""Builds the book as a website: python site/build.py [--paper COPY] [--out FOLDER] (`make site` calls it).

The notebooks hold their outputs and nothing is executed. Each becomes a page: directives (`#|`) go, imports are folded
into one cell, charts become a still picture that a script brings to life where a reader wants it, and what a book needs
around its chapters is made from them (the index of functions, the bibliography with its links, reading times). Scripts,
fonts and formulas come from packages that are installed, so that the site asks no other host for anything; slim.py
takes out what no page of ours uses.
"""
import argparse
import base64
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import files
from pathlib import Path

SITE = Path(__file__).resolve().parent
ROOT = SITE.parent
sys.path.insert(0, str(SITE))

import bibliography  # noqa: E402
import original  # noqa: E402
import slim  # noqa: E402
import tables  # noqa: E402
from chapters import (  # noqa: E402
    APPENDIX,
    Chapter,
    Definition,
    builds_on,
    by_part,
    folds,
    link,
    only_imports,
    read_chapters,
    text,
)

CHART = "application/vnd.vegalite.v5+json"
# a saved notebook keeps a still picture of a live page, by what it shows; here the page itself is alive
LIVE_PAGES = {
    "The playground":
        '<iframe class="live train" data-src="{static}/playground.html" title="Watch a Transformer learn"></iframe>',
    "Heads of the model":
        '<iframe class="live" data-src="{static}/look_inside.html" title="Look inside a Transformer"></iframe>'}
# what a picture's reader cannot see: words for screen readers (an image has its alt), the third decimal
UNSEEN = re.compile(r' (?:aria-\w+|role|class|pointer-events)="[^"]*"| opacity="1"|(?<=\.\d\d)\d+')
DARK = re.compile(r"<style>@media \(prefers-color-scheme: dark\).*?</style>", re.S)  # the site has a switch of its own


def markdown(source: str, **more) -> dict:
    return {"cell_type": "markdown", "metadata": {}, "source": source, **more}


# --- cells ------------------------------------------------------------------------------------------------------------

def about(spec: dict) -> str:
    "What a chart shows, in a line for those who cannot see it: its title, or what its axes say."
    found, titles = [], []

    def walk(node):
        if isinstance(node, dict):
            if isinstance(node.get("title"), str):
                (found if "mark" in node or "layer" in node or "vconcat" in node else titles).append(node["title"])
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    title = spec.get("title")
    walk({k: v for k, v in spec.items() if k not in ("config", "datasets", "title")})
    named = title["text"] if isinstance(title, dict) else title
    named = " ".join(named) if isinstance(named, list) else named
    words = [named] if named else found[:1] or list(dict.fromkeys(titles))[:3]
    return "Chart: " + (", ".join(words) or "see the text")


def still(output: dict, spec: dict) -> bytes:
    "The chart's picture; drawn anew where it would ask for a click, which a picture cannot answer."
    title = spec.get("title")
    if isinstance(title, dict) and re.search(r"\bclick\b", json.dumps(title.get("subtitle", "")), re.I):
        from annotated_transformer.drawing.charts import as_png
        return as_png({**spec, "title": {key: value for key, value in title.items() if key != "subtitle"}})
    return base64.b64decode("".join(output["data"]["image/png"]))


def chart(output: dict, here: str, name: str, static: Path) -> dict:
    "A chart's output as HTML, on the page `here`: the still picture; its specification lies beside it for charts.js."
    spec = output["data"][CHART]
    (static / "charts").mkdir(exist_ok=True)
    (static / "charts" / f"{name}.png").write_bytes(still(output, spec))
    script = f"charts[{json.dumps(name)}] = {json.dumps(spec, ensure_ascii=False)}"
    (static / "charts" / f"{name}.js").write_text(script, encoding="utf-8")
    size = output.get("metadata", {}).get("image/png", {})
    shape = "".join(f' {side}="{size[side]}"' for side in ("width", "height") if side in size)
    shape += f' style="--wide: {size["width"]}px"' if "width" in size else ""  # how far book.css may shrink it
    words, picture = html.escape(about(spec), quote=True), link(f"_static/charts/{name}.png", here)
    bound = [param for param in spec.get("params", []) if isinstance(param.get("bind"), dict)]
    controls = ' data-controls="1"' if bound else ""
    figure = (f'<figure class="chart" data-chart="{name}" data-about="{words}"{controls}>'
              f'<div class="drawn"><img class="only-still" loading="lazy" src="{picture}" alt="{words}"{shape}></div>'
              "<figcaption></figcaption></figure>")
    return {"output_type": "display_data", "metadata": {}, "data": {"text/html": figure}}


def shown(output: dict, here: str, name: str, static: Path) -> dict:
    "An output as the site shows it on the page `here`."
    data = output.get("data", {})
    if CHART in data:
        return chart(output, here, name, static)
    if "text/html" not in data:
        return output
    page = re.sub(r'(href="[\w./]+)\.ipynb\b', r"\1.html", "".join(data["text/html"]))
    if (live := re.match(r'<div id="page-[\d-]+"><img alt="([^"]+)"', page)) and live[1] in LIVE_PAGES:
        page = LIVE_PAGES[live[1]].format(static=link("_static", here))
    return {**output, "data": {**data, "text/html": tables.plain(page)}}


def code(cell: dict, here: str, static: Path) -> dict | None:
    "A code cell of the page `here` without its directives; None where nothing is left of it."
    source = re.sub(r"^#\|.*\n?", "", text(cell), flags=re.M).strip("\n")
    if not source:
        return None
    tags = list(cell["metadata"].get("tags", []))
    told = {}
    if "solution" in tags:
        tags, told = ["hide-input"], {"code_prompt_show": "Show a solution", "code_prompt_hide": "Hide the solution"}
    outputs = [shown(o, here, f"{here.replace('/', '-')}-{cell['id']}-{i}", static)
               for i, o in enumerate(cell["outputs"])]
    metadata = {"tags": tags, **({"mystnb": told} if told else {})}
    return {**cell, "source": source, "outputs": outputs, "metadata": metadata}


def imports_first(cells: list[dict]) -> list[dict]:
    "Cells that only import become one folded cell where the first stood; what installs the package joins them."
    imports = [cell for cell in cells if cell["cell_type"] == "code" and only_imports(cell["source"])]
    if not imports:
        return cells
    taken = [cell for cell in cells if cell.get("id") == "install"] + imports
    told = {"code_prompt_show": "Show imports", "code_prompt_hide": "Hide imports"}
    whole = {**imports[0], "source": "\n".join(cell["source"] for cell in taken),
             "metadata": {"tags": ["hide-input"], "mystnb": told}}
    others = [cell for cell in cells if cell is imports[0] or not any(cell is t for t in taken)]
    return [whole if cell is imports[0] else cell for cell in others]


def folded(cell: dict) -> bool:
    "A cell whose code is folded."
    return cell["cell_type"] == "code" and cell["metadata"] == {"tags": ["hide-input"]}


def empty(cell: dict) -> bool:
    "A cell that shows nothing until it is opened: code, or the imports."
    prompt = cell["metadata"].get("mystnb", {}).get("code_prompt_show")
    return cell["cell_type"] == "code" and not cell["outputs"] and (folded(cell) or prompt == "Show imports")


def joined(one: dict, two: dict) -> dict:
    return {**two, "source": f"{one['source']}\n\n\n{two['source']}"}


def fewer_folds(cells: list[dict]) -> list[dict]:
    "Folded cells that stand together become one, under what the last of them shows; imports alone stay apart."
    made = []
    for cell in cells:
        while folded(cell) and made and empty(made[-1]) and (folded(made[-1]) or cell["outputs"]):
            cell = joined(made.pop(), cell)
        made.append(cell)
    return made


def outside(source: str) -> str:
    "Links out of nbs/ as the site has them: its pages lie one folder higher."
    source = re.sub(r"\]\(\.\./((?:\.\./)*)(figures/|LICENSE\b)", r"](\1\2", source).replace("](../site/pages/", "](")
    plans = "annotated_transformer/experiments/plans/"
    return re.sub(rf"\]\(\.\./((?:\.\./)*)(?:{plans})?(CONTRIBUTING|CHANGELOG|PROTOCOL)\.md",
                  lambda m: f"]({m[1]}{m[2].lower()}.md", source)


TRY = re.compile(r"\[([^\]]+)\]\((?:\.\./)*(?:inside/)?playground\.ipynb#([\w=&.]+)\)")


def tried(source: str, here: str) -> str:
    "What a chapter says to try opens in the playground, in a frame that loads when it is asked for."
    def opened(match: re.Match) -> str:
        title, state = html.escape(match[1], quote=True), html.escape(match[2], quote=True)
        there = f"{link('_static/playground.html', here)}#{state}"
        return (f'<details class="try"><summary>{title}</summary>'
                f'<iframe class="live train" data-src="{there}" title="{title}"></iframe>'
                f'<a href="{there}">on a page of its own</a></details>')

    def paragraph(match: re.Match) -> str:
        return f'<div class="tries">{"".join(opened(m) for m in TRY.finditer(match[1]))}</div>'

    return re.sub(r"^\*Try it:\* (.+)\.$", paragraph, source, flags=re.M)


def named_links(source: str, here: Chapter, names: dict[str, tuple[Chapter, Definition]]) -> str:
    "Names of the package in the prose lead to the cells that define them, when they cannot be mistaken for a word."
    def linked(match: re.Match) -> str:
        chapter, definition = names.get(match[1].rstrip("()"), (here, None))
        if definition is None or chapter is here or linked_already(match):
            return match[0]
        return f'<a href="{link(address(chapter, definition), here.name)}"><code>{html.escape(match[1])}</code></a>'

    if source.lstrip().startswith(("#", "```")) or "```" in source:
        return source
    linked_already = bibliography.in_a_link(source)
    return re.sub(r"(?<![\[`])`([A-Za-z]\w*(?:\(\))?)`(?![`\]])", linked, source)


def one_title(cells: list[dict]) -> list[dict]:
    "Behind a second heading of the first level (*Checks and experiments*) all are a level lower: a page has one title."
    lower = ""
    for cell in cells:
        if cell["cell_type"] == "code":
            continue
        parts = re.split(r"(^```.*?^```)", cell["source"], flags=re.M | re.S)  # prose, a block of code, prose, ...
        for i, part in list(enumerate(parts))[::2]:
            lower = "#" if re.search(r"^# ", part, re.M) else lower
            parts[i] = re.sub(r"^(#+ )", rf"{lower}\1", part, flags=re.M)
        cell["source"] = "".join(parts)
    return cells


def address(chapter: Chapter, definition: Definition) -> str:
    return f"{chapter.name}.html#{chapter.module}.{definition.name}"


def titles(chapters: list[Chapter], here: str) -> str:
    return ", ".join(f"[{c.title}]({link(f'{c.name}.ipynb', here)})" for c in chapters)


def facts(chapter: Chapter, before: list[Chapter]) -> str:
    "The line under a chapter's title."
    before = titles(before, chapter.name)
    told = [f"**{chapter.told_minutes}** to read", f"builds on {before}" if before else "",
            f"gives {chapter.gives}" if chapter.gives else ""]
    return "{.facts}\n" + " · ".join(filter(None, told))


def page(chapter: Chapter, before: list[Chapter], names: dict, references: dict, static: Path,
         paper: original.Paper | None) -> dict:
    "A chapter's notebook as the site shows it; it builds on the chapters `before`."
    defined = {}
    for definition in chapter.definitions:
        defined.setdefault(definition.cell, []).append(f"{chapter.module}.{definition.name}")
    cells = []
    for cell in chapter.nb["cells"][1:]:
        if cell["id"] == "links":  # the theme has its own; the path of one hour it does not know
            hour = text(cell).split("\n\n")[1:]
            cells += [markdown(f"{{.hour}}\n{hour[0]}", id="hour")] if hour else []
            continue
        if cell["cell_type"] != "code":
            source = tried(original.beside(text(cell), paper), chapter.name)
            source = bibliography.linked(named_links(source, chapter, names), references,
                                         link("references.html", chapter.name))
            source = re.sub(r"\]\(attachment:([\w.-]+)", lambda m: f"]({link(f'figures/{m[1]}', chapter.name)}",
                            outside(source))
            cells.append(markdown(source, id=cell["id"]))
        elif (shown := code(cell, chapter.name, static)) is not None:
            anchors = "\n".join(f'<span class="anchor" id="{name}"></span>' for name in defined.get(cell["id"], []))
            cells += [markdown(anchors, id=f"{cell['id']}-at")] if anchors else []
            cells.append(shown)
    title, _, lead = text(chapter.nb["cells"][0]).partition("\n> ")
    head = markdown(f"{title}\n\n{{.lead}}\n{lead.strip()}\n\n{facts(chapter, before)}", id="head")
    return {**chapter.nb, "cells": [head, *fewer_folds(imports_first(one_title(cells)))]}


# --- pages around the chapters ----------------------------------------------------------------------------------------
LEAD = """The 2017 paper that introduced the Transformer, in {count} chapters that restate it, build it in plain PyTorch
and put its claims to the test. Press *Train*: this one knows nothing yet."""
LIVE = """<iframe class="live train" id="play" data-src="_static/playground.html" title="Watch a Transformer
learn"></iframe>

## Look inside
A trained one, while it translates: click the line from *it* to *dog*, and cut it.

<iframe class="live" id="look" data-src="_static/look_inside.html" title="Look inside a Transformer while it
translates"></iframe>

<div class="doors"><a href="{hour}.html"><b>Read</b> in an hour</a>
<a href="results.html"><b>What reproduced</b>, in ten lines</a></div>"""


def front(nbs: Path, chapters: list[Chapter], extra: list[str], static: Path, paper: original.Paper | None) -> dict:
    "The landing page: the playground, the live page, then the README's page with the table of contents."
    nb = json.loads((nbs / "index.ipynb").read_text(encoding="utf-8"))
    cells = []
    for cell in nb["cells"]:
        tags = cell["metadata"].get("tags", [])
        if "make" in tags:  # commands, for those who have the files
            continue
        shown = code(cell, "index", static) if cell["cell_type"] == "code" else {**cell, "source": text(cell)}
        if shown is not None:
            # the first page is for readers: what is folded is left out
            if "hide-input" in tags:
                shown["metadata"] = {"tags": ["remove-input"]}
            cells.append({**shown, "source": outside(shown["source"])})
    title = cells[0]["source"].split("\n")[0]
    lead = LEAD.format(count=sum(not chapter.appendix for chapter in chapters))
    first = next((chapter.name for chapter in chapters if chapter.hour), chapters[0].name)
    cells[0] = markdown(f"{title}\n\n{{.lead}}\n{lead}\n\n{LIVE.format(hour=first)}", id="head")
    rows = "\n".join([*(chapter.name for chapter in chapters), *extra])
    cells.append(markdown(f"```{{toctree}}\n:hidden:\n\n{rows}\n```", id="toc"))
    return {**nb, "cells": [*cells, markdown(original.NOTE if paper is None else original.PRIVATE, id="paper")]}


def scorer(chapters: list[Chapter]) -> str:
    "How the search orders what it finds: Sphinx's numbers, the appendix behind everything else."
    appendix = json.dumps([chapter.name for chapter in chapters if chapter.appendix])
    return ("var Scorer = {objNameMatch: 11, objPartialMatch: 6, objPrio: {0: 15, 1: 5, 2: -5}, objPrioDefault: 0, "
            "title: 15, partialTitle: 7, term: 5, partialTerm: 2, "
            f"score: found => found[4] - ({appendix}.includes(found[0]) ? 1000 : 0)}};\n")


def api(chapters: list[Chapter]) -> str:
    "The index of functions."
    out = ["# Functions and classes", "", "{.lead}",
           "Every public name of the package, with a link to the cell that defines it.", ""]
    for chapter in chapters:
        if not chapter.definitions:
            continue
        rows = [f'<dt><a href="{address(chapter, d)}"><code>{html.escape(d.call)}</code></a></dt>'
                "<dd>" + re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(d.about)) + "</dd>"
                for d in chapter.definitions]
        out += [f"## {chapter.module}", "",
                f"{titles([chapter], 'api')}, `from annotated_transformer.{chapter.module} import ...`", "",
                '<dl class="api">', *rows, "</dl>", ""]
    return "\n".join(out)


def overview(chapters: list[Chapter], before: dict[str, list[Chapter]]) -> str:
    "Reading times, what each chapter builds on and gives."
    def hours(chapters: list[Chapter]) -> str:
        return f"{sum(chapter.minutes for chapter in chapters) / 60:.0f} hours"

    book, appendix = [c for c in chapters if not c.appendix], [c for c in chapters if c.appendix]
    out = ["# The chapters at a glance", "", "{.lead}",
           f"The book takes about {hours(book)} to read{f', its appendix {hours(appendix)}' if appendix else ''}: "
           "200 words or 20 lines of visible code a minute, 15 seconds for a picture or a table.", ""]
    later = {f"{APPENDIX}: {part}": mine for part, mine in by_part(appendix).items()}
    for part, mine in (by_part(book) | later).items():
        out += [f"## {part}", "", "| chapter | minutes | the paper | builds on | gives |", "|---|--:|---|---|---|"]
        for c in mine:
            row = [titles([c], "overview"), str(c.minutes), c.section, titles(before[c.name], "overview"), c.gives]
            out.append(f"| {' | '.join(row)} |")
        out.append("")
    return "\n".join(out)


def rooms(nbs: Path) -> str:
    "Which room imports from which, as a table."
    order = tomllib.loads((nbs / "contents.toml").read_text(encoding="utf-8"))["rooms"]
    package = ROOT / "annotated_transformer"
    used = {room: {name for path in (package / room).glob("*.py")
                   for name in re.findall(r"^from \.\.(\w+)", path.read_text(encoding="utf-8"), re.M)}
            for room in order}
    rows = [f"| {n} {room} | " + " | ".join("\u2022" if other in used[room] else "" for other in order[:-1]) + " |"
            for n, room in enumerate(order, 1)]
    numbers = " | ".join(map(str, range(1, len(order))))
    return "\n".join([f"| room | {numbers} |", "|---|" + ":-:|" * (len(order) - 1), *rows])


# --- the whole --------------------------------------------------------------------------------------------------------

FORMULAS = ["startup.js", "core.js", "input/tex-base.js", "input/tex/extensions/ams.js", "output/chtml.js",
            "output/chtml/fonts/tex.js", "a11y/assistive-mml.js"]  # of MathJax, what conf.py names


def mathjax() -> Path:
    "MathJax's folder in the package that brings it."
    (script,) = [file for file in files("sphinx-mathjax-offline") if file.name == "tex-chtml-full.js"]
    return Path(script.locate()).parent


def put_static(static: Path) -> None:
    from annotated_transformer.decoding.translation import load
    from annotated_transformer.drawing.charts import script
    from annotated_transformer.inside import explore, playground
    shutil.copytree(SITE / "static", static, dirs_exist_ok=True)
    shutil.copy(ROOT / "figures" / "preview.png", static)
    (static / "vega.js").write_text(f"(() => {{{script()}\n}})()", encoding="utf-8")  # its names are not the page's
    (static / "playground.html").write_text(playground.playground_page("../"), encoding="utf-8")
    (static / "look_inside.html").write_text(explore.page(load("grammar")), encoding="utf-8")
    for part in FORMULAS:
        (static / "mathjax" / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(mathjax() / part, static / "mathjax" / part)
    shutil.copytree(mathjax() / "output/chtml/fonts/woff-v2", static / "mathjax/output/chtml/fonts/woff-v2")


def write_sources(source: Path, paper: original.Paper | None) -> None:
    "Everything that Sphinx reads, in the folder `source`."
    nbs, static, chapters = ROOT / "nbs", source / "_static", read_chapters(ROOT / "nbs")
    put_static(static)
    for file in (SITE / "conf.py", ROOT / "settings.ini"):
        shutil.copy(file, source)
    shutil.copytree(SITE / "templates", source / "_templates")
    shutil.copy(ROOT / "LICENSE", source)
    shutil.copytree(ROOT / "figures", source / "figures")
    for svg in (source / "figures").rglob("*.svg"):
        svg.write_text(UNSEEN.sub("", DARK.sub("", svg.read_text(encoding="utf-8"))), encoding="utf-8")
    for folder in (source / "results", source / "extra" / "results"):
        shutil.copytree(nbs / "results", folder)
    unique: dict[str, list] = {}
    for chapter in chapters:
        for definition in chapter.definitions:
            unique.setdefault(definition.name, []).append((chapter, definition))
    names = {name: found[0] for name, found in unique.items() if len(found) == 1
             and re.search(r"[a-z]_[a-z]|[a-z][A-Z]", name)}
    references, before = bibliography.read(SITE / "references.bib"), builds_on(chapters)
    for chapter in chapters:
        made = page(chapter, before[chapter.name], names, references, static, paper)
        (source / chapter.room).mkdir(exist_ok=True)
        (source / f"{chapter.name}.ipynb").write_text(json.dumps(made, ensure_ascii=False), encoding="utf-8")
    pages = {path.stem: path.read_text(encoding="utf-8").replace("](../../nbs/", "](")
             .replace("](../../CONTRIBUTING", "](contributing") for path in sorted((SITE / "pages").glob("*.md"))}
    for file in (ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md",
                 ROOT / "annotated_transformer/experiments/plans/PROTOCOL.md"):
        stem, words = file.stem, file.read_text(encoding="utf-8")
        pages[stem.lower()] = words.replace("](nbs/", "](").replace("](site/pages/",
                                                                    "](").replace("\n\n", "\n\n{.lead}\n", 1)
    pages |= {"api": api(chapters), "overview": overview(chapters, before),
              "references": bibliography.page(references, chapters)}
    pages["taking_over"] = pages["taking_over"].replace("{rooms}", rooms(nbs))
    for stem, words in pages.items():
        linked = bibliography.linked(words, references, "references.html") if stem != "references" else words
        (source / f"{stem}.md").write_text(linked, encoding="utf-8")
    extra = {stem: pages[stem].split("\n")[0].removeprefix("# ")
             for stem in ("overview", "teaching", "notation", "glossary", "api", "public_names", "references",
                          "protocol", "contributing", "taking_over", "changelog")}
    (source / "folds.json").write_text(json.dumps(folds(chapters, extra)), encoding="utf-8")
    book, appendix = ([c.name for c in chapters if c.appendix == kind] for kind in (False, True))
    (source / "ends.json").write_text(json.dumps({"last": book[-1], "first": appendix[0] if appendix else None}))
    (source / "scorer.js").write_text(scorer(chapters), encoding="utf-8")
    first = front(nbs, chapters, list(extra), static, paper)
    (source / "index.ipynb").write_text(json.dumps(first, ensure_ascii=False), encoding="utf-8")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--paper", type=Path,
                           help="your copy of the paper's source: an archive, a folder or a .tex file")
    arguments.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    given = arguments.parse_args()
    paper = original.Paper(given.paper) if given.paper else None
    out = given.out
    source = out.with_name(f"{out.name}_source")  # two builds at once keep out of each other's way
    for folder in (source, out):
        shutil.rmtree(folder, ignore_errors=True)
    source.mkdir(parents=True)
    write_sources(source, paper)
    doctrees = out.with_name(f"{out.name}_doctrees")
    path = os.pathsep.join([str(SITE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-m", "sphinx", "-q", "-b", "html", "-d", doctrees, source, out],
                          env={**os.environ, "PYTHONPATH": path})
    if done.returncode == 0:
        slim.slim(out, {chapter.name: chapter.lead for chapter in read_chapters(ROOT / "nbs")})
        (out / ".nojekyll").touch()
        print(f"{out / 'index.html'}: {len(list(out.rglob('*.html')))} pages")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
