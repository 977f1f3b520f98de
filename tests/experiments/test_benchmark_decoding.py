"""Decoding beside other engines: what is timed does the same work."""
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from annotated_transformer.decoding.scores import bleu
from annotated_transformer.decoding.translation import load
from annotated_transformer.tools.files import InputError
from annotated_transformer.tools.records import add_record, find_record, make_record
from here import ROOT, SHAPE


def test_eight_bits_stand_beside_eight_bits(monkeypatch, tmp_path):
    from annotated_transformer.experiments import benchmark_decoding as speed
    config = {"sentences": 16, "beam_size": 4}
    seconds = {"ours": 1.0, "CTranslate2": 2.0, "ours int8": 0.5, "CTranslate2 int8": 0.8}
    records = [{"config": config | {"contestant": name}, "metrics": {"decoding_seconds": s, "peak_bytes": 0}} for name,
               s in seconds.items()]
    assert [line.split()[-3] for line in speed.report(records).splitlines()[1:]] == ["1.00", "0.50", "1.00", "0.62"]
    assert [what["contestant"] for what in speed.plan(1)[:5]] == ["ours", "Hugging Face", "CTranslate2", "ours int8",
                                                                  "CTranslate2 int8"]


def test_the_contestants_in_8_bits_do_the_same_work(monkeypatch):
    "Outputs of just the length that is asked for, most tokens those of float32."
    from annotated_transformer.experiments import benchmark_decoding as speed
    make = speed.endless_model
    monkeypatch.setattr(speed, "VOCABULARY", 60)
    monkeypatch.setattr(speed, "endless_model", lambda: make(replace(SHAPE, vocab_size=60)))
    src = speed.sources(3, 6)
    for contestant in ("ours", "CTranslate2"):
        exact, rounded = (speed.CONTESTANTS[name][1](1, src, 10)() for name in (contestant, f"{contestant} int8"))
        assert [len(ids) for ids in rounded] == [10, 10, 10]
        assert sum(x[0] == y[0] for x, y in zip(exact, rounded)) >= 2


def test_what_rounding_costs_is_measured_on_a_run(tmp_path, capsys):
    from annotated_transformer.corpus import grammar
    from annotated_transformer.experiments import benchmark_decoding
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
    with pytest.raises(SystemExit) as end:  # before it measures for minutes
        benchmark_decoding.main(["--out", str(ROOT / "nbs" / "results")])
    assert end.value.code == 2 and "a record named decoding_steps_cpu" in capsys.readouterr().err


@pytest.mark.parametrize("module, name, arguments", [
    ("benchmark", "benchmark_seconds_to_bleu", ["--multi30k", "data"]),
    ("benchmark", "benchmark_ours_base_8x128_keep_memory_cpu", ["--device", "cpu"]),
    ("benchmark_decoding", "decoding_ours_int8_16x1_{}", ["--device", "cpu"]),
    ("benchmark_runs", "precision_grammar_some", ["grammar", "some.en", "--references", "some.de"]),
    ("benchmark_runs", "decoding_command_ours_int8_2_{}", ["grammar", "some.en"]),
    ("timing", "complexity_gru_cpu", ["--device", "cpu"]),
    ("timing", "complexity_batch_self_attention", ["--device", "cpu"])])
def test_what_is_there_is_not_measured_again(module, name, arguments, monkeypatch, tmp_path, capsys):
    from annotated_transformer.experiments import benchmark, benchmark_decoding, benchmark_runs, timing
    program = {"benchmark": benchmark, "benchmark_decoding": benchmark_decoding, "benchmark_runs": benchmark_runs,
               "timing": timing}[module]
    for measures in ("matrix_rate", "seconds_to_bleu", "steps_record", "load", "run_command", "measure_layers"):
        monkeypatch.setattr(program, measures, None, raising=False)
    monkeypatch.setattr(benchmark_runs, "commands", lambda *given: {"ours": [], "ours int8": []})
    monkeypatch.chdir(tmp_path)
    Path("some.en").write_text("one\ntwo\n", encoding="utf-8")
    name = name.format(benchmark_decoding.machine())
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
