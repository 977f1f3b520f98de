"What tests of several rooms ask for."
import jaxtyping
import pytest


@pytest.fixture
def unchecked():
    "PyTorch traces with numbers that are no int, and through no checker."
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
