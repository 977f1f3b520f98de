"""Folds what a reader need not see, and links every chapter to its neighbours: `make notebooks` calls it.

Folded are code cells that only import, that hold `#| default_exp` or `#| hide`, and those with the tag `hide-input` or
`solution`. JupyterLab folds a cell by its metadata `jupyter.source_hidden`, MyST-NB by the tag `hide-input`, so a
folded cell has both. A chapter ends on its links: the chapter before it, the contents, the chapter after it, in the
order of nbs/contents.toml (the book's chapters lead to the book's, the appendix's to the appendix's); on the path of
one hour a second line leads to that path's next chapter. Behind its title a chapter has the cell that installs the
package where it is missing, so that it runs alone on a hosted notebook; pictures of figures/ are within it, as
attachments. What a cell printed piece by piece is one output. Only what is not so yet is written, so that a second run
changes nothing.
"""
import ast
import base64
import hashlib
import json
import os
import re
import tomllib
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path


def text(cell: dict) -> str:
    return "".join(cell["source"])


def only_imports(source: str) -> bool:
    try:
        body = ast.parse(source).body
    except SyntaxError:  # a magic
        return False
    return bool(body) and all(isinstance(statement, ast.Import | ast.ImportFrom) for statement in body)


def to_fold(cell: dict) -> bool:
    tagged = {"hide-input", "solution"} & set(cell["metadata"].get("tags", []))
    directed = re.search(r"^#\| ?(default_exp|hide)( |$)", text(cell), re.M)
    return bool(tagged or directed) or is_install(cell) or only_imports(text(cell))


def folded(cell: dict) -> dict:
    "A code cell with the metadata that it is to have; tags of other kinds stay."
    kept = {key: value for key, value in cell["metadata"].items() if key not in ("jupyter", "tags")}
    tags = [tag for tag in cell["metadata"].get("tags", []) if tag != "hide-input"]
    if to_fold(cell):
        kept["jupyter"] = {"source_hidden": True}
        tags = ["hide-input", *tags]
    return {**cell, "metadata": {**kept, **({"tags": tags} if tags else {})}}


def whole_streams(cell: dict) -> dict:
    "A code cell whose outputs to one stream, one right after the other, are one: how the kernel cut them is chance."
    outputs = []
    for output in cell["outputs"]:
        before = outputs[-1] if outputs else {}
        if output["output_type"] == before.get("output_type") == "stream" and output["name"] == before["name"]:
            outputs[-1] = {**before, "text": [*before["text"], *output["text"]]}
        else:
            outputs.append(output)
    return {**cell, "outputs": outputs}


HOSTED = "# On a hosted notebook this installs the package; where it is installed, it does nothing.\n"


def is_install(cell: dict) -> bool:
    "The cell that installs the package, by its text: jupytext gives it another id."
    return cell["cell_type"] == "code" and text(cell).startswith(HOSTED)


EXPORTS = re.compile(r"^ *(?:from|import) (?:ctranslate2|onnx|onnxruntime)\b|--to (?:ctranslate2|onnx)|export_onnx|"
                     r"export_ctranslate2", re.MULTILINE)
OTHERS = re.compile(r"^ *(?:from|import) (transformers|nltk)\b", re.MULTILINE)  # that the package does not ask for


def install_cell(root: Path, path: Path, nb: dict) -> dict:
    "The first code of a chapter: by the address in settings.ini, since a bare name could be anybody's."
    config = ConfigParser(delimiters=["="], interpolation=None)
    config.read(root / "settings.ini", encoding="utf-8")
    code = "\n".join(text(cell) for cell in nb["cells"] if cell["cell_type"] == "code")
    if path.parent.name == "experiments":  # their peers are measured where they are there
        code = ""
    extras = "all,export" if EXPORTS.search(code) else "all"
    others = " ".join(sorted(set(OTHERS.findall(code))))
    source = (f"{HOSTED}from importlib.util import find_spec\n\n"
              'if not find_spec("annotated_transformer"):\n'
              f'    %pip install --quiet "annotated-transformer[{extras}] @ git+{config["DEFAULT"]["git_url"]}"'
              + f"\n    %pip install --quiet {others}" * bool(others))
    return {"cell_type": "code", "execution_count": None, "id": "install", "metadata": {}, "outputs": [],
            "source": source.splitlines(True)}


