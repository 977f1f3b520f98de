from .._moved import forward

__getattr__ = forward(__name__, "tables")
