"""Trainings in processes of their own: many at once, killed, on a full disk.

The references are runs that nobody disturbed.
"""

import json
import math
import os
import pickle
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
import torch.nn.functional as F

from annotated_transformer.corpus.batching import ParallelCorpus, encode_corpus
from annotated_transformer.corpus.corpora import Corpus
from annotated_transformer.corpus.vocabulary import BytePairVocabulary, learn_vocabulary, load_vocabulary
from annotated_transformer.engine import kernels
from annotated_transformer.engine.fast import fast
from annotated_transformer.model.transformer import Transformer
from annotated_transformer.tools import processes as processes_module
from annotated_transformer.tools.files import InputError, file_digest, write_json
from annotated_transformer.tools.processes import Progress
from annotated_transformer.training import averaging, loop as training, runs
from annotated_transformer.training.averaging import development_set
from annotated_transformer.training.checkpoints import Checkpoints, check_checkpoint
from annotated_transformer.training.loop import Trainer, split_microbatches, train, updates
from annotated_transformer.training.starting import start_run
from annotated_transformer.training.presets import TrainingConfig
from annotated_transformer.training.regularization import measure
from annotated_transformer.training.runs import Run, RunRecord
from here import SHAPE, same_weights

pytestmark = pytest.mark.xdist_group("training")  # one after the other: they start processes of their own

TRAINING = TrainingConfig(steps=60, warmup_steps=20, batch_tokens=300, save_every=4, report_every=1, keep=3,
                          precision="float32")
EXACT = replace(TRAINING, steps=12, save_every=6, batch_tokens=40,
                precision="float64")  # some updates have one sentence


TRAIN = "-m", "annotated_transformer", "train"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def command(run: Path, processes: int = 1, node: tuple[int, int, int] | None = None,
            program: Sequence[str] = TRAIN) -> list[str]:
    "`train RUN`, by torchrun where there are several processes; `node` is (number of nodes, this one's, port)."
    if processes == 1 and node is None:
        return [sys.executable, *program, str(run)]
    nodes, number, port = node or (1, 0, free_port())
    return [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(nodes), "--node-rank", str(number),
            "--nproc-per-node", str(processes), "--master-addr", "127.0.0.1", "--master-port", str(port), *OPTIONS,
            *program, str(run)]


OPTIONS: list[str] = []  # of torchrun
IN_PARTS = """
import sys
from annotated_transformer.training.loop import train
from annotated_transformer.training.runs import Run
train(Run.open(sys.argv[1]), device_tokens=30)
"""


