"""The tables of results: every cell the paper's or a record's, else missing with a command; and the summary, which
is what the records give."""
import json
import re
from dataclasses import asdict, replace

import pandas as pd
import pytest

from annotated_transformer.decoding.evaluation import SENTENCE
from annotated_transformer.drawing.result_tables import Cell, ResultTable, to_html, to_latex
from annotated_transformer.experiments import results, summary
from annotated_transformer.experiments.variations import command_for
from annotated_transformer.model.transformer import BASE
from annotated_transformer.paper import tables as paper
from annotated_transformer.training.presets import TrainingConfig, named_now
from annotated_transformer.tools.records import finished, make_record, read_records, write_record
from here import ROOT, unlike_the_saved

RECORDS = ROOT / "nbs" / "results"


def record(name: str, task: str, metrics: dict, **more) -> dict:
    "A whole record."
    return {"name": name, "task": task, "row": None, "command": f"make {name}", "revision": "0123abc",
            "date": "2026-01-01",
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


# --- the tables -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("make, n, columns", [
    (results.table_1, 1, {("the paper", "complexity per layer"): "complexity_per_layer",
                          ("the paper", "maximum path length"): "maximum_path_length"}),
    (results.table_2, 2, {("the paper: BLEU", "EN-DE"): "bleu_en_de", ("the paper: BLEU", "EN-FR"): "bleu_en_fr"}),
    (results.table_3, 3, {("PPL (dev)", "paper"): "ppl", ("BLEU (dev)", "paper"): "bleu",
                          ("params ×10⁶", "paper"): "params_millions", ("", "h"): "h"}),
    (results.table_4, 4, {("F1", "paper"): "f1"}),
    (results.appendix_table, "appendix",
     {("PPL (dev)", "paper"): "ppl", ("BLEU (dev)", "paper"): "bleu", ("", "n_p"): "n_p"}),
])
def test_the_papers_cells_are_the_papers(make, n, columns):
    "Without records: each printed number in its place, each of ours missing with a command, and nothing else."
    theirs = paper.paper_table(n)
    ours = make({}).frame[: len(theirs)]  # below them stand systems that the paper does not list
    for column, name in columns.items():
        for shown, value in zip(ours[column], theirs[name]):
            assert pd.isna(value) and not shown or shown == str(value) or float(shown.strip("*")) == float(value)
    assert all(c.command for c in cells(make({})) if c == "missing") and not any(c.records for c in cells(make({})))


def test_table_3_is_filled_by_records():
    rows = list(paper.paper_table(3).row)
    found = named(*(variation(row, 0, 5 + i / 10, 30 - i) for i, row in enumerate(rows)),
                  variation("base", 1, 5.2, 31.0),
                  variation("base", 2, 5.4, 32.0), record("row_tiny_A1_seed0", "variation", {}),
                  record("row_small_step_time", "variation", {"ratio/AOP1": 1.4}, sittings=[]))
    table = results.table_3(found)
    shown = table.frame
    assert "missing" not in set(cells(table)) and table.commands == []
    # 5.0, 5.2, 5.4: mean 5.2, and the squares of the deviations sum to 0.08, over 2; 30, 31, 32: mean 31, deviation 1
    assert shown["PPL (dev)", "ours"][0] == "5.20 ± 0.20" and shown["BLEU (dev)", "ours"][0] == "31.0 ± 1.0"
    assert shown["PPL (dev)", "ours"][1] == "5.10" and shown["BLEU (dev)", "ours"][len(rows) - 1] == "11.0"
    bases = {f"row_small_base_seed{i}" for i in range(3)}
    assert any(set(c.records) == bases for c in cells(table)) and {name for c in cells(table)
                                                                   for name in c.records} <= set(found)
    steps = found["row_small_step_time"] | {"metrics": {"ratio/AOP1": 1.4, "ratio/AOP2": 1.2}}
    aop = results.appendix_table(found | named(variation("AOP1", 0, 4.9, 33.0), steps)).frame
    assert list(aop["time / base's", "ours"]) == ["1.00", "1.40", "1.20"]
    assert list(aop["training time", "paper"]) == ["12 hours", "16 hours", "16 hours"]
    assert list(aop["BLEU (dev)", "ours"][1:]) == ["33.0", "missing"]


