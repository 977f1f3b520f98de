"""The comparison of systems, on tiny models: rules that are fair, a plan that is stopped and goes on, and records that hold what the claims ask for."""
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from annotated_transformer.engine import kinds as architectures
from annotated_transformer.corpus.batching import Batch, encode_corpus
from annotated_transformer.training import presets
from annotated_transformer.corpus.corpora import grammar_corpus
from annotated_transformer.experiments import costs
from annotated_transformer.experiments import rivals_measured as module
from annotated_transformer.experiments.rivals_measured import Job, Place, Settings, System
from annotated_transformer.experiments.verdicts import read_claims
from annotated_transformer.model.transformer import BASE, PAD
from annotated_transformer.tools.processes import native_precision
from annotated_transformer.tools.records import read_record, write_record
from annotated_transformer.rivals.fine_tuning import Tuning
from annotated_transformer.rivals.mixture_of_experts import Mixture, MixtureConfig
from annotated_transformer.training.presets import PAPER
from annotated_transformer.corpus.vocabulary import BytePairVocabulary

RULES, RESULTS = module.read_rules(), Path(__file__).parents[1] / "nbs/results"


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


@pytest.fixture
def place(tmp_path, monkeypatch):
    corpus = grammar_corpus(tmp_path / "data", train=120, dev=6, test=5, test_long=5)
    encode_corpus(corpus, BytePairVocabulary.learn((line for pair in corpus.pairs("train") for line in pair), 300))
    tiny = replace(BASE, vocab_size=300, n_layers=1, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8)
    monkeypatch.setitem(presets.PRESETS, "tiny-transformer", (tiny, PAPER))
    monkeypatch.setattr(module, "Tuning", lambda: Tuning(steps=2, sentences=2, samples=2, save_every=1))
    return Place({"de": tmp_path / "data", "fr": tmp_path / "data"}, tmp_path / "runs", tmp_path / "out")


SMALL = RULES._replace(
    test_set="test", training=RULES.training | {"batch_tokens": 300, "steps": 4, "warmup_steps": 2, "save_every": 2, "keep": 2},
    trials=RULES.trials | {"steps": 2, "warmup_steps": 1, "save_every": 2, "keep": 1, "peaks": [1e-3, 1e-2]},
    systems={"transformer": System("transformer", "tiny-transformer", "Transformer (base model)", {"de": [0, 1], "fr": [0]}),
             "recurrent": System("recurrent", "mean", "GNMT + RL", {"de": [0], "fr": [0]}, {"optimizer": "sgd", "clip_norm": 1.0, "peak": 0.1}),
             "absent": System("absent", "no-such-kind", "ByteNet", {"de": [0]})},
    tuned=(System("recurrent-rl", "recurrent", "GNMT + RL", {"de": [0]}),))


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
        assert training.seed == 3 and training.optimizer == "nesterov" and training.clip_norm == 0.1 and training.steps % training.save_every == 0


def test_systems_that_are_there_are_of_equal_size():
    "Outside the tables of symbols, to 5%; and all of them are there."
    found = {system.name: system for system in module.there(RULES)}
    assert set(found) == set(RULES.systems)
    from annotated_transformer.rivals.base import OWN, body_parameters

    sizes = {name: body_parameters(system.configuration(5000)) for name, system in found.items()}
    assert max(sizes.values()) / min(sizes.values()) < 1.05
    for name, system in found.items():
        if system.own:
            assert system.own == OWN[system.config]
        config = system.configuration(5000)
        assert not getattr(config, "pre_norm", False) and getattr(config, "tied", True)


