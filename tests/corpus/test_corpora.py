"""Corpora: what goes in is what comes out, and whatever is broken is said in one line and leaves nothing behind."""
import bz2
import gzip
import io
import json
import lzma
import os
import threading
import tracemalloc
import unicodedata
import urllib.error
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_transformer.corpus import cleaning
from annotated_transformer.corpus.cleaning import Cleaning, hold_out, normalise, word_count
from annotated_transformer.corpus.corpora import (
    Corpus, check_languages, file_corpus, grammar_corpus, languages, read_gold, report)
from annotated_transformer.corpus.sources import mixed_corpus, multi30k, wmt14
from annotated_transformer.tools import files
from annotated_transformer.tools.files import InputError, writing
from annotated_transformer.tools.text_files import language_of, lines
from here import fails

PAIRS = [(f"the number {i} .", f"die Zahl {i} .") for i in range(20)]
SETS = [(f"the set {i} .", f"die Menge {i} .") for i in range(20)]  # for development and tests: none is a training pair


def put(path: Path, text, zipped: bool = False) -> Path:
    "Write `text` (str, bytes or lines) to `path`."
    if isinstance(text, list):
        text = "".join(line + "\n" for line in text)
    data = text.encode() if isinstance(text, str) else text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if zipped else data)
    return path


def put_pairs(folder: Path, stem: str, pairs, langs=("en", "de"), zipped: bool = False) -> list[Path]:
    end = ".gz" if zipped else ""
    return [put(folder / f"{stem}.{lang}{end}", list(side), zipped) for lang, side in zip(langs, zip(*pairs))]


def tree(folder: Path) -> dict:
    "Everything under a folder, with the files' contents."
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def counted(counts: dict) -> dict:
    "The counts that are not 0."
    return {why: n for why, n in counts.items() if n}


@pytest.fixture
def good(tmp_path):
    return put_pairs(tmp_path, "good", PAIRS)


# --- files ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("form", ["plain", "gzip", "tsv", "tsv.gz", "one file of another name", "several"])
def test_every_form_gives_the_same_corpus(tmp_path, form):
    table = "".join(f"{src}\t{tgt}\tattribution\n" for src, tgt in PAIRS)
    paths = {"plain": lambda: put_pairs(tmp_path, "a", PAIRS),
             "gzip": lambda: put_pairs(tmp_path, "a", PAIRS, zipped=True),
             "tsv": lambda: [put(tmp_path / "a.tsv", table)],
             "tsv.gz": lambda: [put(tmp_path / "a.tsv.gz", table, zipped=True)],
             "one file of another name": lambda: [put(tmp_path / "deu.txt", table)],
             "several": lambda: [*put_pairs(tmp_path, "a", PAIRS[:7]),
                                 put(tmp_path / "b.tsv.gz", "".join(f"{s}\t{t}\n" for s, t in PAIRS[7:9]), True),
                                 *put_pairs(tmp_path, "c", PAIRS[9:], zipped=True)]}[form]()
    dev, test = put_pairs(tmp_path, "d", [("dev", "Dev")]), put_pairs(tmp_path, "t", [("test", "Test")])
    corpus = file_corpus(tmp_path / "out", "en", "de", paths, dev, test)
    assert list(corpus.pairs("train")) == PAIRS and list(corpus.pairs("dev")) == [("dev", "Dev")]
    assert corpus.sides("dev") == (["dev"], ["Dev"])
    assert (tmp_path / "out" / "train.en").read_text() == "".join(src + "\n" for src, _ in PAIRS)
    assert Corpus.open(tmp_path / "out") == corpus and corpus.tests == ["test"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "corpus.json", "dev.de", "dev.en", "test.de", "test.en", "train.de", "train.en"]


def test_line_n_stays_line_n(tmp_path):
    "Marks that some tools take for a line's end, carriage returns, a byte-order mark and a missing last newline."
    marks = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"]
    src = [f"a{mark}b {i}" for i, mark in enumerate(marks)]
    put(tmp_path / "a.en", "\ufeff" + "\r\n".join(src))
    put(tmp_path / "a.de", [f"z {i}" for i in range(len(marks))])
    corpus = file_corpus(tmp_path / "out", "en", "de", [tmp_path / "a.en", tmp_path / "a.de"],
                         dev=put_pairs(tmp_path, "d", PAIRS), test=put_pairs(tmp_path, "t", PAIRS))
    assert list(corpus.pairs("train")) == [(f"a b {i}", f"z {i}") for i in range(len(marks))]
    assert len(corpus.path("train", "src").read_bytes().decode().splitlines()) == len(marks)  # now for every tool


def test_a_gzip_file_of_any_name_is_read(tmp_path):
    assert list(lines(put(tmp_path / "plain.txt", "x\ny\n", zipped=True))) == ["x", "y"]


def test_odd_pairs_are_left_out_of_train_and_kept_elsewhere(tmp_path):
    odd = [("", "leer"), ("leer", "  \t "), ("", ""), ("word " * 10_000, "Wort " * 10_000), ("x" * 6_000, "x"),
           ("ja", "nein " * 10)]
    corpus = file_corpus(tmp_path / "out", "en", "de", put_pairs(tmp_path, "a", PAIRS + odd),
                         dev=put_pairs(tmp_path, "d", SETS + odd), test=put_pairs(tmp_path, "t", SETS[:1]))
    train, dev = corpus.splits["train"], corpus.splits["dev"]
    assert list(corpus.pairs("train")) == PAIRS
    assert train["read"] == 26 and counted(train["dropped"]) == {"empty": 3, "long": 2, "ratio": 1}
    assert dev["pairs"] == 26 and counted(dev["odd"]) == {"empty": 3, "long": 2,
                                                          "ratio": 1} and not sum(dev["dropped"].values())
    assert list(corpus.pairs("dev"))[20:23] == [("", "leer"), ("leer", ""), ("", "")]
    assert ("left out of 26 pairs: 3 empty on one side, 2 over-long [--max-words], "
            "1 out of proportion [--max-ratio]") in report(corpus)


@pytest.mark.parametrize("split", ["train", "dev", "test"])
@pytest.mark.parametrize("pair, said", [(("", "leer"), "empty on one side"), (("w " * 10_000, "w"), "over-long"),
                                        (("w " * 10, "w"), "out of proportion")])
