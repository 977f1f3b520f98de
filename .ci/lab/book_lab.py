"""JupyterLab's server for the book: `make lab` loads it as a server extension.

A notebook on disk holds neither its kernel's version nor the authors' words. JupyterLab would write the first into each
notebook that it opens, so that every one asks to be saved; here they are put in as a notebook is opened, together with
the paragraphs of the reader's own copy of the paper, and taken out as it is saved.
"""
import copy
import os
import sys
from pathlib import Path

from ipykernel.ipkernel import IPythonKernel
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "site"))

import original  # noqa: E402

KERNEL = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
          "language_info": IPythonKernel.language_info}


class Notebooks(AsyncLargeFileManager):
    "Files on disk; a notebook as JupyterLab wants it."
    paper = original.Paper(os.environ["ANNOTATED_TRANSFORMER_PAPER"]) if os.environ.get(
        "ANNOTATED_TRANSFORMER_PAPER") else None

    async def get(self, path, content=True, type=None, format=None, **more):
        model = await super().get(path, content=content, type=type, format=format, **more)
        if model["type"] == "notebook" and model["content"]:
            nb = model["content"]
            nb["metadata"].update(copy.deepcopy(KERNEL))
            for cell in nb["cells"]:
                if cell["cell_type"] == "markdown":
                    cell["source"] = original.beside("".join(cell["source"]), self.paper)
        return model

    async def save(self, model, path=""):
        if model.get("type") == "notebook" and model.get("content"):
            for cell in model["content"]["cells"]:
                if cell["cell_type"] == "markdown":
                    cell["source"] = original.without("".join(cell["source"]))
        return await super().save(model, path)


def _jupyter_server_extension_points() -> list[dict]:
    return [{"module": "book_lab"}]


def _load_jupyter_server_extension(server) -> None:
    "Before JupyterLab's own (extensions load by name), which then finds custom.css here."
    server.web_app.settings["static_custom_path"] = [str(HERE)]
