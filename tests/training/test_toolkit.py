"""What people who train translation models expect: runs that go on, begin from others, stop by themselves; files of
numbers; ensembles."""
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

import pytest
import torch

from annotated_transformer.commands import cli
from annotated_transformer.commands import train as train_command
from annotated_transformer.commands.configuration import read_configuration
from annotated_transformer.commands.translate import save_attention
from annotated_transformer.corpus import sources
from annotated_transformer.corpus.batching import ParallelCorpus, encode_corpus
from annotated_transformer.corpus.corpora import Corpus, grammar_corpus
from annotated_transformer.corpus.vocabulary import (
    BytePairVocabulary,
    WordPieceVocabulary,
    learn_vocabulary,
    load_vocabulary,
)
from annotated_transformer.decoding.scores import bleu
from annotated_transformer.decoding.translation import Translator, ensemble, evaluate, load
from annotated_transformer.model.symbols import END, UNKNOWN
from annotated_transformer.model.transformer import count_parameters
from annotated_transformer.tools import records
from annotated_transformer.tools.files import InputError
from annotated_transformer.tools.options import OptionParser, add_arguments
from annotated_transformer.tools.records import find_record
from annotated_transformer.training import averaging
from annotated_transformer.training.checkpoints import load_weights
from annotated_transformer.training.loop import start_run, train
from annotated_transformer.training.presets import TINY, TrainingConfig
from annotated_transformer.training.regularization import measure
from annotated_transformer.training.runs import Run, mean_weights, ship
from annotated_transformer.training.watching import best_step
from here import ROOT

pytestmark = pytest.mark.xdist_group("toolkit")
SHAPE = replace(TINY, vocab_size=300, n_layers=1, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8)
TRAINING = TrainingConfig(steps=24, warmup_steps=8, batch_tokens=300, save_every=4, report_every=2, keep=2,
                          precision="float32")


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

def test_a_finished_run_goes_on_to_the_weights_it_would_have_had(data, finished, tmp_path, capsys):
    run = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=14))
    assert train(run) and run.record.read()["metrics"]["steps"] == 14
    said(capsys, "train", run.folder, "--steps", 24)
    again = Run.open(run.folder)
    assert same_weights(again.checkpoints.load()[0], Run.open(finished).checkpoints.load()[0])
    assert same_weights(again.weights(), Run.open(finished).weights())
    assert [step for step, _ in again.checkpoints.found()] == [step for step,
                                                               _ in Run.open(finished).checkpoints.found()]
    assert again.record.read()["metrics"]["steps"] == 24 and again.config["extended"][0]["steps"] == 24
    assert "has made 24 updates" in refused(capsys, "train", run.folder, "--steps", 20)
    assert "another configuration" in refused(capsys, "train", run.folder, "--steps", 30, "--rate", 2)
    assert Run.open(run.folder).config["training"]["steps"] == 24


def test_patience_ends_a_training_and_the_best_checkpoint_stays(data, tmp_path, capsys):
    "The rate is so high that the development set is at its best early, and the run would go on for long."
    config = replace(TRAINING, steps=400, rate=30.0, patience=3, keep=2)
    run = start_run(tmp_path / "run", data, SHAPE, config)
    assert train(run)
    lines = run.history.metrics()
    best, last = best_step(lines), lines[-1]["step"]
    assert last == best + 3 * config.save_every < 400
    assert [step for step, _ in run.checkpoints.found()] == [best, last - 4, last]
    record = run.record.read()
    assert record["status"] == "finished" and record["metrics"]["steps"] == last
    assert [found["steps"] for found in record["averages"]] == [[last], [last - 4, last], [best]]
    chosen, = (found for found in record["averages"] if found["chosen"])
    assert chosen["perplexity/dev"] == min(found["perplexity/dev"] for found in record["averages"])
    assert train(run) and run.history.metrics() == lines  # asked again, it knows that it is over
    said(capsys, "train", run.folder, "--patience", 0, "--steps", last + 4)
    assert run.history.metrics()[-1]["step"] == last + 4


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


