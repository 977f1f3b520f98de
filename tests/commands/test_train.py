"""`train` and `average`: runs that begin, go on, begin from others and stop by themselves; what is refused."""
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
import torch

from annotated_transformer.commands import cli, train as train_command
from annotated_transformer.commands.configuration import read_configuration
from annotated_transformer.corpus.batching import ParallelCorpus
from annotated_transformer.corpus.corpora import Corpus
from annotated_transformer.decoding.scores import bleu
from annotated_transformer.decoding.translation import Translator, load
from annotated_transformer.engine.fast import fast_to_train
from annotated_transformer.engine.kinds import REGISTERED
from annotated_transformer.model.transformer import count_parameters
from annotated_transformer.tools.files import InputError, read_json, write_json
from annotated_transformer.training.checkpoints import load_weights
from annotated_transformer.training import loop
from annotated_transformer.training.loop import train
from annotated_transformer.training.starting import start_run
from annotated_transformer.training.regularization import measure
from annotated_transformer.training.runs import Run, find_run, mean_weights, ship, shipped_runs
from annotated_transformer.training.watching import best_step
from command_line import fails, options, prepared, refused, said, write, wrong
from here import CODE, RIVALS, SHAPE, SMALL, TRAINING, same_weights
from installed import plainly

MODEL = options(SMALL["transformer"])
OPTIONS = [*MODEL, *"--steps 12 --save-every 4 --report-every 2 --batch-tokens 400".split()]


def test_a_run_is_left_whole_and_the_same_command_again_changes_nothing(made, tmp_path):
    run = tmp_path / "run"
    cli.main(["train", str(run), "--data", str(made / "data"), "--config", "tiny", *OPTIONS])
    record = json.loads((run / "record.json").read_text())
    assert record["metrics"]["steps"] == 12 and [tried["checkpoints"] for tried in record["averages"]] == [1, 2, 3]
    assert {"command", "revision", "date", "data", "config", "seed", "hardware", "versions", "seconds"} <= set(record)
    assert [line["step"] for line in Run.open(run).history.metrics()] == [2, 4, 6, 8, 10, 12]
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["step_12", "step_4", "step_8"]
    before = (run / "metrics.jsonl").read_text(), Run.open(run).record.read()["metrics"]
    cli.main(["train", str(run), "--data", str(made / "data"), "--config=tiny", *OPTIONS])
    assert ((run / "metrics.jsonl").read_text(), Run.open(run).record.read()["metrics"]) == before


@pytest.mark.slow
def test_train_whose_report_nobody_reads(made, tmp_path):
    command = (f"{sys.executable} -m annotated_transformer train {tmp_path / 'run'} --data {made / 'data'} "
               f"--config tiny {' '.join(OPTIONS)} 2>&1 | head -n 1; echo ${{PIPESTATUS[0]}}")
    done = subprocess.run(["bash", "-c", command], capture_output=True)
    assert done.stdout.startswith(b"Learning rate") and done.stdout.endswith(b"\n141\n") and not done.stderr


