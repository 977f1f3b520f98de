"""The result records: written by the runs that they describe, whole, and possible."""

import functools
import hashlib
import importlib
import inspect
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import torch

from annotated_transformer.commands import cli
from annotated_transformer.tools import options, records
from annotated_transformer.corpus.batching import encode_corpus
from annotated_transformer.corpus.corpora import grammar_corpus
from annotated_transformer.tools.files import InputError, file_digest
from annotated_transformer.tools.records import is_older, list_records, make_record, read_record, record_digest, sealed, write_record
from annotated_transformer.training.runs import Run
from annotated_transformer.training.presets import TINY, TrainingConfig
from annotated_transformer.training.loop import start_run, train
from annotated_transformer.corpus.vocabulary import BytePairVocabulary

ROOT = Path(__file__).resolve().parent.parent
RECORDS = sorted((ROOT / "nbs" / "results").glob("*.json"))
OLDER = dict(line.split() for line in (Path(__file__).parent / "older_records.txt").read_text().splitlines())
STATUS = {"finished", "stopped", "abandoned"}
ENTRIES = {"name", "status", "task", "row", "command", "revision", "date", "sittings", "data", "config", "seed", "hardware", "versions",
           "seconds", "metrics", "evaluations", "weights", "digest"}


# --- what is looked at in a record --------------------------------------------------------------------------------------------------


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@functools.cache
def committed(revision: str) -> datetime | None:
    "When a commit of this repository was made; None where there is no such commit here."
    found = subprocess.run(["git", "show", "-s", "--format=%cI", f"{revision}^{{commit}}"], cwd=ROOT, capture_output=True, text=True)
    return moment(found.stdout.strip()) if found.returncode == 0 else None


class Parsed(BaseException):
    "The command line was understood. (Nothing that catches errors catches it.)"


def parses(command: str) -> bool:
    "Whether today's programs understand a command with all of its options. Nothing of it is done."
    words = shlex.split(command)
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):  # variables of the environment
        words.pop(0)
    if words[:1] == ["annotated-transformer"] and len(words) > 1:
        if words[1] not in cli.COMMANDS:
            return False
        function = getattr(importlib.import_module(f"annotated_transformer.{cli.COMMANDS[words[1]]}"), words[1])
        try:
            options.call(functools.wraps(function)(lambda *args, **kwargs: None), words[2:], words[1])
            return True
        except InputError:
            return False
    if words[:2] == ["python", "-m"] and words[2].startswith("annotated_transformer."):
        return parses_program(words[2], words[3:])
    return words[:1] == ["python"] and (ROOT / words[1]).is_file()


def parses_program(module: str, argv: list[str]) -> bool:
    "The same of `python -m MODULE`."
    def only_understand(reader):
        def read(f, *args, **kwargs):
            reader(f if inspect.isclass(f) else functools.wraps(f)(lambda *args, **kwargs: None), *args, **kwargs)
            raise Parsed
        return read

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "call", only_understand(records.call))
        try:
            importlib.import_module(module).main(argv)
        except Parsed:
            return True
        except (ImportError, AttributeError):
            return False
        except SystemExit as end:
            return end.code in (0, None)
    raise AssertionError(f"{module}: its options were not read, so that it may have been run")


def faults(record: dict) -> list[str]:
    "What cannot be true of a record, or lacks."
    if missing := ENTRIES - set(record):
        return [f"no {', '.join(sorted(missing))}"]
    out = []
    if record["digest"] != record_digest(record):
        out.append("its digest is another: it was changed after it was written")
    if record["status"] not in STATUS or (record["status"] == "abandoned" and not record.get("reason")):
        out.append(f"status {record['status']!r}, reason {record.get('reason')!r}")
    if not record["sittings"]:
        return [*out, "no sitting"]
    out += sitting_faults(record) + commit_faults(record)
    if not parses(record["command"]):
        out.append(f"today's program does not understand {record['command']!r}")
    return out + option_faults(record)


