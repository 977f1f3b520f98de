"""Every kind of model goes through the machinery of the Transformer: trained from the command, killed and continued,
searched, refused."""

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from annotated_transformer.commands import cli
from annotated_transformer.commands.train import configured, open_or_start, peak_rate
from annotated_transformer.corpus.batching import Batch, ParallelCorpus
from annotated_transformer.decoding.search import beam_search, plain_beam_search
from annotated_transformer.decoding.ensembles import ensemble
from annotated_transformer.decoding.translation import load
from annotated_transformer.engine import kinds as architectures
from annotated_transformer.engine.fast import FastDropout, fast_to_train, target_hidden
from annotated_transformer.engine.kinds import architecture, build
from annotated_transformer.model.symbols import END, PAD, START
from annotated_transformer.model.transformer import TransformerConfig
from annotated_transformer.rivals import gleu_rl
from annotated_transformer.rivals.base import BODY, body_parameters, fitted
from annotated_transformer.rivals.base import OWN as OWN_TRAINING
from annotated_transformer.tools.files import InputError, read_json, write_json
from annotated_transformer.training import loop as training
from annotated_transformer.training.optimizer import OPTIMIZERS
from annotated_transformer.training.presets import TrainingConfig
from annotated_transformer.training.regularization import measure
from annotated_transformer.training.runs import Run
from here import CODE, RIVALS, SMALL, fails

KINDS = list(SMALL)
TRAINING = {"steps": 20, "warmup_steps": 5, "save_every": 6, "report_every": 1, "batch_tokens": 300,
            "precision": "float32"}
GO_ON = """
import sys
from annotated_transformer.engine.kinds import run_code
from annotated_transformer.training.loop import train
from annotated_transformer.training.runs import Run
run_code(sys.argv[2])
train(Run.open(sys.argv[1]))
"""


@pytest.fixture(scope="module", autouse=True)
def registered():
    "For the tests that do not go through the command; nothing is left for those of other files."
    if "bag" not in architectures.REGISTERED:
        architectures.run_code(CODE)
    yield
    architectures.REGISTERED.pop("bag")


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    "A run of each kind, made when it is asked for."
    made: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("trained") / kind
            training.train(open_or_start(made[kind], data, kind, SMALL[kind] | TRAINING))
        return made[kind]

    return get


# --- trained ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_trained_killed_and_continued(trained, data, tmp_path, kind):
    "A process of its own is killed in the middle; continued, it ends as the undisturbed one, bit for bit."
    run = open_or_start(tmp_path / "run", data, kind, SMALL[kind] | TRAINING).folder
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads()), "TQDM_DISABLE": "1"}
    process = subprocess.Popen([sys.executable, "-c", GO_ON, str(run), str(CODE)], env=environment,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while process.poll() is None and not any(m["step"] >= 14 for m in Run.open(run).history.metrics()):
        time.sleep(0.001)
    assert process.poll() is None, process.communicate()[0]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    cli.main(["train", str(run)])

    undisturbed, continued = Run.open(trained(kind)), Run.open(run)
    assert continued.config["kind"] == kind == continued.record.read()["config"]["kind"]
    assert [(m["step"], m["loss"])
            for m in continued.history.metrics()] == [(m["step"], m["loss"]) for m in undisturbed.history.metrics()]
    for mine, theirs in ((continued.weights(), undisturbed.weights()),
                         (continued.checkpoints.load()[0], undisturbed.checkpoints.load()[0])):
        assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert undisturbed.history.metrics()[-1]["loss"] < undisturbed.history.metrics()[0]["loss"]


# two kinds daily, the others in `make test-all`
@pytest.mark.parametrize("kind", [*KINDS[:2], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[2:])])
def test_translated_and_scored(trained, kind, capsys):
    run = trained(kind)
    cli.main(["evaluate", str(run)])
    assert "sacreBLEU" in capsys.readouterr().out
    assert len(load(run).translate(["the cow sees the old dog", ""], beam_size=4)) == 2


# ---------------------------------------------------------------------------------------------------- what every rival
# keeps to


def small_model(kind: str, seed: int = 0, **changes) -> torch.nn.Module:
    "In float64, larger weights than it starts with: nothing hides behind small numbers."
    torch.manual_seed(seed)
    config = architecture(kind).config(**{"vocab_size": 30} | SMALL[kind] | changes)
    model = build(config).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5)
    return model


