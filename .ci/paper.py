"""Prints where the reader's copy of the paper's source lies, if there is one: `make lab` and `make site` call it.

A person at a terminal is asked once whether to fetch it. The answer is kept beside the copy, outside the checkout.
"""
import os
import sys
from pathlib import Path

from annotated_transformer.paper.source import ENVIRONMENT, URL, PaperUnavailable, cache_path, read_source

QUESTION = """The chapters restate the paper in their own words. The authors' words can stand folded beside them.
Fetch the paper's source from {url} and keep it in {folder}? Asked this once. [y/N] """


def offered() -> Path | None:
    "The copy; None where there is none, or where nobody wants one or is there to say so."
    if os.environ.get(ENVIRONMENT):
        return Path(os.environ[ENVIRONMENT]).expanduser()
    copy = cache_path()
    refused = copy.parent / "asked"
    if copy.exists():
        return copy
    if refused.exists() or os.environ.get("CI") or not sys.stdin.isatty():
        return None
    print(QUESTION.format(url=URL, folder=copy.parent), end="", file=sys.stderr, flush=True)
    try:
        wanted = input().strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        print(file=sys.stderr)
        return None
    if not wanted:
        refused.parent.mkdir(parents=True, exist_ok=True)
        refused.write_text("No copy of the paper is wanted: remove this file to be asked again.\n", encoding="utf-8")
        return None
    try:
        read_source()
    except PaperUnavailable as error:
        print(f"{error} The chapters open without it.", file=sys.stderr)
    return copy if copy.exists() else None


if __name__ == "__main__":
    print(offered() or "")
