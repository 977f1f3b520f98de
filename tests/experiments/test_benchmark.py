"""Decoding beside other engines: what is timed does the same work."""
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from annotated_transformer.decoding.scores import bleu
from annotated_transformer.decoding.translation import load
from annotated_transformer.tools.files import InputError
from annotated_transformer.tools.records import add_record, find_record, make_record
from here import SHAPE


def entry(contestant, seconds, **config):
    kind = "decoding" if "sentences" in config else "step"
    limit = {"flops": 6, "limit_flops_per_second": 10} if kind == "step" else {}
    return {"config": {"contestant": contestant, **config}, "hardware": "a machine",
            "metrics": {f"{kind}_seconds": seconds, "peak_bytes": 2**30, **limit}}


def test_shares_are_of_pytorchs_own_time_in_the_same_work(tmp_path):
    from annotated_transformer.drawing.charts import Shown
    from annotated_transformer.experiments import benchmark as speed
    records = [entry("ours", 1.0, sentences=16), entry("Hugging Face", 4.0, sentences=16),
               entry("CTranslate2", 2.0, sentences=16), entry("CTranslate2 int8", 0.3, sentences=1),
               entry("ours", 1.5, model="base", shape=[16, 32]),
               entry("torch.nn.Transformer", 2.0, model="base", shape=[16, 32])]
    found = speed.shares(records)
    assert [(line["work"], line["contestant"], line["share"], line["limit"]) for line in found] == [
        ("train base, 16 × 32 tokens", "ours", 0.75, 0.3),
        ("train base, 16 × 32 tokens", "torch.nn.Transformer", 1.0, 0.3),
        ("translate one sentence", "CTranslate2 int8", None, None),  # nobody to compare with
        ("translate 16 at once", "ours", 0.25, None), ("translate 16 at once", "Hugging Face", 1.0, None),
        ("translate 16 at once", "CTranslate2", 0.5, None)]
    assert [line.split()[-4:-2] for line in speed.report(found).splitlines()[1:4]] == [
        ["0.75", "40%"], ["1.00", "30%"], ["-", "-"]]
    drawn = Shown(speed.picture(found)).save(tmp_path / "picture.svg").read_text(encoding="utf-8")
    assert "train base, 16 × 32 tokens" in drawn and "translate one sentence" not in drawn


def test_a_gpu_and_a_processor_have_a_plan_each():
    from annotated_transformer.experiments import benchmark as speed
    plans = {device: speed.plan(device) for device in ("cpu", "cuda")}
    names = {device: {what["contestant"] for what in of} for device, of in plans.items()}
    assert names["cpu"] - names["cuda"] == {"ours int8", "CTranslate2 int8"}
    assert {what["model"] for what in plans["cuda"] if "model" in what} == {"base", "big"}
    for of in plans.values():
        assert len({speed.record_name(what) for what in of}) == len(of)


def test_the_contestants_in_8_bits_do_the_same_work(monkeypatch):
    "Outputs of just the length that is asked for, most tokens those of float32."
    from annotated_transformer.experiments import benchmark_decoding as speed
    make = speed.endless_model
    monkeypatch.setattr(speed, "VOCABULARY", 60)
    monkeypatch.setattr(speed, "endless_model", lambda: make(replace(SHAPE, vocab_size=60)))
    src = speed.sources(3, 6)
    for contestant in ("ours", "CTranslate2"):
        exact, rounded = (speed.SEARCHES[name](src, 10)() for name in (contestant, f"{contestant} int8"))
        assert [len(ids) for ids in rounded] == [10, 10, 10]
        assert sum(x[0] == y[0] for x, y in zip(exact, rounded)) >= 2
    monkeypatch.setitem(speed.SEARCHES, "lazy", lambda src, steps: lambda: [[5, 6]])
    with pytest.raises(InputError, match=r"lazy: outputs of \[2\] tokens, not 32"):
        speed.search_to_time("lazy", 1)()