def option_faults(record: dict) -> list[str]:
    "Numbers in the command of a training that are not those of its configuration."
    if " train " not in record["command"]:
        return []
    used = {**record["config"].get("model", {}), **record["config"].get("training", {})}
    given = re.findall(r"--([a-z-]+)[ =]([\d.e-]+)", record["command"])
    return [f"--{option} {value} in its command, and made with {used[name]}" for option, value in given
            if (name := option.replace("-", "_")) in used and float(value) != used[name]]


def sitting_faults(record: dict) -> list[str]:
    "Dates and seconds that do not fit together."
    out, worked = [], timedelta()
    sittings, tomorrow = record["sittings"], datetime.now(UTC) + timedelta(days=1)
    for number, sitting in enumerate(sittings, 1):
        begin, end = moment(sitting["begin"]), moment(sitting["end"] or sitting["begin"])
        worked += end - begin
        if not begin <= end < tomorrow:
            out.append(f"sitting {number}: from {begin} to {end}")
        if number > 1 and begin < moment(sittings[number - 2]["end"] or sittings[number - 2]["begin"]):
            out.append(f"sitting {number} begins before the one before it ends")
        if not sitting["revision"] or not sitting["threads"] >= 1 or len(sitting["load"]) != 2:
            out.append(f"sitting {number}: revision {sitting['revision']!r}, threads {sitting['threads']}, load {sitting['load']}")
    if not math.isfinite(record["seconds"]) or not 0 <= record["seconds"] <= worked.total_seconds() + 2 * len(sittings):
        out.append(f"{record['seconds']} seconds in sittings of {worked.total_seconds():.0f}")
    if not record["date"] <= sittings[0]["begin"][:10]:
        out.append(f"dated {record['date']}, after its first sitting began")
    if any(evaluation["date"][:10] < record["date"] for evaluation in record["evaluations"]):
        out.append("scored before it began")
    return out


def commit_faults(record: dict) -> list[str]:
    "Revisions that are none, or that were made after the work was."
    out = []
    for number, sitting in enumerate(record["sittings"], 1):
        if not (made := committed(sitting["revision"])):
            out.append(f"sitting {number}: {sitting['revision']!r} is no commit of this repository")
        elif made > moment(sitting["begin"]) + timedelta(seconds=1):
            out.append(f"sitting {number}: began {sitting['begin']}, before its revision was committed ({made})")
    for evaluation in (e for e in record["evaluations"] if "revision" in e):  # those before 2026-11-24 have none
        if not (made := committed(evaluation["revision"])) or made > moment(evaluation["date"]) + timedelta(seconds=1):
            out.append(f"{evaluation['set']}: scored {evaluation['date']}, before its revision was committed ({made})")
    made = committed(record["revision"])
    if not made or made.astimezone(UTC).date().isoformat() > record["date"]:
        out.append(f"dated {record['date']}, before its revision {record['revision']} was committed ({made})")
    if record["revision"] != record["sittings"][0]["revision"]:
        out.append(f"begun at {record['revision']}, and its first sitting at {record['sittings'][0]['revision']}")
    return out


# --- the records of this repository -------------------------------------------------------------------------------------------------


# faults that a chapter tells of (decoding/translation: the run was ended early)
TOLD = {("all_sources_en_de", "--steps 20000 in its command, and made with 14000")}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout: no commits to hold dates against")
def test_records_are_whole_and_possible():
    complaints = []
    for path in RECORDS:
        record = json.loads(path.read_text(encoding="utf-8"))
        found = [] if is_older(record) else faults(record) + ["its name is another"] * (record["name"] != path.stem)
        found = [fault for fault in found if (path.stem, fault) not in TOLD]
        complaints += [f"{path.name}: {fault}" for fault in found]
    assert RECORDS and not complaints, "\n".join(complaints)


