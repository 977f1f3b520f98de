"""The ledger: every claim has its cell and its records, verdicts follow from what was measured, no sentence is the paper's."""
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from annotated_transformer import cli, paper
from annotated_transformer.experiments import claims as ledger, results
from annotated_transformer.files import InputError
from annotated_transformer.experiments.claims import AGAINST, BUILT, CLAIMS, COMPUTE, EXACT, FAILS, HOLDS, OPEN, UNCLEAR, VERDICTS, Evidence, judge

ROOT = Path(__file__).resolve().parent.parent
NBS = ROOT / "nbs"
PAPER = Path(os.environ.get("ANNOTATED_SHARED", ROOT.parent / "shared")) / "paper" / "paper_latex.txt"


@pytest.fixture(scope="module")
def records() -> dict[str, dict]:
    return results.read_records(NBS / "results")


@pytest.fixture(scope="module")
def found(records) -> dict[str, ledger.Found]:
    return ledger.ledger(records, NBS)


# --- the ledger as it stands ---------------------------------------------------------------------------------------------------------------

def test_every_claim_has_its_cell():
    complaints = []
    for claim in CLAIMS.values():
        try:
            Evidence({}, NBS, claim).cell()
        except InputError as error:
            complaints.append(str(error))
    assert not complaints, "\n".join(complaints)


def test_verdicts_and_what_stands_behind_them(found, records):
    assert len(found) >= 60
    for name, f in found.items():
        assert f.verdict in VERDICTS, name
        assert bool(f.command) == (f.verdict in (COMPUTE, OPEN)) and bool(f.ours) == (not f.command), name
        assert set(f.records) <= set(records), f"{name}: no records {set(f.records) - set(records)}"
        assert "\n" not in f.ours + f.command + CLAIMS[name].says, name


def test_measured_verdicts_rest_on_records_or_on_what_a_cell_printed(found):
    worked_out = {"longer_outputs"}  # from the built-in grammar, as the ledger is made
    for name, f in found.items():
        if f.verdict in (HOLDS, FAILS, UNCLEAR) and not f.records and name not in worked_out:
            assert Evidence({}, NBS, CLAIMS[name]).cell()["said"], name


def test_every_section_has_claims():
    said = {number for claim in CLAIMS.values() for number in re.findall(r"\d(?:\.\d)*|appendix|abstract", claim.section)}
    numbers = {number for number, _, _ in paper.SECTIONS}
    parents = {number for number in numbers if any(other.startswith(f"{number}.") for other in numbers)}
    assert numbers - parents - said <= {"7"}  # the conclusion repeats
    for claim in CLAIMS.values():
        first = claim.section.split(",")[0].split(" ")[0]
        assert first in numbers | {"Table", "Figure"}, claim.section


def test_commands_can_be_given(found):
    programs = set(cli.COMMANDS) if hasattr(cli, "COMMANDS") else {"prepare", "train", "translate", "evaluate", "parse", "sweep",
                                                                   "demo"}
    for name, f in found.items():
        for part in filter(None, f.command.split(" && ")):
            words = part.split()
            if words[0] == "annotated-transformer":
                assert words[1] in programs, (name, part)
            elif words[:2] == ["python", "-m"]:
                assert (ROOT / Path(*words[2].split(".")).with_suffix(".py")).exists(), (name, part)
            elif words[0] == "python":
                assert (ROOT / words[1]).exists(), (name, part)
            else:
                assert words[0] in ("torchrun", "cd", "ANNOTATED_SMOOTHING_DATA=../data/multi30k"), (name, part)


