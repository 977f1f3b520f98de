"""The tables of results: every cell the paper's or a record's, escaped and linked, else missing; and the records themselves."""
import ast
import fnmatch
import json
import math
import os
import re
import shutil
import subprocess
from dataclasses import asdict, replace
from datetime import date
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_transformer.paper import tables as paper
from annotated_transformer.experiments import results
from annotated_transformer.tools.files import InputError
from annotated_transformer.model.transformer import BASE
from annotated_transformer.experiments.judges import judge_all
from annotated_transformer.experiments.sweep import command_for
from annotated_transformer.experiments.verdicts import read_claims
from annotated_transformer.drawing.result_tables import Cell, ResultTable, missing, to_html, to_latex, to_markdown
from annotated_transformer.tools.records import finished, read_records

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "nbs" / "results"
NOT_A_COMMIT: set[str] = set()  # records whose revision is none of this repository's commits; each needs a reason


def record(name: str, task: str, metrics: dict, **more) -> dict:
    "A whole record."
    return {"name": name, "task": task, "row": None, "command": f"make {name}", "revision": "0123abc", "date": "2026-01-01",
            "data": {}, "config": {"model": {"pre_norm": True}},
            "seed": 0, "hardware": "a machine", "versions": {}, "seconds": 10.0, "metrics": metrics} | more


def variation(row: str, seed: int, perplexity: float, bleu: float) -> dict:
    return record(f"row_small_{row}_seed{seed}", "variation",
                  {"perplexity": perplexity, "sacrebleu/dev": bleu, "steps": 2000, "parameters": 4_000_000},
                  row=row, seed=seed, sittings=[])


def cells(table: ResultTable) -> list[Cell]:
    return [cell if isinstance(cell, Cell) else Cell(cell) for line in table.lines for cell in line]


def named(*records: dict) -> dict[str, dict]:
    return {r["name"]: r for r in records}


@pytest.fixture(scope="module")
def whole() -> dict[str, dict]:
    return read_records(RECORDS)


@pytest.fixture(scope="module")
def tables(whole) -> dict[str, ResultTable]:
    return results.all_tables(finished(whole))


# --- the records of this repository ----------------------------------------------------------------------------------------------------

def test_records_say_where_they_come_from(whole):
    complaints = []
    for name, r in whole.items():
        if name not in NOT_A_COMMIT and not re.fullmatch(r"[0-9a-f]{7,40}", r["revision"]):
            complaints.append(f"{name}: revision {r['revision']!r} is no clean commit")
        if not r["command"] or r["command"] == "from Python":
            complaints.append(f"{name}: its command is {r['command']!r}, which nobody can give again")
        if not (r["data"].get("name") or r["data"].get("run") or r["data"].get("folder")):
            complaints.append(f"{name}: its data have no name")
        if not r["hardware"] or not r["versions"].get("torch"):
            complaints.append(f"{name}: no hardware, or no version of torch")
        try:
            date.fromisoformat(r["date"])
        except ValueError:
            complaints.append(f"{name}: date {r['date']!r}")
    assert not complaints, "\n".join(complaints)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_revisions_are_commits_of_this_repository(whole):
    asked = {r["revision"] for name, r in whole.items() if name not in NOT_A_COMMIT}
    known = subprocess.run(["git", "cat-file", "--batch-check"], input="".join(f"{revision}^{{commit}}\n" for revision in asked),
                           cwd=ROOT, text=True,
                           capture_output=True, check=True).stdout
    unknown = re.findall(r"^(\S+?)\^\{commit\} missing", known, re.M)
    assert not unknown, f"no such commits: {unknown}, in {[name for name, r in whole.items() if r['revision'] in unknown]}"


def patterns(notebook: Path) -> set[str]:
    "What a chapter's code may read: its strings as glob patterns, with `*` for what an f-string works out."
    found = set()
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        try:
            nodes = list(ast.walk(ast.parse(source))) if cell["cell_type"] == "code" else []
        except SyntaxError:
            nodes = []
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                found.add("".join(v.value if isinstance(v, ast.Constant) else "*" for v in node.values))
    return {p.split("/")[-1].removesuffix(".json") for p in found if len(re.sub(r"[*\W]", "", p)) > 4 and len(p) < 120}


