"""The chapters as files: built, clean, complete and in their place.

Each check returns its complaints, which say what to run or to change. The second half of this file breaks a small checkout in every
way that the checks are there to find, and sees them find it.
"""
import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
_spec = importlib.util.spec_from_file_location("tidy", ROOT / ".ci" / "tidy.py")
tidy = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tidy)
KERNEL = {"kernelspec": {"display_name": "python3", "language": "python", "name": "python3"}}
# a path of somebody's machine, not a part of an address on the web
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:home|root|Users|tmp|work|private|var|opt|usr|mnt|srv)/[\w.]+|[A-Z]:\\\\?Users|site-packages")
# hosts of package registries, in pieces so that this file holds none itself
HOSTS = [".".join(host) for host in (
    ("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("yarnpkg", "com"), ("deb", "debian", "org"),
    ("download", "pytorch", "org"), ("conda", "anaconda", "org"), ("crates", "io"), ("proxy", "golang", "org"))]
LINES = 25  # a cell's, its directives not counted; a class may have more
WORKSHOP = "94"  # the modules of chapters from this number on may be imported everywhere
# the first chapter shows the whole before its parts
LOOKS_AHEAD = {"at_a_glance"}


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def text(lines: str | list[str]) -> str:
    return lines if isinstance(lines, str) else "".join(lines)


def sources(path: Path, kind: str) -> list[str]:
    return [text(cell["source"]) for cell in read(path)["cells"] if cell["cell_type"] == kind]


def directives(source: str) -> set[str]:
    return {word.rstrip(":") for line in source.splitlines() if line.startswith("#|") for word in line[2:].split()[:1]}


def parsed(source: str) -> ast.Module:
    "The cell's syntax tree, its magics and shell lines left out; empty where it is no Python (nbdev_test tells of that)."
    lines = [re.sub(r"^(\s*)(?:[%!].*|(\w+)\s*=\s*[%!].*)$", r"\1pass", line) for line in source.splitlines()]
    try:
        return ast.parse("" if source.startswith("%%") else "\n".join(lines))
    except SyntaxError:
        return ast.parse("")


def called(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and name == getattr(node.func, "id", getattr(node.func, "attr", None))


# --- one chapter ---------------------------------------------------------------------------------------------------------------------

def opening(path: Path) -> Iterator[str]:
    cell = read(path)["cells"][0]
    if cell["cell_type"] != "markdown" or not re.fullmatch(r"# \S.*\n+> \S.*", text(cell["source"]).strip()):
        yield "the first cell is to hold '# title' and one line '> ...', and no more: the website takes both from it and drops the rest"


def executed(path: Path) -> Iterator[str]:
    build = f"run: make notebooks NB={path.stem}"
    code = [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]
    if code and not any(cell["outputs"] for cell in code):
        yield f"no cell has an output; {build}"
    for cell in code:
        source, first = text(cell["source"]), text(cell["source"]).strip().split("\n")[0]
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                yield f"an error is stored: {output['ename']}: {output['evalue']} (cell {cell['id']}: {first}); mend it, then {build}"
            if output.get("name") == "stderr":
                yield f"a warning is stored: {text(output['text']).strip()[:200]!r} (cell {cell['id']}: {first}); mend it, then {build}"
        if cell["outputs"] or directives(source) & {"gpu", "eval"}:
            continue
        body = parsed(source).body
        prints = any(isinstance(s, ast.Expr) and called(s.value, "print") and not s.value.keywords for s in body)
        shows = body and isinstance(body[-1], ast.Expr) and called(body[-1].value, "show")
        if prints or shows:
            yield f"cell {cell['id']} ({first}) shows something, and its output is not there; {build}"


def clean(path: Path) -> Iterator[str]:
    if (metadata := read(path)["metadata"]) != KERNEL:
        yield f"the notebook's metadata is to be its kernel alone, not {', '.join(metadata)}; run: make notebooks NB={path.stem}"
    folder = path.parent.parent / "build" / f"clean-{path.stem}-{os.getpid()}"
    try:
        folder.mkdir(parents=True)
        copy = Path(shutil.copy(path, folder))
        subprocess.run([BIN / "nbdev_clean", "--fname", copy], cwd=path.parent.parent, check=True, capture_output=True)
        if copy.read_bytes() != path.read_bytes():
            yield f"counts, metadata or layout that nbdev_clean takes out; run: .venv/bin/nbdev_clean --fname nbs/{path.name}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def portable(path: Path) -> Iterator[str]:
    for cell in read(path)["cells"]:
        for output in cell.get("outputs", []):
            pictures = {kind for kind in output.get("data", {}) if kind.startswith("image/")}
            shown = {**output, "data": {k: v for k, v in output.get("data", {}).items() if k not in pictures}}
            for found in MACHINE_PATH.findall(json.dumps(shown, ensure_ascii=False)):
                yield f"the output of cell {cell['id']} names a path of this machine: {found}; print names or relative paths"


def strict(path: Path) -> Iterator[str]:
    "What is no JSON (NaN, Infinity) opens in Python and in no browser."
    found = []
    json.loads(path.read_text(encoding="utf-8"), parse_constant=found.append)
    if found:
        yield f"it holds {found[0]}, which is no JSON, so that JupyterLab cannot open it; run: make notebooks NB={path.stem}"


def footnotes(path: Path) -> Iterator[str]:
    for cell in read(path)["cells"]:
        if cell["cell_type"] == "markdown" and (found := re.search(r"\[\^\w+\]", text(cell["source"]))):
            yield f"{found[0]} (cell {cell['id']}): JupyterLab draws no footnotes; write <sup>1</sup>, and the note as <small><sup>1</sup> ...</small>"


def size(path: Path, limit: int = 3_000_000) -> Iterator[str]:
    if path.stat().st_size > limit:
        yield f"{path.stat().st_size:,} bytes, more than {limit:,}: fewer marks in its charts (or show(..., png=True))"


def charts(path: Path) -> Iterator[str]:
    for cell in read(path)["cells"]:
        for output in cell.get("outputs", []):
            kinds = {kind for kind in output.get("data", {}) if kind.startswith("application/vnd.vega")}
            if kinds and (kinds != {"application/vnd.vegalite.v5+json"} or not output["data"].get("image/png")):
                yield (f"the chart of cell {cell['id']} is stored as {', '.join(sorted(output['data']))}, where Vega-Lite 5 and a PNG are "
                       "needed: show it with annotated_transformer.drawing.charts.show")


def headings(path: Path) -> set[str]:
    "The anchors that JupyterLab gives to the headings of a notebook or a markdown file."
    markdown = sources(path, "markdown") if path.suffix == ".ipynb" else [path.read_text(encoding="utf-8")]
    return {title.strip().replace(" ", "-") for source in markdown for title in re.findall(r"^#+ (.+)$", source, re.M)}


def links(path: Path) -> Iterator[str]:
    markdown = "\n\n".join(sources(path, "markdown")) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
    markdown = re.sub(r"^```.*?^```|`[^`\n]+`", "", markdown, flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)[^)]*\)|(?:src|href)=\"([^\"]+)\"", markdown):
        target = target[0] or target[1]
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        if not file.exists():
            yield f"the link to {target} leads nowhere"
        elif anchor and anchor not in headings(file):
            yield f"the link to {target} leads to a heading that {file.name} does not have"


