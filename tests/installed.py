"""The package as others get it: built, and installed into an environment that has its run-time dependencies and nothing
else."""
import importlib.metadata as metadata
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from here import ROOT

EXTRAS = ["altair", "pandas", "vl_convert", "PIL", "sacrebleu", "sacremoses", "regex", "yaml"]


def settings() -> dict[str, str]:
    config = ConfigParser(delimiters=["="], interpolation=None)
    config.read(ROOT / "settings.ini", encoding="utf-8")
    return dict(config["DEFAULT"])


def requirements(*but: str) -> list[str]:
    "All requirements in settings.ini, `but` those of some extras."
    return [r for key, line in settings().items() if key.endswith("requirements")
            and key.removesuffix("_requirements") not in but for r in line.split()]


def closure(requirements: list[str]) -> list[metadata.Distribution]:
    "The installed distributions that `requirements` need, and those that they need in their turn."
    found, waiting = {}, [Requirement(r) for r in requirements]
    while waiting:
        requirement = waiting.pop()
        key = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if key not in found:
            found[key] = metadata.distribution(requirement.name)
            for needed in map(Requirement, found[key].requires or []):
                if needed.marker is None or any(needed.marker.evaluate({"extra": extra})
                                                for extra in {""} | requirement.extras):
                    waiting.append(needed)
    return list({name: distribution for (name, _), distribution in found.items()}.values())


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    "The wheel, built from the source distribution, built from what belongs to the package in the checkout."
    tmp = tmp_path_factory.mktemp("build")
    source = tmp / "source"
    shutil.copytree(ROOT / "annotated_transformer", source / "annotated_transformer",
                    ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "nbs/results", source / "nbs/results")
    for name in ("settings.ini", "constraints.txt", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE",
                 "CITATION.cff"):
        shutil.copy(ROOT / name, source)
    build = "import sys, setuptools.build_meta as b; getattr(b, sys.argv[1])(sys.argv[2])"
    subprocess.run([sys.executable, "-c", build, "build_sdist", tmp], cwd=source, check=True, capture_output=True)
    shutil.unpack_archive(next(tmp.glob("*.tar.gz")), tmp / "unpacked")
    subprocess.run([sys.executable, "-c", build, "build_wheel", tmp], cwd=next((tmp / "unpacked").iterdir()),
                   check=True, capture_output=True)
    return next(tmp.glob("*.whl"))


def environment(tmp: Path, wheel: Path, dependencies: list[str]) -> Path:
    "The Python of a fresh environment in `tmp` with the wheel and links to `dependencies` as they are installed here."
    venv.create(tmp / "env", with_pip=False)
    python = tmp / "env/bin/python"
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install",
                    "--quiet", "--no-deps", "--no-index", wheel], check=True, capture_output=True)
    # file by file as their own records list them: PyTorch need not be installed a second time
    links = tmp / "dependencies"
    links.mkdir()
    for distribution in closure(dependencies):
        for top in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            if not (links / top).exists():
                (links / top).symlink_to(Path(distribution.locate_file(top)).absolute())
    site = next((tmp / "env/lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(f"{links}\n")
    return python


@pytest.fixture(scope="session")
def run(wheel: Path, tmp_path_factory) -> Callable:
    "`run(command, ...)` runs a command of the fresh environment in an empty folder and gives its standard output."
    tmp = tmp_path_factory.mktemp("installed")
    python = environment(tmp, wheel, requirements("dev", "watch", "export", "corpora", "experiments"))
    (tmp / "elsewhere").mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(*command: str) -> str:
        done = subprocess.run([python.parent / command[0], *command[1:]], cwd=tmp / "elsewhere", env=env, text=True,
                              capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def plainly(run: Callable, *commands: list) -> str:
    "What commands print in a plain installation: what the extras bring is hidden."
    return run("python", "-I", "-c", f"""
import sys
sys.modules |= dict.fromkeys({EXTRAS})
from annotated_transformer.commands.cli import main
for command in {[[*map(str, command)] for command in commands]}:
    main(command)
""")
