"""Batches: each sentence once, within the budget, the same for the same seed; encoded files that are broken are
refused."""
import itertools
import json
import mmap
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_transformer.corpus import batching
from annotated_transformer.corpus.batching import (
    ParallelCorpus, Sequences, chance, divided, encode_corpus, encode_lines, encoded_so_far, pad, padded, padding_share)
from annotated_transformer.corpus.cleaning import Cleaning
from annotated_transformer.corpus.corpora import Corpus, file_corpus
from annotated_transformer.corpus.vocabulary import BytePairVocabulary, Vocabulary, WordPieceVocabulary
from annotated_transformer.model.symbols import END, START
from annotated_transformer.tools.files import InputError, only_maker


class Letters(Vocabulary):
    "a is 4, b is 5 ...; as many tokens as asked for."

    def __init__(self, size: int = 30):
        super().__init__(b"")
        self.size = size

    def __len__(self):
        return self.size

    def encode(self, text):
        return [ord(c) - ord("a") + 4 for c in text]

    def pieces(self, ids):
        return [chr(i - 4 + ord("a")) for i in ids]


def in_order(src, tgt, budget: int, seed: int | None = 0, epoch: int = 0) -> list[np.ndarray]:
    "The batches of one pool, or without a seed those of evaluation."
    return divided(np.arange(len(src)), src, tgt, budget, None if seed is None else chance(seed, epoch, 0))


lengths = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), max_size=120)


@settings(max_examples=150, deadline=None)
@given(pairs=lengths, budget=st.integers(1, 400), seed=st.none() | st.integers(0, 5), epoch=st.integers(0, 3))
def test_each_sentence_once_and_within_the_budget(pairs, budget, seed, epoch):
    src, tgt = np.array(pairs, dtype=np.int32).reshape(-1, 2).T
    order = in_order(src, tgt, budget, seed, epoch)
    assert sorted(i for batch in order for i in batch) == list(range(len(pairs)))
    for batch in order:
        assert len(batch) == 1 or (src[batch].sum() <= budget and tgt[batch].sum() <= budget)
        assert len(batch) == 1 or len(batch) * max(src[batch].max(), tgt[batch].max()) <= 2 * budget
    again = in_order(src, tgt, budget, seed, epoch)
    assert len(order) == len(again) and all((a == b).all() for a, b in zip(order, again))