def test_every_record_is_used(whole, tables):
    in_tables = {name for table in tables.values() for cell in cells(table) for name in cell.records}
    in_tables |= {name for found in judge_all(read_claims()["claim"], whole, RECORDS).values() for f in found for name in f.records}
    read = {p for notebook in (ROOT / "nbs").glob("[0-9]*.ipynb") for p in patterns(notebook)}
    unused = [name for name in whole if name not in in_tables and not any(fnmatch.fnmatchcase(name, p) for p in read)]
    assert not unused, f"no chapter reads {', '.join(unused)}"


def test_a_use_is_found_and_a_missing_one_is_noticed(tmp_path):
    cells = [{"cell_type": "code", "source": 'Path("results/one_thing.json"), f"other_{x}_cpu.json", glob("third_*")'},
             {"cell_type": "markdown", "source": "fourth_thing"}]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    read = patterns(tmp_path / "a.ipynb")
    used = [name for name in ("one_thing", "other_7_cpu", "third_thing", "fourth_thing")
            if any(fnmatch.fnmatchcase(name, p) for p in read)]
    assert used == ["one_thing", "other_7_cpu", "third_thing"]


# --- reading -----------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("content, said", [
    ("{", "not JSON"), ("[]", "not a JSON object"), ("{}", "not a result record"), ('{"name": "broken", "task": "variation", "metrics": {}}', "it has no command"),
    (json.dumps(record("other", "variation", {})), "is named other"),
                                           (json.dumps(record("broken", "variation", []) | {"metrics": [1]}), "no metrics"),
])
def test_a_file_that_is_no_record_is_one_line(tmp_path, capsys, content, said):
    (tmp_path / "broken.json").write_text(content)
    with pytest.raises(InputError, match=r"broken\.json.*") as caught:
        read_records(tmp_path)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(SystemExit) as ended:
        results.main(["--out", str(tmp_path / "out"), "--records", str(tmp_path)])
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and err.count("\n") == 1 and said in err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("metrics, said", [({}, "no metric perplexity"), ({"perplexity": None}, "None"),
                                           ({"perplexity": math.inf}, "inf"), ({"perplexity": "5"}, "'5'")])
def test_a_metric_that_is_missing_is_one_line(metrics, said):
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        results.table_3(named(variation("base", 0, 5, 30) | {"metrics": metrics}))
    assert "row_small_base_seed0.json" in str(caught.value) and "make row_small_base_seed0" in str(caught.value)


def test_no_checkout_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="go to the top of the checkout"):
        read_records()


# --- the tables --------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("make, n, columns", [
    (results.table_1, 1, {("the paper", "complexity per layer"): "complexity_per_layer", ("the paper", "maximum path length"): "maximum_path_length"}),
    (results.table_2, 2, {("BLEU EN-DE", "paper"): "bleu_en_de", ("BLEU EN-FR", "paper"): "bleu_en_fr"}),
    (results.table_3, 3, {("PPL (dev)", "paper"): "ppl", ("BLEU (dev)", "paper"): "bleu", ("params ×10⁶", "paper"): "params_millions", ("", "h"): "h"}),
    (results.table_4, 4, {("F1", "paper"): "f1"}),
    (results.appendix_table, "appendix", {("PPL (dev)", "paper"): "ppl", ("BLEU (dev)", "paper"): "bleu", ("", "n_p"): "n_p"}),
])
def test_the_papers_cells_are_the_papers(make, n, columns):
    "Without records: each printed number in its place, each of ours missing with a command, and nothing else."
    ours, theirs = make({}).frame, paper.table(n)
    assert len(ours) == len(theirs)
    for column, name in columns.items():
        for shown, value in zip(ours[column], theirs[name]):
            assert pd.isna(value) and not shown or shown == str(value) or float(shown.strip("*")) == float(value)
    assert all(c.command for c in cells(make({})) if c == "missing") and not any(c.records for c in cells(make({})))


