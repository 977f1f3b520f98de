"""The small experiments of section 3: their tasks can be solved, and only as their sentences say."""

import pytest
import torch

from annotated_transformer.experiments.runner import Place, experiment

section_3 = experiment("section_3")


def test_the_symbols_of_a_memory_differ():
    (symbols, _), _ = section_3.memories(16)
    assert all(len(set(row.tolist())) == section_3.PAIRS for row in symbols)


@pytest.mark.parametrize("kind", ["additive", "unscaled", "scaled"])
def test_looking_up_is_solved_by_the_right_weights(kind):
    "Queries equal to keys, far apart: every symbol finds its own value."
    torch.manual_seed(0)
    model = section_3.LookUp(kind, 256)
    if kind == "additive":
        assert section_3.learned(model, section_3.memories, 60,
                                 0.01) > 3 / section_3.SYMBOLS  # learned, not written down
        return
    with torch.no_grad():
        model.keys.copy_(model.queries * (1 if kind == "unscaled" else 16))
        model.values.copy_(torch.eye(32))
        model.answer.weight.copy_(torch.eye(32) * 10)
    memory, values = section_3.memories(64)
    assert (model(memory).argmax(-1) == values).float().mean() > 0.99


def test_places_that_were_not_asked_about_are_tested_and_no_others(monkeypatch):
    drawn = {}

    def learned(model, batch, steps, test):
        (_, asked), (_, tested) = batch(), test()
        drawn[model.positions.requires_grad] = (asked >= 0).all(0), (tested >= 0).all(0)
        assert ((asked >= 0).any(0) == drawn[model.positions.requires_grad][0]).all()
        return 0.5

    monkeypatch.setattr(section_3, "learned", learned)
    assert section_3.looking_back(0, left_out=True) == {"accuracy/sinusoidal": 0.5, "accuracy/learned": 0.5}
    assert set(drawn) == {False, True}  # sinusoids are not trained, learned positions are
    for asked, tested in drawn.values():
        assert (asked ^ tested).all() and [i + section_3.BACK
                                           for i in tested.nonzero().flatten().tolist()] == list(
                                               range(5, section_3.LENGTH, 5))


def test_small_keys_are_means_over_models_of_their_own(monkeypatch):
    begun = []
    monkeypatch.setattr(section_3, "learned", lambda model, *_: begun.append(torch.initial_seed()) or float(len(begun)))
    assert section_3.small_keys(3) == {"accuracy/additive": 5.5, "accuracy/unscaled": 15.5}
    assert begun == [*range(1030, 1040)] * 2


def test_bytes_are_those_of_the_hidden_layer():
    """Additive attention keeps a number for every pair and hidden unit; dot products one for every pair, beside
    queries, keys and values."""
    found = section_3.cost(lengths=(8, 32), d_k=16, rounds=2)
    pairs, vectors = 32 * 32 * 4, 3 * 32 * 16 * 4
    assert 16 * pairs <= found["bytes/additive"] <= 16 * pairs + 3 * pairs + 3 * vectors
    assert pairs <= found["bytes/dot_product"] <= 2 * pairs + vectors
    assert [(u["system"], u["n"], len(u["all"]))
            for u in found["updates"]] == [(way, n, 2) for n in (8, 32) for way in ("additive", "dot_product")]


def test_a_seed_decides_all():
    torch.set_num_threads(1)
    runs = []
    for _ in range(2):
        torch.manual_seed(3)
        runs.append(section_3.learned(section_3.LookUp("scaled", 4), section_3.memories, 5))
    assert runs[0] == runs[1]


def test_records_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr(section_3, "EXPERIMENTS", {"two": lambda seed: {"accuracy/x": 0.5 + seed}})
    timing, first, second = section_3.steps({"two": 2})
    record = second.do(Place(tmp_path, tmp_path, tmp_path))
    assert timing.alone and first.name == "two_seed0" and (record["name"], record["seed"],
                                                           record["metrics"]) == ("two_seed1", 1, {"accuracy/x": 1.5})