def start(run: Path, processes: int = 1, node: tuple[int, int, int] | None = None,
          program: Sequence[str] = TRAIN, **variables: str) -> subprocess.Popen:
    "A training in a session of its own, so that all its processes can be killed at once."
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "GLOO_SOCKET_IFNAME": "lo"} | variables
    return subprocess.Popen(command(run, processes, node, program), env=environment, start_new_session=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end(process: subprocess.Popen, code: int = 0) -> str:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == code, out
    return out


def weights(run: Path) -> list[dict[str, torch.Tensor]]:
    opened = Run.open(run)
    return [opened.checkpoints.load()[0], opened.weights()]


def reports(run: Path) -> list[tuple[int, float]]:
    return [(m["step"], m["loss"]) for m in Run.open(run).history.metrics()]


def assert_same(run: Path, other: Path, tolerance: float = 0.0) -> None:
    "The same reports, final weights and averages, bit for bit or within `tolerance`."
    assert [step for step, _ in reports(run)] == [step for step,
                                                  _ in reports(other)] == list(range(1, len(reports(run)) + 1))
    np.testing.assert_allclose([x for _, x in reports(run)], [x for _, x in reports(other)], rtol=tolerance, atol=0)
    for name in ("dev_perplexity", "dev_accuracy"):
        mine, theirs = ([m[name] for m in Run.open(folder).history.metrics() if name in m] for folder in (run, other))
        assert mine
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=0)
    for mine, theirs in zip(weights(run), weights(other), strict=True):
        for name, tensor in mine.items():
            torch.testing.assert_close(tensor, theirs[name], rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------------------------------------------- many processes


@pytest.fixture(scope="module")
def exact(data, tmp_path_factory):
    "A run by one process, in float64 and without dropout."
    folder = tmp_path_factory.mktemp("exact") / "one"
    assert train(start_run(folder, data, replace(SHAPE, dropout=0.0), EXACT))
    return folder


def by_torchrun(run: Path, processes: int, program: Path) -> list[subprocess.Popen]:
    return [start(run, processes, program=[str(program)])]


def by_hand(run: Path, processes: int, program: Path) -> list[subprocess.Popen]:
    "The processes that torchrun would start, without the time of its own start."
    shared = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [start(run, program=[str(program)], **shared, RANK=str(n), LOCAL_RANK=str(n)) for n in range(processes)]


@pytest.mark.parametrize("processes, begin", [(2, by_hand), pytest.param(4, by_torchrun, marks=pytest.mark.slow)])
def test_processes_agree_with_one(data, exact, tmp_path, processes, begin):
    if 0 < torch.cuda.device_count() < processes:
        pytest.skip("fewer GPUs than processes")
    run = start_run(tmp_path / "run", data, replace(SHAPE, dropout=0.0), EXACT)
    (tmp_path / "in_parts.py").write_text(IN_PARTS)
    for process in begin(run.folder, processes, tmp_path / "in_parts.py"):
        end(process)
    assert_same(run.folder, exact, 1e-9)
    assert run.record.read()["processes"] == processes


@pytest.mark.slow
def test_two_nodes_of_two_agree_with_one(data, exact, tmp_path):
    run = start_run(tmp_path / "run", data, replace(SHAPE, dropout=0.0), EXACT)
    port = free_port()
    nodes = [start(run.folder, 2, node=(2, number, port)) for number in (0, 1)]
    for node in nodes:
        end(node)
    assert_same(run.folder, exact, 1e-9)


@pytest.mark.slow
def test_another_number_of_processes_goes_on(data, exact, tmp_path):
    run = start_run(tmp_path / "run", data, replace(SHAPE, dropout=0.0), EXACT)
    process = start(run.folder, 2)
    kill_at(process, run, 8, 0.0)
    assert train(Run.open(run.folder))
    assert_same(run.folder, exact, 1e-9)


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("device_tokens", [1, 37, 10_000])
def test_no_token_twice_or_left_out(data, monkeypatch, processes, device_tokens):
    """Over the processes' shares and parts, an epoch's sentences are all of the corpus; an update's, those of one
    process alone."""
    corpus, config = ParallelCorpus(data, "train"), replace(TRAINING, batch_tokens=150, steps=10**6)
    monkeypatch.setattr(training, "world_size", lambda: processes)
    seen = []
    for place, indices in updates(corpus, config, Progress()):
        if place.epoch:
            break
        parts = []
        for number in range(processes):
            monkeypatch.setattr(training, "rank", lambda number=number: number)
            shares = training.shard(corpus, indices, device_tokens)
            parts += [i for batch, weight in shares if weight for i in batch.indices]
            assert shares  # a process without sentences takes part all the same
            for batch, _ in shares:
                assert len(batch.indices) == 1 or max(batch.src.numel(), batch.tgt[:, 1:].numel()) <= device_tokens
        assert sorted(parts) == sorted(indices)
        seen += parts
    assert sorted(seen) == list(range(len(corpus)))


@pytest.mark.parametrize("device_tokens", [1, 45, 90, 10**6])
def test_no_fewer_parts_would_do(data, device_tokens):
    """By trying: fewer parts, as equal and each of similar lengths, leave one that is too large; the sizes differ by
    at most one."""
    corpus, rng = ParallelCorpus(data, "train"), np.random.default_rng(device_tokens)
    for size in (1, 2, 7, 30, 64):
        indices = rng.permutation(len(corpus))[:size]
        parts = split_microbatches(corpus, indices, device_tokens)
        widths = sorted(max(int(corpus.src_lengths[i]), int(corpus.tgt_lengths[i])) for i in indices)

        def fit(n: int) -> bool:
            ends = [sum(size // n + (k < size % n) for k in range(j)) for j in range(n + 1)]
            return all(b - a == 1 or (b - a) * widths[b - 1] <= device_tokens for a, b in zip(ends, ends[1:]))

        assert sorted(np.concatenate(parts)) == sorted(indices) and {len(part)
                                                                     for part in parts} <= {
                                                                         size // len(parts), -(-size // len(parts))}
        assert fit(len(parts)) and not any(fit(n) for n in range(1, len(parts)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("device_tokens", [1, 60, 10_000])
def test_an_update_follows_the_gradient_of_the_mean_loss(data, smoothing, device_tokens):
    """Plain gradient descent in place of Adam, which hides a wrong divisor; the gradient, by PyTorch's own loss on
    one whole batch."""
    corpus, indices = ParallelCorpus(data, "train"), np.arange(30)
    torch.manual_seed(0)
    model = Transformer(replace(SHAPE, dropout=0.0)).double()
    batch = corpus.batch(indices)
    tgt, target = batch.tgt[:, :-1], batch.tgt[:, 1:]
    spread = smoothing * 300 / 299  # over all tokens, where the authors spread over the others
    loss = F.cross_entropy(model(batch.src, tgt).flatten(0, 1), target.flatten(), ignore_index=0,
                           label_smoothing=spread)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    before = [p.detach().clone() for p in model.parameters()]

    config = replace(TRAINING, lr_scale=0.5, warmup_steps=1)
    parts = training.shard(corpus, indices, device_tokens)
    tokens = int(corpus.tgt_lengths[indices].sum())
    assert tokens == int((target != 0).sum()) and len(parts) > (device_tokens < 100)
    total = training.update(training.Objective(fast(model), smoothing), torch.optim.SGD(model.parameters(), lr=0.0),
                            parts, tokens, config, 4)
    rate = 0.5 * SHAPE.d_model**-0.5 * 4**-0.5
    torch.testing.assert_close(float(total) / tokens, loss.item(), rtol=1e-9, atol=0)
    for p, was, gradient in zip(model.parameters(), before, gradients, strict=True):
        torch.testing.assert_close((was - p) / rate, gradient, rtol=1e-6, atol=1e-9)


# ---------------------------------------------------------------------------------------------------- killed


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    "Runs that nobody disturbs, by the number of their processes."
    made: dict[int, Path] = {}

    def get(processes: int, steps: int) -> Path:
        if (processes, steps) not in made:
            folder = tmp_path_factory.mktemp("undisturbed") / f"{processes}"
            start_run(folder, data, SHAPE, replace(TRAINING, steps=steps))
            end(start(folder, processes))
            made[processes, steps] = folder
        return made[processes, steps]

    return get


def kill_at(process: subprocess.Popen, run: Run, step: int, delay: float, number: int = signal.SIGKILL) -> None:
    "Kill all processes of a training, `delay` seconds after it has reported `step`."
    while process.poll() is None and not any(m["step"] >= step for m in run.history.metrics()):
        time.sleep(0.001)
    time.sleep(delay)
    assert process.poll() is None, process.communicate()[0]
    os.killpg(process.pid, number)
    process.communicate()


def killed_again_and_again(run: Run, processes: int, kills: int, seed: int) -> None:
    "Train `run` to its end, killed at random moments: of its updates, its writing, its start."
    rng = random.Random(seed)
    steps = sorted(rng.randrange(1, run.config["training"]["steps"] - 2) for _ in range(kills))
    for i, step in enumerate(steps):
        process = start(run.folder, processes)
        if i % 8 == 7:  # while it starts, or reads its checkpoint
            time.sleep(rng.uniform(0.5, 4))
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        else:
            run_so_far = max((m["step"] for m in run.history.metrics()), default=0)
            kill_at(process, run, step if step > run_so_far else 0, rng.uniform(0, 0.03))
        for at, path in run.checkpoints.found():
            check_checkpoint(path)  # whatever has a checkpoint's name is whole
    end(start(run.folder, processes))


@pytest.mark.parametrize("processes, kills",
                         [pytest.param(n, kills, marks=pytest.mark.slow) for n, kills in ((1, 1), (1, 25), (2, 10))])
def test_killed_at_random_moments(data, undisturbed, tmp_path, processes, kills):
    "SIGKILL: the end is the same bit for bit, and no step is reported twice or left out."
    steps = 60 if kills < 10 else 200
    run = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=steps))
    killed_again_and_again(run, processes, kills, seed=kills + processes)
    assert_same(run.folder, undisturbed(processes, steps))
    assert not list((run.folder / "checkpoints").glob(".*"))  # nothing half written stays


@pytest.mark.slow
def test_one_worker_killed(data, undisturbed, tmp_path, monkeypatch):
    "torchrun starts the processes again, and the end is the same."
    monkeypatch.setattr(sys.modules[__name__], "OPTIONS", ["--max-restarts", "2", "--monitor-interval", "0.1"])
    run = start_run(tmp_path / "run", data, SHAPE, TRAINING)
    process = start(run.folder, 2)
    while process.poll() is None and not any(m["step"] >= 10 for m in run.history.metrics()):
        time.sleep(0.005)
    workers = [p for p in psutil.Process(process.pid).children(recursive=True) if p.environ().get("RANK") == "1"]
    assert workers, "no worker to kill"
    workers[0].kill()
    end(process)
    assert_same(run.folder, undisturbed(2, TRAINING.steps))


@pytest.mark.slow  # in this process: tests/tools/test_places.py
@pytest.mark.parametrize("number, processes", [(signal.SIGTERM, 1), (signal.SIGHUP, 1), (signal.SIGTERM, 2)])
def test_a_signal_leaves_a_checkpoint_of_that_step(data, undisturbed, tmp_path, number, processes):
    run = start_run(tmp_path / "run", data, SHAPE, TRAINING)
    before = signal.signal(number, signal.SIG_DFL)  # where the tests themselves run under nohup, SIGHUP is ignored
    process = start(run.folder, processes)
    signal.signal(number, before)
    while process.poll() is None and not any(m["step"] >= 9 for m in run.history.metrics()):
        time.sleep(0.002)
    process.send_signal(number)
    said, _ = process.communicate(timeout=120)
    newest = run.checkpoints.found()[-1][0]
    assert "Continue with" in said and newest < TRAINING.steps, said
    assert newest >= max(step for step, _ in reports(run.folder))  # nothing that was done is lost
    end(start(run.folder, processes))
    assert_same(run.folder, undisturbed(processes, TRAINING.steps))


@pytest.mark.slow
def test_a_terminal_that_closes_unheard(data, undisturbed, tmp_path):
    "A SIGHUP that is ignored stays so, and training goes on, though there is nobody left to show translations to."
    run = start_run(tmp_path / "run", data, SHAPE, TRAINING)
    terminal, inside = os.openpty()
    process = subprocess.Popen(["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *command(run.folder)], stdin=inside,
                               stdout=inside, stderr=inside, env=os.environ | {"OMP_NUM_THREADS": "1"})
    os.close(inside)
    while process.poll() is None and not run.history.metrics():
        time.sleep(0.002)
    os.close(terminal)
    process.send_signal(signal.SIGHUP)
    assert process.wait(120) == 0
    assert_same(run.folder, undisturbed(1, TRAINING.steps))


# ---------------------------------------------------------------------------------------------------- save, then
# measure, then log


def told(run: Path) -> list[dict]:
    "The lines of a run's report, without what depends on the clock."
    return [{name: value for name, value in line.items() if name not in ("seconds", "tokens_per_second")}
            for line in Run.open(run).history.metrics()]


class Killed(BaseException):
    "Ends a process in mid-sentence."


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    "A run that nobody kills; its checkpoints are kept at updates 4, 8 and 10, lines end at 3, 4, 6, 8, 9 and 10."
    run = start_run(tmp_path_factory.mktemp("whole") / "run", data, SHAPE, replace(TRAINING, steps=10, report_every=3))
    assert train(run)
    return run


@pytest.mark.parametrize("module, name", [
    ("loop", "quality_sums"), ("runs", "add_line"), ("runs", "mark_sitting"), ("runs", "Checkpoints.prune"),
    ("averaging", "quality_of")],
    ids=["before it measures", "before it logs", "before the session's note", "before older ones go", "as it averages"])
@pytest.mark.parametrize("which", [2, *(pytest.param(which, marks=pytest.mark.slow) for which in (1, 3))])
def test_killed_between_a_checkpoint_and_its_line(data, whole, tmp_path, monkeypatch, module, name, which):
    "Wherever the kill comes, the report and the weights are those of a run that was not killed, bit for bit."
    run, calls = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=10, report_every=3)), []
    owner = __import__(f"annotated_transformer.training.{module}", fromlist=[""])
    for part in name.split(".")[:-1]:
        owner = getattr(owner, part)
    attribute = name.split(".")[-1]
    original = getattr(owner, attribute)

    def killed(*args, **kwargs):
        if name != "add_line" or "metrics" in str(args[0]):
            calls.append(args)
        if len(calls) == which:
            raise Killed
        return original(*args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(owner, attribute, killed)
        train(run)
    assert train(Run.open(run.folder))
    assert told(run.folder) == told(whole.folder)
    assert all(("dev_perplexity" in line) == (line["step"] in (4, 8, 10)) for line in told(run.folder))
    for mine, theirs in zip(weights(run.folder), weights(whole.folder), strict=True):
        assert all(torch.equal(tensor, theirs[key]) for key, tensor in mine.items())
    assert [step for step, _ in run.checkpoints.found()] == [step for step, _ in whole.checkpoints.found()]


def test_a_measurement_that_fails_loses_no_work(data, whole, tmp_path, monkeypatch):
    run = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=10, report_every=3))

    def fails(*_):
        raise RuntimeError("not enough memory: you tried to allocate 6442450944 bytes")

    with monkeypatch.context() as patch:
        patch.setattr(training, "quality_sums", fails)
        for _ in range(2):  # it fails again, and the checkpoint is still there
            with pytest.raises(RuntimeError, match="allocate"):
                train(Run.open(run.folder))
            assert [step for step, _ in run.checkpoints.found()] == [4]
    assert train(Run.open(run.folder)) and told(run.folder) == told(whole.folder)


@pytest.mark.slow
def test_processes_catch_up_together(data, tmp_path):
    "Every process takes part in the measurement that a kill prevented."
    run, other = (start_run(tmp_path / name, data, SHAPE, replace(TRAINING, steps=8)) for name in ("run", "other"))
    for each in (run, other):
        end(start(each.folder, 2))
    lines = run.history.metrics()
    run.history.rewrite(lines[:-1])
    for name in ("record.json", "averaged.safetensors"):
        (run.folder / name).unlink()
    end(start(run.folder, 2))
    assert told(run.folder) == told(other.folder) and run.record.read()["status"] == "finished"


# without a kill daily: tests/commands/test_train.py
@pytest.mark.parametrize("kill", [pytest.param(False, id="extended", marks=pytest.mark.slow),
                                  pytest.param(True, id="killed before its last line, then extended")])
@pytest.mark.parametrize("first, report_every, keep, patience", [
    (14, 3, 3, 0),
    *(pytest.param(*each, marks=pytest.mark.slow) for each in ((14, 7, 1, 0), (13, 3, 1, 9), (16, 5, 2, 0)))])
def test_a_run_that_was_extended_is_one_long_run(data, tmp_path, monkeypatch, first, report_every, keep, patience,
                                                 kill):
    """Lines, checkpoints, averages and the best step, though the old end was measured and is no multiple of
    `save_every`."""
    config = replace(TRAINING, steps=24, report_every=report_every, keep=keep, patience=patience, lr_scale=8.0)
    long, short = (start_run(tmp_path / name, data, SHAPE, replace(config, steps=steps)) for name,
                   steps in (("long", 24), ("short", first)))
    assert train(long)
    if kill:
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(Trainer, "log", lambda self, line, log=Trainer.log: log(self, line)
                          if line["step"] < first else kill_now())
            train(short)
    else:
        assert train(short) and short.record.read()["curve"][-1]["step"] == first
    short = Run.open(short.folder)
    short.extend({"steps": 24})
    assert train(Run.open(short.folder)) and told(short.folder) == told(long.folder)
    mine, theirs = (run.record.read() for run in (short, long))
    assert mine["averages"] == theirs["averages"] and mine["weights"] == theirs["weights"]
    assert [step for step, _ in short.checkpoints.found()] == [step for step, _ in long.checkpoints.found()]


def kill_now():
    raise Killed


@pytest.mark.parametrize("when", ["begin_line", "choose_average", "make"])
def test_what_a_finished_run_has_stays_until_its_successor_is_whole(finished, data, tmp_path, monkeypatch, when):
    "An extended run that is killed before its first checkpoint, or as it ends, translates and has its scores."
    run = Run.open(shutil.copytree(finished, tmp_path / "run"))
    run.record.write(run.record.read() | {"scored": "by hand"})
    before, weights = run.record.read(), run.weights()
    run.extend({"steps": 28})
    with monkeypatch.context() as patch, pytest.raises(Killed):
        owner = {"begin_line": Trainer, "choose_average": training, "make": RunRecord}[when]
        patch.setattr(owner, when, lambda *_, **__: kill_now())
        train(Run.open(run.folder), data)
    again = Run.open(run.folder)
    assert again.record.read()["metrics"] == before["metrics"] and again.record.read()["scored"] == "by hand"
    assert not again.finished() and again.record.status() is None
    if when != "make":  # then the new average is there already
        assert same_weights(again.weights(), weights)
    assert train(again, data) and again.finished() and again.record.read()["metrics"]["steps"] == 28
    assert "scored" not in again.record.read()


def test_a_line_of_twenty_thousand_words_is_named_and_not_measured(data, tmp_path, capsys):
    folder = shutil.copytree(data, tmp_path / "data")
    corpus = Corpus.open(folder)
    src, tgt = ([pair[i] for pair in corpus.pairs("dev")] for i in (0, 1))
    src[3], tgt[7] = "cow " * 20_000, "Kuh " * 3_000
    for side, lines in (("en", src), ("de", tgt)):
        (folder / f"dev.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for path in folder.glob("dev.*.ids"):
        path.unlink()
    (folder / "encoded.json").unlink()
    facts = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    facts["splits"]["dev"]["sha256"] = {side: file_digest(folder / f"dev.{side}") for side in ("en", "de")}
    write_json(folder / "corpus.json", facts)
    encode_corpus(Corpus.open(folder), load_vocabulary(folder))
    run = start_run(tmp_path / "run", folder, SHAPE, replace(TRAINING, steps=4))
    assert train(run)
    said = capsys.readouterr().err
    assert re.search(r"warning: development set, line 4: [\d,]{5,} src tokens, more than 1,024: not measured", said)
    assert "line 8:" in said and said.count("not measured") == 2
    dev, model = ParallelCorpus(folder, "dev"), run.model()
    model.load_state_dict(run.checkpoints.load()[0])
    fine = [i for i in range(len(dev)) if i not in (3, 7)]
    wanted = measure(model, [dev.batch(np.array(fine))]).perplexity
    assert run.history.metrics()[-1]["dev_perplexity"] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("device_tokens", [1, 40, 10_000])
def test_the_development_set_is_measured_in_parts_that_fit(data, tmp_path, device_tokens):
    run = start_run(tmp_path / "run", data, SHAPE, TRAINING)
    corpus = ParallelCorpus(data, "dev")
    dev = development_set(run, corpus, device_tokens)
    assert sorted(np.concatenate(dev.batches)) == list(range(len(corpus)))
    for batch in dev.batches:
        assert len(batch) == 1 or max(side[batch].sum()
                                      for side in (corpus.src_lengths, corpus.tgt_lengths)) <= device_tokens
    model = run.model()
    parts, whole = (measure(model, map(corpus.batch, batches)) for batches in (dev.batches, [np.arange(len(corpus))]))
    assert parts.perplexity == pytest.approx(whole.perplexity, rel=1e-5) and parts.tokens == whole.tokens


def test_rates_do_not_count_the_time_of_measuring(data, tmp_path, monkeypatch):
    "By a clock of our own: an update takes a second, a measurement a thousand."
    now = [0.0]

    def taking(seconds, f):
        def timed(*args):
            now[0] += seconds
            return f(*args)
        return timed

    monkeypatch.setattr(processes_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(training, "update", taking(1, training.update))
    monkeypatch.setattr(training, "quality_sums", taking(1000, training.quality_sums))
    run = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=8, save_every=2))
    assert train(run)
    lines = run.history.metrics()
    assert len(lines) == 8 and all(line["tokens_per_second"] == line["tokens"] for line in lines)
    metrics = run.record.read()["metrics"]
    assert metrics["tokens"] == sum(line["tokens"]
                                    for line in lines) and metrics["tokens_per_second"] == round(metrics["tokens"] / 8)
    assert lines[-1]["seconds"] == 3008 and run.record.read()["seconds"] == 3008  # which do count it


# ---------------------------------------------------------------------------------------------------- float16

HALF = replace(TRAINING, steps=12, precision="float16", clip_norm=5.0)


@pytest.fixture
def overflowing(monkeypatch):
    "The scale of the loss begins so high that the first gradients overflow; monkeypatch.undo() makes it the usual one."
    monkeypatch.setattr(torch.amp, "GradScaler", partial(torch.amp.GradScaler, init_scale=2.0**26))


def test_an_update_whose_gradient_overflows_is_skipped_and_counted(data, tmp_path, overflowing, monkeypatch):
    run, kept, whole = start_run(tmp_path / "run", data, SHAPE, HALF), [], training.update

    def update(objective, *rest):
        before = [p.detach().clone() for p in objective.parameters()]
        loss = whole(objective, *rest)
        kept.append(all(torch.equal(*pair) for pair in zip(before, objective.parameters())))
        return loss

    monkeypatch.setattr(training, "update", update)
    assert train(run)
    lines = run.history.metrics()
    skipped = [line["skipped"] for line in lines]
    assert 0 < sum(skipped) < 12 and skipped == [int(k) for k in kept]
    assert [line["loss_scale"] for line in lines] == [2.0**(26 - sum(skipped[:i])) for i in range(1, 13)]
    assert [line["rate"] for line in lines] == [HALF.rate_at(step, SHAPE.d_model) for step in range(1, 13)]
    assert [("gradient_norm" in line) for line in lines] == [not k for k in kept]  # infinity is no number of JSON
    assert run.record.read()["metrics"]["skipped"] == sum(skipped)
    first, last = (processes_module.bar_text(line) for line in (lines[0], lines[-1]))
    assert first["skipped"] == "1" and "skipped" not in last


def test_a_scaled_run_resumes_with_its_scale(data, tmp_path, overflowing, monkeypatch):
    "Stopped amid the skipped updates, and killed after the checkpoint of update 4."
    whole, cut = (start_run(tmp_path / name, data, SHAPE, HALF) for name in ("whole", "cut"))
    assert train(whole)
    assert not train(cut, minutes=1e-9) and cut.checkpoints.load()[1]["scaler"]["scale"] == 2.0**25
    monkeypatch.undo()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Trainer, "log", lambda self, line, log=Trainer.log: log(self, line)
                      if line["step"] < 7 else kill_now())
        train(Run.open(cut.folder))
    assert train(Run.open(cut.folder)) and told(cut.folder) == told(whole.folder)
    assert_same(cut.folder, whole.folder)
    states = [run.checkpoints.load()[1] for run in (cut, whole)]
    assert states[0]["scaler"] == states[1]["scaler"]
    assert cut.record.read()["metrics"]["skipped"] == whole.record.read()["metrics"]["skipped"] > 1


@pytest.mark.slow  # one update daily: tests/model/test_model.py
def test_losses_in_float16_are_nearly_those_in_float32(data, tmp_path):
    half, exact = (start_run(tmp_path / p, data, SHAPE, replace(HALF, precision=p)) for p in ("float16", "float32"))
    assert train(half) and train(exact) and "skipped" not in exact.record.read()["metrics"]
    (_, ours), (_, theirs) = (zip(*reports(run.folder)) for run in (half, exact))
    assert ours != theirs and ours == pytest.approx(theirs, rel=1e-3)
    assert all(line["skipped"] == 0 and line["loss_scale"] == 2**16 for line in half.history.metrics())


def test_a_gradient_that_overflows_at_any_scale_ends_the_run(data, tmp_path, monkeypatch):
    whole = training.Objective

    def overflows(model, *arguments):
        model.embedding.weight.register_hook(lambda gradient: gradient * math.inf)
        return whole(model, *arguments)

    monkeypatch.setattr(training, "Objective", overflows)
    run = start_run(tmp_path / "run", data, SHAPE, replace(HALF, steps=60))
    with pytest.raises(InputError, match="overflows float16 at any scale after step 30 .* names the sentences"):
        train(run)


# ---------------------------------------------------------------------------------------------------- the rate's
# schedule


def test_a_rate_that_runs_out(data, tmp_path):
    config = replace(TRAINING, steps=24, schedule="linear-to-zero", warmup_steps=5, lr_scale=0.5)
    run = start_run(tmp_path / "run", data, SHAPE, config)
    assert train(run)
    rates = [line["rate"] for line in run.history.metrics()]
    peak = 0.5 * (SHAPE.d_model * 5) ** -0.5
    assert rates[:5] == pytest.approx([peak * step / 5 for step in range(1, 6)])
    assert rates[4:] == pytest.approx([peak * left / 20 for left in range(20, 0, -1)])  # 0 after the last


# ---------------------------------------------------------------------------------------------------- translations
# while it trains


def test_translations_are_shown_and_kept_at_each_measurement(data, tmp_path, capsys):
    run = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=8, report_every=2))
    examples, models = [("a cow", "eine Kuh", "eine"), ("", "", "")], []

    def translate(model):
        models.append(model.training)
        return training.Translated(examples, 12.5)

    assert train(run, translate=translate)
    assert models == [True, True] and [line.get("dev_bleu")
                                       for line in run.history.metrics()] == [None, 12.5, None, 12.5]
    text = "source     a cow\nreference  eine Kuh\nmodel      eine\n\nsource     \nreference  \nmodel      "
    assert [path.read_text(encoding="utf-8")
            for path in sorted((run.folder / "translations").iterdir())] == [text + "\n"] * 2
    said = capsys.readouterr().err
    assert text in said and "Update 4, development perplexity" in said and "Update 8," in said


