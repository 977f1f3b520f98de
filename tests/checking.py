"""What checks the annotations of the core as its tests run (jaxtyping's plugin asks for it by name).

An int is a float, too, and where PyTorch exports a model, a length is a symbol.
"""
import jaxtyping
import pytest
from beartype import BeartypeConf, BeartypeHintOverrides, beartype
from torch import SymInt

check = beartype(conf=BeartypeConf(is_pep484_tower=True, hint_overrides=BeartypeHintOverrides({int: int | SymInt})))


@pytest.fixture(scope="package", autouse=True)
def unchecked():
    "No checker in the packages whose conftest imports this; each says why."
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
