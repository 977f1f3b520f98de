"""A step from CUDA graphs is the step without them."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from annotated_transformer.corpus.batching import Batch
from annotated_transformer.engine.cuda_graphs import Captured, bucket, can_capture, in_few_shapes
from annotated_transformer.engine.fast import fast_to_train
from annotated_transformer.engine.kinds import build
from annotated_transformer.model.symbols import END, PAD, START
from annotated_transformer.model.transformer import BASE
from annotated_transformer.rivals.convolutional import ConvolutionalConfig
from annotated_transformer.rivals.recurrent import RecurrentConfig
from annotated_transformer.training.loop import Objective, update
from annotated_transformer.training.optimizer import adam
from annotated_transformer.training.presets import TrainingConfig

SMALL = replace(BASE, vocab_size=50, d_model=32, d_ff=64, n_heads=4, n_layers=2, dropout=0.1)
KINDS = [SMALL, replace(SMALL, positions="learned", max_length=24),
         replace(SMALL, pre_norm=True, parameter_heads=2, n_p=16),
         ConvolutionalConfig(vocab_size=50, d_model=32, n_layers=2, dropout=0.1)]


def random_batch(lengths: list[tuple[int, int]], seed: int = 0) -> Batch:
    "Sentences of these lengths, their end tokens counted."
    generator = torch.Generator().manual_seed(seed)
    src, tgt = (torch.full((len(lengths), max(pair[i] for pair in lengths) + i), PAD) for i in range(2))
    for row, (s, t) in enumerate(lengths):
        src[row, :s] = torch.cat([torch.randint(4, 50, (s - 1,), generator=generator), torch.tensor([END])])
        tgt[row, : t + 1] = torch.cat([torch.tensor([START]), torch.randint(4, 50, (t - 1,), generator=generator),
                                       torch.tensor([END])])
    return Batch(src, tgt, torch.arange(len(lengths)).numpy())


@settings(deadline=None)
@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_few_sizes_and_none_much_larger(n, m):
    assert n <= bucket(n) <= 1.25 * n and bucket(bucket(n)) == bucket(n)
    assert (bucket(n) <= bucket(m)) if n <= m else (bucket(n) >= bucket(m))


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(KINDS), st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=11))
def test_padding_counts_nothing(config, lengths):
    torch.manual_seed(0)
    batch, found = random_batch(lengths), []
    objective = Objective(fast_to_train(build(replace(config, dropout=0.0))).double(), 0.1)
    for ids, padded in (((batch.src, batch.tgt), False), (in_few_shapes(batch.src, batch.tgt), True)):
        objective.zero_grad()
        loss = objective(*ids, padded)
        loss.backward()
        found.append([loss.detach(), *(torch.zeros_like(p) if p.grad is None else p.grad.clone()
                                       for p in objective.parameters())])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


def test_who_is_captured(monkeypatch):
    models = [fast_to_train(build(config)) for config in (*KINDS, RecurrentConfig(vocab_size=50, d_model=32))]
    assert not any(can_capture(model, "float32") for model in models)  # on a processor nobody
    monkeypatch.setattr(torch.Tensor, "device", torch.device("cuda"))
    assert [can_capture(model, "float32") for model in models] == [True] * len(KINDS) + [False]
    assert not can_capture(models[0], "float16") and not can_capture(models[0], "float32", compiled=True)
    models[0].positions = nn.Identity()  # of another program: it may compute on the host
    models[1].encoder[0].feed_forward = nn.Identity()
    models[3].extra_loss = lambda: 0.0  # for each token, and padding is among them
    assert not any(can_capture(models[i], "float32") for i in (0, 1, 3))


class OnTheProcessor(Captured):
    "What is captured is a step that computes; memory is as the test says."

    def capture(self, src: torch.Tensor, tgt: torch.Tensor) -> tuple:
        if self.short_of_memory:
            raise torch.OutOfMemoryError
        inputs, loss = (src.clone(), tgt.clone(), torch.ones((), dtype=torch.float64)), torch.zeros(
            (), dtype=torch.float64)
        return SimpleNamespace(replay=lambda: loss.copy_(self.compute(*inputs, padded=True))), inputs, loss


@pytest.fixture
def without_a_gpu(monkeypatch):
    free = [1 << 40]
    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name, value in {"graph_pool_handle": lambda: None, "Stream": lambda device: stream,
                        "current_stream": lambda device: stream, "stream": lambda one: nullcontext(),
                        "mem_get_info": lambda device: (free[0], 0), "max_memory_allocated": lambda device: 1 << 30,
                        "empty_cache": lambda: None, "is_current_stream_capturing": lambda: False}.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return free


def trained(captured_by: type | None, memory: str = "",
            free: list[int] | None = None) -> tuple[list[float], Captured | None]:
    "The losses of updates in two parts of five shapes, again and again, and what made the passes."
    torch.manual_seed(0)
    objective = Objective(fast_to_train(build(replace(SMALL, dropout=0.0)).train()), 0.1)
    optimizer, passes = adam(objective.parameters()), captured_by and captured_by(objective)
    shapes = [[(3, 9)], [(8, 2), (5, 5)], [(3, 9), (8, 2), (5, 5)], [(20, 24)], [(600, 3)]] * 4
    found, whole = [], objective.model.decode_packed
    for step, lengths in enumerate(shapes, 1):
        if passes:
            passes.short_of_memory = memory == "in a capture" and step > 2
            free[0] = 0 if memory == "short" and step > 2 else 1 << 40
        if memory == "in a step" and step == 13:  # once; then the graphs are gone, and there is enough
            objective.model.decode_packed = lambda *of: (setattr(objective.model, "decode_packed", whole), fail())[0]
        parts = [(random_batch(lengths, step), 1.0), (random_batch(lengths[:1], step), 1.0)]
        found.append(float(update(objective, optimizer, parts, 9, TrainingConfig(warmup_steps=4), step,
                                  captured=passes)))
    return found, passes


def fail() -> None:
    raise torch.OutOfMemoryError


@pytest.fixture(scope="module")
def as_they_are():
    return trained(None)[0]


@pytest.mark.parametrize("memory, graphs", [("", 5), ("short", 1), ("in a capture", 1), ("in a step", 0)])
def test_steps_with_and_without_memory_for_graphs(memory, graphs, as_they_are, without_a_gpu):
    losses, passes = trained(OnTheProcessor, memory, without_a_gpu)
    assert losses == pytest.approx(as_they_are, rel=1e-4)
    assert len(passes.graphs) == graphs and passes.full == bool(memory)
    for p in passes.objective.parameters():
        p.grad = torch.ones_like(p)  # somebody's, which the graphs do not know
    passes.backward(*random_batch([(3, 9)])[:2], 0.0)
    assert all(p.grad is gradient and not gradient.any() for p, gradient in passes.gradients)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("config", KINDS)
def test_on_a_gpu_nothing_changes(config):
    batches = [random_batch([(3, 9), (8, 2), (5, 5)] * n, n) for n in (1, 2, 3, 1, 2, 3, 1)] + [
        random_batch([(20, 24)] * 2), random_batch([(300, 20)])]

    def losses(captured: bool, dropout: float, precision: str) -> list[float]:
        torch.manual_seed(0)
        model = fast_to_train(build(replace(config, dropout=dropout)).cuda().train())
        objective, optimizer = Objective(model, 0.1, precision), adam(model.parameters())
        assert can_capture(model, precision) and not can_capture(model, "float16")
        passes = Captured(objective) if captured else None
        long = [b for b in batches if b.src.size(1) <= 24 or config.positions != "learned"] if hasattr(
            config, "positions") else batches
        found = [update(objective, optimizer, [(batch, 1.0)] * 2, 9, TrainingConfig(warmup_steps=4), step,
                        captured=passes) for step, batch in enumerate(long * 3, 1)]
        assert not captured or len(passes.graphs) > 2
        return [float(loss) for loss in found]

    assert losses(True, 0.0, "float32") == pytest.approx(losses(False, 0.0, "float32"), rel=2e-3)
    assert losses(True, 0.2, "bfloat16") == pytest.approx(losses(True, 0.2, "bfloat16"), rel=1e-3)
    passes = Captured(Objective(fast_to_train(build(replace(config, dropout=0.2)).cuda().train()), 0.1))

    def loss_of(seed: int) -> float:
        torch.manual_seed(seed)
        return float(passes.backward(*random_batch([(3, 9), (8, 2)])[:2], 0.0))

    computed, captured = loss_of(1), loss_of(1)
    assert len(passes.graphs) == 1 and captured == pytest.approx(computed, rel=1e-5)
    assert loss_of(1) == pytest.approx(computed, rel=1e-5) != loss_of(2)  # random numbers are drawn in each replay
