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
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from annotated_transformer.commands import cli
from annotated_transformer.experiments import judge as module
from annotated_transformer.experiments import results
from annotated_transformer.experiments.judge import (
    ALIKE,
    COLOURS,
    ELSEWHERE,
    FAILS,
    HOLDS,
    OPEN,
    SINGLE,
    UNTESTED,
    Found,
    block_of,
    bound,
    compare,
    comparisons,
    holm,
    read_claims,
)
from annotated_transformer.experiments.runner import read_plan
from annotated_transformer.experiments.variations import ROWS
from annotated_transformer.experiments.verdicts import JUDGES, judge_all
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
    return judge_all(list(CLAIMS.values()), module.with_sentences(records, RECORDS))


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
    assert {line[4] for line in results.built_table().lines} == {"as printed"}
    for item in read_claims()["built"]:
        assert ("ours" in item) != ("proof" in item), item["says"]
        cells = json.loads((NBS / f"{item['chapter']}.ipynb").read_text())["cells"]
        code = packed("\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"))
        for proof in item.get("proof", []):  # an assertion of the chapter, by its beginning
            assert "assert" in proof and packed(proof) in code, proof


def packed(code: str) -> str:
    "However its lines are broken."
    return re.sub(r"\s|torch\.testing\.", "", code)


