"""`section` reads the reader's own copy of the paper: wherever it lies, whatever is wrong with it."""
import io
import tarfile
import urllib.error

import pytest

from annotated_transformer.paper import source as paper

MAIN = r"""\documentclass{article}
\newcommand{\dmodel}{d_{\text{model}}}
\begin{document}
\begin{abstract}
Ours in short. % a secret remark

And a second paragraph.
\end{abstract}
\section{First}
\input{first}
\section*{Unnumbered}
No number here.
\section{Second}\label{sec:second}
% \subsection{Never}
\subsection{Inner \emph{part}} Half: 50\% of it. \citep{a2016,b2017} \footnote{A note of width $\dmodel$.}
\subsubsection{Innermost} Deep, see section~\ref{sec:second} and \unknown{thing}.
\begin{equation}\label{eq:one}
   y = \frac{a}{b} % not this

   + c
\end{equation}
\begin{thebibliography}{1}\bibitem{a2016} A list of books.\end{thebibliography}
%\input{left_out}
\end{document}
"""
FILES = {"ms.tex": MAIN, "first.tex": "The first words.\n", "left_out.tex": r"\section*{Left out} Found all the same."}


def archive(files: dict[str, str], mode: str = "w:gz") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    "No variable, an empty cache, and a network that is down."
    def down(*args, **kwargs):
        raise urllib.error.URLError("no network in this test")

    monkeypatch.delenv(paper.ENVIRONMENT, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(paper.urllib.request, "urlopen", down)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "source").mkdir()
    for name, text in FILES.items():
        (tmp_path / "source" / name).write_text(text)
    return tmp_path / "source"


@pytest.fixture
def packed(tmp_path):
    path = tmp_path / "copy.tar.gz"
    path.write_bytes(archive(FILES))
    return path


def one_line(capsys) -> str:
    said = capsys.readouterr()
    assert said.err == "" and said.out.count("\n") == 1, said
    return said.out


@pytest.mark.parametrize("kind", ["archive", "tar", "folder", "file"])
def test_every_kind_of_copy(kind, packed, folder, tmp_path):
    (tmp_path / "plain.tar").write_bytes(archive(FILES, "w:"))
    source = {"archive": packed, "tar": tmp_path / "plain.tar", "folder": folder, "file": folder / "ms.tex"}[kind]
    assert paper.section("1", source) == "### 1 First\n\nThe first words."
    assert paper.section("abstract", str(source)) == "### Abstract\n\nOurs in short.\n\nAnd a second paragraph."
    assert "Found all the same." in paper.section("appendix", source)


def test_environment(packed, monkeypatch):
    monkeypatch.setenv(paper.ENVIRONMENT, str(packed))
    assert "The first words." in paper.section(1)


def test_argument_goes_before_environment(packed, monkeypatch, tmp_path):
    monkeypatch.setenv(paper.ENVIRONMENT, str(tmp_path / "nowhere"))
    assert "The first words." in paper.section("1", packed)


def test_cache(packed):
    assert str(paper.cache_path()).endswith("cache/annotated_transformer/1706.03762.tar.gz")
    paper.cache_path().parent.mkdir(parents=True)
    paper.cache_path().write_bytes(packed.read_bytes())
    assert "The first words." in paper.section("1")


@pytest.mark.parametrize("before", [None, b"", archive(FILES)[:-100]], ids=["none", "empty", "cut"])
def test_fetched_once(before, monkeypatch):
    asked = []

    def serve(request, timeout):
        asked.append(request.full_url)
        assert timeout
        return io.BytesIO(archive(FILES))

    if before is not None:  # a damaged cache is replaced
        paper.cache_path().parent.mkdir(parents=True)
        paper.cache_path().write_bytes(before)
    monkeypatch.setattr(paper.urllib.request, "urlopen", serve)
    assert "The first words." in paper.section("1")
    assert "Inner" in paper.section("2.1")
    assert asked == ["https://arxiv.org/e-print/1706.03762"]
    # and nothing half-written beside it
    assert [file.name for file in paper.cache_path().parent.iterdir()] == ["1706.03762.tar.gz"]


def test_a_page_that_is_no_archive_is_not_kept(monkeypatch, capsys):
    page = b"<html>come back later</html>" * 99
    monkeypatch.setattr(paper.urllib.request, "urlopen", lambda request, timeout: io.BytesIO(page))
    assert paper.section("1") is None
    assert "not a whole tar.gz" in one_line(capsys)
    assert not paper.cache_path().exists()


def test_offline(capsys):
    assert paper.section("3.2.1") is None
    said = one_line(capsys)
    assert paper.ENVIRONMENT in said and paper.URL in said and str(paper.cache_path()) in said


