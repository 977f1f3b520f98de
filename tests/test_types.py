"The types that the package gives to those who import it."
import ast
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import annotated_transformer
import typing_use
from annotated_transformer.corpus import grammar
from here import ROOT

FACE = ROOT / "annotated_transformer"


def checked(tmp_path: Path, *programs: Path) -> str:
    "What mypy says, when strict, of programs that import the package; it reads the package's types and not PyTorch's."
    pytest.importorskip("mypy", reason="mypy is not installed: it comes with the extra dev")
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nstrict = True\nfollow_imports = silent\n[mypy-torch.*]\nfollow_imports = skip\n")
    done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", settings, "--cache-dir", tmp_path / "cache",
                           "--no-error-summary", *programs], cwd=ROOT, capture_output=True, text=True)
    assert not done.stderr, done.stderr
    return done.stdout


def test_types_of_ordinary_use(tmp_path):
    """No complaint about a page that is right or about what the documentation shows, one about each line that is
    wrong; and every name of the package has a type of its own."""
    page = (ROOT / "site/pages/public_names.md").read_text(encoding="utf-8")
    (shown := tmp_path / "shown.py").write_text("\n".join(re.findall(r"```python\n(.*?)```", page, re.S)))
    mistakes = ["load(3)", "load('ende').translate(3)", "SearchConfig(beam=4)", "Corpus.open('data').tests + 1",
                "n: int = load('ende').translate('A line.')", "from annotated_transformer import nothing"]
    (wrong := tmp_path / "wrong.py").write_text(
        "\n".join(["from annotated_transformer import Corpus, SearchConfig, load", *mistakes]))
    (names := tmp_path / "names.py").write_text("import annotated_transformer\n" + "\n".join(
        f"reveal_type(annotated_transformer.{name})" for name in annotated_transformer.__all__))
    said = checked(tmp_path, Path(typing_use.__file__), FACE / "__init__.pyi", shown, wrong, names).splitlines()
    complaints = [line for line in said if ": error: " in line]
    assert [re.search(r"(\w+)\.py:(\d+)", line).groups() for line in complaints] == [
        ("wrong", str(i)) for i in range(2, len(mistakes) + 2)], "\n".join(complaints)
    revealed = re.findall(r'Revealed type is "(.+)"', "\n".join(said))
    assert len(revealed) == len(annotated_transformer.__all__) and "Any" not in revealed


def test_the_stub_and_the_table_name_the_same():
    "Each name from the same module, in the stub and in what is imported."
    body = ast.parse((FACE / "__init__.pyi").read_text(encoding="utf-8")).body
    stub = {alias.name: node.module for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert stub == annotated_transformer._PLACES
    said = next(node.value for node in body if isinstance(node, ast.Assign))
    assert ast.literal_eval(said) == annotated_transformer.__all__


def test_the_page_runs(tmp_path):
    "From two text files to scores."
    for language, side in (("en", "src"), ("de", "tgt")):
        (tmp_path / f"text.{language}").write_text(
            "".join(f"{getattr(e, side)}\n" for e in itertools.islice(grammar.examples(0), 200)), encoding="utf-8")
    corpus = typing_use.prepared(tmp_path / "data", tmp_path / "text.en", tmp_path / "text.de", 300)
    run = typing_use.trained(tmp_path / "run", corpus, 300, steps=2)
    one, other = typing_use.scores(run, corpus)
    assert one == pytest.approx(other) and 0 <= one < 100
    assert typing_use.why_not(tmp_path / "data") is None
    assert "text.en is not a corpus" in typing_use.why_not(tmp_path / "text.en")
