"""The parts left out: each model against another's, the rule against a fit by hand, the plans against their records."""
import math
import shutil
from random import Random

import numpy as np
import pytest
import torch
from scipy import stats

from annotated_transformer.experiments.runner import Place, experiment, read_plan, steps_of
from annotated_transformer.experiments.summary import PARTS, effects, ladder
from annotated_transformer.inside.playground import logits
from annotated_transformer.model.symbols import PAD
from annotated_transformer.model.transformer import TransformerConfig
from annotated_transformer.tools.files import InputError
from annotated_transformer.tools.records import read_records, summary
from here import ROOT

parts = experiment("parts")

SHAPE = TransformerConfig(vocab_size=30, n_layers=2, d_model=16, d_ff=32, n_heads=4, dropout=0.05)
SRC = torch.tensor([[5, 6, 7, 8, 3], [9, 8, 3, PAD, PAD]])
TGT = torch.tensor([[2, 11, 12, 13], [2, 14, PAD, PAD]])
SWITCHES = {"nothing": {}, "causal-mask": {"causal_mask": False}, "positions": {"positions": False},
            "scaling": {"scale": False}, "heads-scaling": {"scale": False}, "residuals": {"residual": False},
            "sqrt-d-model": {"embedding_scale": False}, "feed-forward": {"feed_forward": False},
            "normalisation": {"norm": False}, "heads": {}, "post-norm": {"pre_norm": True}, "smaller-draw": {}}


@pytest.mark.parametrize("row", SWITCHES)
def test_a_model_without_a_part_equals_the_playgrounds(row):
    "inside/playground writes all parts once more, as one function of the weights."
    model = parts.model_without(row, 1, SHAPE).eval()
    heads = 1 if "heads" in row else 4
    with torch.no_grad():
        w = {name: weight + 0.1 * torch.randn_like(weight) for name, weight in model.named_parameters()}
        model.load_state_dict(w)
        ours = model(SRC, TGT)
        theirs = logits(w, SRC, TGT, 2, heads, **SWITCHES[row])
        whole = logits(w, SRC, TGT, 2, 4) if row != "normalisation" else None
    real = TGT != PAD
    assert torch.allclose(ours[real], theirs[real], atol=1e-4)
    if row not in ("nothing", "normalisation", "post-norm", "smaller-draw"):
        assert not torch.allclose(ours[real], whole[real], atol=1e-2)  # the switch does something


def test_three_matrices_that_are_equal_are_one():
    model, whole = parts.model_without("tying", 1, SHAPE).eval(), parts.model_without("nothing", 1, SHAPE).eval()
    matrices = model.src_embedding.weight, model.embedding.weight, model.embedding.output
    assert len({of.data_ptr() for of in matrices}) == 3
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in whole.parameters()) + 2 * 30 * 16
    assert not torch.allclose(model(SRC, TGT), whole(SRC, TGT))
    model(SRC, TGT).square().sum().backward()
    assert all(of.grad.abs().sum() > 0 for of in matrices)
    for of in matrices:
        of.data = whole.embedding.weight.data.clone()
    assert torch.allclose(model(SRC, TGT), whole(SRC, TGT))


def test_the_usual_draw_is_twice_as_large_in_two_layers():
    small, usual = (dict(parts.model_without(row, 3).named_parameters()) for row in ("nothing", "smaller-draw"))
    for name in ("encoder.0.self_attention.value.weight", "decoder.1.feed_forward.inner.weight"):
        m, n = usual[name].shape
        assert usual[name].abs().max().item() == pytest.approx(math.sqrt(6 / (m + n)), rel=0.01)
        assert (usual[name].std() / small[name].std()).item() == pytest.approx(2, rel=0.02)
    name = "decoder.0.cross_attention.query.weight"
    assert (usual[name].std() / small[name].std()).item() == pytest.approx(1, rel=0.02)


@pytest.fixture
def tiny(monkeypatch):
    "Four pairs of ids in place of the text, and nothing measured."
    pairs = [([5, 6, 3], [2, 7, 8, 3]), ([6, 3], [2, 8, 3]), ([5, 3], [2, 7, 3]), ([9, 6, 3], [2, 9, 8, 3])]
    monkeypatch.setattr(parts, "text", lambda: parts.Text(pairs, [], None))
    monkeypatch.setattr(parts, "measured", lambda model: {"bleu": 0.0})
    return pairs


