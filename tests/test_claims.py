"""The claims: rules that are whole and older than what they judge, verdicts that follow from the raw records, statistics compared with others."""
import fnmatch
import functools
import hashlib
import importlib
import inspect
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import textwrap
import tomllib
from collections import Counter
from pathlib import Path
from statistics import mean, stdev
from types import CodeType, FunctionType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU

from annotated_transformer.commands import cli
from annotated_transformer.tools import options
from annotated_transformer.paper import tables as paper
from annotated_transformer.experiments import claims as module
from annotated_transformer.experiments import results
from annotated_transformer.experiments import verdicts
from annotated_transformer.experiments.judges import COMPUTE, JUDGES, Found, judge_all
from annotated_transformer.experiments.variations import ROWS
from annotated_transformer.experiments.verdicts import FAILS, HOLDS, OPEN, UNCLEAR, read_claims
from annotated_transformer.tools.files import InputError, file_digest
from annotated_transformer.tools.records import finished, is_older, read_records

ROOT = Path(__file__).resolve().parent.parent
NBS, RECORDS, RULES = ROOT / "nbs", ROOT / "nbs" / "results", "annotated_transformer/experiments/claims.toml"
PAPER = Path(os.environ.get("ANNOTATED_SHARED", ROOT.parent / "shared")) / "paper" / "paper_latex.txt"
CLAIMS = {claim["name"]: claim for claim in read_claims()["claim"]}


@pytest.fixture(scope="module")
def records() -> dict[str, dict]:
    return finished(read_records(RECORDS))


@pytest.fixture(scope="module")
def found(records) -> dict[str, list[Found]]:
    return judge_all(list(CLAIMS.values()), records, RECORDS)


# --- the file of claims ----------------------------------------------------------------------------------------------------------------

ARGUMENTS = {"better": {"pairs", "measures", "family"}, "same": {"pairs", "measures", "family", "within"}, "value": {"records", "value"},
             "margin": {"better", "worse"}, "faster": {"records", "layer", "than", "where"}, "heads": {"records", "measures", "margin"},
             "tasks": {"records", "measures", "at_least", "margin"}, "chosen": {"records", "fixed"}}


def test_every_claim_is_whole():
    assert len(CLAIMS) == len(read_claims()["claim"]) and set(ARGUMENTS) == set(JUDGES) | {"better", "same"}
    for name, claim in CLAIMS.items():
        assert {"section", "says", "paper", "chapter", "judge", "false"} <= set(claim), name
        assert ARGUMENTS[claim["judge"]] <= set(claim) and claim["false"] and claim["says"].rstrip(" .") != "", name
        assert {row for pair in claim.get("pairs", []) for row in pair} <= set(ROWS), name
        if claim["judge"] == "margin":
            assert ("least" in claim) != ("within" in claim), name
        if claim["judge"] == "value":
            assert "at_least" in claim or "at_most" in claim, name
        assert "{" not in claim["paper"], name  # its cells were looked up


def test_every_section_has_claims():
    items = [*CLAIMS.values(), *read_claims()["built"]]
    said = {number for item in items for number in re.findall(r"\d(?:\.\d)*|appendix|abstract", item["section"])}
    numbers = {number for number, _, _ in paper.SECTIONS}
    parents = {number for number in numbers if any(other.startswith(f"{number}.") for other in numbers)}
    assert numbers - parents - said == set()
    for item in items:
        first = item["section"].split(",")[0].split(" ")[0]
        assert first in numbers | {"Table", "Figure"}, item["section"]


def commands() -> list[str]:
    "Every command of the claims and of the tables of results, one program each."
    found = judge_all(list(CLAIMS.values()), {}, RECORDS)
    tables = [*results.all_tables({}).values(), module.claims_table(list(CLAIMS.values()), found, {})]
    return sorted({part for table in tables for command in table.commands for part in command.split(" && ")})


@pytest.mark.parametrize("command", commands())
def test_commands_can_be_given(command, capsys):
    "Today's programs understand each with all of its options; nothing of it is done."
    words = shlex.split(command)
    if words[0] == "torchrun":
        words = ["annotated-transformer", *words[words.index("annotated_transformer.commands.cli") + 1:]]
    if words[0] == "annotated-transformer":
        function = getattr(importlib.import_module(f"annotated_transformer.{cli.COMMANDS[words[1]]}"), words[1])
        options.call(functools.wraps(function)(lambda *args, **kwargs: None), words[2:], words[1])
    elif words[:2] == ["python", "-m"]:
        with pytest.raises(SystemExit) as end:
            importlib.import_module(words[2]).main(["--help"])
        said = capsys.readouterr().out
        assert end.value.code in (0, None) and all(word in said for word in words[3:] if word.startswith("--"))
    else:
        assert words[0] == "python" and (ROOT / words[1]).is_file()


