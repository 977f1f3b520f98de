"""The result records: written by the runs that they describe, whole; kept a line each in their comparison's file."""
import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_transformer.rivals import gleu_rl
from annotated_transformer.tools import records
from annotated_transformer.tools.files import InputError, taken
from annotated_transformer.tools.options import call
from annotated_transformer.tools.records import (
    add_record, by_seed, check_new, find_record, list_records, make_record, metric, move_record,
    read_records, record_digest, results_folder, summary, write_record)
from annotated_transformer.training.averaging import average_again
from annotated_transformer.training.loop import train
from annotated_transformer.training.starting import start_run
from annotated_transformer.training.presets import TrainingConfig
from annotated_transformer.training.runs import Run, RunRecord
from here import ROOT, SHAPE

RECORDS = ROOT / "nbs" / "results"


def example(name: str, **more) -> dict:
    return make_record(name, "benchmark", data={"name": "nothing"}, config={}, seed=0, seconds=0.0,
                       metrics={"x": 36.186} | more)


# --- the records of this repository -----------------------------------------------------------------------------------

def test_every_digest_is_right_and_the_summary_is_theirs():
    "The one fast test of the evidence here; `make evidence` has the others."
    found = read_records(RECORDS) | {f"replaced {name}": r for name,
                                     r in read_records(RECORDS / "replaced").items()}  # each digest is checked
    assert len(found) > 500
    groups = json.loads((RECORDS / "summary.json").read_text())["groups"]
    for group in groups.values():
        assert [found[name]["digest"][:12] for name in group["records"]] == group["digests"], group["records"]
    named = {name for group in groups.values() for name in group["records"]}
    lacking = {name for name, r in found.items() if r.get("status", "finished") == "finished"} - named
    lacking = {name for name in lacking if "_trial_" not in name and not name.startswith("replaced ")}
    assert not lacking, f"run: python -m annotated_transformer.experiments.summary   # {', '.join(sorted(lacking))}"


def test_the_summary_gives_means_over_seeds(monkeypatch):
    monkeypatch.chdir(ROOT / "nbs" / "model")
    group, found = summary()["row_small_A1"], read_records()
    values = [found[name]["metrics"]["perplexity"] for name in group["records"]]
    assert group["metrics"]["perplexity"]["value"] == pytest.approx(sum(values) / len(values), rel=1e-4)
    assert [run["metrics"]["perplexity"] for run in by_seed(group)] == pytest.approx(values, rel=1e-4)
    assert by_seed(summary()["all_sources_en_de"])[0]["config.model"]["n_layers"] == 6


# --- files of records -------------------------------------------------------------------------------------------------

def test_every_altered_digit_shows(tmp_path):
    "One digit of the line at a time, all of them: each is noticed by the digest alone."
    add_record(example("good"), tmp_path)
    path = tmp_path / "good.jsonl"
    text = path.read_text()
    for at in [m.start() for m in re.finditer(r"\d", text)]:
        path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1:])
        with pytest.raises(InputError, match=r"good.jsonl, line 1: (changed after it was written|not JSON)"):
            read_records(tmp_path)


@pytest.mark.slow
def test_many_processes_add_to_one_file(tmp_path):
    program = """if True:
        import json, sys
        from annotated_transformer.tools.records import add_record
        for record in json.load(sys.stdin):
            add_record(record, sys.argv[1])
    """
    given = [json.dumps([example(f"paths_{who}_seed{i}") for i in range(10)]) for who in range(3)]
    started = [subprocess.Popen([sys.executable, "-c", program, tmp_path], stdin=subprocess.PIPE, text=True)
               for _ in given]
    for process, text in zip(started, given):
        process.stdin.write(text)
        process.stdin.close()
    assert [process.wait() for process in started] == [0, 0, 0]
    lines = (tmp_path / "paths.jsonl").read_text().splitlines()
    assert len(read_records(tmp_path)) == len(lines) == 30 and lines == sorted(lines)
    assert {path.name for path in tmp_path.iterdir()} == {"paths.jsonl", ".lock"}


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    def flock(file, how):
        raise OSError(errno.ENOLCK, "No locks available")
    monkeypatch.setattr("fcntl.flock", flock)
    with taken(tmp_path / "lock", wait=True), taken(tmp_path / "lock") as ours:
        assert ours


def test_a_record_is_not_replaced(tmp_path):
    first, other = example("paths_a_seed0"), example("paths_müller_seed0")
    for record in (first, first, other):
        add_record(record, tmp_path)
    with pytest.raises(InputError, match="another record is named paths_a_seed0: remove its line"):
        add_record(first | {"seed": 1}, tmp_path)
    with pytest.raises(InputError, match="--out .*: paths.jsonl has a record named paths_a_seed0"):
        check_new("paths_a_seed0", tmp_path)
    check_new("paths_a_seed1", tmp_path)
    assert find_record("paths_a_seed0", tmp_path) == first and find_record("paths_a", tmp_path) is None
    assert find_record("paths_müller_seed0", tmp_path) == other
    assert find_record("paths_a_seed0", tmp_path / "none") is None


