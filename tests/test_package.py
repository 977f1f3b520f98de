"The package as others get it, used elsewhere."
import os
import re
import shutil
import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from here import ROOT
from installed import EXTRAS, closure, requirements, settings

pytestmark = pytest.mark.xdist_group("package")  # one process builds and installs for all of these
HEAVY = ["altair", "pandas", "vl_convert", "datasets", "sentencepiece", "tokenizers", "sacrebleu", "sacremoses",
         "nbdev", "fastcore", "IPython"]


def test_names_of_the_package_and_a_forward_pass(run):
    "The names that most programs need are there; the package by itself and its help load nothing; no tool is near."
    run("python", "-I", "-c", f"""
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import annotated_transformer
import annotated_transformer.commands.cli
assert "torch" not in sys.modules
assert Path(annotated_transformer.__file__).is_relative_to(sys.prefix), annotated_transformer.__file__
assert annotated_transformer.__version__ == {settings()["version"]!r}
for name in ("nbdev", "fastcore", "datasets", "IPython", "jupytext", "pytest"):  # or the tests here would prove little
    assert not importlib.util.find_spec(name), name
from annotated_transformer import BASE, MultiHeadAttention, Transformer, Translator
assert Transformer.__module__ == "annotated_transformer.model.transformer" and BASE.d_model == 512
assert set(annotated_transformer.__all__) <= set(dir(annotated_transformer))
assert not hasattr(annotated_transformer, "nothing")

import torch
model = Transformer(replace(BASE, vocab_size=11, n_layers=2, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8))
logits = model(torch.randint(4, 11, (3, 7)), torch.randint(4, 11, (3, 5)))
assert logits.shape == (3, 5, 11) and logits.isfinite().all()
logits.sum().backward()
""")


def test_imports_are_light(run):
    "Each module of the wheel loads PyTorch and little else."
    package = ROOT / "annotated_transformer"
    modules = sorted(".".join(path.relative_to(package).with_suffix("").parts) for path in package.rglob("*.py")
                     if not path.stem.startswith("_") and path.parent.name != "experiments")
    printed = run("python", "-I", "-c", f"""
import importlib, sys
for module in {modules}:
    before = set(sys.modules)
    importlib.import_module("annotated_transformer." + module)
    for name in {HEAVY}:
        if name in set(sys.modules) - before:
            print(f"annotated_transformer.{{module}} loads {{name}}: import it in the function that uses it")
            sys.modules.pop(name)
""")
    assert not printed, printed


def test_the_weights_that_ship_need_no_extra(run):
    """They are inside the wheel, at most 24 MB of them, and translate where what the extras bring is hidden.

    A function that misses a library says in one line which extra has it, and so does the command line.
    """
    shipped = [path for path in (ROOT / "annotated_transformer/pretrained").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in shipped) <= 24e6
    printed = run("python", "-I", "-c", f"""
import sys
sys.modules |= dict.fromkeys({EXTRAS})
import annotated_transformer
from annotated_transformer import load
from annotated_transformer.commands import cli
from annotated_transformer.decoding import scores
from annotated_transformer.tools import records
print(load("grammar").translate("The cow is old, but it plays."), records.versions()["torch"] != "")
print(load("ende").translate("The weather will be nice tomorrow."))
assert "sympy" not in sys.modules  # PyTorch's compiler comes with it: seconds, and 70 MB
for extra, call in (("scores", lambda: scores.bleu(["a"], ["a"])), ("all", lambda: cli.run_command(["demo"]))):
    try:
        call()
    except annotated_transformer.InputError as error:
        assert f"[{{extra}}]" in str(error) and "\\n" not in str(error), error
        print(extra)
""")
    assert printed.splitlines() == ["Die Kuh ist alt, aber sie spielt. True", "Das Wetter wird morgen schön sein.",
                                    "scores", "all"]


def test_extras_that_errors_name_are_there():
    extras = {key.removesuffix("_requirements") for key in settings() if key.endswith("_requirements")} | {"all"}
    named = {(path.name, extra) for path in (ROOT / "annotated_transformer").rglob("*.py")
             for extra in re.findall(r'\bneeds\([^(),]+, "(\w+)"\)', path.read_text(encoding="utf-8"))}
    assert named and {extra for _, extra in named} <= extras, named


