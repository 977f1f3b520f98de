"""What checks the annotations of the package as its tests run (jaxtyping's plugin asks for it by name).

An int is a float, too; a NumPy integer is an int and, where PyTorch exports a model, so is a symbol. A command's
`**options` name the class that its options come from.
"""
from contextlib import contextmanager
from dataclasses import is_dataclass
from inspect import signature

import jaxtyping
import numpy as np
import pytest
from beartype import BeartypeConf, BeartypeHintOverrides, beartype
from torch import SymInt

typed = beartype(conf=BeartypeConf(is_pep484_tower=True,
                                   hint_overrides=BeartypeHintOverrides({int: int | np.integer | SymInt})))


def check(function):
    named = any(p.kind is p.VAR_KEYWORD and is_dataclass(p.annotation) for p in signature(function).parameters.values())
    return function if named else typed(function)


@contextmanager
def without_checker():
    "For a test that passes what no annotation allows, as a user might: `@without_checker()`."
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="package", autouse=True)
def unchecked():
    "No checker in the packages whose conftest imports this; each says why."
    with without_checker():
        yield