def test_rows_of_several_machines_are_not_averaged_and_say_which():
    def trained(row: str, seed: int, machine: str, precision: str, ppl: float, bleu: float) -> dict:
        config = {"model": {"pre_norm": False}, "training": {"precision": precision}}
        return variation(row, seed, ppl, bleu) | {"hardware": machine, "config": config}

    gpu, old, new = ("1 x A GPU", "bfloat16"), ("A CPU (AVX512), 1 thread",
                                                "bfloat16"), ("A CPU (AVX2), 1 thread", "float32")
    bases = [trained("base", seed, *on, 5 + seed, 30 - seed) for seed, on in enumerate([gpu] * 3 + [old] * 2 + [new])]
    rows = [trained("A1", 0, *gpu, 5.5, 20), trained("A1", 3, *old, 9, 1), trained("A1", 4, *old, 9, 1),
            trained("A3", 1, *gpu, 6, 25),
            trained("A4", 1, *gpu, 6, 25), trained("A2", 3, *old, 5.25, 21), trained("A2", 5, *new, 1, 90),
            trained("A2", 4, *old, 5.75, 23),
            trained("AOP1", 5, *new, 4, 22),
            trained("C1", 7, "another CPU, 1 thread", "bfloat16", 6, 25)]  # no base there
    table, appendix = results.table_3(named(*bases, *rows)), results.appendix_table(named(*bases, *rows))
    shown = table.frame["PPL (dev)", "ours"]
    assert list(shown[:5]) == ["6.00 ± 1.00", "5.50", "5.50 ± 0.35‡", "6.00",
                               "6.00"] and table.frame["BLEU (dev)", "ours"][2] == "22.0 ± 1.4‡"
    assert shown[7] == "missing" and list(appendix.frame["PPL (dev)", "ours"]) == ["6.00 ± 1.00", "4.00‡", "missing"]
    assert "3 seeds, 1 of A1, 2 of A2, 1 of A3, 1 of A4; trained on A GPU, bfloat16" in table.caption
    assert "‡: trained on A CPU, bfloat16, where base has 8.50 ± 0.71 and 26.5 ± 0.7" in table.note
    assert appendix.note.endswith("‡: trained on A CPU, float32, where base has 10.00 and 25.0")
    alone = results.table_3(named(*bases[:3], rows[6]))  # no base of its own precision
    assert alone.frame["PPL (dev)", "ours"][2] == "missing" and "‡" not in alone.note


def test_captions_say_how_the_small_runs_were_made():
    post = variation("base", 0, 5, 30)
    post["config"] = {"model": {"pre_norm": False}}
    for make in (results.table_3, results.appendix_table):
        said = make(named(post)).caption
        assert "Multi30k" in said and "divided by 4" in said and "2,000 steps" in said
        assert "post-norm" in said and "pre-norm" not in said


def test_missing_rows_name_the_plan():
    assert results.table_3({}).commands == results.appendix_table({}).commands == [command_for("small")]


def test_abandoned_runs_are_in_no_table_but_their_own():
    given_up = variation("base", 0, 5, 30) | {"status": "abandoned", "reason": "the loss rose"}
    assert not finished(named(given_up)) and results.abandoned(named(given_up)).lines[0][2] == "the loss rose"


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
    return record(name, "translation", {"steps": 5, "parameters": 6_000_000, "tokens_per_second": 100} | metrics,
                  data=facts,
                  config={"model": asdict(replace(BASE, d_model=d_model)), "training": {}}, signature="tok:13a")


def test_a_test_set_comes_before_newstest2013():
    scores = {f"sacrebleu/{name}": 4.0 + i for i,
              name in enumerate(("dev", "newstest2013", "newstest2014_full", "other"))}
    found = translated("a", "ende", "de", 512, **scores)
    assert results.on_sets(found) == ["newstest2014_full", "other", "newstest2013"]
    assert results.on_sets(translated("b", "ende", "de", 512, **{"sacrebleu/dev": 1.0})) == ["dev"]