def sentences(lengths: list[int], first: int | None = None) -> torch.Tensor:
    rows = [torch.cat((torch.randint(4, 30, (n - 1,)), torch.tensor([END]))) for n in lengths]
    rows = [torch.cat((torch.tensor([first]), row[:-1])) for row in rows] if first else rows
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", RIVALS)
def test_padding_changes_nothing(kind, tied):
    model = small_model(kind, tied=tied)
    sources, targets = sentences([7, 3, 1, 12]), sentences([4, 9, 2, 1], first=START)
    together = model(sources, targets)
    for row, (src, tgt) in enumerate(zip(sources, targets)):
        alone = model(src[src != PAD][None], tgt[tgt != PAD][None])
        torch.testing.assert_close(together[row, : alone.size(1)], alone[0], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["recurrent", "input-feeding", "deep-att", "bytenet", "mixture-of-experts"])
def test_plain_vectors_are_rows_of_the_table(kind, tied):
    """Multiplied by the root of d_model only where they are not plain; padding stays zero, and the search sees the
    same vectors."""
    ids = torch.tensor([[5, 6, PAD]])
    for plain, factor in ((False, None), (True, 1.0)):
        model = small_model(kind, tied=tied, plain_vectors=plain)
        for side in ("source", "target"):
            table = model.embedding if tied else model.tables[side]
            expected = table.weight[ids[0]] * (factor or math.sqrt(model.config.d_model))
            torch.testing.assert_close(model.vectors(side, ids)[0], expected)
            assert (model.vectors(side, ids)[0, 2] == 0).all()
    large = build(replace(architecture(kind).config(), plain_vectors=True, tied=tied))
    assert all(abs(t.weight[PAD + 1 :].std() - 0.1) < 0.001 for t in (large.embedding, *large.tables.values()))


@pytest.mark.parametrize("kind", RIVALS)
def test_no_look_into_the_future(kind):
    """The gradient of the output at position i reaches the vectors of the symbols up to i, all of the source, and no
    later symbol."""
    model, seen = small_model(kind), {}
    for side in ("source", "target"):
        model.tables[side].register_forward_hook(
            lambda _, __, out, side=side: (out.retain_grad(), seen.update({side: out}))[0])
    src, tgt = sentences([6]), sentences([8], first=START)
    for i in range(8):
        model.zero_grad()
        hidden = model.decode(tgt, *model.encode(src))
        (hidden[0, i] * torch.randn(hidden.size(-1)).double()).sum().backward()
        reached = seen["target"].grad[0].abs().sum(-1)
        assert (reached[i + 1 :] == 0).all() and reached[i] > 0
        if i == 7:
            assert (seen["source"].grad[0, : src.size(1)].abs().sum(-1) > 0).all()
            assert (reached[-3:] > 0).all()


@pytest.mark.parametrize("kind", RIVALS)
def test_the_search_keeps_what_whole_beginnings_would_give(kind):
    """Beam 4 for several sentences at once, step by step, against the plain search of one sentence that computes
    each beginning anew."""
    found = 0
    for seed in range(2):
        model = small_model(kind, seed)
        src = sentences([6, 2, 9])
        quick = beam_search(model, src, max_extra_tokens=8, n_best=4)
        for row, hypotheses in zip(src, quick):
            plain = plain_beam_search(model, row[row != PAD][None], max_extra_tokens=8)
            assert [h.ids for h in hypotheses] == [ids for _, ids in plain]
            np.testing.assert_allclose([h.score for h in hypotheses], [score for score, _ in plain], rtol=1e-7)
            found += len({tuple(ids) for _, ids in plain})
    assert found > 6


@pytest.mark.parametrize("kind", RIVALS)
def test_only_training_exchanges_a_models_dropout(kind):
    """Whoever searches or measures with a model has every module of it afterwards; training has one with the cheaper
    dropout."""
    model, src, tgt = small_model(kind, dropout=0.2).train(), sentences([3, 5]), sentences([4, 2], first=START)
    before = list(model.modules())
    beam_search(model.eval(), src, max_extra_tokens=4)
    measure(model.train(), [Batch(src, F.pad(tgt, (0, 1), value=END), np.arange(2))])
    assert all(a is b for a, b in zip(model.modules(), before, strict=True)) and model.training
    trained = [m for m in fast_to_train(model).modules() if isinstance(m, torch.nn.Dropout)]
    assert {type(m) for m in trained} == {FastDropout} and {type(m) for m in before
                                                            if isinstance(m, torch.nn.Dropout)} == {torch.nn.Dropout}


