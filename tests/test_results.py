"""The tables of results: every cell the paper's or a record's, escaped and linked, else missing; and the records themselves."""
import ast
import fnmatch
import json
import math
import os
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_transformer import paper
from annotated_transformer.experiments import results
from annotated_transformer.files import InputError
from annotated_transformer.model import BASE, Transformer
from annotated_transformer.experiments.results import Cell, ResultTable, missing, to_html, to_latex, to_markdown
from annotated_transformer.experiments.sweep import command_for

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "nbs" / "results"
NOT_A_COMMIT: set[str] = set()  # records whose revision is none of this repository's commits; each needs a reason


def record(name: str, task: str, metrics: dict, **more) -> dict:
    "A whole record."
    return {"name": name, "task": task, "row": None, "command": f"make {name}", "revision": "0123abc", "date": "2026-01-01",
            "data": {}, "config": {},
            "seed": 0, "hardware": "a machine", "versions": {}, "seconds": 10.0, "metrics": metrics} | more


def variation(row: str, seed: int, perplexity: float, bleu: float) -> dict:
    return record(f"variation_small_{row}_seed{seed}", "variation",
                  {"perplexity": perplexity, "sacrebleu/dev": bleu, "steps": 2000, "parameters": 4_000_000},
                  row=row, seed=seed)


def named(*records: dict) -> dict[str, dict]:
    return {r["name"]: r for r in records}


@pytest.fixture(scope="module")
def whole() -> dict[str, dict]:
    return results.read_records(RECORDS)


@pytest.fixture(scope="module")
def tables(whole) -> dict[str, ResultTable]:
    return results.all_tables(whole)


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
    in_tables = {name for table in tables.values() for cell in table.cells for name in cell.records}
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
    ("{", "not JSON"), ("[]", "not a result record"), ('{"name": "broken"}', "it has no task, command"),
    (json.dumps(record("other", "variation", {})), "is named other"),
                                           (json.dumps(record("broken", "variation", []) | {"metrics": [1]}), "no metrics"),
])
def test_a_file_that_is_no_record_is_one_line(tmp_path, capsys, content, said):
    (tmp_path / "broken.json").write_text(content)
    with pytest.raises(InputError, match=r"broken\.json.*") as caught:
        results.read_records(tmp_path)
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
    assert "variation_small_base_seed0.json" in str(caught.value) and "make variation_small_base_seed0" in str(caught.value)


def test_no_checkout_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="go to the top of the checkout"):
        results.read_records()


# --- the tables --------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("make, n, columns", [
    (results.table_1, 1, {("Complexity per layer", "paper"): "complexity_per_layer",
                          ("Maximum path length", "paper"): "maximum_path_length"}),
    (results.table_2, 2, {("BLEU EN-DE", "paper"): "bleu_en_de", ("BLEU EN-FR", "paper"): "bleu_en_fr"}),
    (results.table_3, 3, {("PPL (dev)", "paper"): "ppl", ("BLEU (dev)", "paper"): "bleu",
                          ("params ×10⁶", "paper"): "params_millions", ("", "h"): "h"}),
    (results.table_4, 4, {("F1", "paper"): "f1"}),
    (results.appendix_table, "appendix", {("PPL (dev)", "paper"): "ppl", ("BLEU (dev)", "paper"): "bleu", ("", "n_p"): "n_p"}),
])
def test_the_papers_cells_are_the_papers(make, n, columns):
    "Without records: each printed number in its place, each of ours missing with a command, and nothing else."
    ours, theirs = results.frame(make({})), paper.table(n)
    assert len(ours) == len(theirs) + (n == 1)  # the separable convolution is a line of ours
    for column, name in columns.items():
        for shown, value in zip(ours[column], theirs[name]):
            assert pd.isna(value) and not shown or shown == str(value) or float(shown) == float(value)
    assert all(c.command for c in make({}).cells if c.text == "missing") and not any(c.records for c in make({}).cells)


