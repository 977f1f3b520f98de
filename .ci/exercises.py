"""Writes the learner's copy of every chapter that has exercises: python .ci/exercises.py (`make exercises`).

An exercise is a question, a cell with the tag `solution` and a cell with the tag `check`. The copy keeps a solution's
signatures, docstrings, imports and the names on the left of `=`; the rest is the learner's. A copy that is there
already is left alone.
"""
import ast
import json
import posixpath
import re
from pathlib import Path

import tidy

TURN = "...  # your turn"


def is_a(cell: dict, tag: str) -> bool:
    return tag in cell["metadata"].get("tags", [])


def head(node: ast.FunctionDef | ast.ClassDef, lines: list[str]) -> list[str]:
    "The lines of a definition up to its docstring, decorators included."
    begin = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    documented = ast.get_docstring(node) is not None
    end = node.body[0].end_lineno if documented else node.body[0].lineno - 1
    return lines[begin - 1 : end]


def blank(source: str) -> str:
    "A solution without what makes it one."
    lines, out = source.split("\n"), []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            out += lines[node.lineno - 1 : node.end_lineno]
        elif isinstance(node, ast.FunctionDef):
            out += ["", "", *head(node, lines), f"    {TURN}"]
        elif isinstance(node, ast.Assign):
            out += ["", f"{ast.unparse(node.targets[0])} = {TURN}"]
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(out)).strip("\n")


def learners(nb: dict, place: str, copies: set[str]) -> dict:
    """The notebook at `place` (`model/attention.ipynb`) with blank solutions and without the checks' outputs.

    Its links lead to the copies that there are, and else into nbs/.
    """
    folder = posixpath.dirname(place)

    def to(match: re.Match) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        return f"]({posixpath.relpath(target if target in copies else f'../nbs/{target}', folder or '.')}"

    cells = []
    for cell in nb["cells"]:
        if is_a(cell, "solution"):
            cell = {**cell, "source": blank(tidy.text(cell)), "metadata": {"tags": ["solution"]}}
        elif is_a(cell, "check"):
            cell = {**cell, "outputs": []}
        elif cell["cell_type"] == "markdown":
            cell = {**cell, "source": re.sub(r"\]\(([\w./-]+\.(?:ipynb|json))", to, tidy.text(cell))}
        cells.append(cell)
    return {**nb, "cells": cells}


def chapters(nbs: Path) -> dict[str, dict]:
    "The chapters that have exercises, by their places in `nbs`, in the order of the book."
    return {path.relative_to(nbs).as_posix(): nb for path, nb in tidy.read(nbs).notebooks.items()
            if any(is_a(cell, "solution") for cell in nb["cells"])}


def main(root: Path) -> None:
    found = chapters(root / "nbs")
    for place, nb in found.items():
        copy = root / "exercises" / place
        if copy.exists():
            print(f"exercises/{place}: kept as it is")
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        made = learners(nb, place, set(found))
        copy.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(found)} chapters in exercises/: open them with `make lab`, from exercises/{next(iter(found))} on")


if __name__ == "__main__":
    main(Path(__file__).resolve().parent.parent)