KINDS = {".png": "image/png", ".svg": "image/svg+xml"}


def with_pictures(cell: dict, figures: Path) -> dict:
    "A cell of text with the pictures that it names as `attachment:NAME`, from `figures`."
    named = re.findall(r"\]\(attachment:([\w.-]+)\)", text(cell))
    kept = {key: value for key, value in cell.items() if key != "attachments"}
    within = {}
    for name in named:
        kind, data = KINDS[Path(name).suffix], base64.b64encode((figures / name).read_bytes()).decode()
        within[name] = {kind: [data] if kind == "image/svg+xml" else data}  # as JupyterLab saves a drawing: in lines
    return kept | ({"attachments": within} if within else {})


def title(nb: dict) -> str:
    return text(nb["cells"][0]).split("\n")[0].removeprefix("# ")


@dataclass(frozen=True)
class Book:
    "All notebooks, the index first, and which chapters are on the path of one hour or in the appendix."
    notebooks: dict[Path, dict]
    hour: list[Path]
    appendix: list[Path]
    root: Path
    figures: Path


def links(path: Path, book: Book) -> str:
    "The links at a chapter's end."
    def to(other: Path) -> str:
        return Path(os.path.relpath(other, path.parent)).as_posix()

    def named(other: Path) -> str:
        return f"[{title(book.notebooks[other])}]({to(other)})"

    index, *chapters = book.notebooks
    order = [other for other in chapters if (other in book.appendix) == (path in book.appendix)]
    place = order.index(path)
    before = [f"← {named(other)}" for other in order[max(place - 1, 0) : place]]
    after = [f"{named(other)} →" for other in order[place + 1 : place + 2]]
    line = " · ".join([*before, f"[Contents]({to(index)})", *after])
    if path not in book.hour:
        return line
    rest = book.hour[book.hour.index(path) + 1 :]
    return f"{line}\n\n" + (f"In one hour: {named(rest[0])} →" if rest else "Here ends the path of one hour.")


def is_links(cell: dict) -> bool:
    line = r".*\[Contents\]\([./]*index\.ipynb\).*(\n\n(In one hour|Here ends).*)?"
    return cell["cell_type"] == "markdown" and bool(re.fullmatch(line, text(cell).strip()))


def tidied(path: Path, book: Book) -> dict:
    "The chapter at `path` with its folds, its pictures, its links, and the cell that installs the package."
    cells = []
    for cell in book.notebooks[path]["cells"]:
        if is_links(cell) or is_install(cell):
            continue
        if cell["id"] == "links":  # jupytext gives a new cell the id of the cell that stood in its place
            cell = {**cell, "id": hashlib.sha256(text(cell).encode()).hexdigest()[:8]}
        cells.append(whole_streams(folded(cell)) if cell["cell_type"] == "code" else with_pictures(cell, book.figures))
    if path.stem == "index":
        return {**book.notebooks[path], "cells": cells}
    install = folded(install_cell(book.root, path, book.notebooks[path]))
    last = {"cell_type": "markdown", "id": "links", "metadata": {}, "source": links(path, book).splitlines(True)}
    return {**book.notebooks[path], "cells": [*cells[:1], install, *cells[1:], last]}


def read(nbs: Path) -> Book:
    "The book in the order of contents.toml."
    chapters = [chapter for part in tomllib.loads((nbs / "contents.toml").read_text(encoding="utf-8"))["part"]
                for chapter in part["chapter"]]

    def those(key: str) -> list[Path]:
        return [nbs / f"{chapter['path']}.ipynb" for chapter in chapters if chapter.get(key)]

    paths = [nbs / "index.ipynb", *those("path")]
    notebooks = {path: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    return Book(notebooks, those("hour"), those("appendix"), nbs.parent, nbs.parent / "figures")


def main(nbs: Path) -> None:
    book = read(nbs)
    for path, before in book.notebooks.items():
        if (nb := tidied(path, book)) != before:
            path.write_text(json.dumps(nb, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(__file__).resolve().parent.parent / "nbs")