def test_table_3_is_filled_by_records():
    rows = list(paper.table(3).row)
    found = named(*(variation(row, 0, 5 + i / 10, 30 - i) for i, row in enumerate(rows)), variation("base", 1, 5.2, 31.0),
                  variation("base", 2, 5.4, 32.0),
                  record("variation_tiny_A1_seed0", "variation", {}),
                  record("variation_small_step_time", "variation", {"ratio/AOP1": 1.4}))
    table = results.table_3(found)
    shown = results.frame(table)
    assert "missing" not in set(c.text for c in table.cells) and table.commands == []
    # 5.0, 5.2, 5.4: mean 5.2, and the squares of the deviations sum to 0.08, over 2; 30, 31, 32: mean 31, deviation 1
    assert shown["PPL (dev)", "ours"][0] == "5.20 ± 0.20" and shown["BLEU (dev)", "ours"][0] == "31.0 ± 1.0"
    assert shown["PPL (dev)", "ours"][1] == "5.10" and shown["BLEU (dev)", "ours"][len(rows) - 1] == "11.0"
    bases = {f"variation_small_base_seed{i}" for i in range(3)}
    assert any(set(c.records) == bases for c in table.cells) and {name for c in table.cells for name in c.records} <= set(found)
    steps = found["variation_small_step_time"] | {"metrics": {"ratio/AOP1": 1.4, "ratio/AOP2": 1.2}}
    aop = results.frame(results.appendix_table(found | named(variation("AOP1", 0, 4.9, 33.0), steps)))
    assert list(aop["training time / base's", "ours"]) == ["1.00", "1.40", "1.20"]
    assert list(aop["training time", "paper"]) == ["12 hours", "16 hours", "16 hours"]
    assert list(aop["BLEU (dev)", "ours"][1:]) == ["33.0", "missing"]


def test_captions_say_how_the_small_runs_were_made(monkeypatch):
    "Taken from the scale itself: another scale, another caption."
    small = results.SCALES["small"]
    for make in (results.table_3, results.appendix_table):
        said = make({}).about
        assert "Multi30k" in said and "divided by 4" in said and f"{small.training.steps:,} steps" in said and "pre-norm" in said
        assert "WMT 2014" in make({}, "full").about and "divided" not in make({}, "full").about
    other = small._replace(divide=8, pre_norm=False, corpus="grammar", training=replace(small.training, steps=77))
    monkeypatch.setitem(results.SCALES, "small", other)
    said = results.table_3({}).about
    assert "divided by 8" in said and "77 steps" in said and "post-norm" in said and "the grammar" in said


def test_missing_rows_name_the_sweeps_own_commands():
    for make in (results.table_3, results.appendix_table):
        for line in filter(None, make({}).lines):
            rows = {c.command for c in line if c.command}
            assert all(command.startswith("annotated-transformer prepare data/multi30k --corpus multi30k && ") for command in rows)
    assert results.table_3({}).commands[0] == command_for(["base"], "small")


def passed(layer: str, seconds: float, **config) -> dict:
    "The record of a layer's times."
    config = {"layer": layer, "device": "cpu", "batch": 8, "k": 3, "r": 63} | config
    passes = [{"n": n, "d": d, "seconds": seconds * n / 512} for n, d in ((512, 256), (256, 512), (512, 512))]
    return record(f"complexity_{layer}", "complexity", {"passes": passes}, config=config)


def test_table_1_says_at_which_sizes_it_was_measured():
    found = named(passed("self-attention", 0.25, batch=5, r=31), passed("separable convolution", 0.034))
    table = results.table_1(found)
    assert "n = d = 512, batches of 5, k = 3, r = 31, a machine" in table.about and "r = 9" in table.about
    shown = results.frame(table).set_index(("", "Layer type"))
    assert shown["A training pass", "milliseconds"].tolist() == ["250", "missing", "missing", "missing", "34"]
    separable = shown.loc["Separable convolution"]
    assert separable["Complexity per layer", "counted"] == "k·n·d + n·d²" and table.lines[-2] is None
    assert separable["Maximum path length", "counted"] == "15, 127"  # a centred kernel of 3: one position a layer
    assert "not measured" in results.table_1({}).about