def test_strict_makes_an_odd_pair_an_error_with_file_and_line(tmp_path, split, pair, said):
    files = {name: put_pairs(tmp_path, name, PAIRS[:3] + [pair] if name == split else PAIRS)
             for name in ("train", "dev", "test")}
    before = tree(tmp_path)
    with pytest.raises(InputError, match=rf"{split}\.en, line 4: {said}"):
        file_corpus(tmp_path / "out", "en", "de", **files, cleaning=Cleaning(strict=True))
    assert tree(tmp_path) == before


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60))
def test_normalise_gives_one_line_and_touches_only_white_space(text):
    clean = normalise(text)
    assert len(clean.splitlines()) <= 1 and normalise(clean) == clean
    assert [c for c in clean if not c.isspace()] == [c for c in text if not c.isspace()]


def test_text_does_not_pile_up_in_memory(tmp_path):
    src = put(tmp_path / "a.en", "".join(f"sentence {i} {'word' * 500}\n" for i in range(2_000)))
    tgt = put(tmp_path / "a.de", "".join(f"Satz {i} {'Wort' * 500}\n" for i in range(2_000)))
    tracemalloc.start()
    file_corpus(tmp_path / "out", "en", "de", [src, tgt], holdout=10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < src.stat().st_size / 2, f"{peak:,} bytes for files of {src.stat().st_size:,}"


# --- holding out ------------------------------------------------------------------------------------------------------

@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from("uvw")), min_size=30, max_size=60),
       st.randoms())
def test_no_source_sentence_is_on_two_sides(pairs, random):
    pairs = pairs + [(letter, "x") for letter in "abcdefghij"]
    where = [(("f", i), src, tgt) for i, (src, tgt) in enumerate(pairs)]
    splits, held = hold_out(where, {"dev": 3, "test": 2}, Cleaning())
    dev, test = ([src for _, src, _ in splits[name]] for name in ("dev", "test"))
    assert len(set(dev)) == 3 and len(set(test)) == 2 and not set(dev) & set(test) and len(held) == 5
    random.shuffle(where)
    again, _ = hold_out(where, {"dev": 3, "test": 2}, Cleaning())
    assert {src for _, src, _ in again["dev"]} == set(dev) and {src for _, src, _ in again["test"]} == set(test)


def test_held_out_sentences_leave_training_with_all_their_translations(tmp_path):
    many = [(f"source {i % 50}", f"Ziel {i}") for i in range(150)]
    corpus = file_corpus(tmp_path / "out", "en", "de", put_pairs(tmp_path, "a", many), holdout=5)
    sources = {split: {src for src, _ in corpus.pairs(split)} for split in ("train", "dev", "test")}
    assert [corpus.splits[s]["pairs"] for s in ("train", "dev", "test")] == [120, 5, 5]
    assert len(sources["train"]) == 40 and len(set.union(*sources.values())) == 50
    assert corpus.splits["train"]["dropped"]["held_out"] == 30
    kept = file_corpus(tmp_path / "out2", "en", "de", put_pairs(tmp_path, "a", many),
                       dev=put_pairs(tmp_path, "d", PAIRS), holdout=5)
    assert kept.splits["test"]["pairs"] == 5 and kept.splits["train"]["pairs"] == 135 and kept.splits["dev"][
        "pairs"] == 20


# --- sentences on both sides ------------------------------------------------------------------------------------------

def test_overlap_is_counted_and_dropped_on_request(tmp_path):
    """By either side, whatever the case and the last punctuation; what is alike on the other language's side is no
    overlap."""
    shared = [("The Number 3", "anders"), ("other", "die zahl 4!"), ("die Zahl 5 .", "the number 5 ."), ("?", ".")]
    files = dict(train=put_pairs(tmp_path, "a", [("apart", "getrennt")] + shared),
                 dev=put_pairs(tmp_path, "d", PAIRS + [("!", "...")]),
                 test=put_pairs(tmp_path, "t", PAIRS[:2]))
    told = file_corpus(tmp_path / "told", "en", "de", **files)
    assert told.splits["train"]["pairs"] == 5 and counted(told.splits["train"]["odd"]) == {"overlap": 2}
    assert "train: kept, though odd: 2 with a sentence of dev or a test set" in report(told)
    train = put_pairs(tmp_path, "e", [*shared, (PAIRS[4][0].upper(), PAIRS[4][1] + " !")])
    equal = file_corpus(tmp_path / "equal", "en", "de", train, files["dev"], files["test"])
    assert [*equal.pairs("train")] == shared and "left out of 5 pairs: 1 equal to a pair of dev" in report(equal)
    dropped = file_corpus(tmp_path / "dropped", "en", "de", **files, cleaning=Cleaning(drop_overlap=True))
    assert list(dropped.pairs("train")) == [("apart", "getrennt"), *shared[2:]]
    assert counted(dropped.splits["train"]["dropped"]) == {"overlap": 2} and not counted(dropped.splits["train"]["odd"])


@pytest.fixture
def mixture(tmp_path):
    "A sources file and what it names."
    put_pairs(tmp_path / "texts", "news",
              [(f"news {i}", f"Neues {i}") for i in range(10)] + [("number 1", "DIE ZAHL 1"), ("", "x")], zipped=True)
    put(tmp_path / "texts" / "talk.tsv", "".join(f"talk {i // 2}\tRede {i}\n" for i in range(200)))
    put_pairs(tmp_path, "dev", PAIRS[:3])
    put_pairs(tmp_path, "test", PAIRS)
    put(tmp_path / "first.indices", "0\n2\n")
    return put(tmp_path / "sources.toml", """
[train.news]
files = ["texts/news.en.gz", "texts/news.de.gz"]
weight = 2
[train.talk]
files = ["texts/talk.tsv"]
weight = 0.5
holdout = 5
[dev]
files = ["dev.en", "dev.de"]
[test.newstest]
files = ["test.en", "test.de"]
[test.newstest_first]
files = ["test.en", "test.de"]
lines = "first.indices"
""")


