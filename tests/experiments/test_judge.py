"""The judge: claims that are whole, statistics compared with others', verdicts that follow from the records, each
verdict reached on made-up ones."""
import functools
import html
import importlib
import json
import math
import os
import re
import shlex
import tomllib
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from annotated_transformer.commands import cli
from annotated_transformer.experiments import judge as module
from annotated_transformer.experiments import results
from annotated_transformer.experiments.judge import (
    COMPUTE,
    ELSEWHERE,
    FAILS,
    HOLDS,
    JUDGES,
    OPEN,
    UNCLEAR,
    Found,
    block_of,
    compare,
    comparisons,
    holm,
    judge_all,
    margin_of_rows,
    read_claims,
)
from annotated_transformer.experiments.runner import read_plan
from annotated_transformer.experiments.variations import ROWS
from annotated_transformer.paper import tables as paper
from annotated_transformer.tools import options
from annotated_transformer.tools.files import InputError
from annotated_transformer.tools.records import finished, read_records
from here import ROOT, unlike_the_saved

NBS, RECORDS = ROOT / "nbs", ROOT / "nbs" / "results"
PAPER = Path(os.environ.get("ANNOTATED_SHARED", ROOT.parent / "shared")) / "paper" / "paper_latex.txt"
CLAIMS = {claim["name"]: claim for claim in read_claims()["claim"]}


@pytest.fixture(scope="module")
def records() -> dict[str, dict]:
    return finished(read_records(RECORDS))


@pytest.fixture(scope="module")
def found(records) -> dict[str, list[Found]]:
    return judge_all(list(CLAIMS.values()), records)


# --- the file of claims -----------------------------------------------------------------------------------------------

ARGUMENTS = {"value": {"records", "value"}, "margin": set(), "faster": {"records", "layer", "than", "where"},
             "heads": {"records", "measures", "margin"}, "tasks": {"records", "measures", "at_least", "margin"},
             "chosen": {"records", "fixed"}}


def test_every_claim_is_whole():
    assert len(CLAIMS) == len(read_claims()["claim"]) and set(ARGUMENTS) == {*JUDGES, "margin"}
    for name, claim in CLAIMS.items():
        assert {"section", "says", "paper", "chapter", "judge", "false"} <= set(claim), name
        assert ARGUMENTS[claim["judge"]] <= set(claim) and claim["false"] and claim["says"].rstrip(" .") != "", name
        if claim["judge"] == "margin":
            assert ({"pairs", "measures"} <= set(claim)) != ({"better", "worse"} <= set(claim)), name
            known = {*claim.get("among", ROWS), *claim.get("systems", ())}
            assert {system for pair in claim.get("pairs", []) for system in pair} <= known, name
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
    found = [command for table in results.all_tables({}).values() for command in table.commands]
    found += [claim["command"] for claim in CLAIMS.values() if "command" in claim]
    return sorted({part for command in found for part in command.split(" && ")})


@pytest.mark.parametrize("command", commands())
def test_commands_can_be_given(command, capsys):
    "Today's programs understand each with all of its options; nothing of it is done."
    words = shlex.split(command)
    if words[0] == "torchrun":
        words = ["annotated-transformer", *words[words.index("annotated_transformer.commands.cli") + 1:]]
    if words[0] == "annotated-transformer":
        command = importlib.import_module(f"annotated_transformer.{cli.COMMANDS[words[1]]}")
        name, given = command.subcommand(words[2:]) if words[1] == "prepare" else (words[1], words[2:])
        function = getattr(command, f"{name}_command")
        options.call(functools.wraps(function)(lambda *args, **kwargs: None), given, words[1])
    elif words[:4] == ["python", "-m", "annotated_transformer.experiments", "run"]:
        assert read_plan(words[4])
    else:
        with pytest.raises(SystemExit) as end:
            importlib.import_module(words[2]).main(["--help"])
        said = capsys.readouterr().out
        assert end.value.code in (0, None) and all(word in said for word in words[3:] if word.startswith("--"))


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
            assert "assert" in proof and any(line.strip().removeprefix("torch.testing.").startswith(
                proof.removeprefix("torch.testing.")) for line in code), proof


@pytest.mark.skipif(not PAPER.exists(), reason="no copy of the paper here")
@pytest.mark.parametrize("name", [*(f"nbs/{name}.ipynb" for name in ("results", "claims", "experiments/results",
                                                                     "experiments/judge", "paper/tables")),
                                  "annotated_transformer/experiments/claims.toml",
                                  "annotated_transformer/experiments/tables.toml"])
