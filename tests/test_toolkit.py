"""What people who train translation models expect: runs that go on, begin from others, stop by themselves; files of numbers; ensembles."""
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from annotated_transformer import cli
from annotated_transformer.batching import ParallelCorpus, encode_corpus
from annotated_transformer.checkpoints import load_weights
from annotated_transformer.commands.configuration import read_configuration
from annotated_transformer.corpora import grammar_corpus
from annotated_transformer.files import InputError
from annotated_transformer.presets import TINY, TrainingConfig
from annotated_transformer.regularization import measure
from annotated_transformer.runs import Run, average
from annotated_transformer.training import start_run, train
from annotated_transformer.translation import ensemble, load
from annotated_transformer.vocabulary import BytePairVocabulary, learn_vocabulary
from annotated_transformer.watching import best_step

pytestmark = pytest.mark.xdist_group("toolkit")
SHAPE = replace(TINY, vocab_size=300, n_layers=1, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8)
TRAINING = TrainingConfig(steps=24, warmup_steps=8, batch_tokens=300, save_every=4, report_every=2, keep=2, precision="float32")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toolkit") / "data"
    corpus = grammar_corpus(folder, train=200, dev=20, test=5, test_long=5)
    encode_corpus(corpus, learn_vocabulary(corpus, BytePairVocabulary, 300))
    return folder


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    run = start_run(tmp_path_factory.mktemp("toolkit") / "finished", data, SHAPE, TRAINING)
    assert train(run)
    return run.folder


def said(capsys, *argv, code=0) -> str:
    "What a command says on standard error; it ends with `code`."
    try:
        cli.main([str(word) for word in argv])
        found = 0
    except SystemExit as end:
        found = end.code
    words = capsys.readouterr()
    assert found == code, words.err
    return words.err + words.out


def refused(capsys, *argv) -> str:
    "The one line with which a command line is refused."
    capsys.readouterr()
    text = said(capsys, *argv, code=2)
    assert text.count("\n") == 1 and text.startswith("annotated-transformer: "), text
    return text


def same_weights(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


# --- going on -------------------------------------------------------------------------------------------------------------------------

def test_a_finished_run_goes_on_to_the_weights_it_would_have_had(data, finished, tmp_path, capsys):
    run = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=14))
    assert train(run) and run.record()["metrics"]["steps"] == 14
    said(capsys, "train", run.folder, "--steps", 24)
    again = Run.open(run.folder)
    assert same_weights(again.load_checkpoint()[0], Run.open(finished).load_checkpoint()[0])
    assert same_weights(again.weights(), Run.open(finished).weights())
    assert [step for step, _ in again.checkpoints()] == [step for step, _ in Run.open(finished).checkpoints()]
    assert again.record()["metrics"]["steps"] == 24 and again.config["extended"][0]["steps"] == 24
    assert "has made 24 updates" in refused(capsys, "train", run.folder, "--steps", 20)
    assert "another configuration" in refused(capsys, "train", run.folder, "--steps", 30, "--rate", 2)
    assert Run.open(run.folder).config["training"]["steps"] == 24


def test_patience_ends_a_training_and_the_best_checkpoint_stays(data, tmp_path, capsys):
    "The rate is so high that the development set is at its best early, and the run would go on for long."
    config = replace(TRAINING, steps=400, rate=30.0, patience=3, keep=2)
    run = start_run(tmp_path / "run", data, SHAPE, config)
    assert train(run)
    lines = run.metrics()
    best, last = best_step(lines), lines[-1]["step"]
    assert last == best + 3 * config.save_every < 400
    assert [step for step, _ in run.checkpoints()] == [best, last - 4, last]
    record = run.record()
    assert record["status"] == "finished" and record["metrics"]["steps"] == last
    assert [found["steps"] for found in record["averages"]] == [[last], [last - 4, last], [best]]
    chosen, = (found for found in record["averages"] if found["chosen"])
    assert chosen["perplexity/dev"] == min(found["perplexity/dev"] for found in record["averages"])
    assert train(run) and run.metrics() == lines  # asked again, it knows that it is over
    said(capsys, "train", run.folder, "--patience", 0, "--steps", last + 4)
    assert run.metrics()[-1]["step"] == last + 4


