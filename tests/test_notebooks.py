"""The chapters as files: built, clean, complete and in their place.

Each check returns its complaints, which say what to run or to change. The second half of this file breaks a small
checkout in every way that the checks are there to find, and sees them find it.
"""
import ast
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from execnb.nbio import nb2str
from nbdev.clean import clean_nb
from nbdev.config import get_config
from nbdev.doclinks import nbdev_export

from here import ROOT

sys.path.insert(0, str(ROOT / ".ci"))

import readme as readme_maker  # noqa: E402
import tidy  # noqa: E402

KERNEL = {"kernelspec": {"display_name": "python3", "language": "python", "name": "python3"}}
# a path of somebody's machine, not a part of an address on the web
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:home|root|Users|tmp|work|private|var|opt|usr|mnt|srv)/[\w.]+"
                          r"|[A-Z]:\\\\?Users|site-packages")
# hosts of package registries, in pieces so that this file holds none itself
HOSTS = [".".join(host) for host in (
    ("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("yarnpkg", "com"), ("crates", "io"),
    ("deb", "debian", "org"), ("download", "pytorch", "org"), ("conda", "anaconda", "org"), ("proxy", "golang", "org"))]
LINES = 60  # a cell's, its directives and empty lines not counted; a class may have more
TORCH_ALONE = {"model": {"torch", "jaxtyping"}}  # jaxtyping writes shapes into signatures
BY_HAND = {"__init__.py", "__main__.py"}  # in the package; everything else is exported


def notebooks(nbs: Path) -> list[Path]:
    return sorted(path for path in nbs.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)


def home(path: Path) -> Path:
    "The folder nbs/ that holds a chapter."
    return next(folder for folder in path.parents if (folder / "contents.toml").exists())


def name(path: Path) -> str:
    "What a chapter is called: `model/attention`."
    return path.relative_to(home(path)).with_suffix("").as_posix()


def read_contents(nbs: Path) -> dict:
    return tomllib.loads((nbs / "contents.toml").read_text(encoding="utf-8"))


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def text(lines: str | list[str]) -> str:
    return lines if isinstance(lines, str) else "".join(lines)


def sources(path: Path, kind: str) -> list[str]:
    return [text(cell["source"]) for cell in read(path)["cells"] if cell["cell_type"] == kind]


def directives(source: str) -> set[str]:
    return {word.rstrip(":") for line in source.splitlines() if line.startswith("#|") for word in line[2:].split()[:1]}


def parsed(source: str) -> ast.Module:
    "The cell's syntax tree without its magics and shell lines; empty where it is no Python (nbdev_test tells of that)."
    lines = [re.sub(r"^(\s*)(?:[%!].*|(\w+)\s*=\s*[%!].*)$", r"\1pass", line) for line in source.splitlines()]
    try:
        return ast.parse("" if source.startswith("%%") else "\n".join(lines))
    except SyntaxError:
        return ast.parse("")


def called(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and name == getattr(node.func, "id", getattr(node.func, "attr", None))


# --- one chapter ------------------------------------------------------------------------------------------------------

def opening(path: Path) -> Iterator[str]:
    cell = read(path)["cells"][0]
    if cell["cell_type"] != "markdown" or not re.fullmatch(r"# \S.*\n+> \S.*", text(cell["source"]).strip()):
        yield ("the first cell is to hold '# title' and one line '> ...', and no more: the website takes both from it "
               "and drops the rest")


def executed(path: Path) -> Iterator[str]:
    build = f"run: make notebooks NB={name(path)}"
    code = [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]
    if code and not any(cell["outputs"] for cell in code):
        yield f"no cell has an output; {build}"
    for cell in code:
        source, first = text(cell["source"]), text(cell["source"]).strip().split("\n")[0]
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                yield (f"an error is stored: {output['ename']}: {output['evalue']} (cell {cell['id']}: {first}); mend "
                       f"it, then {build}")
            if output.get("name") == "stderr":
                yield (f"a warning is stored: {text(output['text']).strip()[:200]!r} (cell {cell['id']}: {first}); "
                       f"mend it, then {build}")
        if cell["outputs"] or directives(source) & {"eval"}:
            continue
        body = parsed(source).body
        prints = any(isinstance(s, ast.Expr) and called(s.value, "print") and not s.value.keywords for s in body)
        shows = body and isinstance(body[-1], ast.Expr) and called(body[-1].value, "show")
        if prints or shows:
            yield f"cell {cell['id']} ({first}) shows something, and its output is not there; {build}"


def clean(path: Path) -> Iterator[str]:
    if (metadata := read(path)["metadata"]) != KERNEL:
        yield (f"the notebook's metadata is to be its kernel alone, not {', '.join(metadata)}; run: make notebooks "
               f"NB={name(path)}")
    settings, nb = get_config(path=home(path)), read(path)  # as nbdev_clean does it
    clean_nb(nb, settings.clear_all, settings.allowed_metadata_keys.split(),
             settings.allowed_cell_metadata_keys.split(), settings.clean_ids)
    if nb2str(nb) != path.read_text(encoding="utf-8"):
        yield ("counts, metadata or layout that nbdev_clean takes out; run: .venv/bin/nbdev_clean --fname "
               f"nbs/{name(path)}.ipynb")


def portable(path: Path) -> Iterator[str]:
    for cell in read(path)["cells"]:
        for output in cell.get("outputs", []):
            pictures = {kind for kind in output.get("data", {}) if kind.startswith("image/")}
            shown = {**output, "data": {k: v for k, v in output.get("data", {}).items() if k not in pictures}}
            for found in MACHINE_PATH.findall(json.dumps(shown, ensure_ascii=False)):
                yield (f"the output of cell {cell['id']} names a path of this machine: {found}; print names or "
                       "relative paths")


def strict(path: Path) -> Iterator[str]:
    "What is no JSON (NaN, Infinity) opens in Python and in no browser."
    found = []
    json.loads(path.read_text(encoding="utf-8"), parse_constant=found.append)
    if found:
        yield (f"it holds {found[0]}, which is no JSON, so that JupyterLab cannot open it; run: make notebooks "
               f"NB={name(path)}")


def charts(path: Path) -> Iterator[str]:
    for cell in read(path)["cells"]:
        for output in cell.get("outputs", []):
            kinds = {kind for kind in output.get("data", {}) if kind.startswith("application/vnd.vega")}
            if kinds and (kinds != {"application/vnd.vegalite.v5+json"} or not output["data"].get("image/png")):
                yield (f"the chart of cell {cell['id']} is stored as {', '.join(sorted(output['data']))}, where "
                       "Vega-Lite 5 and a PNG are needed: show it with annotated_transformer.drawing.charts.show")


def headings(path: Path) -> set[str]:
    "The anchors that JupyterLab gives to the headings of a notebook or a markdown file."
    markdown = sources(path, "markdown") if path.suffix == ".ipynb" else [path.read_text(encoding="utf-8")]
    return {title.strip().replace(" ", "-") for source in markdown for title in re.findall(r"^#+ (.+)$", source, re.M)}


def unknown_state(anchor: str) -> Iterator[str]:
    "The playground's address names a task, parts that are off, and numbers."
    script = (ROOT / "annotated_transformer/resources/page/learning.js").read_text(encoding="utf-8")
    parts = set(re.findall(r"^  (\w+): \[\"", script, re.M)) - {"heads"}
    known = {"task": set(re.findall(r'\{ id: "(\w+)"', script)), "off": parts}
    for key, value in (part.split("=") for part in anchor.split("&")):
        number = key in ("d_model", "n_layers", "n_heads", "rate", "seed") and re.fullmatch(r"\d+(\.\d+)?", value)
        if not number and value not in known.get(key, ()):
            yield f"the playground knows no {key}={value}"


def links(path: Path) -> Iterator[str]:
    markdown = "\n\n".join(sources(path, "markdown")) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
    markdown = re.sub(r"^```.*?^```|`[^`\n]+`", "", markdown, flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)[^)]*\)|(?:src|href)=\"([^\"]+)\"", markdown):
        target = target[0] or target[1]
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        file = path.parent / place if place else path
        if not file.exists():
            yield f"the link to {target} leads nowhere"
        elif "=" in anchor:  # a state of the playground
            yield from unknown_state(anchor)
        elif anchor and anchor not in headings(file):
            yield f"the link to {target} leads to a heading that {file.name} does not have"


