"One installation for all tests that ask for it."
from installed import run, wheel  # noqa: F401
