"""Writes README.md from nbs/index.ipynb: `make readme` calls it.

Of a folded cell it shows the output alone; cells with the tag `map`, the list of chapters, are left out.
"""
import re
from pathlib import Path


def readme(index: Path) -> str:
    "The index as Markdown, with links for a reader one folder higher: they lose their ../ or gain nbs/."
    from nbconvert import MarkdownExporter
    from traitlets.config import Config

    folded = {"enabled": True, "remove_input_tags": {"hide-input"}, "remove_cell_tags": {"map"}}
    made, _ = MarkdownExporter(config=Config(TagRemovePreprocessor=folded)).from_filename(str(index))
    made = re.sub(r"\]\((?=[\w./-]+\.(?:ipynb|jsonl?|toml))(?!\.\./)", "](nbs/", made).replace("](../", "](")
    lines, open_block = [], False
    for line in map(str.rstrip, made.splitlines()):
        if line.startswith("```"):
            open_block = not open_block
            line = "```python" if open_block and line == "```" else line
        if line or (lines and lines[-1]):  # one empty line is enough
            lines.append(line)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    (root / "README.md").write_text(readme(root / "nbs" / "index.ipynb"), encoding="utf-8")