def test_the_plan_in_many_sittings(place, monkeypatch):
    "Each ends after its first job: every record is written, and none twice."
    order, write, sittings = [], module.write_record, 0
    monkeypatch.setattr(module, "write_record", lambda path, record: (order.append(path.stem), write(path, record)))
    clock, real = [0.0], time.monotonic
    until = real() + 3600

    def then_time_is_up(do):
        def doing(*arguments):
            done = do(*arguments)
            clock[0] = 7200.0
            return done
        return doing

    for name in ("perform", "tune_run", "judge"):
        monkeypatch.setattr(module, name, then_time_is_up(getattr(module, name)))
    monkeypatch.setattr(module.time, "monotonic", lambda: real() + clock[0])
    while not module.do_next(SMALL, Place(place.data, place.runs, place.out, until=until)):
        clock[0], sittings = 0.0, sittings + 1
        assert sittings < 40
    here = SMALL._replace(systems={name: s for name, s in SMALL.systems.items() if name != "absent"})
    assert sorted(order) == sorted(line.split()[1] for line in module.planned(here, place.out)) and sittings >= len(order) - 1


@pytest.fixture
def done(place, monkeypatch):
    order, write = [], module.write_record
    monkeypatch.setattr(module, "write_record", lambda path, record: (order.append(path.stem), write(path, record)))
    assert module.do_next(SMALL, place)
    return place, order


def test_records_in_order(done, capsys):
    place, order = done
    stages = [0 if name.startswith("rival_trial_") else 1 + ("_fr_" in name) for name in order]
    assert stages == sorted(stages) and len(order) == len(set(order)) == 2 + 5 + (3 + 2) + 1 + 1 + (6 + 1)  # trials, runs, a tuned one, an ensemble, the test set for all of them
    assert order[7:12] == ["rival_transformer_seed0", "rival_transformer_seed1", "rival_ensemble_transformer", "rival_test_transformer_seed0", "rival_test_transformer_seed1"]
    assert order.index("rival_recurrent_seed0") < order.index("rival_recurrent-rl_seed0") < order.index("rival_test_recurrent-rl_seed0") < order.index("rival_transformer_fr_seed0")
    trials = {name: read_record(place.out / f"{name}.json") for name in order if name.startswith("rival_trial_recurrent")}
    best = min(trials.values(), key=lambda r: r["metrics"]["perplexity/dev"])
    run = read_record(place.out / "rival_recurrent_seed0.json")
    assert run["config"]["settings"] == best["config"]["settings"] and run["config"]["kind"] == "mean"
    assert run["config"]["training"]["optimizer"] == run["config"]["settings"]["optimizer"]
    before = {path: path.stat().st_mtime_ns for path in place.out.iterdir()}
    assert module.do_next(SMALL, place) and before == {path: path.stat().st_mtime_ns for path in place.out.iterdir()}  # nothing twice


def test_records_have_what_claims_and_tables_ask_for(done):
    place, _ = done
    run, test, both = (read_record(place.out / f"rival_{name}.json") for name in ("transformer_seed1", "test_transformer_seed1", "ensemble_transformer"))
    asked = {side["value"].removeprefix("metrics.") for claim in read_claims()["claim"] if claim["judge"] == "margin"
             for side in (claim["better"], claim["worse"]) if side["record"].startswith(("rival_", "wider_rates_")) and "_seed" in side["record"]}
    assert asked and asked <= set(run["metrics"])
    assert {"parameters", "flops", "sequential_steps", "target_tokens", "perplexity/dev", "chrf/dev"} <= set(run["metrics"])
    assert [("sacrebleu" in line, line["step"]) for line in run["curve"]] == [(True, 2), (True, 4)]
    assert "sacrebleu/test" in test["metrics"] and "sacrebleu/test" not in run["metrics"] and not any("test" in e["set"] for e in run["evaluations"])
    assert both["config"]["members"] == ["rival_transformer_seed0", "rival_transformer_seed1"] and "sacrebleu/dev" in both["metrics"]
    tuned = read_record(place.out / "rival_recurrent-rl_seed0.json")
    assert tuned["config"]["after"] == "rival_recurrent_seed0" and {"sacrebleu/dev", "sacrebleu_before/dev", "reward_first", "reward_last"} <= set(tuned["metrics"])
    assert both["metrics"]["parameters"] == 2 * run["metrics"]["parameters"]