def test_costs_by_hand():
    "Time: 12 h x 8 x 9.5 TFLOPS. Count: 6 operations for each of base's 63,045,632 parameters."
    assert results.cost_by_time(12, 8, "P100") == 12 * 3600 * 8 * 9.5e12 == 3.2832e18
    assert f"{results.cost_by_time(3.5 * 24, 8, 'P100'):.1e}" == "2.3e+19"
    assert results.cost_by_count(BASE, 2.0) == 12 * 63_045_632


def test_our_runs_tell_both_bleus_and_their_cost():
    found = named(translated("a", "multi30k", "de", 512,
                             **{"sacrebleu/test": 33.34, "bleu_paper/test": 34.0, "sacrebleu/dev": 1.0}),
                  translated("b", "multi30k", "fr", 512, **{"sacrebleu/dev": 50.0, "bleu_moses/dev": 51.0}),
                  translated("c", "multi30k", "de", 512, **{"sacrebleu/test": 20.0}),
                  record("settings", "translation", {"points": []}, config={"model": {}}))
    shown = results.our_runs(found).frame.set_index(("", "run"))
    assert shown["BLEU", "sacreBLEU"].to_dict() == {"a": "33.3†", "c": "20.0†", "b": "50.0†"}
    assert shown["BLEU", "paper's recipe"].to_dict() == {"a": "34.0†", "c": "", "b": "51.0†"}
    counted = set(shown["cost (FLOPs)", "counted"])
    assert counted == {results.power(1000 * results.cost_by_count(BASE, 1.0)) + "†"}  # 1,000 tokens


def test_table_4_and_its_missing_cells():
    facts = {"trained_on": "CRAFT", "tested_on": "CRAFT's test", "training_trees": 17_000}
    parser = record("parsing_craft", "parsing", {"f1/test": 80.04, "f1_40/test": 85.0},
                    config={"model": {"n_layers": 3, "d_model": 256}}, **facts)
    grammar = record("parsing_baselines_craft", "parsing", {"f1_right/test": 9.0, "f1_pcfg/test": 99.98}, config={},
                     **facts)
    lstm = record("parsing_craft_recurrent", "parsing", {"f1/test": 78.6},
                  config={"kind": "recurrent", "model": {"n_layers": 3, "d_model": 208}}, **facts)
    assert "LSTM with attention (3 layers, 208 wide)" in results.table_4(named(lstm)).frame["", "parser"].tolist()
    table = results.table_4(named(parser, grammar, record("parsing_wsj", "parsing", {"f1/test": 91.0})))
    shown = table.frame
    assert shown["F1", "ours"].tolist()[len(paper.paper_table(4)):] == ["", "9.0†", "99.98†"]  # 99.98 is not 100.0
    assert shown["F1", "ours, free"].tolist()[len(paper.paper_table(4)):] == ["80.0†", "", ""]
    assert table.note == "†: an early record, without digest or log"
    assert "91.0†" in shown["F1", "ours"].tolist() and len(table.commands) == 1
    assert shown["", "parser"].tolist()[-3:] == ["Transformer (3 layers, 256 wide)", "right branches",
                                                 "counted grammar (PCFG)"]


