"Where the repository is, the data beside it, and how a user's error is asked for."
import warnings
from pathlib import Path

import pytest

from annotated_transformer.tools.files import InputError

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT.parent / "shared" / "data"  # beside the repository, where it is there at all


def shared(name: str) -> Path:
    """Data that lie beside the repository.

    Where they do not, the test is skipped, and pytest's summary says which and why.
    """
    if not (SAMPLE / name).is_dir():
        warnings.warn(f"not tested: there is no ../shared/data/{name} beside the repository")
        pytest.skip(f"no ../shared/data/{name}")
    return SAMPLE / name


def fails(act, *named):
    "An InputError of one line in which everything named stands."
    with pytest.raises(InputError) as error:
        act()
    assert "\n" not in str(error.value)
    for name in named:
        assert str(name) in str(error.value), str(error.value)