def test_bleu_decides_where_it_is_measured_and_changes_no_weight(data, finished, tmp_path, capsys):
    said(capsys, "train", tmp_path / "run", "--data", data, "--config", finished, "--dev-bleu", 5)
    run = Run.open(tmp_path / "run")
    assert same_weights(run.checkpoints.load()[0], Run.open(finished).checkpoints.load()[0])
    assert all(("dev_bleu" in line) == ("dev_perplexity" in line) for line in run.history.metrics())
    lines = [{"step": 1, "dev_bleu": 9.0, "dev_perplexity": 5.0}, {"step": 2, "dev_bleu": 8.0, "dev_perplexity": 4.0}]
    assert best_step(lines) == 1 and best_step([{k: v for k, v in line.items() if k != "dev_bleu"}
                                                for line in lines]) == 2
    level = [{"step": n, "dev_bleu": 0.0, "dev_perplexity": 9.0 - n} for n in range(3)]
    assert best_step(level) == 2  # between equal BLEUs perplexity decides


def test_bleu_of_checkpoints_is_of_greedy_translations_against_their_references(data, tmp_path, monkeypatch):
    run = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, dev_bleu=5))
    asked, some = [], list(Corpus.open(data).pairs("dev"))[:5]
    monkeypatch.setattr(train_command, "bleu", lambda made, wanted, **_: asked.append((made, wanted))
                        or bleu(made, wanted))
    monkeypatch.setattr(Translator, "translate",
                        lambda self, lines, beam_size=4: [f"{beam_size} {line}" for line in lines])
    found = train_command.translator_of_dev(run, None)(run.model())
    assert found.bleu == bleu(*asked[0]).value and found.examples == [(src, tgt, f"1 {src}") for src, tgt in some[:3]]
    assert asked == [([f"1 {src}" for src, _ in some], [tgt for _, tgt in some])]


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


# --- which checkpoints ------------------------------------------------------------------------------------------------

def test_the_average_command(data, finished, tmp_path, capsys):
    folder = shutil.copytree(finished, tmp_path / "run")
    run = Run.open(folder)
    said(capsys, "average", folder, "--last", 2)
    expected = mean_weights([load_weights(path / "model.safetensors") for _, path in run.checkpoints.found()[-2:]])
    assert same_weights(run.weights(), expected)
    model, dev = run.model(), ParallelCorpus(data, "dev")
    model.load_state_dict(expected)
    record = run.record.read()
    assert record["metrics"]["perplexity/dev"] == pytest.approx(
        measure(model, map(dev.batch, dev.order(300))).perplexity)
    assert record["metrics"]["averaged_checkpoints"] == 2 and record["weights"] == run.record.provenance()["weights"]
    run.record.write(record | {"hardware": "another machine", "tuning": {"steps": 3}})
    said(capsys, "average", folder, "--best")
    assert (run.record.read()["hardware"], run.record.read()["tuning"]) == ("another machine", {"steps": 3})
    best = best_step(run.history.metrics())
    assert same_weights(run.weights(), load_weights(folder / "checkpoints" / f"step_{best}" / "model.safetensors"))
    before = run.record.read()
    assert "has 2 checkpoints: give 1 to 2" in refused(capsys, "average", folder, "--last", 3)
    assert "give either" in refused(capsys, "average",
                                    folder) and "give either" in refused(
                                        capsys, "average", folder, "--best", "--last", 1)
    assert run.record.read() == before


# --- from other weights -----------------------------------------------------------------------------------------------

