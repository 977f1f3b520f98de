"""The chapters as the site needs them: their order, what each defines, builds on and gives, and how long it takes."""
import ast
import json
import posixpath
import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = "annotated_transformer"
# The rule for reading times: words of prose or lines of visible code a minute, seconds for a picture or a table.
# What a chapter's cells run longer than that is `seconds` in contents.toml.
WORDS, LINES, LOOK = 200, 20, 15
LINE = re.compile(r"^#+ (Checks|To look up)\b", re.M)  # the heading behind which a reader of one hour may stop
EVERYWHERE = {"tools", "drawing"}  # rooms that chapters of every other room use, so that to build on them says nothing
APPENDIX = "Appendix"


def text(cell: dict) -> str:
    return "".join(cell["source"])


def directives(source: str) -> dict[str, str]:
    "The `#|` lines of a cell: {'default_exp': 'attention'}."
    return dict(re.findall(r"^#\| ?(\w+):? ?(.*)$", source, re.M))


def parsed(source: str) -> list[ast.stmt]:
    "The statements of a cell; a cell with magics has none."
    try:
        return ast.parse(source).body
    except SyntaxError:
        return []


def only_imports(source: str) -> bool:
    body = parsed(source)
    return bool(body) and all(isinstance(statement, ast.Import | ast.ImportFrom) for statement in body)


@dataclass(frozen=True)
class Definition:
    "A public name of the package and the cell that defines it."
    name: str
    call: str  # `attention(query, key, value, mask=None, dropout=None)`
    about: str  # the first line of its docstring
    cell: str


def call(node: ast.FunctionDef | ast.ClassDef) -> str:
    "How it is called, without annotations; a class as its `__init__`, a dataclass as its fields."
    if isinstance(node, ast.FunctionDef):
        return f"{node.name}({bare(node.args)})"
    for child in node.body:
        if isinstance(child, ast.FunctionDef) and child.name == "__init__":
            return node.name + re.sub(r"^__init__\((self(, )?)?", "(", call(child))
    fields = [child.target.id for child in node.body
              if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name)]
    return f"{node.name}({', '.join(fields)})" if node.decorator_list and fields else node.name


def bare(arguments: ast.arguments) -> str:
    "The arguments' source without annotations."
    copy = ast.parse(f"def f({ast.unparse(arguments)}): pass").body[0].args
    every = [*copy.posonlyargs, *copy.args, *copy.kwonlyargs, *filter(None, (copy.vararg, copy.kwarg))]
    for argument in every:
        argument.annotation = None
    return ast.unparse(copy)


def first_line(node: ast.AST) -> str:
    return (ast.get_docstring(node) or "").strip().split("\n")[0]


@dataclass(frozen=True)
class Chapter:
    "A chapter as contents.toml has it, and what its notebook says."
    path: Path
    name: str  # its place in nbs/, and its page's on the site: `model/attention`
    part: str
    section: str  # the paper's part
    gives: str
    hour: bool
    appendix: bool
    seconds: float  # that its cells run

    @property
    def room(self) -> str:
        return posixpath.dirname(self.name)

    @cached_property
    def nb(self) -> dict:
        return json.loads(self.path.read_text(encoding="utf-8"))

    @cached_property
    def title(self) -> str:
        return text(self.nb["cells"][0]).split("\n")[0].removeprefix("# ")

    @cached_property
    def lead(self) -> str:
        "The line under the title."
        return text(self.nb["cells"][0]).partition("\n> ")[2].strip()

    @cached_property
    def code(self) -> list[dict]:
        return [cell for cell in self.nb["cells"] if cell["cell_type"] == "code"]

    @cached_property
    def module(self) -> str | None:
        found = (directives(text(cell)).get("default_exp") for cell in self.code)
        return next(filter(None, found), None)

    @cached_property
    def definitions(self) -> list[Definition]:
        found = []
        for cell in self.code:
            if "export" not in directives(text(cell)):
                continue
            for node in parsed(text(cell)):
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                    found.append(Definition(node.name, call(node), first_line(node), cell["id"]))
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    if re.fullmatch("[A-Z][A-Z0-9_]*", name := node.targets[0].id):
                        found.append(Definition(name, name, "", cell["id"]))
        return found

    @cached_property
    def imports(self) -> set[str]:
        "The package's modules that this chapter's code takes names from."
        nodes = [node for cell in self.code for node in parsed(text(cell))]
        return {node.module.removeprefix(f"{PACKAGE}.") for node in nodes
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}.")}

    @property
    def minutes(self) -> int:
        "To read all of it."
        return minutes(self.nb["cells"], self.seconds)

    @property
    def minutes_to_line(self) -> int:
        "To read what stands before its line, or all where it has none."
        cells = self.nb["cells"]
        ends = (i for i, cell in enumerate(cells) if cell["cell_type"] == "markdown" and LINE.search(text(cell)))
        return minutes(cells[: next(ends, len(cells))], self.seconds)

    @property
    def told_minutes(self) -> str:
        "Both: `11 minutes, 32 with its checks`."
        return (f"{self.minutes_to_line} minutes" if self.minutes_to_line == self.minutes
                else f"{self.minutes_to_line} minutes, {self.minutes} with its checks")


