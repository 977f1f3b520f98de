"A chapter alone, as a hosted notebook runs it: an empty folder, the package from its wheel, no checkout."
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from here import ROOT
from installed import environment, requirements

pytestmark = [pytest.mark.xdist_group("package"), pytest.mark.slow]
CONTENTS = tomllib.loads((ROOT / "nbs/contents.toml").read_text(encoding="utf-8"))
BOOK = [chapter["path"] for part in CONTENTS["part"] for chapter in part["chapter"] if not chapter.get("appendix")]


@pytest.fixture(scope="session")
def hosted(wheel, tmp_path_factory) -> Path:
    "The Python of an environment with the wheel and everything that runs notebooks."
    return environment(tmp_path_factory.mktemp("hosted"), wheel, requirements())


@pytest.mark.parametrize("name", BOOK)
def test_a_chapter_runs_alone(hosted, tmp_path, name):
    shutil.copy(ROOT / "nbs" / f"{name}.ipynb", tmp_path / "chapter.ipynb")
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "ANNOTATED_FIGURES"))}
    done = subprocess.run([hosted, "-I", "-m", "nbconvert", "--to", "notebook", "--execute", "--output", "run.ipynb",
                           "--ExecutePreprocessor.kernel_name=python3", "chapter.ipynb"], cwd=tmp_path,
                          env=env | {"ANNOTATED_UPDATES": "60", "JUPYTER_PATH": "", "JUPYTER_DATA_DIR": str(tmp_path)},
                          text=True, capture_output=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert str(ROOT) not in (tmp_path / "run.ipynb").read_text(encoding="utf-8")
