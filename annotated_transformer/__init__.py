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

# What files and options call by a name, with the module that has it: here, so that no room names one above it.
_KINDS = {  # of models: the configuration and the model
    "transformer": "model.transformer TransformerConfig Transformer",
    "recurrent": "rivals.recurrent RecurrentConfig Recurrent",
    "input-feeding": "rivals.input_feeding InputFeedingConfig InputFeeding",
    "deep-att": "rivals.deep_att DeepAttConfig DeepAtt",
    "convolutional": "rivals.convolutional ConvolutionalConfig Convolutional",
    "bytenet": "rivals.bytenet ByteNetConfig ByteNet",
    "mixture-of-experts": "rivals.mixture_of_experts MixtureConfig Mixture",
}
_IMPORTED = {"imported": "imports.imported ImportedConfig Imported"}  # a run may hold it; it is not trained
_PRESETS = {  # a function of the name
    **dict.fromkeys(["parser", "parser-semi", "parser-small"], "parsing.parser parser_preset"),
    **dict.fromkeys(["rival-transformer", "recurrent-own", "convolutional-own", "bytenet-own"],
                    "rivals.base rival_preset"),
}
_VOCABULARIES = {".imported": "imports.imported ImportedVocabulary"}  # by the suffix of the file
_COMMAND_LINE = ("annotated_transformer.__main__", "annotated_transformer.commands.cli")


def _find(place: str) -> list:
    "What a module has by these names: `MODULE NAME ...`."
    from importlib import import_module

    module, *names = place.split()
    found = import_module(f"{__name__}.{module}")
    return [getattr(found, name) for name in names]


def __getattr__(name: str):
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _find(f"{_PLACES[name]} {name}")[0]


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
