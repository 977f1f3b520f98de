"No checker of annotations here: PyTorch's exporter hands the core lengths that are symbols."
import jaxtyping
import pytest


@pytest.fixture(scope="package", autouse=True)
def unchecked():
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