@pytest.mark.skipif(not PAPER.exists(), reason="no copy of the paper here")
@pytest.mark.parametrize("chapter", ["90_results", "91_claims"])
def test_no_words_are_the_papers(chapter):
    words = lambda text: re.findall(r"[a-z0-9]+", text.lower())  # noqa: E731
    theirs, n = words(PAPER.read_text()), 7
    runs = {tuple(theirs[i:i + n]) for i in range(len(theirs))}
    cells = json.loads((NBS / f"{chapter}.ipynb").read_text())["cells"]
    ours = [words("".join(cell["source"])) for cell in cells]
    copied = [" ".join(some[i:i + n]) for some in ours for i in range(len(some) - n + 1) if tuple(some[i:i + n]) in runs]
    assert [run for run in copied if run != "ff h d k d v p"] == []  # the names of Table 3's columns


# --- cells that go -------------------------------------------------------------------------------------------------------------------------

@pytest.fixture
def chapter(tmp_path) -> Path:
    "A chapter of three cells, the first two with one line in common."
    cells = [{"cell_type": "code", "source": ["x = 1\n", "assert x == 1"],
              "outputs": [{"output_type": "stream", "name": "stdout", "text": ["one: 1\n", "two: 2\n"]}]},
             {"cell_type": "code", "source": ["x = 1\n", "y = 2"], "outputs": []},
             {"cell_type": "markdown", "source": ["## A *heading*\n", "\n", "text"]},
             {"cell_type": "code", "source": ["z = 3"],
              "outputs": [{"output_type": "error", "ename": "E", "evalue": "", "traceback": []}]}]
    (tmp_path / "01_one.ipynb").write_text(json.dumps({"cells": cells}))
    return tmp_path


def claim_of(cell: str, check=lambda e: ledger.exact(True, "yes"), chapter: str = "01_one") -> ledger.Claim:
    return ledger.Claim("trial", "3", "It is so.", chapter, cell, "", check)


@pytest.mark.parametrize("cell, chapter_name, said", [
    ("y = 3", "01_one", "is gone in 01_one"), ("x = 1", "01_one", "fits 2 cells in 01_one"),
                                                      ("x", "02_two", "there is no chapter 02_two")])
def test_a_claim_whose_cell_is_gone(chapter, cell, chapter_name, said):
    with pytest.raises(InputError, match=f"claim trial: .*{said}: name the one that checks it now"):
        judge(claim_of(cell, chapter=chapter_name), {}, chapter)


def test_the_ledger_notices_each_cell_that_goes(tmp_path):
    "Every cell that a claim names is taken out of its chapter in turn, for one chapter."
    shutil.copy(NBS / "12_layers.ipynb", tmp_path)
    book = json.loads((NBS / "12_layers.ipynb").read_text())
    for claim in (c for c in CLAIMS.values() if c.chapter == "12_layers"):
        Evidence({}, tmp_path, claim).cell()
        left = [cell for cell in book["cells"] if claim.cell not in "".join(cell["source"])]
        (tmp_path / "12_layers.ipynb").write_text(json.dumps({"cells": left}))
        with pytest.raises(InputError, match=f"claim {claim.name}"):
            Evidence({}, tmp_path, claim).cell()


def test_what_a_cell_printed_and_asserted(chapter):
    by = lambda check, cell="assert x == 1": judge(claim_of(cell, check), {}, chapter)  # noqa: E731
    assert by(lambda e: ledger.exact(True, e.printed(r"one: (\d)")[1])).ours == "1"
    assert by(lambda e: e.asserted()).verdict == EXACT and by(lambda e: e.asserted()).heading == ""
    assert by(lambda e: e.asserted("so", BUILT))[:2] == (BUILT, "so")
    with pytest.raises(InputError, match="did not print"):
        by(lambda e: ledger.exact(True, e.printed("three")[0]))
    for cell in ("y = 2", "z = 3"):  # no assertion; an error
        with pytest.raises(InputError, match="asserts nothing, failed, or"):
            by(lambda e: e.asserted(), cell)
    assert judge(claim_of("z = 3"), {}, chapter).heading == "A *heading*"
    assert ledger.place("01_one", "A *heading*") == results.Cell("01_one, A heading", link="01_one.ipynb")