def test_table_3_is_filled_by_records():
    rows = list(paper.table(3).row)
    found = named(*(variation(row, 0, 5 + i / 10, 30 - i) for i, row in enumerate(rows)), variation("base", 1, 5.2, 31.0),
                  variation("base", 2, 5.4, 32.0), record("row_tiny_A1_seed0", "variation", {}),
                  record("row_small_step_time", "variation", {"ratio/AOP1": 1.4}, sittings=[]))
    table = results.table_3(found)
    shown = table.frame
    assert "missing" not in set(cells(table)) and table.commands == []
    # 5.0, 5.2, 5.4: mean 5.2, and the squares of the deviations sum to 0.08, over 2; 30, 31, 32: mean 31, deviation 1
    assert shown["PPL (dev)", "ours"][0] == "5.20 ± 0.20" and shown["BLEU (dev)", "ours"][0] == "31.0 ± 1.0"
    assert shown["PPL (dev)", "ours"][1] == "5.10" and shown["BLEU (dev)", "ours"][len(rows) - 1] == "11.0"
    bases = {f"row_small_base_seed{i}" for i in range(3)}
    assert any(set(c.records) == bases for c in cells(table)) and {name for c in cells(table) for name in c.records} <= set(found)
    steps = found["row_small_step_time"] | {"metrics": {"ratio/AOP1": 1.4, "ratio/AOP2": 1.2}}
    aop = results.appendix_table(found | named(variation("AOP1", 0, 4.9, 33.0), steps)).frame
    assert list(aop["time / base's", "ours"]) == ["1.00", "1.40", "1.20"]
    assert list(aop["training time", "paper"]) == ["12 hours", "16 hours", "16 hours"]
    assert list(aop["BLEU (dev)", "ours"][1:]) == ["33.0", "missing"]


def test_rows_of_several_machines_are_not_averaged_and_say_which():
    def trained(row: str, seed: int, machine: str, precision: str, ppl: float, bleu: float) -> dict:
        config = {"model": {"pre_norm": False}, "training": {"precision": precision}}
        return variation(row, seed, ppl, bleu) | {"hardware": machine, "config": config}

    gpu, old, new = ("1 x A GPU", "bfloat16"), ("A CPU (AVX512), 1 thread", "bfloat16"), ("A CPU (AVX2), 1 thread", "float32")
    bases = [trained("base", seed, *on, 5 + seed, 30 - seed) for seed, on in enumerate([gpu] * 3 + [old] * 2 + [new])]
    rows = [trained("A1", 0, *gpu, 5.5, 20), trained("A1", 3, *old, 9, 1), trained("A1", 4, *old, 9, 1), trained("A3", 1, *gpu, 6, 25),
            trained("A4", 1, *gpu, 6, 25), trained("A2", 3, *old, 5.25, 21), trained("A2", 5, *new, 1, 90), trained("A2", 4, *old, 5.75, 23),
            trained("AOP1", 5, *new, 4, 22), trained("C1", 7, "another CPU, 1 thread", "bfloat16", 6, 25)]  # no base there
    table, appendix = results.table_3(named(*bases, *rows)), results.appendix_table(named(*bases, *rows))
    shown = table.frame["PPL (dev)", "ours"]
    assert list(shown[:5]) == ["6.00 ± 1.00", "5.50", "5.50 ± 0.35‡", "6.00", "6.00"] and table.frame["BLEU (dev)", "ours"][2] == "22.0 ± 1.4‡"
    assert shown[7] == "missing" and list(appendix.frame["PPL (dev)", "ours"]) == ["6.00 ± 1.00", "4.00‡", "missing"]
    assert "3 seeds, 1 of A1, 2 of A2, 1 of A3, 1 of A4; trained on A GPU, bfloat16; ‡: on A CPU, bfloat16, where base has 8.50 ± 0.71 and 26.5 ± 0.7" in table.caption
    assert "‡: on A CPU, float32, where base has 10.00 and 25.0" in appendix.caption and "‡: on A CPU, bfloat16" not in appendix.caption
    alone = results.table_3(named(*bases[:3], rows[6]))  # no base of its own precision
    assert alone.frame["PPL (dev)", "ours"][2] == "missing" and "‡" not in alone.caption