def test_what_rounding_costs_is_measured_on_a_run(tmp_path, capsys):
    from annotated_transformer.corpus import grammar
    from annotated_transformer.experiments import benchmark_runs as speed
    examples = [example for _, example in zip(range(60), grammar.examples(seed=12))]
    files = [tmp_path / f"some.{side}" for side in ("en", "de")]
    for file, lines in zip(files, ([e.src for e in examples], [e.tgt for e in examples])):
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    speed.main(["grammar", str(files[0]), "--references", str(files[1]), "--out", str(tmp_path)])
    record = find_record("precision_grammar_some", tmp_path)
    translator = load("grammar", "int8")
    assert record["metrics"]["sacrebleu/int8"] == pytest.approx(bleu(translator.translate([e.src for e in examples]),
                                                                     [e.tgt for e in examples]).value)
    assert "the rule for 8 bits" in capsys.readouterr().out
    worse = {"metrics": record["metrics"] | {"sacrebleu/int8": record["metrics"]["sacrebleu/float32"] - 0.2}}
    assert "does not hold" in speed.bleu_report(worse)


@pytest.mark.parametrize("module, name, arguments", [
    ("benchmark", "benchmark_ours_base_8x128_{}", []),
    ("benchmark", "decoding_ours_int8_16x4_{}", []),
    ("benchmark", "decoding_steps_{}", []),
    ("benchmark_runs", "precision_grammar_some", ["grammar", "some.en", "--references", "some.de"]),
    ("benchmark_runs", "decoding_command_ours_int8_2_{}", ["grammar", "some.en"]),
    ("timing", "complexity_gru_cpu", ["--device", "cpu"]),
    ("timing", "complexity_batch_self_attention", ["--device", "cpu"])])
def test_what_is_there_is_not_measured_again(module, name, arguments, monkeypatch, tmp_path, capsys):
    from annotated_transformer.experiments import benchmark, benchmark_runs, timing
    program = {"benchmark": benchmark, "benchmark_runs": benchmark_runs, "timing": timing}[module]
    for measures in ("matrix_rate", "steps_record", "load", "run_command", "measure_layers"):
        monkeypatch.setattr(program, measures, None, raising=False)
    monkeypatch.setattr(benchmark_runs, "commands", lambda *given: {"ours": [], "ours int8": []})
    monkeypatch.chdir(tmp_path)
    Path("some.en").write_text("one\ntwo\n", encoding="utf-8")
    name = name.format(benchmark.machine())
    add_record(make_record(name, "benchmark", data={}, config={}, seed=0, seconds=0, metrics={}), tmp_path)
    with pytest.raises(SystemExit):
        program.main([*arguments, "--out", "."])
    assert f"a record named {name}: remove its line" in capsys.readouterr().err


def test_a_command_is_timed_only_where_it_answers_every_line(tmp_path):
    from annotated_transformer.experiments.benchmark_runs import run_command
    (lines := tmp_path / "lines").write_text("one\ntwo\n", encoding="utf-8")
    found = run_command([sys.executable, "-c", "import sys; print(sys.stdin.read(), end='')"], lines)
    assert found["decoding_seconds"] > 0 and found["peak_bytes"] > 2**20
    for program in ("print('one')", "print('one\\ntwo'); raise SystemExit(1)"):
        with pytest.raises(InputError, match="failed, or wrote another number of lines than 2"):
            run_command([sys.executable, "-c", program], lines)


def test_a_contestant_that_fails_loses_nobody_elses_time(tmp_path, monkeypatch, capsys):
    from annotated_transformer.experiments import benchmark as speed

    def timed(what):
        if what["contestant"].startswith("CTranslate2"):
            raise InputError(f"{what['contestant']}: no such library")
        return {"seconds": 1.0, "peak_bytes": 1}

    monkeypatch.setattr(speed, "in_process", timed)
    monkeypatch.setattr(speed, "matrix_rate", lambda: 1.0)
    monkeypatch.setattr(speed, "steps_record", lambda name, rounds: make_record(
        name, "benchmark", data={}, config={}, seed=0, seconds=0, metrics={}))
    records = speed.run_benchmark(tmp_path, 1)
    assert {r["config"]["contestant"] for r in records} == {"ours", "ours int8", *speed.MODULES}
    assert "translate one sentence: CTranslate2: no such library" in capsys.readouterr().err