def test_what_is_worked_out_links_to_a_heading_that_is_there(tables):
    found = {c.link for table in tables.values() for c in table.cells if c.link}
    assert {link.split(".")[0] for link in found} == {"40_why_self_attention", "50_variations", "90_results"}
    for link in found:
        chapter, heading = link.split("#")
        cells = json.loads((ROOT / "nbs" / chapter).read_text(encoding="utf-8"))["cells"]
        lines = "".join("".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "markdown").splitlines()
        assert any(re.sub(r"^#+ ", "", line).replace(" ", "-") == heading for line in lines if line.startswith("#")), link
    counted = [c for line in tables["table_1"].lines if line for c in line[2:7:2]]
    assert all(c.link and not c.records for c in counted)


def translated(name: str, data: str, tgt: str, d_model: int, **metrics) -> dict:
    from dataclasses import asdict, replace

    facts = {"name": data, "src": "en", "tgt": tgt, "splits": {"train": {"pairs": 1000}}}
    return record(name, "translation", {"steps": 5, "parameters": 6_000_000, "tokens_per_second": 100} | metrics, data=facts,
                  config={"model": asdict(replace(BASE, d_model=d_model)), "training": {}}, signature="tok:13a")


def test_table_2_takes_a_run_on_the_papers_data_by_its_recipe():
    found = named(translated("ours", "wmt14", "de", 512,
                             **{"sacrebleu/newstest2014_full": 26.5, "bleu_paper/newstest2014_full": 27.54}))
    shown = results.frame(results.table_2(found))
    assert shown["BLEU EN-DE",
                 "ours"].tolist()[-2:] == ["27.5", "missing"] and shown["BLEU EN-FR", "ours"].tolist()[-2:] == ["missing"] * 2
    assert set(shown["BLEU EN-DE", "ours"][:8]) == {""}  # other people's systems
    with pytest.raises(InputError, match="no metric bleu_paper/newstest2014_full"):
        results.table_2(named(translated("ours", "wmt14", "de", 512, **{"sacrebleu/newstest2014_full": 26.5})))


def test_table_2_says_how_many_symbols_are_counted():
    assert "37,000 symbols" in results.table_2({}).about and "EN-FR has 32,000" in results.table_2({}).about


def test_our_runs_say_what_they_are_and_how_to_score_them_again():
    pre, post = (translated(name, "multi30k", tgt, 512, **{"sacrebleu/test": 30.0}) for name, tgt in (("pre", "de"), ("post", "fr")))
    pre["config"]["model"] |= {"pre_norm": True, "vocab_size": 5000}
    pre["command"], post["command"] = ("annotated-transformer train runs/x --data data/y", "annotated-transformer demo")
    table = results.our_runs(named(pre, post))
    shown = results.frame(table).set_index(("", "run"))
    assert shown["", "model"].str.split(", ").str[-1].to_dict() == {"pre": "pre-norm", "post": "post-norm"}
    assert shown["", "data"]["pre"] == "Multi30k, 1,000 pairs"
    assert shown["cost (FLOPs)", "by time"].tolist() == ["not known"] * 2 and "not known where" in table.about
    prepare, train, evaluate = table.commands[0].split(" && ")
    assert prepare == "annotated-transformer prepare data/y --corpus multi30k --vocab-size 5000" and train == pre["command"]
    assert evaluate == "annotated-transformer evaluate runs/x --split test --record nbs/results/pre.json"
    assert table.commands[1].startswith("annotated-transformer demo && annotated-transformer evaluate runs/demo/run --split test ")