def test_captions_say_how_the_small_runs_were_made():
    post = variation("base", 0, 5, 30)
    post["config"] = {"model": {"pre_norm": False}}
    for make in (results.table_3, results.appendix_table):
        said = make(named(post)).caption
        assert "Multi30k" in said and "divided by 4" in said and "2,000 steps" in said and "post-norm" in said and "pre-norm" not in said


def test_missing_rows_name_the_sweeps_own_commands():
    for make in (results.table_3, results.appendix_table):
        assert all(command.startswith("annotated-transformer prepare data/multi30k --corpus multi30k && ") for command in make({}).commands)
    assert results.table_3({}).commands[0] == command_for(["base"], "small")


def test_abandoned_runs_are_in_no_table_but_their_own():
    given_up = variation("base", 0, 5, 30) | {"status": "abandoned", "reason": "the loss rose"}
    assert not finished(named(given_up)) and results.abandoned(named(given_up)).lines[0][2] == "the loss rose"
    assert "no record" in results.abandoned({}).caption


def passed(layer: str, seconds: float, **config) -> dict:
    "The record of a layer's times."
    config = {"layer": layer, "device": "cpu", "batch": 8, "k": 3, "r": 63} | config
    passes = [{"n": n, "d": d, "seconds": seconds * n / 512} for d in (256, 512) for n in (32, 128, 512, 2048)]
    return record(f"complexity_{layer}", "complexity", {"passes": passes}, config=config)


def test_table_1_says_how_it_was_measured():
    table = results.table_1(named(passed("self-attention", 0.25, batch=5, r=31)))
    assert "batches of 5, k = 3, r = 31, a machine" in table.caption
    assert list(table.lines[0][4:]) == ["15.6†", "62.5†", "250†", "1,000†"] and set(table.lines[1][4:]) == {"missing"}


def translated(name: str, data: str, tgt: str, d_model: int, **metrics) -> dict:
    facts = {"name": data, "src": "en", "tgt": tgt, "splits": {"train": {"pairs": 1000}}}
    return record(name, "translation", {"steps": 5, "parameters": 6_000_000, "tokens_per_second": 100} | metrics, data=facts,
                  config={"model": asdict(replace(BASE, d_model=d_model)), "training": {}}, signature="tok:13a")


def test_table_2_takes_a_run_on_the_papers_data_by_its_recipe():
    found = named(translated("wmt14_base_de", "wmt14", "de", 512, **{"sacrebleu/newstest2014_full": 26.5, "bleu_paper/newstest2014_full": 27.54}))
    shown = results.table_2(found).frame
    assert shown["BLEU EN-DE", "ours"].tolist()[-2:] == ["27.5†", "missing"] and shown["BLEU EN-FR", "ours"].tolist()[-2:] == ["missing"] * 2
    assert set(shown["BLEU EN-DE", "ours"][:8]) == {""}  # other people's systems
    with pytest.raises(InputError, match="no metric bleu_paper/newstest2014_full"):
        results.table_2(named(translated("wmt14_base_de", "wmt14", "de", 512, **{"sacrebleu/newstest2014_full": 26.5})))


def test_a_test_set_comes_before_newstest2013():
    scores = {f"sacrebleu/{name}": 4.0 + i for i, name in enumerate(("dev", "newstest2013", "newstest2014_full", "other"))}
    found = translated("a", "ende", "de", 512, **scores)
    assert results.on_sets(found) == ["newstest2014_full", "other", "newstest2013"]
    assert results.on_sets(translated("b", "ende", "de", 512, **{"sacrebleu/dev": 1.0})) == ["dev"]


def test_costs_by_hand():
    "Time: 12 h x 8 x 9.5 TFLOPS. Count: 6 operations for each of base's 63,045,632 parameters."
    assert results.cost_by_time(12, 8, "P100") == 12 * 3600 * 8 * 9.5e12 == 3.2832e18
    assert f"{results.cost_by_time(3.5 * 24, 8, 'P100'):.1e}" == "2.3e+19"
    assert results.cost_by_count(BASE, 2.0) == 12 * 63_045_632