def test_killed_runs_keep_the_same_best_checkpoint(data, tmp_path):
    config = replace(TRAINING, steps=60, rate=30.0, patience=4, save_minutes=0.0005)
    undisturbed, killed = (start_run(tmp_path / name, data, SHAPE, config) for name in ("undisturbed", "killed"))
    assert train(undisturbed)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    for step in (5, 11):
        process = subprocess.Popen([sys.executable, "-m", "annotated_transformer.cli", "train", str(killed.folder)], env=environment, stderr=subprocess.DEVNULL)
        while process.poll() is None and not any(m["step"] >= step for m in killed.metrics()):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert train(Run.open(killed.folder))
    assert [step for step, _ in killed.checkpoints()] == [step for step, _ in undisturbed.checkpoints()]
    assert same_weights(killed.weights(), undisturbed.weights())


def test_bleu_decides_where_it_is_measured_and_changes_no_weight(data, finished, tmp_path, capsys):
    said(capsys, "train", tmp_path / "run", "--data", data, "--config", finished / "config.json", "--dev-bleu", 5)
    run = Run.open(tmp_path / "run")
    assert same_weights(run.load_checkpoint()[0], Run.open(finished).load_checkpoint()[0])
    assert all(("dev_bleu" in line) == ("dev_perplexity" in line) for line in run.metrics())
    lines = [{"step": 1, "dev_bleu": 9.0, "dev_perplexity": 5.0}, {"step": 2, "dev_bleu": 8.0, "dev_perplexity": 4.0}]
    assert best_step(lines) == 1 and best_step([{k: v for k, v in line.items() if k != "dev_bleu"} for line in lines]) == 2
    level = [{"step": n, "dev_bleu": 0.0, "dev_perplexity": 9.0 - n} for n in range(3)]
    assert best_step(level) == 2  # between equal BLEUs perplexity decides


def test_event_files_hold_what_the_report_holds(data, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    run = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=8))
    assert train(run, tensorboard=True)
    run.extend({"steps": 12})
    assert train(Run.open(run.folder), tensorboard=True)
    events = EventAccumulator(str(run.folder / "tensorboard")).Reload()
    for name in ("loss", "dev_perplexity", "gradient_norm"):
        told = [(line["step"], line[name]) for line in run.metrics() if name in line]
        assert [e.step for e in events.Scalars(name)] == [step for step, _ in told]
        assert [e.value for e in events.Scalars(name)] == pytest.approx([value for _, value in told], rel=1e-6)


# --- which checkpoints ----------------------------------------------------------------------------------------------------------------

def test_the_average_command(data, finished, tmp_path, capsys):
    import shutil
    folder = shutil.copytree(finished, tmp_path / "run")
    run = Run.open(folder)
    said(capsys, "average", folder, "--last", 2)
    expected = average([load_weights(path / "model.safetensors") for _, path in run.checkpoints()[-2:]])
    assert same_weights(run.weights(), expected)
    model, dev = run.model(), ParallelCorpus(data, "dev")
    model.load_state_dict(expected)
    record = run.record()
    assert record["metrics"]["perplexity/dev"] == pytest.approx(measure(model, map(dev.batch, dev.order(300))).perplexity)
    assert record["metrics"]["averaged_checkpoints"] == 2 and record["weights"] == run.provenance()["weights"]
    said(capsys, "average", folder, "--best")
    best = best_step(run.metrics())
    assert same_weights(run.weights(), load_weights(folder / "checkpoints" / f"step_{best}" / "model.safetensors"))
    before = run.record()
    assert "has 2 checkpoints: give 1 to 2" in refused(capsys, "average", folder, "--last", 3)
    assert "give either" in refused(capsys, "average", folder) and "give either" in refused(capsys, "average", folder, "--best", "--last", 1)
    assert run.record() == before


# --- from other weights ---------------------------------------------------------------------------------------------------------------

