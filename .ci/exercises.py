"""Writes the learner's copy of every chapter that has exercises: python .ci/exercises.py (`make exercises`).

An exercise is a question, a cell with the tag `solution` and a cell with the tag `check`. The copy keeps a solution's signatures,
docstrings, imports and the names on the left of `=`; the rest is the learner's. A copy that is there already is left alone.
"""
import ast
import json
import re
from pathlib import Path

TURN = "...  # your turn"


def text(cell: dict) -> str:
    return "".join(cell["source"])


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


def learners(nb: dict, here: set[str]) -> dict:
    "The notebook with blank solutions and without the checks' outputs; `here` are the copies that links may lead to."
    cells = []
    for cell in nb["cells"]:
        if is_a(cell, "solution"):
            cell = {**cell, "source": blank(text(cell)), "metadata": {"tags": ["solution"]}}
        elif is_a(cell, "check"):
            cell = {**cell, "outputs": []}
        elif cell["cell_type"] == "markdown":
            def to(match: re.Match) -> str:
                return f"]({match[1]}" if match[1] in here else f"](../nbs/{match[1]}"
            cell = {**cell, "source": re.sub(r"\]\((\w+\.ipynb|results/)", to, text(cell))}
        cells.append(cell)
    return {**nb, "cells": cells}


def chapters(nbs: Path) -> dict[Path, dict]:
    "The chapters that have exercises."
    read = {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(nbs.glob("[0-9]*.ipynb"))}
    return {path: nb for path, nb in read.items() if any(is_a(cell, "solution") for cell in nb["cells"])}


def main(root: Path) -> None:
    found, out = chapters(root / "nbs"), root / "exercises"
    out.mkdir(exist_ok=True)
    for path, nb in found.items():
        if (out / path.name).exists():
            print(f"exercises/{path.name}: kept as it is")
            continue
        made = learners(nb, {p.name for p in found})
        (out / path.name).write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(found)} chapters in exercises/: open them with `make lab`, from exercises/{next(iter(found)).name} on")


if __name__ == "__main__":
    main(Path(__file__).resolve().parent.parent)