def test_a_test_set_comes_before_newstest2013():
    scores = {f"sacrebleu/{name}": 4.0 + i for i, name in enumerate(("dev", "newstest2013", "newstest2014_full", "other"))}
    found = translated("a", "ende", "de", 512, **scores)
    assert results.on_sets(found) == ["newstest2014_full", "other", "newstest2013"]
    assert results.on_sets(translated("b", "ende", "de", 512, **{"sacrebleu/dev": 1.0})) == ["dev"]
    ours = results.cost_points(named(found)).query("kind == 'ours'")
    assert ours.row.tolist() == ["all free text EN-DE, newstest2014_full"] and ours.bleu.tolist() == [6.0]
    assert results.frame(results.our_runs(named(found)))["", "scored on"].tolist()[-1] == "newstest2013 (development)"


def test_costs_by_hand():
    "Time: 12 h x 8 x 9.5 TFLOPS. Count: 6 operations a token for each weight that it meets, taken from the model itself."
    assert results.cost_by_time(12, 8, "P100") == 12 * 3600 * 8 * 9.5e12 == 3.2832e18
    assert f"{results.cost_by_time(3.5 * 24, 8, 'P100'):.1e}" == "2.3e+19"
    with torch.device("meta"):
        model = Transformer(BASE)
    matrices = {name: p.numel() for name, p in model.named_parameters() if p.dim() == 2}
    met = sum(matrices.values())  # the shared matrix once, as softmax; everything else by the tokens of one side
    counted = results.cost_by_count(BASE, 1.0)
    assert 1 < counted / (6 * met) < 1.001  # one score and one value a pair and head come on top


def test_our_runs_tell_both_bleus_and_both_costs():
    found = named(translated("a", "multi30k", "de", 512,
                             **{"sacrebleu/test": 33.34, "bleu_paper/test": 34.0, "sacrebleu/dev": 1.0}),
                  translated("b", "multi30k", "fr", 512, **{"sacrebleu/dev": 50.0, "bleu_moses/dev": 51.0}),
                  translated("c", "multi30k", "de", 512, **{"sacrebleu/test": 20.0}),
                  record("benchmark_x", "benchmark", {"limit_flops_per_second": 3e11}),
                  record("settings", "translation", {"points": []}, config={"model": {}}))
    shown = results.frame(results.our_runs(found)).set_index(("", "run"))
    assert shown["BLEU", "sacreBLEU"].to_dict() == {"a": "33.3", "c": "20.0", "b": "50.0"}
    assert shown["BLEU", "the paper's recipe"].to_dict() == {"a": "34.0", "c": "missing", "b": "51.0"}
    by_time, counted = (set(shown["cost (FLOPs)", name]) for name in ("by time", "counted"))
    assert by_time == {"3.0·10¹²"} and counted == {results.power(1000 * results.cost_by_count(BASE, 1.0))}  # 10 s; 1,000 tokens
    assert set(shown["", "sacreBLEU's signature"]) == {"tok:13a"} and len(results.cost_points(found).query("kind == 'ours'")) == 3


def test_table_4_and_its_missing_cells():
    parser = record("parsing_craft", "parsing", {"f1/test": 80.04}, trained_on="CRAFT", tested_on="CRAFT's test",
                    training_trees=17_000,
                    config={"model": {"n_layers": 3, "d_model": 256}})
    table = results.table_4(named(parser, record("parsing_wsj", "parsing", {"f1/test": 91.0})))
    shown = results.frame(table)
    ours = dict(zip(shown["", "Training"], shown["F1", "ours"]))
    assert ours["CRAFT (17,000 trees)"] == "80.0" and "91.0" in shown["F1", "ours"].tolist() and len(table.commands) == 1
    assert len(shown) == len(paper.table(4)) + 1


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
    return ResultTable("A trial", "of signs", (("", "row"), ("group", "a"), ("group", "b")), (
        (Cell(text), Cell(text, bold=True), Cell(text, ("run",))), None, (Cell("last"), Cell("wide", span=2), Cell(span=0))))


