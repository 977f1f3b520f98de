"""What JupyterLab shows and what it saves."""
import asyncio
import json
import shutil
import sys

from here import ROOT

sys.path.insert(0, str(ROOT / ".ci" / "lab"))


def test_a_notebook_saved_as_it_was_opened_is_the_same_file(tmp_path, monkeypatch):
    (tmp_path / "ms.tex").write_text(r"""\documentclass{a}\begin{document}
\section{One}\section{Two}\section{Three}\subsection{A}\subsection{B} Theirs.\end{document}""")
    monkeypatch.setenv("ANNOTATED_TRANSFORMER_PAPER", str(tmp_path / "ms.tex"))
    import book_lab
    shutil.copy(ROOT / "settings.ini", tmp_path)
    copy = shutil.copy(ROOT / "nbs" / "model" / "attention.ipynb", tmp_path)
    monkeypatch.chdir(tmp_path)
    files = book_lab.Notebooks(root_dir=str(tmp_path), pre_save_hook="nbdev.clean.clean_jupyter")
    model = asyncio.run(files.get("attention.ipynb"))
    assert "Theirs." in json.dumps(model["content"]) and "language_info" in model["content"]["metadata"]
    asyncio.run(files.save(model, "attention.ipynb"))
    with open(copy, "rb") as saved:
        assert saved.read() == (ROOT / "nbs" / "model" / "attention.ipynb").read_bytes()
