"""The paper's tables: every cell as printed, its values, its rules; and nothing heavy at import."""
import subprocess
import sys

import pytest

from annotated_transformer.drawing.result_tables import to_html
from annotated_transformer.paper import tables as paper
from here import ROOT


# Table 3, counted by hand on the page: 95 of its 20 x 12 cells are printed; 19 rows have no note.
@pytest.mark.parametrize("n, rows, columns, empty", [(1, 4, 4, 0), (2, 10, 6, 9), (3, 20, 14, 20 * 12 - 95 + 19),
                                                     (4, 12, 4, 2), ("appendix", 3, 11, 6)])
def test_tables(n, rows, columns, empty):
    frame = paper.paper_table(n)
    assert frame.shape == (rows, columns) and int(frame.isna().sum().sum()) == empty
    html = to_html(paper.as_printed(n))
    assert "nan" not in html.lower() and "None" not in html and "&lt;NA" not in html


# The sum of each column, added up by hand from the page: a slip of the pen in any cell changes it.
@pytest.mark.parametrize("n, column, total", [
    (2, "bleu_en_de", 207.90), (2, "bleu_en_fr", 362.89), (3, "ppl", 101.87), (3, "bleu", 507.7),
    (3, "params_millions", 901),
    (4, "f1", 1097.9), ("appendix", "bleu", 77.2), ("appendix", "ppl", 14.7)])
def test_columns_add_up(n, column, total):
    assert float(paper.paper_table(n)[column].sum()) == pytest.approx(total)


def test_rules_stand_where_the_page_has_them():
    assert paper.as_printed(3).rules == [1, 5, 7, 14, 18,
                                         19] and paper.as_printed(4).rules == [4, 5, 9, 10] and paper.as_printed(
                                             1).rules == []
    assert [line[0] for line in paper.as_printed(3).lines][:6] == ["base", "(A)", "", "", "", "(B)"]
    assert paper.as_printed(2).lines[0][0] == "ByteNet [18]" and paper.as_printed(2).lines[-1][1:3] == [
        "*28.4*", "*41.8*"]


def test_every_section_has_a_chapter():
    numbers = [number for number, _, _ in paper.SECTIONS]
    assert numbers[:3] == ["abstract", "1", "2"] and numbers[-2:] == ["appendix", "appendix"] and len(numbers) == 25
    assert all((ROOT / "nbs" / f"{chapter}.ipynb").exists() for _, _, chapters in paper.SECTIONS
               for chapter in chapters)


def test_table_3_filled():
    filled = paper.paper_table(3, filled=True).set_index("row")
    assert not filled.drop(columns="note").isna().any().any()
    assert filled.note.notna().sum() == 1
    assert (filled.d_k["big"], filled.train_steps["big"], filled.train_steps["E"],
            filled.eps_ls["D3"]) == (64, 300_000, 100_000, 0.0)
    with pytest.raises(ValueError, match="only Table 3"):
        paper.paper_table(2, filled=True)
    with pytest.raises(ValueError, match="there are 1, 2, 3, 4, 'appendix'"):
        paper.paper_table(5)


def test_import_is_light():
    code = ("import sys, annotated_transformer.paper.tables; "
            "print(sorted({'torch', 'pandas', 'altair', 'numpy', 'IPython'} & set(sys.modules)))")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          check=True).stdout.strip() == "[]"