def mentions(path: Path) -> Iterator[str]:
    for name in sorted(set(re.findall(r"\b\d{3}_[a-z]\w*", "\n".join(sources(path, "markdown"))))):
        if not (path.parent / f"{name}.ipynb").exists():
            yield f"it names the chapter {name}, which is not there"


def modules(nbs: Path) -> dict[str, str]:
    "Which chapter exports which module."
    return {match[1]: path.stem for path in sorted(nbs.glob("*.ipynb"))
            for source in sources(path, "code") if (match := re.search(r"^#\| ?default_exp ([\w.]+)", source, re.M))}


def imported(source: str, package: str = "annotated_transformer") -> Iterator[str]:
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name.removeprefix(package + ".") for name in names if name.startswith(package + "."))


def order(path: Path) -> Iterator[str]:
    """A command imports what it runs, of whatever chapter. A slow cell may look ahead: it makes a record, as a run of a later chapter
    does, for the chapter to read."""
    mine = [module for module, stem in modules(path.parent).items() if stem == path.stem]
    chapters = {module: chapter for module, chapter in modules(path.parent).items() if chapter < WORKSHOP}
    if path.stem in LOOKS_AHEAD or any(module.startswith("commands.") for module in mine):
        return
    for source in sources(path, "code"):
        if directives(source) & {"slow", "gpu"}:
            continue
        for module in imported(source):
            if chapters.get(module, "") > path.stem:
                yield f"it imports {module}, of the later chapter {chapters[module]}"


