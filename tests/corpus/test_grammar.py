"""The built-in grammar as the corpus and the demo use it: full size, reproducible in another process, with sound
structure."""
import hashlib
import os
import subprocess
import sys
from itertools import islice

import pytest

from annotated_transformer.corpus.grammar import examples, n_words, splits

PRINT_DIGEST = """
import hashlib
from itertools import islice
from annotated_transformer.corpus.grammar import examples
print(hashlib.sha256("".join(map(repr, islice(examples(7), 300))).encode()).hexdigest())
"""


TOGETHER = pytest.mark.xdist_group("sets of the grammar")  # one process draws them for all of these


@pytest.fixture(scope="module")
def sets():
    return splits()


@pytest.mark.slow
@TOGETHER
def test_full_splits(sets):
    assert {split: len(some) for split, some in sets.items()} == {"train": 40_000, "dev": 1_000, "test": 1_000,
                                                                  "test_long": 500}
    everything = [example for some in sets.values() for example in some]
    assert len({e.src for e in everything}) == len({e.tgt for e in everything}) == len(everything)
    assert min(map(n_words, sets["test_long"])) > max(n_words(e) for split in ("train", "dev", "test")
                                                      for e in sets[split])


@pytest.mark.slow
@TOGETHER
def test_words_of_the_test_sets_are_known(sets):
    "What the test sets ask for was to be learned: every word form of theirs is in training, nearly all several times."
    for side in ("src_tokens", "tgt_tokens"):
        known = {token.lower() for e in sets["train"] for token in getattr(e, side)}
        for split in ("dev", "test", "test_long"):
            unknown = {token.lower() for e in sets[split] for token in getattr(e, side)} - known
            assert not unknown, unknown


@pytest.mark.slow
def test_the_same_in_another_process_and_for_good():
    "Nothing hangs on the order of a set; and the shipped models and their records rest on these very sentences."
    digest = hashlib.sha256("".join(map(repr, islice(examples(7), 300))).encode()).hexdigest()
    assert digest == "255eee6d5ed43c659b93f302fe8c3f0709e21c469b1aed87cbfaac9480c1b644"
    for hash_seed in ("0", "1"):
        made = subprocess.run([sys.executable, "-c", PRINT_DIGEST], env=os.environ | {"PYTHONHASHSEED": hash_seed},
                              text=True,
                              capture_output=True, check=True)
        assert made.stdout.strip() == digest