def test_interrupted_training_continues(made, tmp_path, monkeypatch, capsys):
    whole = loop.update

    def update(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return whole(*arguments)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    try:
        with monkeypatch.context() as patch:
            patch.setattr(loop, "update", update)
            told = said(capsys, "train", tmp_path / "run", "--data", made / "data", "--config", "tiny", *MODEL,
                        *"--steps 3 --save-every 50 --report-every 1 --batch-tokens 400".split())
    finally:
        signal.signal(signal.SIGINT, before)
    assert f"Continue with: annotated-transformer train {tmp_path / 'run'}" in told
    said(capsys, "train", tmp_path / "run")
    assert [line["step"] for line in Run.open(tmp_path / "run").history.metrics()] == [1, 2, 3]


def test_train_says_the_rates_peak_and_warns(made, tmp_path, capsys):
    for name, rate, warned in (("usual", "0.5", False), ("mistaken", "5e-4", True)):
        cli.main(["train", str(tmp_path / name), "--data", str(made / "data"), "--config", "tiny", *MODEL, "--steps",
                  "1", "--warmup-steps", "400", "--lr-scale", rate])
        said = capsys.readouterr().err
        assert f"up to {float(rate) * 16**-0.5 * 400**-0.5:.2g} at update 400" in said
        assert ("warning: --lr-scale 0.0005 multiplies equation 3" in said) == warned
    assert "give --lr-scale 0.04" in said  # 0.04 * (16 * 400) ** -0.5 is 5e-4


@pytest.mark.slow
def test_processes_begin_a_run_themselves_and_speak_once(data, tmp_path):
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m",
                           "annotated_transformer", "train", str(tmp_path / "run"), "--data", str(data), "--config",
                           "tiny", *MODEL, "--steps", "2", "--precision", "float32", "--device-tokens", "30"],
                          env=os.environ | {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "GLOO_SOCKET_IFNAME": "lo"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("Next: annotated-transformer evaluate") == 1 and len(
        Run.open(tmp_path / "run").checkpoints.found()) == 1


@pytest.mark.slow
@pytest.mark.xdist_group("package")
def test_the_training_command_loads_no_other_part(run):
    "Nothing of parsers, rivals, charts and experiments; a rival's module is loaded when it is asked for."
    printed = run("python", "-I", "-c", """
import sys
from annotated_transformer.commands.train import configurations, preset_named
others = ("parsing", "rivals", "drawing", "inside", "experiments", "paper", "after", "exports")
loaded = lambda: [name for name in sys.modules
                  if name.startswith("annotated_transformer.") and name.split(".")[1] in others]
configurations(["runs/mine", "--data", "data/mine", "--config", "base",
                "--from", "ende", "--no-pre-norm", "--d-k=3", "--help"])
assert not loaded(), loaded()
configurations(["runs/mine", "--kind", "bytenet", "--help"])
assert "annotated_transformer.rivals.bytenet" in loaded() and "annotated_transformer.rivals.recurrent" not in loaded()
preset_named("parser")
assert "annotated_transformer.parsing.parser" in loaded()
print("so it is")
""")
    assert printed == "so it is\n"


@pytest.mark.slow
@pytest.mark.xdist_group("package")
def test_it_needs_no_extra(run, made, text, tmp_path):
    "From a plain installation: trained, translated."
    train = ["train", tmp_path / "run", "--data", made / "data", "--config", "tiny", *OPTIONS, "--precision", "float32"]
    assert plainly(run, train, ["translate", tmp_path / "run", text["test"][0]]).count("\n") == 30


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
    assert "another configuration" in refused(capsys, "train", run.folder, "--steps", 30, "--lr-scale", 2)
    assert Run.open(run.folder).config["training"]["steps"] == 24


def test_patience_ends_a_training_and_the_best_checkpoint_stays(data, tmp_path, capsys):
    "The rate is so high that the development set is at its best early, and the run would go on for long."
    config = replace(TRAINING, steps=400, lr_scale=30.0, patience=3, keep=2)
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


def test_translations_during_training_leave_nothing_behind(data, tmp_path):
    run = start_run(tmp_path / "run", data, SHAPE, TRAINING)
    model = fast_to_train(run.model().train())
    before = {*vars(model)}
    assert train_command.translator_of_dev(run, None)(model).examples
    assert {*vars(model)} == before and all(module.training for module in model.modules())


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
    assert "give either" in refused(capsys, "average", folder) and "give either" in refused(capsys, "average", folder,
                                                                                            "--best", "--last", 1)
    other = shutil.copytree(data, tmp_path / "other")
    (other / "encoded.json").write_text('{"vocabulary": "another"}')
    assert "another vocabulary" in refused(capsys, "average", folder, "--last", 1, "--data", other)
    assert run.record.read() == before


# --- from other weights -----------------------------------------------------------------------------------------------

def test_from_a_run_begins_with_its_weights_and_survives_it(data, finished, tmp_path, capsys):
    source = shutil.copytree(finished, tmp_path / "source")
    said(capsys, "train", tmp_path / "run", "--data", data, "--from", source, "--steps", 4, "--dropout", 0.3,
         "--lr-scale", 1e-30)
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
    said(capsys, "train", tmp_path / "run", "--data", data, "--from", weights, "--config", "tiny", *MODEL, "--steps", 2)
    assert same_weights(Run.open(tmp_path / "run").initial_weights(), Run.open(finished).weights())


# --- a vocabulary for each language -----------------------------------------------------------------------------------

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
    assert "sacreBLEU" in said(capsys, "evaluate", run.folder)
    measured = load(run.folder).measure(*map(list, zip(*Corpus.open(two_alphabets / "data").pairs("dev"))))
    assert measured.perplexity == pytest.approx(run.record.read()["metrics"]["perplexity/dev"], rel=1e-4)
    said(capsys, "train", tmp_path / "tuned", "--data", two_alphabets / "data", "--from", run.folder, "--steps", 2)
    assert same_weights(Run.open(tmp_path / "tuned").initial_weights(), run.weights())
    said(capsys, "average", tmp_path / "tuned", "--last", 1)
    ship(run, tmp_path / "shipped", 8)
    assert load(tmp_path / "shipped").vocabulary.digest == run.vocabulary().digest


def test_separate_vocabularies_survive_a_stop(two_alphabets, tmp_path, capsys):
    numbers = {"model": asdict(SHAPE), "training": asdict(TRAINING)}
    file = write(tmp_path / "mine.toml", [line for part, values in numbers.items() for line in (
        f"[{part}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items() if "vocab" not in name))])
    said(capsys, "train", tmp_path / "run", "--data", two_alphabets / "data", "--config", file, "--steps", 11)
    said(capsys, "train", tmp_path / "run", "--steps", 24)
    assert same_weights(load_weights(tmp_path / "run" / "averaged.safetensors"),
                        Run.open(two_alphabets / "run").weights())


def test_what_separate_vocabularies_do_not_fit(two_alphabets, finished, data, tmp_path, capsys):
    new = ["train", tmp_path / "run", "--data", two_alphabets / "data"]
    assert "one vocabulary for both languages" in refused(capsys, *new, "--config", "recurrent")
    assert "its vocabulary is not that of" in refused(capsys, *new, "--from", finished)
    with pytest.raises(InputError, match="src_vocab_size 50: the vocabulary in .* has 0 tokens"):
        start_run(tmp_path / "run", data, replace(SHAPE, src_vocab_size=50), TRAINING)
    assert "only runs with the same vocabulary" in refused(capsys, "translate", two_alphabets / "run", finished)
    (tmp_path / "copy").mkdir()
    copy = shutil.copytree(two_alphabets / "run", tmp_path / "copy" / "run")
    (copy / "src_vocabulary.model").unlink()
    assert "its vocabulary is not the one" in refused(capsys, "translate", copy)
    assert not (tmp_path / "run").exists()


# --- other kinds of models --------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def bag(data, tmp_path_factory):
    "A run of a kind of one's own, begun by the command."
    folder = tmp_path_factory.mktemp("own") / "bag"
    cli.main(["train", str(folder), "--data", str(data), "--config", "bag", "--code", str(CODE),
              *options(SMALL["bag"]), "--steps", "4"])
    yield folder
    REGISTERED.pop("bag")


@pytest.mark.parametrize("precision", ["float16", *(pytest.param(p, marks=pytest.mark.slow)
                                                    for p in ("bfloat16", "float64"))])
@pytest.mark.parametrize("kind", RIVALS)
def test_other_precisions(data, kind, precision, tmp_path):
    cli.main(["train", str(tmp_path / "run"), "--data", str(data), "--config", kind, *options(SMALL[kind]),
              *"--warmup-steps 5 --save-every 6 --report-every 1 --batch-tokens 300".split(), "--precision",
              precision, "--steps", "4"])
    assert Run.open(tmp_path / "run").history.metrics()[-1]["step"] == 4


def test_wrong_names_and_options_are_one_line(bag, data, tmp_path, capsys):
    begin = ["train", tmp_path / "new", "--data", data]
    fails([*begin, "--config", "recurent"], capsys, "--config recurent", "transformer", "small")
    fails([*begin, "--config", "bag", "--code", CODE, "--d-k", "8"], capsys, "--d-k", "bag", "--looseness")
    fails([*begin, "--config", "bag", "--code", CODE, "--looseness", "2"], capsys, "looseness is 2")
    fails(["train", tmp_path / "other", "--data", data, "--config", "bag", "--code", CODE, "--compile"], capsys,
          "--compile", alone=False)
    fails([*begin, "--config", "bag", "--code", tmp_path / "missing.py"], capsys, "missing.py")
    fails([*begin, "--config", "tiny", "--optimizer", "adagrad"], capsys, "adagrad")
    fails([*begin, "--config", "tiny", "--clip-norm", "-1"], capsys, "--clip-norm -1")
    fails(["train", bag, "--config", "transformer"], capsys, "bag", "transformer")
    fails(["train", bag, "--d-k", "8"], capsys, "--d-k", "bag")
    fails(["export", bag, tmp_path / "exported"], capsys, "Bag")


# --- configuration files ----------------------------------------------------------------------------------------------
TOML = 'config = "tiny"\n[model]\nn_layers = 1\n[training]\nsteps = 7\nrate = 2\n'


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
def test_a_configuration_file(mark, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(mark + TOML, encoding="utf-8")
    assert read_configuration(path) == ("tiny", {"n_layers": 1, "steps": 7, "lr_scale": 2})


@pytest.mark.parametrize("text, said", [
    (TOML.replace("n_layers", "n_layer"), "line 3: n_layer: no such key in model; there are n_layers"),
    (TOML.replace("steps = 7", "steps = 7.5"), "line 5: steps is 7.5: give a whole number"),
    (TOML.replace("steps = 7", "steps = true"), "line 5: steps is True: give a whole number"),
    (TOML.replace("rate = 2", 'lr_scale = "2"'), "line 6: lr_scale is '2': give a number"),
    (TOML.replace("n_layers = 1", 'd_k = "2"'), "line 3: d_k is '2': give a whole number"),
    (TOML.replace("rate = 2", 'rate = "2"'), "line 6: rate: lr_scale is '2': give a number"),
    ('config = "tiny"\ntraining.steps = "many"', "line 2: steps is 'many'"),
    ('\nmodel = {n_layers = 1, d_k = "2"}', "line 2: d_k is '2'"), ('[model]\n"d\\u005fk" = "2"', "toml: d_k is '2'"),
    (TOML.replace("rate = 2", 'precision = "half"'), "line 6: precision is 'half': give one of"),
    ("steps = 7\n" + TOML, "line 1: steps: no such key; put it below [training]"), ("[model\n", "not TOML"),
    ("config = 3", "line 1: config is 3: give the name of a preset"),
    ('config = "smal"', "line 1: config is 'smal': there are base, "),
    ("[model]\nn_layers = -1", "line 2: n_layers is -1: give a whole number, 1 or more"),
    ("[training]\nseed = 3\nsteps = 0", "line 3: steps 0: give 1 or more"),
    ("[model]\nvocab_size = 5", "line 2: vocab_size: the data decide it"),
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


def test_a_folder_that_is_called_as_an_option_is_not_one(finished, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("data", "run"):
        shutil.copytree(finished, name)
        config = read_json(f"{name}/config.json")
        write_json(f"{name}/config.json", config | {"data": config["data"] | {"folder": "nowhere"}})
        line = refused(capsys, "train", name, "--steps", 30)
        assert line.split(": ")[1:3] == [name, "its corpus, nowhere, is not here"]
    assert "a file that ends in .toml, or a run's directory" in refused(
        capsys, "train", "new", "--data", "x", "--config", "runs/nope")
    assert "--kind nope: there are transformer, " in refused(capsys, "train", "new", "--data", "x", "--kind", "nope")


def test_a_kind_may_stand_beside_a_preset_of_that_kind(tmp_path):
    path = tmp_path / "mine.toml"
    for kind in ('kind = "recurrent"\n', ""):
        path.write_text(f'config = "recurrent-own"\n{kind}[model]\nn_layers = 3\n', encoding="utf-8")
        assert read_configuration(path) == ("recurrent-own", {"n_layers": 3})


# --- what is wrong ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("arguments, named", [
    (["train", "RUN", "--stepz", "3"], ["--stepz"]),
    (["train", "RUN", "--steps", "many"], ["--steps", "many"]),
    (["train", "RUN", "--data", "DATA", "--config", "huge"], ["--config", "huge"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--steps", "0"], ["steps 0"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--steps", "1" + "0" * 30], ["at most 10^12"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--n-heads", "0"], ["--n-heads is 0"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--dropout", "1.5"], ["dropout", "1.5"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--vocab-size", "77"],
     ["unrecognized arguments: --vocab-size 77"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--d-model", "1" + "0" * 26],
     ["TransformerConfig: no model can be built", "give smaller ones"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--d-ff", "9" * 14], ["weights", "give a smaller model"]),
    (["train", "NEW", "--data", "DATA", "--from", "RUN", "--dropout", "2"], ["dropout is 2"]),
    (["train", "NEW", "--data", "DATA", "--from", "RUN", "--d-model", "0"], ["--d-model is 0"]),
    (["train", "NEW", "--data", "DATA", "--config", "recurrent-own", "--warmup-steps", "0"], ["--warmup-steps 0"]),
    (["train", "NEW", "--data", "DATA", "--config", "recurrent-own", "--d-model", "0"], ["--d-model is 0"]),
    (["train", "NEW", "--data", "NOTHING", "--config", "tiny"], ["NOTHING is not a corpus"]),
    (["train", "NEW", "--data", "NOTHING", "--from", "RUN"], ["NOTHING is not a corpus"]),
    (["train", "RUN", "--data", "DATA", "--config", "tiny"], ["--save-every"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--code", "DATA"], ["--code DATA: a folder"]),
    (["train", "RUN", "--steps", "5"], ["--steps 5", "12"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--attention-dropout", "1.5"],
     ["--attention-dropout is 1.5"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--seed", "-1"], ["seed -1"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--lr-scale", "nan"], ["--lr-scale nan"]),
    (["train", "RUN", "--minutes", "0"], ["minutes 0.0"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--positions", "learned", "--max-length", "3"],
     ["--max-length 3", "tokens: give"]),
    (["train", "RUN", "--d-k", "64"], ["--d-k 64", "8"]),
    (["train", "RUN", "--dropout", "0.3"], ["--dropout 0.3", "0.05"]),
])
def test_wrong_options(made, tmp_path, capsys, arguments, named):
    wrong(arguments, named, made, tmp_path, capsys)


@pytest.mark.parametrize("options, said", [
    (["--n-p", 8], "--n-p 8: has no effect without --parameter-heads"),
    (["--parameter-heads", 2, "--d-ff", 64], "--d-ff 64: has no effect with --parameter-heads"),
    (["--max-length", 50], "--max-length 50: has no effect without --positions learned")])
def test_options_of_parts_that_the_model_lacks(options, said, data, tmp_path, capsys):
    assert said in refused(capsys, "train", tmp_path / "run", "--data", data, "--config", "tiny", *options)
    assert not (tmp_path / "run").exists()


def test_a_run_that_another_process_begins_meanwhile(data, tmp_path, monkeypatch, capsys):
    def meanwhile(*arguments, configured=train_command.configured):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "config.json").write_text("{}")
        return configured(*arguments)
    monkeypatch.setattr(train_command, "configured", meanwhile)
    fails(["train", tmp_path / "run", "--data", data, "--config", "tiny"], capsys, "another process has just begun")


def test_scores_on_the_way_are_missed_at_the_start(data, finished, tmp_path, monkeypatch, capsys):
    "Not at the first checkpoint: neither of a new run, nor of one that is asked for them later."
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    fails(["train", tmp_path / "new", "--data", data, "--config", "tiny", "--dev-bleu", 5], capsys,
          "sacrebleu", "is not installed")
    assert not (tmp_path / "new").exists()
    copy = shutil.copytree(finished, tmp_path / "copy")
    before = (copy / "config.json").read_bytes()
    fails(["train", copy, "--dev-bleu", 5, "--steps", 99], capsys, "sacrebleu", "is not installed")
    assert (copy / "config.json").read_bytes() == before


def test_a_text_changed_by_hand_is_not_trained_on(data, tmp_path, capsys):
    changed = shutil.copytree(data, tmp_path / "data")
    with open(changed / "train.en", "r+b") as file:
        file.write(b"A")
    begin = ["train", tmp_path / "run", "--data", changed, "--config", "tiny", "--steps", 1]
    fails(begin, capsys, "train.en: changed after it was prepared", alone=False)


def test_a_preset_and_a_folder_of_its_name(finished, tmp_path, monkeypatch, capsys):
    "The preset is meant, and a warning names the folder; a path is a folder."
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, tmp_path / "tiny")
    preset, _ = train_command.chosen_preset("tiny", None)
    assert preset == "tiny" and "warning: tiny: the preset is taken" in capsys.readouterr().err
    preset, _ = train_command.chosen_preset("./tiny", None)
    assert preset[0].d_model == SHAPE.d_model and not capsys.readouterr().err


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


def test_a_value_that_is_some_presets_default_is_not_ignored(made, tmp_path, capsys):
    "Small's 200 updates between checkpoints, asked of a run of another preset, by itself and beside --config."
    for more in ([], ["--data", made / "data"], ["--config", "tiny"]):
        fails(["train", made / "run", "--save-every", "200", *more], capsys, "--save-every 200 (it has 4)")


def test_not_a_run_directory(made, tmp_path, capsys):
    for command in (["translate", tmp_path], ["evaluate", tmp_path], ["translate", made / "data"],
                    ["evaluate", tmp_path / "nothing"]):
        fails(command, capsys, command[1])
    fails(["train", tmp_path / "new"], capsys, "--data")
    assert not (tmp_path / "new").exists()
    (tmp_path / "occupied").mkdir()
    write(tmp_path / "occupied" / "letter.txt", ["dear"])
    fails(["train", tmp_path / "occupied", "--data", made / "data", "--config", "tiny"], capsys, "occupied")


def test_an_imported_run_is_not_trained(imported, made, capsys):
    for where in ([imported], ["new", "--data", made / "data", "--config", imported]):
        fails(["train", *where], capsys, f"{imported}: imported, and not trained further: translate with it")
    fails(["average", imported, "--best"], capsys, imported, "no checkpoints to choose from")
    fails(["average", "ende", "--last", 1], capsys, "ende: ")


def test_checkpoint_cut_short(made, copy, capsys):
    "One is passed over; where all are damaged, that is said."
    (copy / "averaged.safetensors").unlink()
    *others, newest = sorted((copy / "checkpoints").iterdir(), key=lambda p: int(p.name[5:]))
    assert others
    for checkpoint in (newest, *others):
        weights = checkpoint / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
        if checkpoint == newest:
            assert Run.open(copy).weights() and str(weights) in capsys.readouterr().err
    for command in ("translate", "train"):
        with pytest.raises(SystemExit) as end:
            cli.main([command, str(copy)])
        said = capsys.readouterr().err
        assert end.value.code == 2 and str(newest) in said and "there is no intact one before it" in said


def test_vocabulary_of_another_run(made, copy, text, tmp_path, capsys):
    prepared(tmp_path / "other", text, 299)
    shutil.copy(tmp_path / "other" / "vocabulary.model", copy)
    fails(["translate", copy], capsys, "vocabulary")
    fails(["train", made / "run", "--data", tmp_path / "other"], capsys)


@pytest.mark.parametrize("wrong", ["--minutes -1", "--device-tokens 0", "--seed -1", "--seed 99999999999999999999"])
def test_a_refused_training_leaves_nothing(wrong, made, tmp_path, capsys):
    fails(["train", tmp_path / "run", "--data", made / "data", "--config", "tiny", *MODEL, *wrong.split()], capsys)
    assert not (tmp_path / "run").exists()


def test_a_refused_training_does_not_change_a_run(copy, capsys):
    before = (copy / "config.json").read_bytes()
    with pytest.raises(SystemExit):
        cli.main(["train", str(copy), "--steps", "99", "--minutes", "-1"])
    with Run.open(copy).lock(), pytest.raises(SystemExit):
        cli.main(["train", str(copy), "--steps", "99"])
    fails(["train", copy, "--steps", "99", "--data", copy / "nowhere"], capsys, "nowhere is not a corpus")
    (copy / "record.json").unlink()
    cli.main(["train", str(copy), "--abandon", "why not"])
    fails(["train", copy, "--steps", "99"], capsys, "abandoned (why not)")
    assert (copy / "config.json").read_bytes() == before


def test_a_corpus_that_has_moved_is_named_with_data(made, copy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config = json.loads((copy / "config.json").read_text())
    config["data"]["folder"] = "moved"
    (copy / "config.json").write_text(json.dumps(config))
    for command in ("train", "average --last 1", "evaluate"):
        name, *options = command.split()
        fails([name, copy, *options], capsys, "run: its corpus, moved, is not here: name it with --data")
    cli.main(["average", str(copy), "--last", "1", "--data", str(made / "data")])


def test_weights_that_ship_win_over_a_folder(made, tmp_path, monkeypatch, capsys):
    shutil.copytree(made / "run", tmp_path / "grammar")
    monkeypatch.chdir(tmp_path)
    assert find_run("grammar").folder == shipped_runs()["grammar"]
    assert ("warning: grammar: the weights that ship are taken; for your own, "
            f"give {tmp_path / 'grammar'}") in capsys.readouterr().err
    assert find_run(tmp_path / "grammar").folder == tmp_path / "grammar"
    fails(["train", "ende", "--data", made / "data", "--config", "tiny"], capsys, "ende: the name of weights that ship")
    assert not (tmp_path / "ende").exists()


@pytest.mark.parametrize(("name", "value", "said"),
                         [("seed", "x", "seed is 'x'"), ("save_minutes", "soon", "give a number")])
def test_what_a_stranger_wrote_of_the_training(name, value, said, copy, capsys):
    config = json.loads((copy / "config.json").read_text())
    config["training"][name] = value
    (copy / "config.json").write_text(json.dumps(config))
    fails(["train", copy], capsys, said)


def test_a_rate_that_has_run_out_is_not_extended(data, tmp_path, capsys):
    "A run that was extended ends exactly as one long run; this one's rates would have been others."
    schedule = replace(TRAINING, steps=4, warmup_steps=2, schedule="linear-to-zero")
    run = start_run(tmp_path / "run", data, SHAPE, schedule)
    assert train(run)
    assert "falls to zero at update 4: begin a new run" in refused(capsys, "train", run.folder, "--steps", 8)
    assert Run.open(run.folder).config["training"]["steps"] == 4


def test_the_options_of_a_session_are_heard(finished, data, tmp_path, monkeypatch, capsys):
    asked, whole = [], loop.shard
    monkeypatch.setattr(loop, "shard", lambda corpus, some, tokens: asked.append(tokens) or whole(corpus, some, tokens))
    told = said(capsys, "train", tmp_path / "run", "--data", data, "--config", finished, "--minutes", "1e-9",
                "--device-tokens", 77, "--tensorboard")
    assert "Stopped. Continue with" in told and {*asked} == {77} and (tmp_path / "run" / "tensorboard").is_dir()