def libraries(source: str) -> set[str]:
    "What a cell imports that is neither Python's nor ours."
    nodes = list(ast.walk(parsed(source)))
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return {first for first in (name.split(".")[0] for name in names)
            if first not in sys.stdlib_module_names | {"annotated_transformer"}}


def imported(source: str, package: str = "annotated_transformer") -> Iterator[str]:
    "The modules of ours that a cell imports, wherever in it, and the names that it takes from them."
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name.removeprefix(package + ".") for name in names if name.startswith(package + "."))


def named_places(source: str, nbs: Path) -> Iterator[str]:
    "The modules of ours that a cell names in strings, to import them later; sentences do not count."
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = re.fullmatch(r"(?:annotated_transformer\.)?(\w+)\.(\w*)[\w. ]*", node.value)
            if found and (nbs / found[1] / f"{found[2]}.ipynb" if found[2] else nbs / found[1]).exists():
                yield node.value.removeprefix("annotated_transformer.")


def module(path: Path) -> str | None:
    "The module that a chapter exports: `model.attention`."
    found = (re.search(r"^#\| ?default_exp ([\w.]+)", source, re.M) for source in sources(path, "code"))
    return next((match[1] for match in found if match), None)


def direction(path: Path) -> Iterator[str]:
    "A module imports only from its own room and from those below: those that contents.toml names before it."
    if not (mine := module(path)):
        return
    if mine.replace(".", "/") != name(path):
        yield f"it exports the module {mine}; a chapter's place says its module's: {name(path).replace('/', '.')}"
        return
    room, rooms = mine.split(".")[0], read_contents(home(path))["rooms"]
    if room not in rooms:
        yield f"the room {room} is not among the rooms of contents.toml"
        return
    for source in sources(path, "code"):
        if not directives(source) & {"export", "exports", "exporti"}:
            continue
        for other in imported(source):
            there = other.split(".")[0]
            if there in rooms[rooms.index(room) + 1 :]:
                yield f"it imports {other}, and {there} lies above {room} (contents.toml): move what it needs down"
            elif there not in rooms and not there.startswith("_"):
                yield f"it imports {other} from the package as a whole: name the module that has it"
        for place in named_places(source, home(path)):
            if place.split(".")[0] in rooms[rooms.index(room) + 1 :]:
                yield f"it names {place}, which lies above {room}: look it up in annotated_transformer/__init__.py"
        for library in libraries(source) - TORCH_ALONE.get(room, libraries(source)):
            yield f"it imports {library}; {room} needs PyTorch alone"


