"""Sphinx's settings for the book. site/build.py copies this file beside the pages that it makes, and builds there."""
import configparser
import json
from pathlib import Path

HERE = Path(__file__).parent
settings = configparser.ConfigParser(interpolation=None)
settings.read(HERE / "settings.ini", encoding="utf-8")
settings = settings["DEFAULT"]
project = "Attention Is All You Need, annotated"
author = "The annotated-transformer developers"
copyright = "2026 onwards, the annotated-transformer developers"
language = "en"

extensions = ["myst_nb"]
exclude_patterns = ["extra", "figures", "results", "_static", "_templates"]
nb_execution_mode = "off"  # the notebooks hold their outputs
nb_code_prompt_show = "Show {type}"
nb_code_prompt_hide = "Hide {type}"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # tables in outputs, too
myst_enable_extensions = ["amsmath", "attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
myst_heading_slug_func = "chapters.anchor"
suppress_warnings = ["myst.header"]  # a chapter may go from a title to a third-level heading inside a folded part

html_theme = "sphinx_book_theme"
templates_path = ["_templates"]
html_sidebars = {"**": ["home.html", "icon-links.html", "search-button-field.html", "contents.html"]}
html_title = project
html_search_scorer = str(HERE / "scorer.js")
html_static_path = ["_static"]
html_extra_path = ["extra"]
html_favicon = "_static/favicon.svg"
html_css_files = ["book.css"]
html_js_files = [("charts.js", {"defer": "defer"})]
html_context = {"default_mode": "auto", "folds": json.loads((HERE / "folds.json").read_text(encoding="utf-8"))}
html_copy_source = html_show_sourcelink = html_use_index = False
html_last_updated_fmt = None
mathjax_path = "mathjax/startup.js"
mathjax3_config = {"loader": {"load": ["input/tex-base", "[tex]/ams", "output/chtml", "a11y/assistive-mml"]},
                   "tex": {"packages": {"[+]": ["ams"]}}, "chtml": {"scale": 0.96}}
pygments_style = "a11y-high-contrast-light"
html_theme_options = {
    "repository_url": settings["git_url"],
    "repository_branch": settings["branch"],
    "path_to_docs": "nbs",
    "launch_buttons": {"colab_url": "https://colab.research.google.com"},
    "use_issues_button": True,
    "use_repository_button": True,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_toc_level": 2,
    "toc_title": "In this chapter",
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def setup(app):
    "The links at a page's end lead from the book's last chapter to no appendix, and back."
    ends = json.loads((HERE / "ends.json").read_text(encoding="utf-8"))

    def within(app, name, template, context, doctree):
        if name == ends["last"] and ends["first"]:
            context["next"] = None
        if name == ends["first"]:
            context["prev"] = None

    app.connect("html-page-context", within)