def test_a_record_moves_from_its_own_file(tmp_path):
    write_record(tmp_path / "paths_a_seed0.json", record := example("paths_a_seed0"))
    assert read_records(tmp_path) == {"paths_a_seed0": record}  # a user's own folder may have such files
    move_record(tmp_path / "paths_a_seed0.json")
    assert [path.name
            for path in tmp_path.glob("*.json*")] == ["paths.jsonl"] and read_records(tmp_path) == {
                "paths_a_seed0": record}


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(max_size=8), st.floats(allow_nan=False, allow_infinity=False) | st.text(), max_size=5))
def test_any_content_comes_back(tmp_path_factory, content):
    "Line separators of Unicode in a text, too: a record stays one line."
    folder = tmp_path_factory.mktemp("content")
    add_record(record := example("a", extra=content), folder)
    assert read_records(folder) == {"a": record} and record_digest(dict(reversed(record.items()))) == record["digest"]


@pytest.mark.parametrize("content, said", [
    ("{", "not JSON"), ("[" * 200_000, "not JSON"), ("[]", "not a JSON object"), ("{}", "not a result record"),
    (json.dumps({"name": "broken", "task": "variation", "metrics": {}}), "it has no command"),
    (json.dumps(example("broken") | {"metrics": [1]}), "it has no metrics"),
    (json.dumps(example("broken") | {"seed": 7}), "changed after")],
    ids=["cut", "nested", "a list", "empty", "no command", "no metrics", "changed"])
def test_what_is_no_record_is_one_line(tmp_path, content, said):
    for file in ("broken.json", "broken.jsonl"):
        (tmp_path / file).write_text(content)
        with pytest.raises(InputError, match=file) as caught:
            read_records(tmp_path)
        assert said in str(caught.value) and "\n" not in str(caught.value)
        (tmp_path / file).unlink()
    add_record(example("twice"), tmp_path)
    write_record(tmp_path / "twice.json", example("twice"))
    with pytest.raises(InputError, match="a second record is named twice"):
        read_records(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        read_records(tmp_path / "none")


def test_no_checkout_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="go to the top of the checkout"):
        results_folder()
    assert len(read_records()) > 600  # those of the package


@pytest.mark.parametrize("metrics, said", [({}, "no metric x"), ({"x": None}, "None"), ({"x": float("inf")}, "inf"),
                                           ({"x": "5"}, "'5'")])
def test_a_metric_that_is_missing_is_one_line(metrics, said):
    with pytest.raises(InputError, match=rf"^a: .*{re.escape(said)}: make it again with .c.$"):
        metric({"name": "a", "command": "c", "metrics": metrics}, "x")


def test_the_list_tells_them_apart(tmp_path, capsys):
    whole = example("whole")
    add_record(whole, tmp_path)
    write_record(tmp_path / "old.json",
                 {key: value for key, value in whole.items() if key not in ("sittings", "status")} | {"name": "old"})
    (tmp_path / "touched.json").write_text(json.dumps(whole | {"name": "touched"}))
    (tmp_path / "cut.json").write_text("{")
    list_records(tmp_path)
    cut, old, touched, finished = capsys.readouterr().out.splitlines()
    assert old.endswith(" older than the rule") and finished.endswith(" finished")
    assert "cut.json" in cut and "not JSON" in cut and "changed after it was written" in touched


def test_programs_that_measure_begin_their_sitting_as_they_start(monkeypatch):
    "A commit that is made while a program measures is not the record's."
    found = []

    def program() -> None:
        "Measure something."
        monkeypatch.setenv("ANNOTATED_REVISION", "later")
        found.append(example("example"))

    monkeypatch.setenv("ANNOTATED_REVISION", "at first")
    records.this_process.cache_clear()
    try:
        records.run_program(program, "a_module", [])
    finally:
        records.this_process.cache_clear()
    assert found[0]["revision"] == found[0]["sittings"][0]["revision"] == "at first"


def test_a_sitting_tells_the_load_at_both_its_ends(tmp_path, monkeypatch):
    "The average of the last minute, which the system gives first."
    loads = iter([(1.5, 9, 9), (3.25, 9, 9)] * 2)
    monkeypatch.setattr(os, "getloadavg", lambda: next(loads))
    assert records.ended(records.beginning())["load"] == [1.5, 3.25]
    records.begin_sitting(tmp_path / "sittings", 0)
    records.mark_sitting(tmp_path / "sittings", 5)
    assert [sitting["load"] for sitting in records.read_sittings(tmp_path / "sittings")] == [[1.5, 3.25]]