def test_a_wrong_option_is_noticed():
    with pytest.raises(InputError):
        test_commands_can_be_given("annotated-transformer train runs/x --data y --no-such-option 3", None)


def test_what_is_built_is_as_printed():
    assert {line[4] for line in module.built_table().lines} == {"as printed"}
    for item in read_claims()["built"]:
        assert ("ours" in item) != ("proof" in item), item["says"]
        cells = json.loads((NBS / f"{item['chapter']}.ipynb").read_text())["cells"]
        code = [line for cell in cells if cell["cell_type"] == "code" for line in "".join(cell["source"]).splitlines()]
        for proof in item.get("proof", []):  # an assertion of the chapter, by its beginning
            assert "assert" in proof and any(line.strip().removeprefix("torch.testing.").startswith(proof.removeprefix("torch.testing.")) for line in code), proof


def test_verdicts_and_what_stands_behind_them(found, records):
    for name, several in found.items():
        assert [f.measure for f in several] == CLAIMS[name].get("measures", [""]) or CLAIMS[name]["judge"] not in ("better", "same")
        for f in several:
            assert f.verdict in (HOLDS, FAILS, UNCLEAR, OPEN, COMPUTE) and set(f.records) <= set(records), name
            assert bool(f.ours) == bool(f.records) == (f.verdict not in (OPEN, COMPUTE)), name
            assert (NBS / f"{CLAIMS[name]['chapter']}.ipynb").exists() or f.verdict == OPEN, f"{name}: there is no chapter {CLAIMS[name]['chapter']}"


@pytest.mark.skipif(not PAPER.exists(), reason="no copy of the paper here")
@pytest.mark.parametrize("name", ["results.ipynb", "experiments/results.ipynb", "claims.ipynb", "experiments/judges.ipynb", "experiments/verdicts.ipynb", "paper/tables.ipynb", RULES])
def test_no_words_are_the_papers(name):
    words = lambda text: re.findall(r"[a-z0-9]+", text.lower())  # noqa: E731
    theirs, n = words(PAPER.read_text()), 7
    runs = {tuple(theirs[i:i + n]) for i in range(len(theirs))}
    texts = ["".join(cell["source"]) for cell in json.loads((NBS / name).read_text())["cells"]] if name.endswith("ipynb") else [(ROOT / name).read_text()]
    copied = [" ".join(some[i:i + n]) for some in map(words, texts) for i in range(len(some) - n + 1) if tuple(some[i:i + n]) in runs]
    assert [run for run in copied if run != "ff h d k d v p"] == []  # the names of Table 3's columns


# --- rules before runs -----------------------------------------------------------------------------------------------------------------

def rule(claim: dict, restatements: bool) -> dict:
    "What decides: a claim without its words, but with what it says and what would make it false where the file counts those."
    left_out = ("paper", "chapter", "command", "section", "note", "clock", *(() if restatements else ("says", "false")))
    return {key: value for key, value in claim.items() if key not in left_out}


def changed(before: dict, now: dict) -> list[str]:
    """The claims whose rule is another than before or that are gone, and the judges whose code is another, without a change that was listed since.

    A change once listed excuses no later one. A judge that was not pinned before has not changed.
    """
    count = lambda file: Counter(change["claim"] for change in file.get("change", []))  # noqa: E731
    restatements = before.get("restatements_are_rules", False)
    old, new = ({claim["name"]: rule(claim, restatements) for claim in file["claim"]} for file in (before, now))
    listed = count(now) - count(before)
    claims = [*(name for name in new if old.get(name) != new[name]), *(name for name in old if name not in new)]
    judges = [f"judge {name}" for name, digest in before.get("judges", {}).items() if now.get("judges", {}).get(name) != digest]
    return [name for name in claims + judges if name not in listed]