def test_programs_that_measure_begin_their_sitting_as_they_start(monkeypatch):
    "A commit that is made while a program measures is not the record's."
    found = []

    def program() -> None:
        "Measure something."
        monkeypatch.setenv("ANNOTATED_REVISION", "later")
        found.append(make_record("example", "benchmark", data={"name": "none"}, config={}, seed=0, seconds=0.0, metrics={}))

    monkeypatch.setenv("ANNOTATED_REVISION", "at first")
    records.this_process.cache_clear()
    try:
        records.run_program(program, "a_module", [])
    finally:
        records.this_process.cache_clear()
    assert found[0]["revision"] == found[0]["sittings"][0]["revision"] == "at first"


def test_older_records_are_counted_and_untouched():
    "Those made before the rule: none is added to them, and none is changed. They go when they are measured again."
    older = {p.stem: file_digest(p) for p in RECORDS if is_older(json.loads(p.read_text(encoding="utf-8")))}
    assert not (new := older.keys() - OLDER.keys()), f"without sittings and digest: {', '.join(sorted(new))}"
    assert not (touched := [name for name, digest in older.items() if OLDER[name] != digest]), f"changed: {', '.join(touched)}"
    assert not (again := OLDER.keys() - older.keys()), f"measured again: take them out of the list: {', '.join(sorted(again))}"
    assert len(OLDER) <= 13, "the list of older records never grows"


def test_the_chapter_on_records_shows_todays():
    cells = json.loads((ROOT / "nbs/tools/records.ipynb").read_text())["cells"]
    shown = next("".join(cell["outputs"][0]["data"]["text/plain"]) for cell in cells if 'list_records("results")' in "".join(cell["source"]))
    counts = Counter((task, state) for _, task, _, state in list_records(ROOT / "nbs/results"))
    there = {(task, state): int(n) for task, state, n in re.findall(r"^ *(\S+) +(\S.*?) +(\d+)$", shown, re.M)}
    assert there == counts, "run: make notebooks NB=tools/records"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout: no history")
def test_no_record_is_replaced_without_a_word():
    "Every version of a record by the rule in the history is here, or its digest stands in the list of those that were replaced or went."
    def git(*args: str, given: str = "") -> bytes:
        return subprocess.run(["git", *args], cwd=ROOT, input=given.encode(), capture_output=True, check=True).stdout

    raw = git("log", "--format=", "--raw", "--no-renames", "--no-abbrev", "--", "nbs/results/*.json").decode().splitlines()
    blobs = sorted({line.split()[3] for line in raw if set(line.split()[3]) != {"0"} and "/replaced/" not in line})
    text, found = git("cat-file", "--batch", given="\n".join(blobs)), {}
    while text:
        head, _, text = text.partition(b"\n")
        size = int(head.split()[2])
        record, text = json.loads(text[:size]), text[size + 1:]
        if not is_older(record):
            found[record["digest"]] = record["name"]
    here = {json.loads(path.read_text(encoding="utf-8")).get("digest") for path in RECORDS}
    listed = [line.split(maxsplit=2) for line in (ROOT / "tests/replaced_records.txt").read_text().splitlines() if not line.startswith("#")]
    gone = {(name, digest) for digest, name in found.items() if digest not in here}
    assert not (silent := gone - {(name, digest) for name, digest, _ in listed}), f"list why in tests/replaced_records.txt: {sorted(silent)}"
    assert all(reason for *_, reason in listed) and not {digest for _, digest, _ in listed} & here
    kept = [json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "nbs/results/replaced").glob("*.json")]
    assert kept and all((r["name"], r["digest"]) in {(name, digest) for name, digest, _ in listed} and not faults(r) for r in kept)


def test_the_list_tells_them_apart(tmp_path, capsys):
    whole = make_record("whole", "benchmark", data={"name": "x"}, config={}, seed=0, seconds=0, metrics={})
    write_record(tmp_path / "whole.json", whole)
    (tmp_path / "old.json").write_text(json.dumps({"name": "old", "task": "benchmark", "date": "2026-01-01", "metrics": {}}))
    (tmp_path / "touched.json").write_text(json.dumps(whole | {"name": "touched"}))
    (tmp_path / "cut.json").write_text("{")
    states = {name: state for name, _, _, state in list_records(tmp_path)}
    assert states["whole"] == "finished" and states["old"] == "older than the rule"
    assert "changed after it was written" in states["touched"] and "not JSON" in states["cut"]
    records.main([str(tmp_path)])
    assert capsys.readouterr().out.count("\n") == 4