def text_like(n: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    src = np.exp(rng.normal(2.7, 0.35, n)).round().astype(np.int32) + 1
    return src, (src * np.exp(rng.normal(0.03, 0.18, n))).round().astype(np.int32) + 1


def test_little_padding_and_full_batches():
    src, tgt = text_like()
    order = in_order(src, tgt, 4096)
    assert padding_share(order, src, tgt) < 0.06 and max(padding_share(order, side) for side in (src, tgt)) < 0.07
    assert np.mean([max(src[b].sum(), tgt[b].sum()) for b in order]) > 0.85 * 4096


def test_padding_share_counts_positions():
    src, tgt = np.array([3, 5, 1]), np.array([2, 2, 8])
    order = [np.array([0, 1]), np.array([2])]
    assert padding_share(order, src) == pytest.approx(2 / 11) and padding_share(order, tgt) == 0
    assert padding_share(order, src, tgt) == pytest.approx(2 / (11 + 12))


def test_seeds_and_epochs_differ():
    src, tgt = text_like(3000)
    orders = [in_order(src, tgt, 500, seed, epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    sets = [{frozenset(batch.tolist()) for batch in order} for order in orders]
    assert len(sets[0] & sets[1]) < 0.2 * len(sets[0]) and len(sets[0] & sets[2]) < 0.2 * len(sets[0])
    sizes = [src[batch].mean() for batch in orders[0]]
    assert abs(np.corrcoef(sizes, np.arange(len(sizes)))[0, 1]) < 0.3  # short and long come mixed


def test_without_a_seed_the_short_come_first():
    src, _ = text_like(3000)
    order = in_order(src, src, 500, None)
    assert (np.diff([src[batch].max() for batch in order]) >= 0).all()


# --- files ------------------------------------------------------------------------------------------------------------

@settings(max_examples=30, deadline=None)
@given(lines=st.lists(st.text("abcdefgh", max_size=9), min_size=1, max_size=30), size=st.sampled_from([30, 70_000]),
       chunk=st.integers(1, 9))
def test_sequences_hold_what_was_encoded(tmp_path_factory, lines, size, chunk):
    path = tmp_path_factory.mktemp("ids") / "x"
    vocabulary = Letters(size)
    expected = [vocabulary.encode(line) + [END] for line in lines]
    assert encode_lines(path, lines, len(lines), vocabulary, chunk) == sum(map(len, expected))
    sequences = Sequences(path)
    assert [sequences[i].tolist() for i in range(len(sequences))] == expected
    assert sequences.lengths().tolist() == list(map(len, expected))
    assert isinstance(sequences.ids.base.obj,
                      mmap.mmap) and sequences.ids.dtype == (np.uint16 if size == 30 else np.uint32)
    assert not list(path.parent.glob("*.tmp"))


@pytest.mark.parametrize("damage", ["empty corpus", "no files", "no ends", "no ids", "cut ids", "odd ids", "empty ids",
                                    "cut ends", "empty ends", "other ends"])
def test_broken_files_are_refused(tmp_path, damage):
    path, ids, ends = tmp_path / "x", tmp_path / "x.ids", tmp_path / "x.ends.npy"
    lines = [] if damage == "empty corpus" else ["abc", "de", ""]
    encode_lines(path, lines, len(lines), Letters())
    {"empty corpus": lambda: None, "no files": lambda: [ids.unlink(), ends.unlink()], "no ends": ends.unlink,
     "no ids": ids.unlink,
     "cut ids": lambda: ids.write_bytes(ids.read_bytes()[:-2]),
     "odd ids": lambda: ids.write_bytes(ids.read_bytes()[:-1]),
     "empty ids": lambda: ids.write_bytes(b""), "cut ends": lambda: ends.write_bytes(ends.read_bytes()[:-4]),
     "empty ends": lambda: ends.write_bytes(b""), "other ends": lambda: ends.write_bytes(b"not numpy's")}[damage]()
    with pytest.raises(InputError, match="no encoded sentences here, or cut short"):
        Sequences(path)


@pytest.mark.parametrize("kind", [BytePairVocabulary, WordPieceVocabulary])
def test_words_alone_are_cut_as_in_their_line(kind, tmp_path):
    vocabulary = kind.learn(["a cab ace, bad! (dad) b-c 1/2", "bead \u2581 decade aa bb cc dd ee"] * 3, 45)

    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.text("abcde ,!(-1/\u2581\u6771\u4eac\u00a0\t", max_size=30), min_size=1, max_size=5))
    def check(lines):
        encode_lines(tmp_path / "x", lines, len(lines), vocabulary, chunk=2)
        sequences = Sequences(tmp_path / "x")
        assert [sequences[i].tolist() for i in range(len(lines))] == [vocabulary.encode(line) + [END]
                                                                      for line in lines]
    check()


@pytest.mark.parametrize("longest, dtype", [(9, np.uint16), (65_536, np.uint32)])
def test_lengths_and_padded_rows(tmp_path, longest, dtype):
    rng = np.random.default_rng(0)
    lines = ["a" * n for n in [*rng.integers(0, 9, 40), longest - 1]]
    encode_lines(tmp_path / "x", lines, len(lines), Letters(), chunk=7)
    sequences = Sequences(tmp_path / "x")
    assert sequences.lengths(chunk=6).tolist() == [len(line) + 1
                                                   for line in lines] and sequences.lengths().dtype == dtype
    for indices in (np.array([0]), np.array([40]), rng.permutation(40), rng.permutation(40).astype(np.int32)):
        rows = [sequences[i].tolist() for i in indices]
        assert padded(sequences, indices).tolist() == pad([np.array(row) for row in rows]).tolist()
        assert padded(sequences, indices, START).tolist() == pad([np.array([START, *row]) for row in rows]).tolist()


@pytest.mark.parametrize("kind", [BytePairVocabulary, WordPieceVocabulary])
def test_from_text_to_batches_and_back(tmp_path, kind):
    pairs = [(f"the number {i} and {i * i}", f"die Zahl {i} und {i * i} , ja") for i in range(300)]
    others = [(f"and {src}", f"und {tgt}") for src, tgt in pairs[:9]]  # a pair of theirs would be left out of training
    files = []
    for split, part in (("train", pairs), ("dev", others[:5]), ("test", others[5:])):
        for side, lang in ((0, "en"), (1, "de")):
            files.append(tmp_path / f"{split}.{lang}")
            files[-1].write_text("".join(pair[side] + "\n" for pair in part), encoding="utf-8")
    corpus = file_corpus(tmp_path / "corpus", "en", "de", files[:2], files[2:4], files[4:])
    vocabulary = kind.learn((line for pair in corpus.pairs("train") for line in pair), 90)
    (corpus.folder / "a.2.tmp").mkdir()
    for name in ("dev.de.ids.7.tmp", "mine.tmp"):
        (corpus.folder / name).touch()
    tokens = encode_corpus(corpus, vocabulary)
    assert {path.name for path in corpus.folder.glob("*.tmp")} == {"a.2.tmp", "mine.tmp"}
    facts = json.loads((corpus.folder / "encoded.json").read_text())
    assert facts == {"corpus": corpus.digest, "vocabulary": vocabulary.digest, "vocab_size": 90, "tokens": tokens}
    for damaged in ([], None, facts | {"tokens": []}, {name: facts[name] for name in facts if name != "tokens"}):
        (corpus.folder / "encoded.json").write_text(json.dumps(damaged))
        assert encode_corpus(corpus, vocabulary) == tokens  # anew
    train = ParallelCorpus(corpus.folder, "train")
    assert tokens["train"] == {"src": int(train.src_lengths.sum()),
                               "tgt": int(train.tgt_lengths.sum())} and len(train) == 300
    found = {}
    for batch in train.batches(400, seed=0):
        assert (batch.tgt[:,
                          0] == START).all() and ((batch.src == END).sum(1) == 1).all() and (
                              (batch.tgt == END).sum(1) == 1).all()
        found |= {int(i): (vocabulary.decode(s), vocabulary.decode(t)) for i, s,
                  t in zip(batch.indices, batch.src.tolist(), batch.tgt.tolist())}
    assert [found[i] for i in range(300)] == pairs
    with pytest.raises(InputError, match="no split 'valid'"):
        ParallelCorpus(corpus.folder, "valid")
    encode_lines(corpus.path("dev", "tgt"), ["one line"], 1, vocabulary)
    with pytest.raises(InputError, match="5 encoded sources and 1 targets"):
        ParallelCorpus(corpus.folder, "dev")


# --- pools ------------------------------------------------------------------------------------------------------------

@pytest.fixture
def pooled(tmp_path, monkeypatch):
    "An encoded corpus of 230 pairs in pools of 100, as a function that opens it anew."
    monkeypatch.setattr(batching, "POOL", 100)
    rng = np.random.default_rng(0)
    pairs = [("a" * rng.integers(1, 30) + f" {i}", "b" * rng.integers(1, 30)) for i in range(230)]
    files = []
    for side, lang in ((0, "en"), (1, "de")):
        files.append(tmp_path / f"x.{lang}")
        files[-1].write_text("".join(pair[side] + "\n" for pair in pairs))
    corpus = file_corpus(tmp_path / "corpus", "en", "de", files, cleaning=Cleaning(max_ratio=100), holdout=5)
    encode_corpus(corpus, BytePairVocabulary.learn((line for pair in pairs for line in pair), 24))
    return lambda: ParallelCorpus(tmp_path / "corpus", "train")


def plain(order):
    return [batch.tolist() for batch in order]


def test_an_epoch_is_its_pools(pooled):
    corpus = pooled()
    assert len(corpus) == 220 and corpus.pools == 3
    pools = [corpus.order(150, 1, 4, pool) for pool in range(3)]
    assert all(50 < sum(map(len, pool)) < 100 for pool in pools)  # 73 on the average
    assert sorted(i for pool in pools for batch in plain(pool) for i in batch) == list(range(220))
    assert [batch.indices.tolist()
            for batch in corpus.batches(150, 1, 4)] == [batch for pool in pools for batch in plain(pool)]


def test_a_pool_depends_on_seed_epoch_and_number_alone(pooled):
    corpus = pooled()
    inorder = [plain(corpus.order(150, seed, epoch, pool)) for seed, epoch,
               pool in itertools.product((0, 1), (0, 1), range(3))]
    alone = [plain(pooled().order(150, seed, epoch, pool)) for seed, epoch,
             pool in itertools.product((0, 1), (0, 1), range(3))]
    assert inorder == alone and len({str(pool) for pool in inorder}) == 12


def test_without_a_seed_everything_is_one_pool(pooled):
    corpus = pooled()
    order = corpus.order(150)
    assert sorted(i for batch in plain(order) for i in batch) == list(range(220))
    assert [batch.indices.tolist() for batch in corpus.batches(150)] == plain(order)


def test_two_do_not_encode_one_corpus_at_once(tmp_path, pooled):
    pooled()
    corpus, vocabulary = Corpus.open(tmp_path / "corpus"), BytePairVocabulary.learn(["some other words"] * 3, 20)
    with only_maker(corpus.folder), pytest.raises(InputError, match="another process is making it"):
        encode_corpus(corpus, vocabulary)
    assert encode_corpus(corpus, vocabulary)["train"]


def test_a_text_that_was_shortened_is_not_encoded(tmp_path, pooled):
    corpus = Corpus.open(tmp_path / "corpus")
    vocabulary = BytePairVocabulary.learn(["some other words"] * 3, 20)
    path = corpus.path("train", "tgt")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-3]))
    with pytest.raises(InputError, match=r"train\.de: changed after it was prepared"):
        encode_corpus(corpus, vocabulary)
    assert len(pooled()) == 220  # what was encoded before is untouched
    os.utime(path, (0, 0))  # one that seems older than the corpus is not summed
    with pytest.raises(InputError, match=r"train\.de has 217 lines and corpus\.json says 220: make the corpus again"):
        encode_corpus(corpus, vocabulary)
    assert encoded_so_far(corpus, vocabulary)["tokens"]["train"].keys() == {"src"}
    with pytest.raises(InputError, match="not encoded, or not to the end"):
        ParallelCorpus(tmp_path / "corpus", "dev")
