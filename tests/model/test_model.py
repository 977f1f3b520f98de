"The model, for shapes that no one picked by hand: counts, causality, padding, and decoding a token at a time."
import contextlib
import shutil
import subprocess
import sys
from dataclasses import replace

import jaxtyping
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from annotated_transformer.corpus.batching import Batch
from annotated_transformer.decoding.search import beam_search, choices, largest, sample, search
from annotated_transformer.engine import fast as fast_module
from annotated_transformer.engine import kernels
from annotated_transformer.engine.fast import Packed, fast, linear_cross_entropy, without_cudnn
from annotated_transformer.engine.kv_cache import DecoderState
from annotated_transformer.model import embedding
from annotated_transformer.model.attention import recording
from annotated_transformer.model.symbols import END, PAD, START
from annotated_transformer.model.transformer import BASE, Transformer, TransformerConfig, count_parameters
from annotated_transformer.training.loop import Objective, update
from annotated_transformer.training.optimizer import adam, set_rate
from annotated_transformer.training.presets import TrainingConfig
from annotated_transformer.training.regularization import measure
from here import examples

VOCABULARY = 13

small_configs = st.builds(
    TransformerConfig, vocab_size=st.just(VOCABULARY), n_layers=st.integers(1, 3), d_model=st.integers(1, 12),
    d_ff=st.integers(1, 20),
    n_heads=st.integers(1, 4), d_k=st.integers(1, 6), d_v=st.integers(1, 6), attention_bias=st.booleans(),
    pre_norm=st.booleans(),
    positions=st.sampled_from(["sinusoidal", "learned"]), max_length=st.just(24), parameter_heads=st.integers(0, 2),
    n_p=st.integers(1, 5))
words = st.lists(st.integers(4, VOCABULARY - 1), min_size=1, max_size=6)
few = settings(max_examples=examples(60), deadline=None, derandomize=True)


def model_of(config: TransformerConfig) -> Transformer:
    "In float64 and in evaluation, every one-dimensional weight moved off the 0 or 1 it starts with."
    torch.manual_seed(0)
    model = Transformer(config).double().eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def close(a: torch.Tensor, b: torch.Tensor):
    torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


@few
@given(small_configs)
def test_formula_counts_what_the_model_has(config):
    assert count_parameters(config) == sum(p.numel() for p in Transformer(config).parameters())


@few
@given(small_configs, words, words, st.data())
def test_no_position_sees_a_later_one(config, src, tgt, data):
    model, src, tgt = model_of(config), torch.tensor([src]), torch.tensor([[START, *tgt]])
    i = data.draw(st.integers(0, tgt.size(1) - 1), label="position")
    embedded = []
    model.embedding.register_forward_hook(lambda module, args, output: embedded.append(output))
    logits = model(src, tgt)[0, i]
    gradient, = torch.autograd.grad(logits @ torch.randn(VOCABULARY, dtype=torch.float64), embedded[1])
    assert (gradient[0, i + 1:] == 0).all()
    changed = tgt.clone()
    changed[:, i + 1:] = END
    close(model(src, changed)[0, :i + 1], model(src, tgt)[0, :i + 1])


@few
@given(small_configs, words, words, st.integers(0, 4), st.integers(0, 4))
def test_padding_and_neighbours_change_nothing(config, src, tgt, more_src, more_tgt):
    model, src, tgt = model_of(config), torch.tensor([src]), torch.tensor([[START, *tgt]])
    alone = model(src, tgt)[0]
    padded = F.pad(src, (0, more_src), value=PAD), F.pad(tgt, (0, more_tgt), value=PAD)
    neighbours = [torch.randint(4, VOCABULARY, (2, ids.size(1))) for ids in padded]
    together = model(*(torch.cat(pair) for pair in zip(padded, neighbours)))
    close(together[0, :tgt.size(1)], alone)