def test_no_words_are_the_papers(name):
    words = lambda text: re.findall(r"[a-z0-9]+", text.lower())  # noqa: E731
    theirs, n = words(PAPER.read_text()), 7
    runs = {tuple(theirs[i:i + n]) for i in range(len(theirs))}
    text = (ROOT / name).read_text()
    texts = ["".join(cell["source"]) for cell in json.loads(text)["cells"]] if name.endswith("ipynb") else [text]
    copied = [" ".join(some[i:i + n]) for some in map(words, texts) for i in range(len(some) - n + 1)
              if tuple(some[i:i + n]) in runs]
    assert [run for run in copied if run not in ("ff h d k d v p", "d ff h d k d v",
                                                 "h d k d v p drop")] == []  # the names of Table 3's columns


# --- statistics against others' ---------------------------------------------------------------------------------------

TABLES = st.integers(2, 5).flatmap(lambda n: st.lists(st.lists(st.floats(20, 40), min_size=n, max_size=n), min_size=2,
                                                      max_size=6))


@settings(max_examples=60, deadline=None)
@given(TABLES)
def test_the_spread_is_the_residual_of_systems_and_blocks(values):
    "Against least squares on an indicator for each system and each block."
    x = np.array(values)
    r, s = x.shape
    design = np.array([[*(i == k for k in range(r)), *(j == k for k in range(s))] for i in range(r) for j in range(s)],
                      dtype=float)
    rest = x.ravel() - design @ np.linalg.lstsq(design, x.ravel(), rcond=None)[0]
    m = compare({f"r{i}": dict(enumerate(row)) for i, row in enumerate(values)}, "r0", "r1")
    assert (m.freedom, m.seeds, m.systems) == ((r - 1) * (s - 1), s,
                                               r) and m.effect == pytest.approx(x[1].mean() - x[0].mean(), abs=1e-9)
    assert m.error == pytest.approx(math.sqrt((rest**2).sum() / m.freedom * 2 / s), abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(20, 40), st.floats(20, 40)), min_size=2,
                max_size=6).filter(lambda xs: stdev(a - b for a, b in xs) > 1e-3))
def test_of_two_systems_it_is_the_paired_test(pairs):
    ours, theirs = zip(*pairs)
    m, scipys = compare({"a": dict(enumerate(theirs)), "b": dict(enumerate(ours))}, "a",
                        "b"), stats.ttest_rel(ours, theirs)
    assert m.p(m.effect) == pytest.approx(scipys.pvalue, abs=1e-9)
    assert m.interval() == pytest.approx(tuple(scipys.confidence_interval()), abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.0001, 1), min_size=1, max_size=8), st.floats(0.01, 0.2))
def test_holms_correction_rejects_as_his_procedure_does(ps, level):
    rejected = set()
    for place, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        if ps[i] * (len(ps) - place) >= level:
            break
        rejected.add(i)
    assert {i for i, p in enumerate(holm(ps)) if p < level} == rejected


def test_only_systems_with_the_same_blocks_lend_their_spread():
    """A system with fewer seeds, or other ones, changes nothing; two without a common block are compared through a
    third."""
    rng = np.random.default_rng(0)
    values = {name: dict(enumerate(30 + rng.normal(0, 1, 3))) for name in ("base", "a", "b")}
    alone = compare(values, "base", "a")
    assert compare(values | {"c": {0: 90.0, 1: 10.0}, "d": {7: 1.0, 8: 90.0, 9: 2.0}}, "base", "a") == alone
    other = {block + 5: x + 1 for block, x in values["base"].items()}
    far = {"base": values["base"] | other, "a": values["a"],
           "z": {block: x + rng.normal(0, 1) for block, x in other.items()}}
    through, legs = compare(far, "z", "a"), (compare(far, "z", "base"), compare(far, "base", "a"))
    assert through.effect == pytest.approx(sum(leg.effect
                                               for leg in legs)) and through.error == pytest.approx(
                                                   math.hypot(*(leg.error for leg in legs)))
    assert compare({"a": {0: 1.0}, "b": {1: 2.0}}, "a", "b") is None and compare({"a": {0: 1.0}}, "a", "b") is None