def help_lines(source: str) -> int:
    "The lines of docstrings that explain parameters: a command's help is no code."
    functions = [node for node in ast.walk(parsed(source)) if isinstance(node, ast.FunctionDef)]
    return sum(f.body[0].end_lineno - f.body[0].lineno + 1 for f in functions if "Args:" in (ast.get_docstring(f) or ""))


def one_class(source: str) -> bool:
    "A class is one idea, and its methods cannot stand in cells of their own."
    body = parsed(source).body
    return len(body) == 1 and isinstance(body[0], ast.ClassDef)


def short(path: Path) -> Iterator[str]:
    for cell in read(path)["cells"]:
        if one_class(text(cell["source"])):
            continue
        lines = [line for line in text(cell["source"]).splitlines() if not line.startswith("#|")]
        if cell["cell_type"] == "code" and (count := len(lines) - help_lines(text(cell["source"]))) > LINES:
            yield f"cell {cell['id']} ({lines[0]}) has {count} lines of code, more than {LINES}: split it, one idea a cell"


def prose_first(path: Path) -> Iterator[str]:
    "A chapter says what it is about before the first code that a reader sees."
    for cell in read(path)["cells"][1:]:
        if cell["cell_type"] == "markdown":
            return
        if not tidy.to_fold(cell):
            yield f"code comes before prose (cell {cell['id']}): say first what the chapter is about, or fold the cell with the tag hide-input"
            return


def selections(path: Path) -> Iterator[str]:
    "JupyterLab's Vega-Lite 5.6 draws nothing but an error where a selection sits on a line that brings its points along."
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
                yield f"a chart's selection sits on a line with points, which JupyterLab cannot draw: give the points a layer (cell {cell['id']})"


CHAPTER_CHECKS = [opening, executed, clean, portable, strict, footnotes, size, charts, selections, links, mentions, order, short, prose_first]


# --- the whole checkout --------------------------------------------------------------------------------------------------------------

def exports(root: Path, tmp: Path) -> Iterator[str]:
    "The package is what the chapters export: made anew in a copy, and compared."
    package = "annotated_transformer"
    shutil.copytree(root / "nbs", tmp / "nbs", ignore=shutil.ignore_patterns("*.py", "results", ".*"))
    shutil.copy(root / "settings.ini", tmp)
    (tmp / package).mkdir()
    if (root / package / "__init__.py").exists():  # nbdev writes the version there; the rest is written by hand
        shutil.copy(root / package / "__init__.py", tmp / package)
    subprocess.run([BIN / "nbdev_export"], cwd=tmp, check=True, capture_output=True)
    there, fresh = ({str(path.relative_to(folder / package)): path.read_text(encoding="utf-8") for path in (folder / package).rglob("*.py")}
                    for folder in (root, tmp))
    for name in sorted(there.keys() | fresh.keys()):
        if there.get(name) != fresh.get(name):
            what = "is missing" if name not in there else "has no chapter" if name not in fresh else "is not what its chapter exports"
            yield f"{package}/{name} {what}; run: make export" + (f", and remove {name}" if name not in fresh else "")


