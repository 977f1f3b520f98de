"""The layers of Table 1 against PyTorch's own and brute force; the counters against closed forms and against layers
that are known to differ."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from annotated_transformer.experiments import timing
from annotated_transformer.experiments.complexity import (
    GRU,
    LAYERS,
    Convolution,
    OneCall,
    PlainRecurrent,
    RestrictedAttention,
    SelfAttention,
    Sizes,
    dependency,
    fit,
    longest_chain,
    longest_path,
    multiply_adds,
    path_lengths,
    rounds,
)
from annotated_transformer.experiments.timing import FORMED, MEASURED, TIMED, PeakBytes
from annotated_transformer.paper.tables import paper_table
from annotated_transformer.tools.records import read_records


def gradients(function, inputs):
    "The output and the gradients of an uneven sum of it."
    out = function()
    direction = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return [out, *torch.autograd.grad((out * direction).sum(), inputs)]


# --- the layers -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("heads", [1, 2, 4])
def test_self_attention_is_pytorchs(heads):
    torch.manual_seed(4)
    layer, x = SelfAttention(8, heads).double(), torch.randn(2, 7, 8, dtype=torch.float64, requires_grad=True)
    twin = nn.MultiheadAttention(8, heads, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        twin.in_proj_weight.copy_(torch.cat([layer.query.weight, layer.key.weight, layer.value.weight]))
        twin.out_proj.weight.copy_(layer.output.weight)
    mask = torch.ones(7, 7, dtype=torch.bool).tril()
    for allowed in (None, mask):
        refused = None if allowed is None else ~allowed
        for a, b in zip(gradients(lambda: layer(x, allowed), [x]),
                        gradients(lambda: twin(x, x, x, attn_mask=refused)[0], [x]), strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("n", [512, 2048])
def test_restricted_attention_makes_no_square_matrix(n):
    "Forward and backward; full attention that forms its weights does, so the counter can see one."
    x = torch.randn(1, n, 8, requires_grad=True)
    largest = {}
    for layer in (RestrictedAttention(8, 1, 15), SelfAttention(8, 1)):
        with PeakBytes() as counted, sdpa_kernel(SDPBackend.MATH):
            layer(x).sum().backward()
        largest[type(layer)] = counted.largest
    assert largest[SelfAttention] == n * n
    assert largest[RestrictedAttention] <= 6 * n * 15  # windows, masks and scores: so many neighbourhoods


@pytest.mark.parametrize("kind", [PlainRecurrent, GRU])
def test_steps_at_the_same_time_are_right_one_position_a_round(kind):
    layer, x = kind(4).double(), torch.randn(2, 9, 4, dtype=torch.float64)
    for s in range(10):
        right = (layer.after(x, s) - layer(x)).abs().amax((0, 2)) < 1e-12
        assert right.tolist() == [True] * s + [False] * (9 - s)


@pytest.mark.parametrize("make", [lambda: RestrictedAttention(8, 2, 4), lambda: RestrictedAttention(8, 2, 0),
                                  lambda: Convolution(4, 2)])
def test_what_has_no_centre_is_refused(make):
    with pytest.raises(ValueError, match="centred"):
        make()
    assert Convolution(4, 2, causal=True)(torch.randn(1, 5, 4)).shape == (1, 5, 4)  # a causal kernel needs none


# --- operations -------------------------------------------------------------------------------------------------------

CLOSED = {  # multiply-adds by hand, for n a multiple of r + 1
    "self-attention": lambda n, d, k, r: {"weights": 4 * n * d * d, "attention": 2 * n * n * d},
    "recurrent": lambda n, d, k, r: {"weights": 2 * n * d * d},
    "GRU": lambda n, d, k, r: {"weights": 6 * n * d * d},
    "LSTM": lambda n, d, k, r: {"weights": 8 * n * d * d},
    "convolution": lambda n, d, k, r: {"convolution": k * n * d * d},
    "dilated convolution": lambda n, d, k, r: {"convolution": k * n * d * d},
    "separable convolution": lambda n, d, k, r: {"convolution": k * n * d, "weights": n * d * d},
    "restricted attention": lambda n, d, k, r: {"weights": 4 * n * d * d, "attention": 4 * r * n * d},
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("n, d, k, r", [(16, 8, 3, 3), (24, 16, 7, 5), (32, 24, 9, 15)])
def test_counts_are_the_closed_forms(name, n, d, k, r):
    sizes, expected = Sizes(n, d, k, r), CLOSED[name](n, d, k, r)
    assert multiply_adds(LAYERS[name](sizes), torch.randn(1, n, d)) == expected
    assert multiply_adds(LAYERS[name](sizes), torch.randn(3, n, d)) == {kind: 3 * operations for kind,
                                                                operations in expected.items()}
    with torch.device("meta"):  # other kernels, and none of our formulas
        assert multiply_adds(LAYERS[name](sizes), torch.randn(1, n, d)) == expected


@pytest.mark.parametrize("n, r, rounded", [(20, 7, 24), (16, 7, 16), (17, 7, 24), (5, 1, 6), (3, 15, 16)])
def test_restricted_attention_counts_full_blocks(n, r, rounded):
    "The last block of r + 1 queries is filled up: 4·r·n·d holds where r + 1 divides n."
    found = multiply_adds(RestrictedAttention(8, 2, r), torch.randn(1, n, 8))
    assert found["attention"] == 4 * r * rounded * 8 and found["weights"] == 4 * n * 8 * 8


def test_counting_registers_nothing():
    from torch.utils.flop_counter import flop_registry
    before = set(flop_registry)
    multiply_adds(SelfAttention(8, 2), torch.randn(1, 4, 8))
    assert set(flop_registry) == before


def test_fit_finds_what_was_put_in():
    sizes = [Sizes(n, d, k, r) for n, d, k, r in [(3, 5, 7, 9), (8, 5, 3, 1), (20, 7, 5, 3), (9, 11, 9, 9),
                                                  (30, 2, 7, 5), (4, 40, 3, 7), (6, 6, 5, 5)]]
    found = fit(sizes, [3 * s.n**2 * s.d / s.r for s in sizes])
    expected = {"constant": 3, "n": 2, "d": 1, "k": 0, "r": -1, "error": 0}
    assert found == pytest.approx(expected, abs=1e-9)
    assert fit(sizes, [s.n + s.d for s in sizes])["error"] > 0.05  # no single term: the fit says so


# --- steps ------------------------------------------------------------------------------------------------------------

def test_longest_chain_by_hand():
    a, b = (torch.randn(5, 5, requires_grad=True) for _ in range(2))
    conv, linear = nn.Conv1d(5, 5, 1), nn.Linear(5, 5)
    assert longest_chain(a + b) == 0 and longest_chain(a @ b) == 1
    assert longest_chain((a @ b) @ (b @ a)) == 2 and longest_chain(((a @ b) @ b) @ a + a @ b) == 3
    assert longest_chain(linear(conv(a[None])[0])) == 2
    assert longest_chain(F.scaled_dot_product_attention(a[None, None], b[None, None], b[None, None])) == 2
    x = a
    for _ in range(3000):  # deeper than Python's recursion
        x = torch.tanh(x @ b)
    assert longest_chain(x) == 3000


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # single precision may take other kernels
@pytest.mark.parametrize("n", [5, 20])
def test_steps_of_the_layers(n, dtype):
    steps = {name: longest_chain(make(Sizes(n, 8, r=3)).to(dtype)(torch.randn(4, n, 8, dtype=dtype))) for name,
             make in LAYERS.items() if name != "LSTM"}
    assert steps == {"self-attention": 4, "restricted attention": 4, "recurrent": n, "GRU": n, "convolution": 1,
                     "dilated convolution": 1,
                     "separable convolution": 2}
    assert longest_chain(OneCall(nn.LSTM, 8).double()(torch.randn(1, n, 8, dtype=torch.float64))) == n


# --- paths ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", LAYERS)
def test_dependency_is_where_the_jacobian_is_not_zero(name):
    torch.manual_seed(3)
    n, layer = 9, LAYERS[name](Sizes(9, 8, k=3, r=3)).double()
    jacobian = torch.autograd.functional.jacobian(lambda x: layer(x[None])[0], torch.randn(n, 8, dtype=torch.float64))
    assert torch.equal(dependency(layer, n, 8), jacobian.abs().amax((1, 3)) > 0)


def test_dependency_of_a_layer_that_reads_one_place():
    "Output i reads input n - 1 - i and nothing else."
    assert torch.equal(dependency(lambda x: x.flip(1) ** 2, 7, 3), torch.eye(7).flip(0).bool())


def brute_force(n, offsets_of):
    """Rounds from input j to output i, by walking: in round s a signal at p goes to p + each of offsets_of(s), and
    is lost outside."""
    lengths = torch.zeros(n, n, dtype=torch.long)
    for j in range(n):
        at = {j}
        for s in range(1, n + 1):
            at = {p + o for p in at for o in offsets_of(s) if 0 <= p + o < n}
            for i in at:
                lengths[i, j] = lengths[i, j] or s
    return lengths


@pytest.mark.parametrize("n, k, r", [(12, 3, 3), (13, 5, 7), (7, 9, 1)])
def test_path_lengths_are_those_of_a_walk(n, k, r):
    walks = {"self-attention": lambda s: range(-n, n + 1), "convolution": lambda s: range(-(k // 2), k // 2 + 1),
             "separable convolution": lambda s: range(-(k // 2), k // 2 + 1),
             "restricted attention": lambda s: range(-(r // 2), r // 2 + 1),
             "dilated convolution": lambda s: range(0, k ** (s - 1) * k, k ** (s - 1))}
    for name, offsets in walks.items():
        assert torch.equal(path_lengths(LAYERS[name], Sizes(n, 8, k, r)), brute_force(n, offsets)), name
    apart = torch.arange(n)[:, None] - torch.arange(n)
    for name in ("recurrent", "GRU"):
        assert torch.equal(path_lengths(LAYERS[name], Sizes(n, 8)), torch.where(apart >= 0, apart + 1, 0))


def test_centred_dilated_kernels_leave_pairs_apart():
    """The chapter's note: of 16 positions and dilations 1, 3, 9, 27, ... the first and the last never meet; a walk
    agrees, pair by pair."""
    found = path_lengths(lambda s, depth: Convolution(s.d, s.k, dilation=min(s.k**depth, s.n)), Sizes(16, 8, k=3))
    assert torch.equal(found, brute_force(16, lambda s: (-(3 ** (s - 1)), 0,
                                                         3 ** (s - 1)))) and found[-1, 0] == found[2, 0] == 0


def test_paths_that_cannot_be_had():
    with pytest.raises(ValueError, match="no path"):
        longest_path(LAYERS["restricted attention"], Sizes(6, 8, r=1))
    with pytest.raises(ValueError, match="GRU"):
        rounds(LAYERS["LSTM"], Sizes(6, 8))


# --- time and memory --------------------------------------------------------------------------------------------------

def test_peak_bytes_by_hand():
    x = torch.ones(1000, 100)
    with PeakBytes() as counted:
        y = x * 2
        y += 1  # in place: nothing new
        z = y.view(100, 1000)  # the same storage
        assert (counted.live, counted.peak, counted.largest) == (400_000, 400_000, 100_000)
        y = z = torch.cat([z, z])  # the old one goes when the new one is there
        assert counted.live == 800_000 and counted.peak == 1_200_000
        del y, z
    assert counted.live == 0 and counted.peak == 1_200_000


def test_formed_weights_need_memory_quadratic_in_the_length_and_the_fused_kernel_linear():
    lengths = [256, 512, 1024]
    growth = {}
    for name in ("self-attention", FORMED, "restricted attention"):
        peaks = [timing.bytes_of_pass(timing.training_pass(name, Sizes(n, 8, r=7), 1, "cpu"), "cpu")
                 for n in lengths]
        growth[name] = fit([Sizes(n, 1) for n in lengths], peaks, "n")["n"]
    assert growth[FORMED] == pytest.approx(2, abs=0.05)
    assert growth["self-attention"] == pytest.approx(1,
                                                     abs=0.1) and growth["restricted attention"] == pytest.approx(
                                                         1, abs=0.1)


def test_a_pass_leaves_nothing_behind():
    one_pass = timing.training_pass("GRU", Sizes(6, 8), 2, "cpu")
    first, second = (timing.bytes_of_pass(one_pass, "cpu") for _ in range(2))
    assert first == second > 0


@pytest.mark.parametrize("name, kind", [("recurrent", nn.RNN), ("GRU", nn.GRU), ("LSTM", nn.LSTM)])
def test_recurrent_layers_are_timed_as_pytorch_runs_them(name, kind):
    "The chapter's loops in Python are there to be read: timed they would flatter attention."
    layer, x = TIMED.get(name, LAYERS.get(name))(Sizes(5, 8)), torch.randn(2, 5, 8)
    assert type(layer.layer) is kind
    torch.testing.assert_close(layer(x), layer.layer(x)[0])


# --- the command ------------------------------------------------------------------------------------------------------

def test_the_command_writes_a_record_for_each_layer(tmp_path):
    timing.main(["--out", str(tmp_path / "new" / "folder"), "--widths", "8", "--batch", "2", "--rounds", "2",
                     "--device", "cpu"])
    written = read_records(tmp_path / "new" / "folder").values()
    batches = {r["config"]["batches_of"]: r["metrics"] for r in written if "batches_of" in r["config"]}
    assert set(batches) == {"recurrent",
                            "self-attention"} and all(0 < m["largest_batch/long"] < m["largest_batch/short"]
                                                      for m in batches.values())
    records = {r["config"]["layer"]: r for r in written if "layer" in r["config"]}
    assert set(records) == set(MEASURED)
    for name, record in records.items():
        assert record["config"]["recurrent"] == "PyTorch's own"
        assert record["task"] == "complexity" and record["revision"]
        assert record["row"] in {None, *paper_table(1).layer_type}
        assert [(p["d"], p["n"]) for p in record["metrics"]["passes"]] == [(8, 16), (8, 32)]
        for p in record["metrics"]["passes"]:
            assert len(p["seconds_by_round"]) == 2 and min(p["seconds_by_round"]) <= p["seconds"] <= max(
                p["seconds_by_round"])
            like = "self-attention" if name == FORMED else name
            assert p["peak_bytes"] > 0
            if like != "restricted attention":  # whose last block is filled up
                assert p["flops"] == 3 * 2 * 2 * sum(CLOSED[like](p["n"], 8, 3, 63).values())


@pytest.mark.parametrize("options, said", [(["--widths", "12"], "--widths 12"), (["--rounds", "0"], "--rounds 0"),
                                           (["--device", "tpu"], "--device tpu")])
def test_wrong_options_are_one_line(tmp_path, capsys, options, said):
    with pytest.raises(SystemExit) as error:
        timing.main(["--out", str(tmp_path / "out"), *options])
    told = capsys.readouterr().err
    assert error.value.code == 2 and told.count("\n") == 1 and said in told and not (tmp_path / "out").exists()