def test_equal_tokens(done):
    "Every system has seen the same number of target tokens with the same seed."
    place, _ = done
    seen = {read_record(place.out / f"rival_{name}_seed0.json")["metrics"]["target_tokens"] for name in ("transformer", "recurrent")}
    assert len(seen) == 1


def test_a_trial_that_is_no_number_is_given_up(place):
    system = SMALL.systems["transformer"]
    assert module.perform(Job(system, "de", 1000, Settings("sgd", 0.0, 1e30), trial=True), SMALL, place)
    record = read_record(place.out / "rival_trial_transformer_sgd_1e+30.json")
    assert record["status"] == "abandoned" and record["reason"] and record["task"] == "rival"
    rules = SMALL._replace(trials=SMALL.trials | {"peaks": []})
    with pytest.raises(module.InputError, match="every trial was given up"):
        module.chosen(rules, system._replace(own={"optimizer": "sgd", "clip_norm": 0.0, "peak": 1e30}), _only(place.out, record))


def _only(out, record):
    "The same end for each of the candidates."
    for factor in (0.5, 2):
        name = f"rival_trial_transformer_sgd_{factor * 1e30:g}"
        write_record(out / f"{name}.json", record | {"name": name})
    return out


def step(name: str, needs: list[str], done: list[str]) -> module.Step:
    def do(place):
        done.append(name)
        (place.out / f"{name}.json").write_text("{}")
        return True
    return module.Step(name, needs, do)


@pytest.mark.parametrize("name", ["rivals_measured", "multi30k"])
def test_each_step_of_a_plan_has_a_record_of_its_own(name):
    rules = module.read_rules(name)
    names = [step.name for step in module.steps(rules)]
    assert len(set(names)) == len(names) > 20 and all(n.startswith(f"{rules.name}_") for n in names)
    assert {tgt for s in rules.systems.values() for tgt in s.seeds} == {"de", "fr"}


def test_the_test_set_waits_for_the_last_run_of_a_system(tmp_path):
    rules, place = module.read_rules("multi30k"), module.Place({}, tmp_path / "runs", tmp_path)
    test = next(step for step in module.steps(rules) if step.name == "multi30k_test_narrow_fr_seed0")
    for seed in (0, 1, 2):
        assert not test.begins(place)
        run = tmp_path / "runs" / f"multi30k_narrow_fr_seed{seed}"
        run.mkdir(parents=True)
        for path in (run / "record.json", tmp_path / f"{run.name}.json"):
            path.write_text("{}")
    assert test.begins(place)


def test_trials_without_smoothing_differ_in_the_smoothing_alone():
    without = module.read_rules("unsmoothed")
    assert without.trials | {"peaks": RULES.trials["peaks"]} == RULES.trials and set(without.trials["peaks"]) < set(RULES.trials["peaks"])
    for name, system in without.systems.items():
        assert system._replace(seeds={}, own=None) == RULES.systems[name]._replace(seeds={}, own=None)
        assert RULES.systems[name].own in (None, system.own)
        with_it, alone = (module.training_of(rules, Settings(), 64, 1000, True) for rules in (RULES, without))
        assert (with_it.label_smoothing, alone.label_smoothing) == (0.1, 0.0) and replace(alone, label_smoothing=0.1) == with_it
    assert set(without.systems) == set(RULES.systems) and all("_trial_" in step.name for step in module.steps(without))


def test_wider_rates_differ_in_the_trials_alone():
    wider, three = module.read_rules("wider_rates"), ("transformer", "recurrent", "convolutional")
    first = module.read_rules()
    assert (wider.training, wider.search, wider.test_set) == (first.training, first.search, first.test_set)
    assert set(wider.trials["peaks"]) > {1e-3, 2e-3} and wider.trials["warmup_steps"] == first.training["warmup_steps"]
    assert wider.systems == {name: first.systems[name]._replace(own=None, seeds={"de": [0, 1, 2]}) for name in three}


