"The choice of a kernel: where its times are kept, how it is fixed, and what happens where an operation is missing."

import math

import pytest
import torch
import torch.nn.functional as F

from annotated_transformer.engine import kernels
from annotated_transformer.tools.files import InputError
from here import fails


def forget() -> None:
    "As a new process."
    kernels.known_times.cache_clear()
    kernels.CHOICES.clear()


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
    assert first.kernel in kernels.kernels_for("float32") and first in kernels.CHOICES.values()
    assert all(seconds > 0 for times in first.times.values() for seconds in times)
    forget()
    monkeypatch.setattr(kernels, "trial", lambda m, n, names: asked.append(names) or {})
    assert kernels.choose(256, 192, "float32") == first and not asked
    kernels.cache_file().write_text("{", encoding="utf-8")
    forget()
    monkeypatch.setattr(kernels, "trial", lambda m, n, names: {names[0]: [1.0, 1.0]})
    assert kernels.choose(256, 192, "float32").kernel == kernels.MKL, "a damaged file counts as none"


def test_the_more_exact_kernel_wins_a_tie():
    names = [*kernels.KERNELS]
    assert kernels.fastest(dict.fromkeys(reversed(names), [1.0, 4.0])) == names[0]
    assert kernels.fastest({names[0]: [1.0, 4.0], names[1]: [2.0, 1.0]}) == names[1]


def test_a_choice_is_fixed(monkeypatch):
    monkeypatch.setenv("ANNOTATED_KERNEL", kernels.MKL)
    assert kernels.choose(256, 192, "int8").kernel == kernels.MKL and not kernels.choose(256, 192, "int8").times
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
    assert kernels.choose(256, 192, "int8").kernel == kernels.MKL
    monkeypatch.setenv("ANNOTATED_KERNEL", "FBGEMM int8")
    with pytest.raises(InputError, match="not on this machine"):
        kernels.choose(64, 1024, "int8")


def test_a_weight_beyond_16_bits_stays_in_32():
    weight = torch.randn(256, 192)
    weight[0, 0] = 1e6
    product, x = kernels.packed_product(weight, None, "float16"), torch.randn(4, 192)
    torch.testing.assert_close(product(x), F.linear(x, weight))


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