SIGNS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(text=SIGNS | st.sampled_from(["<script>alert(1)</script>", "a | b", "$x$ & 50%", r"\end{tabular}", "a_b*c*", "`[x](y)`",
                                     '"><b>', "&amp;", "{", "}"]))
def test_any_text_is_text(text):
    page = Page(to_html(trial(text)))
    assert [cell for cell, _ in page.rows[2]] == [text] * 3 and not {"script", "img"} & set(page.tags)
    assert all(sum(span for _, span in row) == 3 for row in page.rows)  # every line covers every column
    row = to_markdown(trial(text)).splitlines()[4]
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 4  # three cells: four bars that are not escaped
    latex = to_latex(trial(text))
    plain = re.sub(r"\\[{}&%$#_]", "", latex)  # without escaped signs
    depth = [0]
    for sign in plain:
        depth.append(depth[-1] + {"{": 1, "}": -1}.get(sign, 0))
    assert min(depth) == depth[-1] == 0 and plain.count("$") % 2 == 0 and "%" not in plain
    assert plain.count("&") == 1 + 2 + 2 + 1  # groups, names, cells
    assert plain.count(r"\end{tabular}") == 1


def test_signs_of_the_tables_are_known_to_latex(tables):
    for name, table in tables.items():
        assert to_latex(table).isascii(), (name, {sign for sign in to_latex(table) if not sign.isascii()})


def latex_rows(text: str) -> tuple[str, list[int]]:
    "The columns' kinds, a letter each, and how many columns each row between the rules covers."
    kinds = re.search(r"\\begin\{(?:tabular|longtable)\}\{(.*)\}$", text, re.M)[1]
    kinds = re.sub(r">\{\\raggedright\\arraybackslash\}p\{[^}]+\}", "p", kinds)
    rows = [line for line in re.sub(r"\\[&]", "", text).splitlines() if line.endswith(r" \\") and not line.startswith(r"\caption")]
    spans = [sum(int(span[1]) - 1 if (span := re.match(r"\\multicolumn\{(\d+)\}", part.strip())) else 0 for part in row.split("&"))
             + row.count("&") + 1 for row in rows]
    return kinds, spans


def balanced(text: str) -> bool:
    plain, depth, opened = re.sub(r"\\[{}&%$#_]", "", text), 0, []
    for sign in plain:
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if depth < 0:
            return False
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", plain):
        if kind == "begin":
            opened.append(name)
        elif not opened or opened.pop() != name:
            return False
    return depth == 0 and not opened and plain.count("$") % 2 == 0


def test_latex_is_whole_and_every_row_covers_every_column(tables):
    for name, table in tables.items():
        text = to_latex(table)
        kinds, spans = latex_rows(text)
        assert balanced(text) and re.fullmatch("[lcp]+", kinds), name
        assert len(kinds) == len(table.columns) and set(spans) == {len(kinds)}, name
        assert rf"\caption*{{\textbf{{{results.latex_text(table.name)}}}: " in text and r"\caption{" not in text
        for begin, end in re.findall(r"\\cmidrule\(lr\)\{(\d+)-(\d+)\}", text):
            assert len({group for group, _ in table.columns[int(begin) - 1:int(end)]}) == 1 and int(begin) < int(end)
        if table.commands:
            assert rf"What fills the missing cells of {results.latex_text(table.name)}:" in text
            assert text.count(r"\item ") == len(table.commands)
    assert r"\resizebox{\textwidth}{!}{\begin{tabular}" in to_latex(tables["table_3"])
    assert latex_rows(to_latex(tables["table_2_ours"]))[0][-1] == "p"  # the signatures wrap
    assert r"$O(n^2 \cdot d)$" in to_latex(tables["table_1"]) and r"$O(\log_k(n))$" in to_latex(tables["table_1"])