def readme(root: Path, tmp: Path) -> Iterator[str]:
    made = subprocess.run(["make", "-s", "readme", f"README={tmp / 'README.md'}", f"BIN={BIN}", "DEVELOP="], cwd=root, text=True,
                          capture_output=True, env={**os.environ, "MAKEFLAGS": ""})
    if made.returncode:
        yield f"make readme failed: {made.stderr}"
    elif not (root / "README.md").exists() or (root / "README.md").read_bytes() != (tmp / "README.md").read_bytes():
        yield "README.md is not what nbs/index.ipynb gives; run: make readme"
    else:
        for page in sorted(root.glob("*.md")):  # and CONTRIBUTING, CHANGELOG
            yield from (f"{page.name}: {complaint}" for complaint in links(page))


def contents(root: Path, tmp: Path) -> Iterator[str]:
    index = "\n".join(sources(root / "nbs" / "index.ipynb", "markdown"))
    for path in sorted((root / "nbs").glob("[0-9]*.ipynb")):
        if f"]({path.name})" not in index:
            yield f"index.ipynb has no link to {path.name}: add it to the map of chapters"


def tidied(root: Path, tmp: Path) -> Iterator[str]:
    chapters = tidy.read(root / "nbs")
    for path, nb in chapters.items():
        if (wanted := tidy.tidied(path, chapters)["cells"]) == nb["cells"]:
            continue
        what = "line of links" if wanted[-1] != nb["cells"][-1] else "metadata or the output of cells"
        yield f"the {what} of {path.name} is not what .ci/tidy.py writes; run: .venv/bin/python .ci/tidy.py"


def pattern(node: ast.AST) -> str | None:
    "A regular expression for a string or an f-string, None for anything else."
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(pattern(value) or r"[\w.-]+" for value in node.values)
    return None


def figures(root: Path, tmp: Path) -> Iterator[str]:
    "Every show(chart, 'name') has its file, and every file its show."
    files = {path.name for path in (root / "figures").glob("*") if not path.name.startswith(".")}
    known, drawing = set(), {"show": 1}  # what saves a picture, and where its name stands: show, and functions that give what it shows
    for path in (root / "nbs").glob("*.ipynb"):
        functions = [node for source in sources(path, "code") for node in ast.walk(parsed(source)) if isinstance(node, ast.FunctionDef)]
        named = {f.name: [a.arg for a in f.args.args] for f in functions if getattr(f.returns, "id", None) == "Shown"}
        drawing |= {function: options.index("name") for function, options in named.items() if "name" in options}
    for path in sorted((root / "nbs").glob("*.ipynb")):
        for source in sources(path, "code"):
            nodes = list(ast.walk(parsed(source)))
            for call, place in ((node, drawing[f]) for node in nodes for f in drawing if called(node, f)):
                options = {keyword.arg: keyword.value for keyword in call.keywords}
                name = call.args[place] if len(call.args) > place else options.get("name")
                png = call.args[2] if len(call.args) > 2 and called(call, "show") else options.get("png")
                suffix = "png" if getattr(png, "value", False) else "svg"
                if name is None or (isinstance(name, ast.Constant) and name.value is None):
                    continue
                # a name that the cell works out is taken from the strings in the cell
                wanted = [pattern(name)] if pattern(name) else [p for node in nodes if (p := pattern(node))]
                found = {file for file in files for p in wanted if re.fullmatch(rf"{p}\.{suffix}", file)}
                known |= found
                if not found and pattern(name):
                    yield f"figures/ does not have {ast.unparse(name)} (.{suffix}) of {path.name}; run: make notebooks NB={path.stem}"
            known |= files & {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    for file in sorted(files - known):
        yield f"no chapter draws figures/{file}: remove it"


def tracked(root: Path) -> list[Path]:
    "The files that belong to the checkout: git's, and those it would take; all of them where there is no git."
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root, capture_output=True, text=True)
    inside = (root / ".git").exists() and listed.returncode == 0
    paths = [root / name for name in listed.stdout.split("\0") if name] if inside else list(root.rglob("*"))
    return [path for path in paths if path.is_file()]