@few
@given(small_configs, words, words, st.integers(0, 3))
def test_a_step_at_a_time_equals_the_whole(config, src, tgt, padding):
    model, src, tgt = model_of(config), F.pad(torch.tensor([src]), (0, padding),
                                              value=PAD), torch.tensor([[START, *tgt]])
    with torch.inference_mode():
        state = DecoderState(fast(model), src)
        steps = [state.step(tgt[:, i:i + 1]) for i in range(tgt.size(1))]
        close(torch.cat(steps, 1), model(src, tgt))


def test_cudnns_attention_is_left_out_for_a_block_alone():
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        fast(model_of(SMALL))
        assert torch.backends.cuda.cudnn_sdp_enabled()
        with without_cudnn(torch.device("cuda")):
            assert not torch.backends.cuda.cudnn_sdp_enabled()
            with without_cudnn(torch.device("cuda")):
                pass
            assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@few
@given(small_configs, words, words, st.integers(0, 4), st.integers(0, 4))
def test_the_fast_model_is_the_plain_one(config, src, tgt, more_src, more_tgt):
    "Logits at real positions, and the gradient of every weight, with padding and neighbours of other lengths."
    model = model_of(config)
    padded = [F.pad(torch.tensor([ids]), (0, more), value=PAD) for ids,
              more in ((src, more_src), ([START, *tgt], more_tgt))]
    both = [torch.cat((ids, torch.randint(4, VOCABULARY, ids.shape))) for ids in padded]
    real, found = both[1] != PAD, []
    direction = torch.randn(int(real.sum()), VOCABULARY, dtype=torch.float64)
    for version in (model, fast(model)):
        logits = version(*both)[real]
        found.append([logits,
                      *torch.autograd.grad((logits * direction).sum(), list(model.parameters()), allow_unused=True)])
    for plain, quick in zip(*found):
        assert (plain is None) == (quick is None)
        if plain is not None:
            close(quick, plain)


@pytest.mark.parametrize("pre_norm", [False, True])
def test_the_fast_model_drops_where_the_plain_one_does(pre_norm, monkeypatch):
    """Each dropout squares instead, which no other part undoes: the two models agree where all of them stand at the
    same places."""
    model = model_of(replace(SMALL, dropout=0.3, pre_norm=pre_norm)).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout) and module.p:
            module.forward = torch.square
    monkeypatch.setattr(fast_module, "drop", lambda x, module: x.square())
    src, tgt = torch.tensor([[5, 6, 7, 8], [9, 10, PAD, PAD]]), torch.tensor([[START, 4, 5], [START, 6, PAD]])
    close(fast(model)(src, tgt)[tgt != PAD], model(src, tgt)[tgt != PAD])


@pytest.mark.parametrize("sentences", [2, 12])
def test_the_fast_model_drops_attention_weights(sentences):
    model = fast(model_of(replace(SMALL, dropout=0.0, attention_dropout=0.5)).train())
    src, tgt = torch.randint(4, 40, (sentences, 6)), torch.randint(4, 40, (sentences, 5))
    assert not torch.equal(model(src, tgt), model(src, tgt))


@pytest.mark.parametrize("half, off", [("bfloat16", 0.03), ("float16", 0.004)])
def test_the_loss_in_16_bits_is_nearly_that_in_float32(half, off):
    model, (src, tgt) = model_of(SMALL).float(), (torch.randint(4, 40, (6, 7)), torch.randint(4, 40, (6, 7)))
    losses = [Objective(fast(model), 0.1, precision)(src, tgt) for precision in ("float32", half)]
    assert 0 < abs(losses[1] / losses[0] - 1) < 1e-3
    exact, rounded = (torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
                   for loss in losses)
    assert 0 < (exact - rounded).norm() / exact.norm() < off


@few
@given(small_configs, words, words)
def test_recording_changes_no_bit_and_keeps_the_softmax(config, src, tgt):
    model, src, tgt = model_of(config), torch.tensor([src]), torch.tensor([[START, *tgt]])
    with torch.no_grad():
        before = model(src, tgt)
        with recording(model) as kept:
            assert torch.equal(model(src, tgt), before)
    for weights in kept.values():
        assert len(weights) == 1 and weights[0].shape[1] == config.n_heads
        close(weights[0].sum(-1), torch.ones_like(weights[0][..., 0]))


