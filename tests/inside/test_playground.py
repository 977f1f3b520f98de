"""The page's trainer against PyTorch: each switch, several shapes; its text against the package's grammar machine."""
import base64
import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from annotated_transformer.corpus.synchronous_grammar import draw_derivation, read_grammar, realise
from annotated_transformer.decoding.translation import load
from annotated_transformer.inside.explore import PAGE
from annotated_transformer.inside.playground import logits
from annotated_transformer.model.symbols import END, PAD, START
from annotated_transformer.training.optimizer import highest_rate, learning_rate

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no Node.js")
SMALL = {"d_model": 32, "d_ff": 64, "n_heads": 4, "n_layers": 2}
SWITCHES = ["positions", "scale", "feed_forward", "residual", "norm", "causal_mask", "cross_attention", "encoder",
            "embedding_scale", "warmup"]
SETTINGS = [{**SMALL, "pre_norm": pre_norm, **{name: False for name in off}}
            for off in [[], *([name] for name in SWITCHES)] for pre_norm in (False, True)]
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


def rectangle(rows: list[list[int]]) -> torch.Tensor:
    return torch.tensor([row + [PAD] * (max(map(len, rows)) - len(row)) for row in rows])


class Reference:
    "The same run in PyTorch: the trainer's weights, its batches, its configuration."

    def __init__(self, answer: dict):
        c = self.config = answer["config"]
        self.weights = {name: torch.nn.Parameter(tensor.clone()) for name, tensor in answer["start"].items()}
        self.switches = {name: c[name] for name in SWITCHES[:-1]} | {"pre_norm": c["pre_norm"]}
        self.adam = torch.optim.Adam(self.weights.values(), betas=(0.9, 0.98), eps=1e-9)
        self.step = 0

    def logits(self, src, tgt):
        return logits(self.weights, src, tgt, self.config["n_layers"], self.config["n_heads"], **self.switches)

    def loss(self, pairs):
        src, tgt = (rectangle([pair[side] for pair in pairs]) for side in (0, 1))
        wanted = tgt[:, 1:].clone()
        return F.cross_entropy(self.logits(src, rectangle([pair[1][:-1] for pair in pairs])).flatten(0, 1),
                               wanted.flatten(), ignore_index=PAD, label_smoothing=self.config["label_smoothing"])

    def gradients(self, pairs):
        self.adam.zero_grad()
        self.loss(pairs).backward()
        return {name: torch.zeros_like(w) if w.grad is None else w.grad for name, w in self.weights.items()}

    def update(self, pairs) -> float:
        self.step += 1
        d_model, warmup, rate = (self.config[name] for name in ("d_model", "warmup_steps", "rate"))
        self.adam.param_groups[0]["lr"] = rate * (
            learning_rate(self.step, d_model, warmup) if self.config["warmup"] else highest_rate(d_model, warmup))
        self.adam.zero_grad()
        loss = self.loss(pairs)
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
    "The largest difference of two tensors of a name, by the L2 norm, as a share of the tensor's own."
    return max(((one[name] - other[name]).norm() / one[name].norm().clamp(min=1e-6)).item() for name in one)


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
    losses = [ours.update(pairs) for pairs in answer["batches"]]
    np.testing.assert_allclose(answer["losses"], losses, rtol=1e-5)
    with torch.no_grad():
        assert distance(ours.weights, answer["end"]) < 1e-4
        ours.weights = answer["end"]
    assert answer["written"] == [ours.write(pair[0]) for pair in answer["batches"][0]]
