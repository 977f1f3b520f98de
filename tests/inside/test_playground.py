"""The page's trainer against PyTorch: each switch, several shapes; its text against the package's grammar machine."""
import base64
import json
import re
import shutil
import subprocess
from itertools import islice, product
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from annotated_transformer.corpus.grammar import GRAMMAR_FILES
from annotated_transformer.corpus.synchronous_grammar import derivations, draw_derivation, read_grammar, realise
from annotated_transformer.decoding.translation import load
from annotated_transformer.inside.attention_figures import SUBLAYERS
from annotated_transformer.inside.explore import PAGE
from annotated_transformer.inside.playground import Randoms, first_weights, logits, pairs, rectangle
from annotated_transformer.model.attention import recording
from annotated_transformer.model.symbols import END, PAD, START
from annotated_transformer.training.optimizer import highest_rate, learning_rate

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no Node.js")
SMALL = {"d_model": 32, "d_ff": 64, "n_heads": 4, "n_layers": 2}
SWITCHES = ["positions", "scale", "feed_forward", "residual", "norm", "causal_mask", "cross_attention", "encoder",
            "embedding_scale", "warmup"]
# with each place of the norm: the whole, and what has to do with it; the others with one of them
SETTINGS = [{**SMALL, "pre_norm": pre_norm, **off} for off in ({}, {"residual": False}, {"norm": False})
            for pre_norm in (False, True)]
SETTINGS += [{**SMALL, "pre_norm": i % 2 == 0, name: False}
             for i, name in enumerate(SWITCHES) if name not in ("residual", "norm")]
SETTINGS += [{"d_model": 16, "d_ff": 16, "n_heads": 1, "n_layers": 1, "scale": False, "label_smoothing": 0},
             {"d_model": 64, "d_ff": 128, "n_heads": 2, "n_layers": 1, "rate": 0.5, "warmup_steps": 3},
             {"d_model": 48, "d_ff": 20, "n_heads": 4, "n_layers": 3, "small_draw": False},
             {**SMALL, "positions": False, "norm": False, "feed_forward": False, "label_smoothing": 0.3}]


def trained(jobs: list[dict]) -> list[dict]:
    "What Node says of `jobs`: {config, updates, pairs, folder}; tensors by name."
    script = Path(__file__).with_name("playground_node.js")
    ran = subprocess.run([NODE, script, str(PAGE)], input=json.dumps(jobs).encode(), capture_output=True)
    assert not ran.returncode, ran.stderr.decode()
    answers = json.loads(ran.stdout)
    for answer in answers:
        for part in ("start", "gradients", "end"):
            answer[part] = {name: torch.tensor(np.frombuffer(base64.b64decode(text), "<f4")).reshape(
                answer["shapes"][name]) for name, text in answer[part].items()}
    return answers


class Reference:
    "The same run in PyTorch: the trainer's weights, its batches, its configuration."

    def __init__(self, answer: dict, dtype: torch.dtype = torch.float32):
        c = self.config = answer["config"]
        self.weights = {name: torch.nn.Parameter(tensor.to(dtype, copy=True))
                        for name, tensor in answer["start"].items()}
        self.switches = {name: c[name] for name in SWITCHES[:-1]} | {"pre_norm": c["pre_norm"]}
        self.adam = torch.optim.Adam(self.weights.values(), betas=(0.9, 0.98), eps=1e-9)
        self.step = 0

    def logits(self, src, tgt):
        return logits(self.weights, src, tgt, self.config["n_layers"], self.config["n_heads"], **self.switches)

    def loss(self, batch):
        src, tgt, wanted = (rectangle(list(rows)) for rows in zip(*((s, t[:-1], t[1:]) for s, t in batch)))
        return F.cross_entropy(self.logits(src, tgt).flatten(0, 1), wanted.flatten(), ignore_index=PAD,
                               label_smoothing=self.config["label_smoothing"])

    def gradients(self, batch):
        self.adam.zero_grad()
        self.loss(batch).backward()
        return {name: torch.zeros_like(w) if w.grad is None else w.grad for name, w in self.weights.items()}

    def update(self, batch) -> float:
        self.step += 1
        d_model, warmup, rate = (self.config[name] for name in ("d_model", "warmup_steps", "rate"))
        self.adam.param_groups[0]["lr"] = rate * (
            learning_rate(self.step, d_model, warmup) if self.config["warmup"] else highest_rate(d_model, warmup))
        self.adam.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.adam.step()
        return loss.item()

    @torch.inference_mode()
    def write(self, source: list[int], most: int = 24) -> list[int]:
        out = [START]
        while len(out) <= most and out[-1] != END:
            out.append(END + self.logits(torch.tensor([source]), torch.tensor([out]))[0, -1, END:].argmax().item())
        return out[1:-1] if out[-1] == END else out[1:]