def test_from_a_run_begins_with_its_weights_and_survives_it(data, finished, tmp_path, capsys):
    import shutil
    source = shutil.copytree(finished, tmp_path / "source")
    said(capsys, "train", tmp_path / "run", "--data", data, "--from", source, "--steps", 4, "--dropout", 0.3, "--rate", 1e-30)
    run = Run.open(tmp_path / "run")
    assert same_weights(run.initial_weights(), Run.open(finished).weights())
    for name, tensor in run.load_checkpoint()[0].items():  # the rate is next to nothing
        torch.testing.assert_close(tensor, Run.open(finished).weights()[name], rtol=0, atol=1e-6)
    assert run.config["from"] == str(source) and run.config["model"]["dropout"] == 0.3 and run.config["training"]["warmup_steps"] == 8
    shutil.rmtree(source)
    shutil.rmtree(run.folder / "checkpoints")  # as if it had been killed before its first checkpoint
    assert train(run)
    assert "has begun already" in refused(capsys, "train", run.folder, "--from", finished)


def test_from_what_does_not_fit_is_refused(data, finished, tmp_path, capsys):
    target = ["train", tmp_path / "run", "--data", data]
    assert "embedding.weight is [300, 16] there and [300, 32]" in refused(capsys, *target, "--from", finished, "--d-model", 32)
    assert "--vocabulary-from grammar" in refused(capsys, *target, "--from", "grammar")
    assert "no such run directory" in refused(capsys, *target, "--from", tmp_path / "nothing")
    (tmp_path / "weights.safetensors").write_bytes(b"not weights")
    assert "not a safetensors file" in refused(capsys, *target, "--from", tmp_path / "weights.safetensors")
    assert not (tmp_path / "run").exists()


def test_a_file_of_weights_needs_their_shape(data, finished, tmp_path, capsys):
    weights = finished / "averaged.safetensors"
    assert "embedding.weight" in refused(capsys, "train", tmp_path / "run", "--data", data, "--from", weights, "--config", "tiny")
    shape = [word for name in ("n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v")
             for word in (f"--{name.replace('_', '-')}", getattr(SHAPE, name))]
    said(capsys, "train", tmp_path / "run", "--data", data, "--from", weights, "--config", "tiny", *shape, "--steps", 2)
    assert same_weights(Run.open(tmp_path / "run").initial_weights(), Run.open(finished).weights())


def test_a_vocabulary_taken_from_a_run(finished, tmp_path, capsys):
    corpus = tmp_path / "text"
    for side, line in (("en", "The cow is old ."), ("de", "Die Kuh ist alt .")):
        Path(f"{corpus}.{side}").write_text("\n".join(f"{line} {n}" for n in range(40)), encoding="utf-8")
    given = ["prepare", tmp_path / "data", "--train", f"{corpus}.en", f"{corpus}.de", "--holdout", 5, "--vocabulary-from", finished]
    assert "--from" in said(capsys, *given)
    said(capsys, "train", tmp_path / "run", "--data", tmp_path / "data", "--from", finished, "--steps", 2)
    for option in (["--vocab-size", 500], ["--vocabulary", "bpe"], ["--byte-fallback"]):
        assert "no effect with --vocabulary-from" in refused(capsys, "prepare", tmp_path / "new", *given[2:], *option)
    assert not (tmp_path / "new").exists()


# --- configuration files --------------------------------------------------------------------------------------------------------------

TOML = 'config = "tiny"\n[model]\nn_layers = 1\n[training]\nsteps = 7\nrate = 2\n'
YAML = "config: tiny\nmodel:\n  n_layers: 1\ntraining:\n  steps: 7\n  rate: 2\n"
JSON = json.dumps({"config": "tiny", "model": {"n_layers": 1}, "training": {"steps": 7, "rate": 2}}, indent=1)


@pytest.mark.parametrize("suffix, text", [("toml", TOML), ("yaml", YAML), ("yml", YAML), ("json", JSON)])
def test_a_configuration_says_the_same_in_every_format(suffix, text, tmp_path):
    path = tmp_path / f"mine.{suffix}"
    path.write_text(text, encoding="utf-8")
    assert read_configuration(path) == ("tiny", {"n_layers": 1, "steps": 7, "rate": 2})