# ---------------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over(data, undisturbed, tmp_path, capsys):
    run = start_run(tmp_path / "run", data, SHAPE, TRAINING)
    kill_at(start(run.folder), run, 14, 0.0)
    (step, newest), before = run.checkpoints.found()[-1], run.checkpoints.found()[-2][0]
    content = bytearray((newest / "state.pt").read_bytes())
    content[len(content) // 2] ^= 1  # one bit
    (newest / "state.pt").write_bytes(content)
    assert run.checkpoints.newest() == before and f"step_{step}" in capsys.readouterr().err
    assert train(Run.open(run.folder))
    assert_same(run.folder, undisturbed(1, TRAINING.steps))


def test_a_missing_file_of_a_checkpoint_is_named(data, tmp_path):
    run = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=4))
    assert train(run)
    folder = run.checkpoints.found()[-1][1]
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="model.safetensors: missing"):
        check_checkpoint(folder)
    (folder / "digests.json").unlink()
    with pytest.raises(InputError, match="digests.json: missing"):
        check_checkpoint(folder)


def test_state_that_runs_code_is_refused(data, tmp_path):
    run = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=4))
    assert train(run)
    folder = run.checkpoints.found()[-1][1]

    class Bad:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path / 'executed'}",))

    torch.save({"optimizer": Bad()}, folder / "state.pt")
    write_json(folder / "digests.json",
               {name: file_digest(folder / name) for name in ("model.safetensors", "state.pt")})
    with pytest.raises(InputError, match="state.pt"):
        run.checkpoints.load()
    (folder / "model.safetensors").write_bytes(pickle.dumps({"w": 1}))
    write_json(folder / "digests.json",
               {name: file_digest(folder / name) for name in ("model.safetensors", "state.pt")})
    with pytest.raises(InputError, match="pickle"):
        run.checkpoints.load()
    assert not (tmp_path / "executed").exists()


