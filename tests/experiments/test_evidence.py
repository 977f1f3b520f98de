"""The records of this repository: whole, possible, and where they belong. (No test asks git: a clone of depth 1 is
enough.)"""
import json
import math
import re
from datetime import UTC, date, datetime, timedelta

import pytest

from annotated_transformer.tools.files import file_digest
from annotated_transformer.tools.records import (
    comparison_of,
    is_older,
    make_record,
    read_records,
    record_digest,
    sealed,
)
from here import ROOT

RECORDS = ROOT / "nbs" / "results"
STATUS = {"finished", "stopped", "abandoned"}
ENTRIES = {"name", "status", "task", "row", "command", "revision", "date", "sittings", "data", "config", "seed",
           "hardware", "versions",
           "seconds", "metrics", "evaluations", "weights", "digest"}
TOLD = {("all_sources_en_de",
         # decoding/translation tells of it: the run was ended early
         "--steps 20000 in its command, and made with 14000")}


@pytest.fixture(scope="module")
def whole() -> dict[str, dict]:
    return read_records(RECORDS)


# --- what is looked at in a record ------------------------------------------------------------------------------------

def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def faults(record: dict) -> list[str]:
    "What cannot be true of a record, or lacks."
    if missing := ENTRIES - set(record):
        return [f"no {', '.join(sorted(missing))}"]
    out = []
    if record["digest"] != record_digest(record):
        out.append("its digest is another: it was changed after it was written")
    if record["status"] not in STATUS or (record["status"] == "abandoned" and not record.get("reason")):
        out.append(f"status {record['status']!r}, reason {record.get('reason')!r}")
    if record["command"] in ("", "from Python"):
        out.append(f"its command is {record['command']!r}, which nobody can give again")
    if not re.fullmatch(r"[0-9a-f]{7,40}", record["revision"]):
        out.append(f"revision {record['revision']!r} is no clean commit")
    if not record["sittings"]:
        return [*out, "no sitting"]
    if record["revision"] != record["sittings"][0]["revision"]:
        out.append(f"begun at {record['revision']}, and its first sitting at {record['sittings'][0]['revision']}")
    return out + sitting_faults(record) + option_faults(record)


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
            out.append(
                f"sitting {number}: revision {sitting['revision']!r}, threads {sitting['threads']}, load "
                f"{sitting['load']}")
    if not math.isfinite(record["seconds"]) or not 0 <= record["seconds"] <= worked.total_seconds() + 2 * len(sittings):
        out.append(f"{record['seconds']} seconds in sittings of {worked.total_seconds():.0f}")
    if not record["date"] <= sittings[0]["begin"][:10]:
        out.append(f"dated {record['date']}, after its first sitting began")
    if any(evaluation["date"][:10] < record["date"] for evaluation in record["evaluations"]):
        out.append("scored before it began")
    return out


# --- the records of this repository -----------------------------------------------------------------------------------

def test_records_are_whole_and_possible(whole):
    found = [(name, fault) for name, r in whole.items() if not is_older(r) for fault in faults(r)]
    assert not (complaints := [f"{name}: {fault}" for name, fault in found
                               if (name, fault) not in TOLD]), "\n".join(complaints)


def test_records_say_where_they_come_from(whole):
    for name, r in whole.items():
        assert r["data"].get("name") or r["data"].get("run") or r["data"].get(
            "folder"), f"{name}: its data have no name"
        assert r["hardware"] and r["versions"].get("torch") and date.fromisoformat(r["date"]), name


def test_each_stands_in_its_comparisons_file():
    for path in RECORDS.glob("*.jsonl"):
        names = [json.loads(line)["name"] for line in path.read_text(encoding="utf-8").splitlines()]
        assert {comparison_of(name) for name in names} == {path.stem} and names == sorted(names), path.name
    assert not [path for path in RECORDS.glob("*.json") if path.name != "summary.json"]


def test_sentences_are_those_that_records_name(whole):
    files = {path.name.removesuffix(".sentences.tsv"): path for path in (RECORDS / "sentences").iterdir()}
    assert files and {name: file_digest(path) for name, path in files.items()} == {
        name: r["sentences"] for name, r in whole.items() if isinstance(r.get("sentences"), str)}


def test_what_was_replaced_is_kept(whole):
    kept = read_records(RECORDS / "replaced")
    assert kept and all(not faults(r) and r["digest"] != whole[name]["digest"] for name, r in kept.items())


# --- what the checks can see ------------------------------------------------------------------------------------------

@pytest.fixture
def good() -> dict:
    "A record that could be in nbs/results."
    sittings = [{"begin": "2026-01-01T11:00:00+00:00", "end": "2026-01-01T12:00:00+00:00", "revision": "0123abc",
                 "threads": 2,
                 "load": [0.1, 2.0]},
                {"begin": "2026-01-02T11:00:00+00:00", "end": "2026-01-02T11:30:00+00:00", "revision": "4567def",
                 "threads": 2,
                 "load": [0.1, 2.0]}]
    record = make_record("good", "translation", data={"name": "multi30k"}, config={}, seed=0, seconds=5000,
                         metrics={"sacrebleu/test": 36.186},
                         sittings=sittings, evaluations=[{"set": "test", "date": "2026-01-03T00:00:00+00:00"}],
                         weights="0" * 64,
                         begun={
                             "command": "annotated-transformer train runs/x --data data/x --config small --steps 3500",
                                "revision": "0123abc", "date": "2026-01-01"})
    assert faults(record) == []
    return record


def with_sitting(record: dict, number: int, **changed) -> dict:
    return record | {"sittings": [s | changed if i == number else s for i, s in enumerate(record["sittings"])]}


@pytest.mark.parametrize("change, said", [
    (lambda r: r | {"date": "2026-01-02"}, "after its first sitting began"),
    (lambda r: r | {"command": "from Python"}, "nobody can give again"),
    (lambda r: r | {"seconds": 9000.0}, "9000.0 seconds in sittings of 5400"),
    (lambda r: r | {"seconds": float("nan")}, "nan seconds"),
    (lambda r: r | {"status": "abandoned"}, "reason None"),
    (lambda r: r | {"status": "good"}, "status 'good'"),
    (lambda r: r | {"sittings": []}, "no sitting"),
    (lambda r: {k: v for k, v in r.items() if k != "evaluations"}, "no evaluations"),
    (lambda r: r | {"config": {"training": {"steps": 1}},
                    "command": "annotated-transformer train runs/x --data data/x --steps 3500"}, "made with 1"),
    (lambda r: r | {"revision": "4567def"}, "its first sitting at 0123abc"),
    (lambda r: r | {"revision": "0123abc-dirty"}, "no clean commit"),
    (lambda r: with_sitting(r, 0, end="2026-01-01T10:30:00+00:00"), "sitting 1: from"),
    (lambda r: with_sitting(r, 0, end="2026-01-02T11:15:00+00:00"), "sitting 2 begins before"),
    (lambda r: with_sitting(r, 0, end=None), "seconds in sittings of 1800"),
    (lambda r: r | {"evaluations": [{"set": "test", "date": "2025-12-30T00:00:00+00:00"}]}, "scored before"),
])
def test_each_fault_is_found(good, change, said):
    "A digest can be computed anew; what then cannot be true is found all the same."
    assert said in "; ".join(faults(sealed(change(good))))