@pytest.mark.parametrize("kind", RIVALS)
def test_widths_are_fitted_to_equal_size(kind):
    config = architecture(kind).config()
    assert abs(body_parameters(config) / BODY - 1) < 0.05 and fitted(config, BODY) == config
    assert body_parameters(replace(config, vocab_size=9000, tied=True)) == body_parameters(config)
    model = build(replace(config, vocab_size=50))
    rows = 50 * config.d_model * 3 + sum(p.numel() for name, p in model.named_parameters() if "positions" in name)
    assert sum(p.numel() for p in model.parameters()) - rows == body_parameters(config)


@pytest.mark.parametrize("kind", RIVALS)
def test_numbers_that_cannot_be(kind):
    for change in ({"d_model": 0}, {"n_layers": 0}, {"dropout": 1.0}):
        with pytest.raises(ValueError, match=next(iter(change))):
            build(replace(architecture(kind).config(), **change))


# ---------------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("program, said", [
    ("import json\n\n\njson.loads('[1,')\n", "line 4: JSONDecodeError"),  # which has a lineno of its own
    ("import torch\n\ndef f(:\n", "line 3: SyntaxError"), ("import torch\ntorch.nothing\n", "line 2: AttributeError")])
def test_an_error_in_code_is_told_with_its_line(program, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.py").write_text(program)
    for name in (tmp_path / "wrong.py", "wrong.py"):
        with pytest.raises(InputError, match=f"wrong.py, {said}"):
            architectures.run_code(name)


def test_a_run_of_an_unknown_kind_asks_for_its_code_and_imports_nothing(trained, tmp_path):
    config = read_json(trained("bag") / "config.json")
    for kind in ("bags", "os", "subprocess.Popen", "../bag"):
        folder = tmp_path / kind.replace("/", "_")
        folder.mkdir()
        write_json(folder / "config.json", config | {"kind": kind})
        with pytest.raises(InputError, match="no kind of model .*a file of code registers one"):
            Run.open(folder).model()


def test_weights_of_another_kind_are_refused(trained, tmp_path):
    folder = shutil.copytree(trained("bag"), tmp_path / "run")
    other = Run.open(trained("transformer")).config
    write_json(folder / "config.json", Run.open(folder).config | {"kind": "transformer", "model": other["model"]})
    with pytest.raises(InputError, match="weights do not fit the model that config.json describes .kind: transformer"):
        load(folder)


@pytest.mark.parametrize("broken", [{"data": []}, {"training": "x"}, {"data": {"folder": "x"}}, {"model": None}])
def test_a_damaged_configuration_is_an_input_error(trained, tmp_path, broken):
    shutil.copytree(trained("bag"), folder := tmp_path / "run")
    write_json(folder / "config.json", read_json(folder / "config.json") | broken)
    with pytest.raises(InputError, match="not the configuration of a run"):
        Run.open(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(InputError, match="not a JSON object"):
        Run.open(folder)


def test_a_configuration_without_a_kind_is_a_transformers(trained, tmp_path):
    folder = shutil.copytree(trained("transformer"), tmp_path / "run")
    config = read_json(folder / "config.json")
    del config["kind"]
    write_json(folder / "config.json", config)
    assert isinstance(Run.open(folder).model_config(), TransformerConfig)
    assert load(folder).translate("the cow") == load(trained("transformer")).translate("the cow")


def test_a_name_that_is_taken():
    with pytest.raises(InputError, match="already"):
        architectures.register("transformer", TransformerConfig, torch.nn.Linear)


def test_a_configuration_without_a_default(monkeypatch):
    @dataclass(frozen=True)
    class Bare:
        vocab_size: int
        d_model: int = 8

    monkeypatch.setattr(architectures, "REGISTERED", {})
    with pytest.raises(InputError, match="vocab_size has no default"):
        architectures.register("mine", Bare, torch.nn.Linear)


def test_a_configuration_that_is_taken(monkeypatch):
    "A model of another kind under a known configuration would be built, and recorded, as that kind."
    @dataclass(frozen=True)
    class First(TransformerConfig):
        pass

    @dataclass(frozen=True)
    class Second(TransformerConfig):
        pass

    monkeypatch.setattr(architectures, "REGISTERED", {})
    monkeypatch.setattr(architectures, "KIND_OF", {**architectures.KIND_OF})
    for taken in (TransformerConfig, architecture("recurrent").config):
        with pytest.raises(InputError, match="another kind's configuration"):
            architectures.register("mine", taken, torch.nn.Linear)
    architectures.register("mine", First, torch.nn.Linear)
    architectures.register("mine", First, torch.nn.Linear)  # the same file once more
    with pytest.raises(InputError, match="another kind's configuration"):
        architectures.register("other", First, torch.nn.Linear)
    with pytest.raises(InputError, match="a kind of model already"):
        architectures.register("mine", Second, torch.nn.Linear)
    assert architectures.kind_of(First()) == "mine" and architectures.kind_of(TransformerConfig()) == "transformer"


# ---------------------------------------------------------------------------------------------------- optimizers


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("bound", [0.0, 0.01])
def test_updates_equal_those_computed_by_torch_by_hand(data, name, bound):
    "Three updates of a small model: the loss by PyTorch's cross entropy, the norm and the step by formula."
    corpus, indices = ParallelCorpus(data, "train"), np.arange(20)
    config = replace(TrainingConfig(), lr_scale=0.3, warmup_steps=4, label_smoothing=0.0, optimizer=name,
                     clip_norm=bound)
    torch.manual_seed(0)
    model, batch = build(architecture("bag").config(vocab_size=300, d_model=8,
                                                    looseness=0.0)).double(), corpus.batch(indices)
    target, tokens = batch.tgt[:, 1:], int(corpus.tgt_lengths[indices].sum())
    w = model.embedding.weight.detach().clone()
    m, v = torch.zeros_like(w), torch.zeros_like(w)
    optimizer = OPTIMIZERS[name](model.parameters())
    for step in (1, 2, 3):
        twin = build(model.config).double()
        twin.embedding.weight.data.copy_(w)
        logits = twin.embedding.logits(twin.decode(batch.tgt[:, :-1], *twin.encode(batch.src)))
        F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0).backward()
        g, norm = twin.embedding.weight.grad, twin.embedding.weight.grad.norm()
        if bound and norm > bound:
            g = g * (bound / (norm + 1e-6))
        rate = 0.3 * 8**-0.5 * step * 4**-1.5
        if name == "adam":
            m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
            w = w - rate * (m / (1 - 0.9**step)) / ((v / (1 - 0.98**step)).sqrt() + 1e-9)
        elif name == "nesterov":
            m = 0.99 * m + g
            w = w - rate * (g + 0.99 * m)
        else:
            w = w - rate * g
        training.update(training.Objective(model, 0.0), optimizer, [(batch, 1.0)], tokens, config, step)
        torch.testing.assert_close(model.embedding.weight.data, w, rtol=1e-9, atol=1e-12)
        if bound:
            assert norm > bound
            torch.testing.assert_close(float(optimizer.param_groups[0]["gradient_norm"]), norm.item(), rtol=1e-9,
                                       atol=0)


def test_the_norm_is_reported_where_it_is_clipped_and_runs_with_momentum_go_on(data, tmp_path):
    runs = []
    for name in ("whole", "stopped"):
        runs.append(open_or_start(tmp_path / name, data, "bag",
                                  SMALL["bag"] | TRAINING | {"optimizer": "nesterov", "clip_norm": 0.1}))
        training.train(runs[-1])
    assert all(m["gradient_norm"] > 0 for m in runs[0].history.metrics())
    for path in runs[1].folder.joinpath("checkpoints").iterdir():  # as if it had been killed after step 6
        if path.name != "step_6":
            shutil.rmtree(path)
    (runs[1].folder / "record.json").unlink()
    assert training.train(Run.open(runs[1].folder))
    assert [m["gradient_norm"]
            for m in runs[1].history.metrics()] == [m["gradient_norm"] for m in runs[0].history.metrics()]
    assert all(torch.equal(a, b) for a,
               b in zip(runs[0].checkpoints.load()[0].values(), runs[1].checkpoints.load()[0].values(), strict=True))


# ---------------------------------------------------------------------------------------------------- ensembles and
# GLEU


def test_the_training_of_their_own_papers(data, tmp_path):
    run = open_or_start(tmp_path / "run", data, "convolutional-own", SMALL["convolutional"] | {"steps": 3})
    assert training.train(run)
    config = run.config["training"]
    assert (config["optimizer"], config["clip_norm"], config["label_smoothing"]) == ("nesterov", 0.1, 0.0)


@pytest.mark.parametrize("changes", [{}, {"d_model": 64}, {"warmup_steps": 50}, {"d_model": 64, "warmup_steps": 50}],
                         ids=str)
def test_the_peak_is_their_papers_at_any_width_and_warm_up(changes):
    for kind, own in OWN_TRAINING.items():
        assert peak_rate(*configured(f"{kind}-own", changes)) == pytest.approx(own["peak"])
    assert configured("recurrent-own", changes | {"lr_scale": 0.3})[1].lr_scale == 0.3


@pytest.mark.slow
def test_different_kinds_write_together(trained, data):
    runs = [trained(kind) for kind in ("transformer", "recurrent", "input-feeding", "convolutional", "bytenet",
                                       "deep-att", "mixture-of-experts")]
    together, lines = ensemble([load(run) for run in runs]), ["the cow sees the old dog", "a bird sings"]
    assert len(together.translate(lines)) == 2
    ids = [together.vocabulary.encode(line) + [END] for line in lines]
    src, tgt = torch.tensor(ids[:1]), torch.tensor([[START, 5, 9]])
    mean = sum(load(run).model(src, tgt).softmax(-1) for run in runs) / len(runs)
    torch.testing.assert_close(together.model(src, tgt).exp(), mean)


@pytest.mark.slow
def test_tuning_stopped_and_continued_is_the_same(trained, data, tmp_path):
    """Stopped by SIGKILL in a process of its own; the same command goes on, and ends as the undisturbed one, bit for
    bit."""
    tuning = ["--steps", "6", "--save-every", "2", "--sentences", "3", "--samples", "4", "--rate", "1e-3"]
    gleu_rl.main([str(trained("recurrent")), str(tmp_path / "whole"), *tuning])
    command = [str(trained("recurrent")), str(tmp_path / "killed"), *tuning]
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads()), "TQDM_DISABLE": "1"}
    process = subprocess.Popen([sys.executable, "-m", "annotated_transformer.rivals.gleu_rl", *command],
                               env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    killed = tmp_path / "killed"
    while process.poll() is None and not ((killed / "config.json").exists()
                                          and any(m["step"] >= 3 for m in Run.open(killed).history.metrics())):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -9, process.communicate()[0]
    gleu_rl.main([*command, "--record", str(tmp_path / "kept.json")])
    whole, killed = Run.open(tmp_path / "whole"), Run.open(killed)
    assert [(m["step"], m["reward"])
            for m in whole.history.metrics()] == [(m["step"], m["reward"]) for m in killed.history.metrics()]
    assert len(whole.history.metrics()) == 6 and killed.record.read()["status"] == "finished"
    assert {"sacrebleu/dev", "sacrebleu/dev_before", "gleu/dev",
            "gleu/dev_before"} <= set(killed.record.read()["metrics"])
    assert read_json(tmp_path / "kept.json")["task"] == "rival" and read_json(tmp_path / "kept.json")["name"] == "kept"
    assert all(torch.equal(a, b) for a, b in zip(whole.weights().values(), killed.weights().values(), strict=True))
    assert any(not torch.equal(a, b) for a,
               b in zip(whole.weights().values(), Run.open(trained("recurrent")).weights().values()))
    assert len(load(whole.folder).translate(["the cow sees the old dog"])) == 1
    before = killed.record.read()
    gleu_rl.main(command)  # there is nothing left to do
    assert killed.record.read() == before


def test_tuning_stops_when_its_time_is_over_and_says_how_it_goes_on(trained, tmp_path, capsys):
    command = [str(trained("recurrent")), str(tmp_path / "tuned"), "--steps", "2", "--sentences", "3", "--samples", "4"]
    gleu_rl.main([*command, "--minutes", "1e-9"])
    assert capsys.readouterr().err.endswith("Stopped. The same command resumes it.\n")
    assert Run.open(tmp_path / "tuned").checkpoints.newest() == 1
    gleu_rl.main(command)
    assert capsys.readouterr().err.endswith(f"Next: annotated-transformer evaluate {tmp_path / 'tuned'}\n")


def test_a_run_that_is_being_tuned_is_not_tuned_beside(trained, tmp_path):
    run = gleu_rl.begin_tuning(tmp_path / "run", trained("recurrent"),
                                   gleu_rl.Tuning(steps=1, sentences=2, samples=2))
    with Run.open(tmp_path / "run").lock():
        fails(lambda: gleu_rl.tune(run), "another process")


def test_a_rate_beyond_all_measure_is_told(trained, tmp_path):
    run = gleu_rl.begin_tuning(tmp_path / "run", trained("recurrent"),
                                   gleu_rl.Tuning(steps=9, sentences=2, samples=2, rate=1e38))
    fails(lambda: gleu_rl.tune(run), "at a lower rate")
    fails(lambda: gleu_rl.draw_translations(run.model(), torch.tensor([[5, 2]]), 2, 20_000, 0), "max_extra_tokens")


def test_tuning_with_other_settings_is_refused(trained, tmp_path):
    begin = lambda steps: gleu_rl.begin_tuning(tmp_path / "run", trained("recurrent"),
                                                   gleu_rl.Tuning(steps=steps))
    begin(1)
    fails(lambda: begin(2), "other settings")


@pytest.mark.parametrize("options", ["--steps 0", "--samples 1", "--sentences 0", "--save-every 0", "--extra -50",
                                     "--extra 20000", "--minutes 0", "--rate nan", "--clip-norm 0", "--alpha inf"])
def test_settings_of_tuning_that_make_no_sense_are_one_line(options, trained, tmp_path, capsys):
    run = str(trained("recurrent"))
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        gleu_rl.main([run, str(tmp_path / "run"), *options.split()])
    said = capsys.readouterr().err
    assert end.value.code == 2 and options in said and said.count("\n") == 1 and not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["mixture-of-experts", "input-feeding"])
