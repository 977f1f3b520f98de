"""The study of averaging, beam and penalty: resumed, refused, and the same numbers as `evaluate`."""

import json
import shutil

import pytest

from annotated_transformer.corpus.corpora import Corpus, grammar_corpus
from annotated_transformer.decoding.scores import bleu, paired
from annotated_transformer.decoding.translation import load
from annotated_transformer.experiments import search_settings
from annotated_transformer.experiments.search_settings import (
    begun_record,
    spread_sentences,
    main,
    measure_settings,
)
from annotated_transformer.tools.files import InputError
from annotated_transformer.tools.records import find_record, write_record
from annotated_transformer.training.loop import train
from annotated_transformer.training.starting import start_run
from annotated_transformer.training.presets import TrainingConfig
from annotated_transformer.training.runs import Run
from here import SHAPE, small_corpus

pytestmark = pytest.mark.xdist_group("search_settings")
TRAINING = TrainingConfig(steps=30, warmup_steps=10, batch_tokens=400, save_every=10, keep=3, precision="float32")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("settings")
    small_corpus(folder / "data")
    started = start_run(folder / "run", folder / "data", SHAPE, TRAINING)
    assert train(started)
    return started


def test_each_number_is_moved_by_itself_and_the_record_tells_it(run, tmp_path, monkeypatch):
    monkeypatch.setattr(search_settings, "VARIED", {"checkpoints": (1, 3), "beam_size": (1, 4), "alpha": (0.0, 0.6)})
    record = measure_settings(run.folder, tmp_path)
    points = record["metrics"]["points"]
    assert record == find_record("settings_run", tmp_path) and record["seconds"] > 0
    assert [(p["checkpoints"], p["beam_size"], p["alpha"])
            for p in points] == [(3, 4, 0.6), (1, 4, 0.6), (3, 1, 0.6), (3, 4, 0.0)]
    src, references = spread_sentences(run, None, 1000)
    assert len(src) == 12 == record["config"]["sentences"]
    run.write_average(run.checkpoints.intact()[-3:])
    made = load(run.folder).translate(src, beam_size=1)
    assert points[2]["sacrebleu"] == bleu(made, references).value
    first = load(run.folder).translate(src)
    assert points[0]["p"] == 1.0 and points[2]["p"] == paired(first, made, references)["sacrebleu"].p
    words = sum(len(line.split()) for line in references)
    assert points[2]["length_ratio"] == sum(len(line.split()) for line in made) / words
    drawn = load(run.folder).translate(src, sample=True)
    assert record["metrics"]["sampled_length_ratio"] == sum(len(line.split()) for line in drawn) / words


def test_what_is_measured_is_not_measured_again(run, tmp_path, monkeypatch):
    monkeypatch.setattr(search_settings, "VARIED", {"checkpoints": (1,), "beam_size": (1, 2), "alpha": (0.6,)})
    whole = measure_settings(run.folder, tmp_path / "whole")
    stopped = iter(whole["metrics"]["points"][:2])

    def two_only(*_):
        yield from stopped
        raise KeyboardInterrupt

    monkeypatch.setattr(search_settings, "points", two_only)
    with pytest.raises(KeyboardInterrupt):
        measure_settings(run.folder, tmp_path / "again")
    monkeypatch.undo()
    monkeypatch.setattr(search_settings, "VARIED", {"checkpoints": (1,), "beam_size": (1, 2), "alpha": (0.6,)})
    counted, real = [], search_settings.translator_of
    monkeypatch.setattr(search_settings, "translator_of", lambda *args: counted.append(args) or real(*args))
    assert measure_settings(run.folder, tmp_path / "again")["metrics"] == whole["metrics"]
    assert len(counted) == len(whole["metrics"]["points"]) - 2 + 2  # the first, to compare with, and the drawn one


def test_a_record_of_other_sentences_stays(run, tmp_path, monkeypatch):
    monkeypatch.setattr(search_settings, "VARIED", {"checkpoints": (1,), "beam_size": (1,), "alpha": (0.6,)})
    write_record(tmp_path / "settings_run.json",
                 begun_record(tmp_path / "settings_run.json", run, 12))  # as a search that was stopped leaves it
    with pytest.raises(InputError, match="settings_run.json: of other weights or sentences"):
        measure_settings(run.folder, tmp_path, sentences=5)
    whole = measure_settings(run.folder, tmp_path)
    with pytest.raises(InputError, match="translation.jsonl has a record named settings_run"):
        measure_settings(run.folder, tmp_path)
    assert find_record("settings_run", tmp_path) == whole and not (tmp_path / "settings_run.json").exists()


def test_sentences_are_spread_over_the_set(run):
    src, references = spread_sentences(run, None, 5)
    every = list(Corpus.open(run.config["data"]["folder"]).pairs("dev"))
    assert list(zip(src, references)) == every[::3]


def test_refused(run, tmp_path, capsys):
    unfinished = Run.create(tmp_path / "unfinished", SHAPE, {"steps": 5}, run.config["data"], run.vocabulary())
    other = grammar_corpus(tmp_path / "other", train=20, dev=7, test=5, test_long=5, seed=3)
    moved = shutil.copytree(run.folder, tmp_path / "moved")
    written = json.loads((moved / "config.json").read_text())
    written["data"]["folder"] = str(tmp_path / "away")
    (moved / "config.json").write_text(json.dumps(written))
    without_dev = tmp_path / "without_dev"
    shutil.copytree(other.folder, without_dev)
    facts = json.loads((without_dev / "corpus.json").read_text())
    del facts["splits"]["dev"]
    (without_dev / "corpus.json").write_text(json.dumps(facts))
    for arguments, named in (
        ([str(unfinished.folder)], f"annotated-transformer train {unfinished.folder}"),
        ([str(run.folder), "--sentences", "0"], "sentences 0"),
        ([str(run.folder), "--data", str(other.folder)], str(other.folder)),
        ([str(run.folder), "--data", str(without_dev)], str(without_dev)),
        ([str(moved)], "its corpus"),
        ([str(tmp_path / "none")], str(tmp_path / "none")),
    ):
        with pytest.raises(SystemExit) as end:
            main([*arguments, "--out", str(tmp_path / "out")])
        said = capsys.readouterr().err.strip()
        assert end.value.code == 2 and named in said and "\n" not in said
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="sentences"):
        measure_settings(run.folder, tmp_path, sentences=0)