@pytest.mark.skipif(not PAPER.exists(), reason="no copy of the paper here")
@pytest.mark.parametrize("name", [*(f"nbs/{name}.ipynb" for name in (
    "results", "claims", "experiments/results", "experiments/judge", "experiments/verdicts", "paper/tables")),
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
def test_of_whole_blocks_the_fit_is_the_means_and_what_they_leave(values):
    "Against the closed form of a table without gaps."
    x = np.array(values)
    r, s = x.shape
    rest = x - x.mean(0) - x.mean(1, keepdims=True) + x.mean()
    m = compare({f"r{i}": dict(enumerate(row)) for i, row in enumerate(values)}, "r0", "r1")
    assert (m.freedom, m.seeds) == ((r - 1) * (s - 1), s)
    assert m.effect == pytest.approx(x[1].mean() - x[0].mean(), abs=1e-6)
    assert m.error == pytest.approx(math.sqrt((rest**2).sum() / m.freedom * 2 / s), abs=1e-6)


def test_gaps_are_filled_as_normal_equations_do():
    "Rows of Table 3 have other seeds each: against an elimination of one indicator, with NumPy's own least squares."
    rng = np.random.default_rng(1)
    values = {f"r{i}": {j: 30 + i + rng.normal() for j in range(5) if (i * 2 + j) % 3} for i in range(6)}
    runs = [(i, j, x) for i, of in enumerate(values.values()) for j, x in of.items()]
    design = np.array([[*(i == k for k in range(6)), *(j == k for k in range(1, 5))] for i, j, _ in runs], dtype=float)
    y = np.array([x for *_, x in runs])
    fitted, (rest,), rank, _ = np.linalg.lstsq(design, y, rcond=None)
    cov = np.linalg.inv(design.T @ design) * rest / (len(y) - rank)
    m = compare(values, "r0", "r4")
    assert m.freedom == len(y) - rank and m.effect == pytest.approx(fitted[4] - fitted[0])
    assert m.error == pytest.approx(math.sqrt(cov[0, 0] + cov[4, 4] - 2 * cov[0, 4]))


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


def test_a_chain_of_blocks_joins_two_systems_or_nothing_does():
    values = {"base": {0: 1.0, 1: 2.0, 5: 2.0, 6: 3.0}, "a": {0: 2.0, 1: 3.1}, "z": {5: 0.9, 6: 2.0}}
    assert compare(values, "z", "a").effect == pytest.approx(1.05 + 1.05)
    assert compare({"a": {0: 1.0}, "b": {1: 2.0}}, "a", "b") is None and compare({"a": {0: 1.0}}, "a", "b") is None
    alone = compare(values, "base", "a")
    assert compare(values | {"far": {9: 90.0, 10: 1.0}}, "base", "a") == alone  # joined to none of them


def test_looks_widen_the_interval():
    m = module.Margin(effect=1.0, error=1.0, freedom=2, seeds=3)
    assert m.interval(4)[1] - 1 == pytest.approx(stats.t.ppf(1 - 0.05 / 8, 2))
    assert m.p(1.0) == pytest.approx(2 * stats.t.sf(1, 2)) and m._replace(error=0.0).p(1.0) == 1


# --- seeds and sentences together: rule 6 of the protocol -------------------------------------------------------------

def sentences(*values: float, weights=None) -> pd.DataFrame:
    return pd.DataFrame({"x": values, "weight": weights or 1.0})


def share(sums) -> float:
    return sums["x"] / sums["weight"]


def together(worse: list[pd.DataFrame], better: list[pd.DataFrame]) -> module.Margin:
    sides = ({seed: share(file.sum()) for seed, file in enumerate(of)} for of in (worse, better))
    return module.over_sentences(compare(dict(zip("ab", sides)), "a", "b"), worse, better, share)


def test_two_seeds_and_three_sentences_by_hand():
    """Differences of the seeds: 2 and 4, so the mean is 3 and its variance 2 / 2 = 1. The mean difference of the three
    sentences: 1, 3 and 5, so the variance of its mean is 4 / 3. Satterthwaite: (7/3)² / (1²/1 + (4/3)²/2) = 49/17.
    """
    m = together([sentences(0, 0, 0), sentences(1, 2, 3)], [sentences(0, 2, 4), sentences(3, 6, 9)])
    assert (m.effect, m.seeds) == (pytest.approx(3), 2)
    assert m.error**2 == pytest.approx(7 / 3) and m.freedom == pytest.approx(49 / 17)
    assert m.interval()[0] == pytest.approx(3 - stats.t.ppf(0.975, 49 / 17) * math.sqrt(7 / 3))


def test_of_a_ratio_of_sums_it_is_the_delta_methods_variance():
    rng = np.random.default_rng(3)
    tokens = rng.integers(5, 30, 2000)
    worse, better = ([sentences(*(tokens * level + rng.normal(0, 3, 2000)), weights=[*tokens]) for _ in range(2)]
                     for level in (2.0, 1.9))
    difference = sum(b.x - w.x for w, b in zip(worse, better)) / 2
    rest = difference - tokens * difference.sum() / tokens.sum()
    sides = ({seed: share(file.sum()) for seed, file in enumerate(of)} for of in (worse, better))
    seeds = compare(dict(zip("ab", sides)), "a", "b").error
    of_sentences = together(worse, better).error**2 - seeds**2
    assert of_sentences == pytest.approx(rest.var() / 2000 / tokens.mean() ** 2, rel=0.01)


@pytest.mark.parametrize("seeds, of_seeds, of_sentences", [(3, 0.5, 3.0), (3, 0.0, 3.0), (5, 0.5, 0.3)])
def test_intervals_cover_a_known_difference(seeds, of_seeds, of_sentences):
    "What a seed and what a sentence adds to the difference is drawn with known variances; 95% hold the true one."
    rng, covered, variances = np.random.default_rng(0), 0, []
    for _ in range(400):
        drawn = (7 + rng.normal(0, of_seeds, (seeds, 1)) + rng.normal(0, of_sentences, (1, 40))
                 + rng.normal(0, 1, (seeds, 40)))
        m = together([sentences(*[0.0] * 40)] * seeds, [sentences(*row) for row in drawn])
        low, high = m.interval()
        covered, variances = covered + (low < 7 < high), [*variances, m.error**2]
    true = of_seeds**2 / seeds + of_sentences**2 / 40 + 1 / (40 * seeds)
    assert mean(variances) == pytest.approx(true + 1 / (40 * seeds), rel=0.1)  # what is both's is in both
    assert 0.93 <= covered / 400 <= 0.985


def test_sentences_decide_where_all_runs_have_them():
    "Seeds that agree about ten sentences do not know what others would say; one run without its file, and seeds alone."
    def known(without: tuple = ()) -> dict:
        found = rows(base=SPREAD, A1=moved(-2, -2))
        for name, r in found.items():
            nats = np.where(np.arange(10) % 2, 30.0, 10.0) * (1 if "_A1_" in name else 0.98)
            nats[:2] += 20 * ("_A1_" in name)
            r["table"] = pd.DataFrame({"nats": nats, "tokens": 10.0})
        for name in without:
            del found[name]["table"]
        return found

    claim = [CLAIMS["one_head_worse"] | {"measures": ["perplexity"]}]
    (alone,), (one_less,), (both,) = (comparisons(claim, of) for of in (
        rows(base=SPREAD, A1=moved(-2, -2)), known(("row_small_A1_seed1",)), known()))
    assert alone == one_less and alone.verdict == HOLDS
    assert both.margin.effect == alone.margin.effect and both.margin.error > 5 * alone.margin.error
    assert both.verdict == OPEN


def test_numbers_from_sums_are_the_records(records):
    for name in ("row_small_base_seed0", "row_small_C5_seed10"):
        sums = module.with_sentences({name: records[name]}, RECORDS)[name]["table"].sum()
        for measure in ("perplexity", "BLEU", "accuracy"):
            assert module.FROM_SUMS[measure](sums) == pytest.approx(module.quality(records[name], measure), rel=1e-5)


# --- verdicts recomputed from the records -----------------------------------------------------------------------------

def test_verdicts_and_what_stands_behind_them(found, records):
    for name, several in found.items():
        assert [f.measure for f in several] == CLAIMS[name].get("measures", [""]) or CLAIMS[name]["judge"] != "margin"
        for f in several:
            parts = [part[-1] for part in f.effects] or [f.verdict]
            assert set(parts) <= set(COLOURS) and set(f.records) <= set(records), name
            assert bool(f.ours) == bool(f.records) == (f.verdict != UNTESTED), name
            assert (NBS / f"{CLAIMS[name]['chapter']}.ipynb").exists(), name


def raw(name: str) -> dict:
    "A record, read as any program would."
    lines = [line for path in RECORDS.glob("*.jsonl") for line in path.read_text().splitlines()
             if line.startswith(f'{{"name":"{name}"')]
    return json.loads(lines[0])


def test_table_3_from_the_raw_records(records):
    "All runs of Table 3 and the appendix, by NumPy's least squares on indicators with base and one block left out."
    names = [name for name in records if re.fullmatch(r"row_small_\w+_seed\d+", name)]
    runs = [raw(name) for name in names]
    rows = sorted({r["row"] for r in runs} - {"base"})
    blocks = sorted({block_of(r) for r in runs})
    design = np.array([[1, *(r["row"] == row for row in rows), *(block_of(r) == b for b in blocks[1:])] for r in runs],
                      dtype=float)
    inverse = np.linalg.inv(design.T @ design)
    for measure, value in (("perplexity", lambda m: -100 * math.log(m["perplexity"])),
                           ("BLEU", lambda m: m["sacrebleu/dev"])):
        y = np.array([value(r["metrics"]) for r in runs])
        fitted = inverse @ design.T @ y
        spread = ((y - design @ fitted) ** 2).sum() / (len(y) - design.shape[1])
        pairs = [("base", row) for row in ("C5", "D3", "E", "AOP1")]
        for c in comparisons([{"name": "rows", "judge": "margin", "pairs": pairs, "measures": [measure]}], records):
            m, i = c.margin, 1 + rows.index(c.better)
            assert (m.effect, m.error) == (pytest.approx(fitted[i]), pytest.approx(math.sqrt(spread * inverse[i, i])))
            assert m.freedom == len(y) - design.shape[1] == 50


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
    ("one_head_worse", {}, [UNTESTED, UNTESTED]),
    ("one_head_worse", {"A1": (-2, -2)}, [HOLDS, HOLDS]),
    ("one_head_worse", {"A1": (2, -2)}, [FAILS, HOLDS]),
    ("one_head_worse", {"A1": (-2, 2)}, [HOLDS, FAILS]),
    ("one_head_worse", {"A1": (0.2, -2)}, [ALIKE, HOLDS]),
    ("narrow_keys", {"B1": (-2, -2)}, [UNTESTED, UNTESTED]),
    ("narrow_keys", {"B1": (-2, -2), "B2": (-1.5, 3)}, [HOLDS, f"1 {HOLDS}, 1 {FAILS}"]),
    ("narrow_keys", {"B1": (-2, -2), "B2": (-1.5, 0)}, [HOLDS, f"1 {HOLDS}, 1 {ALIKE}"]),
    ("learned_positions", {"E": (-0.3, 3)}, [ALIKE]),  # within 1.8 per cent for sure
    ("learned_positions", {"E": (-9, 0)}, [FAILS])])
