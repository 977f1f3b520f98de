"The choice of a kernel: where its times are kept, how it is fixed, and what happens where an operation is missing."

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import pytest
import torch
import torch.nn.functional as F

from annotated_transformer.engine import kernels
from annotated_transformer.engine.kv_cache import fill
from annotated_transformer.tools.files import InputError
from here import fails


def forget() -> None:
    "As a new process."
    kernels.known_times.cache_clear()
    kernels.is_here.cache_clear()
    kernels.trained_fastest.cache_clear()
    kernels.choose.cache_clear()


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    "A cache folder of the test's own, and no choice from before."
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("ANNOTATED_KERNEL", raising=False)
    forget()
    yield
    forget()


def test_a_trial_is_made_once_a_machine(monkeypatch):
    first, asked = kernels.choose(256, 192, "float32"), []
    assert first[0] in kernels.kernels_for("float32")
    assert all(seconds > 0 for times in first[1].values() for seconds in times)
    forget()
    monkeypatch.setattr(kernels, "trial", lambda m, n, names: asked.append(names) or {})
    assert kernels.choose(256, 192, "float32") == first and not asked
    kernels.cache_file().write_text("{", encoding="utf-8")
    forget()
    monkeypatch.setattr(kernels, "trial", lambda m, n, names: {names[0]: [1.0, 1.0]})
    assert kernels.choose(256, 192, "float32")[0] == kernels.MKL, "a damaged file counts as none"


def test_the_more_exact_kernel_wins_a_tie():
    names = [*kernels.KERNELS]
    assert kernels.fastest(dict.fromkeys(reversed(names), [1.0, 4.0])) == names[0]
    assert kernels.fastest({names[0]: [1.0, 4.0], names[1]: [2.0, 1.0]}) == names[1]


def test_a_choice_is_fixed(monkeypatch):
    monkeypatch.setenv("ANNOTATED_KERNEL", kernels.MKL)
    assert kernels.choose(256, 192, "int8") == (kernels.MKL, {})
    monkeypatch.setenv("ANNOTATED_KERNEL", "cuBLAS")
    fails(lambda: kernels.choose(64, 1024, "int8"), "ANNOTATED_KERNEL cuBLAS", kernels.MKL)


@pytest.mark.parametrize("broken", ["missing", "wrong"])
def test_what_this_machine_lacks_is_left_out(broken, monkeypatch):
    "Whatever the precision, PyTorch's own product is always there."
    def pack(weight, bias):
        if broken == "missing":
            raise AttributeError("no such operation")
        return lambda x: F.linear(x, weight, bias) + 1.0

    for name, (precision, _) in kernels.KERNELS.items():
        if name != kernels.MKL:
            monkeypatch.setitem(kernels.KERNELS, name, (precision, pack))
    assert kernels.choose(256, 192, "int8")[0] == kernels.MKL
    monkeypatch.setenv("ANNOTATED_KERNEL", "FBGEMM int8")
    with pytest.raises(InputError, match="not on this machine"):
        kernels.choose(64, 1024, "int8")


def test_a_weight_beyond_16_bits_stays_in_32():
    weight = torch.randn(256, 192)
    weight[0, 0] = 1e6
    product, x = kernels.packed_product(weight, None, "float16"), torch.randn(4, 192)
    torch.testing.assert_close(product(x), F.linear(x, weight))


@pytest.mark.parametrize("precision", get_args(kernels.Precision))
def test_another_device_multiplies_by_pytorch(precision):
    "One that has shapes and no numbers; whatever the precision, inputs and outputs are in 32 bits."
    weight, bias = torch.empty(256, 192, device="meta"), torch.empty(256, device="meta")
    y = kernels.packed_product(weight, bias, precision)(torch.empty(3, 192, device="meta"))
    assert (y.shape, y.dtype, y.device.type) == ((3, 256), torch.float32, "meta")


