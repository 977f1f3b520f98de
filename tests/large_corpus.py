"""A parallel corpus as large as WMT 2014's, out of real text, and what `prepare` and the batches need for it.

    python tests/large_corpus.py DATA OUT --pairs 4500000
    python tests/large_corpus.py DATA OUT --measure nbs/results

DATA holds tatoeba/eng-deu.tsv.gz, multi30k/{train,val,test_2016_flickr}.{en,de} and
newstest/newstest{2008..2014}.en-de.{en,de}.
Pairs of these are drawn at random (seeded) and set side by side until a line has as many words as one of WMT's might:
about 25 on
the average, few with more than 100. OUT/train.{en,de} are written line by line; newstest2013 and newstest2014 go along
as
development and test set. With `--measure`, `annotated-transformer prepare` (37,000 byte pairs) is run on 0.5, 1.5 and
4.5 million
pairs in OUT, each in a process of its own, and the record of it is written; that takes about ten minutes and 8 GB of
disk.
"""
import argparse
import gzip
import json
import math
import multiprocessing
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

from annotated_transformer.corpus.batching import ParallelCorpus, padding_share
from annotated_transformer.corpus.corpora import Corpus
from annotated_transformer.tools.files import write_json
from annotated_transformer.tools.records import add_record
from annotated_transformer.training.runs import make_record, origin

LANGUAGES = ("en", "de")
SPLITS = ("train", "dev", "test")


# --- the text ---------------------------------------------------------------------------------------------------------

def real_pairs(data: Path) -> list[tuple[str, str]]:
    "The EN-DE pairs of DATA that one may train on, about 212,000."
    stems = [data / "multi30k" / "train", *(data / "newstest" / f"newstest{year}.en-de" for year in range(2008, 2013))]
    pairs = []
    for stem in stems:
        sides = (stem.with_name(f"{stem.name}.{lang}").read_text(encoding="utf-8").split("\n")[:-1]
                 for lang in LANGUAGES)
        pairs += zip(*sides, strict=True)
    with gzip.open(data / "tatoeba" / "eng-deu.tsv.gz", "rt", encoding="utf-8", newline="\n") as file:
        pairs += (tuple(line.rstrip("\n").split("\t")[:2]) for line in file)
    return pairs


def recombined(pairs: list[tuple[str, str]], n: int, seed: int = 0):
    "`n` pairs, each of one or more of `pairs` side by side; the logarithm of the length that is aimed at is normal."
    rng, words = random.Random(seed), [src.count(" ") + 1 for src, _ in pairs]
    for _ in range(n):
        aim, chosen, length = rng.lognormvariate(math.log(16), 0.65), [], 0
        while length < aim:
            chosen.append(i := int(rng.random() * len(pairs)))
            length += words[i]
        yield tuple(" ".join(pairs[i][side] for i in chosen) for side in (0, 1))


def write(data: Path, out: Path, n: int, seed: int = 0) -> None:
    "Write train, dev and test to `out`."
    out.mkdir(parents=True, exist_ok=True)
    for split, year in (("dev", 2013), ("test", 2014)):
        for lang in LANGUAGES:
            shutil.copyfile(data / "newstest" / f"newstest{year}.en-de.{lang}", out / f"{split}.{lang}")
    with open(out / "train.en", "w", encoding="utf-8") as en, open(out / "train.de", "w", encoding="utf-8") as de:
        for src, tgt in tqdm(recombined(real_pairs(data), n, seed), total=n, unit=" pairs", unit_scale=True,
                             disable=None):
            en.write(src + "\n")
            de.write(tgt + "\n")


# --- what it takes ----------------------------------------------------------------------------------------------------

