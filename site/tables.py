"""One style for every table: pandas' own and its Styler's become as plain as the book's.

Text stands to the left, numbers to the right, and rows have no numbers.
"""
import re

NUMBER = re.compile(r"[-+−±]?[\d.,\s%×·e^+-]*\d[\d.,\s%×·e^+±-]*")


def is_number(text: str) -> bool:
    return bool(NUMBER.fullmatch(text.strip()))


def marked(html: str) -> str:
    """HTML whose cells say how their lines may break: `data-whole` is a short label, `data-long` has a digest, say.

    The style sheet keeps `layer 1, head 2` on one line where it fits, and breaks a digest on a telephone.
    """
    def cell(match: re.Match) -> str:
        tag, about, words = match.groups()
        whole, long = " " in words and len(words) <= 24, bool(re.search(r"\S{22}", words))
        return f"<{tag}{' data-whole' * whole}{' data-long' * long}{about}>{words}"

    return re.sub(r"<(t[dh])\b([^>]*)>([^<>]+)(?=</t[dh]>)", cell, html)


def plain(html: str) -> str:
    "HTML with a table of pandas' in the book's style; other HTML but for its labels as it is."
    if 'class="dataframe"' not in html and "T_" not in html:
        return marked(html)
    from bs4 import BeautifulSoup
    page = BeautifulSoup(html, "html.parser")
    for element in page.find_all("style"):
        element.decompose()
    for table in page.find_all("table"):
        numbers = [row.find("th").get_text() for row in table.select("tbody tr") if row.find("th")]
        counted = bool(numbers) and numbers == [str(i) for i in range(len(numbers))]
        if counted and len(table.select("thead tr")) == 1:  # an index that says nothing
            for row in table.find_all("tr"):
                row.find("th").extract()
        body = [row.find_all(["th", "td"], recursive=False) for row in table.select("tbody tr")]
        width = min(map(len, body), default=0)
        columns = [[row[i].get_text() for row in body] for i in range(width)]
        sides = ["right" if all(map(is_number, filter(None, column))) else "left" for column in columns]
        for element in [table, *table.find_all(True)]:
            element.attrs = {k: v for k, v in element.attrs.items() if k in ("href", "colspan", "rowspan")}
        for row in table.find_all("tr"):
            cells = row.find_all(["th", "td"], recursive=False)
            for side, cell in zip(sides if len(cells) == width else ["left"] * len(cells), cells):
                cell["style"] = f"text-align: {side}"
        table["class"] = "plain"
    return marked(str(page))
