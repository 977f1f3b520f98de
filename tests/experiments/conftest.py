"No checker of annotations here: experiments put modules of their own into the core's places."
import jaxtyping
import pytest


@pytest.fixture(scope="package", autouse=True)
def unchecked():
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