CONFIGS = [{}, {"pre_norm": True}, {"positions": "learned", "max_length": 32}, {"parameter_heads": 2, "n_p": 6},
           {"attention_bias": True},
           {"src_vocab_size": 50}]
SMALL = replace(BASE, vocab_size=40, d_model=16, d_ff=32, n_heads=4, d_k=4, d_v=4, n_layers=2)


class FakeCuda(TorchFunctionMode):
    """Fake tensors on "cuda" with a PyTorch that knows no CUDA:

    its indexing and its `to` ask for a driver, the operations behind them do not.
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.__getitem__:
            return self.item(*args)
        if function is torch.Tensor.__setitem__:
            return self.item(*args[:2]).zero_().add_(args[2])
        if function is torch.Tensor.__invert__:
            return torch.bitwise_not(*args)
        if function is torch.Tensor.to and (args[1:] or kwargs.keys() == {"device"}):
            wanted = args[1] if args[1:] else kwargs["device"]
            if isinstance(wanted, torch.device | str):
                return torch.ops.aten._to_copy(args[0], device=torch.device(wanted))
        return function(*args, **(kwargs or {}))

    def item(self, x, index):
        dimension = 0
        for part in index if isinstance(index, tuple) else (index,):
            if part is Ellipsis:
                dimension = x.dim() - sum(p is not None for p in index[index.index(Ellipsis) + 1 :])
            elif isinstance(part, int):
                x = torch.select(x, dimension, part)
            elif isinstance(part, torch.Tensor | list):
                x = torch.ops.aten.index(x, [None] * dimension + [torch.as_tensor(part, device=x.device)])
                dimension += 1
            else:
                start, stop, _ = (slice(None) if part is None
                                  else part).indices(x.size(dimension) if part is not None else 1)
                x = x.unsqueeze(dimension) if part is None else torch.ops.aten.slice(x, dimension, start, stop)
                dimension += 1
        return x


@contextlib.contextmanager
def fake_gpu(config: TransformerConfig):
    "Within the block all tensors are fake; it gets a model on the device cuda."
    with torch.device("meta"):
        model = Transformer(config).eval()  # neither dropout nor a graph for gradients can be had without a device
    with torch.no_grad(), FakeTensorMode(), FakeCuda():
        for module in model.modules():
            for name, p in module._parameters.items():
                module._parameters[name] = p if p is None else torch.nn.Parameter(torch.empty(p.shape, device="cuda"))
        yield model


def all_real(ids: torch.Tensor, device: torch.device) -> Packed:
    "As `pack_batch`, where nothing is padding: how many tokens are real, fake ids cannot tell."
    places = torch.arange(ids.numel())
    parts = ids.flatten(), places, places % ids.size(1), torch.ones(len(ids), 1, 1, ids.size(1), dtype=torch.bool)
    return Packed(*(part.to(device) for part in parts))


def fake_ids(*shape: int, device: str = "cuda") -> torch.Tensor:
    return torch.randint(4, 40, shape, device=device)


@pytest.mark.parametrize("options", CONFIGS, ids=str)
def test_on_a_gpu_that_is_not_there(options, monkeypatch):
    """The plain model, the fast one and steps of a search on fake tensors: a tensor that is left behind on the host
    is an error."""
    for module in ("fast", "kv_cache"):
        monkeypatch.setattr(f"annotated_transformer.engine.{module}.pack_batch", all_real)
    with fake_gpu(replace(SMALL, **options)) as model:
        logits = model(fake_ids(3, 7), fake_ids(3, 5))
        assert logits.device.type == "cuda" and logits.shape == (3, 5, 40)
        memory = fast(model).encode(fake_ids(3, 7, device="cpu"))
        assert fast(model).decode(fake_ids(3, 5, device="cpu"), *memory).device.type == "cuda"
        state = DecoderState(fast(model), fake_ids(3, 7, device="cpu"))
        for places in (1, 2, 2):
            assert state.step(fake_ids(3, places)).device.type == "cuda"
            state.reorder(torch.zeros(3, 2, dtype=torch.long, device="cuda"))
        state.select([0, 2])


def test_a_loss_and_a_search_on_a_gpu_that_is_not_there():
    "What training and decoding do behind the model: the loss from hidden vectors, and a beam's bookkeeping."
    with fake_gpu(SMALL) as model:
        assert linear_cross_entropy(torch.empty(15, 16, device="cuda"), model.embedding.weight,
                                    fake_ids(15)).device.type == "cuda"
        for places in (1, 4):
            found = largest(choices(torch.empty(3, places, 40, device="cuda")), 4)
            assert {part.device.type for part in found} == {"cuda"}


def test_a_constraint_starts_on_the_device_of_the_search(monkeypatch):
    "The sources come from the host; what the constraint makes of them is compared with the search's tensors."
    class Started(Exception):
        pass

    class Constraint:
        def start(self, src):
            raise Started(src.device.type)

    for module in ("fast", "kv_cache"):
        monkeypatch.setattr(f"annotated_transformer.engine.{module}.pack_batch", all_real)
    with fake_gpu(SMALL) as model, pytest.raises(Started, match="cuda"):
        search(model, fake_ids(3, 7, device="cpu"), constraint=Constraint())


def test_a_tensor_left_on_the_host_is_caught():
    with fake_gpu(SMALL) as model, pytest.raises(RuntimeError, match="device"):
        model.positions.register_forward_hook(
            lambda module, given, output: output + torch.zeros(output.shape))  # made on the host
        model(fake_ids(3, 7), fake_ids(3, 5))


def test_two_vocabularies_are_two_halves_of_one():
    """A model with separate vocabularies is the one whose shared vocabulary has the target's tokens first and the
    source's behind them."""
    separate = model_of(replace(SMALL, src_vocab_size=25))
    joint = model_of(replace(SMALL, vocab_size=65))
    weights = {name: tensor for name, tensor in separate.state_dict().items() if "embedding" not in name}
    table = torch.cat((separate.embedding.weight, separate.src_embedding.weight))
    joint.load_state_dict(weights | {"embedding.weight": table})
    src, tgt = torch.randint(4, 25, (3, 7)), torch.randint(4, 40, (3, 5))
    for form in (lambda model: model, fast):
        close(form(separate)(src, tgt), form(joint)(src + 40, tgt)[..., :40])
    assert count_parameters(separate.config) == count_parameters(joint.config) == sum(
        p.numel() for p in separate.parameters())