def test_our_runs_tell_both_bleus_and_their_cost():
    found = named(translated("a", "multi30k", "de", 512, **{"sacrebleu/test": 33.34, "bleu_paper/test": 34.0, "sacrebleu/dev": 1.0}),
                  translated("b", "multi30k", "fr", 512, **{"sacrebleu/dev": 50.0, "bleu_moses/dev": 51.0}),
                  translated("c", "multi30k", "de", 512, **{"sacrebleu/test": 20.0}),
                  record("settings", "translation", {"points": []}, config={"model": {}}))
    shown = results.our_runs(found).frame.set_index(("", "run"))
    assert shown["BLEU", "sacreBLEU"].to_dict() == {"a": "33.3†", "c": "20.0†", "b": "50.0†"}
    assert shown["BLEU", "paper's recipe"].to_dict() == {"a": "34.0†", "c": "not scored", "b": "51.0†"}
    counted = set(shown["cost (FLOPs)", "counted"])
    assert counted == {results.power(1000 * results.cost_by_count(BASE, 1.0)) + "†"}  # 1,000 tokens


def test_table_4_and_its_missing_cells():
    facts = {"trained_on": "CRAFT", "tested_on": "CRAFT's test", "training_trees": 17_000}
    parser = record("parsing_craft", "parsing", {"f1/test": 80.04, "f1_40/test": 85.0}, config={"model": {"n_layers": 3, "d_model": 256}}, **facts)
    grammar = record("parsing_baselines_craft", "parsing", {"f1_right/test": 9.0, "f1_pcfg/test": 99.98}, config={}, **facts)
    lstm = record("parsing_craft_recurrent", "parsing", {"f1/test": 78.6}, config={"kind": "recurrent", "model": {"n_layers": 3, "d_model": 208}}, **facts)
    assert "LSTM with attention (3 layers, 208 wide)" in results.table_4(named(lstm)).frame["", "parser"].tolist()
    table = results.table_4(named(parser, grammar, record("parsing_wsj", "parsing", {"f1/test": 91.0})))
    shown = table.frame
    assert shown["F1", "ours"].tolist()[len(paper.table(4)):] == ["80.0†", "9.0†", "99.98†"]  # 99.98 is not 100.0
    assert "91.0†" in shown["F1", "ours"].tolist() and len(table.commands) == 1
    assert shown["", "parser"].tolist()[-3:] == ["Transformer (3 layers, 256 wide)", "right branches", "counted grammar (PCFG)"]


def test_systems_that_live_here_stand_beside_the_papers():
    "Without records everything of ours is missing, with a command; with them each is in its own line and column."
    empty = results.table_2_here({})
    command = "python -m annotated_transformer.experiments.rivals_measured next"
    assert {c.command for c in cells(empty) if c == "missing"} == {command, f"{command} --rules wider_rates", f"{command} --rules input_feeding"}
    assert set(empty.frame["the paper: newstest2014", "EN-DE"]) - {""} <= {str(line[2]) for line in paper.printed(2)[0]}
    test = "sacrebleu/test_2016_flickr"
    found = named(*(record(f"rival_test_recurrent_seed{i}", "rival", {test: 30.0 + i}, sittings=[]) for i in range(3)),
                  record("rival_recurrent_seed0", "rival", {"parameters": 4.8e6, "flops": 3e14}, sittings=[]),
                  record("rival_test_recurrent_fr_seed0", "rival", {test: 44.0}, sittings=[]),
                  record("rival_test_ensemble_recurrent", "rival", {test: 33.0}, sittings=[]),
                  record("wider_rates_test_recurrent_seed0", "rival", {test: 35.0}, sittings=[]),
                  record("wider_rates_test_ensemble_recurrent", "rival", {test: 36.0}, sittings=[]))
    shown = results.table_2_here(found).frame.set_index(("", "system"))
    here = "here: Multi30k, test_2016_flickr"
    assert list(shown.loc["GNMT, before RL"][[(here, "EN-DE"), (here, "EN-DE, higher rates"), (here, "EN-FR"), (here, "weights ×10⁶")]]) == ["31.0 ± 1.0", "35.0", "44.0", "4.8"]
    assert list(shown.loc["GNMT, before RL, three seeds together"][[(here, "EN-DE"), (here, "EN-DE, higher rates")]]) == ["33.0", "36.0"]
    assert shown.loc["MoE [32]"][here, "EN-DE, higher rates"] == "not made" and shown.loc["GNMT + RL [38]"][here, "EN-DE"] == "missing"
    assert shown.loc["GNMT + RL Ensemble [38]"][here, "EN-DE"] == "not made"
    later = named(record("wider_rates_test_input-feeding_seed0", "rival", {test: 34.0}, sittings=[]),
                  record("wider_rates_input-feeding_seed0", "rival", {"parameters": 4.5e6, "flops": 3e14}, sittings=[]))
    shown = results.table_2_here(later).frame.set_index(("", "system")).loc["LSTMs with input feeding"][here].tolist()
    assert shown == ["not made", "34.0", "not made", "4.5", "3.0·10¹⁴"]
    parsers = results.table_4_here(named(*(record(f"parsing_craft_seed{i}", "parsing", {"f1/test": 80.0 + i, "f1_free/test": 70.0, "parameters": 3e6}, sittings=[])
                                           for i in range(2))))
    assert list(parsers.frame["here: CRAFT's test set", "F1, free search"]) == ["missing", "70.0 ± 0.0"]
    assert list(parsers.frame["here: CRAFT's test set", "F1"]) == ["missing", "80.5 ± 0.7"] and list(parsers.frame["the paper: WSJ section 23", "F1"]) == ["88.3", "91.3"]