def test_a_chapter_without_outputs_proves_nothing(chapter):
    book = json.loads((chapter / "01_one.ipynb").read_text())
    for cell in book["cells"][:3]:
        cell["outputs"] = []
    (chapter / "01_one.ipynb").write_text(json.dumps(book))
    assert judge(claim_of("assert x == 1", lambda e: e.asserted()), {}, chapter).verdict == EXACT  # the last cell has an output
    book["cells"][3]["outputs"] = []
    (chapter / "01_one.ipynb").write_text(json.dumps(book) + " ")
    with pytest.raises(InputError, match="was not executed"):
        judge(claim_of("assert x == 1", lambda e: e.asserted()), {}, chapter)


def test_a_record_that_is_missing_leaves_the_claim_open(chapter):
    one = {"a": {"name": "a", "task": "heads", "metrics": {"x": 2.0}}}
    open_ = judge(claim_of("z = 3", lambda e: ledger.exact(True, e.record("b", "make b"))), one, chapter)
    assert open_[:3] == (OPEN, "", "make b")
    assert judge(claim_of("z = 3", lambda e: ledger.judged(True, f"{e.record('a', '')['metrics']['x']}")), one,
                 chapter).records == ("a",)


# --- verdicts from records -----------------------------------------------------------------------------------------------------------------

def verdict(name: str, records: dict) -> str:
    return judge(CLAIMS[name], records, NBS).verdict


def wmt(d_model: int, bleu: float, steps: int = 300_000) -> dict:
    return {"run": {"name": "run", "task": "translation", "command": "c", "config": {"model": {"d_model": d_model}},
                    "metrics": {"bleu_paper/newstest2014_full": bleu, "steps": steps},
                    "data": {"name": "wmt14", "src": "en", "tgt": "de", "splits": {"train": {"pairs": 4_500_000}}}}}


def test_runs_on_the_papers_data():
    assert verdict("big_en_de", {}) == COMPUTE and verdict("big_en_de", wmt(512, 28.4)) == COMPUTE  # base is not big
    assert verdict("big_en_de", wmt(1024, 28.2)) == HOLDS and verdict("big_en_de", wmt(1024, 26.0)) == FAILS
    assert verdict("big_en_de", wmt(1024, 30.0)) == HOLDS and verdict("big_en_de", wmt(1024, 26.0, 1000)) == UNCLEAR  # more; shorter
    assert verdict("twelve_hours", wmt(512, 26.3)) == FAILS and verdict("twelve_hours", wmt(512, 26.5)) == HOLDS  # of all: 26.36
    assert verdict("wmt_pairs", wmt(512, 27.0)) == HOLDS and verdict("wmt_pairs_fr", wmt(512, 27.0)) == COMPUTE


def rows(**bleu: list[float]) -> dict:
    "Records of variations: a row, with the BLEU of each seed; perplexities follow, lower where BLEU is higher."
    found = {}
    for row, values in bleu.items():
        for seed, value in enumerate(values):
            name = f"variation_small_{row}_seed{seed}"
            found[name] = {"name": name, "task": "variation", "row": row, "seed": seed, "command": "c",
                           "metrics": {"perplexity": 10 - value / 10, "sacrebleu/dev": value}}
    return found


BASE = [30.0, 30.1, 29.9]


@pytest.mark.parametrize("name, others, expected", [
    ("one_head_worse", {}, OPEN), ("one_head_worse", {"A1": [28.0]}, HOLDS), ("one_head_worse", {"A1": [32.0]}, FAILS),
                                                    ("one_head_worse", {"A1": [30.2]}, UNCLEAR),
    ("dropout_helps", {"D1": [20.0]}, HOLDS), ("narrow_keys", {"B1": [28.0]}, OPEN),
                                                    ("narrow_keys", {"B1": [28.0], "B2": [29.0]}, HOLDS),
    ("narrow_keys", {"B1": [28.0], "B2": [33.0]}, FAILS), ("learned_positions", {"E": [30.05]}, UNCLEAR),
                                                    ("learned_positions", {"E": [20.0]}, FAILS),
    ("variants_and_base", {"AOP1": [29.0], "AOP2": [31.0]}, HOLDS),
                                                    ("deeper_is_better", {"C1": [25.0], "C2": [27.0], "C3": [30.0]}, UNCLEAR),
                                                    ("deeper_is_better", {"C1": [25.0], "C2": [27.0], "C3": [33.0]}, HOLDS),
])
def test_rows_against_the_spread_between_seeds(name, others, expected):
    assert verdict(name, rows(base=BASE, **others)) == expected