def test_tuning_sees_the_model_that_drew(kind):
    "With an expert's gate and dropout between an LSTM's layers: the gradient's model is that of evaluation."
    model = small_model(kind, vocab_size=50, dropout=0.2).double()
    for layer in getattr(model, "mixtures", {}).values():
        torch.nn.init.normal_(layer.gate.weight), torch.nn.init.normal_(layer.noise.weight)
    src, tgt = torch.tensor([[5, 6, 7, END]]), torch.tensor([[START, 8, 9]])
    expected = model.eval()(src, tgt)
    gleu_rl.without_dropout(model)
    torch.testing.assert_close(model(src, tgt), expected)
    assert model.training and not torch.allclose(model.train()(src, tgt), expected)


def test_tuning_keeps_the_likelihood_of_the_reference(monkeypatch):
    "With equal rewards it alone is left: alpha times its gradient, a sentence's share."
    monkeypatch.setattr(gleu_rl, "gleu", lambda *_: 1.0)
    model = small_model("recurrent", vocab_size=50).double()
    src, references = torch.tensor([[5, 6, END], [7, 8, END]]), [[9, 10, END], [11, END]]
    gleu_rl.without_dropout(model)
    tgt = torch.tensor([[START, 9, 10, END], [START, 11, END, PAD]])
    hidden, target = target_hidden(model, src, tgt)
    likelihood = F.cross_entropy(model.embedding.logits(hidden), target, reduction="sum") / 2
    gradients = torch.autograd.grad(likelihood, list(model.parameters()), materialize_grads=True)
    before = [p.detach().clone() for p in model.parameters()]
    tuning = gleu_rl.Tuning(rate=1.0, alpha=0.5, clip_norm=1e9, samples=2)
    gleu_rl.tuning_update(model, OPTIMIZERS["sgd"](model.parameters()), src, references, tuning, 0)
    for p, was, gradient in zip(model.parameters(), before, gradients):
        torch.testing.assert_close(was - p.detach(), 0.5 * gradient)


@pytest.mark.parametrize("kind, changes, word", [
    ("bytenet", {"a": 0.5}, "a is 0.5: give a number from 1 on"), ("bytenet", {"a": math.inf}, "a is inf"),
    ("bytenet", {"d_model": 31}, "d_model is 31: give an even"),
    ("mixture-of-experts", {"balance": -1.0}, "balance is -1.0"),
    ("mixture-of-experts", {"balance": math.nan}, "balance is nan")])
def test_shapes_that_make_no_sense(kind, changes, word):
    with pytest.raises(ValueError, match=word):
        small_model(kind, vocab_size=50, **changes)


@pytest.mark.parametrize("n", [10, 25, 45, 50, 85, 90, 1000])
def test_bytenet_plans_six_columns_for_five_symbols(n):
    "1.2 n, rounded up: also where 1.2 n in 32 bits is a little more than a whole number."
    model = small_model("bytenet", vocab_size=50)
    mask = model.encode(torch.full((1, n), 5))[1]
    assert mask.sum() == -(-6 * n // 5)