def test_so_many_seeds_would_have_been_enough():
    """Of an effect that needs n seeds: with n blocks of the same spread and size the interval leaves zero, with one
    fewer it does not."""
    m = module.Margin(effect=1.0, error=1.0, freedom=2, seeds=3, systems=2)
    n = m.needed(1.0)
    reach = {k: stats.t.ppf(0.975, k - 1) * math.sqrt(3 / k) for k in (n - 1, n)}
    assert reach[n] < 1.0 <= reach[n - 1] and m.needed(0.1) is None


# --- verdicts recomputed from the records -----------------------------------------------------------------------------

def test_verdicts_and_what_stands_behind_them(found, records):
    for name, several in found.items():
        assert [f.measure for f in several] == CLAIMS[name].get("measures", [""]) or CLAIMS[name]["judge"] != "margin"
        for f in several:
            assert f.verdict in (HOLDS, FAILS, UNCLEAR, ELSEWHERE, OPEN,
                                 COMPUTE) and set(f.records) <= set(records), name
            assert bool(f.ours) == bool(f.records) == (f.verdict not in (OPEN, COMPUTE)), name
            assert (NBS / f"{CLAIMS[name]['chapter']}.ipynb").exists(), name


def raw(name: str) -> dict:
    "A record, read as any program would."
    lines = [line for path in RECORDS.glob("*.jsonl") for line in path.read_text().splitlines()
             if line.startswith(f'{{"name":"{name}"')]
    return json.loads(lines[0])


def test_table_3_from_the_raw_records(records):
    """By hand: fourteen rows with the seeds 5 to 7, what a row and a seed do taken out, and Student's t with 26
    degrees of freedom."""
    first = {name: r for name, r in records.items() if not name.endswith(("seed8", "seed9", "seed10"))}
    whole = [row for row in ROWS if not row.startswith("AOP") and f"row_small_{row}_seed7" in records]
    x = {"perplexity": np.array([[-100 * math.log(raw(f"row_small_{row}_seed{s}")["metrics"]["perplexity"])
                                  for s in (5, 6, 7)] for row in whole]),
         "BLEU": np.array([[raw(f"row_small_{row}_seed{s}")["metrics"]["sacrebleu/dev"] for s in (5, 6, 7)]
                           for row in whole])}
    for measure, row, p in (("perplexity", "C3", 0.0134), ("perplexity", "D3", 0.0490), ("BLEU", "A4", 0.0078),
                            ("BLEU", "C5", 0.0074)):
        t = x[measure]
        rest = t - t.mean(0) - t.mean(1, keepdims=True) + t.mean()
        effect = t[whole.index(row)].mean() - t[whole.index("base")].mean()
        chance = 2 * stats.t.sf(abs(effect) / math.sqrt((rest**2).sum() / 26 * 2 / 3), 26)
        m = margin_of_rows(first, measure, "base", row)
        assert len(whole) == 14 and m.p(m.effect) == pytest.approx(chance,
                                                                   rel=1e-6) and chance == pytest.approx(p, abs=1e-4)


@pytest.mark.parametrize(("row", "seeds"), [("C3", (5, 6, 7, 8, 10)), ("D3", (5, 6, 7, 8)), ("C5", range(5, 11)),
                                            ("E", (0, 1, 2, 8, 10))])
def test_added_seeds_pool_with_the_first(row, seeds, records):
    gains = [100 * math.log(raw(f"row_small_base_seed{s}")["metrics"]["perplexity"]
                            / raw(f"row_small_{row}_seed{s}")["metrics"]["perplexity"]) for s in seeds]
    found = margin_of_rows(records, "perplexity", "base", row)
    assert found.seeds == len(seeds) and found.effect == pytest.approx(mean(gains))


def test_margins_from_the_raw_records(found, records):
    for c in comparisons([CLAIMS["better_than_convolutional"], CLAIMS["better_than_recurrent"]], records):
        key = {"perplexity": "perplexity/dev", "BLEU": "sacrebleu/dev"}[c.measure]
        ours, theirs = ([raw(f"to_the_end_{system}_seed{s}")["metrics"][key] for s in range(3)]
                        for system in ("transformer", c.worse))
        margins = [100 * math.log(b / a) if c.measure == "perplexity" else a - b for a, b in zip(ours, theirs)]
        assert c.margin.effect == pytest.approx(mean(margins)) and c.margin.freedom == 4
        assert set(c.records) == {f"to_the_end_{system}_seed{s}" for system in ("transformer", c.worse)
                                  for s in range(3)}


