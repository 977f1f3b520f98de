"""The bibliography: BibTeX in, links in the text and one page out.

A chapter cites as a book does, "Britz et al. (2017)" or "(Kingma and Ba, 2014)", which reads well in JupyterLab; on the
site the same words lead to the entry, and the entry names the chapters that cite it.
"""
import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

NAME = r"[A-Z][\w’'-]*[a-zéćö]"
CITATION = re.compile(rf"({NAME})((?:,? {NAME})*(?: et al\.?,?| and others,?|(?: and| &) {NAME},?|,)?)"
                      r"(?: (\()?((?:19|20)\d\d)\b(?(3)\)))")
LINK = re.compile(r"\[[^\]]*\]\([^)]*\)|<a .*?</a>", re.S)


def in_a_link(source: str) -> Callable[[re.Match], bool]:
    "Whether a match in `source` lies within a link: a link within another would come out empty."
    spans = [match.span() for match in LINK.finditer(source)]
    return lambda match: any(begin <= match.start() < end for begin, end in spans)


@dataclass
class Reference:
    key: str
    families: list[str]
    authors: str
    title: str
    venue: str
    year: str
    also: str  # another year under which the text may cite it
    number: str  # the paper's, "" for ours
    url: str
    cited: list = field(default_factory=list)  # (chapter's name, title)


def plain(text: str) -> str:
    "BibTeX's words without its braces and accents' commands."
    from pybtex.richtext import Text
    return str(Text.from_latex(text))


def read(path: Path) -> dict[str, Reference]:
    from pybtex.database import parse_file
    found = {}
    for key, entry in parse_file(str(path)).entries.items():
        people = entry.persons["author"]
        get = entry.fields.get
        families = [plain(" ".join(p.prelast_names + p.last_names)) for p in people]
        names = [plain(str(" ".join(p.first_names + p.middle_names + p.prelast_names + p.last_names))) for p in people]
        names = ["others" if name == "others" else name for name in names]
        authors = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
        found[key] = Reference(key, families, authors, plain(get("title")),
                               get("booktitle") or get("journal") or f"arXiv:{get('eprint')}",
                               get("year"), get("also", ""), get("paper", ""),
                               f"https://arxiv.org/abs/{get('eprint')}" if get("eprint") else "")
    return found


def cited(match: re.Match, references: dict[str, Reference]) -> Reference | None:
    "The entry that the words of `match` mean: an author and the year, and the other names where several have these."
    names = set(re.findall(NAME, match[1] + match[2]))
    fit = [r for r in references.values() if match[1] in r.families and match[4] in (r.year, r.also)]
    return max(fit, key=lambda r: (r.families[0] == match[1], len(names & set(r.families))), default=None)


def citations(text: str) -> list[re.Match]:
    "Where the text may cite: a name and a year. `June 2017` is among them, and no entry fits it."
    return list(CITATION.finditer(text))


def unknown(text: str, references: dict[str, Reference]) -> list[str]:
    "Citations without an entry: what looks like one beyond doubt, as `Name (2017)` or `Name et al. 2017`."
    return [match[0] for match in citations(text) if (match[2].strip(",") or match[3]) and not cited(match, references)]


def linked(source: str, references: dict[str, Reference], page: str) -> str:
    "The markdown with a link on each citation to its entry on `page`; cells with blocks of code are left alone."
    if "```" in source:
        return source
    linked_already = in_a_link(source)
    for match in reversed(citations(source)):
        if (reference := cited(match, references)) and not linked_already(match):
            link = f'<a href="{page}#{reference.key}">{match[0]}</a>'
            source = source[: match.start()] + link + source[match.end():]
    return source


def page(references: dict[str, Reference], chapters: list) -> str:
    "The page of references: the paper's, then ours, each with the chapters that cite it."
    for chapter in chapters:
        prose = "\n\n".join("".join(cell["source"]) for cell in chapter.nb["cells"] if cell["cell_type"] == "markdown")
        for match in citations(prose):
            reference = cited(match, references)
            if reference and (chapter.name, chapter.title) not in reference.cited:
                reference.cited.append((chapter.name, chapter.title))

    def entry(r: Reference) -> str:
        title = f'<a href="{r.url}">{html.escape(r.title)}</a>' if r.url else html.escape(r.title)
        where = ", ".join(f'<a href="{name}.html">{html.escape(words)}</a>' for name, words in r.cited)
        number = f"[{r.number}] " if r.number else ""
        cited = f" Cited in {where}." if where else ""
        return (f'<p class="reference" id="{r.key}">{number}{html.escape(r.authors)}. <em>{title}</em>. '
                f"{html.escape(r.venue)}, {r.year}.{cited}</p>")

    theirs = sorted((r for r in references.values() if r.number), key=lambda r: int(r.number))
    ours = sorted((r for r in references.values() if not r.number), key=lambda r: (r.families[0], r.year))
    return "\n".join(["# References", "", "## The paper's", "", "By the numbers that the paper gives them.", "",
                      *map(entry, theirs), "", "## Ours", "", *map(entry, ours), ""])
