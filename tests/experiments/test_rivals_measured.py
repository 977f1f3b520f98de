"""The comparison of systems, on tiny models: fair rules, a plan that is stopped and goes on, records as claims ask."""
import itertools
import math
import shutil
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from annotated_transformer.corpus.batching import Batch
from annotated_transformer.engine import kinds as architectures
from annotated_transformer.experiments import costs
from annotated_transformer.experiments import rivals_measured as module
from annotated_transformer.experiments.judge import quality, read_claims
from annotated_transformer.experiments.rivals_measured import Job, Rules, Settings, System
from annotated_transformer.experiments.runner import Place, TimeUp, steps_named, summary, work
from annotated_transformer.model.symbols import PAD
from annotated_transformer.model.transformer import BASE
from annotated_transformer.rivals.gleu_rl import Tuning
from annotated_transformer.rivals.mixture_of_experts import Mixture, MixtureConfig
from annotated_transformer.tools.files import InputError
from annotated_transformer.tools.processes import native_precision
from annotated_transformer.tools.records import add_record, find_record, make_record, read_records
from annotated_transformer.training import presets
from annotated_transformer.training.presets import PAPER
from here import ROOT, small_corpus

RULES, RESULTS = module.read_rules(), ROOT / "nbs/results"


@dataclass(frozen=True)
class MeanConfig:
    "Each target position reads the mean of the source."

    vocab_size: int = 300
    d_model: int = 16


class Matrix(nn.Embedding):
    def logits(self, hidden):
        return hidden @ self.weight.T