def test_seeds_of_a_parser_are_one_line():
    facts = {"trained_on": "CRAFT", "tested_on": "CRAFT's test", "training_trees": 17_000, "config": {"model": {"n_layers": 3, "d_model": 256}}}
    seeds = named(*(record(f"parsing_craft_seed{i}", "parsing", {"f1/test": f1}, sittings=[], **facts) for i, f1 in enumerate((50.0, 51.0, 52.0))))
    assert results.table_4(seeds).frame["F1", "ours"].tolist()[len(paper.table(4)):] == ["51.0 ± 1.0"]


# --- three ways of writing ---------------------------------------------------------------------------------------------------------------

class Page(HTMLParser):
    "The cells of the tables of a page, with their columns, and the targets of its links."

    def __init__(self, text: str):
        super().__init__()
        self.rows, self.links, self.tags, self.inside = [], [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        attributes = dict(attributes)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append(["", int(attributes.get("colspan", 1))])
            self.inside = True
        if tag == "a":
            self.links.append(attributes["href"])

    def handle_endtag(self, tag):
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data):
        if self.inside:
            self.rows[-1][-1][0] += data


def trial(text: str) -> ResultTable:
    return ResultTable("A trial", "of signs", [("", "row"), ("group", "a"), ("group", "b")],
                       [(text, Cell(text), Cell(text, ["run"])), ("last", "x", "y")], rules=[1])


SIGNS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Z"]), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(text=SIGNS.filter(lambda text: not re.fullmatch(r"\*.+\*", text)) | st.sampled_from(
    ["<script>alert(1)</script>", "a | b", "$x$ & 50%", r"\end{tabular}", "a_b*c*", "`[x](y)`", '"><b>', "&amp;", "{", "}"]))
def test_any_text_is_text(text):
    page = Page(to_html(trial(text)))
    assert [cell for cell, _ in page.rows[2]] == [text] * 3 and not {"script", "img", "b"} & set(page.tags[page.tags.index("td"):])
    assert all(sum(span for _, span in row) == 3 for row in page.rows)  # every line covers every column
    row = to_markdown(trial(text)).splitlines()[4]
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 4  # three cells: four bars that are not escaped
    latex = to_latex(trial(text))
    plain = re.sub(r"\\[{}&%$#_]", "", latex)  # without escaped signs
    depth = [0]
    for sign in plain:
        depth.append(depth[-1] + {"{": 1, "}": -1}.get(sign, 0))
    assert min(depth) == depth[-1] == 0 and plain.count("$") % 2 == 0 and "%" not in plain
    assert plain.count("&") == 2 + 2 + 2 + 1 and plain.count(r"\end{tabular}") == 1  # two lines, names, groups


def test_signs_of_the_tables_are_known_to_latex(tables):
    for name, table in tables.items():
        assert to_latex(table).isascii(), (name, {sign for sign in to_latex(table) if not sign.isascii()})