def test_systems_that_live_here_stand_beside_the_papers():
    "Without records what we made is missing, with a command; with them each is in its own line and column."
    empty = results.table_2({})
    plans = ("rivals_measured", "to_the_end", "input_feeding")
    assert {c.command for c in cells(empty)
            if c == "missing"} == {f"python -m annotated_transformer.experiments run {plan}" for plan in plans}
    test = "sacrebleu/test_2016_flickr"
    found = named(*(record(f"rival_test_recurrent_seed{i}", "rival", {test: 30.0 + i}, sittings=[]) for i in range(3)),
                  record("rival_recurrent_seed0", "rival", {"parameters": 4.8e6, "flops": 3e14}, sittings=[]),
                  record("rival_test_recurrent_fr_seed0", "rival", {test: 44.0}, sittings=[]),
                  record("rival_test_ensemble_recurrent", "rival", {test: 33.0}, sittings=[]),
                  record("to_the_end_test_ensemble_convolutional", "rival", {test: 36.0}, sittings=[]),
                  record("to_the_end_test_input-feeding_seed0", "rival", {test: 34.0}, sittings=[]),
                  record("wider_rates_input-feeding_seed0", "rival", {"parameters": 4.5e6, "flops": 2e14}, sittings=[]))
    ours = {line[0]: list(line[5:]) for line in results.table_2(found).lines}
    assert ours["GNMT, before RL"] == ["31.0 ± 1.0", "", "44.0", "4.8", "3.0·10¹⁴"]
    assert ours["GNMT, before RL, three seeds together"][:2] == ["33.0", ""]
    assert ours["ConvS2S Ensemble [9]"][:2] == ["missing", "36.0"]
    assert ours["GNMT + RL [38]"][:2] == ["missing", ""] and ours["MoE [32]"][1] == ""  # not trained for longer
    assert set(ours["GNMT + RL Ensemble [38]"]) == set(ours["Transformer (big)"]) == {""}  # not made
    assert ours["LSTMs with input feeding"] == ["", "34.0", "", "4.5", "2.0·10¹⁴"]


def test_seeds_of_a_run_are_one_line():
    runs = named(*(translated(f"multi30k_narrow_seed{i}", "multi30k", "de", 512, **{"sacrebleu/test": 30.0 + i})
                   for i in range(3)))
    (line,) = results.our_runs(runs).lines
    assert line[0] == "multi30k_narrow" and line[-2] == "31.0 ± 1.0†" and set(line[0].records) == set(runs)


def test_seeds_of_a_parser_are_one_line():
    facts = {"trained_on": "CRAFT", "tested_on": "CRAFT's test", "training_trees": 17_000,
             "config": {"model": {"n_layers": 3, "d_model": 256}}}
    seeds = named(*(record(f"parsing_craft_seed{i}", "parsing", {"f1/test": f1, "f1_free/test": f1 / 2}, sittings=[],
                           **facts) for i, f1 in enumerate((50.0, 51.0, 52.0))))
    shown = results.table_4(seeds).frame["F1"][len(paper.paper_table(4)):]
    assert shown.values.tolist() == [["", "51.0 ± 1.0", "25.5 ± 0.5"]]


def test_signs_of_the_tables_are_known_to_latex(tables):
    for name, table in tables.items():
        assert to_latex(table).isascii(), (name, {sign for sign in to_latex(table) if not sign.isascii()})


def test_latex_rows_cover_every_column(tables):
    for name, table in tables.items():
        text = to_latex(table)
        kinds = re.search(r"\\begin\{(?:tabular|longtable)\}\{(.*)\}$", text, re.M)[1].replace("p{4.5cm}", "p")
        rows = [line for line in re.sub(r"\\&", "", text).splitlines() if line.endswith(r" \\")
                and not line.startswith(r"\caption")]
        spans = {sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", row)) + row.count("&") + 1
                 for row in rows}
        assert re.fullmatch("[lrp]+", kinds) and spans == {len(kinds)} == {len(table.columns)}, name
        assert text.count(r"\item ") == len(table.commands)
        assert text.count(r"\midrule") == 1 + len([rule for rule in table.rules if rule])


def test_style_stands_in_every_cell(tables):
    "A notebook that is not trusted keeps no style sheet."
    for table in tables.values():
        html = to_html(table)
        assert "<style" not in html and "class=" not in html and html.count("<td style=") == html.count("<td") > 0


# --- files, and the summary -------------------------------------------------------------------------------------------

def test_links_of_the_saved_tables_lead_somewhere():
    "HTML, Markdown and LaTeX in figures/tables; each link is to the file that holds the record."
    files = [path for path in (ROOT / "figures" / "tables").iterdir()]
    pattern = {".html": r'href="([^"]+)"', ".md": r"\]\(([^)]+)\)", ".tex": r"\\href\{([^}]+)\}"}
    links = {(path, link.replace("\\", "")) for path in files
             for link in re.findall(pattern[path.suffix], path.read_text())}
    assert links and not [(path.name, link) for path, link in links if not (path.parent / link).exists()]