def one_class(source: str) -> bool:
    "A class is one idea, and its methods cannot stand in cells of their own."
    body = parsed(source).body
    return len(body) == 1 and isinstance(body[0], ast.ClassDef)


def short(path: Path) -> Iterator[str]:
    for cell in read(path)["cells"]:
        if one_class(text(cell["source"])):
            continue
        lines = [line for line in text(cell["source"]).splitlines() if line and not line.startswith("#|")]
        if cell["cell_type"] == "code" and len(lines) > LINES:
            yield (f"cell {cell['id']} ({lines[0]}) has {len(lines)} lines of code, more than {LINES}: split it, one "
                   "idea a cell")


def selections(path: Path) -> Iterator[str]:
    "JupyterLab's Vega-Lite 5.6 draws only an error where a selection sits on a line that brings its points along."
    def marks(node):
        if isinstance(node, dict):
            if isinstance(node.get("mark"), dict):
                yield node.get("name"), node["mark"]
            for child in node.values():
                yield from marks(child)
        elif isinstance(node, list):
            for child in node:
                yield from marks(child)

    for cell in read(path)["cells"]:
        for output in cell.get("outputs", []):
            spec = output.get("data", {}).get("application/vnd.vegalite.v5+json", {})
            views = {view for param in spec.get("params", []) for view in param.get("views", [])}
            if any(name in views and (mark.get("point") or mark.get("line")) for name, mark in marks(spec)):
                yield ("a chart's selection sits on a line with points, which JupyterLab cannot draw: give the points "
                       f"a layer (cell {cell['id']})")


