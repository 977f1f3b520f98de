"""The plans that the protocol decides by, at a tiny size before any run: trials, scores, sentences, and a kill."""
import math
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from annotated_transformer.decoding.evaluation import SENTENCE
from annotated_transformer.experiments.judge import FROM_SUMS, compare, over_sentences
from annotated_transformer.experiments.runner import Place, Step, experiment, read_plan, steps_of, summary, work
from annotated_transformer.parsing import parser as parsing
from annotated_transformer.rivals.recurrent import RecurrentConfig
from annotated_transformer.tools.files import file_digest
from annotated_transformer.tools.records import add_record, find_record, make_record, read_records
from annotated_transformer.training.runs import Run
from here import small_corpus

parsing_runs = experiment("parsing_runs")

TIMES = {"seconds", "tokens_per_second", "seconds_parsing", "load"}
SHAPE = {"n_layers": 1, "d_model": 16, "d_ff": 32, "n_heads": 2, "d_k": 8, "d_v": 8}


@pytest.fixture(scope="module")
def grammar(tmp_path_factory):
    "A corpus of the grammar, under the names of those that the plans read."
    folder = tmp_path_factory.mktemp("protocol")
    small_corpus(folder / "grammar")
    (folder / "ende").symlink_to(folder / "grammar")
    return folder


def more_text() -> list[Step]:
    "more_text_18000, its 18,000 updates as 12, and its trials' 6,000 as 4."
    plan = read_plan("more_text_18000")
    assert (plan["training"]["steps"], {part["trials"]["steps"] for part in plan["part"]}) == (18_000, {6000})
    plan["training"] |= {"steps": 12, "warmup_steps": 2, "save_every": 1, "batch_tokens": 300, "precision": "float32"}
    plan["bleu_every"] = 4
    for part in plan["part"]:
        part["trials"]["steps"] = 4
        for system in part["system"]:
            wide = SHAPE if system["name"] == "transformer" else {"n_layers": 1, "d_model": 16}
            system["model"] = system.get("model", {}) | wide
    return steps_of(plan)


def smoothing() -> list[Step]:
    return steps_of(read_plan("smoothing_seeds") | {"scale": "tiny"})


def parsers() -> list[Step]:
    return steps_of(read_plan("parsing_5000") | {"scale": 0.002})


def tried(name: str, perplexity: float) -> dict:
    "A trial of an older plan."
    return make_record(name, "old", data={}, config={}, seed=0, seconds=0.0, metrics={"perplexity/dev": perplexity})


@pytest.fixture
def small_parsers(monkeypatch):
    shapes = {RecurrentConfig: {"d_model": 16}}
    small = {name: replace(e, model=replace(e.model, **shapes.get(type(e.model), SHAPE)))
             for name, e in parsing_runs.EXPERIMENTS.items()}
    monkeypatch.setattr(parsing_runs, "EXPERIMENTS", small)
    monkeypatch.setattr(parsing, "EXTRA", 12)


def work_and_die(steps: list[Step], place: Place, run: str) -> None:
    "Work until the run's checkpoint of update 4 is written, then be killed."
    save = Run.save_checkpoint

    def save_and_die(self, step, *args):
        save(self, step, *args)
        if self.folder == place.runs / run and step == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    Run.save_checkpoint = save_and_die  # in this process alone
    work(steps, place, "tiny")


def carried_out(steps: list[Step], place: Place, killed_in: str = "") -> dict[str, dict]:
    "The records of a plan; with `killed_in`, after a kill in that run, and a second call of the same command."
    if killed_in:
        process = multiprocessing.get_context("fork").Process(target=work_and_die, args=(steps, place, killed_in))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL and summary(steps, place) != "All is done."
        assert (place.runs / killed_in).is_dir() and not (place.runs / killed_in / "record.json").exists()
    assert work(steps, place, "tiny") == [] and summary(steps, place) == "All is done."
    return {step.name: find_record(step.name, place.out) for step in steps}


def lasting(x):
    "A record without what the clock and the place say."
    if isinstance(x, dict):
        return {key: lasting(value) for key, value in x.items()
                if key not in TIMES | {"digest", "sittings", "evaluations", "folder", "source"}}
    return [*map(lasting, x)] if isinstance(x, list) else x


def sentences_of(record: dict, out: Path) -> pd.DataFrame:
    path = out / "sentences" / f"{record['name']}.sentences.tsv"
    assert record["sentences"] == file_digest(path) and record["weights"]
    return pd.read_csv(path, sep="\t")


def place_at(folder: Path, data: Path, *old: dict) -> Place:
    for record in old:
        add_record(record, folder / "out")
    return Place(data, folder / "runs", folder / "out")


