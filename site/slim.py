"""Makes the theme's pages light: what no page of ours uses goes, and a link to a page gets words and a picture.

The theme loads a script of icons, the whole index of the search and a style sheet for every component that it has, on
each page and before the first word is drawn.
"""
import configparser
import html
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ABOUT = "Attention Is All You Need, section by section: live in your browser, as notebooks, and put to the test."
SEARCH = r"searchtools|language_data|searchindex"
LATER = r"doctools|sphinx_highlight|sphinx-book-theme"


def address() -> str:
    "Where the site will stand."
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "settings.ini", encoding="utf-8")
    return settings["DEFAULT"]["doc_host"] + settings["DEFAULT"]["doc_baseurl"] + "/"


def scripts(page: str, names: str, new: str) -> str:
    return re.sub(rf"<script([^>]*/?(?:{names})\.js[^>]*)></script>", new, page)


def head(page: str, name: str, about: str, base: str) -> str:
    "What other sites show of a link to the page."
    title = re.search(r"<title>(.*?)</title>", page, re.S)[1].split(" &#8212; ")[0].strip()
    words = html.escape(re.sub(r"[*`$]|\[([^]]*)\]\([^)]*\)", r"\1", about), quote=True)
    made = [f'<meta name="description" content="{words}">', '<meta property="og:type" content="article">',
            f'<meta property="og:title" content="{title}">', f'<meta property="og:description" content="{words}">',
            f'<meta property="og:url" content="{base}{name}.html">',
            f'<meta property="og:image" content="{base}_static/preview.png">',
            '<meta name="twitter:card" content="summary_large_image">']
    return page.replace("</title>", "</title>\n" + "\n".join(made), 1)


def rules(sheet: str) -> list[tuple[str, str]]:
    "A style sheet's rules: what stands before the braces, and what within."
    found, depth, begin, opened = [], 0, 0, 0
    for match in re.finditer(r"/\*.*?\*/|\"[^\"]*\"|'[^']*'|[{};]", sheet, re.S):
        mark = match[0]
        if mark == "{":
            opened = match.end() if depth == 0 else opened
            depth += 1
        elif mark == "}":
            depth -= 1
            if depth == 0:
                found.append((sheet[begin : opened - 1], sheet[opened : match.start()]))
                begin = match.end()
        elif mark == ";" and depth == 0:  # @charset, @import
            found.append((sheet[begin : match.end()], ""))
            begin = match.end()
    return found


def used(sheet: str, words: set[str]) -> str:
    "The style sheet without rules for classes and ids that no page has; a word of a script may be one."
    kept = []
    for before, within in rules(sheet):
        at = before.lstrip()
        if at.startswith(("@media", "@supports", "@layer")):
            inner = used(within, words)
            kept.append(f"{before}{{{inner}}}" if inner else "")
        elif at.startswith("@font-face") and "Font Awesome" in within:
            continue
        elif at.startswith("@"):
            kept.append(f"{before}{{{within}}}" if not before.endswith(";") else before)
        elif any(set(re.findall(r"[.#](-?[A-Za-z_][\w-]*)", one)) <= words for one in before.split(",")):
            kept.append(f"{before}{{{within}}}")
    return "".join(kept)


def slim(site: Path, about: dict[str, str]) -> None:
    "Every page of the built site; `about` has a line for each chapter."
    base, words = address(), set()
    for path in site.rglob("*.html"):
        name = path.relative_to(site).with_suffix("").as_posix()
        if name.startswith("_static/"):
            continue
        page = scripts(path.read_text(encoding="utf-8"), "fontawesome", "")
        # code whose colour says nothing: names, punctuation, operators, spaces, text within strings
        page = re.sub(r'<span class="(?:n|p|o|w|nn|si|fm|bp)">([^<]*)</span>', r"\1", page)
        page = page.replace("padding: 4px 14px; vertical-align: top; border: none; ", "")  # book.css has it
        page = re.sub(r'<(t[dh][^>]*) style="text-align: (r|l)(?:ight|eft);?">', r'<\1 class="\2">', page)
        page = re.sub(r"<img (?![^>]*loading=)", '<img loading="lazy" ', page)
        if name != "search":
            page = scripts(scripts(page, SEARCH, ""), LATER, r"<script defer\1></script>")
        else:
            page = scripts(page, "searchtools", r'<script\1></script><script src="_static/search.js"></script>')
        page = re.sub(r"<title>\s*(.*?) &#8212; \1\s*</title>", r"<title>\1</title>", page)  # the front page's
        page = head(page, name, about.get(name, ABOUT), base)
        path.write_text(page, encoding="utf-8")
        words.update(re.findall(r"[\w-]+", page))
    static = site / "_static"
    for script in static.rglob("*.js"):
        if not {"charts", "mathjax", "fontawesome.js", "vega.js"} & set(script.relative_to(static).parts):
            words.update(re.findall(r"[\w-]+", script.read_text(encoding="utf-8")))
    for sheet in static.rglob("*.css"):
        short = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", sheet.read_text(encoding="utf-8"), flags=re.S))
        sheet.write_text(used(short, words), encoding="utf-8")
    for waste in [*static.rglob("*.map"), *static.rglob("fontawesome.js*"), *static.glob("vendor/fontawesome/**/*")]:
        if waste.is_file():
            waste.unlink()
