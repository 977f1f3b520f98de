"""The sweep over Table 3's rows at the scale `tiny`: killed, stopped, failing, continued; its records and what it says."""
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from sacrebleu.metrics import BLEU

from annotated_transformer.commands import cli
from annotated_transformer.experiments import row_measurements, sweep
from annotated_transformer.corpus.batching import encode_corpus
from annotated_transformer.corpus.corpora import Corpus, grammar_corpus
from annotated_transformer.tools.files import file_digest
from annotated_transformer.training.runs import Run
from annotated_transformer.model.transformer import Transformer, count_parameters
from annotated_transformer.experiments.row_measurements import measure_step_time
from annotated_transformer.experiments.sweep import Job, measurements, plan
from annotated_transformer.decoding.translation import SENTENCE, load
from annotated_transformer.experiments.variations import ROWS, SCALES, scaled
from annotated_transformer.experiments.verdicts import OPEN, UNCLEAR, compare_all, read_claims, rows_for, variation_rows
from annotated_transformer.drawing.result_tables import read_records
from annotated_transformer.corpus.vocabulary import BytePairVocabulary

pytestmark = pytest.mark.xdist_group("variations")  # one after the other: they start processes of their own


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("variations") / "grammar"
    corpus = grammar_corpus(folder, train=200, dev=12, test=5, test_long=5)
    encode_corpus(corpus, BytePairVocabulary.learn((line for pair in corpus.pairs("train") for line in pair), 300))
    return folder


def arguments(data: Path, place: Path, *rows: str) -> list[str]:
    return ["sweep", *rows, "--scale", "tiny", "--data", str(data), "--folder", str(place / "runs"), "--out", str(place / "records")]


def fails(argv: list[str], capsys, *named: str) -> None:
    "The command ends with code 2 and one line that names all of `named`."
    with pytest.raises(SystemExit) as end:
        cli.main(argv)
    said = capsys.readouterr().err.strip().splitlines()
    assert end.value.code == 2 and len(said) == 1 and all(name in said[0] for name in named), said


def start(argv: list[str]) -> subprocess.Popen:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    return subprocess.Popen([sys.executable, "-m", "annotated_transformer", *argv], env=environment, start_new_session=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition, seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def killed(data, tmp_path_factory):
    """A sweep of three jobs: killed (SIGKILL) while the second trains, then run to its end, two at once.

    Gives the folder, the jobs, when the first record had been written, what the kill left of the second, and what the last sweep said.
    """
    place = tmp_path_factory.mktemp("sweep")
    argv = arguments(data, place, "base", "E", "C1") + ["--seeds", "0"]
    jobs = plan(("base", "E", "C1"), "tiny", (0,), data, place / "runs", place / "records")
    process = start(argv)
    wait_for(lambda: jobs[0].record.exists() and (jobs[1].run / "checkpoints" / "step_2").exists())
    children = psutil.Process(process.pid).children()
    written = jobs[0].record.stat().st_mtime_ns
    process.kill()
    process.communicate()
    wait_for(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children), 60)
    left = len(Run.open(jobs[1].run).checkpoints.found()), jobs[1].record.exists()
    again = start([*argv, "--jobs", "2"])
    out, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    return {"place": place, "jobs": jobs, "written": written, "left": left, "out": out, "err": err}


def test_a_killed_sweep_leaves_no_training_behind_and_goes_on(killed):
    assert killed["left"][0] >= 1  # a checkpoint to go on from (the orphan saved it and ended; the fixture waited for that)
    assert killed["jobs"][0].record.stat().st_mtime_ns == killed["written"] and "Kept: " in killed["err"]  # not run again
    assert all(job.record.exists() for job in killed["jobs"])
    for job in killed["jobs"]:  # no step twice, none left out
        assert [line["step"] for line in Run.open(job.run).history.metrics()] == [1, 2, 3, 4, 5, 6]
    assert "Next: make notebooks" in killed["err"] and killed["out"].count("\n") == 1 + 3