def test_sources_are_mixed_by_weight(tmp_path, mixture):
    corpus = mixed_corpus(tmp_path / "out", mixture)
    assert list(corpus.splits) == ["train", "dev", "newstest", "newstest_first", "test_talk"]
    assert list(corpus.pairs("newstest_first")) == [PAIRS[0], PAIRS[2]] and corpus.splits["test_talk"]["pairs"] == 5
    train, facts = list(corpus.pairs("train")), corpus.splits["train"]
    assert train[:20] == [(f"news {i}", f"Neues {i}") for i in range(10) for _ in range(2)]
    talk, held = train[20:], {src for src, _ in corpus.pairs("test_talk")}
    assert len(set(talk)) == len(talk) == facts["sources"]["talk"]["pairs"] and 60 < len(talk) < 130
    assert not held & {src for src, _ in talk}
    assert counted(facts["dropped"]) == {"empty": 1, "held_out": 10, "overlap": 1} and facts["read"] == 212
    assert facts["pairs"] == len(train) and facts["sources"]["news"]["weight"] == 2
    assert mixed_corpus(tmp_path / "out", mixture) == corpus  # kept
    assert mixed_corpus(tmp_path / "again", mixture).digest == corpus.digest
    put(mixture, mixture.read_text().replace("weight = 2", "weight = 3"))
    with pytest.raises(InputError, match="of other files or options"):
        mixed_corpus(tmp_path / "out", mixture)


@pytest.mark.parametrize("old, new, said", [
    ("weight = 2", "weight = 0", "train news: weight = 0: give a number above 0"),
    ("weight = 2", "weight = 1e9", "at most 1000"),
    ("weight = 2", 'weight = "2"', "train news: weight = 2: give"),
    ("weight = 2", "wieght = 2", "train news: wieght is not known: give files, holdout, weight"),
    ("holdout = 5", "holdout = -1", "train talk: holdout = -1"),
    ("holdout = 5", "holdout = 500", "there are 100 different source sentences"),
    ("[dev]", "[develop]", r"\[develop\]: the tables are"),
    ("[test.newstest]", "[test.dev]", "'dev' cannot be a name"),
    ("[test.newstest]", "[test.test_talk]", "'test_talk' cannot be a name"),
    ('files = ["dev.en", "dev.de"]', "files = 3", "dev dev: give files"),
    ('files = ["dev.en", "dev.de"]', 'files = ["dev.en", "nowhere.de"]', "nowhere.de does not exist"),
    ('files = ["dev.en", "dev.de"]', 'files = ["texts/talk.tsv"]', "talk.tsv is given twice"),
    ('lines = "first.indices"', 'lines = "~nobody/some.indices"', "some.indices does not exist"),
    ('lines = "first.indices"', 'lines = "none.indices"', "none.indices does not exist"),
    ("[dev]", "[dev", "not TOML"),
    pytest.param("weight = 2", f"weight = {'[' * 10_000}", "not TOML", id="nested"),
    pytest.param("weight = 2", f"weight = {'1' * 5000}", "not TOML", id="a long number"),
])
def test_what_is_wrong_in_a_sources_file(tmp_path, mixture, old, new, said):
    put(mixture, mixture.read_text().replace(old, new, 1))
    before = tree(tmp_path)
    with pytest.raises(InputError, match=said) as error:
        mixed_corpus(tmp_path / "out", mixture)
    assert "\n" not in str(error.value) and tree(tmp_path) == before


# --- what goes wrong --------------------------------------------------------------------------------------------------

BAD = {  # what the three splits are given: (folder, good source, good target) -> arguments, and what must be said
    "empty file": (lambda d, a, b: dict(train=[put(d / "x.en", ""), b]), r"x\.en is empty: give"),
    "empty gzip": (lambda d, a, b: dict(train=[put(d / "x.en.gz", "", True), b]), r"x\.en\.gz is empty: give"),
    "source longer": (lambda d, a, b: dict(train=[a, put(d / "x.de", ["eins", "zwei"])]),
                      r"good\.en has 20 lines and .*x\.de has 2: "),
    "target longer": (lambda d, a, b: dict(train=[put(d / "x.en", ["one"]), b]),
                      r"x\.en has 1 line and .*good\.de has 20: "),
    "not UTF-8": (lambda d, a, b: dict(train=[a, put(d / "x.de", b"eins\nsch\xf6n\n")]),
                  r"x\.de, line 2: not UTF-8 \(byte 0xf6\), perhaps Windows-1252: "),
    "UTF-16": (lambda d, a, b: dict(train=[a, put(d / "x.de", "eins\n".encode("utf-16"))]),
               r"x\.de, line 1: not UTF-8 \(byte 0xff\), perhaps UTF-16: "),
    "not UTF-8 in a tsv": (lambda d, a, b: dict(train=[put(d / "x.tsv", b"a\tb\nc\t\x80\n")]),
                           r"x\.tsv, line 2: not UTF-8"),
    "cut gzip": (lambda d, a, b: dict(train=[a, put(d / "x.gz", gzip.compress(bytes(range(32, 127)) * 99)[:60])]),
                 r"x\.gz: .*damaged or cut"),
    "missing file": (lambda d, a, b: dict(train=[a, d / "nowhere.de"]), r"nowhere\.de does not exist"),
    "missing test file": (lambda d, a, b: dict(train=[a, b], test=[d / "nowhere.de"]), r"nowhere\.de does not exist"),
    "folder": (lambda d, a, b: dict(train=[a, d]), r"is a folder: give a file"),
    "same file twice": (lambda d, a, b: dict(train=[a, a]), r"good\.en is given twice \(train, train\)"),
    "same file by another name": (lambda d, a, b: dict(train=[a, d / "." / ".." / d.name / "good.en"]),
                                  r"is given twice"),
    "train is test": (lambda d, a, b: dict(train=[a, b], test=[a, b]), r"good\.en is given twice \(train, test\)"),
    "no partner": (lambda d, a, b: dict(train=[a, b, put(d / "x.en", "x")]), r"x\.en has no partner"),
    "a table between two halves": (lambda d, a, b: dict(train=[a, put(d / "x.tsv", "a\tb\n"), b]),
                                   r"good\.en has no partner"),
    "one path for a list": (lambda d, a, b: dict(train=a), r"train: one path, where a list is needed: give \[path"),
    "no file": (lambda d, a, b: dict(train=[]), r"train: no file was given"),
    "no tab": (lambda d, a, b: dict(train=[put(d / "x.tsv", "a\tb\nc d\n")]), r"x\.tsv, line 2: no tab"),
    "one aligned file": (lambda d, a, b: dict(train=[a]), r"good\.en, line 1: no tab: .*or two aligned files"),
    "nothing left": (lambda d, a, b: dict(train=put_pairs(d, "x", [("", "x")] * 3), dev=[a, b],
                                          test=put_pairs(d, "t", PAIRS)),
                     r"train: of 3 pairs none is left \(3 empty on one side\)"),
    "all held out": (lambda d, a, b: dict(train=[a, b], holdout=10),
                     r"train: of 20 pairs none is left \(20 held out \[--holdout\]\)"),
    "too much held out": (lambda d, a, b: dict(train=[a, b]),
                          r"there are 20 different source sentences, and dev and test are to take 2,000: lower "
                          r"holdout"),
    "nothing to hold out": (lambda d, a, b: dict(train=[a, b], cleaning=Cleaning(max_words=1)),
                            r"there are 0 different source sentences \(left out: 20 over-long \[--max-words\]\), and"),
    "holdout 0": (lambda d, a, b: dict(train=[a, b], holdout=0), r"holdout 0: give"),
    "one language": (lambda d, a, b: dict(train=[a, b], tgt="en"), r"both 'en': give two"),
    "languages in two orders": (lambda d, a, b: dict(train=[a, b, *reversed(put_pairs(d, "x", PAIRS))]),
                                r"x\.de: ends in \.de, and its side's language is en: "),
    "a glob": (lambda d, a, b: dict(train=[a, put_pairs(d, "x", PAIRS)[0], b, d / "x.de"]),
               r"x\.en: ends in \.en, and its side's language is de: "),
    "a path for a language": (lambda d, a, b: dict(train=[a, b], tgt="../de"), r"language '\.\./de': give a code"),
}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"])
def test_another_encoding_is_named(tmp_path, encoding):
    path = put(tmp_path / "x.de", "\n".join(f"Die Kühe Nummer {i} sind schön." for i in range(9)).encode(encoding))
    names = {"utf-16-le": "UTF-16LE", "utf-16-be": "UTF-16BE", "cp1252": "Windows-1252"}
    with pytest.raises(InputError,
                       match=rf"x\.de, line 1: not UTF-8 .*perhaps {names.get(encoding, encoding.upper())}: .*iconv"):
        list(lines(path))