def test_each_measure_against_the_spread_between_seeds(name, others, expected):
    assert verdict(name, rows(base=SPREAD, **{row: moved(*by) for row, by in others.items()})) == expected
    alone = rows(base=SPREAD, **{row: moved(*by)[:1] for row, by in others.items()})  # single runs decide nothing
    assert verdict(name, alone) == [UNTESTED if v == UNTESTED else SINGLE for v in expected]


def test_every_look_counts():
    known, claim = rows(base=SPREAD, D3=moved(-0.3, 0)), CLAIMS["smoothing_hurts_perplexity"]
    (twice,), (once,) = (comparisons([claim | {"looks": n}], known) for n in (2, 1))
    assert 0 < once.p < 0.5 and twice.p == pytest.approx(2 * once.p) and twice.margin == once.margin
    assert claim["looks"] == 3 and twice.interval()[1] > once.interval()[1]


def test_a_comparison_names_the_records_of_both_sides():
    known = rows(base=[*SPREAD, (-150, 40.0), (-150, 40.0)], A1=moved(-2, -2))
    first, _ = judge_all([CLAIMS["one_head_worse"]], known)["one_head_worse"]
    assert first.verdict == HOLDS and set(first.records) == set(known)
    elsewhere = {name: r | {"hardware": "1 x A GPU"} if "_A1_" in name and r["seed"] else r for name,
                 r in known.items()}
    assert verdict("one_head_worse", elsewhere) == [SINGLE, SINGLE]  # one block is left
    precise = {name: r | {"config": {"training": {"precision": "bfloat16"}}} if "_A1_" in name else r for name,
               r in known.items()}
    assert verdict("one_head_worse", precise) == [UNTESTED, UNTESTED]