def test_one_seed_tells_nothing():
    assert verdict("one_head_worse", rows(base=[30.0], A1=[10.0])) == UNCLEAR


def test_measurements_beside_the_rows():
    def made(name, **metrics):
        return {name: {"name": name, "task": "variation", "hardware": "h", "command": "c", "row": None, "metrics": metrics}}

    positions = {f"perplexity_{part}/{kind}": 9.0 for part in ("within", "beyond") for kind in ("sinusoidal", "learned")}
    assert verdict("beyond_training", made("variation_small_positions", **positions)) == UNCLEAR  # one seed of each
    assert verdict("slower_steps", made("variation_small_step_time", **{"ratio/AOP1": 1.3, "ratio/AOP2": 1.25})) == HOLDS
    assert verdict("slower_steps", made("variation_small_step_time", **{"ratio/AOP1": 4.8, "ratio/AOP2": 3.4})) == FAILS
    with pytest.raises(InputError, match="no metric ratio/AOP2"):
        verdict("slower_steps", made("variation_small_step_time", **{"ratio/AOP1": 1.3}))


def head(over_untrained, over_shuffled, measure="antecedent", layer=0, number=0):
    return {"stack": "encoder", "measure": measure, "layer": layer, "head": number, "value": 0.8, "untrained": 0.3,
            "over_untrained": over_untrained, "over_shuffled": over_shuffled}


def heads(found: dict, run: str = "x", margins=((0.1, -0.1), (-0.1, -0.1))) -> dict:
    "A record of a model's heads; the margins of each head above the controls are the same for all measures."
    summary = {"found": found, "heads": {key: {"margin_low": [list(layer) for layer in margins]} for key in found}}
    return {f"heads_{run}": {"name": f"heads_{run}", "task": "heads", "data": {"run": run}, "metrics": {"sets": {"grammar": summary}}}}


GOOD, BAD = ([0.1, 0.2], [0.1, 0.2]), ([-0.1, 0.2], [0.1, 0.2])


@pytest.mark.parametrize("of_two, expected", [
    ((GOOD, GOOD), HOLDS), ((GOOD, BAD), UNCLEAR), ((BAD, BAD), FAILS), ((GOOD, ([0.1, 0.2], [-0.1, 0.2])), UNCLEAR),
    (([0.1, 0.2], None), None)])
def test_heads(of_two, expected):
    if expected is None:  # without a control nothing is shown
        assert verdict("pronouns", heads({"encoder/antecedent": head(*of_two)})) == FAILS
        return
    records = {name: record for run, margins in zip("xy", of_two) for name, record in heads({"encoder/antecedent": head(*margins)}, run).items()}
    assert verdict("pronouns", records) == expected and verdict("pronouns", heads({})) == OPEN == verdict("pronouns", {})


def test_many_heads_and_different_ones():
    constituent = {"encoder/constituent": head(*GOOD)}
    assert verdict("heads_and_structure", heads(constituent)) == HOLDS  # one of four heads
    assert verdict("heads_and_structure", heads(constituent, margins=[[0.1] + [-0.1] * 7])) == FAILS  # one of eight
    same = {f"encoder/{name}": head(*GOOD, name) for name in ("previous", "next")}
    assert verdict("heads_differ", heads(same)) == FAILS
    assert verdict("heads_differ", heads(same | {"encoder/next": head(*GOOD, "next", 1)})) == HOLDS
    assert verdict("heads_differ", heads(same | {"encoder/next": head(*BAD, "next", 1)})) == FAILS  # the other is no better than chance


