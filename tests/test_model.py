"The model, for shapes that no one picked by hand: counts, causality, padding, and decoding a symbol at a time."
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_transformer.model import BASE, BIG, END, PAD, START, Transformer, TransformerConfig, count_parameters

VOCABULARY = 13

# Table 3's rows with a number of their own, for 37,000 symbols: without and with biases in the attention projections
TABLE_3 = {
    "base": (BASE, 63_045_632, 63_082_496),
    "(B) d_k = 16": (replace(BASE, d_k=16), 55_967_744, 55_990_784),
    "(B) d_k = 32": (replace(BASE, d_k=32), 58_327_040, 58_354_688),
    "(C) N = 2": (replace(BASE, n_layers=2), 33_644_544, 33_656_832),
    "(C) N = 4": (replace(BASE, n_layers=4), 48_345_088, 48_369_664),
    "(C) N = 8": (replace(BASE, n_layers=8), 77_746_176, 77_795_328),
    "(C) d_model = 256": (replace(BASE, d_model=256, d_k=32, d_v=32), 26_816_512, 26_834_944),
    "(C) d_model = 1024": (replace(BASE, d_model=1024, d_k=128, d_v=128), 163_815_424, 163_889_152),
    "(C) d_ff = 1024": (replace(BASE, d_ff=1024), 50_450_432, 50_487_296),
    "(C) d_ff = 4096": (replace(BASE, d_ff=4096), 88_236_032, 88_272_896),
    "big": (BIG, 214_171_648, 214_245_376),
}

small_configs = st.builds(
    TransformerConfig, vocab_size=st.just(VOCABULARY), n_layers=st.integers(1, 3), d_model=st.integers(1, 12), d_ff=st.integers(1, 20),
    n_heads=st.integers(1, 4), d_k=st.integers(1, 6), d_v=st.integers(1, 6), attention_bias=st.booleans(), pre_norm=st.booleans(),
    positions=st.sampled_from(["sinusoidal", "learned"]), max_length=st.just(24), parameter_heads=st.integers(0, 2), n_p=st.integers(1, 5))
words = st.lists(st.integers(4, VOCABULARY - 1), min_size=1, max_size=6)
few = settings(max_examples=30, deadline=None, derandomize=True)


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


@pytest.mark.parametrize("row", TABLE_3)
def test_table_3_parameters(row):
    config, without, with_biases = TABLE_3[row]
    for expected, c in ((without, config), (with_biases, replace(config, attention_bias=True))):
        with torch.device("meta"):
            built = sum(p.numel() for p in Transformer(c).parameters())
        assert count_parameters(c) == built == expected


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
    model, src, tgt = model_of(config), F.pad(torch.tensor([src]), (0, padding), value=PAD), torch.tensor([[START, *tgt]])
    memory, mask = model.encode(src)
    cache = model.start_cache(memory)
    steps = [model.step(tgt[:, i:i + 1], cache, mask) for i in range(tgt.size(1))]
    close(torch.cat(steps, 1), model(src, tgt))


@pytest.mark.parametrize("field", ["vocab_size", "n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v"])
def test_a_size_below_one_is_refused_by_name(field):
    with pytest.raises(ValueError, match=f"{field} is 0"):
        Transformer(replace(BASE, **{field: 0}))


def test_products_of_ever_new_shapes_do_not_fill_the_memory():
    "A training's batches differ in size: what is kept for each shape of a product must be bounded."
    program = """if True:
        import psutil, torch
        from annotated_transformer.linear import Linear
        torch.set_num_threads(1)
        layer, sizes = Linear(256, 1024), []
        for rows in range(1000, 1600):
            layer(torch.randn(rows, 256)).sum().backward()
            if rows in (1199, 1599):
                sizes.append(psutil.Process().memory_info().rss)
        print(sizes[1] - sizes[0])
    """
    grown = int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
    assert grown < 200e6, f"{grown / 1e6:.0f} MB more after 400 shapes more"
