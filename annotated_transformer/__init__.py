"What most programs need, each imported when it is first asked for: `import annotated_transformer` by itself loads nothing."
__version__ = "0.1.0"

from . import _moved  # noqa: F401  the names of 0.1 work until 0.3

_MODULES = {
    "BASE": "model.transformer", "BIG": "model.transformer", "Transformer": "model.transformer", "TransformerConfig": "model.transformer",
    "MultiHeadAttention": "model.attention", "Translator": "decoding.translation", "load": "decoding.translation",
}
__all__ = [*_MODULES]


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