# --- what the checks can see --------------------------------------------------------------------------------------------------------


@pytest.fixture
def good(monkeypatch) -> dict:
    "A record that could be in nbs/results, of a commit that was made on 1 January."
    monkeypatch.setitem(globals(), "committed", {"0123abc": moment("2026-01-01T10:00:00+00:00"),
                                                 "4567def": moment("2026-01-02T10:00:00+00:00")}.get)
    sittings = [{"begin": "2026-01-01T11:00:00+00:00", "end": "2026-01-01T12:00:00+00:00", "revision": "0123abc", "threads": 2,
                 "load": [0.1, 2.0]},
                {"begin": "2026-01-02T11:00:00+00:00", "end": "2026-01-02T11:30:00+00:00", "revision": "4567def", "threads": 2,
                 "load": [0.1, 2.0]}]
    record = make_record("good", "translation", data={"name": "multi30k"}, config={}, seed=0, seconds=5000, metrics={"sacrebleu/test": 36.186},
                         sittings=sittings, evaluations=[{"set": "test", "date": "2026-01-03T00:00:00+00:00"}], weights="0" * 64,
                         begun={"command": "annotated-transformer train runs/x --data data/x --config small --steps 3500",
                                "revision": "0123abc", "date": "2026-01-01"})
    assert faults(record) == []
    return record


def with_sitting(record: dict, number: int, **changed) -> dict:
    return record | {"sittings": [s | changed if i == number else s for i, s in enumerate(record["sittings"])]}


def test_every_altered_digit_shows(good, tmp_path):
    "One digit of the file at a time, all of them: each is noticed by the digest alone."
    text = json.dumps(good, indent=1)
    for at in [m.start() for m in re.finditer(r"\d", text)]:
        altered = json.loads(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])
        assert altered == good or "its digest is another: it was changed after it was written" in faults_of_digest(altered)
    (tmp_path / "good.json").write_text(text.replace("36.186", "36.187"))
    with pytest.raises(InputError, match="good.json: changed after it was written"):
        read_record(tmp_path / "good.json")
    with pytest.raises(InputError, match="good.json: changed after it was written"):
        write_record(tmp_path / "good.json", good)


def faults_of_digest(record: dict) -> list[str]:
    return [] if record["digest"] == record_digest(record) else ["its digest is another: it was changed after it was written"]


@pytest.mark.parametrize("change, said", [
    (lambda r: r | {"date": "2025-12-31"}, "before its revision"),
    (lambda r: r | {"seconds": 9000.0}, "9000.0 seconds in sittings of 5400"),
    (lambda r: r | {"seconds": float("nan")}, "nan seconds"),
    (lambda r: r | {"status": "abandoned"}, "reason None"),
    (lambda r: r | {"status": "good"}, "status 'good'"),
    (lambda r: r | {"sittings": []}, "no sitting"),
    (lambda r: {k: v for k, v in r.items() if k != "evaluations"}, "no evaluations"),
    (lambda r: r | {"command": "annotated-transformer train runs/x --data data/x --stepz 3500"}, "does not understand"),
    (lambda r: r | {"command": "python -m annotated_transformer.no_such_program"}, "does not understand"),
    (lambda r: r | {"command": "from Python"}, "does not understand"),
    (lambda r: r | {"config": {"training": {"steps": 1}}, "command": "annotated-transformer train runs/x --data data/x --steps 3500"}, "made with 1"),
    (lambda r: r | {"revision": "4567def"}, "its first sitting at 0123abc"),
    (lambda r: r | {"revision": "0123abc-dirty"}, "begun at 0123abc-dirty"),
    (lambda r: with_sitting(r, 0, begin="2026-01-01T09:00:00+00:00"), "before its revision was committed"),
    (lambda r: with_sitting(r, 1, begin="2026-01-02T09:00:00+00:00"), "before its revision was committed"),
    (lambda r: with_sitting(r, 1, revision="0000000"), "no commit"),
    (lambda r: with_sitting(r, 0, end="2026-01-01T10:30:00+00:00"), "sitting 1: from"),
    (lambda r: with_sitting(r, 0, end="2026-01-02T11:15:00+00:00"), "sitting 2 begins before"),
    (lambda r: with_sitting(r, 0, end=None), "seconds in sittings of 1800"),
    (lambda r: r | {"evaluations": [{"set": "test", "date": "2025-12-30T00:00:00+00:00"}]}, "scored before"),
    (lambda r: r | {"evaluations": [{"set": "test", "date": "2026-01-02T00:00:00+00:00", "revision": "4567def"}]}, "before its revision"),
])
def test_each_fault_is_found(good, change, said):
    "A digest can be computed anew; what then cannot be true is found all the same."
    assert said in "; ".join(faults(sealed(change(good))))