def test_a_full_disk(data, tmp_path, monkeypatch):
    "The run stops with one line, and the checkpoint before is whole; with room again it goes on."
    run = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=12))
    save, count = torch.save, []

    def fails_the_second_time(state, file):
        count.append(file)
        if len(count) == 2:
            file.write(b"half")
            raise OSError(28, "No space left on device", file.name)
        save(state, file)

    monkeypatch.setattr(torch, "save", fails_the_second_time)
    with pytest.raises(InputError, match="No space left on device.*intact.*continue with"):
        train(run)
    assert [p.name for p in (run.folder / "checkpoints").iterdir()] == ["step_4"] and run.checkpoints.load(4)
    assert train(run) and run.checkpoints.found()[-1][0] == 12


def test_every_update_seed_and_process_draws_from_a_state_of_its_own(data, monkeypatch):
    model = Transformer(SHAPE)
    objective, optimizer = training.Objective(model, 0.0), torch.optim.SGD(model.parameters(), 0.1)
    batch, seen = ParallelCorpus(data, "train").batch(np.arange(4)), set()
    for seed, step, number in ((0, 1, 0), (0, 2, 0), (0, 1, 1), (1, 2, 0), (2, 1, 0)):
        monkeypatch.setattr(training, "rank", lambda number=number: number)
        training.update(objective, optimizer, [(batch, 1.0)], 40, TrainingConfig(seed=seed), step)
        seen.add(torch.initial_seed())
    assert len(seen) == 5