def parts_of(function: FunctionType) -> set[FunctionType]:
    "A judge and all that it calls in the two modules that judge."
    found, left = set(), [inspect.unwrap(function)]
    while left:
        found.add(function := left.pop())
        codes, names = [function.__code__], set()
        while codes:
            code = codes.pop()
            names |= {*code.co_names}
            codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        called = {inspect.unwrap(function.__globals__[name]) for name in names if callable(function.__globals__.get(name))}
        left += [f for f in called - found if isinstance(f, FunctionType) and (f is is_older or f.__module__ in (module.__name__, verdicts.__name__))]
    return found


def spaced(source: str) -> str:
    "Source without the spaces within its lines; those before them are Python's blocks."
    return re.sub(r"(?<=\S)[ \t]+", "", textwrap.dedent(source)).strip()


def judge_digest(function: FunctionType) -> str:
    "The digest of the source of `parts_of` a judge, whatever the spaces within its lines; a line moved in or out of a loop is another judge."
    sources = sorted(spaced(inspect.getsource(part)) for part in parts_of(function))
    return hashlib.sha256("\n".join(sources).encode()).hexdigest()[:16]


def test_the_judges_are_those_that_are_pinned():
    "Whoever changes a judge changes its digest in the file of claims too, and lists the change there as that of `judge NAME`."
    judges = JUDGES | {"all": module.judge_all, "rows": module.judge_rows}
    assert {name: judge_digest(judge) for name, judge in judges.items()} == read_claims()["judges"]
    assert {f.__name__ for f in parts_of(JUDGES["chosen"])} >= {"best_of", "clearly_better", "adjusted", "matching", "combined"}
    assert {f.__name__ for f in parts_of(JUDGES["heads"])} >= {"doing_heads", "above", "span_of"}
    assert {f.__name__ for f in parts_of(verdicts.compare_all)} >= {"compare_rows", "rows_for", "t_areas", "seed_noise", "decide", "quality"}


def test_a_line_moved_out_of_a_loop_is_another_judge():
    source = "    for x in xs:\n        found += x\n        last = x\n"
    assert spaced(source) == spaced(source.replace(" = ", "  =  ")) != spaced(source.replace("        last", "    last"))


def test_a_listed_change_says_what_when_and_why():
    changes = read_claims()["change"]
    assert [c for c in changes if not all(c[part].strip() for part in ("claim", "was", "now", "why"))] == []
    assert [c for c in changes if "date" not in c] == []


def pinned_as(claim: dict) -> str:
    "The name in `judges` of a claim's judge; both judges of pairs of rows are one."
    return "rows" if "pairs" in claim else claim["judge"]


def rules_at(revision: str) -> dict:
    "The file of claims at a commit; empty where it was not there yet."
    shown = subprocess.run(["git", "show", f"{revision}:{RULES}"], cwd=ROOT, capture_output=True)
    return tomllib.loads(shown.stdout.decode()) if shown.returncode == 0 else {"claim": []}


def test_a_changed_rule_is_noticed():
    now = tomllib.loads((ROOT / RULES).read_text())
    first, *rest = now["claim"]
    other = now | {"claim": [first | {"at_least": 0}, *rest]}
    assert changed(now, now) == []
    assert changed(other, now) == [first["name"]] == changed(now | {"claim": rest}, now)
    assert changed(other, now | {"change": [*now["change"], {"claim": first["name"]}]}) == []
    assert changed(now, now | {"claim": rest}) == [first["name"]]
    reworded = now | {"claim": [first | {"says": "In other words."}, *rest]}
    assert changed(reworded, now) == [first["name"]] and changed(reworded | {"restatements_are_rules": False}, now) == []
    other = now | {"judges": now["judges"] | {"margin": "0" * 16}}
    assert changed(now, other) == ["judge margin"]
    assert changed(now, other | {"change": [*now["change"], {"claim": "judge margin"}]}) == []
    again = next(c["claim"] for c in now["change"] if c["claim"] in CLAIMS)  # listed before: that excuses no second change
    moved = [claim | {"at_most": -1} if claim["name"] == again else claim for claim in now["claim"]]
    assert changed(now, now | {"claim": moved}) == [again]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_rules_are_older_than_the_runs_that_they_judge(found, records):
    "At the revision of each record by the rule, the claims that it decides had the rule that they have now, or the change is listed."
    now, complaints = tomllib.loads((ROOT / RULES).read_text()), []
    for revision in {records[name]["revision"] for several in found.values() for f in several for name in f.records if not is_older(records[name])}:
        late = set(changed(rules_at(revision), now))
        late |= {name for name, claim in CLAIMS.items() if f"judge {pinned_as(claim)}" in late}
        complaints += [f"{name}: its rule is younger than {record}" for name in late & set(found) for f in found[name] for record in f.records
                       if records[record]["revision"] == revision]
    assert not complaints, "\n".join(complaints)