class NoFloat64(TorchDispatchMode):
    "Where a tensor of float64 is an error, as on Apple's GPUs."

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        if any(isinstance(x, torch.Tensor) and x.dtype == torch.float64 for x in tree_leaves(found)):
            raise TypeError(
                f"{function}: Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support "
                f"float64")
        return found


def on_the_host(function):
    "What `function` computes before anything goes to the device."
    def without_the_mode(*args, **kwargs):
        with _disable_current_modes():
            return function(*args, **kwargs)
    return without_the_mode


@pytest.mark.parametrize("options", CONFIGS, ids=str)
def test_where_there_is_no_float64(options, monkeypatch):
    """An update, the quality, a search by beam and by chance: on a device without float64, for which the processor
    stands."""
    for module in ("model.embedding", "engine.fast"):
        monkeypatch.setattr(f"annotated_transformer.{module}.sinusoids", on_the_host(embedding.sinusoids))
    monkeypatch.setattr("annotated_transformer.engine.fast.WITHOUT_FLOAT64", {"cpu"})
    model = model_of(replace(SMALL, **options)).float()
    src, tgt = torch.tensor([[5, 6, END], [7, END, PAD]]), torch.tensor([[START, 8, 9, END], [START, 4, END, PAD]])
    batch, optimizer = Batch(src, tgt, np.arange(2)), adam(model.parameters())
    with NoFloat64():
        found = update(Objective(fast(model), 0.1), optimizer, [(batch, 1.0)], 5, TrainingConfig(clip_norm=1.0), 1)
        model.eval()
        measured, beams = measure(model, [batch]), beam_search(model, src, beam_size=3, max_extra_tokens=4)
        drawn = sample(model, src, max_extra_tokens=4)
    monkeypatch.undo()
    assert found.dtype == torch.float32 and measured.tokens == 5
    assert [h[0].ids for h in beams] == [h[0].ids for h in beam_search(model, src, beam_size=3, max_extra_tokens=4)]
    assert [h.ids for h in drawn] == [h.ids for h in sample(model, src, max_extra_tokens=4)]


