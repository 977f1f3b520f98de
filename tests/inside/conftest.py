"One browser for the tests of a file."
import pytest

from browser import browser


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page