@pytest.mark.slow
def test_more_text_18000(grammar, tmp_path):
    old = tried("more_text_rates_transformer_seed0", 1e9), tried("more_text_convolutional_seed0", 1.01)
    whole, cut = (place_at(tmp_path / name, grammar, *old) for name in ("whole", "cut"))
    found = carried_out(more_text(), whole)
    trials = {name.rpartition("_")[2]: r for name, r in found.items() if "_trial_" in name}
    assert [*trials] == ["0.001", "0.004", "0.016"] and {r["metrics"]["steps"] for r in trials.values()} == {4}
    runs = {name: r for name, r in found.items() if "_trial_" not in name}
    assert sorted(runs) == [f"more_text_18000_{system}_seed{seed}" for system in ("convolutional", "transformer")
                            for seed in (0, 1)]
    for name, r in runs.items():
        # of the Transformer's two the new rate wins, of ConvS2S's three the old one
        assert r["config"]["settings"]["peak"] == (1e-3 if "transformer" in name else 8e-3)
        assert r["averages"][0]["steps"] == [9, 10, 11, 12] and r["metrics"]["steps"] == 12
        assert [line["step"] for line in r["curve"] if "sacrebleu" in line][-1] == 12
        table = sentences_of(r, whole.out)
        assert tuple(table) == SENTENCE and len(table) == 12
        sums, m = table.sum(), r["metrics"]
        assert math.exp(sums["nats"] / sums["tokens"]) == pytest.approx(m["perplexity/dev"], rel=1e-4)
        assert {"sacrebleu/dev", "length/dev", "flops"} <= set(m)
    again = carried_out(more_text(), cut, "rivals/more_text_18000_transformer_seed0")
    assert lasting(again) == lasting(found)
    # and the judge's interval for the pair
    files = {system: [sentences_of(runs[f"more_text_18000_{system}_seed{seed}"], whole.out) for seed in (0, 1)]
             for system in ("transformer", "convolutional")}
    values = {system: {seed: FROM_SUMS["perplexity"](file.sum()) for seed, file in enumerate(of)}
              for system, of in files.items()}
    seeds = compare(values, "convolutional", "transformer")
    both = over_sentences(seeds, files["convolutional"], files["transformer"], FROM_SUMS["perplexity"])
    assert both.error > seeds.error and 1 < both.freedom


def test_of_the_trials_the_lowest_perplexity_wins(grammar, tmp_path):
    "The other way round: an old rate for the Transformer, a new one for ConvS2S."
    old = tried("more_text_rates_transformer_seed0", 1.01), tried("more_text_convolutional_seed0", 1e9)
    place = place_at(tmp_path, grammar, *old)
    steps = [step for step in more_text() if "_trial_" in step.name or step.name.endswith("seed0")]
    found = carried_out(steps, place)
    trials = {float(name.rpartition("_")[2]): r["metrics"]["perplexity/dev"] for name, r in found.items()
              if "_trial_convolutional" in name}
    peaks = {system: found[f"more_text_18000_{system}_seed0"]["config"]["settings"]["peak"]
             for system in ("transformer", "convolutional")}
    assert peaks == {"transformer": 2e-3, "convolutional": min(trials, key=trials.get)} and len(trials) == 2


@pytest.mark.slow
def test_smoothing_seeds(grammar, tmp_path):
    whole, cut = (place_at(tmp_path / name, grammar) for name in ("whole", "cut"))
    found = carried_out(smoothing(), whole)
    assert [*found] == ["row_tiny_D3_seed3", "row_tiny_D3_seed4"]
    for r in found.values():
        assert r["config"]["training"]["label_smoothing"] == 0 and len(sentences_of(r, whole.out)) == 12
        assert {"perplexity", "accuracy", "sacrebleu/dev"} <= set(r["metrics"])
    assert lasting(carried_out(smoothing(), cut, "variations/row_tiny_D3_seed3")) == lasting(found)


@pytest.mark.slow
def test_parsing_5000(treebanks, tmp_path, small_parsers):
    old = [tried(f"parsing_craft_tenth{kind}_seed0", perplexity)
           for kind, perplexity in (("", 1e9), ("_rates", 1.01), ("_recurrent", 1e9))]
    whole, cut = (place_at(tmp_path / name, treebanks, *old) for name in ("whole", "cut"))
    found = carried_out(parsers(), whole)
    assert {*found} == {f"parsing_craft_tenth_5000{kind}_seed{seed}" for kind in ("", "_recurrent")
                        for seed in (0, 1, 2)}
    for name, r in found.items():
        tries = {c["rate"]: c["perplexity"] for c in r["chosen"]["candidates"]}
        assert sorted(tries) == ([0.6, 1.2, 2.4] if "recurrent" in name else [0.3, 0.6, 1.2])
        assert r["config"]["training"]["lr_scale"] == min(tries, key=tries.get)
        assert ("recurrent" in name) == (tries[1.2] == 1e9) and r["search"] == {"beam_size": 4, "alpha": 0.3}
        sums = sentences_of(r, whole.out).sum()
        f1 = FROM_SUMS["metrics.f1/test"](sums) if sums["gold"] + sums["test"] else 0.0
        assert f1 == pytest.approx(r["metrics"]["f1/test"], abs=1e-3) and "perplexity/dev" in r["metrics"]
        assert not [metric for metric in r["metrics"] if "free" in metric]
    again = carried_out(parsers(), cut, "parsing/craft_tenth_5000/run_seed0")
    assert lasting(again) == lasting(found)
    trials = {f"trial_parsing_craft_tenth_5000{kind}_0.1_{rate}" for kind, rate in
              (("", 0.6), ("_recurrent", 0.6), ("_recurrent", 2.4))}
    assert {*read_records(whole.out)} == {*found, *trials, *(r["name"] for r in old)}
    # on another machine the trials' records are enough
    later = place_at(tmp_path / "later", treebanks, *old, *(find_record(name, whole.out) for name in trials))
    first = [step for step in parsers() if step.name.endswith("seed0")]
    assert lasting(carried_out(first, later)) == {name: lasting(found[name]) for name in (s.name for s in first)}
    assert not [*later.runs.rglob("choice_*")]