def test_float64_is_noticed_where_there_is_none():
    with NoFloat64(), pytest.raises(TypeError, match="float64"):
        beam_search(model_of(SMALL).float(), torch.tensor([[5, END]]), beam_size=2, max_extra_tokens=2)


@pytest.mark.parametrize("options", CONFIGS, ids=str)
def test_an_update_where_there_are_only_shapes(options, monkeypatch):
    "The whole update of a training on the device meta, from ids on the host."
    monkeypatch.setattr(torch, "autocast", lambda *args, **kwargs: contextlib.nullcontext())  # this device has none
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)
    with torch.device("meta"):
        model = fast(Transformer(replace(SMALL, **options)))
    src, tgt = torch.tensor([[5, 6, END], [7, END, PAD]]), torch.tensor([[START, 8, 9, END], [START, 4, END, PAD]])
    optimizer, found = torch.optim.SGD(model.parameters()), []
    monkeypatch.setattr(optimizer, "step", lambda: found.extend(p.grad for p in model.parameters()))
    loss = update(Objective(model, 0.1), optimizer, [(Batch(src, tgt, np.arange(2)), 1.0)], 5, TrainingConfig(), 1)
    assert loss.shape == () and all(g is not None and g.device.type == "meta" for g in found)


@pytest.mark.slow
@pytest.mark.parametrize("options", CONFIGS, ids=str)
def test_the_plain_model_can_be_exported(options):
    model = model_of(replace(SMALL, **options))
    src, tgt = torch.randint(4, 40, (2, 6)), torch.randint(4, 40, (2, 5))
    lengths = {1: Dim("src", min=3, max=30)}, {1: Dim("tgt", min=3, max=30)}
    traced = torch.export.export(model, (src, tgt), dynamic_shapes=lengths).module()
    longer = torch.randint(4, 40, (2, 11)), torch.randint(4, 40, (2, 4))
    close(traced(*longer), model(*longer))


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="torch.compile needs a C++ compiler")
def test_the_plain_model_compiles_in_one_graph(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # the compiler cannot look through the checker
    model, src, tgt = model_of(replace(SMALL, n_layers=1)), torch.randint(4, 40, (2, 6)), torch.randint(4, 40, (2, 5))
    close(torch.compile(model, fullgraph=True)(src, tgt), model(src, tgt))


@pytest.mark.parametrize("changes, widths", [
    ({}, (64, 64)), ({"d_model": 256}, (32, 32)), ({"n_heads": 1}, (512, 512)), ({"d_k": 16}, (16, 64)),
    ({"d_model": 96, "n_heads": 5, "d_k": 3, "d_v": 7}, (3, 7))], ids=str)
def test_heads_are_as_wide_as_the_model_unless_their_width_is_given(changes, widths):
    "By the shapes of the matrices: base's 64 is a quotient, not a number that variations inherit."
    config = replace(BASE, **{"vocab_size": 11, "n_layers": 1, **changes})
    attention = Transformer(config).decoder[0].cross_attention
    h = config.n_heads
    assert (attention.query.weight.shape, attention.key.weight.shape) == ((h * widths[0], config.d_model),) * 2
    assert (attention.value.weight.shape,
            attention.output.weight.shape) == ((h * widths[1], config.d_model), (config.d_model, h * widths[1]))
    resolved = config.resolved()
    assert (resolved.d_k,
            resolved.d_v) == widths and resolved == resolved.resolved() and count_parameters(
                resolved) == count_parameters(config)


@pytest.mark.parametrize("given", [{}, {"d_k": 16}, {"d_v": 16}], ids=str)
def test_a_width_that_does_not_divide_is_said(given):
    with pytest.raises(ValueError, match="n_heads is 6: d_model 512 is not a multiple of it: give d_k and d_v"):
        Transformer(replace(BASE, n_heads=6, **given))
    assert Transformer(replace(BASE, n_heads=6, vocab_size=11, n_layers=1, d_k=16, d_v=16)).config.d_k == 16


@pytest.mark.parametrize("field", ["vocab_size", "n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v"])
def test_a_size_below_one_is_refused_by_name(field):
    with pytest.raises(ValueError, match=f"{field} is 0"):
        Transformer(replace(BASE, **{field: 0}))


@pytest.mark.parametrize("field, value", [("n_heads", "8"), ("n_heads", 8.0), ("dropout", "0.1"), ("n_p", "no")])
def test_a_value_of_another_type_is_refused_by_name(field, value):
    config = replace(BASE)
    object.__setattr__(config, field, value)  # the tests' own check of types would refuse it in `replace`
    with pytest.raises(ValueError, match=f"{field} is {value!r}: give a (whole )?number"):
        Transformer(config)


@pytest.mark.skipif(not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this PyTorch has no oneDNN")
def test_products_by_onednn():
    "Also on processors where MKL is the faster library; that they are right, the chapter proves."
    with kernels.training_with(kernels.ONEDNN):
        y = kernels.linear(torch.randn(2, 7, 24), torch.randn(33, 24, requires_grad=True))
    assert "OneDNN" in y.grad_fn.next_functions[0][0].name()


@pytest.mark.slow
def test_products_of_ever_new_shapes_do_not_fill_the_memory():
    "A training's batches differ in size: what is kept for each shape of a product must be bounded."
    program = """if True:
        import psutil, torch
        from annotated_transformer.engine.fast import project
        from annotated_transformer.engine.kernels import limit_caches
        limit_caches()
        torch.set_num_threads(1)
        layer, sizes = torch.nn.Linear(256, 1024), []
        for rows in range(1000, 1400):
            project(layer, torch.randn(rows, 256)).sum().backward()
            if rows in (1199, 1399):
                sizes.append(psutil.Process().memory_info().rss)
        print(sizes[1] - sizes[0])
    """
    grown = int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
    assert grown < 100e6, f"{grown / 1e6:.0f} MB more after 200 shapes more"


@pytest.mark.parametrize("counted", [True, False])
def test_a_search_uses_the_weights_as_they_are_now(counted):
    """Where matrices are kept in another order for searches (float32, no Intel processor), a fused optimizer's steps
    must be seen, and changes that raise no version."""
    model, src, begin = model_of(SMALL).float(), torch.randint(4, 40, (2, 6)), torch.full((2, 1), START)
    optimizer = adam(model.parameters())
    set_rate(optimizer, 0.05)
    for _ in range(3):
        with torch.inference_mode():
            searched, plainly = DecoderState(fast(model), src).step(begin), model(src, begin)
        torch.testing.assert_close(searched.flatten(), plainly.flatten(), rtol=1e-4, atol=1e-4)
        model(src, src).square().mean().backward()
        optimizer.step() if counted else [p.data.mul_(1.5) for p in model.parameters()]


def test_recording_says_where_there_is_nothing_to_record():
    model, src = model_of(SMALL), torch.tensor([[5, 6, END]])
    with recording(model) as kept:
        model(src, src)
    assert all(kept.values())
    quick = fast(model)
    with pytest.raises(ValueError, match="plain model"), recording(quick):
        quick(src, src)


def test_dropout_near_one_divides_by_something():
    model = fast(Transformer(replace(SMALL, dropout=0.999995))).train()
    assert model(torch.tensor([[5, END]]), torch.tensor([[START]])).isfinite().all()