def test_parsers_and_settings():
    def f1(**values):
        return {f"parsing_{name}": {"name": f"parsing_{name}", "command": "c", "metrics": metrics} for name, metrics in values.items()}

    def parsers(ours):
        return f1(craft={"f1_12/test": ours}, ptb_sample={"f1_12/test": ours}, baselines_craft={"f1_pcfg/test_12": 77.0},
                  baselines_ptb_sample={"f1_pcfg/test_12": 77.0})

    assert [verdict("above_a_grammar", parsers(x)) for x in (81.0, 76.5, 73.0)] == [HOLDS, UNCLEAR, FAILS]
    semi = lambda alone, more: f1(craft_tenth={"f1/test": alone}, craft_semi={"f1/test": more})  # noqa: E731
    assert [verdict("machine_parses_help", semi(*x)) for x in ((12.0, 30.0), (80.0, 85.0), (80.0, 79.0), (80.0, 70.0))] == [
        UNCLEAR, HOLDS, UNCLEAR, FAILS]

    def settings(best, points=12):
        made = [{"sacrebleu": 30.0, "interval": [29.0, 31.0], "checkpoints": 5, "beam_size": 4, "alpha": 0.6}] * points
        made[-1] = made[-1] | {"sacrebleu": best}
        return {"settings_x": {"name": "settings_x", "task": "translation", "command": "c", "metrics": {"points": made}}}

    assert [verdict("chosen_settings", settings(x)) for x in (29.5, 30.5, 31.5)] == [HOLDS, UNCLEAR, FAILS]
    assert verdict("chosen_settings", settings(29.5, points=5)) == OPEN


def test_time_of_layers():
    def layer(name, seconds):
        return {"name": f"complexity_{name}", "task": "complexity", "config": {"layer": name, "device": "cpu"},
                "metrics": {"passes": [{"n": n, "d": 128, "seconds": seconds, "peak_bytes": 1, "flops": 1}
                                       for n in (16, 64, 256)]}}

    def made(**seconds):
        return {f"complexity_{name}": layer(name.replace("_", "-"), s) for name, s in seconds.items()}

    assert verdict("faster_below_the_width", {}) == OPEN == verdict("faster_below_the_width", made(self_attention=1.0, GRU=2.0, LSTM=2.0))
    for lstm, expected in ((3.0, HOLDS), (0.5, FAILS), (1.01, UNCLEAR)):
        assert verdict("faster_below_the_width", made(self_attention=1.0, recurrent=2.0, GRU=2.0, LSTM=lstm)) == expected


def test_what_the_paper_contradicts_itself_in(found):
    assert {name for name, f in found.items() if f.verdict == AGAINST} == {
        "one_number_en_fr", "last_wavelength", "three_kinds", "better_and_cheaper", "deeper_in_bleu", "parameter_column", "only_one_better",
                                                                           "heads_of_the_second"}


# --- the command ---------------------------------------------------------------------------------------------------------------------------

def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    ledger.main(["--out", str(tmp_path / "out")])
    out, err = capsys.readouterr()
    counted = [int(n) for n in re.findall(r"^ *(\d+) (?!files)", out, re.M)]
    assert sum(counted) == len(CLAIMS) and not err
    page = (tmp_path / "out" / "ledger.md").read_text()
    assert all(results.markdown_text(claim.says) in page for claim in CLAIMS.values())
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.json").write_text("{")
    with pytest.raises(SystemExit) as ended:
        ledger.main(["--out", str(tmp_path / "none"), "--records", str(tmp_path / "bad")])
    assert ended.value.code == 2 and capsys.readouterr().err.count("\n") == 1 and not (tmp_path / "none").exists()
    assert "pandas" in sys.modules  # the tables of the paper need it