def test_single_numbers_from_the_raw_records(found):
    rounds = {u["system"]: u["all"] for u in raw("row_small_step_time")["metrics"]["updates"]}
    for row in ("AOP1", "AOP2"):
        ratio = math.exp(mean(math.log(b / a) for b, a in zip(rounds['base'], rounds[row])))
        assert f"{ratio:.2f} of the time of {row} (" in found["slower_steps"][0].ours
    for record, claim, other in (("rival_speed_cpu_bfloat16", "convolutional", "convolutional"),
                                 ("rival_speed_cpu_float32", "recurrent", "input-feeding")):
        rounds = {u["system"]: u["all"] for u in raw(record)["metrics"]["updates"] if u["n"] == 16}
        quotient = math.exp(mean(math.log(ours / theirs) for ours, theirs in zip(rounds["transformer"], rounds[other])))
        assert f"{quotient:.2f} of the time of {other} (" in found[f"faster_than_{claim}"][0].ours


def test_one_digit_more_turns_a_verdict(records):
    step = records["row_small_step_time"]
    slow = [u | {"all": [(1.0 if u["system"] == "base" else 1.3) * x
                         for x in next(v["all"] for v in step["metrics"]["updates"] if v["system"] == "base")]}
            for u in step["metrics"]["updates"]]
    altered = records | {"row_small_step_time": step | {"metrics": step["metrics"] | {"updates": slow}}}
    assert judge_all([CLAIMS["slower_steps"]], altered)["slower_steps"][0].verdict == HOLDS


def test_rows_that_share_a_seed_share_a_machine(records):
    "What the judge takes for one block was trained on one kind of machine, in one precision."
    for seed in range(3, 11):
        blocks = {block_of(r) for name, r in records.items() if re.fullmatch(rf"row_small_\w+_seed{seed}", name)}
        assert len(blocks) <= 1, (seed, blocks)


# --- rows that are made up --------------------------------------------------------------------------------------------

def made(name: str, seed: int, machine: str = "a processor, 1 thread", precision: str = "float32",
         curve: list | None = None, **metrics) -> dict[str, dict]:
    config = {"training": {"precision": precision}}
    return {name: {"name": name, "seed": seed, "config": config, "hardware": machine, "sittings": [],
                   "metrics": metrics, "curve": curve or []}}


def rows(**values: list[tuple[float, float]]) -> dict[str, dict]:
    "Records of variations: of each row (-100 ln perplexity, BLEU) for each seed."
    found = {}
    for row, of in values.items():
        for seed, (quality, bleu) in enumerate(of):
            found |= made(f"row_small_{row}_seed{seed}", seed,
                          **{"perplexity": math.exp(-quality / 100), "sacrebleu/dev": bleu, "accuracy": 0.5})
    return found


def verdict(name: str, known: dict) -> list[str]:
    return [f.verdict for f in judge_all([CLAIMS[name]], known)[name]]


SPREAD = [(-200.0, 30.0), (-199.9, 29.9), (-200.1, 30.1)]  # base with three seeds, 0.1 apart by each measure


def moved(perplexity: float, bleu: float) -> list[tuple[float, float]]:
    "Three seeds of a row that is better than base by so much, with a spread of its own."
    return [(quality + perplexity, b + bleu) for quality, b in ((-200.1, 30.0), (-200.0, 30.1), (-199.9, 29.9))]


@pytest.mark.parametrize("name, others, expected", [
    ("one_head_worse", {}, [OPEN, OPEN]),
    ("one_head_worse", {"A1": (-2, -2)}, [HOLDS, HOLDS]),
    ("one_head_worse", {"A1": (2, -2)}, [FAILS, HOLDS]),
    ("one_head_worse", {"A1": (-2, 2)}, [HOLDS, FAILS]),
    ("one_head_worse", {"A1": (0.2, -2)}, [UNCLEAR, HOLDS]),
    ("narrow_keys", {"B1": (-2, -2)}, [OPEN, OPEN]),
    ("narrow_keys", {"B1": (-2, -2), "B2": (-1.5, 3)}, [HOLDS, FAILS]),
    ("narrow_keys", {"B1": (-2, -2), "B2": (-1.5, 0)}, [HOLDS, UNCLEAR]),
    ("learned_positions", {"E": (-0.3, 3)}, [HOLDS]),  # within 1.8 per cent for sure
    ("learned_positions", {"E": (-9, 0)}, [FAILS])])
def test_each_measure_against_the_spread_between_seeds(name, others, expected):
    assert verdict(name, rows(base=SPREAD, **{row: moved(*by) for row, by in others.items()})) == expected
    alone = rows(base=SPREAD, **{row: moved(*by)[:1] for row, by in others.items()})  # single runs decide nothing
    assert verdict(name, alone) == [OPEN if v == OPEN else UNCLEAR for v in expected]