class Mean(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.embedding = config, Matrix(config.vocab_size, config.d_model)

    def encode(self, src):
        return self.embedding(src), (src != PAD)[:, None, None, :]

    def decode(self, tgt, memory, mask):
        there = mask[:, 0, 0, :, None]
        return self.embedding(tgt) + (memory * there).sum(1, keepdim=True) / there.sum(1, keepdim=True)

    def forward(self, src, tgt):
        return self.embedding.logits(self.decode(tgt, *self.encode(src)))


architectures.register("mean", MeanConfig, Mean)


@pytest.fixture(scope="module", autouse=True)
def tiny():
    with pytest.MonkeyPatch.context() as patch:
        tiny = replace(BASE, vocab_size=300, n_layers=1, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8)
        patch.setitem(presets.PRESETS, "tiny-transformer", (tiny, PAPER))
        patch.setattr(module, "Tuning", lambda: Tuning(steps=2, sentences=2, samples=2, save_every=1))
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rivals")
    small_corpus(folder / "data", train=120, dev=6)
    return folder


@pytest.fixture
def place(data, tmp_path):
    return Place(data, tmp_path / "runs", tmp_path / "out")


SMALL = RULES._replace(
    test_set="test", data={"de": "data", "fr": "data"}, training=RULES.training
    | {"batch_tokens": 300, "steps": 4, "warmup_steps": 2, "save_every": 2, "keep": 2},
    trials=RULES.trials | {"steps": 2, "warmup_steps": 1, "save_every": 2, "keep": 1, "peaks": [1e-3, 1e-2]},
    systems={"transformer": System("transformer", "tiny-transformer", "Transformer (base model)",
                                   {"de": [0, 1], "fr": [0]}),
             "recurrent": System("recurrent", "mean", "GNMT + RL", {"de": [0], "fr": [0]},
                                 {"optimizer": "sgd", "clip_norm": 1.0, "peak": 0.1})},
    tuned=(System("recurrent-rl", "recurrent", "GNMT + RL", {"de": [0]}),))


def steps_of(rules: Rules) -> list:
    "The steps of rules that stand in no file."
    plan = {key: value for key, value in rules._asdict().items() if key != "systems"}
    return module.steps(**plan | {"system": [s._asdict() for s in rules.systems.values()],
                                  "tuned": [s._asdict() for s in rules.tuned]})


STEPS, KNOWN = steps_of(SMALL), read_records(RESULTS, "rival_*")


def test_the_rules_are_whole():
    from annotated_transformer.paper import tables as paper

    rows = {line[0].replace("*", "") for line in paper.printed(2)[0]}
    for system in RULES.systems.values():
        assert system.row in rows and system.seeds["de"][0] == 0 and RULES.trials["seed"] not in system.seeds["de"]
        found = RULES.candidates(system)
        assert len(set(map(str, found))) == len(found) and [s.peak for s in found[:3]] == RULES.trials["peaks"]
    assert [len(RULES.systems[name].seeds["de"]) for name in ("transformer", "recurrent", "convolutional")] == [3, 3, 3]
    for trial in (True, False):
        training = module.training_of(RULES, Settings("nesterov", 0.1, 0.25), 64, 3, trial)
        assert training.seed == 3 and training.optimizer == "nesterov" and training.clip_norm == 0.1
        assert training.steps % training.save_every == 0


def test_systems_that_are_there_are_of_equal_size():
    "Outside the tables of tokens, to 5%."
    found = RULES.systems
    from annotated_transformer.rivals.base import OWN, body_parameters

    sizes = {name: body_parameters(system.configuration(5000)) for name, system in found.items()}
    assert max(sizes.values()) / min(sizes.values()) < 1.05
    for system in found.values():
        if system.own:
            assert system.own == OWN[system.config]
        config = system.configuration(5000)
        assert not getattr(config, "pre_norm", False) and getattr(config, "tied", True)


@pytest.fixture(scope="module")
def done(data, tmp_path_factory):
    "The whole plan, in sittings that end after two steps each; with the names of the steps in order."
    folder, order = tmp_path_factory.mktemp("done"), []
    place = Place(data, folder / "runs", folder / "out")

    def noted(step):
        def do(place):
            if order and len(order) % 2 == 0 and next(sitting):
                raise TimeUp
            order.append(step.name)
            return step.do(place)
        return do

    while summary(STEPS, place) != "All is done.":
        sitting = itertools.count()
        assert work([step._replace(do=noted(step)) for step in STEPS], place, "small") == []
        assert len(read_records(place.out)) == len(order) <= len(STEPS)
    return place, order


def test_records_in_order(done):
    place, order = done
    assert order == [step.name for step in STEPS] and summary(STEPS, place) == "All is done."
    stages = [0 if name.startswith("rival_trial_") else 1 + ("_fr_" in name) for name in order]
    assert stages == sorted(stages) and len(order) == len(set(order)) == 2 + 5 + (3 + 2) + 1 + 1 + (6 + 1)
    assert order[7:13] == ["rival_transformer_seed0", "rival_recurrent_seed0", "rival_recurrent-rl_seed0",
                           "rival_transformer_seed1", "rival_ensemble_transformer", "rival_test_transformer_seed0"]
    trials = read_records(place.out, "rival_trial_recurrent*")
    best = min(trials.values(), key=lambda r: r["metrics"]["perplexity/dev"])
    run = find_record("rival_recurrent_seed0", place.out)
    assert run["config"]["settings"] == best["config"]["settings"] and run["config"]["kind"] == "mean"
    assert run["config"]["training"]["optimizer"] == run["config"]["settings"]["optimizer"]


def test_records_have_what_claims_and_tables_ask_for(done):
    place, _ = done
    run, test, both = (find_record(f"rival_{name}", place.out)
                       for name in ("transformer_seed1", "test_transformer_seed1", "ensemble_transformer"))
    of_rivals = [claim for claim in read_claims()["claim"] if claim["judge"] == "margin"
                 and "wider_rates" in claim.get("of", [])]
    assert of_rivals
    assert all(math.isfinite(quality(run, measure)) for claim in of_rivals for measure in claim["measures"])
    assert {"parameters", "flops", "sequential_steps", "target_tokens", "perplexity/dev",
            "chrf/dev"} <= set(run["metrics"])
    assert [("sacrebleu" in line, line["step"]) for line in run["curve"]] == [(True, 2), (True, 4)]
    assert "sacrebleu/test" in test["metrics"] and "sacrebleu/test" not in run["metrics"]
    assert not any("test" in e["set"] for e in run["evaluations"])
    assert both["config"]["members"] == ["rival_transformer_seed0", "rival_transformer_seed1"]
    assert "sacrebleu/dev" in both["metrics"]
    tuned = find_record("rival_recurrent-rl_seed0", place.out)
    assert tuned["config"]["after"] == "rival_recurrent_seed0"
    assert {"sacrebleu/dev", "sacrebleu_before/dev", "reward_first", "reward_last"} <= set(tuned["metrics"])
    assert both["metrics"]["parameters"] == 2 * run["metrics"]["parameters"]


def test_equal_tokens(done):
    "Every system has seen the same number of target tokens with the same seed."
    place, _ = done
    seen = {find_record(f"rival_{name}_seed0", place.out)["metrics"]["target_tokens"]
            for name in ("transformer", "recurrent")}
    assert len(seen) == 1


def test_a_trial_that_is_no_number_is_given_up(place):
    system = SMALL.systems["transformer"]
    job = Job(system, "de", 1000, Settings("sgd", 0.0, 1e30), trial=True)
    record = module.perform(job, SMALL, place)
    assert module.perform(job, SMALL, place)["reason"] == record["reason"]
    assert (record["name"], record["status"], record["task"]) == ("rival_trial_transformer_sgd_1e+30", "abandoned",
                                                                  "rival")
    assert record["reason"]
    for factor in (0.5, 1, 2):  # the same end for each of the candidates
        add_record(record | {"name": f"rival_trial_transformer_sgd_{factor * 1e30:g}"}, place.out)
    rules = SMALL._replace(trials=SMALL.trials | {"peaks": []})
    with pytest.raises(InputError, match="every trial was given up"):
        module.chosen(rules, system._replace(own={"optimizer": "sgd", "clip_norm": 0.0, "peak": 1e30}), place.out)


def test_the_last_checkpoints_are_averaged_and_nothing_is_translated_where_there_is_no_search(place):
    rules = SMALL._replace(name="averaged", average=2, search={})
    record = module.perform(Job(SMALL.systems["transformer"], "de", 3, Settings(), of="averaged"), rules, place)
    (average,) = record["averages"]
    assert (record["name"], record["status"], average["steps"]) == ("averaged_transformer_seed3", "finished", [2, 4])
    assert math.isfinite(record["metrics"]["perplexity/dev"]) and "flops" in record["metrics"]
    assert not [name for name in record["metrics"] if "bleu" in name]


def test_trials_without_smoothing_differ_in_the_smoothing_alone():
    without = module.read_rules("unsmoothed")
    assert without.trials | {"peaks": RULES.trials["peaks"]} == RULES.trials
    assert set(without.trials["peaks"]) < set(RULES.trials["peaks"])
    for name, system in without.systems.items():
        assert system._replace(seeds={}, own=None) == RULES.systems[name]._replace(seeds={}, own=None)
        assert RULES.systems[name].own in (None, system.own)
        with_it, alone = (module.training_of(rules, Settings(), 64, 1000, True) for rules in (RULES, without))
        assert (with_it.label_smoothing, alone.label_smoothing) == (0.1, 0.0)
        assert replace(alone, label_smoothing=0.1) == with_it
    assert set(without.systems) == set(RULES.systems)
    assert all("_trial_" in step.name for step in steps_named("unsmoothed"))


def test_wider_rates_differ_in_the_trials_alone():
    wider, three = module.read_rules("wider_rates"), ("transformer", "recurrent", "convolutional")
    first = module.read_rules()
    assert (wider.training, wider.search, wider.test_set) == (first.training, first.search, first.test_set)
    assert set(wider.trials["peaks"]) > {1e-3, 2e-3} and wider.trials["warmup_steps"] == first.training["warmup_steps"]
    assert wider.systems == {name: first.systems[name]._replace(own=None, seeds={"de": [0, 1, 2]}) for name in three}


def test_the_second_recurrent_network_is_compared_by_the_same_rules():
    wider, second = module.read_rules("wider_rates"), module.read_rules("input_feeding")
    assert second.trials | {"peaks": wider.trials["peaks"]} == wider.trials
    assert set(second.trials["peaks"]) < set(wider.trials["peaks"])
    assert second._replace(trials=wider.trials, systems=wider.systems) == wider
    (system,) = second.systems.values()
    assert system._replace(name="recurrent", config="recurrent") == wider.systems["recurrent"]


def test_trials_with_plain_vectors_differ_in_the_vectors_alone():
    plain = module.read_rules("plain_vectors")
    assert plain.trials | {"peaks": RULES.trials["peaks"]} == RULES.trials
    assert set(plain.trials["peaks"]) < set(RULES.trials["peaks"])
    for name, system in plain.systems.items():
        assert system.configuration(300) == replace(RULES.systems[name].configuration(300), plain_vectors=True)
        with_it, without = (module.training_of(rules, Settings(), 64, 1000, True) for rules in (RULES, plain))
        assert with_it == without
    assert set(plain.systems) == set(RULES.systems) - {"transformer", "convolutional"}
    assert all("_trial_" in step.name for step in steps_named("plain_vectors"))


def test_a_model_that_is_not_here(done):
    "Where only the record of a run came from elsewhere, what needs its model is left out, with a message."
    place, _ = done
    path, again = place.out / "rivals.jsonl", ["rival_test_recurrent_seed0", "rival_test_transformer_seed0"]

    def remove(*names):
        path.write_text("".join(line for line in path.read_text().splitlines(True)
                                if not any(f'"name":"{name}"' in line for name in names)))

    remove(*again)
    shutil.rmtree(place.runs / "rivals" / "rival_recurrent_seed0")
    assert work(STEPS, place, "small") == []
    said = summary(STEPS, place).splitlines()
    assert len(said) == 2 and said[0].startswith("rivals/rival_recurrent_seed0: only its record is here")
    assert [find_record(name, place.out) is not None for name in again] == [False, True]
    remove("rival_recurrent_seed0")
    assert work(STEPS, place, "small") == [] and find_record(again[0], place.out)


def test_the_clock(place, monkeypatch):
    def read_rules(name=""):
        one = {name: SMALL.systems["recurrent"]._replace(name=name)}
        return SMALL._replace(systems=one if name else SMALL.systems)

    monkeypatch.setattr(module, "read_rules", read_rules)
    [step] = module.speed_steps([4, 8], 16, 1)
    record = step.do(place)
    device = "gpu" if torch.cuda.is_available() else "cpu"
    assert step.alone
    assert step.name == record["name"] == f"rival_speed_{device}_{native_precision(module.training_device())}"
    assert {(line["system"], line["n"]) for line in record["metrics"]["updates"]} == {
        (name, n) for name in ("transformer", "recurrent", "input_feeding") for n in (4, 8)}
    assert all(line["batch"] == 16 // line["n"] for line in record["metrics"]["updates"])
    assert all(record["metrics"][f"seconds/transformer/{n}"] > 0 for n in (4, 8))


def test_flops_of_a_batch_with_padding():
    "The Transformer as it is trained computes nothing on padding, but for the scores of attention."
    c = replace(BASE, vocab_size=50, n_layers=2, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8)
    src, tgt = costs.random_pairs(50, 2, 6)
    padded = src.clone(), tgt.clone()
    padded[0][1, 3:], padded[1][1, 4:] = PAD, PAD  # three of the twelve tokens less, on each side
    full, part = (costs.update_flops(architectures.build(c), *pair) for pair in ((src, tgt), padded))
    projection, feed_forward = c.d_model * c.n_heads * c.d_k, 2 * c.d_model * c.d_ff
    of_src = c.n_layers * (4 * projection + feed_forward
                           + 2 * projection)  # the last two: keys and values for the decoder
    of_tgt = c.n_layers * (6 * projection + feed_forward) + c.vocab_size * c.d_model
    assert full - part == 3 * 2 * 3 * (of_src + of_tgt)


@pytest.mark.parametrize(("tgt", "seeds"), [("de", 12), ("fr", 6)])
def test_runs_that_are_compared_share_text_vocabulary_and_training(tgt, seeds):
    "Of the committed records: the same digests, and the same training but for what the trials chose."
    names = [name for name in (f"rival_{system.name}{'_fr' * (tgt == 'fr')}_seed{seed}"
                               for system in RULES.systems.values() for seed in system.seeds[tgt])
             if name in KNOWN]
    records = [KNOWN[name] for name in names]
    assert len(records) >= seeds
    assert len({(r["data"]["digest"], r["data"]["vocabulary"]) for r in records}) == 1
    free = {"optimizer", "clip_norm", "rate", "lr_scale", "seed", "precision"}
    trainings = [{key: value for key, value in r["config"]["training"].items() if key not in free} for r in records]
    assert all(training == trainings[0] for training in trainings)


def test_the_use_of_experts():
    "Against the gates asked by hand: over the words of both sides, padding left out."
    torch.manual_seed(0)
    model = Mixture(MixtureConfig(vocab_size=20, n_layers=2, d_model=8, n_experts=4, d_expert=8, experts_used=2)).eval()
    for layer in model.mixtures.values():
        nn.init.normal_(layer.gate.weight)
    src, tgt = torch.tensor([[5, 6, 7, 3], [9, 3, 0, 0]]), torch.tensor([[2, 8, 9, 3], [2, 7, 3, 0]])
    found = module.experts_use(model, [Batch(src, tgt, None)] * 2)
    states = model.read_on(model.encoder[1], model.read_both_ways(src)[0])[src != PAD]
    wanted = model.mixtures["encoder"].gates(states).sum(0)
    torch.testing.assert_close(torch.tensor(found["encoder"]), wanted / wanted.sum())
    assert len(found["decoder"]) == 4 and abs(sum(found["decoder"]) - 1) < 1e-6 and wanted.std() > 0.1
    assert not any(layer._forward_pre_hooks for layer in model.mixtures.values())


def test_a_rate_that_another_run_has_tried_counts(tmp_path):
    "PROTOCOL.md lists old trials: they stand beside the new ones, and the lowest perplexity wins."
    rules, system = module.read_rules("wider_rates"), RULES.systems["transformer"]._replace(tried={"old": 4e-3})
    rules = rules._replace(trials=rules.trials | {"peaks": [1e-3]})
    for name, perplexity in (("old", 6.0), ("wider_rates_trial_transformer_adam_0.001", 7.0)):
        add_record(make_record(name, "rival", data={}, config={}, seed=0, seconds=0.0,
                               metrics={"perplexity/dev": perplexity}), tmp_path)
    assert module.chosen(rules, system, tmp_path).peak == 4e-3
    assert module.chosen(rules, system._replace(tried={}), tmp_path).peak == 1e-3
    assert "old" in module.run_step(Job(system, "de", 0), rules).needs