def asked(claim: dict) -> list[str]:
    "Patterns of the names of the records that a claim is decided by."
    if "pairs" in claim:
        return [f"*_small_{row}_seed*" for pair in claim["pairs"] for row in pair]  # row_; in older commits also variation_
    if claim["judge"] == "margin":
        return [claim["better"]["record"], claim["worse"]["record"]]
    return claim.get("records") or ["complexity_*" if claim["judge"] == "faster" else "heads_*"]  # as long as they named none


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_each_change_of_a_rule_with_data_is_listed():
    "From commit to commit, the file as it lies here last: where the old rule's records were there, the same commit lists the change."
    def git(*args: str) -> list[str]:
        return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()

    revisions, complaints = git("log", "--reverse", "--format=%H", "--", RULES), []
    files = [rules_at(revision) for revision in revisions] + [tomllib.loads((ROOT / RULES).read_text())]
    for revision, before, after in zip([*revisions[1:], "HEAD"], files, files[1:]):
        old, there = {claim["name"]: claim for claim in before["claim"]}, [Path(path).stem for path in git("ls-tree", "--name-only", revision, "nbs/results/")]
        changes = set(changed(before, after))
        changes |= {name for name, claim in old.items() if f"judge {pinned_as(claim)}" in changes}
        complaints += [f"{revision[:12]}: {name}" for name in sorted(changes)
                       if name in old and all(fnmatch.filter(there, pattern) for pattern in asked(old[name]))]
    assert revisions and not complaints, "\n".join(complaints)


def test_a_claim_whose_records_are_there_is_judged(found, records):
    "Open means that a record is missing: a number that a judge cannot find in records that are there would look the same."
    by_rule, older = module.generations(records)
    for name, claim in CLAIMS.items():
        if "pairs" not in claim:
            ages = (by_rule, older) if claim["judge"] == "margin" else (by_rule, older, records)
            whole = any(all(fnmatch.filter(age, pattern) for pattern in asked(claim)) for age in ages)
            assert whole == (found[name][0].verdict not in (OPEN, COMPUTE)), name


# --- verdicts recomputed from the raw files -------------------------------------------------------------------------------------------------

def raw(name: str) -> dict:
    return json.loads((RECORDS / f"{name}.json").read_text())


def test_margins_from_the_raw_records(found, records):
    "Pairs of rows by hand, over the seeds that both have in one precision."
    for name, worse, better in (("one_head_worse", "A1", "base"), ("dropout_helps", "D1", "base"), ("learned_positions", "E", "base")):
        for f in found[name]:
            values = {}
            for row in (worse, better):
                runs = [raw(path.stem) for path in RECORDS.glob(f"row_small_{row}_seed*.json")]
                runs = {run["seed"]: run["metrics"] for run in runs if run["config"]["training"]["precision"] == "bfloat16"}
                values[row] = {seed: -100 * math.log(m["perplexity"]) if f.measure == "perplexity" else m["sacrebleu/dev"] for seed, m in runs.items()}
            shared = set(values[worse]) & set(values[better])
            margin = mean(values[better][seed] - values[worse][seed] for seed in shared)
            assert len(shared) > 1 and f"{better} over {worse} {margin:+.2f} " in f.ours
            assert set(f.records) == {f"row_small_{row}_seed{seed}" for row in (worse, better) for seed in shared}


def test_single_numbers_from_the_raw_records(found):
    rounds = {u["system"]: u["all"] for u in raw("row_small_step_time")["metrics"]["updates"]}
    for row in ("AOP1", "AOP2"):
        assert f"{math.exp(mean(math.log(b / a) for b, a in zip(rounds['base'], rounds[row]))):.2f} of the time of {row} (" in found["slower_steps"][0].ours
    for record, claim, other in (("rival_speed_cpu_bfloat16", "convolutional", "convolutional"), ("rival_speed_cpu_float32", "convolutional", "convolutional"),
                                 ("rival_speed_cpu_float32", "recurrent", "input-feeding")):
        rounds = {u["system"]: u["all"] for u in raw(record)["metrics"]["updates"] if u["n"] == 16}
        quotient = math.exp(mean(math.log(ours / theirs) for ours, theirs in zip(rounds["transformer"], rounds[other])))
        assert f"{quotient:.2f} of the time of {other} (" in found[f"faster_than_{claim}"][0].ours


STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 19: 2.093}  # as printed in any table: two-sided, 95%


def by_seed(side: dict, records: dict[str, dict]) -> dict[int, float]:
    "The numbers of one side of a claim."
    found = {}
    for name in fnmatch.filter(records, side["record"]):
        r = raw(name)
        x, over, less = (r["metrics"][side[of].removeprefix("metrics.")] if of in side else None for of in ("value", "over", "less"))
        found[r["seed"]] = x / over if over is not None else x - less if less is not None else x
    return found


def test_verdicts_by_margins_from_the_raw_records(found, records):
    "Mean, interval and verdict by hand, for every such claim that has its records."
    by_rule, seen = module.generations(records)[0], set()
    for name, claim in CLAIMS.items():
        if claim["judge"] != "margin" or "enough" in claim or not found[name][0].records or any(is_older(records[r]) for r in found[name][0].records):
            continue
        better, worse = (by_seed(claim[side], by_rule) for side in ("better", "worse"))
        worse = dict.fromkeys(better, mean(worse.values())) if claim.get("fixed") else worse
        margins = [(better[seed] - worse[seed]) * (-1 if claim.get("lower") else 1) for seed in better if seed in worse]
        half = STUDENT[len(margins) - 1] * stdev(margins) / math.sqrt(len(margins)) if len(margins) > 1 else math.inf
        effect = claim["within"] - abs(mean(margins)) if "within" in claim else mean(margins) - claim["least"]
        expected = HOLDS if effect > half else FAILS if effect < -half else UNCLEAR
        assert (found[name][0].verdict, f"{mean(margins):+.3g}" in found[name][0].ours) == (expected, True), name
        seen.add(expected)
    assert seen == {HOLDS, FAILS, UNCLEAR}


def test_one_digit_more_turns_a_verdict(records):
    step = records["row_small_step_time"]
    slow = [u | {"all": [(1.0 if u["system"] == "base" else 1.3) * x for x in next(v["all"] for v in step["metrics"]["updates"] if v["system"] == "base")]}
            for u in step["metrics"]["updates"]]
    altered = records | {"row_small_step_time": step | {"metrics": step["metrics"] | {"updates": slow}}}
    assert judge_all([CLAIMS["slower_steps"]], altered, RECORDS)["slower_steps"][0].verdict == HOLDS


# --- rows that are made up --------------------------------------------------------------------------------------------------------------------

def rows(**values: list[tuple[float, float]]) -> dict[str, dict]:
    "Records of variations: of each row (-100 ln perplexity, BLEU) for each seed, which have nothing to do with each other."
    return {f"row_small_{row}_seed{seed}": {
        "name": f"row_small_{row}_seed{seed}", "task": "variation", "row": row, "seed": seed, "command": "c", "config": {}, "sittings": [],
        "metrics": {"perplexity": math.exp(-quality / 100), "sacrebleu/dev": bleu, "accuracy": 0.5}}
        for row, of in values.items() for seed, (quality, bleu) in enumerate(of)}


def verdict(name: str, known: dict) -> list[str]:
    return [f.verdict for f in judge_all([CLAIMS[name]], known, RECORDS)[name]]


SPREAD = [(-200.0, 30.0), (-199.9, 29.9), (-200.1, 30.1)]  # base with three seeds, 0.1 apart by each measure


def moved(perplexity: float, bleu: float) -> list[tuple[float, float]]:
    "Three seeds of a row that is better than base by so much, with a spread of its own."
    return [(quality + perplexity, b + bleu) for quality, b in ((-200.1, 30.0), (-200.0, 30.1), (-199.9, 29.9))]


def test_a_comparison_names_the_records_of_the_seeds_that_both_rows_have():
    known = rows(base=[*SPREAD, (-150, 40.0), (-150, 40.0)], A1=moved(-2, -2))
    first, _ = judge_all([CLAIMS["one_head_worse"]], known, RECORDS)["one_head_worse"]
    assert first.verdict == HOLDS and set(first.records) == {f"row_small_{row}_seed{seed}" for row in ("base", "A1") for seed in range(3)}


