"""The paper's own wording under our restatement of it, from the reader's own copy of the source.

`python site/original.py COPY` writes a private edition of the notebooks into build/with_the_paper/ for JupyterLab
(`make lab PAPER=COPY`); the site takes the same blocks (`make site PAPER=COPY`). Nothing of it is ever committed:
build/ is ignored.
"""
import json
import re
import shutil
import sys
from pathlib import Path

from chapters import read_chapters

SITE = Path(__file__).resolve().parent
ROOT = SITE.parent
NOTE = ("{.facts}\nThe authors' own wording can stand folded under each of our restatements: with a copy of the "
        "paper's source ([how to get one](paper/source.ipynb)), `make site PAPER=path/to/copy` builds this site for "
        "you with it.")
PRIVATE = ("{.facts}\nThis edition holds the authors' own wording, from your copy of the paper's source. It is yours "
           "to read and not to publish.")
BLOCK = re.compile(r"^> \*\*(.+?)\*\*.*\n?(?:^>.*\n?)*", re.M)


class Paper:
    "The sections of one copy."

    def __init__(self, source: Path):
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
    "A markdown cell with the original folded under each restated block."
    def add(match: re.Match) -> str:
        if not (words := paper.words(match[1])):
            return match[0]
        summary = "<summary>The authors' words</summary>"
        return f'{match[0].rstrip()}\n\n<details class="original">{summary}\n\n{words}\n\n</details>\n\n'

    return BLOCK.sub(add, source) if paper else source


def write_edition(source: Path, out: Path) -> None:
    "The notebooks with the words of the copy `source` in them, and what they link to and read, in the folder `out`."
    paper = Paper(source)
    shutil.rmtree(out, ignore_errors=True)
    (out / "nbs").mkdir(parents=True)
    for name in ("figures", "LICENSE", "CONTRIBUTING.md", "nbs/contents.toml", "nbs/results"):
        (out / name).symlink_to(ROOT / name)
    for name in ("index", *(chapter.name for chapter in read_chapters(ROOT / "nbs"))):
        nb = json.loads((ROOT / "nbs" / f"{name}.ipynb").read_text(encoding="utf-8"))
        for cell in nb["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = beside("".join(cell["source"]), paper)
        (copy := out / "nbs" / f"{name}.ipynb").parent.mkdir(exist_ok=True)
        copy.write_text(json.dumps(nb, ensure_ascii=False), encoding="utf-8")
    print(f"{out}/nbs: the chapters with the authors' words folded in; for you alone, and made anew each time")


if __name__ == "__main__":
    write_edition(Path(sys.argv[1]), ROOT / "build" / "with_the_paper")