def prepare(folder: Path, *options, kind: tuple = ()) -> tuple[float, float, int]:
    """Run `annotated-transformer prepare KIND FOLDER` with `options`: when it began, when it ended, its most memory
    in bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    begun = time.time()
    process = subprocess.Popen([sys.executable, "-m", "annotated_transformer", "prepare", *kind, str(folder),
                                *map(str, options)],
                               stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"prepare ended with {process.returncode}")
    return begun, time.time(), usage.ru_maxrss * 1024


def measure_prepare(text: Path, folder: Path, n: int) -> dict[str, float]:
    "Seconds of each stage (by the time of the file that it writes last) and memory, for the text's `n` pairs."
    named = [word for split in SPLITS for word in (f"--{split}", *(text / f"{split}.{lang}" for lang in LANGUAGES))]
    begun, ended, peak = prepare(folder, *named, "--vocab-size", 37_000)
    times = [begun, *((folder / f"{name}.json").stat().st_mtime for name in ("corpus", "learned", "encoded"))]
    stages = dict(zip(("text", "vocabulary", "encoding"), np.diff(times)))
    facts = Corpus.open(folder).splits["train"]
    return {f"seconds_{stage}/{n}": round(float(seconds), 1) for stage, seconds in stages.items()} | {
        f"seconds/{n}": round(ended - begun, 1), f"peak_bytes/{n}": peak, f"pairs_kept/{n}": facts["pairs"],
        f"words/{n}": facts["src_words"] + facts["tgt_words"]}


def measure_batches(folder: Path, name: str, budgets) -> dict[str, float]:
    """The share of padding and how full the batches of an epoch's first pool are, and the milliseconds that making
    one takes."""
    corpus, found = ParallelCorpus(folder, "train"), {}
    sides = (corpus.src_lengths, corpus.tgt_lengths)
    for budget in budgets:
        order = corpus.order(budget, seed=0)
        start = time.perf_counter()
        for indices in order[:100]:
            corpus.batch(indices)
        milliseconds = 1000 * (time.perf_counter() - start) / len(order[:100])
        fuller = np.mean([max(int(side[batch].sum()) for side in sides) for batch in order])
        found |= {f"padding/{name}/{budget}": round(padding_share(order, *sides), 5),
                  f"tokens_fuller_side/{name}/{budget}": round(float(fuller)),
                  f"batch_milliseconds/{name}/{budget}": round(milliseconds, 2)}
    return found


def lengths_alone(folder: Path, n: int) -> None:
    """Something that `ParallelCorpus` opens: `n` pairs of random lengths, with ids that are all 0 and take no place
    on the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    lengths = np.minimum(np.exp(rng.normal(3.2, 0.6, n).astype(np.float32)), 250).astype(np.uint16) + np.uint16(2)
    for lang in LANGUAGES:
        ends = np.cumsum(lengths, dtype=np.int64)
        np.save(folder / f"train.{lang}.ends.npy", ends)
        (folder / f"train.{lang}.ids").touch()
        os.truncate(folder / f"train.{lang}.ids", 2 * int(ends[-1]))
        (folder / f"train.{lang}").touch()
        lengths = (lengths * np.exp(rng.normal(0, 0.2, n).astype(np.float32))).astype(np.uint16) + np.uint16(1)
    write_json(folder / "corpus.json", {"name": "lengths", "src": "en", "tgt": "de", "splits": {
        "train": {"pairs": n, "sha256": dict.fromkeys(LANGUAGES, "")}}})
    write_json(folder / "encoded.json", {})


def measure_order(folder: Path, budget: int = 25_000) -> dict[str, float]:
    """Seconds until a large corpus is open, an epoch's first batch made, and then one of its last pool; and the
    memory of that."""
    times = [time.perf_counter()]
    corpus = ParallelCorpus(folder, "train")
    times.append(time.perf_counter())
    for pool in (0, corpus.pools - 1):
        corpus.batch(corpus.order(budget, 0, 0, pool)[0])
        times.append(time.perf_counter())
    n, seconds = len(corpus), np.diff(times)
    names = ("seconds_open", "seconds_epoch_start", "seconds_other_pool")
    return {f"{name}/{n}": round(float(s), 2) for name, s in zip(names, seconds)} | {
        f"peak_bytes_batches/{n}": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def measure(data: Path, out: Path, results: Path, sizes: list[int]) -> None:
    "Measure all of it and write the record."
    begun, metrics, at = (time.time(), {}, origin()
                          | {"command": f"python tests/large_corpus.py DATA OUT --measure {results}"})
    for n in sizes:
        write(data, out / f"text-{n}", n)
        metrics |= measure_prepare(out / f"text-{n}", out / f"corpus-{n}", n)
        print(json.dumps(metrics, indent=1), file=sys.stderr)
    metrics |= measure_batches(out / f"corpus-{sizes[-1]}", "recombined", (4096, 25_000))
    prepare(out / "multi30k", "--source", data / "multi30k", kind=("multi30k",))
    metrics |= measure_batches(out / "multi30k", "multi30k", (4096, 25_000))
    lengths_alone(out / "lengths", 36_000_000)
    with multiprocessing.get_context("spawn").Pool(1) as alone:  # so that the memory is its own
        metrics |= alone.apply(measure_order, [out / "lengths"])
    corpus = Corpus.open(out / f"corpus-{sizes[-1]}")
    sizes = {split: facts["pairs"] for split, facts in corpus.splits.items()}
    facts = {"name": "recombined", "digest": corpus.digest, "sizes": sizes}
    add_record(make_record("prepare", "benchmark", data=facts, seed=0, metrics=metrics, begun=at,
                           config={"vocabulary": "bpe", "vocab_size": 37_000}, seconds=time.time() - begun), results)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--pairs", type=int, nargs="+", help="4500000, or with --measure 500000 1500000 4500000")
    parser.add_argument("--measure", type=Path, metavar="FOLDER", help="the folder of the records")
    options = parser.parse_args()
    if options.measure:
        measure(options.data, options.out, options.measure, options.pairs or [500_000, 1_500_000, 4_500_000])
    else:
        write(options.data, options.out, (options.pairs or [4_500_000])[0])


if __name__ == "__main__":
    main()