@pytest.mark.parametrize("name, others, expected", [
    ("one_head_worse", {}, [OPEN, OPEN]),
    ("one_head_worse", {"A1": (-2, -2)}, [HOLDS, HOLDS]),
    ("one_head_worse", {"A1": (2, -2)}, [FAILS, HOLDS]),
    ("one_head_worse", {"A1": (-2, 2)}, [HOLDS, FAILS]),
    ("one_head_worse", {"A1": (0.2, -2)}, [UNCLEAR, HOLDS]),
    ("one_head_worse", {"A1": (-0.2, 0.2)}, [UNCLEAR, UNCLEAR]),
    ("narrow_keys", {"B1": (-2, -2)}, [OPEN, OPEN]),
    ("narrow_keys", {"B1": (-2, -2), "B2": (-1.5, 3)}, [HOLDS, FAILS]),
    ("narrow_keys", {"B1": (-2, -2), "B2": (-1.5, 0)}, [HOLDS, UNCLEAR]),
    ("learned_positions", {"E": (-0.3, 3)}, [HOLDS]),  # within 1.8 per cent for sure
    ("learned_positions", {"E": (-9, 0)}, [FAILS])])
def test_each_measure_against_the_spread_between_seeds(name, others, expected):
    assert verdict(name, rows(base=SPREAD, **{row: moved(*by) for row, by in others.items()})) == expected
    alone = rows(base=SPREAD, **{row: moved(*by)[:1] for row, by in others.items()})  # single runs decide nothing
    assert verdict(name, alone) == [OPEN if v == OPEN else UNCLEAR for v in expected]


def test_a_claim_is_open_until_all_rows_that_it_names_are_there():
    assert verdict("one_head_worse", rows(base=SPREAD, A4=moved(-2, -2))) == [OPEN, OPEN]
    assert verdict("first_variant", rows(base=SPREAD, AOP1=moved(0, 0))) == [HOLDS]


def test_over_fitting_is_the_gap():
    known = rows(base=SPREAD, D1=moved(0, 0))
    assert verdict("dropout_against_over_fitting", known) == [OPEN]
    for without, expected in ((1.5, HOLDS), (1.02, FAILS), (1.1, UNCLEAR)):
        for name, r in known.items():
            gap = (without if "_D1_" in name else 1.1) + 0.001 * r["seed"] * (1 if "_D1_" in name else -1)
            r["metrics"]["perplexity/train"] = r["metrics"]["perplexity"] / gap
        assert verdict("dropout_against_over_fitting", known) == [expected]


def test_a_busy_clock_and_an_old_record_are_marked():
    rounds = [{"system": system, "n": 64, "all": [x, 1.01 * x]} for system, x in (("additive", 9.0), ("dot_product", 1.0))]
    record = {"name": "attention_compatibility", "config": {}, "metrics": {"updates": rounds},
              "sittings": [{"threads": 1, "load": [0.5, 0.9]}]}
    for known, sign in ((record, ""), (record | {"sittings": [{"threads": 1, "load": [12.6, 0.4]}]}, "‡"),
                        ({key: value for key, value in record.items() if key != "sittings"}, "†")):
        known = {known["name"]: known}
        table = module.claims_table([CLAIMS["dot_product_faster"]], judge_all([CLAIMS["dot_product_faster"]], known, RECORDS), known)
        assert table.lines[0][5] == HOLDS + sign and HOLDS + sign in table.colours


# --- statistics against others' ------------------------------------------------------------------------------------------------------------

@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.floats(20, 40), min_size=3, max_size=3), min_size=2, max_size=6))
def test_noise_is_the_residual_of_rows_and_seeds(values):
    "Against least squares on an indicator for each row and each seed."
    x = np.array(values)
    r, s = x.shape
    design = np.array([[*(i == k for k in range(r)), *(j == k for k in range(s))] for i in range(r) for j in range(s)], dtype=float)
    rest = x.ravel() - design @ np.linalg.lstsq(design, x.ravel(), rcond=None)[0]
    noise, freedom = verdicts.seed_noise({f"r{i}": dict(enumerate(row)) for i, row in enumerate(values)})
    assert freedom == (r - 1) * (s - 1) and noise == pytest.approx(math.sqrt((rest**2).sum() / freedom), abs=1e-6)