def distance(one: dict, other: dict) -> float:
    "The largest difference of two tensors of a name, by the L2 norm: a share of the tensor's, if it isn't tiny."
    least = 1e-3 * max(tensor.norm() for tensor in one.values())
    return max(((one[name] - other[name]).norm() / one[name].norm().clamp(min=least)).item() for name in one)


@pytest.fixture(scope="module")
def answers():
    return trained([{"config": config, "updates": 5, "pairs": 7} for config in SETTINGS])


@needs_node
@pytest.mark.parametrize("i", range(len(SETTINGS)), ids=lambda i: str(SETTINGS[i]))
def test_the_trainer_computes_what_pytorch_computes(answers, i):
    "Gradients, five updates, and what greedy search then writes, with each part switched off."
    answer = answers[i]
    ours = Reference(answer)
    assert distance(ours.gradients(answer["batches"][0]), answer["gradients"]) < 1e-4
    losses = [ours.update(batch) for batch in answer["batches"]]
    np.testing.assert_allclose(answer["losses"], losses, rtol=1e-5)
    with torch.no_grad():
        # Adam divides a gradient by its own size: what rounding leaves of a vanishing one becomes a whole step
        assert distance(ours.weights, answer["end"]) < 1e-3
        ours.weights = answer["end"]
    assert answer["written"][:2] == [ours.write(pair[0]) for pair in answer["batches"][0][:2]]


@needs_node
def test_a_hundred_updates_from_the_pages_own_start():
    "Training makes rounding errors grow. The page's stays as near to 64 bits as PyTorch's own 32 bits do."
    (answer,) = trained([{"config": {"n_layers": 1}, "updates": 100, "pairs": 16}])
    single, double = Reference(answer), Reference(answer, torch.float64)
    losses = [(single.update(batch), double.update(batch)) for batch in answer["batches"]]
    assert losses[-1][1] < 0.8 * losses[0][1]
    np.testing.assert_allclose(answer["losses"][:30], [exact for _, exact in losses[:30]], rtol=1e-5)
    np.testing.assert_allclose(answer["losses"], [exact for _, exact in losses], rtol=0.01)
    with torch.no_grad():
        assert distance(double.weights, answer["end"]) < 3 * distance(double.weights, single.weights) + 1e-4


@needs_node
def test_the_pages_start_and_text_in_python():
    (answer,) = trained([{"config": {"d_model": 16, "d_ff": 64, "n_layers": 1, "seed": 3}, "updates": 1, "pairs": 9}])
    start = first_weights(244, 16, 1, 3)
    assert list(start) and set(start) == set(answer["start"])
    for name, tensor in answer["start"].items():
        np.testing.assert_allclose(start[name].detach(), tensor, atol=1e-6)
    assert [[src, tgt] for _, src, tgt in islice(pairs(Randoms(1003)), 9)] == answer["batches"][0]


@needs_node
@pytest.mark.parametrize("config", [{"n_layers": 1, "scale": False}, {**SMALL, "pre_norm": True}], ids=str)
def test_what_was_trained_is_a_run(config, tmp_path):
    "The package's model writes and attends as the trainer does; rounded to half precision, as the live page's engine."
    (answer,) = trained([{"config": config, "updates": 40, "pairs": 16, "folder": str(tmp_path)}])
    exact, rounded = load(tmp_path, "float32"), load(tmp_path)
    parts = zip(*(answer[part] for part in ("sentences", "written", "maps", "engine")), strict=True)
    for (line, ids, maps, live), (source, _) in list(zip(parts, answer["batches"][0], strict=True))[:6]:
        assert exact.encode([line]) == [source] and live["output"][:len(ids)] == ids
        split = {f"{name}.{head}": rows for name, heads in maps.items() for head, rows in enumerate(heads)}
        for t, output, shown in ((exact, ids, split), (rounded, live["output"][:-1], live["maps"])):
            with recording(t.model) as kept, torch.inference_mode():
                best = t.model(torch.tensor([source]), torch.tensor([[START, *output]]))[0, :, END:].argmax(-1) + END
            assert best[:-1].tolist() == output
            for stack, name in SUBLAYERS.items():
                for layer, head in product(range(t.model.config.n_layers), range(t.model.config.n_heads)):
                    weights, rows = kept[name.format(layer)][0][0, head].numpy(), shown[f"{stack}.{layer}.{head}"]
                    for row, same in zip(weights, rows, strict=True):
                        np.testing.assert_allclose(row[:len(same)], same, atol=1e-5)