def test_what_was_not_yet_reported_is_reported_after_a_stop(data, tmp_path):
    config = replace(TRAINING, steps=8, report_every=4, save_every=8)
    whole, cut = (start_run(tmp_path / name, data, SHAPE, config) for name in ("whole", "cut"))
    assert train(whole) and not train(cut, minutes=1e-9)  # stops after an update, before a report
    assert not cut.history.metrics() and cut.checkpoints.found()
    record, before = cut.record.read(), cut.checkpoints.load()[1]["progress"]["seconds"]
    assert record["metrics"]["tokens"] > 0 and record["seconds"] == pytest.approx(before, abs=0.06)  # reported or not
    assert Trainer(Run.open(cut.folder), data, None).clock.before == before > 0
    assert train(Run.open(cut.folder))
    told = [[(m["step"], m["loss"], m["tokens"]) for m in Run.open(run.folder).history.metrics()]
            for run in (cut, whole)]
    assert told[0] == told[1] and len(told[0]) == 2


def test_checkpoints_by_the_clock(data, tmp_path, monkeypatch):
    saved, save = [], Run.save_checkpoint
    monkeypatch.setattr(Run, "save_checkpoint",
                        lambda self, step, *rest: (saved.append(step), save(self, step, *rest))[1])
    assert train(start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=5, save_every=4, save_minutes=1e-9)))
    assert saved == [1, 2, 3, 4, 5]


