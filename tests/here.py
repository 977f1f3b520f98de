"Where the repository is, the data beside it, and what tests of several rooms ask."
import os
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from annotated_transformer.corpus.batching import encode_corpus
from annotated_transformer.corpus.corpora import Corpus, grammar_corpus
from annotated_transformer.corpus.vocabulary import BytePairVocabulary
from annotated_transformer.drawing.result_tables import ResultTable, write_tables
from annotated_transformer.parsing.parser import PARSER_SMALL
from annotated_transformer.tools.files import InputError
from annotated_transformer.training.presets import TINY, TrainingConfig

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT.parent / "shared" / "data"  # beside the repository, where it is there at all
# what each kind of model is tried out with: no more weights than a test needs
SMALL = {
    "transformer": {"n_layers": 1, "d_model": 16, "d_ff": 32, "n_heads": 2, "d_k": 8, "d_v": 8},
    "bag": {"d_model": 16, "looseness": 0.2},
    "recurrent": {"d_model": 12, "n_layers": 3},
    "input-feeding": {"d_model": 12, "n_layers": 3},
    "deep-att": {"d_model": 12, "n_layers": 3},
    "convolutional": {"d_model": 12, "n_layers": 3, "kernel": 3},
    "bytenet": {"d_model": 12, "n_layers": 4, "max_dilation": 4},
    "mixture-of-experts": {"d_model": 12, "n_layers": 3, "n_experts": 5, "d_expert": 8, "experts_used": 2},
}
RIVALS = [kind for kind in SMALL if kind not in ("transformer", "bag")]
CODE = ROOT / "tests" / "data" / "bag.py"  # registers the kind bag
SHAPE = replace(TINY, vocab_size=300, **SMALL["transformer"])
TRAINING = TrainingConfig(steps=24, warmup_steps=8, batch_tokens=300, save_every=4, report_every=2, keep=2,
                          precision="float32")
TREES = {"train": 300, "dev": 20, "test": 30, "test_long": 10}
PARSER_SHAPE = replace(PARSER_SMALL, **SMALL["transformer"])
PARSER_TRAINING = TrainingConfig(steps=8, warmup_steps=4, lr_scale=1.0, batch_tokens=1000, save_every=4, report_every=4,
                                 precision="float32")


DAILY = True  # the slow tests are left out: conftest.py asks the command line


def examples(n: int) -> int:
    "How many examples Hypothesis tries: `n`, and a fifth of them in `make test`."
    return n // 5 if DAILY else n


def small_corpus(folder: Path, train: int = 200, dev: int = 12) -> Corpus:
    "Sentences of the grammar, encoded with a vocabulary of 300 tokens."
    corpus = grammar_corpus(folder, train=train, dev=dev, test=5, test_long=5)
    encode_corpus(corpus, BytePairVocabulary.learn((line for pair in corpus.pairs("train") for line in pair), 300))
    return corpus


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


def unlike_the_saved(tables: Mapping[str, ResultTable], monkeypatch) -> list[str]:
    "The files of `figures/tables` that do not show these tables."
    # as deep, so the links are the same
    saved, fresh = ROOT / "figures" / "tables", ROOT / "build" / f"tables-{os.getpid()}"
    monkeypatch.chdir(ROOT)
    try:
        return [path.name for path in write_tables(tables, fresh)
                if (saved / path.name).read_bytes() != path.read_bytes()]
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def same_weights(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())