@pytest.mark.parametrize("row", ["nothing", "warm-up"])
def test_the_rate_rises_or_stands(tiny, monkeypatch, row):
    rates, real = [], parts.set_rate
    monkeypatch.setattr(parts, "set_rate", lambda optimizer, rate: (rates.append(rate), real(optimizer, rate)))
    monkeypatch.setitem(parts.SCHEDULE, "warmup_steps", 4)
    _, curve = parts.train(row, 0, updates=6, batch=2, every=3)
    peak = 0.5 / math.sqrt(128) / math.sqrt(4)
    rising = [peak * min(1, step / 4) if row == "nothing" else peak for step in range(1, 5)]
    assert rates == pytest.approx(rising + [peak * math.sqrt(4 / step) for step in (5, 6)])
    assert [line["step"] for line in curve] == [3, 6]


def test_a_seed_fixes_a_training(tiny):
    once, again, other = (parts.train("nothing", seed, 3, 2, 3)[1][-1]["loss"] for seed in (0, 0, 1))
    assert once == again != other


def test_the_loss_is_that_of_the_right_token(tiny):
    model = parts.model_without("smoothing", 0).eval()
    assert parts.ROWS["smoothing"].label_smoothing == 0 and parts.ROWS["nothing"].label_smoothing == 0.1
    scores = [model(torch.tensor([src]), torch.tensor([tgt[:-1]]))[0].log_softmax(-1)[range(len(tgt) - 1), tgt[1:]]
              for src, tgt in tiny]
    assert parts.loss_of(model, tiny, 0.0).item() == pytest.approx(-torch.cat(scores).mean().item(), rel=1e-4)


def test_every_pair_comes_once_before_any_comes_again():
    pairs = [([i], [2] * (i % 7 + 1)) for i in range(9000)]
    coming, size = parts.batches(pairs, 100, Random(0)), 0
    seen = set()
    while size < 9000:
        batch = next(coming)
        size += len(batch)
        seen |= {src[0] for src, _ in batch}
    assert size == 9000 == len(seen)


# --- the rule ---------------------------------------------------------------------------------------------------------

def drawn(rows: int, seeds: int, effects=()) -> dict:
    rng = np.random.default_rng(4)
    x = 80 + rng.normal(0, 1, (rows, seeds)) + rng.normal(0, 2, seeds)
    x[1 : 1 + len(effects)] += np.array(effects)[:, None]
    return {name: dict(enumerate(of)) for name, of in zip(["nothing", *"abcdefgh"], x.tolist())}


def test_one_row_is_a_paired_t_test():
    values = drawn(2, 5, [3.0])
    paired = stats.ttest_rel([*values["a"].values()], [*values["nothing"].values()])
    low, high = paired.confidence_interval()
    found = effects(values, 5)["a"]
    assert found["interval"] == pytest.approx([low, high]) and found["says"].startswith("better, direction sure")


def test_the_spread_is_that_of_a_fit_of_rows_and_seeds():
    values, columns = drawn(5, 3, [-20.0, 0.1, 1.0]), []
    y = np.array([x for of in values.values() for x in of.values()])
    for r in range(5):
        for s in range(3):
            columns.append([1, *(r == i for i in range(1, 5)), *(s == i for i in range(1, 3))])
    X = np.array(columns, float)
    beta, rest, *_ = np.linalg.lstsq(X, y, rcond=None)
    error = math.sqrt(rest[0] / (15 - 7) * np.linalg.inv(X.T @ X)[1, 1])
    half = stats.t.ppf(0.975, 8) * error
    for i, row in enumerate("abcd", 1):
        found = effects(values, 5)[row]
        assert (found["effect"], *found["interval"]) == pytest.approx((beta[i], beta[i] - half, beta[i] + half))


def test_the_words_of_the_rule():
    says = {row: of["says"] for row, of in effects(drawn(5, 5, [-30.0, 0.0, 4.2]), 5).items()}
    assert says["a"] == "worse, direction sure" and says["b"] == "no difference above 5"
    assert says["c"] == "better, direction sure"  # sure, and perhaps above 5
    assert effects(drawn(5, 3, [0.0, 2.0]), 0.5)["b"]["says"] == "open"