def test_a_disk_that_is_full_at_once(data, tmp_path, monkeypatch):
    "Nothing half-made stays, and with room again the same folder will do."
    def full(path, content):
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch, pytest.raises(InputError, match="No space"):
        patch.setattr(runs, "write_json", full)
        start_run(tmp_path / "run", data, SHAPE, TRAINING)
    assert not list(tmp_path.glob("run*"))
    assert Run.open(start_run(tmp_path / "run", data, SHAPE, TRAINING).folder)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_disk_that_is_really_full(data, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", disk], capture_output=True).returncode:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        run = start_run(disk / "run", data, SHAPE, replace(TRAINING, steps=400, keep=100))
        said = end(start(run.folder), 2)
        assert "No space left" in said and "intact" in said and "Traceback" not in said, said
        assert run.checkpoints.found() and run.checkpoints.newest() == run.checkpoints.found()[-1][0]
        assert not [p for p in (run.folder / "checkpoints").iterdir() if p.name.startswith(".")]
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_loss_that_is_not_finite(data, tmp_path):
    wild = replace(TRAINING, lr_scale=1e30, save_every=1, report_every=5)
    run = start_run(tmp_path / "run", data, SHAPE, wild)
    with pytest.raises(InputError, match="not_finite.json"):
        train(run)
    told = json.loads((run.folder / "not_finite.json").read_text())
    corpus = ParallelCorpus(data, "train")
    place, indices = list(zip(range(told["step"]), updates(corpus, wild, Progress())))[-1][1]
    assert told["sentences"] == indices.tolist() and told["position"] == place.position
    step, path = run.checkpoints.found()[-1]
    assert step == told["step"] - 1
    assert all(tensor.isfinite().all() for tensor in run.checkpoints.load(step)[0].values())
    assert all(math.isfinite(m["loss"]) for m in run.history.metrics())
    assert run.history.sessions()[-1]["end"] and run.history.sessions()[-1]["to_step"] == step  # its seconds were spent


def test_a_compiler_that_is_not_there(data, tmp_path, monkeypatch):
    run = start_run(tmp_path / "run", data, SHAPE, TRAINING)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(InputError, match="C\\+\\+ compiler"):
        train(run, compile=True)
    assert not run.checkpoints.found()


def test_a_compiler_that_fails(data, tmp_path, monkeypatch):
    from torch._inductor.exc import CppCompileError  # what a Ctrl-C within g++ leads to

    def fail(*_, **__):
        raise CppCompileError(["g++"], "killed")

    run = start_run(tmp_path / "run", data, SHAPE, TRAINING)
    monkeypatch.setattr(Trainer, "train", fail)
    with pytest.raises(InputError, match="compiler failed or was stopped.*compiled or not"):
        train(run)


@pytest.mark.slow
def test_two_trainings_of_one_run(data, tmp_path):
    run = start_run(tmp_path / "run", data, SHAPE, TRAINING)
    with run.lock():
        assert "another process is training this run" in end(start(run.folder), 2)


def test_a_run_keeps_the_library_of_its_products(data, tmp_path, monkeypatch):
    "Another one sums in another order. Whatever a later trial says, a run that is resumed takes what it began with."
    if torch.cuda.is_available():
        pytest.skip("a GPU has one library")
    if kernels.candidate(kernels.ONEDNN, torch.eye(64)) is None:
        pytest.skip("PyTorch has no oneDNN here")
    used, whole = set(), training.update
    monkeypatch.setattr(training, "update", lambda *of: (used.add(kernels.training_kernel()), whole(*of))[1])
    for began, later in ((kernels.ONEDNN, kernels.MKL), (kernels.MKL, kernels.ONEDNN)):
        with kernels.training_with(began):
            run = start_run(tmp_path / began, data, SHAPE, replace(TRAINING, steps=2))
        used.clear()
        with kernels.training_with(later):
            assert train(Run.open(run.folder)) and used == {run.config["kernel"]} == {began}


@pytest.mark.slow
def test_the_average_is_never_resumed_from(data, undisturbed, tmp_path):
    "With all of `averaged.safetensors` set to zero, a run that goes on ends as one that was not disturbed."
    from safetensors.torch import load_file, save_file
    run = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=14))
    assert not train(run, minutes=1e-9)  # stops at once, and averages what there is
    average = run.folder / "averaged.safetensors"
    save_file({name: torch.zeros_like(tensor) for name, tensor in load_file(average).items()}, average)
    assert train(run)
    assert_same(run.folder, undisturbed(1, 14))