def test_from_a_run_begins_with_its_weights_and_survives_it(data, finished, tmp_path, capsys):
    source = shutil.copytree(finished, tmp_path / "source")
    said(capsys, "train", tmp_path / "run", "--data", data, "--from", source, "--steps", 4, "--dropout", 0.3, "--rate",
         1e-30)
    run = Run.open(tmp_path / "run")
    assert same_weights(run.initial_weights(), Run.open(finished).weights())
    for name, tensor in run.checkpoints.load()[0].items():  # the rate is next to nothing
        torch.testing.assert_close(tensor, Run.open(finished).weights()[name], rtol=0, atol=1e-6)
    assert run.config["from"] == str(source) and run.config["model"]["dropout"] == 0.3 and run.config["training"][
        "warmup_steps"] == 8
    shutil.rmtree(source)
    shutil.rmtree(run.folder / "checkpoints")  # as if it had been killed before its first checkpoint
    assert train(run)
    assert "has begun already" in refused(capsys, "train", run.folder, "--from", finished)


def test_from_what_does_not_fit_is_refused(data, finished, tmp_path, capsys):
    target = ["train", tmp_path / "run", "--data", data]
    assert "embedding.weight is [300, 16] there and [300, 32]" in refused(
        capsys, *target, "--from", finished, "--d-model", 32)
    assert "--vocabulary-from grammar" in refused(capsys, *target, "--from", "grammar")
    assert "no such run directory" in refused(capsys, *target, "--from", tmp_path / "nothing")
    (tmp_path / "weights.safetensors").write_bytes(b"not weights")
    assert "not a safetensors file" in refused(capsys, *target, "--from", tmp_path / "weights.safetensors")
    assert not (tmp_path / "run").exists()


def test_a_file_of_weights_needs_their_shape(data, finished, tmp_path, capsys):
    weights = finished / "averaged.safetensors"
    assert "embedding.weight" in refused(capsys, "train", tmp_path / "run", "--data", data, "--from", weights,
                                         "--config", "tiny")
    shape = [word for name in ("n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v")
             for word in (f"--{name.replace('_', '-')}", getattr(SHAPE, name))]
    said(capsys, "train", tmp_path / "run", "--data", data, "--from", weights, "--config", "tiny", *shape, "--steps", 2)
    assert same_weights(Run.open(tmp_path / "run").initial_weights(), Run.open(finished).weights())


def test_a_vocabulary_taken_from_a_run(finished, tmp_path, capsys):
    corpus = tmp_path / "text"
    for side, line in (("en", "The cow is old ."), ("de", "Die Kuh ist alt .")):
        Path(f"{corpus}.{side}").write_text("\n".join(f"{line} {n}" for n in range(40)), encoding="utf-8")
    given = ["prepare", tmp_path / "data", "--train", f"{corpus}.en", f"{corpus}.de", "--holdout", 5,
             "--vocabulary-from", finished]
    assert "--from" in said(capsys, *given)
    said(capsys, "train", tmp_path / "run", "--data", tmp_path / "data", "--from", finished, "--steps", 2)
    for option in (["--vocab-size", 500], ["--vocabulary", "word-pieces"], ["--byte-fallback"]):
        assert "no effect with --vocabulary-from" in refused(capsys, "prepare", tmp_path / "new", *given[2:], *option)
    assert not (tmp_path / "new").exists()


