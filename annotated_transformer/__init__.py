"""What most programs need, each imported when it is first asked for:

`import annotated_transformer` by itself loads nothing.
"""
__version__ = "0.3.0"

_MODULES = {  # site/pages/public_names.md says what each is, __init__.pyi of which type
    "model.transformer": "BASE BIG Transformer TransformerConfig",
    "model.attention": "MultiHeadAttention",
    "model.symbols": "PAD UNKNOWN START END",
    "corpus.corpora": "Corpus file_corpus",
    "corpus.vocabulary": "BytePairVocabulary learn_vocabulary load_vocabulary",
    "corpus.batching": "encode_corpus",
    "training.presets": "TrainingConfig preset_named",
    "training.runs": "Run",
    "training.starting": "start_run",
    "training.loop": "train",
    "decoding.search": "SearchConfig",
    "decoding.translation": "Translator load",
    "decoding.scores": "bleu",
    "decoding.evaluation": "evaluate",
    "tools.files": "InputError",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = [*_PLACES]


def __getattr__(name: str):
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