# --- what a record says of the machine --------------------------------------------------------------------------------

def test_the_processor_is_named_as_the_system_names_it(monkeypatch):
    "Its name by `lscpu`, the instructions that PyTorch computes with, and the threads."
    monkeypatch.setattr(records, "training_device", lambda: torch.device("cpu"))
    before = torch.get_num_threads()
    try:
        for threads, told in ((1, "1 thread"), (2, "2 threads")):
            torch.set_num_threads(threads)
            said = records.hardware()
            assert said.endswith(f" ({torch.backends.cpu.get_cpu_capability()}), {told}")
    finally:
        torch.set_num_threads(before)
    if (lscpu := shutil.which("lscpu")) and (named := re.search(r"^Model name:\s*(.+)$", subprocess.run(
            [lscpu], capture_output=True, text=True, env={"LC_ALL": "C"}).stdout, re.M)):
        if "model name" in Path("/proc/cpuinfo").read_text():  # not on ARM
            assert said.startswith(named[1])


def test_graphics_cards_are_counted_and_named(monkeypatch):
    monkeypatch.setattr(records, "training_device", lambda: torch.device("cuda", 3))
    monkeypatch.setattr(records, "world_size", lambda: 8)
    monkeypatch.setattr(torch.cuda, "get_device_name", {torch.device("cuda", 3): "NVIDIA P100"}.get)
    assert records.hardware() == "8 x NVIDIA P100"


def test_a_system_that_does_not_tell_its_processor(monkeypatch):
    monkeypatch.setattr(records, "training_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(records, "Path", lambda _: Path("/nothing/there"))
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert records.hardware().startswith("riscv64 (")


# --- what a run writes ------------------------------------------------------------------------------------------------

TRAINING = TrainingConfig(steps=12, warmup_steps=20, batch_tokens=300, save_every=2, report_every=1, keep=5,
                          precision="float32")


def begin(folder: Path, data: Path) -> Run:
    return start_run(folder, data, SHAPE, TRAINING)


def test_a_run_continued_at_another_revision_says_so(data, tmp_path, monkeypatch):
    monkeypatch.setenv("ANNOTATED_REVISION", "0123abc")
    run = begin(tmp_path / "run", data)
    assert not train(run, minutes=1e-9) and run.record.read()["status"] == "stopped"
    monkeypatch.setenv("ANNOTATED_REVISION", "4567def")
    assert train(Run.open(run.folder))
    record = run.record.read()
    assert record["status"] == "finished" and record["revision"] == "0123abc"
    assert [s["revision"] for s in record["sittings"]] == ["0123abc", "4567def"]
    assert record["sittings"][0]["to_step"] == record["sittings"][1]["from_step"] and record["sittings"][1][
        "to_step"] == TRAINING.steps
    assert record_digest(record) == record["digest"]
    assert record["weights"] == hashlib.sha256((run.folder / "averaged.safetensors").read_bytes()).hexdigest()


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_its_sitting(data, tmp_path):
    "SIGKILL right after a checkpoint was saved: the sitting ends there."
    run = begin(tmp_path / "run", data)
    program = (
        "import os, signal, sys\nfrom annotated_transformer.training.runs import Run\nfrom "
        "annotated_transformer.training.loop import train\n"
               "save = Run.save_checkpoint\n"
               "def save_and_die(self, step, *rest):\n    save(self, step, *rest)\n    step == 4 and "
               "os.kill(os.getpid(), signal.SIGKILL)\n"
               "Run.save_checkpoint = save_and_die\ntrain(Run.open(sys.argv[1]))\n")
    killed = subprocess.run([sys.executable, "-c", program, str(run.folder)], capture_output=True)
    assert killed.returncode == -9, killed.stderr
    [sitting] = run.record.provenance()["sittings"]
    assert sitting["to_step"] == 4 and sitting["begin"] <= sitting["end"]
    assert train(run)
    assert [(s["from_step"], s["to_step"]) for s in run.record.read()["sittings"]] == [(0, 4), (4, 12)]


def test_what_is_loaded_is_what_was_measured(data, tmp_path):
    """The perplexity in the record is that of the weights that `load` uses, and no other number of checkpoints does
    better."""
    from annotated_transformer.corpus.corpora import Corpus
    from annotated_transformer.decoding.evaluation import evaluate
    from annotated_transformer.decoding.translation import load

    run = begin(tmp_path / "run", data)
    assert train(run)
    record = run.record.read()
    src, references = map(list, zip(*Corpus.open(data).pairs("dev")))
    found = evaluate(load(run.folder), src, references, beam_size=1, alpha=0.6, samples=0)
    assert found.perplexity == pytest.approx(record["metrics"]["perplexity/dev"], rel=1e-4)
    assert found.accuracy == pytest.approx(record["metrics"]["accuracy/dev"], abs=1e-3)
    tried = record["averages"]
    assert [t["checkpoints"] for t in tried] == [1, 2, 4, 5] and sum(t["chosen"] for t in tried) == 1
    best = min(tried, key=lambda t: t["perplexity/dev"])
    assert best["chosen"] and best["checkpoints"] == record["metrics"]["averaged_checkpoints"]


def test_an_abandoned_run_says_why_and_keeps_what_it_was_trained_on(data, finished, tmp_path):
    """Whoever gives a run up, maybe elsewhere and later, has not trained it; what it had reached and was scored with
    stays."""
    with pytest.raises(InputError, match="finished already"):
        Run.open(finished).abandon("after all")
    run = begin(tmp_path / "run", data)
    assert not train(run, minutes=1e-9)
    stopped, last = run.record.read(), run.history.metrics()[-1]
    assert stopped["status"] == "stopped"
    run.record.write(stopped | {"hardware": "another machine", "versions": {"torch": "2.0"}, "processes": 3})
    run.record.add_evaluation("test", {"sacrebleu": 1.5}, beam_size=4)
    for why in ("", " \n"):
        with pytest.raises(InputError, match="say why"):
            run.abandon(why)
    assert run.record.read()["status"] == "stopped"
    record = run.abandon("too slow")
    assert (record["status"], record["reason"]) == ("abandoned", "too slow")
    with pytest.raises(InputError, match="abandoned .too slow."):
        train(run)
    assert (record["hardware"], record["versions"], record["processes"]) == ("another machine", {"torch": "2.0"}, 3)
    assert record["metrics"]["steps"] == last["step"] and record["metrics"]["loss"] == last[
        "loss"] and not run.finished()
    assert [(e["set"], e["metrics"], e["search"])
            for e in record["evaluations"]] == [("test", {"sacrebleu": 1.5}, {"beam_size": 4})]


def test_a_record_is_written_by_one_process_at_a_time(data, tmp_path, monkeypatch):
    written, write = [], RunRecord.write

    def alone(record, content):
        with taken(record.folder / ".record.lock") as free:
            written.append((content["status"], free))
        write(record, content)
    monkeypatch.setattr(RunRecord, "write", alone)
    monkeypatch.setattr(gleu_rl, "on_dev", lambda *_: {})  # which takes long
    run = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=2))
    assert train(run)
    average_again(run, None, 1, False)
    tuned = gleu_rl.begin_tuning(tmp_path / "tuned", run.folder, gleu_rl.Tuning(steps=1, sentences=2, samples=2))
    assert gleu_rl.tune(tuned)
    begin(tmp_path / "other", data).abandon("too slow")
    assert written == [("finished", False)] * 3 + [("abandoned", False)]


