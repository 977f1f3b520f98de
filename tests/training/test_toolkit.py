"""What people who train translation models expect: runs that go on, begin from others, stop by themselves; files of
numbers; ensembles."""
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from annotated_transformer.commands.translate import save_attention
from annotated_transformer.corpus import sources
from annotated_transformer.corpus.batching import ParallelCorpus
from annotated_transformer.corpus.corpora import Corpus
from annotated_transformer.corpus.vocabulary import (
    BytePairVocabulary,
    WordPieceVocabulary,
    learn_vocabulary,
)
from annotated_transformer.decoding.scores import bleu
from annotated_transformer.decoding.translation import load
from annotated_transformer.tools.files import InputError
from annotated_transformer.training import averaging
from annotated_transformer.training.loop import start_run, train
from annotated_transformer.training.presets import TrainingConfig
from annotated_transformer.training.runs import Run, ship
from here import SHAPE, TRAINING, small_corpus

pytestmark = pytest.mark.xdist_group("toolkit")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return small_corpus(tmp_path_factory.mktemp("toolkit") / "data")


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    run = start_run(tmp_path_factory.mktemp("toolkit") / "finished", data, SHAPE, TRAINING)
    assert train(run)
    return run.folder


def same_weights(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


# --- nothing lost, nothing half-written -------------------------------------------------------------------------------
def test_two_processes_note_their_scores_at_once(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "run")
    note = ("import sys; from annotated_transformer.training.runs import Run; run = Run.open(sys.argv[1])\n"
            "for n in range(25): run.record.add_evaluation(f'{sys.argv[2]}{n}', {})")
    both = [subprocess.Popen([sys.executable, "-c", note, str(folder), name]) for name in "ab"]
    assert [process.wait() for process in both] == [0, 0]
    assert len(Run.open(folder).record.read()["evaluations"]) == 50


def test_a_record_goes_with_the_average_that_it_describes(finished, tmp_path):
    run = Run.open(shutil.copytree(finished, tmp_path / "run"))
    run.continue_from(TRAINING.steps)
    assert not run.finished() and not (run.folder / "record.json").exists()
    assert train(run) and run.record.read()["status"] == "finished"


def test_an_average_that_was_not_measured_is_not_taken(data, finished, tmp_path, monkeypatch):
    run = Run.open(shutil.copytree(finished, tmp_path / "run"))
    dev, before = averaging.development_set(run, ParallelCorpus(data, "dev")), run.weights()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(averaging, "quality_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        averaging.average_again(run, dev, 1, False)
    assert same_weights(run.weights(), before)


def test_a_corpus_with_a_new_vocabulary_is_encoded_before_it_is_trained_on(data, tmp_path):
    folder = shutil.copytree(data, tmp_path / "data")
    learn_vocabulary(Corpus.open(folder), BytePairVocabulary, 280)
    with pytest.raises(InputError, match="not encoded yet with its vocabulary"):
        start_run(tmp_path / "run", folder, replace(SHAPE, vocab_size=280), TRAINING)
    assert not (tmp_path / "run").exists()


def test_warnings_count_the_lines_of_a_stream(capsys):
    translator = load("grammar")
    long = "The cow is old . " * 300
    list(translator.stream(["The cow is old .", long], ahead=1))
    assert "warning: line 2 has" in capsys.readouterr().err


# --- going on ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_runs_keep_the_same_best_checkpoint(data, tmp_path):
    config = replace(TRAINING, steps=60, rate=30.0, patience=4, save_minutes=0.0005)
    undisturbed, killed = (start_run(tmp_path / name, data, SHAPE, config) for name in ("undisturbed", "killed"))
    assert train(undisturbed)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    for step in (5, 11):
        process = subprocess.Popen([sys.executable, "-m", "annotated_transformer", "train", str(killed.folder)],
                                   env=environment, stderr=subprocess.DEVNULL)
        while process.poll() is None and not any(m["step"] >= step for m in killed.history.metrics()):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert train(Run.open(killed.folder))
    assert [step for step, _ in killed.checkpoints.found()] == [step for step, _ in undisturbed.checkpoints.found()]
    assert same_weights(killed.weights(), undisturbed.weights())


def test_event_files_hold_what_the_report_holds(data, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    run = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=8))
    assert train(run, tensorboard=True)
    run.extend({"steps": 12})
    assert train(Run.open(run.folder), tensorboard=True)
    events = EventAccumulator(str(run.folder / "tensorboard")).Reload()
    for name in ("loss", "dev_perplexity", "gradient_norm"):
        told = [(line["step"], line[name]) for line in run.history.metrics() if name in line]
        assert [e.step for e in events.Scalars(name)] == [step for step, _ in told]
        assert [e.value for e in events.Scalars(name)] == pytest.approx([value for _, value in told], rel=1e-6)


# --- from other weights -----------------------------------------------------------------------------------------------


# --- options that would have no effect --------------------------------------------------------------------------------


# --- devices and extras -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library, use", [
    ("tokenizers", lambda: WordPieceVocabulary.learn(["a b c"], 20)),
    ("sacrebleu", lambda: sources.sacrebleu_files("wmt13", "en-de")),
    ("sacrebleu.metrics", lambda: bleu(["a"], ["b"])),
    ("altair", lambda: save_attention(load("grammar"), "The cow is old."))],
    ids=["tokenizers", "sacrebleu", "metrics", "altair"])