def test_a_long_table_goes_over_pages():
    line = (Cell("a few words that wrap, " * 9), Cell("06_why_it_is", link="06.ipynb"), missing("train --all"))
    short, long = (ResultTable("The list", "of n", (("", "a"), ("", "b"), ("", "c")), (line,) * n) for n in (40, 41))
    assert "longtable" not in to_latex(short) and latex_rows(to_latex(short))[0] == "pcc"
    text = to_latex(long)
    kinds, spans = latex_rows(text)
    assert kinds == "ppp" and set(spans) == {3} and balanced(text) and r"\begin{tabular}" not in text and "resizebox" not in text
    shares = [float(share) for share in re.findall(r"p\{([\d.]+)\\textwidth\}", text)]
    assert 0.8 < sum(shares) < 0.9 and shares[0] > shares[1]
    assert text.count(r"\caption*") == 1 and text.index(r"\caption*") < text.index(r"\endfirsthead") < text.index(r"\endhead")
    assert r"06\_\allowbreak{}why" in text and r"{results/../06.ipynb}" in text  # a text may break, its link stays whole


def test_several_records_are_told_by_their_seeds():
    runs, others = Cell("8.39", ("row_seed0", "row_seed12")), Cell("5.5·10¹³", ("run", "benchmark"))
    table = ResultTable("t", "", (("", "a"), ("", "b")), ((runs, others),))
    page, markdown, latex = to_html(table), to_markdown(table), to_latex(table)
    assert Page(page).rows[2] == [["8.39 (seeds 0, 12)", 1], ["5.5·10¹³ (records 1, 2)", 1]]
    assert Page(page).links == [f"results/{name}.json" for name in ("row_seed0", "row_seed12", "run", "benchmark")]
    assert "8.39 (seeds [0](results/row_seed0.json), [12](results/row_seed12.json)) |" in markdown
    assert r"8.39 (seeds \href{results/row\_seed0.json}{0}, \href{results/row\_seed12.json}{12})" in latex


def test_markdown_has_no_cell_that_reads_as_another_columns_value(tables):
    lines = to_markdown(results.table_3({})).splitlines()
    row, = [line for line in lines if "positional embedding" in line]
    assert row.startswith("| (E): positional embedding instead of sinusoids |  |  |")
    base, = [line for line in to_markdown(results.table_2({})).splitlines() if "(base model)" in line]
    assert base.split(" | ")[5:7] == ["**3.3·10¹⁸**"] * 2  # one number for both pairs of languages


def test_a_wrong_number_of_cells_is_refused():
    with pytest.raises(ValueError, match="1 cells for 2 columns, in the line of 'x'"):
        ResultTable("t", "", (("", "a"), ("", "b")), ((Cell("x"),),))


def test_missing_cells_are_numbered_once():
    table = ResultTable("t", "", (("", "a"), ("", "b")), ((missing("one"), missing("two")), (missing("one"), Cell("x"))))
    assert table.commands == ["one", "two"]
    assert [cell for row in Page(to_html(table)).rows[2:] for cell, _ in row] == ["missing [1]", "missing [2]", "missing [1]",
                                                                                  "x"]


def test_files_whose_links_lead_somewhere(tmp_path, tables, monkeypatch):
    monkeypatch.chdir(ROOT)
    written = results.write_tables(tables, tmp_path / "out")
    assert len(written) == 3 * 6 and all(path.stat().st_size > 200 for path in written)
    links = [(path, link) for path in written for link in (
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
    assert not stale, f"figures/tables: {', '.join(stale)} are not what the records give; run: make notebooks NB=90_results"


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    results.main(["--out", str(tmp_path / "tables")])
    out, err = capsys.readouterr()
    assert "18 files" in out and not err and "<table" in (tmp_path / "tables" / "table_3.html").read_text()
