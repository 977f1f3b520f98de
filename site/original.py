"""The paper's own wording under our restatement of it, from the reader's own copy of the source.

JupyterLab (`make lab`) and the site (`make site`) take the same blocks, where the reader has a copy. Nothing of it is
ever committed: JupyterLab's server takes the words out as it saves, and build/ is ignored.
"""
import re
from pathlib import Path

NOTE = ("{.facts}\nThe shaded blocks headed by a section are our words for the paper's, not quotations. `make lab` and "
        "`make site` offer to fold the authors' own words in below them, from a copy that they fetch for you "
        "([how](paper/source.ipynb)).")
PRIVATE = ("{.facts}\nThis edition holds the authors' own wording, from your copy of the paper's source. It is yours "
           "to read and not to publish.")
OPEN = '\n\n<details class="original"><summary>The authors\' words</summary>\n\n'
CLOSE = "\n\n</details>"
BLOCK = re.compile(r"^> \*\*(.+?)\*\*.*\n?(?:^>.*\n?)*", re.M)


class Paper:
    "The sections of one copy."

    def __init__(self, source: str | Path):
        from annotated_transformer.paper.source import PaperUnavailable, sections
        try:
            self.sections = sections(source)
        except PaperUnavailable as error:
            raise SystemExit(str(error)) from error

    def words(self, heading: str) -> str:
        """The original of a block with this heading: `Section 3.2.1.`, `Sections 6.1 and 6.2`, `Abstract.`

        A section that has subsections gives what stands before them, where it is not empty.
        """
        sections = re.split(r"Tables?|Figures?", heading)[0]
        numbers = re.findall(r"\b\d(?:\.\d)*(?![\d-])", sections) if "ection" in heading else []
        if heading.startswith("Abstract"):
            numbers = ["abstract"]
        elif heading.startswith(("Appendix", "Attention Visualizations")):
            numbers = ["appendix"]
        return "\n\n".join(filter(None, (self.sections.get(number) for number in numbers)))


def beside(source: str, paper: Paper | None) -> str:
    "A markdown cell with the original folded under each restated block. `without` takes it out again."
    def add(match: re.Match) -> str:
        if not (words := paper.words(match[1])):
            return match[0]
        ours = match[0].rstrip("\n")
        return f"{ours}{OPEN}{words}{CLOSE}{match[0][len(ours):]}"

    return BLOCK.sub(add, source) if paper else source


def without(source: str) -> str:
    "A markdown cell as it was before `beside`."
    return re.sub(f"{re.escape(OPEN)}.*?{re.escape(CLOSE)}", "", source, flags=re.S)
