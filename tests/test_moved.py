"""The names of 0.1: each old module imports, is the new one, and says so."""
import importlib
import subprocess
import sys
import warnings

import pytest

from annotated_transformer import _moved


@pytest.mark.parametrize("old, new", sorted(_moved.MOVED.items()))
def test_an_old_module_is_the_new_one_and_says_so(old, new, monkeypatch):
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"^{old} is now {new}: the old name goes in 0.3$"):
        module = importlib.import_module(old)
    assert module is importlib.import_module(new)


@pytest.mark.parametrize("room, module, name", [
    ("model", "transformer", "Transformer"), ("model", "transformer", "PAD"), ("training", "loop", "train"),
    ("decoding", "search", "beam_search"), ("parsing", "parser", "PARSER"), ("paper", "tables", "as_printed")])
def test_a_room_with_the_name_of_an_old_module_has_its_names(room, module, name):
    with pytest.warns(DeprecationWarning,
                      match=f"annotated_transformer.{room}.{module}.{name}: the old name goes in 0.3"):
        found = getattr(importlib.import_module(f"annotated_transformer.{room}"), name)
    assert found is getattr(importlib.import_module(f"annotated_transformer.{room}.{module}"), name)


def test_the_new_names_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for new in _moved.MOVED.values():
            importlib.import_module(new)


def test_a_module_of_a_room_is_no_old_name():
    "Though training.loop has a function of that name: in a new process, as the module must not be loaded yet."
    program = "from annotated_transformer.training import loop; print(loop.__name__)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert done.stdout == "annotated_transformer.training.loop\n", done.stderr


def test_old_names_that_never_were():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("annotated_transformer.nothing")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        importlib.import_module("annotated_transformer.training").nothing  # noqa: B018


def test_programs_run_by_their_old_names():
    done = subprocess.run([sys.executable, "-W", "default", "-m", "annotated_transformer.cli", "--help"],
                          capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("usage: annotated-transformer COMMAND")
    assert "annotated_transformer.cli is now annotated_transformer.commands.cli" in done.stderr
