"""Paths as a task: what is asked can be answered, nothing gives it away, and a stopped run ends as one that was not."""
from dataclasses import replace

import numpy as np
import pytest
import torch

from annotated_transformer.experiments.complexity import LAYERS, Sizes
from annotated_transformer.experiments.runner import Place, experiment
from annotated_transformer.tools.files import InputError
from annotated_transformer.tools.records import add_record

paths = experiment("paths")
RULES = paths.recall_rules()
TINY = RULES._replace(
    task=replace(RULES.task, symbols=4, nearest=2, farthest=8, room=1, distances=(2, 8),
                 spans={"recall": 1, "copying": 2}), d=16, n_layers=2,
    n_heads=2, models={name: replace(kind, d_ff=8, k=min(kind.k, 9), r=min(kind.r, 9)) for name, kind
                       in RULES.models.items()},
    training=replace(RULES.training, batch=8, steps=6, warmup_steps=2, rates=(1e-3, 1e-2), trial_steps=2, every=2,
                     sequences=8, last_sequences=8, seeds=(0, 1)))


def test_the_rules_are_fair():
    "Equal weights to 5%, every farthest symbol within reach, and only Table 1's layers."
    weights = [sum(p.numel() for p in paths.Stack(RULES, kind).parameters()) for kind in RULES.models.values()]
    assert max(weights) / min(weights) < 1.05
    for kind in RULES.models.values():
        assert kind.layer in LAYERS
        assert kind.layer == "LSTM" or paths.path_to(kind, RULES.task.farthest) <= RULES.n_layers
    assert set(RULES.task.distances) <= set(range(RULES.task.nearest, RULES.task.farthest + 1))
    assert RULES.training.trial_seed not in RULES.training.seeds


def oracle(task, ids, span, distance):
    "The answers, by looking where they stand."
    return (ids[:, -span - distance : ids.size(1) - distance] - 1) % task.symbols


@pytest.mark.parametrize("span", [1, 4])
def test_a_question_has_one_answer(span):
    rng = np.random.default_rng(0)
    for distance, other in ((8, 40), (256, 9)):
        ids, answers = paths.sequences(RULES.task, rng, 64, span, distance, other)
        assert torch.equal(oracle(RULES.task, ids, span, distance), answers)
        marks = (ids - 1) // RULES.task.symbols
        assert (marks == 1).sum() == (marks == 2).sum() == 64 * span  # one place of each mark
        asked = (ids[:, -1:] - 1 - 3 * RULES.task.symbols).expand_as(answers) + 1
        assert torch.equal(marks[:, -span - distance : ids.size(1) - distance], asked)


def test_neither_values_nor_place_give_the_answer_away():
    "Over many sequences: each value as often, the marks as often, the asked place as often the nearer."
    nearer, values, first = [], [], []
    for step in range(2000):
        rng = np.random.default_rng([7, step])
        distance = paths.drawn_distance(RULES.task, rng)
        other = paths.distractor_distance(RULES.task, rng, 1, distance)
        ids, answers = paths.sequences(RULES.task, rng, 16, 1, distance, other)
        nearer.append(distance < other)
        values.append(answers.flatten())
        first.append((ids[:, -1] == 1 + 3 * RULES.task.symbols).double().mean().item())
    counts = torch.bincount(torch.cat(values), minlength=16).double()
    assert abs(np.mean(nearer) - 0.5) < 0.05 and abs(np.mean(first) - 0.5) < 0.02
    assert ((counts - 2000) ** 2 / 2000).sum() < 45  # chi squared of 15 degrees of freedom, beyond the 0.9999 quantile


def test_the_band_is_that_of_restricted_attention():
    "The stack's mask against the layer in blocks, with the same weights."
    from annotated_transformer.model.attention import MultiHeadAttention

    torch.manual_seed(0)
    blocks = LAYERS["restricted attention"](Sizes(20, 16, r=5)).double()
    masked = MultiHeadAttention(16, blocks.n_heads).double()
    masked.load_state_dict(blocks.state_dict())
    x = torch.randn(2, 20, 16, dtype=torch.float64)
    torch.testing.assert_close(masked(x, x, x, paths.band(20, 5)), blocks(x))


@pytest.mark.parametrize("model", RULES.models)
def test_paths_of_whole_stacks(model):
    "In a trained stack an output depends on an input just where the path of its layers is no longer than the stack."
    rules = TINY._replace(models={model: replace(TINY.models[model], k=3, r=3)})
    torch.manual_seed(0)
    stack, x = paths.Stack(rules, rules.models[model]).double(), torch.randn(1, 12, 16, dtype=torch.float64,
                                                                             requires_grad=True)
    of_one, = torch.autograd.grad(stack.encode(x)[0, -1, 0], x)
    for distance in range(1, 12):
        reached = rules.models[model].layer == "LSTM" or paths.path_to(rules.models[model], distance) <= rules.n_layers
        assert bool(of_one[0, 11 - distance].abs().max() > 0) == reached, distance


def test_a_stopped_run_ends_as_one_that_was_not(tmp_path):
    whole, parts = (Place(tmp_path, tmp_path / name, tmp_path / f"{name}_out") for name in ("whole", "parts"))
    over = replace(parts, until=0.0)  # every evaluation ends a session
    for number, do in enumerate((paths.try_rates,
                                 lambda rules, model, place: paths.measure_seed(rules, model, 0, place))):
        once = do(TINY, "dilated", whole)
        stopped = 0
        while (found := do(TINY, "dilated", over)) is None:
            stopped += 1
        assert found["metrics"] == once["metrics"] and found.get("curve") == once.get("curve")
        for record, place in ((once, whole), (found, parts)):
            add_record(record, place.out)
        if number == 0:
            rates = once["metrics"]
    assert stopped == 2 and len(found["sittings"]) == 3
    assert {"accuracy/recall/8", "while_learning/copying/2", "path/8", "parameters", "steps",
            "rate"} <= set(once["metrics"])
    assert rates["rate"] == once["metrics"]["rate"] == max(TINY.training.rates,
                                                           key=lambda r: rates[f"while_learning/{r:g}"])


def test_a_damaged_state_is_told(tmp_path):
    (tmp_path / "paths").mkdir()
    (tmp_path / "paths" / "dilated_rate0.001.pt").write_bytes(b"no")
    with pytest.raises(InputError, match="remove it to begin again"):
        paths.try_rates(TINY, "dilated", Place(tmp_path, tmp_path, tmp_path))


def test_an_lstm_with_open_gates_remembers():
    "The gradient from the last output to the first input, over 100 steps: with PyTorch's start nothing is left of it."
    def left(open_gates):
        torch.manual_seed(0)
        layer = paths.mixer(RULES, replace(RULES.models["recurrent"], open_gates=open_gates), 0).layer.double()
        x = torch.zeros(1, 101, RULES.d, dtype=torch.float64, requires_grad=True)
        of_x, = torch.autograd.grad(layer(x)[0, -1].sum(), x)
        return of_x[0, 0].norm().item()

    assert left(True) > 1e6 * left(False)