@pytest.mark.parametrize("command, expected", [
    ("annotated-transformer train runs/x --data data/x --config small --d-model 192 --minutes 75", True),
    ("OMP_NUM_THREADS=1 annotated-transformer sweep A1 --scale small --data data/multi30k --seeds 0", True),
    ("annotated-transformer evaluate runs/x --split test --record x.json", True),
    ("annotated-transformer evaluate runs/x --splitt test", False),
    ("annotated-transformer improve runs/x", False),
    ("python -m annotated_transformer.experiments.search_settings runs/x --sentences 5", True),
    ("python -m annotated_transformer.experiments.search_settings runs/x --sentence-count 5", False),
    ("python tests/large_corpus.py DATA OUT", True),
    ("python tests/no_such_file.py DATA OUT", False),
])
def test_commands_are_parsed(command, expected):
    assert parses(command) is expected


# --- what a record says of the machine ---------------------------------------------------------------------------------------------

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
        assert said.startswith(named[1])


def test_graphics_cards_are_counted_and_named(monkeypatch):
    monkeypatch.setattr(records, "training_device", lambda: torch.device("cuda", 3))
    monkeypatch.setattr(records, "processes", lambda: 8)
    monkeypatch.setattr(torch.cuda, "get_device_name", {torch.device("cuda", 3): "NVIDIA P100"}.get)
    assert records.hardware() == "8 x NVIDIA P100"