@needs_node
def test_the_page_draws_the_packages_sentences():
    "Both read the same file; from the same random numbers they draw the same pairs."
    script = """const { load } = require(process.argv[1] + "/headless.js");
        load();
        const language = new Language(GRAMMAR), random = randoms(5);
        const pairs = Array.from({ length: 300 }, () => language.sentence(random));
        const known = pairs.every(pair => language.encode(pair).flat().every(id => id > 1));
        const text = pairs.map(pair => pair.map(written));
        process.stdout.write(JSON.stringify({ known, size: language.size, pairs: text }));"""
    ran = subprocess.run([NODE, "-e", script, str(PAGE)], capture_output=True, check=True)
    page = json.loads(ran.stdout)
    assert page["known"] and page["size"] == 244
    grammar, rng, ours = read_grammar((GRAMMAR_FILES / "playground.txt").read_text(encoding="utf-8")), Randoms(5), []
    while len(ours) < 300:
        example = realise(draw_derivation(grammar, rng))
        nouns = re.findall(r"\(N (\w+)\)", example.tree)
        if len(set(nouns)) == len(nouns):
            ours.append([example.src, example.tgt])
    assert page["pairs"] == ours
    for line, german in ours[:20]:
        assert {realise(d).tgt for d in derivations(grammar, line)} == {german}


@needs_node
@pytest.mark.parametrize("config, said", [
    ({"n_heads": 3}, "d_model is 32 and n_heads 3: a head's width, d_model / n_heads, has to be a multiple of 4"),
    ({"d_model": 0}, "d_model is 0: give a whole number above 0"), ({"d_ff": 30}, "d_ff is 30: give a multiple of 4"),
    ({"rate": -1}, "rate is -1: give a number above 0"), ({"mask": False}, "mask is no setting of this trainer"),
    ({"label_smoothing": 1}, "label_smoothing is 1: give a number from 0 to below 1"),
    ({"rate": 1e30}, "updates the loss is no longer a number"),
    ({"d_model": 4096, "d_ff": 65536}, "MB of memory: choose a smaller width or fewer layers")], ids=str)
def test_what_cannot_be_trained(config, said):
    ran = subprocess.run([NODE, PAGE / "headless.js", json.dumps({**config, "updates": 9, "unseen": 1, "batch": 2})],
                         capture_output=True, text=True)
    assert ran.returncode == 2 and ran.stderr.endswith(said + "\n") and ran.stderr.count("\n") == 1


@needs_node
def test_without_a_page():
    ran = subprocess.run([NODE, PAGE / "headless.js", '{"updates": 3, "every": 2, "unseen": 5, "causal_mask": false}',
                          "The king sees the woman."], capture_output=True, check=True)
    said = json.loads(ran.stdout)
    assert [point["step"] for point in said["curve"]] == [2, 3] and list(said["translations"]) == [
        "The king sees the woman."]


def test_the_kernel_is_what_its_source_gives(tmp_path):
    "The command stands at the top of kernel.c."
    source = (PAGE / "kernel.c").read_text(encoding="utf-8")
    command = re.search(r"//   (clang .*?)\n//\n", source, re.S)[1].replace("\\\n//", "").split()
    version = re.search(r"with clang and lld ([\d.]+\d)", source)[1]
    clang = shutil.which("clang")
    if clang is None or shutil.which("wasm-ld") is None:
        pytest.skip("no clang or wasm-ld")
    if version not in subprocess.run([clang, "--version"], capture_output=True, text=True).stdout:
        pytest.skip(f"kernel.wasm was made by clang {version}")
    subprocess.run([*command[:-2], tmp_path / "kernel.wasm", PAGE / "kernel.c"], check=True)
    assert (tmp_path / "kernel.wasm").read_bytes() == (PAGE / "kernel.wasm").read_bytes()