def minutes(cells: list[dict], seconds: float = 0) -> int:
    "How long cells take to read by the rule, and `seconds` of waiting."
    words = lines = looks = 0
    for cell in cells:
        if cell["cell_type"] == "markdown":
            words += len(text(cell).split())
            looks += len(re.findall(r"^!\[|^\|[ :-]+\|", text(cell), re.M))
            continue
        if not {"hide-input", "solution"} & set(cell["metadata"].get("tags", [])):
            lines += len([line for line in text(cell).splitlines() if line and not line.startswith("#|")])
        looks += sum(is_look(output) for output in cell["outputs"])
        words += sum(len(re.sub(r"^\|.*", "", said, flags=re.M).split()) for output in cell["outputs"]
                     for said in ["".join(output.get("data", {}).get("text/markdown", ""))])
    return max(1, round(words / WORDS + lines / LINES + (looks * LOOK + seconds) / 60))


def is_look(output: dict) -> bool:
    "A picture or a table."
    data = output.get("data", {})
    shown = "".join(data.get("text/markdown", "")) + "".join(data.get("text/html", ""))
    return (any(kind.startswith(("image/", "application/vnd.vega")) for kind in data)
            or bool(re.search(r"<table|<svg|<img|<iframe|^\|[ :-]+\|", shown, re.M)))


def read_chapters(nbs: Path) -> list[Chapter]:
    "All chapters in the order of contents.toml, the appendix last."
    parts = tomllib.loads((nbs / "contents.toml").read_text(encoding="utf-8"))["part"]
    chapters = [Chapter(nbs / f"{c['path']}.ipynb", c["path"], part["title"], c["section"], c["gives"],
                        c.get("hour", False), c.get("appendix", False), c.get("seconds", 0))
                for part in parts for c in part["chapter"]]
    return sorted(chapters, key=lambda chapter: chapter.appendix)


def by_part(chapters: list[Chapter]) -> dict[str, list[Chapter]]:
    return {part: [c for c in chapters if c.part == part] for part in dict.fromkeys(c.part for c in chapters)}


def folds(chapters: list[Chapter], extra: dict[str, str]) -> list[dict]:
    "What the sidebar shows: the path of one hour, the parts, the appendix by part, the other pages."
    def fold(title: str, groups: dict[str, list[Chapter]]) -> dict:
        found = [{"title": part if len(groups) > 1 else "", "pages": [(c.name, c.title.replace("`", "")) for c in mine]}
                 for part, mine in groups.items()]
        return {"title": title, "groups": found, "names": [name for group in found for name, _ in group["pages"]]}

    hour, appendix = [c for c in chapters if c.hour], [c for c in chapters if c.appendix]
    folds = [fold(part, {part: mine}) for part, mine in by_part([c for c in chapters if not c.appendix]).items()]
    if hour:
        folds.insert(0, fold("In one hour", {"": hour}))
    if appendix:
        folds.append(fold(APPENDIX, by_part(appendix)))
    around = {"title": "", "pages": list(extra.items())}
    return [*folds, {"title": "Around the book", "groups": [around], "names": list(extra)}]


def builds_on(chapters: list[Chapter]) -> dict[str, list[Chapter]]:
    "For each chapter those before it whose modules it imports, without those that one of these builds on itself."
    made, all_of = {}, {}
    for place, chapter in enumerate(chapters):
        direct = [c for c in chapters[:place] if c.module in chapter.imports and c.room not in EVERYWHERE]
        implied = {name for c in direct for name in all_of[c.name]}
        made[chapter.name] = [c for c in direct if c.name not in implied]
        all_of[chapter.name] = implied | {c.name for c in direct}
    return made


def link(target: str, here: str) -> str:
    "The way from the page `here` to `target`, both named from the site's top: `../api.html` from `model/attention`."
    return posixpath.relpath(target, posixpath.dirname(here) or ".")


def anchor(title: str) -> str:
    "The anchor of a heading on the site is JupyterLab's, so that a link with # leads to the same place here and there."
    return re.sub(r"\s", "-", title.strip())
