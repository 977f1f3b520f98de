"""Table 3's rows at the scale `tiny`: what their records hold, who may compare them, and the seconds of their steps."""
import math
from types import SimpleNamespace

import pytest
import torch
from sacrebleu.metrics import BLEU

from annotated_transformer.corpus.corpora import Corpus
from annotated_transformer.decoding.evaluation import SENTENCE
from annotated_transformer.decoding.translation import load
from annotated_transformer.experiments import timing
from annotated_transformer.experiments.runner import Place, experiment
from annotated_transformer.experiments.variations import (
    check_precision,
    corpus_of_scale,
    scaled,
    train_row,
)
from annotated_transformer.model.transformer import count_parameters
from annotated_transformer.tools.files import InputError, file_digest
from annotated_transformer.tools.records import add_record, read_records
from here import small_corpus

row_measurements = experiment("row_measurements")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "With records of base and (E)."
    folder = tmp_path_factory.mktemp("variations")
    small_corpus(folder / "data" / "grammar")
    place = Place(folder / "data", folder / "runs", folder / "out")
    for row in ("base", "E"):
        add_record(train_row(row, 0, "tiny", place), place.out)
    return place


def test_records_have_what_the_tables_need(place):
    for row in ("base", "E"):
        record = read_records(place.out)[f"row_tiny_{row}_seed0"]
        model, training = scaled(row, "tiny", record["config"]["model"]["vocab_size"])
        assert record["name"] == f"row_tiny_{row}_seed0" and (record["task"], record["row"]) == ("variation", row)
        assert record["config"]["model"]["positions"] == model.positions and record["config"]["training"]["seed"] == 0
        assert record["config"]["search"] == {"beam_size": 4, "alpha": 0.6}
        assert record["metrics"]["averaged_checkpoints"] == 1
        assert {"sacrebleu/dev", "bleu_paper/dev", "chrf/dev", "accuracy", "perplexity/train"} <= set(record["metrics"])
        assert record["metrics"]["parameters"] == count_parameters(model)
        assert record["metrics"]["steps"] == training.steps
        # the number is that of the last checkpoint, measured anew
        pairs = Corpus.open(place.data / "grammar").pairs("dev")
        again = load(place.runs / "variations" / record["name"]).measure(*map(list, zip(*pairs)))
        assert math.isclose(record["metrics"]["perplexity"], again.perplexity, rel_tol=1e-4)


def test_a_row_trained_again_has_the_same_numbers(place, tmp_path):
    before, after = read_records(place.out)["row_tiny_E_seed0"], train_row("E", 0, "tiny",
                                                                           Place(place.data, tmp_path / "runs",
                                                                                 tmp_path / "out"))
    same = ("perplexity", "accuracy", "sacrebleu/dev", "parameters", "steps")
    assert {name: after["metrics"][name] for name in same} == {name: before["metrics"][name] for name in same}


def test_sentences_add_up_to_the_record(place):
    "BLEU, perplexity and accuracy of the record, from the sums of its sentences."
    for record in read_records(place.out).values():
        path = place.out / "sentences" / f"{record['name']}.sentences.tsv"
        lines = [line.split("\t") for line in path.read_text().splitlines()]
        assert record["sentences"] == file_digest(path) and tuple(lines[0]) == SENTENCE and len(lines) == 1 + 12
        sums = dict(zip(lines[0], (sum(map(float, column)) for column in zip(*lines[1:]))))
        bleu = BLEU.compute_bleu([sums[f"correct_{n}"] for n in (1, 2, 3, 4)],
                                 [sums[f"total_{n}"] for n in (1, 2, 3, 4)],
                                 int(sums["sys_len"]), int(sums["ref_len"]))
        m = record["metrics"]
        assert math.isclose(bleu.score, m["sacrebleu/dev"], abs_tol=1e-9)
        assert math.isclose(sums["right"] / sums["tokens"], m["accuracy"], rel_tol=1e-6)
        assert math.isclose(math.exp(sums["nats"] / sums["tokens"]), m["perplexity"], rel_tol=1e-4)


def test_the_rows_of_a_seed_have_one_precision(place, tmp_path):
    "A machine does not add to a seed that one of another precision has begun."
    record = read_records(place.out)["row_tiny_base_seed0"]
    other = {"float32": "bfloat16", "bfloat16": "float32"}[record["config"]["training"]["precision"]]
    record["config"]["training"]["precision"] = other
    add_record(record, tmp_path)
    for seed in (1, 10):
        check_precision("tiny", seed, Place(place.data, place.runs, tmp_path))
    with pytest.raises(InputError, match=f"seed 0: row_tiny_base_seed0 was trained in {other}.*other seeds"):
        train_row("E", 0, "tiny", Place(place.data, place.runs, tmp_path))


def test_the_corpus_must_be_the_scales(place, tmp_path):
    for data, said in ((tmp_path, "no prepared corpus.*prepare multi30k"), (place.data, "holds grammar")):
        if data == place.data:
            (data / "multi30k").symlink_to(data / "grammar")
        with pytest.raises(InputError, match=said):
            corpus_of_scale("small", Place(data, tmp_path, tmp_path))


def test_step_times_are_a_ratio_of_one_process(place, monkeypatch):
    "With a clock that says 1 s for base, 1.4 and 1.2 for the others, on a machine that grows slower round by round."
    clock = SimpleNamespace(now=0.0, calls=0)
    of = {0: 1.0} | {scaled(row, "tiny", 300).model.n_p: seconds for row, seconds in (("AOP1", 1.4), ("AOP2", 1.2))}

    def timed(objective, optimizer, parts, tokens, training, step):
        c = objective.model.config
        clock.calls += 1
        clock.now += (1 + math.ceil(clock.calls / 3) / 10) * of[c.n_p if c.parameter_heads else 0]
        return torch.tensor(0.0)

    monkeypatch.setattr(row_measurements, "update", timed)
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    [step] = row_measurements.steps("tiny")
    record = row_measurements.measure_step_time("tiny", place, rounds=3)
    expected = {"step_seconds/base": 1.5, "step_seconds/AOP1": 2.1, "step_seconds/AOP2": 1.8, "ratio/AOP1": 1.4,
                "ratio/AOP2": 1.2}
    updates = {u["system"]: u for u in record["metrics"].pop("updates")}
    assert {row: len(u["all"]) for row, u in updates.items()} == {"base": 3, "AOP1": 3, "AOP2": 3}
    assert len({u["n"] for u in updates.values()}) == 1
    assert updates["AOP1"]["all"] == pytest.approx([1.4 * x for x in updates["base"]["all"]])
    assert record["metrics"] == pytest.approx(expected) and record["name"] == step.name and step.alone