# --- a vocabulary for each language -----------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def two_alphabets(tmp_path_factory):
    """A corpus prepared with separate vocabularies, whose languages share no letters but those of names, and a
    finished run on it."""
    folder = tmp_path_factory.mktemp("separate")
    english = [f"The {what} cow number {n} is {how}." for n in range(20) for what in ("old", "young", "red")
               for how in ("hungry", "tired")]
    greek = str.maketrans("abcdefghiklmnoprstuwxyzT", "αβψδεφγηικλμνοπρστθωχυζΘ")
    for side, lines in (("en", english), ("el", [line.translate(greek) for line in english])):
        (folder / f"text.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    cli.main(["prepare", str(folder / "data"), "--src", "en", "--tgt", "el", "--train", str(folder / "text.en"),
              str(folder / "text.el"),
              "--holdout", "6", "--vocab-size", "70", "--separate-vocabularies"])
    numbers = {"model": asdict(SHAPE), "training": asdict(TRAINING)}
    (folder / "mine.toml").write_text("\n".join(line for part, values in numbers.items() for line in (
        f"[{part}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items() if "vocab" not in name))),
        encoding="utf-8")
    cli.main(["train", str(folder / "run"), "--data", str(folder / "data"), "--config", str(folder / "mine.toml")])
    return folder


def test_each_side_is_cut_with_its_own_vocabulary(two_alphabets, capsys):
    corpus, vocabulary = Corpus.open(two_alphabets / "data"), load_vocabulary(two_alphabets / "data")
    assert vocabulary.separate and len(vocabulary) == len(vocabulary.source) == 70
    both = ParallelCorpus(corpus.folder, "train")
    for (src, tgt), ids, other in zip(corpus.pairs("train"), both.src, both.tgt):
        assert [*ids] == [*vocabulary.source.encode(src), END] and [*other] == [*vocabulary.encode(tgt), END]
        assert UNKNOWN not in ids and UNKNOWN not in other
    assert UNKNOWN in vocabulary.source.encode("γελάδα") and UNKNOWN in vocabulary.encode("cow")
    text = [two_alphabets / f"text.{side}" for side in ("en", "el")]
    again = ["prepare", corpus.folder, "--src", "en", "--tgt", "el", "--train", *text, "--holdout", 6, "--vocab-size",
             70]
    assert "Kept: the vocabulary" in said(capsys, *again, "--separate-vocabularies")
    assert load_vocabulary(corpus.folder).digest == vocabulary.digest


def test_everything_works_with_separate_vocabularies(two_alphabets, tmp_path, capsys):
    run = Run.open(two_alphabets / "run")
    model = load(run.folder).model
    assert model.src_embedding.weight.shape == (70, 16) and run.config["model"]["src_vocab_size"] == 70
    assert run.record.read()["metrics"]["parameters"] == count_parameters(model.config) == count_parameters(SHAPE) + (
        70 + 70 - 300) * 16
    file = tmp_path / "text.en"
    file.write_text("The old cow number 3 is tired.\n", encoding="utf-8")
    made = said(capsys, "translate", run.folder, file)
    assert made == said(capsys, "translate", run.folder, run.folder, file)  # an ensemble of one with itself
    found = load(run.folder).attention("The old cow", "Θη ολδ ψοθ")
    assert "".join(found.src).startswith("▁The") and "".join(found.tgt_outputs).startswith("▁Θη")
    assert "sacreBLEU" in said(capsys, "evaluate", run.folder, "--beam-size", 1)
    measured = load(run.folder).measure(*map(list, zip(*Corpus.open(two_alphabets / "data").pairs("dev"))))
    assert measured.perplexity == pytest.approx(run.record.read()["metrics"]["perplexity/dev"], rel=1e-4)
    said(capsys, "train", tmp_path / "tuned", "--data", two_alphabets / "data", "--from", run.folder, "--steps", 2)
    assert same_weights(Run.open(tmp_path / "tuned").initial_weights(), run.weights())
    said(capsys, "average", tmp_path / "tuned", "--last", 1)
    ship(run, tmp_path / "shipped", 8)
    assert load(tmp_path / "shipped").vocabulary.digest == run.vocabulary().digest


def test_separate_vocabularies_survive_a_stop(two_alphabets, tmp_path, capsys):
    said(capsys, "train", tmp_path / "run", "--data", two_alphabets / "data", "--config", two_alphabets / "mine.toml",
         "--steps", 11)
    said(capsys, "train", tmp_path / "run", "--steps", 24)
    assert same_weights(load_weights(tmp_path / "run" / "averaged.safetensors"),
                        Run.open(two_alphabets / "run").weights())


def test_what_separate_vocabularies_do_not_fit(two_alphabets, finished, data, tmp_path, capsys):
    new = ["train", tmp_path / "run", "--data", two_alphabets / "data"]
    assert "one vocabulary for both languages" in refused(capsys, *new, "--config", "recurrent")
    assert "its vocabulary is not that of" in refused(capsys, *new, "--from", finished)
    assert "unrecognized arguments: --src-vocab-size" in refused(capsys, *new, "--config", "tiny", "--src-vocab-size",
                                                                 50)
    with pytest.raises(InputError, match="src_vocab_size 50: the vocabulary in .* has 0 tokens"):
        start_run(tmp_path / "run", data, replace(SHAPE, src_vocab_size=50), TRAINING)
    assert "only runs with the same vocabulary" in refused(capsys, "translate", two_alphabets / "run", finished)
    text = tmp_path / "text"
    text.write_text("a\tb\n")
    assert "no effect with --vocabulary-from" in refused(capsys, "prepare", tmp_path / "d", "--train", text,
                                                         "--separate-vocabularies", "--vocabulary-from", "ende")
    (tmp_path / "copy").mkdir()
    copy = shutil.copytree(two_alphabets / "run", tmp_path / "copy" / "run")
    (copy / "src_vocabulary.model").unlink()
    assert "its vocabulary is not the one" in refused(capsys, "translate", copy)
    assert not (tmp_path / "run").exists() and not (tmp_path / "d").exists()


# --- options that would have no effect --------------------------------------------------------------------------------

@pytest.mark.parametrize("options, said", [
    (["--n-p", 8], "--n-p 8: has no effect without --parameter-heads"),
    (["--parameter-heads", 2, "--d-ff", 64], "--d-ff 64: has no effect with --parameter-heads"),
    (["--max-length", 50], "--max-length 50: has no effect without --positions learned")])
def test_options_of_parts_that_the_model_lacks(options, said, data, tmp_path, capsys):
    assert said in refused(capsys, "train", tmp_path / "run", "--data", data, "--config", "tiny", *options)
    assert not (tmp_path / "run").exists()


def test_watching_needs_a_development_set(data, tmp_path, capsys):
    without = shutil.copytree(data, tmp_path / "data")
    facts = json.loads((without / "corpus.json").read_text())
    del facts["splits"]["dev"]
    (without / "corpus.json").write_text(json.dumps(facts))
    for option in ("--patience", "--dev-bleu"):
        assert f"{option} 3: has no effect without a development set" in refused(
            capsys, "train", tmp_path / "run", "--data", without, "--config", "tiny", option, 3)
    assert not (tmp_path / "run").exists()


def test_giving_up_takes_no_other_option(finished, capsys):
    for option in (["--steps", 30], ["--minutes", 1], ["--device-tokens", 100], ["--tensorboard"],
                   ["--data", "elsewhere"]):
        assert f"{option[0]}: has no effect with --abandon" in refused(
            capsys, "train", finished, "--abandon", "why not", *option)


# --- configuration files ----------------------------------------------------------------------------------------------

TOML = 'config = "tiny"\n[model]\nn_layers = 1\n[training]\nsteps = 7\nrate = 2\n'


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
def test_a_configuration_file(mark, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(mark + TOML, encoding="utf-8")
    assert read_configuration(path) == ("tiny", {"n_layers": 1, "steps": 7, "rate": 2})


@pytest.mark.parametrize("text, said", [
    (TOML.replace("n_layers", "n_layer"), "line 3: n_layer: no such key in model; there are n_layers"),
    (TOML.replace("steps = 7", "steps = 7.5"), "line 5: steps is 7.5: give a whole number"),
    (TOML.replace("steps = 7", "steps = true"), "line 5: steps is True: give a whole number"),
    (TOML.replace("rate = 2", 'rate = "2"'), "line 6: rate is '2': give a number"),
    (TOML.replace("n_layers = 1", 'd_k = "2"'), "line 3: d_k is '2': give a whole number"),
    (TOML.replace("rate = 2", 'precision = "half"'), "line 6: precision is 'half': give one of"),
    ("steps = 7\n" + TOML, "line 1: steps: no such key"), ("[model\n", "not TOML"),
    ("config = 3", "line 1: config is 3: give the name of a preset"),
    ('kind = "perceptron"', "line 1: kind is 'perceptron'"),
    ('config = "tiny"\nkind = "recurrent"',
     "line 2: kind is 'recurrent', and config is 'tiny', which is not of that kind"),
    ("a = " + "[" * 100_000, "not TOML: maximum recursion depth")])
def test_what_is_wrong_with_a_configuration_is_said_with_line_and_key(text, said, data, tmp_path, capsys):
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    line = refused(capsys, "train", tmp_path / "run", "--data", data, "--config", path)
    assert said in line and str(path) in line and not (tmp_path / "run").exists()


def test_what_is_typed_goes_before_the_file_and_a_run_gives_one(data, finished, tmp_path, capsys):
    said(capsys, "train", tmp_path / "run", "--data", data, "--config", finished, "--steps", 2, "--seed", 5)
    run = Run.open(tmp_path / "run")
    assert run.config["model"] == asdict(SHAPE)
    assert run.config["training"] == asdict(replace(TRAINING, steps=2, seed=5))


def test_a_kind_may_stand_beside_a_preset_of_that_kind(tmp_path):
    path = tmp_path / "mine.toml"
    for kind in ('kind = "recurrent"\n', ""):
        path.write_text(f'config = "recurrent-own"\n{kind}[model]\nn_layers = 3\n', encoding="utf-8")
        assert read_configuration(path) == ("recurrent-own", {"n_layers": 3})


# --- devices and extras -----------------------------------------------------------------------------------------------

def test_devices_and_threads(capsys, tmp_path):
    for device in ("", "tpu", "cuda:99", "cpu:1", "cuda:x", "cpu:", "cpu:00", "cpu:\u00b2",
                   *(() if torch.cuda.is_available() else ("cuda",))):
        assert f"--device {device}: there is no such device" in refused(
            capsys, "translate", "grammar", "--device", device)
    for threads in (0, 99_999_999_999):
        assert f"--threads {threads}: give a number from 1 to 4096" in refused(
            capsys, "translate", "grammar", "--threads", threads)
    before = torch.get_num_threads()
    file = tmp_path / "text"
    file.write_text("The cow is old .\n")
    said(capsys, "translate", "grammar", file, "--device", "cpu", "--threads", 1)
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)


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


def test_ensembles(finished, tmp_path, capsys):
    file = tmp_path / "text"
    file.write_text("The cow is old .\nThe dog sleeps .\n")
    alone = said(capsys, "translate", "grammar", file)
    assert said(capsys, "translate", "grammar", "grammar", file) == alone
    assert "only runs with the same vocabulary" in refused(capsys, "translate", "grammar", finished, file)
    with pytest.raises(InputError, match="the same vocabulary"):
        ensemble([load("grammar"), load(finished)])
    pair = ["The cow is old ."], ["Die Kuh ist alt ."]
    twice, once = (evaluate(translator, *pair) for translator in (ensemble([load("grammar")] * 2), load("grammar")))
    assert twice.quality.perplexity == pytest.approx(once.quality.perplexity, rel=1e-5)


@pytest.mark.parametrize("precision", ["float16", "bfloat16", "int8"])
def test_rounded_products_translate_nearly_the_same(precision):
    from annotated_transformer.corpus import grammar
    lines = [example.src for _, example in zip(range(200), grammar.examples(seed=11))]
    exact, rounded = (load("grammar", p).translate(lines) for p in ("float32", precision))
    assert sum(a == b for a, b in zip(exact, rounded)) >= 185


def test_a_conversation(capsys, tmp_path, monkeypatch):
    from annotated_transformer.commands.translate import converse
    monkeypatch.chdir(tmp_path)
    translator = load("grammar")
    converse(["The cow is old .", ":attention", ":help", ""], lambda line: translator.translate(line) + "\n",
             lambda line: save_attention(translator, line))
    words = capsys.readouterr()
    assert words.out == translator.translate("The cow is old .") + "\n\n"
    assert "attention-1.svg" in words.err and (tmp_path / "attention-1.svg").read_text().startswith(
        "<svg") and "only :attention" in words.err


# --- the table of features, and the programs that measure them --------------------------------------------------------

def feature_table() -> list[list[str]]:
    "The rows of the table in the chapter on the command line: feature, command, JoeyNMT's word, fairseq's."
    cells = json.loads((ROOT / "nbs/commands/cli.ipynb").read_text(encoding="utf-8"))["cells"]
    text = next(text for text in ("".join(cell["source"]) for cell in cells) if "| in JoeyNMT |" in text)
    rows = [[column.strip() for column in line.strip("|").split("|")] for line in text.splitlines()
            if line.startswith("|")]
    return [row for row in rows[2:] if row[1]]


def parser_of(command: str, words: list[str]) -> tuple[OptionParser, list[str]]:
    "Of `prepare`, that of the kind of corpus; two files of text need no kind."
    module, function = import_module(f"annotated_transformer.{cli.COMMANDS[command]}"), command
    if command == "prepare":
        function, words = module.subcommand(words)
        words = words + ["--train", "x", "x"] * (function == "prepare")
    parser = OptionParser(command)
    add_arguments(parser, getattr(module, f"{function}_command"))
    return parser, words


@pytest.mark.parametrize("row", feature_table(), ids=lambda row: row[0])
def test_every_command_of_the_table_can_be_typed(row):
    commands = [shlex.split(span) for span in re.findall(r"`([^`]+)`", row[1])]
    assert len(row) == 5 and all(row) and (commands or row[1] == "always")
    for words in commands:
        if words[0].startswith("--"):  # an option of every command, or of the one before
            given, rest = cli.for_every_command(words)
            words = ["translate" if "--beam-size" in rest else "train", *rest] if rest else []
        if words and words[0] in cli.COMMANDS:
            parser, given = parser_of(words[0], words[1:])
            for places in range(5):  # those that the table leaves out are filled
                try:
                    parser.parse_intermixed_args(["x"] * places + given)
                    break
                except InputError as error:
                    assert "required: " in str(error), error
            else:
                pytest.fail(f"{row[1]}: still something is missing after four places")


def test_the_table_names_every_command():
    spans = {span.split()[0] for row in feature_table() for span in re.findall(r"`([^`]+)`", row[1])}
    assert {*cli.COMMANDS} - {"demo"} <= spans


def test_eight_bits_stand_beside_eight_bits(monkeypatch, tmp_path):
    from annotated_transformer.experiments import benchmark_decoding as speed
    config = {"sentences": 16, "beam_size": 4}
    seconds = {"ours": 1.0, "CTranslate2": 2.0, "ours int8": 0.5, "CTranslate2 int8": 0.8}
    records = [{"config": config | {"contestant": name}, "metrics": {"decoding_seconds": s, "peak_bytes": 0}} for name,
               s in seconds.items()]
    assert [line.split()[-3] for line in speed.report(records).splitlines()[1:]] == ["1.00", "0.50", "1.00", "0.62"]
    assert [what["contestant"] for what in speed.plan(1)[:5]] == ["ours", "Hugging Face", "CTranslate2", "ours int8",
                                                                  "CTranslate2 int8"]


def test_the_contestants_in_8_bits_do_the_same_work(monkeypatch):
    "Outputs of just the length that is asked for, most symbols those of float32."
    from annotated_transformer.experiments import benchmark_decoding as speed
    make = speed.endless_model
    monkeypatch.setattr(speed, "VOCABULARY", 60)
    monkeypatch.setattr(speed, "endless_model", lambda: make(replace(SHAPE, vocab_size=60)))
    src = speed.sources(3, 6)
    for contestant in ("ours", "CTranslate2"):
        exact, rounded = (speed.CONTESTANTS[name][1](1, src, 10)() for name in (contestant, f"{contestant} int8"))
        assert [len(ids) for ids in rounded] == [10, 10, 10]
        assert sum(x[0] == y[0] for x, y in zip(exact, rounded)) >= 2


def test_what_rounding_costs_is_measured_on_a_run(tmp_path, capsys):
    from annotated_transformer.corpus import grammar
    from annotated_transformer.experiments import benchmark_decoding as speed
    examples = [example for _, example in zip(range(60), grammar.examples(seed=12))]
    files = [tmp_path / f"some.{side}" for side in ("en", "de")]
    for file, lines in zip(files, ([e.src for e in examples], [e.tgt for e in examples])):
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    speed.main(["--bleu", "grammar", "--src", str(files[0]), "--references", str(files[1]), "--out", str(tmp_path)])
    record = find_record("precision_grammar_some", tmp_path)
    translator = load("grammar", "int8")
    assert record["metrics"]["sacrebleu/int8"] == pytest.approx(bleu(translator.translate([e.src for e in examples]),
                                                                     [e.tgt for e in examples]).value)
    assert "the rule for 8 bits" in capsys.readouterr().out
    worse = {"metrics": record["metrics"] | {"sacrebleu/int8": record["metrics"]["sacrebleu/float32"] - 0.2}}
    assert "does not hold" in speed.bleu_report(worse)
    with pytest.raises(SystemExit) as end:
        speed.main(["--bleu", "grammar"])
    assert end.value.code == 2 and "or none of them" in capsys.readouterr().err


def test_a_command_is_timed_only_where_it_answers_every_line(tmp_path):
    from annotated_transformer.experiments.benchmark_decoding import run_command
    (lines := tmp_path / "lines").write_text("one\ntwo\n", encoding="utf-8")
    found = run_command([sys.executable, "-c", "import sys; print(sys.stdin.read(), end='')"], lines)
    assert found["decoding_seconds"] > 0 and found["peak_bytes"] > 2**20
    for program in ("print('one')", "print('one\\ntwo'); raise SystemExit(1)"):
        with pytest.raises(InputError, match="failed, or wrote another number of lines than 2"):
            run_command([sys.executable, "-c", program], lines)


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


@pytest.mark.parametrize("raised, code, told", [
    (KeyboardInterrupt(), 130, ""),
    (OSError(28, "No space left on device", "out.json"), 2, "a_module: out.json: No space left on device\n"),
    (InputError("--n 0: give 1 or more"), 2, "a_module: --n 0: give 1 or more\n")])
def test_programs_end_without_a_traceback(raised, code, told, capsys):
    def program(*, n: int = 1) -> None:
        "Do something."
        raise raised

    with pytest.raises(SystemExit) as end:
        records.run_program(program, "a_module", [])
    assert (end.value.code, capsys.readouterr().err) == (code, told)


@pytest.mark.parametrize("arguments", [("tools.records", "nbs/results"), ("commands.cli", "--version")])
def test_programs_whose_output_nobody_reads(arguments):
    "The reader has gone before the first line, or the stream is closed: no traceback, and nothing is said."
    command = f"{sys.executable} -m annotated_transformer.{' '.join(arguments)}"
    reader, writer = os.pipe()
    os.close(reader)
    left = subprocess.run(command.split(), stdout=writer, stderr=subprocess.PIPE, cwd=ROOT)
    os.close(writer)
    closed = subprocess.run(["bash", "-c", f"exec {command} >&-"], capture_output=True, cwd=ROOT)
    assert (left.returncode, left.stderr) == (141, b"") and (closed.returncode, closed.stderr) == (0, b"")


def test_an_option_without_a_default_is_asked_for(capsys):
    def program(*, reading: str, sizes: tuple[int, ...] = (1, 2), device: str = "") -> None:
        "Do something."

    with pytest.raises(SystemExit) as end:
        records.run_program(program, "a_module", [])
    assert end.value.code == 2 and "--reading" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        records.run_program(program, "a_module", ["--help"])
    said = capsys.readouterr().out
    assert "(default: 1 2)" in said and "(default: )" not in said
