"""The exercises: complete, solved rightly, and with checks that a blank answer does not pass."""
import ast
import contextlib
import io
import json
import re
import sys

import pytest

from here import ROOT

sys.path.insert(0, str(ROOT / ".ci"))

import exercises  # noqa: E402
import tidy  # noqa: E402

CHAPTERS = exercises.chapters(ROOT / "nbs")
ROOMS = {"model", "training", "decoding"}


def sources(nb: dict) -> list[tuple[str, str]]:
    "(question, solution, check or code or markdown, source) of each cell."
    def kind(cell: dict) -> str:
        return next((tag for tag in ("solution", "check") if exercises.is_a(cell, tag)), cell["cell_type"])

    return [(kind(cell), tidy.text(cell)) for cell in nb["cells"]]


def only_defines(source: str) -> bool:
    "Imports, functions, classes and empty lists, such as a chapter's tape: nothing that computes."
    return all(isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
               or isinstance(node, ast.Assign) and isinstance(node.value, ast.List) and not node.value.elts
               for node in ast.parse(re.sub(r"^( *)[%!].*", r"\1pass", source, flags=re.M)).body)


def triples(nb: dict) -> list[tuple[str, str, str]]:
    cells = sources(nb)
    return [(cells[i - 1][1], cells[i][1], cells[i + 1][1]) for i, (kind, _) in enumerate(cells) if kind == "solution"]


def test_the_rooms_have_exercises():
    assert {place.split("/")[0] for place in CHAPTERS} >= ROOMS


@pytest.mark.parametrize("place", CHAPTERS)
def test_each_is_a_question_a_solution_and_a_check(place):
    nb = CHAPTERS[place]
    kinds = [kind for kind, _ in sources(nb)]
    places = [i for i, kind in enumerate(kinds) if kind == "solution"]
    assert 3 <= len(places) <= 6
    assert all((kinds[i - 1], kinds[i + 1]) == ("markdown", "check") for i in places)
    for number, (question, _, check) in enumerate(triples(nb), 1):
        assert f"**{number}. " in question and "Right" in check
    answers = [cell["outputs"] for cell in nb["cells"] if exercises.is_a(cell, "check")]
    assert all("Right" in json.dumps(outputs) for outputs in answers), f"run: make notebooks NB={place[:-6]}"


@pytest.mark.parametrize("place", CHAPTERS)
def test_checks_tell_right_from_blank(place, monkeypatch):
    "Against the chapter's imports and definitions; nbdev_test runs the solutions where they stand."
    monkeypatch.chdir((ROOT / "nbs" / place).parent)
    names = {"__name__": "__main__", "__spec__": None}
    for kind, source in sources(CHAPTERS[place]):
        if kind == "code" and "#| export" in source:
            exec(compile(source, place, "exec"), names)
        elif kind == "code" and only_defines(source):
            with contextlib.suppress(NameError):  # an annotation may name what a cell left out here computes
                exec(compile(source, place, "exec"), names)
    said = io.StringIO()
    for number, (_, solution, check) in enumerate(triples(CHAPTERS[place]), 1):
        blank = {**names}
        exec(compile(exercises.blank(solution), f"{place}, blank {number}", "exec"), blank)
        with pytest.raises(Exception), contextlib.redirect_stdout(io.StringIO()):  # noqa: B017  whatever it raises
            exec(compile(check, f"{place}, check {number}", "exec"), blank)
        with contextlib.redirect_stdout(said):
            exec(compile(solution, f"{place}, solution {number}", "exec"), names)
            exec(compile(check, f"{place}, check {number}", "exec"), names)
    assert said.getvalue().count("Right") == number


def test_a_learners_copy_has_no_solutions(tmp_path):
    for name in ("nbs", "figures", "settings.ini"):
        (tmp_path / name).symlink_to(ROOT / name)
    exercises.main(tmp_path)
    copies = {path.relative_to(tmp_path / "exercises").as_posix(): path
              for path in (tmp_path / "exercises").rglob("*.ipynb")}
    assert copies.keys() == CHAPTERS.keys()
    for place, path in copies.items():
        nb = json.loads(path.read_text(encoding="utf-8"))
        for (_, theirs, _), (_, ours, _) in zip(triples(nb), triples(CHAPTERS[place]), strict=True):
            assert exercises.TURN in theirs and theirs != ours and not re.search(r"^\s+return", theirs, re.M)
        for link in re.findall(r"\]\(([\w./-]+\.(?:ipynb|json))",
                               "\n".join(source for kind, source in sources(nb) if kind == "markdown")):
            assert (path.parent / link).exists(), f"{place}: {link}"
    path.write_text("mine")
    exercises.main(tmp_path)
    assert path.read_text() == "mine"


def test_what_is_left_of_a_solution():
    head = 'import math\n\n\n@cache\ndef area(r: float) -> float:\n    "Of a circle."\n'
    solution = f"{head}    return math.pi * r**2\n\n\ntwo = area(\n    1)\nprint(two)"
    assert exercises.blank(solution) == f"{head}    ...  # your turn\n\ntwo = ...  # your turn"