CHAPTER_CHECKS = [opening, executed, clean, portable, strict, charts, selections, links, direction, short]


# --- the whole checkout -----------------------------------------------------------------------------------------------

def export(root: Path) -> None:
    "nbdev_export in the checkout `root`."
    get_config.cache_clear()
    with contextlib.chdir(root):
        nbdev_export()
    get_config.cache_clear()


def exports(root: Path, tmp: Path) -> Iterator[str]:
    "The package is what the chapters export: made anew in a copy, and compared."
    package = "annotated_transformer"
    shutil.copytree(root / "nbs", tmp / "nbs", ignore=shutil.ignore_patterns("*.py", "results", ".*"))
    shutil.copy(root / "settings.ini", tmp)
    for path in (root / package).rglob("*.py"):
        if path.name in BY_HAND:  # nbdev writes the version into one of them
            (copy := tmp / path.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    export(tmp)
    there, fresh = ({str(path.relative_to(folder / package)): path.read_text(encoding="utf-8")
                     for path in (folder / package).rglob("*.py")}
                    for folder in (root, tmp))
    for file in sorted(there.keys() | fresh.keys()):
        if there.get(file) != fresh.get(file):
            what = "is missing" if file not in there else "is not what its chapter exports"
            mend = "run: make export"
            if file not in fresh:
                what, mend = "has no chapter", "remove it"
            yield f"{package}/{file} {what}; {mend}"


def readme(root: Path, tmp: Path) -> Iterator[str]:
    there, made = root / "README.md", readme_maker.readme(root / "nbs" / "index.ipynb")
    if not there.exists() or there.read_text(encoding="utf-8") != made:
        yield "README.md is not what nbs/index.ipynb gives; run: make readme"
    else:
        for page in sorted(root.glob("*.md")):  # and CONTRIBUTING, CHANGELOG
            yield from (f"{page.name}: {complaint}" for complaint in links(page))


def contents(root: Path, tmp: Path) -> Iterator[str]:
    nbs = root / "nbs"
    chapters = [chapter for part in read_contents(nbs)["part"] for chapter in part["chapter"]]
    for chapter in chapters:
        if chapter.keys() - {"hour", "appendix", "seconds"} != {"path", "section", "gives"}:
            yield (f"contents.toml: {chapter['path']} has {', '.join(chapter)}; it needs path, section, gives, and may "
                   "have hour, appendix and seconds")
    listed = Counter(chapter["path"] for chapter in chapters)
    there = {name(path) for path in notebooks(nbs)} - {"index"}
    for path in sorted(listed.keys() | there):
        if path not in there or listed[path] != 1:
            what = "is no notebook" if path not in there else f"is there {listed[path]} times"
            yield f"{path} {what} in contents.toml: each chapter has one place in the book"
    index = json.dumps(read(nbs / "index.ipynb"), ensure_ascii=False)
    for path in sorted(there):
        if f"]({path}.ipynb)" not in index:
            yield f"index.ipynb has no link to {path}; run: make notebooks NB=index"


def tidied(root: Path, tmp: Path) -> Iterator[str]:
    book = tidy.read(root / "nbs")
    for path, nb in book.notebooks.items():
        if (wanted := tidy.tidied(path, book)["cells"]) == nb["cells"]:
            continue
        what = "line of links" if wanted[-1] != nb["cells"][-1] else "metadata or the output of cells"
        yield f"the {what} of {name(path)} is not what .ci/tidy.py writes; run: .venv/bin/python .ci/tidy.py"


MADE = {".git", ".venv", "build", "exercises", "runs", "data", "dist"}  # in .gitignore, where git cannot be asked


def tracked(root: Path) -> list[Path]:
    "The files that belong to the checkout: git's, and those it would take; without git all but what is made."
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = shutil.which("git") and subprocess.run(command, cwd=root, capture_output=True, text=True)
    inside = (root / ".git").exists() and listed and listed.returncode == 0
    paths = ([root / file for file in listed.stdout.split("\0") if file] if inside
             else [path for path in root.rglob("*") if path.relative_to(root).parts[0] not in MADE])
    return [path for path in paths if path.is_file()]


def registries(root: Path, tmp: Path) -> Iterator[str]:
    hosts = re.compile("|".join(map(re.escape, HOSTS)))
    for path in tracked(root):
        for host in sorted(set(hosts.findall(path.read_bytes().decode("utf-8", "ignore")))):
            yield (f"{path.relative_to(root)} names the package registry {host}: leave the choice of a registry to "
                   "whoever installs")


def linted(root: Path, tmp: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--quiet", "--output-format", "concise"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    yield from done.stdout.splitlines()
    if done.stderr:
        yield f"ruff did not run to its end: {done.stderr}"


CHECKOUT_CHECKS = [exports, readme, contents, tidied, registries, linted]


@pytest.mark.parametrize("path", notebooks(ROOT / "nbs"), ids=name)
def test_chapter(path: Path):
    complaints = [f"nbs/{name(path)}.ipynb: {complaint}" for check in CHAPTER_CHECKS for complaint in check(path)]
    assert not complaints, "\n" + "\n".join(complaints)


@pytest.mark.parametrize("check", CHECKOUT_CHECKS, ids=lambda check: check.__name__)
def test_checkout(check: Callable, tmp_path: Path):
    complaints = list(check(ROOT, tmp_path))
    assert not complaints, "\n" + "\n".join(complaints)


def test_a_chapter_installs_what_its_code_imports():
    def installed(room: str, code: str) -> str:
        nb = {"cells": [{"cell_type": "code", "source": code}]}
        return tidy.text(tidy.install_cell(ROOT, Path(f"nbs/{room}/one.ipynb"), nb))

    assert "[all]" in installed("model", "import torch") and "nltk" not in installed("model", "import torch")
    assert "[all,export]" in installed("exports", "import onnxruntime") and "[all,export]" in installed(
        "commands", '"export run folder --to ctranslate2"')
    assert installed("parsing", "if x:\n    from nltk import Tree\nimport transformers").endswith("nltk transformers")
    assert "[all]" in installed("experiments", "import ctranslate2"), "its peers are measured where they are there"


def test_a_chapter_leads_on_within_the_book_the_hour_or_the_appendix():
    def chapter(title: str) -> dict:
        return {"cells": [{"source": [f"# {title}\n", "> x"]}]}

    paths = {title: Path(f"nbs/room/{title}.ipynb") for title in ("one", "two", "three", "four", "five")}
    book = tidy.Book({Path("nbs/index.ipynb"): chapter("All"), **{path: chapter(t) for t, path in paths.items()}},
                     hour=[paths["one"], paths["three"]], appendix=[paths["four"], paths["five"]],
                     root=Path(), figures=Path())
    contents = "[Contents](../index.ipynb)"
    assert [tidy.links(path, book) for path in paths.values()] == [
        f"{contents} · [two](two.ipynb) →\n\nIn one hour: [three](three.ipynb) →",
        f"← [one](one.ipynb) · {contents} · [three](three.ipynb) →",
        f"← [two](two.ipynb) · {contents}\n\nHere ends the path of one hour.",
        f"{contents} · [five](five.ipynb) →", f"← [four](four.ipynb) · {contents}"]


# --- the checks can fail ----------------------------------------------------------------------------------------------

def markdown(source: str, number: int) -> dict:
    return {"cell_type": "markdown", "id": f"{number:08x}", "metadata": {}, "source": source.splitlines(True)}


def code(source: str, number: int, *outputs: dict) -> dict:
    return {"cell_type": "code", "execution_count": None, "id": f"{number:08x}", "metadata": {},
            "outputs": list(outputs),
            "source": source.splitlines(True)}


def printed(line: str, name: str = "stdout") -> dict:
    return {"name": name, "output_type": "stream", "text": [line + "\n"]}


ONE, TWO = "nbs/ground/one.ipynb", "nbs/above/two.ipynb"
CHART = {"data": {"application/vnd.vegalite.v5+json": {"mark": "bar"}, "image/png": "iVBORw0KGgo=",
                  "text/plain": ["<a chart>"]},
         "execution_count": None, "metadata": {}, "output_type": "execute_result"}


def write(path: Path, *cells: dict, **metadata) -> None:
    nb = {"cells": list(cells), "metadata": metadata or KERNEL, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(nb, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


CONTENTS = """rooms = ["ground", "above"]

[[part]]
title = "All"

[[part.chapter]]
path = "ground/one"
section = "1"
gives = "one"

[[part.chapter]]
path = "above/two"
section = ""
gives = "two"
hour = true
"""


@pytest.fixture(scope="session")
def good(tmp_path_factory) -> Path:
    "A checkout of two chapters and an index, with nothing wrong."
    root = tmp_path_factory.mktemp("good")
    for folder in ("nbs/results", "nbs/ground", "nbs/above", "figures", "annotated_transformer"):
        (root / folder).mkdir(parents=True)
    for file in ("settings.ini", "pyproject.toml"):
        shutil.copy(ROOT / file, root)
    (root / "nbs/contents.toml").write_text(CONTENTS)
    write(root / ONE, markdown("# One\n> The first chapter.", 1), code("#| default_exp ground.one", 2),
          markdown("One is one.", 5), code("#| export\ndef one() -> int:\n    return 1", 3),
          code("assert one() == 1\nprint(one())", 4, printed("1")))
    write(root / TWO, markdown("# Two\n> The second chapter.", 1), code("#| default_exp above.two", 2),
          code("#| export\nfrom annotated_transformer.ground.one import one", 3),
          markdown("## A picture\nAs in [one](../ground/one.ipynb#One).", 4),
          code('show(chart, "bars")', 5, CHART), code("print(one() + 1)", 6, printed("2")))
    write(root / "nbs/index.ipynb", markdown("# All\n> Two chapters.", 1),
          markdown("[One](ground/one.ipynb), [two](above/two.ipynb), [the picture](above/two.ipynb#A-picture), "
                   "![bars](../figures/bars.svg), [the web](https://example.com/home/x/)", 2),
          code("print(3)", 3, printed("3")))
    tidy.main(root / "nbs")
    (root / "figures/bars.svg").write_text("<svg/>")
    export(root)
    (root / "README.md").write_text(readme_maker.readme(root / "nbs/index.ipynb"))
    return root


@pytest.fixture
def checkout(good: Path, tmp_path: Path) -> Path:
    "A copy of it, to be broken."
    return Path(shutil.copytree(good, tmp_path / "checkout"))


def complaints_of(check: Callable, root: Path, tmp: Path) -> list[str]:
    if check in CHECKOUT_CHECKS:
        tmp.mkdir()
        return list(check(root, tmp))
    return [complaint for path in notebooks(root / "nbs") for complaint in check(path)]


def replaced(file: str, old: str, new: str) -> Callable:
    def change(root: Path):
        before = (root / file).read_text(encoding="utf-8")
        assert old in before
        (root / file).write_text(before.replace(old, new, 1), encoding="utf-8")
    return change


def edited(**changes) -> Callable:
    "Change the last cell of code of the second chapter (the line of links comes after it)."
    def change(root: Path):
        nb = read(root / TWO)
        nb["cells"][-2] |= changes
        write(root / TWO, *nb["cells"])
    return change


def output(**changes) -> Callable:
    return edited(outputs=[{**CHART, "data": changes.pop("data"), **changes}])


FAULTS = {
    "no title": (opening, replaced(ONE, "# One", "One")),
    "more than the title": (opening, replaced(ONE, "first chapter.", "first chapter.\\n\\nAnd so on.")),
    "an error": (executed, edited(outputs=[{"output_type": "error", "ename": "ValueError", "evalue": "no",
                                            "traceback": []}])),
    "a warning": (executed, edited(outputs=[printed("UserWarning: no", "stderr")])),
    "not executed at all": (executed, lambda root: write(root / ONE, markdown("# One\n> x", 1), code("assert 1", 2))),
    "a print without its output": (executed, edited(outputs=[])),
    "an execution count": (clean, edited(execution_count=7)),
    "the notebook's metadata": (clean, replaced(ONE, '"metadata": {\n  "kernelspec"',
                                                '"metadata": {\n  "jupytext": {},\n  "kernelspec"')),
    "a path printed": (portable, edited(outputs=[printed("saved /home/someone/figures/x.svg")])),
    "a number that is none": (strict, output(data={"application/vnd.vegalite.v5+json": {"x": float("nan")},
                                                   "image/png": "iVBORw0KGgo="})),
    "a chart without its picture": (charts, output(data={"application/vnd.vegalite.v5+json": {},
                                                         "text/plain": ["a chart"]})),
    "a selection on a line with points": (selections, output(data={"application/vnd.vegalite.v5+json": {
        "params": [{"name": "one", "views": ["view_1"]}],
        "layer": [{"name": "view_1", "mark": {"type": "line", "point": True}}]},
        "image/png": "iVBORw0KGgo="})),
    "a dead link": (links, replaced(TWO, "(../ground/one.ipynb", "(../ground/won.ipynb")),
    "a dead anchor": (links, replaced(TWO, "#One)", "#Won)")),
    "a part that the playground does not have": (links, replaced(TWO, "#One)", "#off=words)")),
    "an import from a room above": (direction, replaced(ONE, "return 1",
                                                        "from annotated_transformer.above.two import one")),
    "the same, otherwise written": (direction, replaced(ONE, "return 1",
                                                        "import annotated_transformer.above.two as two")),
    "the same, by a string": (direction, replaced(ONE, "return 1", "return load('annotated_transformer.above.two')")),
    "an import of a name that the package gives": (direction, replaced(ONE, "return 1",
                                                                       "from annotated_transformer import load")),
    "a library beside PyTorch in the model": (direction, lambda root: [replaced(*change)(root) for change in (
        ("nbs/contents.toml", "ground", "model"), (ONE, "return 1", "import numpy"), (ONE, "ground.one", "model.one"))]
        and (root / "nbs/ground").rename(root / "nbs/model")),
    "a module of another room": (direction, replaced(ONE, "ground.one", "above.one")),
    "a room that contents.toml does not have": (direction, replaced("nbs/contents.toml", '["ground", "above"]',
                                                                    '["above"]')),
    "a long cell": (short, edited(source=["print(1)\n"] * 61)),
    "a cell of imports that is not folded": (tidied, replaced(ONE, '"source_hidden": true', '"source_hidden": false')),
    "a line of links with an old title": (tidied, replaced(TWO, "[One](../ground/one.ipynb) ·",
                                                           "[Won](../ground/one.ipynb) ·")),
    "what is printed in two pieces": (tidied, edited(outputs=[printed("3"), printed("4")])),
    "a stale export": (exports, replaced(ONE, "return 1", "return 2")),
    "a module without a chapter": (exports, lambda root:
                                   (root / "annotated_transformer/ground/three.py").write_text("")),
    "a chapter without its module": (exports, lambda root: (root / "annotated_transformer/above/two.py").unlink()),
    "a stale README": (readme, replaced("nbs/index.ipynb", "# All", "# Everything")),
    "a dead link in README": (readme, lambda root: (root / "figures/bars.svg").unlink()),
    "a chapter that the index leaves out": (contents, replaced("nbs/index.ipynb", "[two](above/two.ipynb)", "two")),
    "a chapter that contents.toml leaves out": (contents, lambda root:
                                                shutil.copy(root / ONE, root / "nbs/ground/three.ipynb")),
    "a chapter that is not there": (contents, lambda root: (root / TWO).unlink()),
    "a chapter with two places": (contents, replaced("nbs/contents.toml", "above/two", "ground/one")),
    "a key that nothing reads": (contents, replaced("nbs/contents.toml", "hour = true", "ours = true")),
    "an import that nothing uses": (linted, replaced(ONE, "return 1", "import math; return 1")),
    "a registry": (registries, lambda root: (root / "notes.md").write_text(f"from https://{HOSTS[0]}/simple")),
}


def test_a_good_checkout_passes(checkout: Path, tmp_path: Path):
    for check in CHAPTER_CHECKS + CHECKOUT_CHECKS:
        assert complaints_of(check, checkout, tmp_path / check.__name__) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_the_checks_can_fail(fault: str, checkout: Path, tmp_path: Path):
    check, change = FAULTS[fault]
    change(checkout)
    assert complaints_of(check, checkout, tmp_path / "check"), f"{check.__name__} did not see {fault}"
