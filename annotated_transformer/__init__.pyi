"The types of the names that `__init__.py` gives: tests/test_types.py holds the two together."
from .corpus.batching import encode_corpus
from .corpus.corpora import Corpus, file_corpus
from .corpus.vocabulary import BytePairVocabulary, learn_vocabulary, load_vocabulary
from .decoding.evaluation import evaluate
from .decoding.scores import bleu
from .decoding.search import SearchConfig
from .decoding.translation import Translator, load
from .model.attention import MultiHeadAttention
from .model.symbols import END, PAD, START, UNKNOWN
from .model.transformer import BASE, BIG, Transformer, TransformerConfig
from .tools.files import InputError
from .training.loop import train
from .training.presets import TrainingConfig, preset_named
from .training.runs import Run
from .training.starting import start_run

__version__: str
__all__ = ["BASE", "BIG", "Transformer", "TransformerConfig", "MultiHeadAttention", "PAD", "UNKNOWN", "START", "END",
           "Corpus", "file_corpus", "BytePairVocabulary", "learn_vocabulary", "load_vocabulary", "encode_corpus",
           "TrainingConfig", "preset_named", "Run", "start_run", "train", "SearchConfig", "Translator", "load",
           "bleu", "evaluate", "InputError"]