@pytest.mark.parametrize("suffix, text, said", [
    ("toml", TOML.replace("n_layers", "n_layer"), "line 3: n_layer: no such key in model"),
    ("toml", TOML.replace("steps = 7", "steps = 7.5"), "line 5: steps is 7.5: give a whole number"),
    ("toml", TOML.replace("steps = 7", "steps = true"), "line 5: steps is True: give a whole number"),
    ("toml", TOML.replace("rate = 2", 'rate = "2"'), "line 6: rate is '2': give a number"),
    ("toml", TOML.replace("rate = 2", 'precision = "half"'), "line 6: precision is 'half': give one of"),
    ("toml", "steps = 7\n" + TOML, "line 1: steps: no such key"), ("toml", "[model\n", "not TOML"),
    ("yaml", YAML.replace("n_layers", "n_layer"), "line 3: n_layer"), ("yaml", YAML.replace("steps: 7", "steps: seven"), "line 5: steps is 'seven'"),
    ("yaml", "model: [", "not YAML"), ("json", JSON.replace('"rate": 2', '"rate": null'), "line 8: rate is None"), ("json", "{", "not JSON"),
    ("json", "[]", "give the parts"), ("toml", 'kind = "perceptron"', "line 1: kind is 'perceptron'")])
def test_what_is_wrong_with_a_configuration_is_said_with_line_and_key(suffix, text, said, data, tmp_path, capsys):
    path = tmp_path / f"mine.{suffix}"
    path.write_text(text, encoding="utf-8")
    line = refused(capsys, "train", tmp_path / "run", "--data", data, "--config", path)
    assert said in line and str(path) in line and not (tmp_path / "run").exists()


def test_what_is_typed_goes_before_the_file_and_a_run_gives_one(data, finished, tmp_path, capsys):
    said(capsys, "train", tmp_path / "run", "--data", data, "--config", finished / "config.json", "--steps", 2, "--seed", 5)
    run = Run.open(tmp_path / "run")
    assert run.config["model"] == asdict(SHAPE)
    assert run.config["training"] == asdict(replace(TRAINING, steps=2, seed=5))


# --- devices and extras ---------------------------------------------------------------------------------------------------------------

def test_devices_and_threads(capsys, tmp_path):
    for device in ("tpu", "cuda:99", "cpu:1", "cuda:x", *(() if torch.cuda.is_available() else ("cuda",))):
        assert f"--device {device}: there is no such device" in refused(capsys, "translate", "grammar", "--device", device)
    assert "--threads 0" in refused(capsys, "translate", "grammar", "--threads", 0)
    before = torch.get_num_threads()
    file = tmp_path / "text"
    file.write_text("The cow is old .\n")
    said(capsys, "translate", "grammar", file, "--device", "cpu", "--threads", 1)
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)


def test_ensembles(finished, tmp_path, capsys):
    file = tmp_path / "text"
    file.write_text("The cow is old .\nThe dog sleeps .\n")
    alone = said(capsys, "translate", "grammar", file)
    assert said(capsys, "translate", "grammar", "grammar", file) == alone
    assert "only runs of one vocabulary" in refused(capsys, "translate", "grammar", finished, file)
    with pytest.raises(InputError, match="one vocabulary"):
        ensemble([load("grammar"), load(finished)])


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_rounded_products_translate_nearly_the_same(precision):
    from annotated_transformer import grammar
    lines = [example.src for _, example in zip(range(200), grammar.examples(seed=11))]
    exact, rounded = (load("grammar", p).translate(lines) for p in ("float32", precision))
    assert sum(a == b for a, b in zip(exact, rounded)) >= 185


def test_a_conversation(capsys, tmp_path, monkeypatch):
    from annotated_transformer.commands.translate import converse, drawn
    monkeypatch.chdir(tmp_path)
    translator = load("grammar")
    converse(["The cow is old .", ":attention", ":help", ""], lambda line: translator.translate(line) + "\n", lambda line: drawn(translator, line))
    words = capsys.readouterr()
    assert words.out == translator.translate("The cow is old .") + "\n\n"
    assert "attention-1.svg" in words.err and (tmp_path / "attention-1.svg").read_text().startswith("<svg") and "only :attention" in words.err