def test_latex_rows_cover_every_column(tables):
    for name, table in tables.items():
        text = to_latex(table)
        kinds = re.search(r"\\begin\{(?:tabular|longtable)\}\{(.*)\}$", text, re.M)[1].replace("p{4.5cm}", "p")
        rows = [line for line in re.sub(r"\\&", "", text).splitlines() if line.endswith(r" \\") and not line.startswith(r"\caption")]
        spans = {sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", row)) + row.count("&") + 1 for row in rows}
        assert re.fullmatch("[lrp]+", kinds) and spans == {len(kinds)} == {len(table.columns)}, name
        assert text.count(r"\item ") == len(table.commands)
        assert text.count(r"\midrule") == 1 + len([rule for rule in table.rules if rule])


def test_a_long_table_goes_over_pages():
    line = ("a few words that wrap, " * 9, missing("train --all"))
    short, long = (to_latex(ResultTable("The list", "of n", ["a", "b"], [line] * n)) for n in (40, 41))
    assert "longtable" not in short and r"\begin{tabular}{p{4.5cm}r}" in short and r"\begin{longtable}{p{4.5cm}r}" in long


def test_several_records_are_told_by_their_seeds():
    runs, others = Cell("8.39", ["row_seed0", "row_seed12"]), Cell("5.5·10¹³", ["run", "benchmark_seed1"])
    table = ResultTable("t", "", ["a", "b"], [(runs, others)])
    page = Page(to_html(table))
    assert page.rows[1] == [["8.39 (0, 12)", 1], ["5.5·10¹³ (1, 2)", 1]]
    assert page.links == [f"results/{name}.json" for name in ("row_seed0", "row_seed12", "run", "benchmark_seed1")]
    assert "8.39 ([0](results/row_seed0.json), [12](results/row_seed12.json))" in to_markdown(table)
    assert r"8.39 (\href{results/row_seed0.json}{0}, " in to_latex(table)


def test_a_wrong_number_of_cells_is_refused():
    with pytest.raises(ValueError, match="1 cells for 2 columns, in the line of 'x'"):
        ResultTable("t", "", ["a", "b"], [("x",)])


def test_missing_cells_are_numbered_once():
    table = ResultTable("t", "", ["a", "b"], [(missing("one"), missing("two")), (missing("one"), "x")])
    assert table.commands == ["one", "two"]
    assert [cell for row in Page(to_html(table)).rows[1:] for cell, _ in row] == ["missing [1]", "missing [2]", "missing [1]", "x"]


def test_style_stands_in_every_cell(tables):
    "A notebook that is not trusted keeps no style sheet."
    for table in tables.values():
        html = to_html(table)
        assert "<style" not in html and "class=" not in html and html.count("<td style=") == html.count("<td") > 0


def test_files_whose_links_lead_somewhere(tmp_path, tables, monkeypatch):
    monkeypatch.chdir(ROOT)
    made = results.write_tables(tables, tmp_path / "out")
    assert len(made) == 3 * len(results.all_tables({})) and all(path.stat().st_size > 200 for path in made)
    links = [(path, link) for path in made for link in (
        Page(path.read_text()).links if path.suffix == ".html" else re.findall(r"\]\(([^)]+)\)" if path.suffix == ".md"
                                                                               else r"\\href\{([^}]+)\}", path.read_text()))]
    assert links
    for path, link in links:
        assert (path.parent / link.replace("\\", "").split("#")[0]).exists(), (path.name, link)


def test_the_saved_tables_are_those_of_the_records(tables, monkeypatch):
    saved, fresh = ROOT / "figures" / "tables", ROOT / "build" / f"tables-{os.getpid()}"  # as deep, so the links are the same
    monkeypatch.chdir(ROOT)
    try:
        stale = [path.name for path in results.write_tables(tables, fresh)
                 if not (saved / path.name).exists() or (saved / path.name).read_bytes() != path.read_bytes()]
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    assert not stale, f"figures/tables: {', '.join(stale)} are not what the records give; run: make notebooks NB=results"


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    results.main(["--out", str(tmp_path / "tables")])
    out, err = capsys.readouterr()
    assert "24 files" in out and not err and "<table" in (tmp_path / "tables" / "table_3.html").read_text()