def test_cut_archive(tmp_path, capsys):
    for cut in (0, 1, 20, len(archive(FILES)) // 2, len(archive(FILES)) - 1):
        (tmp_path / "cut.tar.gz").write_bytes(archive(FILES)[:cut])
        assert paper.section("1", tmp_path / "cut.tar.gz") is None
        assert "cut.tar.gz" in one_line(capsys)


@pytest.mark.parametrize("source", ["nowhere.tar.gz", "nowhere.tex", "nowhere"])
def test_no_such_path(source, tmp_path, capsys):
    assert paper.section("1", tmp_path / source) is None
    assert source in one_line(capsys)


def test_folder_without_a_main_file(tmp_path, capsys):
    (tmp_path / "a.tex").write_text("one")
    (tmp_path / "b.tex").write_text("two")
    assert paper.section("1", tmp_path) is None
    assert "documentclass" in one_line(capsys)


def test_inputs_in_a_circle(packed):
    packed.write_bytes(archive({"ms.tex": r"\documentclass{a}\section{One}Start. \input{b}\input{gone}",
                                "b.tex": r"B. \input{c.tex}\input{b}",
                                "c.tex": r"C. \input{b}\input{ms}"}))
    text = paper.section("1", packed)
    assert text.split() == "### 1 One Start. B. C. [gone is not in this copy]".split()


def test_inputs_that_double_do_not_grow(packed):
    files = {f"f{i}.tex": rf"\input{{f{i + 1}}}" * 10 for i in range(30)} | {"f30.tex": "End."}
    packed.write_bytes(archive({"ms.tex": r"\documentclass{a}\section{One}\input{f0}", **files}))
    assert paper.section("1", packed).count("End.") == 1


@pytest.mark.parametrize("name", ["big.tex", "big.bin"])
def test_a_huge_member_is_refused(name, packed, monkeypatch, capsys):
    monkeypatch.setattr(paper, "LIMIT", 2**20)
    packed.write_bytes(archive({**FILES, name: " " * 2**21}))
    assert packed.stat().st_size < 2**16  # small until it is unpacked
    assert paper.section("1", packed) is None
    assert "1 MiB" in one_line(capsys)


def test_a_member_that_claims_to_be_huge_is_refused(packed, capsys):
    data = io.BytesIO()
    member = tarfile.TarInfo("ms.tex")
    member.size = 2**40
    data.write(member.tobuf() + MAIN.encode() + bytes(2 * tarfile.BLOCKSIZE))
    packed.write_bytes(data.getvalue())
    assert paper.section("1", packed) is None
    assert "copy.tar.gz" in one_line(capsys)


def test_names_that_climb_out_do_nothing(packed, tmp_path):
    (tmp_path / "secret.tex").write_text("Not yours.")
    packed.write_bytes(archive({"ms.tex": rf"\documentclass{{a}}\section{{One}}Mine. "
                                          rf"\input{{../secret}}\input{{{tmp_path}/secret}}",
                                "../../evil.tex": "evil", "/abs.tex": "abs"}))
    before = sorted(tmp_path.rglob("*"))
    text = paper.section("1", packed)
    assert "Mine." in text and "Not yours." not in text and text.count("is not in this copy") == 2
    assert sorted(tmp_path.rglob("*")) == before and not (tmp_path.parent / "evil.tex").exists()


def test_a_link_in_an_archive_or_folder_is_not_followed(packed, folder, tmp_path):
    (tmp_path / "secret.tex").write_text("Not yours.")
    (folder / "first.tex").unlink()
    (folder / "first.tex").symlink_to(tmp_path / "secret.tex")
    assert paper.section("1", folder).endswith("[first is not in this copy]")
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(folder, arcname=".")
    assert paper.section("1", packed).endswith("[first is not in this copy]")


def test_latex_becomes_markdown(packed):
    text = paper.section("2", packed)
    assert text.startswith("### 2 Second\n\n#### 2.1 Inner *part*\n\nHalf: 50% of it. [a2016,b2017]")
    assert r"(A note of width $d_{\text{model}}$.)" in text
    assert "##### 2.1.1 Innermost\n\nDeep, see section 2 and \\unknown{thing}." in text
    assert "\n\n$$\\tag{1} y = \\frac{a}{b} + c$$" in text  # one paragraph, its comment and label gone
    assert "Never" not in text and "books" not in text and "secret" not in text
    assert paper.section("abstract", packed).endswith("Ours in short.\n\nAnd a second paragraph.")


def test_nested_sections(packed):
    assert "Innermost" in paper.section("2.1", packed) and paper.section("2.1", packed).number == "2.1"
    assert "Innermost" not in paper.section("1", packed)
    assert paper.section("unnumbered", packed).endswith("No number here.")
    assert paper.section(2.1, packed)._repr_markdown_() == repr(paper.section("2.1", packed))
    assert paper.section(2.1, packed) == paper.section("inner *part*", packed)


def test_unknown_section(packed, capsys):
    assert paper.section("9.9", packed) is None
    assert "abstract, 1, 2, 2.1, 2.1.1, appendix" in one_line(capsys)


TABLE = r"""\begin{tabular}{l|cc} \toprule
\multirow{2}{*}{\vspace{-2mm}System} & \multicolumn{2}{c}{BLEU} \\ \cmidrule{2-3}
 & EN-DE & {\bf EN-FR} \\ \hline
ours \cite{we2017} & $10^{2}$ & \textbf{41.8} \\ \specialrule{1pt}{-1pt}{0pt}
\rule{0pt}{2.0ex}both & \multicolumn{2}{c}{a \& b} \\ \bottomrule
\end{tabular}"""


def test_tables_become_tables():
    assert paper._table(TABLE, {}).splitlines() == [
        "| System | BLEU EN-DE | BLEU **EN-FR** |", "|---|---|---|", "| ours [we2017] | $10^{2}$ | **41.8** |",
        "| both | a & b |  |"]


def test_sections_are_given_without_their_subsections(tmp_path):
    main = tmp_path / "ms.tex"
    main.write_text(r"""\documentclass{article} \begin{document} \begin{abstract}Short.\end{abstract}
\section{One} Begins. \subsection{Inner} Goes on. \section*{Extra} Ends. \end{document}""")
    found = paper.sections(main)
    assert found == {"abstract": "Short.", "1": "Begins.", "1.1": "Goes on.", "appendix": "**Extra**\n\nEnds."}
    with pytest.raises(paper.PaperUnavailable):
        paper.sections(tmp_path / "none.tex")