@pytest.mark.parametrize("name", [*kernels.KERNELS])
def test_a_row_does_not_depend_on_its_neighbours(name):
    weight, bias, x = torch.randn(256, 192), torch.randn(256), torch.randn(3, 192)
    if kernels.candidate(name, weight) is None:
        pytest.skip("not on this machine")
    product = kernels.KERNELS[name][1](weight, bias)
    with torch.no_grad():
        alone, beside = product(x)[0], product(x * torch.tensor([[1.0], [1e4], [0.0]]))[0]
    torch.testing.assert_close(alone, beside)


@pytest.mark.parametrize("name", [*kernels.KERNELS])
def test_inputs_that_are_zero_or_of_one_sign(name):
    weight = torch.randn(256, 192)
    if kernels.candidate(name, weight) is None:
        pytest.skip("not on this machine")
    product, rounding = kernels.KERNELS[name][1](weight, None), kernels.ROUNDING[kernels.KERNELS[name][0]]
    for x in (torch.zeros(2, 192), torch.rand(2, 192), -torch.rand(2, 192), 1e-3 * torch.randn(2, 192)):
        assert (off := kernels.error(product, x, weight)) <= rounding and math.isfinite(off)


@pytest.mark.parametrize("precision", [*kernels.STORED])
def test_a_choice_stays_within_its_precision(precision, monkeypatch):
    "Outputs must not depend on a stop watch: whatever is fastest, the products are those of the precision."
    monkeypatch.setattr(kernels, "fastest", lambda times: [*times][-1])
    monkeypatch.setattr(kernels, "trial", lambda m, n, names: dict.fromkeys(names, [1.0, 1.0]))
    own = kernels.KERNELS[kernels.choose(256, 192, precision)[0]][0]
    assert own == (precision if any(map(kernels.is_here, kernels.kernels_for(precision))) else "float32")


def test_a_model_is_rounded_once_and_every_kernel_of_its_precision_is_exact():
    weight = {"matrix": torch.randn(256, 192), "vector": torch.randn(192), "large": torch.full((2, 2), 1e6)}
    model = torch.nn.ParameterDict({name: x.clone() for name, x in weight.items()})
    fill(model, weight, "float16")
    rounded = model.state_dict()
    assert torch.equal(rounded["matrix"], weight["matrix"].half().float())
    assert all(torch.equal(rounded[name], weight[name]) for name in ("vector", "large"))
    x, name = torch.randn(8, 192), "FBGEMM float16"
    if not kernels.is_here(name):
        pytest.skip("not on this machine")
    product = kernels.KERNELS[name][1](rounded["matrix"], None)
    torch.testing.assert_close(product(x), F.linear(x, rounded["matrix"]), rtol=1e-5, atol=1e-4)


def test_importing_changes_neither_environment_nor_settings():
    program = """if True:
        import os, torch
        before = dict(os.environ), torch.backends.quantized.engine, torch.backends.cuda.cudnn_sdp_enabled()
        import annotated_transformer
        annotated_transformer.load("grammar").translate("The cow is old.")
        from annotated_transformer.training import loop
        assert before == (dict(os.environ), torch.backends.quantized.engine, torch.backends.cuda.cudnn_sdp_enabled())
    """
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_library_for_training_holds_for_a_block_and_a_thread():
    fails(lambda: kernels.training_with("MKL").__enter__(), "kernel MKL", kernels.ONEDNN)
    with kernels.training_with(kernels.ONEDNN):
        with kernels.training_with(kernels.MKL):
            assert kernels.training_kernel() == kernels.MKL
        here = kernels.training_kernel()
        with ThreadPoolExecutor(1) as pool:
            elsewhere = pool.submit(kernels.TRAINING.get).result()
    assert here == (kernels.ONEDNN if kernels.is_here(kernels.ONEDNN) else kernels.MKL) and elsewhere is None


@torch.inference_mode()
def test_a_trial_of_training_is_made_wherever_somebody_asks():
    assert {*kernels.training_trial([kernels.MKL])} == {kernels.MKL}