def test_a_line_cut_short_takes_no_other_with_it(tmp_path):
    path = tmp_path / "lines.jsonl"
    records.add_line(path, {"a": 1})
    with open(path, "a") as file:
        file.write('{"a": 2')  # killed while writing
    for number in (3, 4):
        records.add_line(path, {"a": number})
    path.write_bytes(b"[1]\n2\n\xff\n" + path.read_bytes())  # and what is no object
    assert records.read_lines(path) == [{"a": 1}, {"a": 3}, {"a": 4}]


@pytest.mark.parametrize("raised, code, told", [
    (KeyboardInterrupt(), 130, ""),
    (OSError(28, "No space left on device"), 2, "a_module: standard output: No space left on device\n"),
    (OSError(28, "No space left on device", "out.json"), 2, "a_module: out.json: No space left on device\n"),
    (InputError("--n 0: give 1 or more"), 2, "a_module: --n 0: give 1 or more\n")])
def test_programs_end_without_a_traceback(raised, code, told, capsys):
    def program(*, n: int = 1) -> None:
        "Do something."
        raise raised

    with pytest.raises(SystemExit) as end:
        records.run_program(program, "a_module", [])
    assert (end.value.code, capsys.readouterr().err) == (code, told)


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


def test_the_usage_of_many_options_is_one_line(capsys):
    @dataclass
    class Size:
        "How large it gets."
        wide: int = 1
        high: int = 1

    def program(source: str, /, **size: Size) -> None:
        "Do something."

    with pytest.raises(SystemExit):
        call(program, ["--help"], "a_module")
    said = capsys.readouterr().out
    assert said.startswith("usage: a_module SOURCE [options]\n\nDo something.\n") and "--high HIGH" in said
