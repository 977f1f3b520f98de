"""Plans and who carries them out: what comes first, what waits, that nothing is done twice, and what a kill leaves."""
import json
import math
import os
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from annotated_transformer.experiments import rivals_measured, runner, variations
from annotated_transformer.experiments.runner import (
    Place,
    Step,
    TimeUp,
    begun_run,
    main,
    read_plan,
    steps_named,
    steps_of,
    work,
)
from annotated_transformer.tools.files import InputError
from annotated_transformer.tools.records import find_record, make_record, read_records, write_record
from annotated_transformer.training.loop import train
from annotated_transformer.training.runs import Run
from here import ROOT, small_corpus

RESULTS = ROOT / "nbs/results"
PLANS = sorted(path.stem for path in (ROOT / "annotated_transformer/experiments/plans").glob("*.toml"))


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "data", tmp_path / "runs", tmp_path / "out")


def record(name: str) -> dict:
    return make_record(name, "toy", data={}, config={}, seed=0, seconds=0, metrics={"value": 1.0})


def toy(name: str, done: list, **more) -> Step:
    "A step that takes a moment and notes that it was done."
    def do(place: Place) -> dict:
        done.append(name)
        time.sleep(0.05)
        return record(name)
    return Step(name, do, **more)


# --- one process -----------------------------------------------------------------------------------------------------

def test_the_first_step_that_can_begin_is_next(place):
    "What was in the way of an early step may be done by a later one; a second time nothing is done."
    done = []
    steps = [toy("toy_last", done, needs=["toy_second"]), toy("toy_second", done, needs=["toy_first"]),
             toy("toy_first", done)]
    assert work(steps, place, "toys") == []
    assert done == ["toy_first", "toy_second", "toy_last"] == sorted(done, key=done.index)
    assert work(steps, place, "toys") == [] and len(done) == 3
    command = "python -m annotated_transformer.experiments run toys --only toy_last"
    assert find_record("toy_last", place.out)["command"].endswith(command)


def test_what_waits_for_another_plan_is_left(place, capsys):
    done = []
    steps = [toy("toy_waits", done, needs=["toy_elsewhere"]), toy("toy_model", done, models=["toys/toy_there"]),
             toy("toy_there", done)]
    assert work(steps, place, "toys") == [] and done == ["toy_there"]
    said = runner.summary(steps, place)
    assert "toy_elsewhere: no record yet" in said and "toys/toy_there: only its record is here" in said
    assert "1 of 3 records" in said
    (place.runs / "toys/toy_there").mkdir(parents=True)
    (place.runs / "toys/toy_there/record.json").write_text("{}")
    assert work(steps, place, "toys") == [] and done == ["toy_there", "toy_model"]


def test_a_failing_step_does_not_end_the_others(place, capsys):
    def fails(error):
        def do(place):
            raise error
        return do

    done = []
    steps = [Step("toy_wrong", fails(InputError("no such corpus"))), Step("toy_bug", fails(ZeroDivisionError("by 0"))),
             toy("toy_good", done)]
    assert work(steps, place, "toys") == ["toy_wrong", "toy_bug"] and done == ["toy_good"]
    said = capsys.readouterr().err
    assert "toy_wrong failed: no such corpus" in said and said.count("Traceback") == 1


def test_time(place):
    "Nothing begins when it is over, nor what needs more than is left; a step that stops half-way ends the work."
    done = []
    over = Place(place.data, place.runs, place.out, until=time.monotonic() - 1)
    with pytest.raises(TimeUp):
        over.minutes()
    assert work([toy("toy_late", done)], over, "toys") == [] and done == [] and not place.out.exists()
    soon = Place(place.data, place.runs, place.out, until=time.monotonic() + 60)
    assert 0 < soon.minutes() <= 1
    assert work([toy("toy_long", done, minutes=2), toy("toy_short", done, minutes=0.1)], soon, "toys") == []
    assert done == ["toy_short"]
    for stopped in (lambda place: None, lambda place: over.minutes()):
        assert work([Step("toy_stopped", stopped), toy("toy_next", done)], place, "toys") == []
        assert done == ["toy_short"]


def test_one_record_with_what_it_waits_for():
    some = [Step("trial", None), Step("other", None), Step("run0", None, ["trial"]), Step("run1", None, ["trial"]),
            Step("test0", None, ["run0", "run1"])]
    for only, names in (("trial", ["trial"]), ("run0", ["trial", "run0"]), ("run?", ["trial", "run0", "run1"]),
                        ("test0", ["trial", "run0", "run1", "test0"])):
        assert [step.name for step in runner.leading_to(some, only)] == names
    with pytest.raises(InputError, match="--only run2: no such record"):
        runner.leading_to(some, "run2")