# ---------------------------------------------------------------------------------------------------- patience


@pytest.mark.slow
def test_patience_ends_a_run_of_several_processes(data, tmp_path):
    """Every process asks as often as the others whether the run has ended; otherwise the first one waits for ever,
    or fails."""
    impatient = replace(TRAINING, steps=40, save_every=1, patience=2, lr_scale=300.0)  # it soon gets worse
    run = start_run(tmp_path / "run", data, SHAPE, impatient)
    end(start(run.folder, 2))
    assert run.finished() and run.record.read()["status"] == "finished" and run.record.read()["metrics"]["steps"] < 40


def test_a_report_from_after_the_checkpoint_does_not_exhaust_the_patience(data, tmp_path):
    "Killed between a report and its checkpoint, the run measures again."
    run = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=3, save_every=1, patience=1))
    trainer = Trainer(run, data, None)
    trainer.progress = Progress(step=1)
    for step, perplexity in ((1, 5.0), (2, 6.0)):
        run.history.log({"step": step, "dev_perplexity": perplexity})
    assert not trainer.is_over()
    trainer.progress = Progress(step=2)
    assert trainer.is_over()


def test_another_development_set_is_refused(data, tmp_path):
    run = start_run(tmp_path / "run", data, SHAPE, TRAINING)
    run.config["data"]["splits"]["dev"]["sha256"] = {"en": "other", "de": "other"}
    with pytest.raises(InputError, match="another development set than that of the run"):
        training.open_data(run, data)


def test_the_length_of_a_gradient_is_reported_once(data, tmp_path):
    "Measured at every second update, written at every update: lines between have none."
    run = start_run(tmp_path / "run", data, SHAPE,
                    replace(TRAINING, steps=4, report_every=2, save_every=1, clip_norm=0.0))
    assert train(run)
    assert [("gradient_norm" in m) for m in run.history.metrics()] == [False, True, False, True]


