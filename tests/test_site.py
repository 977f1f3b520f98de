"What the site is made from: citations, the paper's words, style sheets, the ways between pages, reading times."
import re
import sys
from types import SimpleNamespace

import pytest

from here import ROOT

sys.path[:0] = [str(ROOT / "site"), str(ROOT / ".ci")]

import bibliography  # noqa: E402
import build  # noqa: E402
import original  # noqa: E402
import paper  # noqa: E402
import slim  # noqa: E402
import tables  # noqa: E402
from chapters import builds_on, folds, link, read_chapters  # noqa: E402


def test_every_citation_is_in_the_bibliography():
    references = bibliography.read(ROOT / "site" / "references.bib")
    numbers = sorted(int(r.number) for r in references.values() if r.number)
    assert numbers == list(range(1, 41)), "the paper has 40 references"
    missing = []
    for chapter in read_chapters(ROOT / "nbs"):
        prose = "\n\n".join("".join(cell["source"]) for cell in chapter.nb["cells"] if cell["cell_type"] == "markdown")
        missing += [f"{chapter.name}: {words}" for words in bibliography.unknown(prose, references)]
    assert not missing, "\n".join(["add to site/references.bib:", *missing])


@pytest.mark.parametrize("words, keys", [
    ("Britz et al. (2017) found", ["britz2017"]), ("(Kingma and Ba, 2014)", ["kingma2015"]),
    ("(Voita et al. 2019; Clark et al. 2019)", ["voita2019", "clark2019"]),
    ("Luong et al. (2015)", ["luong2015multi"]), ("in June 2017, on WMT 2014", []),
    ("[Britz et al. (2017)](paper.html)", []),
    ("`Britz et al. (2017)`\n```\n```", [])])
def test_citations_become_links(words, keys):
    references = bibliography.read(ROOT / "site" / "references.bib")
    linked = bibliography.linked(words, references, "../references.html")
    assert re.findall(r'href="../references.html#(\w+)"', linked) == keys


@pytest.mark.parametrize("name, live", [("playground", "playground"), ("explore", "look_inside")])
def test_a_live_page_is_alive_on_the_site(name, live, tmp_path):
    "A notebook keeps a picture of it, whose buttons do nothing."
    nb = next(chapter.nb for chapter in read_chapters(ROOT / "nbs") if chapter.name == f"inside/{name}")
    (kept,) = [output for cell in nb["cells"] for output in cell.get("outputs", []) if 'id="page-' in str(output)]
    page = build.shown(kept, f"inside/{name}", "x", tmp_path)["data"]["text/html"]
    assert f'data-src="../_static/{live}.html"' in page


def test_the_paper_stands_under_our_words(tmp_path):
    main = tmp_path / "ms.tex"
    main.write_text(r"""\documentclass{article}\begin{document}\begin{abstract}In short.\end{abstract}
\section{One} First. \subsection{Two} Second, with $x^2$. \section*{More} Third.\end{document}""")
    theirs = original.Paper(main)
    assert (theirs.words("Section 1.1."), theirs.words("Abstract."), theirs.words("Appendix of the source.")) == (
        "Second, with $x^2$.", "In short.", "**More**\n\nThird.")
    assert theirs.words("Sections 1 and 1.1") == "First.\n\nSecond, with $x^2$."
    assert theirs.words("Table 3's caption.") == ""
    cell = "> **Section 1.1.** Ours,\n> and more.\n\nThen prose.\n"
    assert original.beside(cell, None) == cell
    there = original.beside(cell, theirs)
    assert original.without(there) == cell
    parts = "and more.", '<details class="original">', "Second, with $x^2$.", "Then prose."
    order = [there.index(part) for part in parts]
    assert order == sorted(order)
    with pytest.raises(SystemExit, match="nothing.tex"):
        original.Paper(tmp_path / "nothing.tex")