def test_the_second_recurrent_network_is_compared_by_the_same_rules():
    wider, second = module.read_rules("wider_rates"), module.read_rules("input_feeding")
    assert second.trials | {"peaks": wider.trials["peaks"]} == wider.trials and set(second.trials["peaks"]) < set(wider.trials["peaks"])
    assert second._replace(trials=wider.trials, systems=wider.systems) == wider
    (system,) = second.systems.values()
    assert system._replace(name="recurrent", config="recurrent") == wider.systems["recurrent"]


def test_trials_with_plain_vectors_differ_in_the_vectors_alone():
    plain = module.read_rules("plain_vectors")
    assert plain.trials | {"peaks": RULES.trials["peaks"]} == RULES.trials and set(plain.trials["peaks"]) < set(RULES.trials["peaks"])
    for name, system in plain.systems.items():
        assert system.configuration(300) == replace(RULES.systems[name].configuration(300), plain_vectors=True)
        with_it, without = (module.training_of(rules, Settings(), 64, 1000, True) for rules in (RULES, plain))
        assert with_it == without
    assert set(plain.systems) == set(RULES.systems) - {"transformer", "convolutional"}
    assert all("_trial_" in step.name for step in module.steps(plain))


def test_rules_without_lengths_time_nothing(capsys, tmp_path):
    with pytest.raises(SystemExit) as end:
        module.main(["throughput", "--rules", "multi30k", "--out", str(tmp_path / "out")])
    assert end.value.code == 2 and "--rules multi30k" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_step_that_another_process_has_is_left_to_it(place):
    place.out.mkdir()
    done = []
    plan = [step("a", [], done), step("after a", ["a"], done), step("b", [], done), step("after b", ["b"], done)]
    with module.taken(place.runs / ".a.lock") as mine, module.taken(place.runs / ".a.lock") as again:
        assert mine and not again
        assert not module.work_on(plan, place)
    assert done == ["b", "after b"]
    assert module.work_on(plan, place) and done == ["b", "after b", "a", "after a"]


def test_the_first_step_that_can_begin_is_next(place):
    "What was in the way of an early step may be done by a later one."
    place.out.mkdir()
    done = []
    assert module.work_on([step("last", ["second"], done), step("second", ["first"], done), step("first", [], done)], place)
    assert done == ["first", "second", "last"]


def test_a_model_that_is_not_here(done, capsys):
    "Where only the record of a run came from another machine, what needs its model is left out, with a message; all else is done."
    place, _ = done
    again = ["rival_test_recurrent_seed0", "rival_test_transformer_seed0"]
    for name in again:
        (place.out / f"{name}.json").unlink()
    shutil.rmtree(place.runs / "rival_recurrent_seed0")
    assert not module.do_next(SMALL, place)
    said = [line for line in capsys.readouterr().err.splitlines() if "only its record is here" in line]
    assert len(said) == 1 and said[0].startswith("rival_recurrent_seed0: ") and "rival_recurrent_seed0.json" in said[0]
    assert [(place.out / f"{name}.json").exists() for name in again] == [False, True]
    (place.out / "rival_recurrent_seed0.json").unlink()
    assert module.do_next(SMALL, place) and (place.out / f"{again[0]}.json").exists()