def test_a_sweep_that_is_not_complete_does_not_find_what_is_not_there():
    "Eight equal rows, five with three seeds and three with one; the seeds differ far more than the rest."
    rng, found = np.random.default_rng(0), []
    for _ in range(400):
        seeds = rng.normal(0, 1.0, 3)
        rows = {f"r{i}": {s: {"name": f"r{i}_{s}", "metrics": {"perplexity": 7.0, "accuracy": 0.6, "sacrebleu/dev": 30 + seeds[s] + rng.normal(0, 0.3)}}
                          for s in range(3 if i < 5 else 1)} for i in range(8)}
        found.append(verdicts.compare_rows(rows, "BLEU", "r0", "r7").p)
    assert 0.01 < np.mean(np.array(found) < 0.05) < 0.09


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.0001, 1), min_size=1, max_size=8), st.floats(0.01, 0.2))
def test_holms_correction_rejects_as_his_procedure_does(ps, level):
    rejected = set()
    for place, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        if ps[i] * (len(ps) - place) >= level:
            break
        rejected.add(i)
    assert {i for i, p in enumerate(verdicts.adjusted(ps)) if p < level} == rejected


def test_an_interval_over_seeds_by_hand():
    values = [1.0, 2.0, 4.0]
    assert module.half_interval(values) == pytest.approx(4.3027 * stdev(values) / math.sqrt(3), rel=1e-3)  # t for 2 degrees of freedom
    assert module.half_interval([1.0]) == math.inf


def test_bleu_from_sums_is_sacrebleus():
    hypotheses, references = ["a b c d e f g", "the cat sat on a mat today"], ["a b c d e f h", "the cat sat on the mat"]
    sums = []
    for h, r in zip(hypotheses, references):
        b = BLEU().corpus_score([h], [[r]])
        sums.append([b.sys_len, b.ref_len, *b.counts, *b.totals])
    assert verdicts.bleu_of(np.array(sums, dtype=float).sum(0)) == pytest.approx(BLEU().corpus_score(hypotheses, [references]).score)


def test_sentences_of_other_files_are_refused(tmp_path):
    path = tmp_path / "a.sentences.tsv"
    path.write_text("x\ty\n1\t2\n3\t4\n")
    assert verdicts.read_sentences({"name": "a", "sentences": file_digest(path)}, tmp_path).shape == (2, 2)
    assert verdicts.read_sentences({"name": "a"}, tmp_path) is None
    with pytest.raises(InputError, match="a.sentences.tsv: not the file"):
        verdicts.read_sentences({"name": "a", "sentences": "other"}, tmp_path)


# --- the command ---------------------------------------------------------------------------------------------------------------------------

def test_the_command(tmp_path, monkeypatch, capsys, found):
    monkeypatch.chdir(ROOT)
    module.main(["--out", str(tmp_path / "out")])
    out, err = capsys.readouterr()
    counted = [int(n) for n in re.findall(r"^ *(\d+) (?!files)", out, re.M)]
    assert sum(counted) == sum(map(len, found.values())) and not err
    page = (tmp_path / "out" / "claims.html").read_text()
    assert page.count("<tr") > len(CLAIMS) and all(word in page for word in (HOLDS, FAILS, UNCLEAR))
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.json").write_text("{")
    with pytest.raises(SystemExit) as ended:
        module.main(["--out", str(tmp_path / "none"), "--records", str(tmp_path / "bad")])
    assert ended.value.code == 2 and capsys.readouterr().err.count("\n") == 1 and not (tmp_path / "none").exists()


def test_the_saved_tables_are_those_of_the_records(found, records, monkeypatch):
    saved, fresh = ROOT / "figures" / "tables", ROOT / "build" / f"claims-{os.getpid()}"  # as deep, so the links are the same
    monkeypatch.chdir(ROOT)
    tables = {"claims": module.claims_table(list(CLAIMS.values()), found, records), "changes": module.changes_table(), "built": module.built_table()}
    try:
        stale = [path.name for path in results.write_tables(tables, fresh) if (saved / path.name).read_bytes() != path.read_bytes()]
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    assert not stale, f"figures/tables: {', '.join(stale)} are not what the records give; run: make notebooks NB=claims"
    assert (saved / "claims.md").read_text().count("\n| ") >= sum(map(len, found.values()))
