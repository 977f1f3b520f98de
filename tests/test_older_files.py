"""What version 0.1 left on somebody's disk: a corpus and a run, made by the tree that is tagged second-edition.

This version opens and continues them.
"""
import json
import shutil
from pathlib import Path

import pytest

from annotated_transformer.commands.train import open_or_start
from annotated_transformer.corpus.corpora import Corpus
from annotated_transformer.decoding.translation import load
from annotated_transformer.training.loop import train
from annotated_transformer.training.runs import Run
from here import ROOT

OLD = ROOT / "tests" / "data" / "v0_1"


@pytest.fixture
def old(tmp_path) -> Path:
    return shutil.copytree(OLD, tmp_path / "old")


def test_the_corpus_opens(old):
    corpus = Corpus.open(old / "corpus")
    assert {split: facts["pairs"] for split,
            facts in corpus.splits.items()} == {"train": 260, "dev": 6, "test": 20, "test_long": 2}


def test_the_run_says_what_it_said(old):
    run = Run.open(old / "run")
    assert run.model_config().d_k == 8 and run.config["training"]["steps"] == 2000 and run.finished()
    assert [(session["from_step"], session["to_step"]) for session in run.history.sessions()] == [(0, 2000)]
    assert [line["step"] for line in run.history.metrics()] == [500, 1000, 1500, 2000]
    assert [line["set"]
            for line in run.history.evaluations()] == ["test"] == [line["set"]
                                                                   for line in run.record.read()["evaluations"]]


def test_it_translates_as_it_did(old):
    lines = (old / "corpus" / "test.en").read_text(encoding="utf-8").splitlines()
    assert load(old / "run").translate(lines) == (old / "translations.de").read_text(encoding="utf-8").splitlines()


def test_it_goes_on_as_it_did(old, monkeypatch):
    "Five updates more, beside what 0.1 reported of them on the machine that made these files."
    monkeypatch.chdir(old)  # the run names its corpus by a relative path
    run = open_or_start(Path("run"), None, None, {"steps": 2005})
    then = json.loads((old / "continued.json").read_text())
    assert train(run)
    now = run.history.metrics()[-1]
    assert [line["step"] for line in run.history.metrics()] == [500, 1000, 1500, 2000, 2005]
    for name in ("step", "epoch", "pool", "position", "tokens", "rate"):
        assert now[name] == then[name]
    for name in ("loss", "dev_perplexity"):
        assert now[name] == pytest.approx(then[name], rel=1e-3)
    assert [(session["from_step"], session["to_step"])
            for session in run.history.sessions()] == [(0, 2000), (2000, 2005)]
    assert (old / "run" / "sessions.jsonl").exists() and run.record.read()["metrics"]["steps"] == 2005