def test_a_second_look_doubles_the_p():
    first = rows(base=SPREAD, D3=moved(-0.3, 0))
    again = {name: r | {"seed": r["seed"] + 8} for name, r in first.items()}
    (once,), (twice,) = (comparisons([CLAIMS["smoothing_hurts_perplexity"]], known) for known in (first, again))
    assert 0 < once.p < 0.5 and twice.p == 2 * once.p and twice.margin == once.margin
    assert twice.needed > once.needed  # seeds that would tell


def test_a_comparison_names_the_records_of_the_blocks_that_both_have():
    known = rows(base=[*SPREAD, (-150, 40.0), (-150, 40.0)], A1=moved(-2, -2))
    first, _ = judge_all([CLAIMS["one_head_worse"]], known)["one_head_worse"]
    assert first.verdict == HOLDS and set(first.records) == {f"row_small_{row}_seed{seed}" for row in ("base", "A1")
                                                             for seed in range(3)}
    elsewhere = {name: r | {"hardware": "1 x A GPU"} if "_A1_" in name and r["seed"] else r for name,
                 r in known.items()}
    assert verdict("one_head_worse", elsewhere) == [UNCLEAR, UNCLEAR]  # one block is left
    precise = {name: r | {"config": {"training": {"precision": "bfloat16"}}} if "_A1_" in name else r for name,
               r in known.items()}
    assert verdict("one_head_worse", precise) == [OPEN, OPEN]


def test_over_fitting_is_the_gap():
    known = rows(base=SPREAD, D1=moved(0, 0))
    assert verdict("dropout_against_over_fitting", known) == [OPEN]
    for without, expected in ((1.5, HOLDS), (1.02, FAILS), (1.1, UNCLEAR)):
        for name, r in known.items():
            gap = (without if "_D1_" in name else 1.1) + 0.001 * r["seed"] * (1 if "_D1_" in name else -1)
            r["metrics"]["perplexity/train"] = r["metrics"]["perplexity"] / gap
        assert verdict("dropout_against_over_fitting", known) == [expected]


# --- the comparison carried on: made-up records of to_the_end ---------------------------------------------------------

RIVALS = ["better_than_recurrent", "better_than_convolutional", "better_than_gnmt"]


def the_end(ahead: dict[str, float], gaining: bool = True, seeds: int = 3, of: str = "to_the_end",
            steps: int = 4000) -> dict[str, dict]:
    "Runs in which the Transformer leads each system by so many per cent of perplexity and as many tenths of BLEU."
    found, wobble = {}, np.random.default_rng(0)
    for system, lead in (("transformer", 0.0), *ahead.items()):
        for seed in range(seeds):
            ppl = 6.0 * math.exp((lead + seed + wobble.normal(0, 0.2)) / 100)
            fall = 1.05 if system != "transformer" else 1.1 if gaining else 1.04
            curve = [{"step": steps - 400, "dev_perplexity": ppl * fall}, {"step": steps - 100, "dev_perplexity": None},
                     {"step": steps, "dev_perplexity": ppl}]
            found |= made(f"{of}_{system}_seed{seed}", seed, curve=curve,
                          **{"perplexity/dev": ppl, "sacrebleu/dev": 35 - lead / 10 + wobble.normal(0, 0.02) + seed})
    return found


def rivals(known: dict) -> dict[str, list[str]]:
    return {name: [f.verdict for f in of] for name, of in judge_all([CLAIMS[name] for name in RIVALS], known).items()}


def test_the_runs_to_the_end_decide_when_they_are_all_there():
    earlier = the_end({"input-feeding": -3, "convolutional": -9, "recurrent": 20}, of="wider_rates", steps=2000)
    ahead = the_end({"input-feeding": 3, "convolutional": 2})
    assert rivals(earlier) == {RIVALS[0]: [ELSEWHERE] * 2, RIVALS[1]: [ELSEWHERE] * 2, RIVALS[2]: [HOLDS] * 2}
    assert rivals(earlier | {name: r for name, r in ahead.items()
                             if name != "to_the_end_transformer_seed2"}) == rivals(earlier)
    now = judge_all([CLAIMS[name] for name in RIVALS], earlier | ahead)
    assert [[f.verdict for f in now[name]] for name in RIVALS] == [[HOLDS] * 2] * 3
    assert all(record.startswith("to_the_end_") for name in RIVALS[:2] for f in now[name] for record in f.records)
    assert all(record.startswith("wider_rates_") for f in now[RIVALS[2]] for record in f.records)