def test_the_saved_tables_are_those_of_the_records(tables, monkeypatch):
    unlike = unlike_the_saved(tables, monkeypatch)
    assert not unlike, f"figures/tables: {', '.join(unlike)} are not the records'; run: make figures NB=results"


def test_a_group_differs_in_its_seeds_alone(whole):
    """But for the precision of training and what follows from it, which the group's seeds may not share (then no
    block does)."""
    def plain(x):
        drop = {"seed", "precision", "weights", "folder", "run", "runs", "members", "sentences_sha256"}
        return {key: plain(value) for key, value in x.items() if key not in drop} if isinstance(x, dict) else x

    def alike(config):
        "By the names of today, with the defaults of fields that are younger than the record."
        known = config.get("training")
        return plain(config | ({"training": asdict(TrainingConfig()) | named_now(known)} if known else {}))

    unlike = set()
    for name, group in summary.groups_of_runs(finished(whole)).items():
        first, *others = (whole[record] for record in group["records"])
        assert len(set(group["seeds"])) == len(group["seeds"]), name
        if any((alike(r["config"]), r["task"]) != (alike(first["config"]), first["task"]) for r in others):
            unlike.add(name)
    assert unlike == {"grammar-longer_convolutional"}  # whose seed 0 nothing reads: experiments/by_distance


def test_the_program_adds_records_and_writes_the_summary(tmp_path, monkeypatch, capsys):
    "Records that runs under way left as files of their own, with their sentences; what it writes is sorted and whole."
    old, new = tmp_path / "old", tmp_path / "new"
    for seed in range(2):
        metrics = {"perplexity": 7.0 + seed, "sacrebleu/dev": 30.0, "parameters": 4_000_000}
        write_record(old / f"row_small_A1_seed{seed}.json", make_record(
            f"row_small_A1_seed{seed}", "variation", row="A1", data={"name": "multi30k"}, seed=seed, seconds=0.0,
            metrics=metrics,
            config={"model": {"pre_norm": False}, "training": {"precision": "float32"}}))
    (old / "row_small_A1_seed0.sentences.tsv").write_text("\t".join(SENTENCE) + "\n" + "\t".join(["9"] * len(SENTENCE)))
    for _ in range(2):  # the same records twice are there once
        summary.main(["--add", str(old), "--records", str(new)])
    assert "2 records added" in capsys.readouterr().out and (
        new / "sentences" / "row_small_A1_seed0.sentences.tsv").exists()
    assert len((new / "variations.jsonl").read_text().splitlines()) == 2
    found = json.loads((new / "summary.json").read_text())
    assert found["groups"]["row_small_A1"]["metrics"]["perplexity"] == {
        "value": 7.5, "values": [7.0, 8.0]}
    assert found["verdicts"]["one_head_worse"][0]["verdict"] == "untested"
    with pytest.raises(SystemExit) as end:
        summary.main(["--add", str(tmp_path / "none"), "--records", str(new)])
    assert end.value.code == 2 and capsys.readouterr().err.count("\n") == 1


def test_hours_of_a_gpu_are_those_of_the_clock():
    "Runs side by side on a card are one time; processor cores are counted each."
    def record(hardware: str, *minutes: tuple[int, int]) -> dict:
        return {"hardware": hardware, "seconds": 1800.0, "sittings": [
            {"begin": f"2026-11-29T10:{a:02}:00+00:00", "end": f"2026-11-29T10:{b:02}:00+00:00"} for a, b in minutes]}

    card, other = "1 x NVIDIA H200", "1 x NVIDIA H100"
    found = summary.hours([record(card, (0, 30)), record(card, (10, 20), (25, 36)), record(card, (40, 46)),
                           record(other, (0, 6)), record("AMD EPYC (AVX2), 2 threads", (0, 30))])
    assert found == {"core_hours": 1.0, "gpu_hours": pytest.approx((36 + 6 + 6) / 60)}