def test_another_script_is_not_called_western(tmp_path):
    for text, encoding in (("Мама мыла раму.", "cp1251"), ("我们在北京。", "gb18030")):
        with pytest.raises(InputError, match="Windows-1251, GB18030 or Shift_JIS"):
            list(lines(put(tmp_path / "x", text.encode(encoding))))


def test_a_byte_order_mark_goes_and_a_nul_stays(tmp_path):
    assert list(lines(put(tmp_path / "x", b"\xef\xbb\xbfone\ntwo\0\n"))) == ["one", "two\0"]


# --- files that are not plain -----------------------------------------------------------------------------------------

def packed(data: bytes) -> dict[str, bytes]:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("text", data)
    return {"gz": gzip.compress(data), "xz": lzma.compress(data), "bz2": bz2.compress(data), "zip": archive.getvalue(),
            "two.gz": gzip.compress(data[:7]) + gzip.compress(data[7:])}


@pytest.mark.parametrize("form", ["gz", "xz", "bz2", "zip", "two.gz"])
def test_compressed_text(tmp_path, form):
    data = "".join(f"Zeile {i}\n" for i in range(500)).encode()
    zipped = packed(data)[form]
    path = put(tmp_path / f"text.de.{form}", zipped)
    assert list(lines(path)) == data.decode().splitlines() and language_of(
        tmp_path / f"text.de.{form.split('.')[-1]}") == "de"
    for size in (len(zipped) // 3, len(zipped) - 3):
        with pytest.raises(InputError, match="damaged or cut after line"):
            list(lines(put(path, zipped[:size])))


@pytest.mark.parametrize("line", ["Rar! said the lion.", "BZh", "BZh9 is a plate", "PK means goalkeeper", "7z"])
def test_text_that_begins_like_an_archive(tmp_path, line):
    "An archive's own mark is longer than the letters that it begins with."
    assert list(lines(put(tmp_path / "text", f"{line}\nmore\n".encode()))) == [line, "more"]


def test_archives_that_are_not_one_text(tmp_path):
    with pytest.raises(InputError, match="compressed by RAR: decompress it first"):
        list(lines(put(tmp_path / "x.rar", b"Rar!\x1a\x07\x01\0" + bytes(20))))
    assert list(lines(put(tmp_path / "x.bz2", bz2.compress(b"a\n")))) == ["a"]
    with pytest.raises(InputError, match="x.bz2 is empty"):
        list(lines(put(tmp_path / "x.bz2", bz2.compress(b""))))
    with pytest.raises(InputError, match="compressed by zstd: decompress it first"):
        list(lines(put(tmp_path / "x.zst", b"\x28\xb5\x2f\xfd" + bytes(20))))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a", "a"), file.writestr("b", "b")
    with pytest.raises(InputError, match="an archive of 2 files"):
        list(lines(put(tmp_path / "x.zip", archive.getvalue())))


@pytest.mark.parametrize("header, value, said", [(6, 1, "is encrypted"), (8, 99, "compression")])
def test_zip_files_that_python_cannot_unpack(header, value, said, tmp_path):
    "Marked so in both places: in the file's own header, and two bytes further in that of the list of files."
    data = bytearray(packed(b"a text")["zip"])
    data[header] = data[data.index(b"PK\1\2") + header + 2] = value
    fails(lambda: list(lines(put(tmp_path / "x.zip", bytes(data)))), tmp_path / "x.zip", said, "unpack it first")


def test_what_passes_only_once(tmp_path, good):
    "A pipe, as in <(zcat text.gz), is read more than once by holding out, and by the digests."
    pipes = [tmp_path / "pipe.en", tmp_path / "pipe.de"]
    for pipe, path in zip(pipes, good):
        os.mkfifo(pipe)
        threading.Thread(target=lambda pipe=pipe, path=path: pipe.write_bytes(path.read_bytes()), daemon=True).start()
    corpus = file_corpus(tmp_path / "out", "en", "de", pipes, holdout=3)
    assert corpus.digest == file_corpus(tmp_path / "same", "en", "de", good, holdout=3).digest


def test_a_line_without_end_takes_little_memory(tmp_path, capsys):
    path = tmp_path / "x"
    with open(path, "wb") as file:
        for _ in range(64):
            file.write(b"a" * (1 << 20))
        file.write(b"\nlast\n")
    tracemalloc.start()
    found = list(lines(path))
    assert [len(line) for line in found] == [1 << 20, 4] and tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()
    assert "line 1: more than 1 MiB" in capsys.readouterr().err


# --- languages --------------------------------------------------------------------------------------------------------

def test_parts_of_a_text_may_have_endings_of_their_own():
    assert languages("en", "de", [["a.en", "a.de", "b.aa", "b.ab"]]) == ("en", "de")


@pytest.mark.parametrize(("names", "langs"),
                         [(("a.cs", "a.pl"), ("cs", "pl")), (("a.en.gz", "a.zh_CN.gz"), ("en", "zh_CN")),
                                              (("x.en.txt", "x.fr.txt"), ("en", "fr")),
                                              (("news.en-de.en", "news.en-de.de"), ("en", "de"))])
def test_endings_name_the_languages(names, langs):
    assert languages(None, None, [["all.tsv"], list(names)]) == langs == languages(*langs, [names])


@pytest.mark.parametrize("names", [("a.txt", "b.txt"), ("a", "b"), ("a.en", "b.txt"), ("all.tsv",), ("t.src", "t.tgt")])
def test_without_endings_we_ask(names):
    with pytest.raises(InputError, match="--src and --tgt"):
        languages(None, None, [list(names)])
    assert languages("en", "cs", [list(names)]) == ("en", "cs")


def test_codes_that_cannot_be(tmp_path, good):
    for code in ("tmp", "ids", "npy", "json", "model", "TMP", "a/b", "", "x" * 50):
        with pytest.raises(InputError, match="language"):
            check_languages("en", code)
    for pair in (("en", "EN"), ("de", "de")):
        with pytest.raises(InputError, match="two different codes"):
            check_languages(*pair)
    with pytest.raises(InputError, match=r"good\.en: ends in \.en, and its side's language is de"):
        file_corpus(tmp_path / "out", "de", "en", good)


def test_languages_without_spaces(tmp_path):
    "English and Chinese sentences that mean the same are not out of proportion; one that is says by which option."
    pairs = [(f"The cow number {i} on the old green meadow does not want to play with the small dogs",
              f"在古老的绿草地上的第{i}头牛不想和小狗玩") for i in range(30)]
    corpus = file_corpus(tmp_path / "out", "en", "zh", put_pairs(tmp_path, "a", pairs, ("en", "zh")), holdout=3)
    assert corpus.splits["train"]["pairs"] == 24 and corpus.splits["train"]["tgt_words"] > 24 * 8
    assert word_count("") == 0 and word_count("two words") == 2 and word_count("我们在北京") == 3 and word_count(
        "สวัสดีครับ") == 5
    for text, words in (("我们", 1), ("我们在北京学习中", 4), ("我们。", 1), ("Peter在北京", 3), ("我们 在 Peter", 3)):
        assert word_count(text) == words
    assert word_count("나는 학교에 간다") == 3  # Korean has spaces
    with pytest.raises(InputError, match=r"27 out of proportion \[--max-ratio\]"):
        file_corpus(tmp_path / "no", "en", "zh",
                    put_pairs(tmp_path, "b", [(f"{a} " * 3, f"短{i}") for i, (a, _) in enumerate(pairs[:27])],
                              ("en", "zh")), holdout=1)


def test_text_is_normalised_and_references_are_not(tmp_path):
    decomposed = unicodedata.normalize("NFD", "schöne Grüße")
    pairs = [(f"kind re\u00adgards {i}", f"{decomposed} {i}") for i in range(20)]
    files = put_pairs(tmp_path, "a", pairs)
    corpus = file_corpus(tmp_path / "out", "en", "de", files, holdout=5)
    assert corpus.normaliser == "nfc" and Corpus.open(tmp_path / "out").normaliser == "nfc"
    assert all(src.startswith("kind regards") and tgt.startswith("schöne Grüße") for src, tgt in corpus.pairs("train"))
    assert all(src.startswith("kind regards") and tgt.startswith(decomposed) for src, tgt in corpus.pairs("test"))
    plain = file_corpus(tmp_path / "none", "en", "de", files, cleaning=Cleaning(normaliser="none"), holdout=5)
    assert {*plain.pairs("train")} < {*pairs}
    facts = json.loads((tmp_path / "none" / "corpus.json").read_text())
    del facts["normaliser"], facts["recipe"]["normaliser"]  # as version 0.1 wrote it
    (tmp_path / "none" / "corpus.json").write_text(
        json.dumps(facts | {"recipe": facts["recipe"] | {"version": "0.1.0"}}))
    old = file_corpus(tmp_path / "none", "en", "de", files, holdout=5)  # kept as it is
    assert old.normaliser == "none" and old.digest == plain.digest


def test_a_sentence_is_known_however_it_is_written(tmp_path):
    known = ("Grüße aus Zürich", "kind regards")
    train = put_pairs(tmp_path, "t", [(unicodedata.normalize("NFD", known[0]), "x"), *PAIRS])
    sets = [put_pairs(tmp_path, name, [known]) for name in ("d", "e")]
    corpus = file_corpus(tmp_path / "out", "en", "de", train, *sets, Cleaning(drop_overlap=True))
    assert counted(corpus.splits["train"]["dropped"]) == {"overlap": 1}


@pytest.mark.parametrize(("rule", "value"), [("max_words", 0), ("max_ratio", float("nan"))])
def test_impossible_rules(rule, value):
    with pytest.raises(InputError, match=f"{rule} {value}: give"):
        Cleaning(**{rule: value})


@pytest.mark.parametrize("case", BAD)
def test_broken_input_is_one_line_and_leaves_nothing(tmp_path, good, case):
    make, said = BAD[case]
    options = {"src": "en", "tgt": "de", **make(tmp_path, *good)}
    before = tree(tmp_path)
    with pytest.raises(InputError, match=said) as error:
        file_corpus(tmp_path / "new" / "out", **options)
    assert "\n" not in str(error.value)
    left = {path: content for path, content in tree(tmp_path).items()
            if path != tmp_path / "new"}  # the parent may be there
    assert left == before


def test_interruption_leaves_nothing(tmp_path, good, monkeypatch):
    real = cleaning.normalise
    monkeypatch.setattr(cleaning, "normalise", lambda text: (_ for _ in ()).throw(KeyboardInterrupt) if "19" in text
                        else real(text))
    before = tree(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        file_corpus(tmp_path / "out", "en", "de", good, dev=put_pairs(tmp_path, "d", PAIRS[:2]),
                    test=put_pairs(tmp_path, "t", PAIRS[:2]))
    assert set(tree(tmp_path)) - set(before) == {tmp_path / f"{s}.{lang}" for s in "dt" for lang in ("en", "de")}


def test_writing_is_whole_or_not_at_all(tmp_path):
    path = put(tmp_path / "a.txt", "old")
    with pytest.raises(KeyboardInterrupt), writing(path, "w") as file:
        file.write("new")
        raise KeyboardInterrupt
    assert tree(tmp_path) == {path: b"old"}
    with writing(path, "w") as file:
        file.write("grün\n")
    assert tree(tmp_path) == {path: "grün\n".encode()}
    with writing(path) as file:
        file.write(b"\x00")
    assert tree(tmp_path) == {path: b"\x00"}


# --- the folder -------------------------------------------------------------------------------------------------------

def test_the_same_command_again_changes_nothing_and_another_needs_overwrite(tmp_path, good):
    out = tmp_path / "out"
    first = file_corpus(out, "en", "de", good, holdout=2)
    put(out / "vocabulary.model", "made from it")
    put(out / "runs" / "kept.txt", "kept")
    before = tree(out)
    put(out / files.FILLING / "train.en", "half")  # of an --overwrite that was killed
    assert file_corpus(out, "en", "de", good, holdout=2) == first and tree(out) == before
    with pytest.raises(InputError, match=r"a corpus of other files or options \(other held_out\): give .*overwrite"):
        file_corpus(out, "en", "de", good, holdout=3)
    assert tree(out) == before
    second = file_corpus(out, "en", "de", good, holdout=3, overwrite=True)
    assert second.splits["dev"]["pairs"] == 3 and second.digest != first.digest
    assert not (out / "vocabulary.model").exists() and (out / "runs" / "kept.txt").read_text() == "kept"
    assert not list(tmp_path.glob("*.tmp"))
    with files.only_maker(out), pytest.raises(InputError, match="another process is making it"):
        file_corpus(out, "en", "de", good, holdout=3)


def test_overwrite_loses_no_file_of_the_users(tmp_path, good):
    out = tmp_path / "out"
    file_corpus(out, "en", "de", good, holdout=2)
    before, thesis = tree(out), put(out / "thesis.txt", "years of work")
    fails(lambda: file_corpus(out, "en", "de", good, holdout=3, overwrite=True), thesis, "move it")
    thesis.unlink()
    given = [out / "train.en", out / "train.de"]
    fails(lambda: file_corpus(out, "en", "de", given, holdout=3, overwrite=True), out / "train.", "move it")
    assert tree(out) == before
    put(out / "corpus.json", "{")
    put(out / "vocabulary.json.7.tmp", "")
    assert file_corpus(out, "en", "de", good, holdout=3, overwrite=True).splits["dev"]["pairs"] == 3


def test_a_file_is_known_by_its_content_not_by_its_date(tmp_path, good):
    out, path = tmp_path / "out", tmp_path / "good.en"
    first, content = file_corpus(out, "en", "de", good, holdout=2), path.read_bytes()
    os.utime(path, (0, 0))  # as a copy or a clone of the files leaves it
    assert file_corpus(out, "en", "de", good, holdout=2) == first
    path.write_bytes(b"X" + content[1:])
    os.utime(path, (0, 0))
    with pytest.raises(InputError, match="other files or options"):
        file_corpus(out, "en", "de", good, holdout=2)


@pytest.mark.parametrize("killed", [files.FILLING, files.WHOLE, files.MOVING])
def test_a_kill_while_one_corpus_takes_anothers_place(tmp_path, good, killed):
    "What is on the disk after each step of it; the next call finishes it, or begins with what there was."
    out, new = tmp_path / "out", tmp_path / "new"
    file_corpus(out, "en", "de", good, holdout=2)
    put(out / "runs" / "kept.txt", "kept")
    whole = {path.relative_to(new) for path in tree(file_corpus(new, "en", "de", good, holdout=3, name="out").folder)}
    new.rename(out / killed)
    if killed == files.MOVING:  # and half of it is there
        for path in [path for path in out.iterdir() if path.is_file()]:
            path.unlink()
        (out / killed / "corpus.json").rename(out / "corpus.json")
    file_corpus(out, "en", "de", good, holdout=3, overwrite=killed == files.FILLING)
    assert {path.relative_to(out) for path in tree(out)} == whole | {Path("runs"), Path("runs/kept.txt")}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_other_things_is_never_touched(tmp_path, good, overwrite):
    put(tmp_path / "home" / "thesis.txt", "years of work")
    before = tree(tmp_path)
    with pytest.raises(InputError, match="holds files and is not a corpus"):
        file_corpus(tmp_path / "home", "en", "de", good, holdout=2, overwrite=overwrite)
    with pytest.raises(InputError, match="is a file: give a folder"):
        file_corpus(tmp_path / "home" / "thesis.txt", "en", "de", good, holdout=2, overwrite=overwrite)
    with pytest.raises(InputError, match="Not a directory"):
        file_corpus(tmp_path / "home" / "thesis.txt" / "out", "en", "de", good, holdout=2, overwrite=overwrite)
    assert tree(tmp_path) == before


def test_open_says_what_is_missing(tmp_path, good):
    with pytest.raises(InputError, match="is not a corpus .*annotated-transformer prepare"):
        Corpus.open(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is not a corpus"):
        Corpus.open(good[0])
    out = tmp_path / "out"
    corpus = file_corpus(out, "en", "de", good, holdout=2)
    with pytest.raises(InputError, match="no split 'tset': choose one of train, dev, test"):
        corpus.path("tset", "src")
    with pytest.raises(InputError, match="gold structure comes with"):
        next(read_gold(corpus, "dev"))
    put(out / "train.de", list(f"{i}" for i in range(5)))
    with pytest.raises(InputError, match=r"train\.en has 16 lines and .*train\.de has 5"):
        list(corpus.pairs("train"))
    put_pairs(out, "train", PAIRS[:5])
    with pytest.raises(InputError, match="has 5 lines and corpus.json says 16"):
        list(corpus.pairs("train"))
    (out / "train.de").unlink()
    with pytest.raises(InputError, match=r"train\.de is missing"):
        Corpus.open(out)
    for damaged in ("{", "[]", "{}", '{"name": "x", "src": "en", "tgt": "de", "splits": 3}',
                    '{"name": "x", "src": "en", "tgt": "de", "splits": {"train": 3}}',
                    '{"name": "x", "src": "en", "tgt": "de", "splits": {"train": {"pairs": 3}}}', "[" * 200_000):
        put(out / "corpus.json", damaged)
        with pytest.raises(InputError, match=r"corpus\.json is damaged"):
            Corpus.open(out)


# --- the grammar ------------------------------------------------------------------------------------------------------

def test_grammar_corpus(tmp_path):
    corpus = grammar_corpus(tmp_path / "a", 300, 30, 30, 20)
    assert [corpus.splits[split]["pairs"] for split in corpus.splits] == [300, 30, 30, 20]
    assert list(corpus.splits) == ["train", "dev", "test", "test_long"] and corpus.tests == ["test", "test_long"]
    for split in ("dev", "test", "test_long"):
        assert [(gold["src"], gold["tgt"]) for gold in read_gold(corpus, split)] == list(corpus.pairs(split))
        assert all({"alignment", "tree", "dependencies", "antecedents"} <= gold.keys()
                   for gold in read_gold(corpus, split))
    assert not any(sum(facts["dropped"].values()) + sum(facts["odd"].values()) for facts in corpus.splits.values())
    assert grammar_corpus(tmp_path / "b", 300, 30, 30, 20).digest == corpus.digest
    assert grammar_corpus(tmp_path / "c", 300, 30, 30, 20, seed=1).digest != corpus.digest
    with pytest.raises(InputError, match="dev: of 0 pairs none is left"):
        grammar_corpus(tmp_path / "d", 300, 0, 30, 20)


# --- Multi30k ---------------------------------------------------------------------------------------------------------

@pytest.fixture
def hub(tmp_path, monkeypatch):
    "A folder in which `datasets` finds what lies there as it would find it on the Hub; and no network."
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(put(tmp_path / "hub" / ".keep", "x").parent)
    return Path.cwd()


@pytest.mark.parametrize("zipped", [False, True])
def test_multi30k_from_a_folder(tmp_path, zipped):
    for lang in ("de", "fr"):
        for i, stem in enumerate(["train", "val", "test_2016_flickr", "test_2017_mscoco"]):
            put_pairs(tmp_path / "m", stem, (SETS if i else PAIRS)[i:], ("en", lang), zipped)
    put(tmp_path / "m" / "test_2018_flickr.en", "a test set without its German\n")
    corpus = multi30k(tmp_path / "out", tmp_path / "m", tgt="fr")
    assert list(corpus.splits) == ["train", "dev", "test_2016_flickr", "test_2017_mscoco"]
    assert [facts["pairs"] for facts in corpus.splits.values()] == [20, 19, 18, 17]
    back = multi30k(tmp_path / "back", tmp_path / "m", src="de", tgt="en")
    assert list(back.pairs("dev")) == [(tgt, src) for src, tgt in SETS[1:]]
    (tmp_path / "m" / ("val.de" + ".gz" * zipped)).unlink()
    with pytest.raises(InputError, match=r"has no val\.en with val\.de"):
        multi30k(tmp_path / "out2", tmp_path / "m")
    with pytest.raises(InputError, match="is not a folder"):
        multi30k(tmp_path / "out2", tmp_path / "nowhere")


def test_multi30k_from_the_hub(tmp_path, hub):
    for i, split in enumerate(["train", "val", "test"]):
        put(hub / "bentrevett" / "multi30k" / f"{split}.jsonl",
            [json.dumps({"en": src, "de": tgt}) for src, tgt in (SETS if i else PAIRS)[i:]])
    corpus = multi30k(tmp_path / "out")
    assert [(split, list(corpus.pairs(split))) for split in corpus.splits] == [
        ("train", PAIRS), ("dev", SETS[1:]), ("test_2016_flickr", SETS[2:])]
    assert list(multi30k(tmp_path / "back", src="de", tgt="en").pairs("train")) == [(tgt, src) for src, tgt in PAIRS]
    with pytest.raises(InputError, match="en-fr: .* give as source"):
        multi30k(tmp_path / "fr", tgt="fr")


def test_multi30k_without_a_network(tmp_path, hub):
    with pytest.raises(InputError,
                       match="bentrevett/multi30k could not be loaded .* connect to the network, or give "
                             "as source") as error:
        multi30k(tmp_path / "out")
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()


def test_a_connection_that_breaks_in_the_middle_leaves_nothing(tmp_path, hub, monkeypatch):
    import datasets

    def rows(*args, **kwargs):
        yield from ({"en": src, "de": tgt} for src, tgt in PAIRS)
        raise ConnectionError("reset by peer\nand more")
    monkeypatch.setattr(datasets, "load_dataset", rows)
    before = tree(tmp_path)
    with pytest.raises(InputError, match=r"\(ConnectionError: reset by peer\)"):
        multi30k(tmp_path / "out")
    assert tree(tmp_path) == before


# --- WMT 2014 ---------------------------------------------------------------------------------------------------------

@pytest.fixture
def sacrebleu_cache(tmp_path, monkeypatch):
    "sacreBLEU's cache, with small test sets in its layout; a download fails as it does without a network."
    from sacrebleu.dataset import DATASETS

    def refuse(*args, **kwargs):
        raise urllib.error.URLError("no network in tests")
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    for test_set in ("wmt13", "wmt14", "wmt14/full"):
        monkeypatch.setattr(DATASETS[test_set], "_outdir", str(tmp_path / "sb" / test_set))
        monkeypatch.setattr(DATASETS[test_set], "_rawdir", str(tmp_path / "sb" / test_set / "raw"))

    def fill(test_set, pairs, langs):
        for field, texts in zip(("src", "ref", "docid", "genre", "origlang"),
                                [*zip(*pairs), *[["x"] * len(pairs)] * 3]):
            put(tmp_path / "sb" / test_set / f"{test_set.replace('/', '_')}.{langs}.{field}", list(texts))
    return fill


@pytest.mark.parametrize("tgt", ["de", "fr"])
def test_wmt14_through_the_libraries(tmp_path, hub, sacrebleu_cache, tgt):
    from datasets import Dataset
    for test_set, n in (("wmt13", 3), ("wmt14/full", 5), ("wmt14", 4)):
        sacrebleu_cache(test_set, SETS[:n], f"en-{tgt}")
    folder = put(hub / "wmt" / "wmt14" / "README.md", f"---\nconfigs:\n- config_name: {tgt}-en\n  data_files:\n"
                 "  - split: train\n    path: train-*.parquet\n---\n").parent
    rows = [{"translation": {tgt: b, "en": a}} for a, b in PAIRS] + [{"translation": {tgt: None, "en": "alone"}}]
    for i in range(3):  # in several files, as it is there
        Dataset.from_list(rows[i * 7:(i + 1) * 7]).to_parquet(folder / f"train-{i}.parquet")
    corpus = wmt14(tmp_path / "out", tgt)
    assert list(corpus.pairs("train")) == PAIRS and corpus.splits["train"]["dropped"]["empty"] == 1
    tests = ["newstest2014_full", "newstest2014_filtered_2737"] if tgt == "de" else ["newstest2014_full"]
    assert corpus.tests == tests and (corpus.src, corpus.tgt) == ("en", tgt)
    assert [corpus.splits[split]["pairs"] for split in ("dev", *tests)] == [3, 5, 4][:1 + len(tests)]


def test_wmt14_from_a_folder(tmp_path):
    folder = tmp_path / "wmt"
    for tgt in ("de", "fr"):
        for i, year in enumerate((2012, 2013, 2014, 2015)):
            put_pairs(folder, f"newstest{year}.en-{tgt}", (SETS if i else PAIRS)[i:], ("en", tgt))
    put_pairs(folder, "europarl-v7.de-en", [("europe", "Europa")], zipped=True)
    put(folder / "newstest2014.en-de.filtered_2737.indices", "1\n0\n4\n")
    corpus = wmt14(tmp_path / "out", "de", folder)
    assert list(corpus.pairs("train")) == [("europe", "Europa"), *PAIRS]  # and newstest2012, but nothing later
    assert list(corpus.pairs("dev")) == SETS[1:] and corpus.tests == [
        "newstest2014_full", "newstest2014_filtered_2737"]
    assert list(corpus.pairs("newstest2014_filtered_2737")) == [SETS[2], SETS[3], SETS[6]]
    put(folder / "newstest2014.en-de.filtered_2737.indices", "1\n0\n4\n2\n")
    with pytest.raises(InputError, match="of other files or options"):
        wmt14(tmp_path / "out", "de", folder)
    french = wmt14(tmp_path / "out-fr", "fr", folder)
    assert list(french.pairs("train")) == PAIRS and french.tests == ["newstest2014_full"]
    put_pairs(folder, "train", [("train", "Zug")])
    assert list(wmt14(tmp_path / "out2", "de", folder).pairs("train")) == [("train", "Zug")]
    for indices, said in (("1\n99\n", "lists line 99"), ("1\nx\n", "line 2: not a line's number"),
                          ("1" * 5000, "line 1: not a line's number")):
        put(folder / "newstest2014.en-de.filtered_2737.indices", indices)
        with pytest.raises(InputError, match=said):
            wmt14(tmp_path / "out3", "de", folder)
    assert not (tmp_path / "out3").exists()


def test_wmt14_streams_from_the_hub(tmp_path, hub, sacrebleu_cache, monkeypatch):
    "A row is asked for when the one before it was written: however many there are, one is in memory."
    import datasets
    for test_set, n in (("wmt13", 3), ("wmt14/full", 5)):
        sacrebleu_cache(test_set, PAIRS[:n], "en-fr")
    options, written = {}, []

    def rows():
        for i in range(40_000):
            if i % 10_000 == 9_999:
                written.append(sum(path.stat().st_size for path in (tmp_path / ".out.tmp").glob("train.*")))
            yield {"translation": {"en": f"the number {i} is a number", "fr": f"le nombre {i} est un nombre"}}

    def load_dataset(*args, **kwargs):
        options.update(kwargs)
        return rows()
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert wmt14(tmp_path / "out", "fr").splits["train"]["pairs"] == 40_000 and options["streaming"]
    assert written == sorted(set(written)) and written[-1] > 0.9 * written[0] / 9_999 * 39_999


def test_wmt14_takes_from_sacrebleu_what_the_folder_lacks(tmp_path, sacrebleu_cache):
    put_pairs(tmp_path / "wmt", "train", PAIRS)
    with pytest.raises(InputError,
                       match="sacreBLEU could not fetch wmt13 en-de .* connect to the network, or give as source"):
        wmt14(tmp_path / "out", "de", tmp_path / "wmt")
    assert not (tmp_path / "out").exists()
    for test_set, n in (("wmt13", 3), ("wmt14/full", 5), ("wmt14", 4)):
        sacrebleu_cache(test_set, SETS[:n], "en-de")
    corpus = wmt14(tmp_path / "out", "de", tmp_path / "wmt")
    assert [facts["pairs"] for facts in corpus.splits.values()] == [20, 3, 5, 4]


def test_wmt14_says_what_is_wrong(tmp_path, good):
    with pytest.raises(InputError, match="tgt 'cs'"):
        wmt14(tmp_path / "out", "cs")
    with pytest.raises(InputError, match="has no training text"):
        wmt14(tmp_path / "out", "fr", tmp_path)
    with pytest.raises(InputError, match="max_ratio 0.5"):
        wmt14(tmp_path / "out", "de", tmp_path, Cleaning(max_ratio=0.5))