def test_behind_at_the_end_is_a_no_only_where_nothing_is_gained_any_more():
    behind = {"input-feeding": -3, "convolutional": -2}
    assert rivals(the_end(behind))[RIVALS[0]] == [ELSEWHERE] * 2 and rivals(the_end(behind, gaining=False))[
        RIVALS[0]] == [FAILS] * 2
    late = the_end(behind)
    late["to_the_end_transformer_seed1"]["curve"][0]["dev_perplexity"] = late["to_the_end_transformer_seed1"][
        "metrics"]["perplexity/dev"]
    assert rivals(late)[RIVALS[0]] == [FAILS] * 2  # with every seed, or not at all
    near = judge_all([CLAIMS[name] for name in RIVALS], the_end({"input-feeding": 0.05, "convolutional": 5}))
    assert near[RIVALS[0]][0].verdict == UNCLEAR and "seeds" in near[RIVALS[0]][0].ours and near[RIVALS[1]][
        0].verdict == HOLDS


def test_the_rules_of_the_runs_are_the_claims():
    "to_the_end.toml says in words what the claims say as data."
    rules = (ROOT / "annotated_transformer/experiments/plans/to_the_end.toml").read_text()
    claims = [CLAIMS[name] for name in RIVALS[:2]]
    assert "from update 3,600 to 4,000" in rules and {claim["slope"]
                                                      for claim in claims} == {400} and {
                                                          claim["family"] for claim in claims} == {"rivals"}
    assert all(claim["of"][0] == "to_the_end" and claim["measures"] == ["perplexity", "BLEU"] and claim["seeds"] == 3
               for claim in claims)
    systems = {system["name"]: system["seeds"]["de"] for system in tomllib.loads(rules)["system"]}
    assert set(systems) == set(claims[0]["among"]) and set(map(tuple, systems.values())) == {(0, 1, 2)}
    both = comparisons(claims, the_end({"input-feeding": 3, "convolutional": 2, "recurrent": 9}))
    assert {c.margin.freedom for c in both} == {(4 - 1) * (3 - 1)} and len(both) == 4
    p = sorted((c.p, c.holm) for c in both if c.measure == "BLEU")
    assert p[0][1] == pytest.approx(2 * p[0][0]) and p[1][1] == pytest.approx(max(p[1][0], p[0][1]))


# --- tables -----------------------------------------------------------------------------------------------------------

def test_a_busy_clock_and_an_old_record_are_marked():
    rounds = [{"system": system, "n": 64, "all": [x, 1.01 * x]} for system,
              x in (("additive", 9.0), ("dot_product", 1.0))]
    record = {"name": "attention_compatibility", "config": {}, "metrics": {"updates": rounds},
              "sittings": [{"threads": 1, "load": [0.5, 0.9]}]}
    for known, sign in ((record, ""), (record | {"sittings": [{"threads": 1, "load": [12.6, 0.4]}]}, " (busy machine)"),
                        ({key: value for key, value in record.items() if key != "sittings"}, " (early record)")):
        (found,) = judge_all([CLAIMS["dot_product_faster"]], {known["name"]: known})["dot_product_faster"]
        assert (found.verdict, found.marks) == (HOLDS, sign)


def test_the_saved_table_is_that_of_the_code(monkeypatch):
    unlike = unlike_the_saved({"built": module.built_table()}, monkeypatch)
    assert not unlike, f"figures/tables: {', '.join(unlike)} are not the code's; run: make figures NB=claims"


def test_every_claim_is_shown_with_its_verdicts(found):
    cells = json.loads((NBS / "claims.ipynb").read_text())["cells"]
    shown = "".join(text for cell in cells for out in cell.get("outputs", []) for text in out["data"]["text/html"])
    for name, several in found.items():
        line = shown.split(html.escape(CLAIMS[name]["says"]), 1)[1].split("</details>", 1)[0]
        assert all(f"{f.verdict}{f.marks}</b>" in line and html.escape(f.ours) in line for f in several), name


def test_the_summary_is_what_the_records_give(records):
    from annotated_transformer.experiments.summary import laid_out, summarise

    assert laid_out(summarise(read_records(RECORDS))) + "\n" == (RECORDS / "summary.json").read_text(
        encoding="utf-8"), (
        "run: python -m annotated_transformer.experiments.summary")