def test_a_copy_of_the_paper_is_offered_once_and_to_a_person_alone(tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in (paper.ENVIRONMENT, "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("builtins.input", lambda: asked.append(1) or "n")
    assert paper.offered() is None and not asked, "nobody sits there"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setenv("CI", "true")
    assert paper.offered() is None and not asked
    monkeypatch.delenv("CI")
    assert paper.offered() is None and paper.offered() is None and len(asked) == 1
    assert "arxiv.org" in capsys.readouterr().err
    (paper.cache_path().parent / "asked").unlink()
    monkeypatch.setattr("builtins.input", lambda: "y")

    def fetched():
        paper.cache_path().write_bytes(b"x")

    monkeypatch.setattr(paper, "read_source", fetched)
    assert paper.offered() == paper.cache_path() and paper.offered() == paper.cache_path()


def test_a_style_sheet_keeps_what_a_page_can_use():
    sheet = ("@charset 'x';/* a{ */a,.gone b{c:d}.gone{e:f}.kept #here>i{g:'}'}"
             "@media (x){.gone{e:f}.kept{h:i}}@media (y){.gone{e:f}}@keyframes k{0%{j:k}}")
    assert slim.used(sheet, {"kept", "here"}) == (
        "@charset 'x';/* a{ */a,.gone b{c:d}.kept #here>i{g:'}'}@media (x){.kept{h:i}}@keyframes k{0%{j:k}}")


def test_the_way_from_page_to_page():
    assert link("api.html", "index") == "api.html" and link("api.html", "model/attention") == "../api.html"
    assert link("model/layers.ipynb", "model/attention") == "layers.ipynb"
    assert link("corpus/grammar.ipynb", "model/attention") == "../corpus/grammar.ipynb"


def chapter(name: str, *uses: str) -> SimpleNamespace:
    return SimpleNamespace(name=name, module=name.replace("/", "."), room=name.split("/")[0],
                           imports={use.replace("/", ".") for use in uses})


def test_what_a_chapter_builds_on():
    "What comes before it and is imported, in short: not what these build on themselves, and no tools."
    book = [chapter("tools/files"), chapter("model/attention", "model/layers"),
            chapter("model/layers", "model/attention", "tools/files"), chapter("corpus/grammar"),
            chapter("training/loop", "model/attention", "model/layers", "corpus/grammar", "tools/files")]
    found = {name: [c.name for c in before] for name, before in builds_on(book).items()}
    assert found == {"tools/files": [], "model/attention": [], "model/layers": ["model/attention"],
                     "corpus/grammar": [], "training/loop": ["model/layers", "corpus/grammar"]}


def test_the_appendix_is_folded_and_last():
    book = [SimpleNamespace(name=name, title=name, part=part, hour=hour, appendix=appendix)
            for name, part, hour, appendix in [("a", "1 One", True, False), ("b", "2 Two", False, False),
                                               ("c", "1 One", False, True), ("d", "2 Two", False, True)]]
    found = [(fold["title"], [(group["title"], [name for name, _ in group["pages"]]) for group in fold["groups"]])
             for fold in folds(book, {"api": "API"})]
    assert found == [("In one hour", [("", ["a"])]), ("1 One", [("", ["a"])]), ("2 Two", [("", ["b"])]),
                     ("Appendix", [("1 One", ["c"]), ("2 Two", ["d"])]), ("Around the book", [("", ["api"])])]
    chapters = read_chapters(ROOT / "nbs")
    assert [c.name for c in sorted(chapters, key=lambda c: c.appendix)] == [c.name for c in chapters]


def test_the_hour_is_about_an_hour():
    hour = [c for c in read_chapters(ROOT / "nbs") if c.hour]
    assert 55 <= sum(c.minutes_to_line for c in hour) <= 65


def test_folds_that_show_nothing_join_the_next():
    def folded(source: str, shows: bool, **prompt: str) -> dict:
        return {"cell_type": "code", "source": source, "outputs": [{}] if shows else [],
                "metadata": {"tags": ["hide-input"], **({"mystnb": prompt} if prompt else {})}}

    imports = folded("import", False, code_prompt_show="Show imports")
    one, two, picture = folded("one", False), folded("two", False), folded("picture", True)
    solution, words = folded("solve", True, code_prompt_show="Show a solution"), build.markdown("words")

    def made(*cells: dict) -> list[str]:
        return [" ".join(cell["source"].split()) for cell in build.fewer_folds([*cells])]

    assert made(words, imports, one, two, picture) == ["words", "import one two picture"]
    assert made(imports, one, words, two, picture) == ["import", "one", "words", "two picture"]
    assert made(picture, one, solution) == ["picture", "one", "solve"]


def test_notation_names_what_there_is():
    import annotated_transformer.model.transformer
    words = (ROOT / "site" / "pages" / "notation.md").read_text(encoding="utf-8")
    fields = set(annotated_transformer.model.transformer.TransformerConfig.__annotations__)
    for name in ("n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "vocab_size", "dropout"):
        assert name in fields and name in words


def test_tables_have_one_style():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"word": ["a", "b"], "number": [1.5, 20.0]})
    for theirs in (frame.to_html(), frame.style.format({"number": "{:.1f}"}).to_html()):
        made = tables.plain(theirs)
        assert "<style" not in made and made.count("text-align: right") == 3 and made.count("text-align: left") == 3
        assert "<th" in made and ">0<" not in made, "row numbers are gone"
    named = tables.plain(frame.set_index("word").to_html())
    assert "word" in named and ">a<" in named
    assert tables.plain("<b>1</b>") == "<b>1</b>"
    for words, mark in (("layer 1, head 2", " data-whole"), ("ab01" * 16, " data-long"), ("word", ""), ("a " * 13, ""),
                        ("as (confirm_captions.toml) says", " data-long")):
        assert tables.plain(f"<td>{words}</td>") == f"<td{mark}>{words}</td>"