def test_records_have_what_the_tables_need(killed, data):
    found = variation_rows(read_records(killed["place"] / "records"), "tiny")
    assert {row: list(of) for row, of in found.items()} == {"base": [0], "C1": [0], "E": [0]}
    for row, seed in (("base", 0), ("E", 0)):
        record = found[row][seed]
        model, training = scaled(row, "tiny", record["config"]["model"]["vocab_size"], seed)
        assert record["name"] == f"row_tiny_{row}_seed{seed}" and (record["task"], record["row"]) == ("variation", row)
        assert record["config"]["model"]["positions"] == model.positions and record["config"]["training"]["seed"] == seed
        assert record["config"]["search"] == {"beam_size": 4, "alpha": 0.6} and record["metrics"]["averaged_checkpoints"] == 1
        assert {"sacrebleu/dev", "bleu_paper/dev", "chrf/dev", "accuracy", "perplexity/train"} <= set(record["metrics"])
        assert record["metrics"]["parameters"] == count_parameters(model) and record["metrics"]["steps"] == training.steps
        assert record["command"].startswith(f"OMP_NUM_THREADS=1 annotated-transformer sweep {row} --scale tiny") and record["command"].endswith(f"--seeds {seed}")
        # the number is that of the last checkpoint, measured anew
        translator = load(killed["place"] / "runs" / record["name"])
        again = translator.measure(*map(list, zip(*Corpus.open(data).pairs("dev"))))
        assert math.isclose(record["metrics"]["perplexity"], again.perplexity, rel_tol=1e-4)


def test_sentences_add_up_to_the_record(killed):
    "BLEU, perplexity and accuracy of the record, from the sums of its sentences."
    for job in killed["jobs"]:
        record, lines = json.loads(job.record.read_text()), [line.split("\t") for line in job.sentences.read_text().splitlines()]
        assert record["sentences"] == file_digest(job.sentences) and tuple(lines[0]) == SENTENCE and len(lines) == 1 + 12
        sums = dict(zip(lines[0], (sum(map(float, column)) for column in zip(*lines[1:]))))
        bleu = BLEU.compute_bleu([sums[f"correct_{n}"] for n in (1, 2, 3, 4)], [sums[f"total_{n}"] for n in (1, 2, 3, 4)],
                                 int(sums["sys_len"]), int(sums["ref_len"]))
        m = record["metrics"]
        assert math.isclose(bleu.score, m["sacrebleu/dev"], abs_tol=1e-9) and math.isclose(sums["right"] / sums["tokens"], m["accuracy"], rel_tol=1e-6)
        assert math.isclose(math.exp(sums["nats"] / sums["tokens"]), m["perplexity"], rel_tol=1e-4)


def test_verdicts_are_read_from_records(killed):
    "One seed tells nothing over seeds; over sentences there is an interval, from the files beside the records."
    place = killed["place"] / "records"
    claims = [claim for claim in read_claims()["claim"] if claim["name"] in ("learned_positions", "narrow_keys")]
    tested = {(t.claim, t.measure): t for t in compare_all(claims, read_records(place), place, "tiny")}
    found = tested["learned_positions", "perplexity"]
    assert found.verdict == UNCLEAR and found.high == math.inf and found.sentences[0] < found.margin < found.sentences[1]
    assert tested["narrow_keys", "BLEU"].verdict == OPEN


def test_the_same_command_gives_the_same_number(killed, data, tmp_path):
    "A row run again, by its record's command but for the places, in another process."
    before = json.loads(killed["jobs"][0].record.read_text())
    threads, _, *argv = before["command"].split() + ["--folder", str(tmp_path / "runs"), "--out", str(tmp_path / "records")]
    process = start(argv)
    assert threads == "OMP_NUM_THREADS=1" and process.wait(300) == 0, process.stderr.read()
    after = json.loads((tmp_path / "records" / f"{before['name']}.json").read_text())
    same = ("perplexity", "accuracy", "sacrebleu/dev", "parameters", "steps")
    assert {name: after["metrics"][name] for name in same} == {name: before["metrics"][name] for name in same}