def test_the_clock(tmp_path, monkeypatch, place):
    rules = SMALL._replace(throughput={"lengths": [4, 8], "tokens": 16, "rounds": 1})
    module.time_updates(rules, "cpu", tmp_path)
    record = read_record(tmp_path / f"rival_speed_cpu_{native_precision(torch.device('cpu'))}.json")
    assert {(line["system"], line["n"], line["batch"]) for line in record["metrics"]["updates"]} == {
        (name, n, 16 // n) for name in ("transformer", "recurrent", "input-feeding") for n in (4, 8)}
    assert all(record["metrics"][f"seconds/transformer/{n}"] > 0 for n in (4, 8))


def test_flops_of_a_batch_with_padding():
    "The Transformer as it is trained computes nothing on padding, but for the scores of attention."
    c = replace(BASE, vocab_size=50, n_layers=2, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8)
    src, tgt = costs.sentences(50, 2, 6)
    padded = src.clone(), tgt.clone()
    padded[0][1, 3:], padded[1][1, 4:] = PAD, PAD  # three of the twelve symbols less, on each side
    full, part = (costs.update_flops(architectures.build(c), *pair) for pair in ((src, tgt), padded))
    projection, feed_forward = c.d_model * c.n_heads * c.d_k, 2 * c.d_model * c.d_ff
    of_src = c.n_layers * (4 * projection + feed_forward + 2 * projection)  # the last two: keys and values for the decoder
    of_tgt = c.n_layers * (6 * projection + feed_forward) + c.vocab_size * c.d_model
    assert full - part == 3 * 2 * 3 * (of_src + of_tgt)


def test_lstms_closed_form_at_other_sizes():
    for kind, gates in ((nn.LSTM, 4), (nn.GRU, 3)):
        class Net(Mean):
            def __init__(self, config):
                super().__init__(config)
                self.layer = kind(16, 16, num_layers=2, batch_first=True)

            def encode(self, src):
                return self.layer(self.embedding(src))[0], (src != PAD)[:, None, None, :]

        n, batch = 5, 3
        expected = 3 * 2 * batch * n * (2 * gates * (16 + 16) * 16 + 300 * 16)
        assert costs.update_flops(Net(MeanConfig()), *costs.sentences(300, batch, n)) == expected


@pytest.mark.parametrize("options, word", [(["next", "--minutes", "0"], "--minutes 0"), (["throughput", "--device", "cuda"], "--device cuda"),
                                           (["plan", "--only", "x"], "goes with next")])
def test_wrong_options_are_one_line(options, word, capsys, tmp_path):
    if "cuda" in options and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(SystemExit) as end:
        module.main([*options, "--out", str(tmp_path), "--folder", str(tmp_path / "runs")])
    said = capsys.readouterr().err
    assert end.value.code == 2 and word in said and said.count("\n") == 1 and not any(tmp_path.iterdir())


def test_the_plan_lists_every_record(capsys, tmp_path):
    module.main(["plan", "--out", str(tmp_path)])
    listed = [line.split()[:2] for line in capsys.readouterr().out.splitlines() if line]
    assert {state for state, _ in listed} == {"missing"} and len(listed) == len({name for _, name in listed})
    assert {f"rival_{system.name}{'_fr' * (tgt == 'fr')}_seed{seed}" for system in (*RULES.systems.values(), *RULES.tuned)
            for tgt, seeds in system.seeds.items() for seed in seeds} <= {name for _, name in listed}


def test_one_record_with_what_it_waits_for():
    plan = [module.Step(name, needs, None, after=after) for name, needs, after in
            (("trial", [], ()), ("other", [], ()), ("run0", ["trial"], ()), ("run1", ["trial"], ()), ("test0", ["run0"], ("run0", "run1")))]
    for only, names in (("trial", ["trial"]), ("run0", ["trial", "run0"]), ("test0", ["trial", "run0", "run1", "test0"])):
        assert [step.name for step in module.leading_to(plan, only)] == names
    with pytest.raises(module.InputError, match="--only run2: no such record"):
        module.leading_to(plan, "run2")


@pytest.mark.parametrize(("tgt", "seeds"), [("de", 12), ("fr", 6)])
def test_runs_that_are_compared_share_text_vocabulary_and_training(tgt, seeds):
    "Of the committed records: the same digests, and the same training but for what the trials chose."
    names = [name for name in (f"rival_{system.name}{'_fr' * (tgt == 'fr')}_seed{seed}"
                               for system in RULES.systems.values() for seed in system.seeds[tgt])
             if (RESULTS / f"{name}.json").exists()]
    records = [read_record(RESULTS / f"{name}.json") for name in names]
    assert len(records) >= seeds
    assert len({(r["data"]["digest"], r["data"]["vocabulary"]) for r in records}) == 1
    free = {"optimizer", "clip_norm", "rate", "seed", "precision"}
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