def test_seeds_that_a_row_lacks_do_not_count():
    values = drawn(4, 3, [-30.0])
    whole = effects({row: {s: x for s, x in of.items() if s < 2} for row, of in values.items()}, 5)
    del values["b"][2]
    assert effects(values, 5) == whole
    del values["b"][1]
    one = effects(values, 5)
    assert {of["says"] for of in one.values()} == {"one run"}
    assert one["b"]["effect"] == pytest.approx(values["b"][0] - values["nothing"][0])


# --- plans and records ------------------------------------------------------------------------------------------------

def test_the_plans_go_seed_by_seed():
    plan = read_plan("parts")
    names = [step.name for step in steps_of(plan)]
    assert names == [f"parts_{row}_seed{seed}" for seed in plan["seeds"] for row in plan["rows"]]
    assert set(plan["rows"]) == set(parts.ROWS) and len(steps_of(read_plan("playground"))) == 95
    assert {*plan["rows"], *read_plan("playground")["rows"]} <= set(PARTS)
    with pytest.raises(InputError, match="plan: 'nobody'"):
        steps_of(plan | {"rows": ["nobody"]})


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node here")
def test_a_record_of_the_playground(tmp_path):
    place, short = Place(tmp_path, tmp_path, tmp_path), {"seed": 2, "updates": 2, "every": 1, "batch": 4}
    record = parts.record_of_playground("scaling", {"scale": False, **short}, place)
    assert record["config"]["scale"] is False and record["config"]["seed"] == record["seed"] == 2
    assert [line["step"] for line in record["curve"]] == [1, 2] and set(record["translations"]) == set(parts.LINES)
    assert record["metrics"]["loss"] == record["curve"][-1]["loss"] and record["metrics"]["parameters"] > 60_000
    with pytest.raises(InputError, match="scaling: rate is -1"):
        parts.record_of_playground("scaling", {"rate": -1, **short}, place)


@pytest.mark.parametrize("plan, measure", [("parts", "bleu"), ("playground", "exact")])
def test_the_summary_has_what_the_records_say(plan, measure, monkeypatch):
    monkeypatch.chdir(ROOT)
    records, found = read_records(ROOT / "nbs" / "results", f"{plan}_*"), summary("parts")[plan]
    assert sum(len(of["values"]) for of in found.values()) == len(records)
    for row, of in found.items():
        runs = [records[f"{plan}_{row}_seed{seed}"] for seed in of["seeds"]]
        assert of["values"] == pytest.approx([r["metrics"][measure] for r in runs], rel=1e-4)
        assert of["mean"] == pytest.approx(np.mean(of["values"]), rel=1e-4)
        assert of["curve"][-1] == pytest.approx([read_plan(plan)["updates"], of["mean"]], rel=1e-4)
        assert all(r["metrics"]["updates"] == read_plan(plan)["updates"] for r in runs)
        assert of["german"] == runs[0]["translations"]
        assert ("says" in of) == (row != "nothing")
        if row != "nothing" and len({tuple(of["seeds"]) for of in found.values()}) == 1:
            assert of["effect"] == pytest.approx(of["mean"] - found["nothing"]["mean"], abs=1e-2)


def test_a_row_that_nobody_ran_is_missing():
    def run(row, seed, bleu):
        return {"seed": seed, "metrics": {"bleu": bleu}, "curve": [{"step": 200, "bleu": bleu / 2},
                {"step": 600, "bleu": bleu}], "translations": {"a": row}}

    rows = (("nothing", 0, 90.0), ("nothing", 1, 92.0), ("heads", 0, 80.0), ("heads-scaling", 0, 13.0))
    found = ladder("parts", {f"parts_{row}_seed{seed}": run(row, seed, x) for row, seed, x in rows})
    assert [*found] == ["nothing", "heads-scaling", "heads"] and found["heads"]["says"] == "one run"
    assert found["nothing"]["curve"] == [[200, 45.5], [600, 91.0]] and found["heads"]["effect"] == pytest.approx(-10)
    assert ladder("parts", {}) == {}