def test_a_failing_row_does_not_end_the_others(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TQDM_DISABLE", "1")
    [bad] = [job for job in plan(("E",), "tiny", (0,), data, tmp_path / "runs", tmp_path / "records")]
    sweep.begun_run(bad)
    config = json.loads((bad.run / "config.json").read_text())
    config["model"]["max_length"] = 2  # of another configuration than the row's
    (bad.run / "config.json").write_text(json.dumps(config))
    with pytest.raises(SystemExit) as end:
        cli.main(arguments(data, tmp_path, "E", "C1") + ["--seeds", "0"])
    said = capsys.readouterr()
    assert end.value.code == 1 and (tmp_path / "records" / "row_tiny_C1_seed0.json").exists() and "C1" in said.out
    assert "row_tiny_E_seed0 failed: " in said.err and "max_length 2" in said.err and not bad.record.exists()


def test_a_record_of_another_configuration_is_refused(killed, data, tmp_path, capsys):
    (tmp_path / "records").mkdir()
    record = json.loads(killed["jobs"][0].record.read_text())
    record["config"]["training"]["steps"] = 7
    (tmp_path / "records" / killed["jobs"][0].record.name).write_text(json.dumps(record))
    fails(arguments(data, tmp_path, "base"), capsys, "steps 7", "would be 6")


def test_the_rows_of_a_seed_have_one_precision(killed, data, tmp_path, capsys):
    "A machine does not add to a seed that one of another precision has begun, and rows are compared within one precision."
    (tmp_path / "records").mkdir()
    record = json.loads(killed["jobs"][0].record.read_text())
    other = {"float32": "bfloat16", "bfloat16": "float32"}[record["config"]["training"]["precision"]]
    record["config"]["training"]["precision"] = other
    (tmp_path / "records" / killed["jobs"][0].record.name).write_text(json.dumps(record))
    fails([*arguments(data, tmp_path, "E"), "--seeds", "0"], capsys, "--seeds 0", f"trained in {other}", "other seeds")
    assert [job.seed for job in plan(("E",), "tiny", (1,), data, tmp_path / "runs", tmp_path / "records")] == [1]

    def run(row: str, seed: int, precision: str) -> dict:
        return {"name": f"row_small_{row}_seed{seed}", "seed": seed, "sittings": [], "config": {"training": {"precision": precision}}}

    found = [run(row, seed, precision) for precision, rows, seeds in (("bfloat16", ("base", "A1"), range(3)), ("float32", ("base", "C1"), range(3, 6)))
             for row in rows for seed in seeds] + [run("D2", 0, "float32"), run("A1", 3, "float32")]
    records = {r["name"]: r for r in found}
    for row, seeds in (("A1", [0, 1, 2]), ("C1", [3, 4, 5]), ("D2", [3, 4, 5])):
        assert list(rows_for({"pairs": [["base", row]]}, records)["base"]) == seeds
    assert rows_for({"pairs": [["base", "D2"]]}, records)["D2"].keys() == {0} and rows_for({"pairs": [["A1", "C1"]]}, records)["A1"].keys() == {3}
    assert rows_for({"pairs": [["base", "E"]]}, records) == {}


def test_minutes_end_a_sweep_that_goes_on(data, tmp_path):
    process = start(arguments(data, tmp_path, "base") + ["--seeds", "0", "--minutes", "0.001"])
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0 and "Stopped with 0 of 1 rows. Go on with: annotated-transformer sweep base" in err
    assert not list((tmp_path / "records").iterdir())


def test_what_is_wrong_is_said_in_one_line(data, tmp_path, capsys):
    fails(arguments(data, tmp_path, "F1"), capsys, "F1", "base, A1")
    fails([*arguments(data, tmp_path), "--jobs", "0"], capsys, "--jobs 0")
    fails([*arguments(data, tmp_path), "--minutes", "0"], capsys, "--minutes 0")
    fails([*arguments(data, tmp_path), "--seeds", "-1"], capsys, "-1")
    fails(["sweep", "--scale", "huge"], capsys, "huge")
    fails(["sweep", "--scale", "small", "--data", str(tmp_path / "none")], capsys, "none", "prepare", "--corpus multi30k")
    fails(["sweep", "--scale", "small", "--data", str(data)], capsys, "holds grammar", "multi30k")
    assert not (tmp_path / "runs").exists() and not (tmp_path / "records").exists()


def test_the_order_of_a_plan(data, tmp_path):
    jobs = plan((), "tiny", (0, 1, 2), data, tmp_path, tmp_path)
    assert [(job.row, job.seed) for job in jobs[:4]] == [("base", 0), ("base", 1), ("base", 2), ("big", 0)]  # then the longest first
    assert [job.seed for job in jobs[3:]] == [0] * (len(ROWS) - 1) + [1] * (len(ROWS) - 1) + [2] * (len(ROWS) - 1)
    assert len(jobs) == 3 * len(ROWS) and [job.row for job in measurements(jobs)] == ["step_time"]
    assert not measurements([job for job in jobs if job.row != "base"])
    assert [job.seed for job in plan(("A1",), "tiny", (2, 1), data, tmp_path, tmp_path)] == [1, 2]


@pytest.mark.parametrize("row", ["A1", "A4", "C3", "AOP2", "big"])
def test_rows_of_the_tiny_scale_can_be_built(row):
    model = scaled(row, "tiny", 300).model
    built = Transformer(model)
    assert sum(p.numel() for p in built.parameters()) == count_parameters(model) and min(model.d_k, model.d_ff) >= 1


def test_step_times_are_a_ratio_of_one_process(data, tmp_path, monkeypatch):
    "With a clock that says 1 s for base, 1.4 and 1.2 for the others, and a machine that grows slower as the rounds go by."
    clock = SimpleNamespace(now=0.0)
    of = {0: 1.0} | {scaled(row, "tiny", 300).model.n_p: seconds for row, seconds in (("AOP1", 1.4), ("AOP2", 1.2))}

    def timed(objective, optimizer, parts, tokens, training, step):
        c = objective.model.config
        clock.now += (1 + step / 10) * of[c.n_p if c.parameter_heads else 0]
        return torch.tensor(0.0)

    monkeypatch.setattr(row_measurements, "update", timed)
    monkeypatch.setattr(row_measurements, "time", SimpleNamespace(perf_counter=lambda: clock.now, monotonic=time.monotonic))
    job = Job("step_time", 0, "tiny", data, tmp_path, tmp_path)
    measure_step_time(job, rounds=3)
    record = json.loads(job.record.read_text())
    expected = {"step_seconds/base": 1.5, "step_seconds/AOP1": 2.1, "step_seconds/AOP2": 1.8, "ratio/AOP1": 1.4, "ratio/AOP2": 1.2}
    updates = {u["system"]: u for u in record["metrics"].pop("updates")}
    assert {row: len(u["all"]) for row, u in updates.items()} == {"base": 3, "AOP1": 3, "AOP2": 3} and len({u["n"] for u in updates.values()}) == 1
    assert updates["AOP1"]["all"] == pytest.approx([1.4 * x for x in updates["base"]["all"]])
    assert record["metrics"] == pytest.approx(expected) and "annotated-transformer sweep base AOP1 AOP2" in record["command"]


def test_scales_are_what_their_names_say():
    assert SCALES["full"].training.steps == 100_000 and scaled("big", "full", 37000).training.steps == 300_000
    assert scaled("big", "small", 5000).training.steps == scaled("base", "small", 5000).training.steps
