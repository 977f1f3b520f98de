__version__ = "0.1.0"

# what most programs need, each imported when it is first asked for: `import annotated_transformer` by itself costs nothing
_MODULES = {"BASE": "model", "BIG": "model", "Transformer": "model", "TransformerConfig": "model", "MultiHeadAttention": "attention",
            "Translator": "translation", "load": "translation"}
__all__ = [*_MODULES]


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