def registries(root: Path, tmp: Path) -> Iterator[str]:
    hosts = re.compile("|".join(map(re.escape, HOSTS)))
    for path in tracked(root):
        for host in sorted(set(hosts.findall(path.read_bytes().decode("utf-8", "ignore")))):
            yield f"{path.relative_to(root)} names the package registry {host}: leave the choice of a registry to whoever installs"


# their commands name the sources file by its place, which experiments/sources_left_out tells; records are never edited
TOLD = {f"sources_{name}" for name in ("nothing_seed0", "nothing_seed1", *(f"{group}_seed0" for group in (
    "news", "parliament", "encyclopaedia", "web", "captions", "bible", "manuals")))}


def records(root: Path, tmp: Path) -> Iterator[str]:
    for path in sorted((root / "nbs" / "results").rglob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.startswith(tuple(f'{{"name":"{name}"' for name in TOLD)):
                for found in MACHINE_PATH.findall(line):
                    yield f"nbs/results/{path.name} names a path of the machine that wrote it: {found}"


CHECKOUT_CHECKS = [exports, readme, contents, tidied, figures, registries, records]


@pytest.mark.parametrize("path", sorted((ROOT / "nbs").glob("*.ipynb")), ids=lambda path: path.stem)
def test_chapter(path: Path):
    complaints = [f"nbs/{path.name}: {complaint}" for check in CHAPTER_CHECKS for complaint in check(path)]
    assert not complaints, "\n" + "\n".join(complaints)


@pytest.mark.parametrize("check", CHECKOUT_CHECKS, ids=lambda check: check.__name__)
def test_checkout(check: Callable, tmp_path: Path):
    complaints = list(check(ROOT, tmp_path))
    assert not complaints, "\n" + "\n".join(complaints)


# --- the checks can fail -------------------------------------------------------------------------------------------------------------

def markdown(source: str, number: int) -> dict:
    return {"cell_type": "markdown", "id": f"{number:08x}", "metadata": {}, "source": source.splitlines(True)}


def code(source: str, number: int, *outputs: dict) -> dict:
    return {"cell_type": "code", "execution_count": None, "id": f"{number:08x}", "metadata": {}, "outputs": list(outputs),
            "source": source.splitlines(True)}


def printed(line: str, name: str = "stdout") -> dict:
    return {"name": name, "output_type": "stream", "text": [line + "\n"]}


CHART = {"data": {"application/vnd.vegalite.v5+json": {"mark": "bar"}, "image/png": "iVBORw0KGgo=", "text/plain": ["<a chart>"]},
         "execution_count": None, "metadata": {}, "output_type": "execute_result"}


def write(path: Path, *cells: dict, **metadata) -> None:
    nb = {"cells": list(cells), "metadata": metadata or KERNEL, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(nb, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def good(tmp_path_factory) -> Path:
    "A checkout of two chapters and an index, with nothing wrong."
    root = tmp_path_factory.mktemp("good")
    for folder in ("nbs/results", "figures", "annotated_transformer"):
        (root / folder).mkdir(parents=True)
    for name in ("settings.ini", "Makefile"):
        shutil.copy(ROOT / name, root)
    write(root / "nbs/000_one.ipynb", markdown("# One\n> The first chapter.", 1), code("#| default_exp one", 2),
          markdown("One is one.", 5), code("#| export\ndef one() -> int:\n    return 1", 3), code("assert one() == 1\nprint(one())", 4, printed("1")))
    write(root / "nbs/010_two.ipynb", markdown("# Two\n> The second chapter.", 1), code("#| default_exp two", 2),
          code("#| export\nfrom annotated_transformer.one import one", 3), markdown("## A picture\nAs in [one](000_one.ipynb#One), `000_one`.", 4),
          code('show(chart, "bars")', 5, CHART), code("print(one() + 1)", 6, printed("2")))
    write(root / "nbs/index.ipynb", markdown("# All\n> Two chapters.", 1), markdown("[One](000_one.ipynb), [two](010_two.ipynb), "
          "[the picture](010_two.ipynb#A-picture), ![bars](../figures/bars.svg), [the web](https://example.com/home/x/)", 2),
          code("print(3)", 3, printed("3")))
    tidy.main(root / "nbs")
    (root / "figures/bars.svg").write_text("<svg/>")
    (root / "nbs/results/run.jsonl").write_text('{"command": "train runs/x --data ../shared/data"}')
    subprocess.run([BIN / "nbdev_export"], cwd=root, check=True, capture_output=True)
    subprocess.run(["make", "-s", "readme", f"BIN={BIN}", "DEVELOP="], cwd=root, check=True, env={**os.environ, "MAKEFLAGS": ""})
    shutil.rmtree(root / "build")
    return root


@pytest.fixture
def checkout(good: Path, tmp_path: Path) -> Path:
    "A copy of it, to be broken."
    return Path(shutil.copytree(good, tmp_path / "checkout"))


def complaints_of(check: Callable, root: Path, tmp: Path) -> list[str]:
    if check in CHECKOUT_CHECKS:
        tmp.mkdir()
        return list(check(root, tmp))
    return [complaint for path in sorted((root / "nbs").glob("*.ipynb")) for complaint in check(path)]


def replaced(name: str, old: str, new: str) -> Callable:
    def change(root: Path):
        before = (root / name).read_text(encoding="utf-8")
        assert old in before
        (root / name).write_text(before.replace(old, new, 1), encoding="utf-8")
    return change


def edited(**changes) -> Callable:
    "Change the last cell of code of the second chapter (the line of links comes after it)."
    def change(root: Path):
        nb = read(root / "nbs/010_two.ipynb")
        nb["cells"][-2] |= changes
        write(root / "nbs/010_two.ipynb", *nb["cells"])
    return change


def output(**changes) -> Callable:
    return edited(outputs=[{**CHART, "data": changes.pop("data"), **changes}])


FAULTS = {
    "no title": (opening, replaced("nbs/000_one.ipynb", "# One", "One")),
    "more than the title": (opening, replaced("nbs/000_one.ipynb", "first chapter.", "first chapter.\\n\\nAnd so on.")),
    "an error": (executed, edited(outputs=[{"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": []}])),
    "a warning": (executed, edited(outputs=[printed("UserWarning: no", "stderr")])),
    "not executed at all": (executed, lambda root: write(root / "nbs/000_one.ipynb", markdown("# One\n> x", 1), code("assert 1", 2))),
    "a print without its output": (executed, edited(outputs=[])),
    "a chart without its output": (executed, edited(source=["show(chart)"], outputs=[])),
    "an execution count": (clean, edited(execution_count=7)),
    "a cell's metadata": (clean, edited(metadata={"collapsed": True})),
    "the notebook's metadata": (clean, replaced("nbs/000_one.ipynb", '"metadata": {\n  "kernelspec"', '"metadata": {\n  "jupytext": {},\n  "kernelspec"')),
    "an object's address": (clean, edited(outputs=[printed("<object at 0x7f0012345678>")])),
    "a path printed": (portable, edited(outputs=[printed("saved /home/someone/figures/x.svg")])),
    "a path in a chart": (portable, output(data={"text/html": ["<img src='/tmp/x.png'>"]})),
    "a number that is none": (strict, output(data={"application/vnd.vegalite.v5+json": {"x": float("nan")}, "image/png": "iVBORw0KGgo="})),
    "a footnote": (footnotes, replaced("nbs/000_one.ipynb", "One is one.", "One is one.[^1]")),
    "too large": (size, edited(source=["#" * 3_000_001])),
    "a chart without its picture": (charts, output(data={"application/vnd.vegalite.v5+json": {}, "text/plain": ["a chart"]})),
    "a selection on a line with points": (selections, output(data={"application/vnd.vegalite.v5+json": {
        "params": [{"name": "one", "views": ["view_1"]}], "layer": [{"name": "view_1", "mark": {"type": "line", "point": True}}]},
        "image/png": "iVBORw0KGgo="})),
    "a chart of Vega-Lite 6": (charts, output(data={"application/vnd.vegalite.v6+json": {}, "image/png": "iVBORw0KGgo="})),
    "a dead link": (links, replaced("nbs/010_two.ipynb", "(000_one.ipynb", "(000_won.ipynb")),
    "a dead anchor": (links, replaced("nbs/010_two.ipynb", "#One)", "#Won)")),
    "a chapter that is not there": (mentions, replaced("nbs/010_two.ipynb", "`000_one`", "`000_won`")),
    "an import from a later chapter": (order, replaced("nbs/000_one.ipynb", "return 1", "from annotated_transformer.two import one")),
    "the same, otherwise written": (order, replaced("nbs/000_one.ipynb", "assert one() == 1", "from annotated_transformer import two")),
    "a long cell": (short, edited(source=["print(1)\n"] * 26)),
    "code before prose": (prose_first, lambda root: write(root / "nbs/000_one.ipynb", markdown("# One\n> x", 1), code("assert 1", 2))),
    "a cell of imports that is not folded": (tidied, replaced("nbs/000_one.ipynb", '"source_hidden": true', '"source_hidden": false')),
    "a folded cell without its tag": (tidied, replaced("nbs/010_two.ipynb", '"hide-input"', '"hide"')),
    "a cell folded by hand": (tidied, edited(metadata={"jupyter": {"source_hidden": True}})),
    "a line of links with an old title": (tidied, replaced("nbs/010_two.ipynb", "[One](000_one.ipynb) ·", "[Won](000_one.ipynb) ·")),
    "a chapter without its line of links": (tidied, replaced("nbs/000_one.ipynb", "[Contents](index.ipynb) · ", "")),
    "what is printed in two pieces": (tidied, edited(outputs=[printed("3"), printed("4")])),
    "a stale export": (exports, replaced("nbs/000_one.ipynb", "return 1", "return 2")),
    "a module edited by hand": (exports, replaced("annotated_transformer/one.py", "return 1", "return 2")),
    "a module without a chapter": (exports, lambda root: (root / "annotated_transformer/three.py").write_text("")),
    "a chapter without its module": (exports, lambda root: (root / "annotated_transformer/two.py").unlink()),
    "another version": (exports, replaced("settings.ini", "version = ", "version = 9.")),
    "a stale README": (readme, replaced("nbs/index.ipynb", "# All", "# Everything")),
    "no README": (readme, lambda root: (root / "README.md").unlink()),
    "a dead link in README": (readme, lambda root: (root / "figures/bars.svg").unlink()),
    "a chapter that the index leaves out": (contents, replaced("nbs/index.ipynb", "[two](010_two.ipynb)", "two")),
    "a picture that is not drawn": (figures, lambda root: (root / "figures/bars.svg").unlink()),
    "a picture that no chapter draws": (figures, lambda root: (root / "figures/old.svg").write_text("")),
    "a picture that another function draws": (figures, replaced("nbs/010_two.ipynb", 'show(chart, \\"bars\\")',
        'def bars(a, name=None) -> Shown: ...\\n\\nshow(chart, \\"bars\\")\\nbars(1, \\"stripes\\")')),
    "a picture of the other kind": (figures, lambda root: (root / "figures/bars.png").write_text("")),
    "a registry": (registries, lambda root: (root / "notes.md").write_text(f"from https://{HOSTS[0]}/simple")),
    "a path in a record": (records, replaced("nbs/results/run.jsonl", "../shared", "/home/someone/shared")),
}


@pytest.mark.parametrize("check", CHAPTER_CHECKS + CHECKOUT_CHECKS, ids=lambda check: check.__name__)
def test_a_good_checkout_passes(check: Callable, checkout: Path, tmp_path: Path):
    assert complaints_of(check, checkout, tmp_path / "check") == []


@pytest.mark.parametrize("fault", FAULTS)
def test_the_checks_can_fail(fault: str, checkout: Path, tmp_path: Path):
    check, change = FAULTS[fault]
    change(checkout)
    assert complaints_of(check, checkout, tmp_path / "check"), f"{check.__name__} did not see {fault}"


def test_every_check_is_seen_to_fail():
    assert {check for check, _ in FAULTS.values()} == set(CHAPTER_CHECKS + CHECKOUT_CHECKS)
