"""`export`, `import` and `explore`."""
import shutil

import pytest

from annotated_transformer.commands import cli
from command_line import fails, said, wrong


def test_a_name_of_any_bytes(made, tmp_path):
    run = shutil.copytree(made / "run", tmp_path / "run\udcfe")
    for to in ("huggingface", "ctranslate2"):
        cli.main(["export", str(run), str(tmp_path / to), "--to", to])
        assert "run\\udcfe" in (tmp_path / to / "README.md").read_text(encoding="utf-8")


def test_weights_that_ship_are_not_replaced(made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for arguments in (["export", made / "run", "ende"], ["export", made / "run", "./ende"],
                      ["import", made, "ende"]):
        fails(arguments, capsys, "ende: the name of weights that ship")
    assert not (tmp_path / "ende").exists()


def test_an_imported_run_is_not_exported(imported, tmp_path, capsys):
    fails(["export", imported, tmp_path / "new"], capsys, f"{imported}: imported", f"take {imported.parent / 'marian'}")


@pytest.mark.parametrize("command", [["explore", "grammar"], ["play"]], ids=lambda words: words[0])
def test_a_page_replaces_a_page_alone(tmp_path, capsys, command):
    text, page = tmp_path / "text.en", tmp_path / "page.html"
    text.write_text("hello\n")
    fails([*command, text], capsys, text, "is no page: name a new file")
    assert text.read_text() == "hello\n"
    for _ in range(2):
        said(capsys, *command, page)


def test_where_a_page_goes_is_looked_at_before_the_work(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "explore-grammar.html").mkdir()
    fails(["explore", "grammar"], capsys, "the page explore-grammar.html: a folder: name a file in it")


@pytest.mark.parametrize("arguments, named", [
    (["explore", "RUN", "DATA"], ["the page DATA: a folder: name a file"]),
    (["explore", "RUN", "DATA/test.en/page.html"], ["page.html: nothing can be written there"]),
    (["export", "RUN", "NEW", "--quantization", "int7"], ["--quantization", "int7"]),
    (["export", "RUN", "DATA"], ["DATA", "exists"]),
    *[(["export", "grammar", "NEW", "--to", to, "--quantization", "int8"], [f"has no effect with --to {to}"])
      for to in ("huggingface", "onnx")],
])
def test_wrong_options(made, tmp_path, capsys, arguments, named):
    wrong(arguments, named, made, tmp_path, capsys)