def test_what_lacks_a_library_says_which(library, use, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    with pytest.raises(InputError,
                       match=f"^{library.split('.')[0]}.* is not installed, and this needs it: pip install"):
        use()


@pytest.mark.parametrize("precision", ["float16", "bfloat16", "int8"])
def test_rounded_products_translate_nearly_the_same(precision):
    from annotated_transformer.corpus import grammar
    lines = [example.src for _, example in zip(range(200), grammar.examples(seed=11))]
    exact, rounded = (load("grammar", p).translate(lines) for p in ("float32", precision))
    assert sum(a == b for a, b in zip(exact, rounded)) >= 185


def test_shipped_weights_load_with_8_and_16_bits(finished, tmp_path):
    run, exact = Run.open(finished), load(finished).model.state_dict()
    for bits, steps in ((16, 2**11), (8, 254)):
        ship(run, tmp_path / str(bits), bits)
        for name, tensor in load(tmp_path / str(bits)).model.state_dict().items():
            largest = exact[name].abs().max() if exact[name].dim() < 2 else exact[name].abs().amax(1, keepdim=True)
            assert ((tensor - exact[name]).abs() <= largest / (steps if exact[name].dim() > 1
                                                               else 2**11) * 1.001 + 1e-7).all(), name
    size = {bits: (tmp_path / str(bits) / "averaged.safetensors").stat().st_size for bits in (8, 16)}
    assert size[8] < 0.8 * size[16]  # rows of 8 numbers: of wider ones the scale is a smaller part


def test_fine_tuning_gives_both_runs_the_same_training(finished, data, tmp_path):
    from annotated_transformer.commands.train import peak_rate
    from annotated_transformer.experiments.fine_tuning import PEAK, measure_fine_tuning
    record = measure_fine_tuning(str(finished), data, tmp_path / "runs", tmp_path, 0.01)
    tuned, scratch = (Run.open(tmp_path / "runs" / name) for name in ("tuned", "scratch"))
    assert tuned.config["training"] == scratch.config["training"] and tuned.config["model"] == scratch.config["model"]
    assert peak_rate(tuned.model_config(), TrainingConfig(**tuned.config["training"])) == pytest.approx(PEAK)
    assert tuned.initial_weights() is not None and scratch.initial_weights() is None
    metrics = record["metrics"]
    assert metrics["gain"] == metrics["sacrebleu/tuned"] - metrics["sacrebleu/scratch"] and metrics[
        "perplexity/tuned"] < metrics["perplexity/scratch"]
    assert measure_fine_tuning(str(finished), data, tmp_path / "runs", tmp_path,
                               0.01)["metrics"]["steps/tuned"] >= metrics["steps/tuned"]
    with pytest.raises(InputError, match="a run of another from"):  # the folder's runs began from other weights
        measure_fine_tuning(str(tmp_path / "runs/scratch"), data, tmp_path / "runs", tmp_path, 0.01)