def test_public_names_are_documented():
    import annotated_transformer

    page = (ROOT / "site/pages/public_names.md").read_text(encoding="utf-8")
    named = [name for row in re.findall(r"^\| (`[^|]+) \|", page, re.M) for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(annotated_transformer.__all__)
    for name in annotated_transformer.__all__:
        assert getattr(annotated_transformer, name) is not None
    for block in re.findall(r"```python\n(.*?)```", page, re.S):
        for imported in re.findall(r"from annotated_transformer import (.+)", block):
            assert {*imported.split(", ")} <= {*annotated_transformer.__all__}
        compile(block, "public_names.md", "exec")


def test_the_package_says_that_it_has_types_and_how_to_cite_it(wheel):
    import zipfile

    import yaml

    assert "annotated_transformer/py.typed" in zipfile.ZipFile(wheel).namelist()
    assert any(name.startswith("annotated_transformer/resources/") for name in zipfile.ZipFile(wheel).namelist())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == settings()["version"] and citation["references"][0][
        "title"] == "Attention Is All You Need"


def test_console_script(run):
    printed = run("annotated-transformer", "--help")
    commands = ("prepare", "prepare multi30k", "prepare wmt14", "train", "translate", "evaluate", "parse", "export",
                "demo")
    told = run("python", "-I", "-c", f"""
import contextlib
from annotated_transformer.commands.cli import main
for command in {commands}:
    with contextlib.suppress(SystemExit):
        main([*command.split(), "--help"])
    print("the end")
""").lower().split("the end\n")[:-1]
    names = "|".join(sorted(commands, reverse=True))  # the longer name first
    in_readme = re.findall(rf"annotated-transformer ({names})\b(.*)", (ROOT / "README.md").read_text(encoding="utf-8"))
    for command, helped in zip(commands, told, strict=True):
        assert command.split()[0] in printed
        assert f"usage: annotated-transformer {command}" in helped
        for option in {option for name, line in in_readme if name == command
                       for option in re.findall(r" (--\w[\w-]*)", line)}:
            assert option in helped, f"README.md has `annotated-transformer {command} ... {option}`, which there is not"


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {canonicalize_name(name): version for name,
            version in (line.split("==") for line in lines if line and not line.startswith("#"))}


def test_constraints_fit_the_requirements():
    versions = pinned()
    for text in requirements():
        requirement = Requirement(text)
        assert requirement.specifier.contains(
            versions[canonicalize_name(requirement.name)]), f"constraints.txt does not fit {text}"


@pytest.mark.skipif(sys.platform != "linux",
                    reason="the pins were made on Linux; other systems need a few packages of their own")
def test_constraints_are_whole():
    "Every distribution that is installed for the project is pinned, so that `make` sets up the same tomorrow."
    needed = closure(requirements())
    names = {canonicalize_name(d.metadata["Name"]) for d in needed
             if not re.match(r"nvidia-|triton|cuda-", d.metadata["Name"])}
    assert names <= pinned().keys(), f"constraints.txt lacks {', '.join(sorted(names - pinned().keys()))}"


@pytest.mark.slow
def test_a_revision_tells_of_changed_code_and_not_of_new_records(tmp_path):
    checkout = tmp_path / "checkout"
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    subprocess.run(["git", "clone", "-q", "--depth", "1", ROOT.as_uri(), checkout], check=True)

    def told() -> str:
        environment = {k: v for k, v in os.environ.items() if k != "ANNOTATED_REVISION"}
        program = "from annotated_transformer.tools.records import revision; print(revision())"
        return subprocess.run([sys.executable, "-c", program], cwd=checkout, env=environment, check=True,
                              capture_output=True, text=True).stdout.strip()

    shutil.copytree(ROOT / "annotated_transformer", checkout / "annotated_transformer", dirs_exist_ok=True)
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qam", "as it is",
                    "--allow-empty"], cwd=checkout, check=True)
    clean = told()
    assert re.fullmatch("[0-9a-f]{12}", clean)
    record = next((checkout / "nbs" / "results").glob("*.jsonl"))
    record.write_text("{}")
    assert told() == clean
    (checkout / "README.md").write_text("changed")
    assert told() == clean + "-dirty"