def test_over_fitting_is_the_gap():
    known = rows(base=SPREAD, D1=moved(0, 0))
    assert verdict("dropout_against_over_fitting", known) == [UNTESTED]
    for without, expected in ((1.5, HOLDS), (1.02, FAILS), (1.1, OPEN)):
        for name, r in known.items():
            gap = (without if "_D1_" in name else 1.1) + 0.001 * r["seed"] * (1 if "_D1_" in name else -1)
            r["metrics"]["perplexity/train"] = r["metrics"]["perplexity"] / gap
        assert verdict("dropout_against_over_fitting", known) == [expected]


# --- the race: made-up records of to_8000 -----------------------------------------------------------------------------

def the_race(lead: float, fall: dict[str, float]) -> dict[str, dict]:
    "Runs in which the Transformer leads by so many per cent of perplexity; how far each side fell in the last quarter."
    found, wobble = {}, np.random.default_rng(0)
    for system in ("transformer", "convolutional"):
        for seed in range(3):
            ppl = 6.0 * math.exp((seed + (lead if system == "convolutional" else 0) + wobble.normal(0, 0.1)) / 100)
            curve = [{"step": 6000, "dev_perplexity": ppl * (1 + fall[system])},
                     {"step": 7900, "dev_perplexity": None}, {"step": 8000, "dev_perplexity": ppl}]
            found |= made(f"to_8000_{system}_seed{seed}", seed, curve=curve,
                          **{"perplexity/dev": ppl, "sacrebleu/dev": 35 + seed})
    return found


@pytest.mark.parametrize(("lead", "settled"), [(7, HOLDS), (-7, FAILS), (0.02, ALIKE)])
def test_a_lead_and_a_loss_wait_alike_for_the_end_of_learning(lead, settled):
    "PROTOCOL.md, rule 4: while one of the two still falls by more than 3%, nobody has won."
    for falls, expected in (((0.0, 0.02), settled), ((0.1, 0.0), ELSEWHERE), ((0.0, 0.1), ELSEWHERE)):
        known = the_race(lead, dict(zip(("transformer", "convolutional"), falls)))
        first, _ = judge_all([CLAIMS["better_than_convolutional_later"]], known)["better_than_convolutional_later"]
        assert first.verdict == expected


def test_the_protocol_says_what_the_claims_do():
    rules = " ".join((ROOT / "annotated_transformer/experiments/plans/PROTOCOL.md").read_text().split())
    assert "four looks on the captions and two on the largest text" in rules and "at most 3%" in rules
    assert [CLAIMS[f"better_than_convolutional_{name}"]["looks"] for name in ("later", "on_more_text")] == [4, 2]
    assert f"{bound('perplexity'):.1f}% of perplexity, {bound('BLEU'):.1f} BLEU" in rules
    for plan in re.findall(r"`(more_text_18000|parsing_5000|smoothing_seeds)`", rules):
        assert read_plan(plan)
    races = [claim for name, claim in CLAIMS.items() if claim["chapter"] == "experiments/rivals_measured"
             and claim["judge"] == "margin"]
    assert races and all(claim["settles"] for claim in races)


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
    unlike = unlike_the_saved({"built": results.built_table()}, monkeypatch)
    assert not unlike, f"figures/tables: {', '.join(unlike)} are not the code's; run: make figures NB=claims"


def test_every_claim_is_shown_with_its_verdicts(found):
    cells = json.loads((NBS / "claims.ipynb").read_text())["cells"]
    shown = "".join(text for cell in cells for out in cell.get("outputs", []) for text in out["data"]["text/html"])
    for name, several in found.items():
        line = shown.split(html.escape(CLAIMS[name]["says"]), 1)[1].split("</details>", 1)[0]
        assert all(f"{f.verdict}{f.marks}" in line and html.escape(f.ours) in line for f in several), name


def test_the_summary_is_what_the_records_give(records):
    from annotated_transformer.experiments.summary import laid_out, summarise

    assert laid_out(summarise(read_records(RECORDS), RECORDS)) + "\n" == (RECORDS / "summary.json").read_text(
        encoding="utf-8"), (
        "run: python -m annotated_transformer.experiments.summary")