def test_a_checkpoint_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    on_disk, at_rename = [], []
    sync, rename = os.fsync, Path.rename

    def synced(descriptor):
        on_disk.append(os.fstat(descriptor).st_ino)
        sync(descriptor)

    def renamed(path, target):
        at_rename.append({p.name for p in path.iterdir() if p.stat().st_ino in on_disk})
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    path = Checkpoints(tmp_path).write(1, {"w": torch.zeros(2)}, {})
    assert at_rename == [{p.name for p in path.iterdir()}] == [{"model.safetensors", "state.pt", "digests.json"}]


@pytest.mark.slow
def test_two_processes_note_their_scores_at_once(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "run")
    note = ("import sys; from annotated_transformer.training.runs import Run; run = Run.open(sys.argv[1])\n"
            "for n in range(25): run.record.add_evaluation(f'{sys.argv[2]}{n}', {})")
    both = [subprocess.Popen([sys.executable, "-c", note, str(folder), name]) for name in "ab"]
    assert [process.wait() for process in both] == [0, 0]
    assert len(Run.open(folder).record.read()["evaluations"]) == 50


def test_a_record_goes_with_the_average_that_it_describes(finished, tmp_path):
    run = Run.open(shutil.copytree(finished, tmp_path / "run"))
    run.extend({"steps": 28})
    assert not run.finished(), "the record is of the former end"
    assert train(run) and run.record.read()["status"] == "finished" and run.finished()
    assert run.record.read()["weights"] == file_digest(run.folder / "averaged.safetensors")


def test_an_average_that_was_not_measured_is_not_taken(data, finished, tmp_path, monkeypatch):
    run = Run.open(shutil.copytree(finished, tmp_path / "run"))
    dev, before = averaging.development_set(run, ParallelCorpus(data, "dev")), run.weights()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(averaging, "quality_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        averaging.average_again(run, dev, 1, False)
    assert same_weights(run.weights(), before)


def test_an_average_of_an_extended_run_does_not_say_that_it_is_finished(finished, tmp_path):
    run = Run.open(shutil.copytree(finished, tmp_path / "run"))
    assert averaging.average_again(run, None, 1, False) and run.record.status() == "finished"
    run.extend({"steps": 28})
    averaging.average_again(run, None, 2, False)
    assert run.record.status() == "stopped"
    assert train(run) and run.record.status() == "finished"


def test_a_corpus_with_a_new_vocabulary_is_encoded_before_it_is_trained_on(data, tmp_path):
    folder = shutil.copytree(data, tmp_path / "data")
    learn_vocabulary(Corpus.open(folder), BytePairVocabulary, 280)
    with pytest.raises(InputError, match="not encoded yet with its vocabulary"):
        start_run(tmp_path / "run", folder, replace(SHAPE, vocab_size=280), TRAINING)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_killed_runs_keep_the_same_best_checkpoint(data, tmp_path):
    config = replace(TRAINING, steps=60, lr_scale=30.0, patience=4, save_minutes=0.0005)
    undisturbed, killed = (start_run(tmp_path / name, data, SHAPE, config) for name in ("undisturbed", "killed"))
    assert train(undisturbed)
    for step in (5, 11):
        process = start(killed.folder)
        while process.poll() is None and not any(m["step"] >= step for m in killed.history.metrics()):
            time.sleep(0.002)
        process.kill()
        process.communicate()
    assert train(Run.open(killed.folder))
    assert [step for step, _ in killed.checkpoints.found()] == [step for step, _ in undisturbed.checkpoints.found()]
    assert same_weights(killed.weights(), undisturbed.weights())


def test_event_files_hold_what_the_report_holds(data, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    run = start_run(tmp_path / "run", data, SHAPE, replace(TRAINING, steps=8))
    assert train(run, tensorboard=True)
    run.extend({"steps": 12})
    assert train(Run.open(run.folder), tensorboard=True)
    events = EventAccumulator(str(run.folder / "tensorboard")).Reload()
    for name in ("loss", "dev_perplexity", "gradient_norm"):
        told = [(line["step"], line[name]) for line in run.history.metrics() if name in line]
        assert [e.step for e in events.Scalars(name)] == [step for step, _ in told]
        assert [e.value for e in events.Scalars(name)] == pytest.approx([value for _, value in told], rel=1e-6)


@pytest.mark.slow
def test_fine_tuning_gives_both_runs_the_same_training(finished, data, tmp_path):
    from annotated_transformer.commands.train import peak_rate
    from annotated_transformer.experiments.runner import Place, experiment
    study, place = experiment("fine_tuning"), Place(data.parent, tmp_path / "runs", tmp_path)
    record = study.measure_fine_tuning(str(finished), data.name, 0.01, place)
    tuned, scratch = (Run.open(tmp_path / "runs/fine_tuning" / name) for name in ("tuned", "scratch"))
    assert tuned.config["training"] == scratch.config["training"] and tuned.config["model"] == scratch.config["model"]
    assert peak_rate(tuned.model_config(), TrainingConfig(**tuned.config["training"])) == pytest.approx(study.PEAK)
    assert tuned.initial_weights() is not None and scratch.initial_weights() is None
    metrics = record["metrics"]
    assert metrics["gain"] == metrics["sacrebleu/tuned"] - metrics["sacrebleu/scratch"] and metrics[
        "perplexity/tuned"] < metrics["perplexity/scratch"]
    again = study.measure_fine_tuning(str(finished), data.name, 0.01, place)
    assert again["metrics"]["steps/tuned"] >= metrics["steps/tuned"]


def test_a_seed_decides_the_weights_and_the_order(data, tmp_path):
    first = []
    for name, seed in (("one", 0), ("again", 0), ("other", 1)):
        trainer = Trainer(start_run(tmp_path / name, data, SHAPE, replace(TRAINING, seed=seed)), data, None)
        _, sentences = next(updates(trainer.corpus, trainer.config, trainer.progress))
        first.append((trainer.model.state_dict(), sentences.tolist()))
    (one, order), (again, same), (other, another) = first
    assert same_weights(one, again) and order == same
    assert not torch.equal(one["embedding.weight"], other["embedding.weight"]) and order != another