def test_a_system_that_does_not_tell_its_processor(monkeypatch):
    monkeypatch.setattr(records, "training_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(records, "Path", lambda _: Path("/nothing/there"))
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert records.hardware().startswith("riscv64 (")


# --- what a run writes --------------------------------------------------------------------------------------------------------------

SHAPE = dict(vocab_size=300, n_layers=1, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8)
TRAINING = TrainingConfig(steps=12, warmup_steps=20, batch_tokens=300, save_every=2, report_every=1, keep=5, precision="float32")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records") / "data"
    corpus = grammar_corpus(folder, train=200, dev=20, test=5, test_long=5)
    encode_corpus(corpus, BytePairVocabulary.learn((line for pair in corpus.pairs("train") for line in pair), 300))
    return folder


def begin(folder: Path, data: Path) -> Run:
    return start_run(folder, data, replace(TINY, **SHAPE), TRAINING)


def test_a_run_continued_at_another_revision_says_so(data, tmp_path, monkeypatch):
    monkeypatch.setenv("ANNOTATED_REVISION", "0123abc")
    run = begin(tmp_path / "run", data)
    assert not train(run, minutes=1e-9) and run.record.read()["status"] == "stopped"
    monkeypatch.setenv("ANNOTATED_REVISION", "4567def")
    assert train(Run.open(run.folder))
    record = run.record.read()
    assert record["status"] == "finished" and record["revision"] == "0123abc"
    assert [s["revision"] for s in record["sittings"]] == ["0123abc", "4567def"]
    assert record["sittings"][0]["to_step"] == record["sittings"][1]["from_step"] and record["sittings"][1]["to_step"] == TRAINING.steps
    assert record_digest(record) == record["digest"] and sitting_faults(record) == []
    assert record["weights"] == hashlib.sha256((run.folder / "averaged.safetensors").read_bytes()).hexdigest()


def test_a_run_that_is_killed_leaves_its_sitting(data, tmp_path):
    "SIGKILL right after a checkpoint was saved: the sitting ends there."
    run = begin(tmp_path / "run", data)
    program = ("import os, signal, sys\nfrom annotated_transformer.training.runs import Run\nfrom annotated_transformer.training.loop import train\n"
               "save = Run.save_checkpoint\n"
               "def save_and_die(self, step, *rest):\n    save(self, step, *rest)\n    step == 4 and os.kill(os.getpid(), signal.SIGKILL)\n"
               "Run.save_checkpoint = save_and_die\ntrain(Run.open(sys.argv[1]))\n")
    killed = subprocess.run([sys.executable, "-c", program, str(run.folder)], capture_output=True)
    assert killed.returncode == -9, killed.stderr
    [sitting] = run.record.provenance()["sittings"]
    assert sitting["to_step"] == 4 and sitting["begin"] <= sitting["end"]
    assert train(run)
    assert [(s["from_step"], s["to_step"]) for s in run.record.read()["sittings"]] == [(0, 4), (4, 12)]


def test_what_is_loaded_is_what_was_measured(data, tmp_path):
    "The perplexity in the record is that of the weights that `load` uses, and no other number of checkpoints does better."
    from annotated_transformer.decoding.translation import evaluate, load
    from annotated_transformer.corpus.corpora import Corpus

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


def test_each_look_at_a_test_set_is_kept(data, tmp_path, monkeypatch):
    "Before the training is finished too, and with the date."
    run = begin(tmp_path / "run", data)
    assert not train(run, minutes=1e-9)
    for beam in ("1", "2"):
        cli.main(["evaluate", str(run.folder), "--split", "test", "--beam-size", beam, "--json"])
    assert train(run)
    found = run.record.read()["evaluations"]
    assert [(e["set"], e["search"]["beam_size"], e["steps"]) for e in found] == [("test", 1, 1), ("test", 2, 1)]
    assert all(moment(e["date"]) <= datetime.now(UTC) and "sacrebleu" in e["metrics"] for e in found)


def test_an_abandoned_run_says_why(data, tmp_path, capsys):
    run = begin(tmp_path / "run", data)
    assert not train(run, minutes=1e-9)
    cli.main(["train", str(run.folder), "--abandon", "the seed was wrong"])
    record = run.record.read()
    assert record["status"] == "abandoned" and record["reason"] == "the seed was wrong" and record["metrics"]["steps"] == 1
    with pytest.raises(InputError, match="abandoned .the seed was wrong."):
        train(run)
    finished = begin(tmp_path / "finished", data)
    assert train(finished)
    with pytest.raises(InputError, match="finished already"):
        finished.abandon("after all")


def test_an_abandoned_run_keeps_what_it_was_trained_on(data, tmp_path):
    "Whoever gives a run up, maybe elsewhere and later, has not trained it; what it had reached and was scored with stays."
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
    assert (record["hardware"], record["versions"], record["processes"]) == ("another machine", {"torch": "2.0"}, 3)
    assert record["metrics"]["steps"] == last["step"] and record["metrics"]["loss"] == last["loss"] and not run.finished()
    assert [(e["set"], e["metrics"], e["search"]) for e in record["evaluations"]] == [("test", {"sacrebleu": 1.5}, {"beam_size": 4})]


def test_a_line_cut_short_takes_no_other_with_it(tmp_path):
    path = tmp_path / "lines.jsonl"
    records.add_line(path, {"a": 1})
    with open(path, "a") as file:
        file.write('{"a": 2')  # killed while writing
    for number in (3, 4):
        records.add_line(path, {"a": number})
    assert records.read_lines(path) == [{"a": 1}, {"a": 3}, {"a": 4}]
