"""Tables of results: any text is text in each notation, every number leads to its record's file, and what is kept
comes back."""
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_transformer.drawing.result_tables import (
    Cell,
    ResultTable,
    missing,
    to_html,
    to_latex,
    to_markdown,
)


class Page(HTMLParser):
    "The cells of the tables of a page, with their columns, and the targets of its links."

    def __init__(self, text: str):
        super().__init__()
        self.rows, self.links, self.tags, self.inside = [], [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        attributes = dict(attributes)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append(["", int(attributes.get("colspan", 1))])
            self.inside = True
        if tag == "a":
            self.links.append(attributes["href"])

    def handle_endtag(self, tag):
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data):
        if self.inside:
            self.rows[-1][-1][0] += data


def trial(text: str) -> ResultTable:
    return ResultTable("A trial", "of signs", [("", "row"), ("group", "a"), ("group", "b")],
                       [(text, Cell(text), Cell(text, ["run"])), ("last", "x", "y")], rules=[1])


SIGNS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Z"]), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(text=SIGNS.filter(lambda text: not re.fullmatch(r"\*.+\*", text)) | st.sampled_from(
    ["<script>alert(1)</script>", "a | b", "$x$ & 50%", r"\end{tabular}", "a_b*c*", "`[x](y)`", '"><b>', "&amp;", "{",
     "}"]))
def test_any_text_is_text(text):
    page = Page(to_html(trial(text)))
    assert [cell for cell, _ in page.rows[2]] == [text] * 3 and not {"script", "img",
                                                                     "b"} & set(page.tags[page.tags.index("td"):])
    assert all(sum(span for _, span in row) == 3 for row in page.rows)  # every line covers every column
    row = to_markdown(trial(text)).splitlines()[4]
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 4  # three cells: four bars that are not escaped
    latex = to_latex(trial(text))
    plain = re.sub(r"\\[{}&%$#_]", "", latex)  # without escaped signs
    depth = [0]
    for sign in plain:
        depth.append(depth[-1] + {"{": 1, "}": -1}.get(sign, 0))
    assert min(depth) == depth[-1] == 0 and plain.count("$") % 2 == 0 and "%" not in plain
    assert plain.count("&") == 2 + 2 + 2 + 1 and plain.count(r"\end{tabular}") == 1  # two lines, names, groups


def test_a_long_table_goes_over_pages():
    line = ("a few words that wrap, " * 9, missing("train --all"))
    short, long = (to_latex(ResultTable("The list", "of n", ["a", "b"], [line] * n)) for n in (40, 41))
    assert "longtable" not in short and r"\begin{tabular}{p{4.5cm}r}" in short
    assert r"\begin{longtable}{p{4.5cm}r}" in long


def test_several_records_are_one_link_for_each_file():
    runs, others = Cell("8.39", ["row_seed0", "row_seed12"]), Cell("5.5·10¹³", ["run", "benchmark_seed1"])
    table = ResultTable("t", "", ["a", "b"], [(runs, others)])
    html = to_html(table, "results")
    page = Page(html)
    assert page.rows[1] == [["8.39", 1], ["5.5·10¹³ (1, 2)", 1]] and 'title="row_seed0, row_seed12"' in html
    assert page.links == [f"results/{name}.jsonl" for name in ("variations", "run", "benchmark")]
    assert "[8.39](results/variations.jsonl)" in to_markdown(table, "results")
    assert r"\href{results/variations.jsonl}{8.39}" in to_latex(table, "results")


def test_a_wrong_number_of_cells_is_refused():
    with pytest.raises(ValueError, match="1 cells for 2 columns, in the line of 'x'"):
        ResultTable("t", "", ["a", "b"], [("x",)])


def test_missing_cells_are_numbered_once():
    table = ResultTable("t", "", ["a", "b"], [(missing("one"), missing("two")), (missing("one"), "x")])
    assert table.commands == ["one", "two"]
    assert [cell for row in Page(to_html(table)).rows[1:] for cell,
            _ in row] == ["missing [1]", "missing [2]", "missing [1]", "x"]