def test_commands_are_steps(place):
    "They may fail, and are ended when time is up."
    place.runs.mkdir()
    good, bad, slow = runner.commands([
        {"name": "toy_good", "run": "python -c 'print(1)' {out}"},
        {"name": "toy_bad", "run": "python -c 'import nothing'", "alone": True},
        {"name": "toy_slow", "run": "sleep 60"}])
    assert good.do(place)["metrics"] == {"exit_code": 0} and (place.runs / "toy_good.log").read_text() == "1\n"
    assert bad.alone
    with pytest.raises(InputError, match="No module named 'nothing'.*toy_bad.log"):
        bad.do(place)
    assert slow.do(Place(place.data, place.runs, place.out, until=time.monotonic())) is None


IN_THREADS = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")

# --- several ---------------------------------------------------------------------------------------------------------

@IN_THREADS
def test_no_step_is_done_twice(place):
    "By four workers at once; those that find nothing free wait for what the others do."
    done = []
    steps = [toy(f"toy_{i}", done, needs=[f"toy_{i - 4}"] if i > 3 else []) for i in range(12)]
    workers = [threading.Thread(target=work, args=(steps, place, "toys")) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert Counter(done) == Counter(step.name for step in steps) and set(read_records(place.out)) == set(done)


@IN_THREADS
def test_a_step_that_must_be_alone_has_nothing_beside_it(place):
    running, most = Counter(), {}

    def step(name, alone=False):
        def do(place):
            running[name] += 1
            most[name] = running.total()
            time.sleep(0.1)
            running[name] -= 1
            return record(name)
        return Step(name, do, alone=alone)

    steps = [step("toy_clock", alone=True), *(step(f"toy_{i}") for i in range(4)), step("toy_watch", alone=True)]
    workers = [threading.Thread(target=work, args=(steps, place, "toys")) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert set(most) == {s.name for s in steps} and most["toy_clock"] == most["toy_watch"] == 1


# --- the plans -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", PLANS)
def test_each_step_of_a_plan_has_a_record_of_its_own(name):
    steps = steps_named(name)
    names = [step.name for step in steps]
    assert names and len(set(names)) == len(names)
    known = {*names, *read_records(RESULTS)}
    assert all({*step.needs} <= known and step.name not in step.needs for step in steps)


def test_seeds_are_interleaved():
    def order(name, of):
        return [step.name.removeprefix(of) for step in steps_named(name) if step.name.startswith(of)
                and "_seed" in step.name]

    assert order("to_the_end", "to_the_end_")[:5] == ["transformer_seed0", "convolutional_seed0",
                                                      "input-feeding_seed0", "recurrent_seed0", "transformer_seed1"]
    rows = order("variations", "row_small_")
    assert rows[:6] == ["base_seed0", *(f"{row}_seed0" for row in ("E", "A1", "D1", "B2", "B1"))]
    assert rows.index("base_seed5") < rows.index("C1_seed5") < rows.index("base_seed6")


def test_the_test_set_waits_for_the_last_run_of_a_system(place):
    place.out.mkdir()
    test = next(step for step in steps_named("multi30k") if step.name == "multi30k_test_narrow_fr_seed0")
    runs = [f"multi30k_narrow_fr_seed{seed}" for seed in range(3)]
    (place.runs / "rivals" / runs[0]).mkdir(parents=True)
    (place.runs / "rivals" / runs[0] / "record.json").write_text("{}")
    for n in range(3):
        assert not test.begins(place, {*runs[:n]})
    assert test.begins(place, {*runs})


@pytest.mark.parametrize("name", ["rivals_measured", "multi30k", "unsmoothed", "plain_vectors", "wider_rates",
                                  "input_feeding", "by_distance",
                                  "by_distance_longer", "model_variants", "variations"])
def test_a_step_begins_the_run_that_its_record_is_of(name, monkeypatch, place):
    "The old programs' records have the model and the training that today's steps begin, option for option."
    class Begun(Exception):
        pass

    def stop(folder, data, model, training):
        raise Begun(model, training)

    def corpus(size):
        monkeypatch.setattr(rivals_measured, "load_vocabulary", lambda folder: range(size))
        monkeypatch.setattr(variations, "load_vocabulary", lambda folder: range(size))

    for module in (rivals_measured, variations):
        monkeypatch.setattr(module, "begun_run", stop)
    monkeypatch.setattr(variations, "check_precision", lambda *given: None)
    monkeypatch.setattr(variations, "corpus_of_scale", lambda scale, place: SimpleNamespace(folder=place.data))
    records, compared = read_records(RESULTS), 0
    # begun at the rate of the first trials, and carried on at it when later ones chose another: begun_run would refuse
    records.pop("grammar-longer_convolutional_seed0")
    for step in steps_named(name):
        config = records.get(step.name, {}).get("config", {})
        if not {"model", "training"} <= set(config):
            continue
        corpus(config["model"]["vocab_size"])
        if "rate" in config["training"]:  # as older records have it
            config["training"]["lr_scale"] = config["training"].pop("rate")
        with pytest.raises(Begun) as begun:
            step.do(Place(place.data, place.runs, RESULTS))
        for part, wanted in zip(("model", "training"), begun.value.args):
            wanted = wanted.resolved() if hasattr(wanted, "resolved") else wanted
            now = json.loads(json.dumps(asdict(wanted)))
            new = {key: value for key, value in now.items() if key not in config[part]}
            assert new == {key: value for key, value in asdict(type(wanted)()).items() if key in new}
            left = {"precision"} if now.get("precision") == "auto" else set()
            assert {key: now[key] for key in config[part] if key not in left} == {
                key: value for key, value in config[part].items() if key not in left}, step.name
        compared += 1
    assert compared >= 4


def test_the_comparison_under_way_is_a_plan(tmp_path, capsys):
    "What the second edition's program writes, a file for each record, is done; the runs differ in their length alone."
    (tmp_path / "out").mkdir()
    write_record(tmp_path / "out" / "to_the_end_transformer_seed0.json", record("to_the_end_transformer_seed0"))
    main(["plan", "to_the_end", "--out", str(tmp_path / "out")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["done", "to_the_end_transformer_seed0"] and len(lines) == 32
    assert all(line.startswith("missing") for line in lines[1:])
    new, wider, fed = (rivals_measured.read_rules(name) for name in ("to_the_end", "wider_rates", "input_feeding"))
    assert new.training == wider.training | {"steps": 4000, "save_every": 100, "keep": 40, "precision": "float32"}
    for name, system in new.systems.items():
        rules = fed if name in fed.systems else wider
        old = rules.systems[name]
        assert system._replace(peak=0.0, seeds=old.seeds) == old
        assert rivals_measured.chosen(new, system, RESULTS) == rivals_measured.chosen(rules, old, RESULTS)


def test_a_study_is_its_chapters_cells(tmp_path, monkeypatch):
    "The marked cells of a chapter that exports nothing run, and no others; where there is no checkout there is none."
    (tmp_path / "nbs/experiments").mkdir(parents=True)
    cells = ["#| study\nimport math", "raise SystemExit", "#| study\ndef steps(n):\n    return n // 0"]
    (tmp_path / "nbs/experiments/toy_study.ipynb").write_text(json.dumps({"cells": [{"source": [c]} for c in cells]}))
    monkeypatch.setattr(runner, "checkout", lambda here: None)
    with pytest.raises(InputError, match="in the checkout alone"):
        steps_of({"steps": "toy_study.steps"})
    monkeypatch.setattr(runner, "checkout", lambda here: tmp_path)
    study = runner.experiment("toy_study")
    assert runner.experiment("toy_study") is study and study.math is math
    del sys.modules[study.__name__]
    with pytest.raises(ZeroDivisionError) as raised:
        study.steps(1)
    assert "return n // 0" in "".join(traceback.format_exception(raised.value))


# --- the command -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("text, said", [
    ("steps = [", "broken.toml"),
    ("rows = ['base']", "name a function"),
    ("steps = 'variations.no_such'", "name a function"),
    ("steps = 'nothing.steps'", "nothing.steps"),
    ("steps = 'variations.steps'\nrows = ['F1']", "F1"),
    ("steps = 'variations.steps'\nrowz = []", "rowz"),
    ("steps = 'variations.steps'\nscale = 'huge'", "huge"),
    ("steps = 'rivals_measured.steps'\nname = 'x'", "system"),
    ("steps = 'parsing_runs.steps'\nruns = ['crfat']", "crfat"),
    ("steps = 'parsing_runs.steps'\nscale = 2", "scale 2"),
    ("steps = 'after_the_paper.steps'\n[[run]]\nwhat = 'spans'\ndata = 'x'\nseeds = [0]", "spans"),
    ("steps = 'parameter_attention.steps'\nreadings = ['wide']\nseeds = [0]\nupdates = 1", "wide")])
def test_a_broken_plan_is_one_line(text, said, tmp_path, capsys):
    (tmp_path / "broken.toml").write_text(text)
    refused(["run", str(tmp_path / "broken.toml")], tmp_path, capsys, said)


@pytest.mark.parametrize("arguments, said", [
    (["run", "no_such_plan"], "no_such_plan: no such plan: there are after_the_paper"),
    (["run", "paths", "--only", "paths_x"], "--only paths_x"),
    (["run", "paths", "--jobs", "0"], "--jobs 0"),
    (["run", "paths", "--minutes", "0"], "--minutes 0"),
    (["run", "paths", "--device", "abacus"], "abacus"),
    (["go", "paths"], "go")])
def test_wrong_options_are_one_line(arguments, said, tmp_path, capsys):
    refused(arguments, tmp_path, capsys, said)


def refused(arguments: list[str], folder: Path, capsys, said: str) -> None:
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--runs", str(folder / "runs"), "--out", str(folder / "out")])
    found = capsys.readouterr().err
    assert end.value.code == 2 and said in found and found.count("\n") == 1 and not (folder / "runs").exists()


def test_a_step_that_fails_is_exit_code_1(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["run", "variations", "--only", "row_small_A1_seed5", "--data", str(tmp_path), "--runs",
              str(tmp_path / "runs"), "--out", str(tmp_path / "out")])
    assert end.value.code == 1 and "annotated-transformer prepare" in capsys.readouterr().err


# --- a real training, killed -----------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def grammar(tmp_path_factory):
    "A folder of data with a small corpus of the grammar."
    data = tmp_path_factory.mktemp("data")
    small_corpus(data / "grammar")
    return data


def test_a_killed_command_leaves_no_training_behind_and_goes_on(grammar, tmp_path, capsys):
    "Two processes train; what started them is killed (SIGKILL); they save and end, and the same command goes on."
    plan = "steps = 'variations.steps'\nrows = ['base', 'E']\nseeds = [0]\nscale = 'tiny'\n"
    (tmp_path / "tiny.toml").write_text(plan)
    place = Place(grammar, tmp_path / "runs", tmp_path / "out")
    argv = ["run", str(tmp_path / "tiny.toml"), "--data", str(grammar), "--runs", str(place.runs), "--out",
            str(place.out)]
    process = subprocess.Popen([sys.executable, "-m", "annotated_transformer.experiments", *argv, "--jobs", "2"],
                               stderr=subprocess.DEVNULL,
                               env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True)
    end, begun = time.monotonic() + 240, place.runs / "variations/row_tiny_base_seed0/checkpoints/step_2"
    while not begun.exists():
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.01)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    gone, alive = psutil.wait_procs(children, 120)
    assert len(children) >= 2 and not alive
    main([*argv, "--copy", str(tmp_path / "copy")])
    assert "All is done." in capsys.readouterr().err
    assert set(read_records(place.out)) == {"row_tiny_base_seed0", "row_tiny_E_seed0"}
    for run in (place.runs / "variations").iterdir():  # no update twice, none left out
        assert [line["step"] for line in Run.open(run).history.metrics()] == [1, 2, 3, 4, 5, 6]
    copied = {path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*")
              if path.is_file()}
    assert {"out/variations.jsonl", "runs/variations/row_tiny_E_seed0/metrics.jsonl"} <= copied
    assert not any("safetensors" in name for name in copied)


@pytest.mark.parametrize("d_k", [16, None])  # None: the run writes down what it comes to
def test_a_run_that_was_begun_otherwise_is_refused(grammar, tmp_path, d_k):
    model, training = variations.scaled("E", "tiny", 300)
    model = replace(model, d_k=d_k)
    run = begun_run(tmp_path / "run", grammar / "grammar", model, training)
    assert not train(run, minutes=1e-6)
    assert begun_run(tmp_path / "run", grammar / "grammar", model, training).config == run.config
    for part, name, value in (("model", "n_layers", 2), ("training", "steps", 7)):
        other = json.loads(json.dumps(run.config))
        other[part][name] = value
        (tmp_path / "run/config.json").write_text(json.dumps(other))
        with pytest.raises(InputError, match=f"begun with {name} {value}"):
            begun_run(tmp_path / "run", grammar / "grammar", model, training)


def test_what_stands_above_the_parts_holds_unless_a_part_says_otherwise():
    plan = {"steps": "variations.steps", "rows": ["base"], "seeds": [0], "part": [{}, {"seeds": [1]}]}
    assert [step.name for step in steps_of(plan)] == ["row_small_base_seed0", "row_small_base_seed1"]


def test_what_systems_share():
    systems = rivals_measured.read_rules("heads_at_256").systems
    assert systems["8x8"].row == "B" and systems["1x32"].row == "A"
    assert systems["8x8"].model == dict(n_layers=6, d_model=256, d_ff=1024, dropout=0.1, n_heads=8, d_k=8, d_v=8)


def test_a_plan_of_parts_has_each_step_once():
    part = {"steps": "variations.steps", "rows": ["base"], "seeds": [0]}
    assert [step.name for step in steps_of({"part": [part, part | {"seeds": [1, 0]}]})] == ["row_small_base_seed0",
                                                                                            "row_small_base_seed1"]
    assert read_plan("variations")["part"]
