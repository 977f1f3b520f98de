"""`translate`: line n of the output belongs to line n of the input, whatever the lines and the streams are."""
import bz2
import contextlib
import gzip
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
from functools import cache

import pytest
import torch
from checking import without_checker

from annotated_transformer.commands import cli
from annotated_transformer.commands.translate import likely_mistake, opened, save_attention
from annotated_transformer.corpus.vocabulary import load_vocabulary
from annotated_transformer.decoding import translation
from annotated_transformer.decoding.evaluation import evaluate
from annotated_transformer.decoding.ensembles import ensemble
from annotated_transformer.decoding.translation import load
from annotated_transformer.tools.files import InputError
from annotated_transformer.tools.text_files import LONGEST
from command_line import fails, in_process, refused, said, typed, write, wrong

GREEDY = ["--beam-size", "1"]  # quick, where a test is about something else
loaded = cache(load)  # for tests that leave it as it is


def test_translate_keeps_line_n_at_line_n(made, text):
    lines = open(text["test"][0], "rb").read().splitlines()[:4]
    odd = "dog\u2028dog\x85dog\x0b\x0c\x1c\x1d\x1e\u2029dog\rdog".encode(
        )  # no newline, whatever other programs hold them for
    stdin = lines[0] + b"\n\n" + lines[1] + b"\r\n" + odd + b"\n\xe2\x80\xa8\n" + lines[
        2]  # an empty line, a Windows line; no end
    done = in_process(["translate", made / "run", *GREEDY], stdin)
    assert done.returncode == 0 and not done.stderr
    out = done.stdout.decode().split("\n")
    assert len(out) == 7 and out[1] == out[4] == out[6] == "" and out[0] and out[3] and out[5]
    assert out[2] == load(made / "run").translate(lines[1].decode(), beam_size=1)


@pytest.mark.slow
def test_ten_thousand_words(made):
    done = in_process(["translate", made / "run", *GREEDY], b"dog " * 10_000 + b"\nThe dog sleeps.\n")
    assert done.returncode == 0 and done.stdout.count(b"\n") == 2
    assert b"line 1" in done.stderr and b"1,024" in done.stderr and done.stderr.count(b"warning") == 1


def test_line_longer_than_any_in_training(made, text, tmp_path, capsysbinary):
    "A warning that names it; an error with --strict, when what stands before it has been written."
    run_config = json.loads((made / "run" / "config.json").read_text())
    longest = run_config["data"]["longest"]["src"]
    encode = load_vocabulary(made / "run").encode
    assert longest == max(len(encode(line)) + 1 for line in open(text["train"][0], encoding="utf-8"))
    words = next(n for n in range(1, 1000) if len(encode("dog " * n)) + 1 > longest)
    file = write(tmp_path / "long.en", ["The dog sleeps.", "dog " * (words - 1), "dog " * words, "The dog sleeps."])
    cli.main(["translate", str(made / "run"), file, *GREEDY])
    whole = capsysbinary.readouterr()
    assert whole.out.count(b"\n") == 4
    assert whole.err.count(b"warning") == 1 and b"line 3" in whole.err and str(longest).encode() in whole.err
    with pytest.raises(SystemExit) as end:
        cli.main(["translate", str(made / "run"), file, *GREEDY, "--strict"])
    cut = capsysbinary.readouterr()
    assert end.value.code == 2 and cut.out == b"".join(whole.out.splitlines(keepends=True)[:2])
    assert cut.err.count(b"\n") == 1 and b"long.en, line 3" in cut.err


@pytest.mark.parametrize("place", ["file", "standard input"])
def test_translate_stops_at_bytes_that_are_not_utf8(made, tmp_path, place, monkeypatch, capsysbinary):
    "What stands before them is translated first."
    file, on_file = tmp_path / "latin.en", place == "file"
    file.write_bytes(b"The dog sleeps.\n\nThe dog sleeps.\nStra\xdfe\nThe dog sleeps.\n")
    with open(file, encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        code, out, told = typed(capsysbinary, "translate", made / "run", *GREEDY, *([file] if on_file else []))
    assert code == 2 and out.count("\n") == 3 and out.endswith("\n") and told.count("\n") == 1
    assert "line 4" in told and "UTF-8" in told and ("latin.en" if on_file else "standard input") in told


def test_nbest_and_scores(made, text, capsys):
    "Moses' format; an empty line has its one empty translation; the best is what `translate` gives; the numbers agree."
    sources = open(text["test"][0], encoding="utf-8").read().splitlines()[:3]
    sources.insert(1, "")
    translator = load(made / "run")
    file = write(made / "four.en", sources)

    def made_by(*options):
        cli.main(["translate", str(made / "run"), file, *options])
        out = capsys.readouterr().out.split("\n")
        assert out.pop() == ""
        return [line.split(" ||| ") for line in out]

    best = [text for text, in made_by()]
    assert best == translator.translate(sources)
    several = made_by("--nbest", "3")
    assert [int(fields[0]) for fields in several] == [0, 0, 0, 1, 2, 2, 2, 3, 3,
                                                      3] and all(len(fields) == 3 for fields in several)
    assert [several[i][1] for i in (0, 3, 4, 7)] == best
    scores = [float(fields[2]) for fields in several]
    assert all(scores[i] >= scores[i + 1] >= scores[i + 2] for i in (0, 4, 7)) and scores[3] == 0
    for option in ((), ("--nbest", "3")):
        for fields in made_by("--scores", *option, "--alpha", "0"):
            numbers = [float(pair.rsplit(":", 1)[1]) for pair in fields[-1].split()]
            assert len(fields) == (4 if option
                                   else 3) and abs(sum(numbers) - float(fields[-2])) < 1e-4 * (len(numbers) + 2)


STREAM = """
import resource
import sys
from types import SimpleNamespace

from annotated_transformer.commands import cli
from annotated_transformer.decoding import translation
from annotated_transformer.decoding.translation import Translation

class Stub:
    "A translator that repeats what it is told."
    trained_tokens = max_tokens = 1024
    run = SimpleNamespace(config={"data": {}})
    def encode(self, lines):
        return [[3] for line in lines]
    def n_best(self, lines, n, search, progress, **options):
        return [[Translation(line, 0.0, [], [])] for line in lines]

if sys.argv[1] == "stub":
    translation.load = lambda run, precision: Stub()
cli.main(["translate", "grammar", *sys.argv[2:]])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr)
"""


def streamed(tmp_path, translator, pieces):
    "The memory, in MB, and the output of `translate` on a stream whose `pieces` are written one after the other."
    with open(tmp_path / "out", "wb") as out:
        process = subprocess.Popen([sys.executable, "-c", STREAM, translator, *GREEDY], stdin=subprocess.PIPE,
                                   stdout=out, stderr=subprocess.PIPE)
        for piece in pieces:
            process.stdin.write(piece)
        _, error = process.communicate(timeout=500)
    assert process.returncode == 0, error
    return int(error.split()[-1]), tmp_path / "out"


@pytest.mark.slow
def test_memory_does_not_grow_with_the_stream(tmp_path):
    "Empty lines through the real translator, a great many short ones through one that repeats them."
    small, _ = streamed(tmp_path, "grammar", [b"The dog sleeps.\n"] + [b"\n" * 1000] * 5)
    large, out = streamed(tmp_path, "grammar", [b"The dog sleeps.\n"] + [b"\n" * 1000] * 200)
    assert large < small + 10 and out.read_bytes().endswith(b".\n" + b"\n" * 200_000)
    large, out = streamed(tmp_path, "stub",
                          (b"".join(b"line %d\n" % i for i in range(k, k + 1000)) for k in range(0, 1_000_000, 1000)))
    assert large < small + 10
    with open(out, "rb") as file:
        assert sum(line == b"line %d\n" % i for i, line in enumerate(file)) == 1_000_000


@pytest.mark.slow
def test_line_without_end(tmp_path):
    "An endless line takes no more memory than its first megabyte, and is cut between two characters."
    small, _ = streamed(tmp_path, "stub", [b"a\n"])
    large, out = streamed(tmp_path, "stub", [b"x"] + ["\u00e4".encode() * 50_000] * 1000 + [b"\nnext\n"])
    assert large < small + 40
    first, second = out.read_text(encoding="utf-8").splitlines()
    assert set(first) == {"x", "\u00e4"} and len(first.encode()) in (LONGEST, LONGEST - 1) and second == "next"


AT_ONCE = """
import sys

import tqdm

from annotated_transformer.commands import cli

init = tqdm.tqdm.__init__
always = {"delay": 0, "mininterval": 0}  # not after 2 seconds
tqdm.tqdm.__init__ = lambda self, *args, **options: init(self, *args, **options | always)
cli.main(sys.argv[1:])
"""


@pytest.mark.slow
def test_progress_on_a_file_and_none_on_a_pipe(made, tmp_path):
    "With the time left, on a terminal: a pseudo-terminal stands for it."
    import pty
    import termios

    file = write(tmp_path / "text.en", ["The dog sleeps."] * 300)
    for arguments, stdin, shown in (([file], None, True), ([], open(file, "rb"), True), ([], subprocess.PIPE, False)):
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 100))
        process = subprocess.Popen([sys.executable, "-c", AT_ONCE, "translate", str(made / "run"), *arguments],
                                   stdin=stdin, stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        if stdin == subprocess.PIPE:
            process.stdin.write(b"The dog sleeps.\n" * 300)
            process.stdin.close()
        told = b""
        with contextlib.suppress(OSError):  # the end of a pseudo-terminal
            while data := os.read(ours, 4096):
                told += data
        os.close(ours)
        assert process.wait(300) == 0, told
        assert bool(re.search(rb"/300 \[\d\d:\d\d<\d\d:\d\d", told)) == shown, told


def test_translate_with_head(made, tmp_path):
    file = write(tmp_path / "text.en", ["The dog sleeps."] * 5000)
    command = (f"{sys.executable} -m annotated_transformer translate {made / 'run'} {file} {' '.join(GREEDY)} "
               "| head -n 1; echo ${PIPESTATUS[0]}")
    done = subprocess.run(["bash", "-c", command], capture_output=True)
    assert done.stdout.count(b"\n") == 2 and done.stdout.endswith(b"\n141\n") and not done.stderr


def test_interrupted_translation(made):
    "Ctrl-C: what is ready has been written, while the input was still open, and no traceback is."
    process = subprocess.Popen([sys.executable, "-m", "annotated_transformer", "translate", str(made / "run"),
                                *GREEDY],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGINT,
                                                                # ignored where the tests run in the background
                                                                signal.SIG_DFL))
    process.stdin.write(b"The dog sleeps.\n")
    process.stdin.flush()
    assert process.stdout.readline().endswith(b"\n")
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 130 and not error and not out


@pytest.mark.parametrize("closed, printed", [
    ("2>&-", 1), *(pytest.param(which, 0, marks=pytest.mark.slow) for which in ("<&-", ">&-"))])
def test_a_standard_stream_that_is_closed(made, tmp_path, closed, printed):
    "As if the null device stood there: no traceback, and nothing meant for one stream in another."
    file = write(tmp_path / "text.en", ["The dog sleeps."])
    program = f"{sys.executable} -m annotated_transformer translate {made / 'run'} {' '.join(GREEDY)}"
    done = subprocess.run(["bash", "-c", f"exec {program} < {file} {closed}"], capture_output=True)
    assert done.returncode == 0 and not done.stderr and done.stdout.count(b"\n") == printed


def test_names_that_begin_with_a_dash(made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-x.en").write_text("The dog sleeps.\n")
    (tmp_path / "-x.de").write_text("Der Hund schläft.\n", encoding="utf-8")
    threads = torch.get_num_threads()  # the command's setting is the process's
    for arguments in (["translate", *GREEDY, made / "run", "--", "-x.en"],
                      ["--threads", threads, "translate", *GREEDY, "--", made / "run", "-x.en"],
                      ["translate", made / "run", "-x.en", *GREEDY],
                      ["score", made / "run", "-x.en", "-x.de"]):
        code, out, _ = typed(capsys, *arguments)
        assert code == 0 and out.count("\n") == 1


def test_ensembles(finished, tmp_path, capsys):
    file = tmp_path / "text"
    file.write_text("The cow is old .\nThe dog sleeps .\n")
    alone = said(capsys, "translate", "grammar", file)
    assert said(capsys, "translate", "grammar", "grammar", file) == alone
    assert "only runs with the same vocabulary" in refused(capsys, "translate", "grammar", finished, file)
    with pytest.raises(InputError, match="the same vocabulary"):
        ensemble([load("grammar"), load(finished)])
    pair = ["The cow is old ."], ["Die Kuh ist alt ."]
    twice, once = (evaluate(translator, *pair) for translator in (ensemble([load("grammar")] * 2), load("grammar")))
    assert twice.quality.perplexity == pytest.approx(once.quality.perplexity, rel=1e-5)


def test_a_conversation(capsys, tmp_path, monkeypatch):
    from annotated_transformer.commands.translate import converse
    monkeypatch.chdir(tmp_path)
    translator = load("grammar")
    converse(["The cow is old .", ":attention", ":help", ""], lambda line: translator.translate(line) + "\n",
             lambda line: save_attention(translator, line))
    words = capsys.readouterr()
    assert words.out == translator.translate("The cow is old .") + "\n\n"
    assert "attention-1.svg" in words.err and (tmp_path / "attention-1.svg").read_text().startswith(
        "<svg") and "only :attention" in words.err


# --- what is wrong ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("arguments, named", [
    (["translate", "RUN", "NOTHING"], ["nothing: No such file", "give a text file"]),
    (["translate", "RUN", "--beam-size", "0"], ["--beam-size 0"]),
    (["translate", "RUN", "--alpha", "nan"], ["alpha nan"]),
    (["translate", "RUN", "--alpha", "abc"], ["--alpha", "abc"]),
    (["translate", "RUN", "--nbest", "5"], ["--nbest 5", "4"]),
    (["translate", "RUN", "--nbest", "0"], ["--nbest 0"]),
    (["translate", "RUN", "--seed", "0"], ["--seed: has no effect without --sample"]),
    (["translate", "RUN", "--sample", "--beam-size", "4"], ["--beam-size: has no effect with --sample"]),
    (["translate", "RUN", "DATA"], ["DATA"]),
])
def test_wrong_options(made, tmp_path, capsys, arguments, named):
    wrong(arguments, named, made, tmp_path, capsys)


@pytest.mark.parametrize("kind", [bz2, gzip, lzma])
def test_a_damaged_archive_is_named(kind, tmp_path):
    whole = kind.compress(b"a line\n" * 9)
    (tmp_path / "text").write_bytes(whole[:15] + b"damaged" + whole[22:])
    with pytest.raises(InputError, match="text: the compressed text is damaged"), opened(tmp_path / "text") as found:
        found[0].read()


def test_run_without_a_checkpoint(copy, capsys):
    (copy / "averaged.safetensors").unlink()
    shutil.rmtree(copy / "checkpoints")
    for command in (["translate", copy], ["export", copy, copy / "exported"]):
        fails(command, capsys, copy, "no checkpoint")
    assert not (copy / "exported").exists()


def test_average_cut_short(copy, capsys):
    (copy / "averaged.safetensors").write_bytes((copy / "averaged.safetensors").read_bytes()[:50])
    fails(["translate", copy], capsys, "averaged.safetensors")


def test_weights_of_another_shape(copy, capsys):
    config = json.loads((copy / "config.json").read_text())
    config["model"]["d_ff"] = 64
    (copy / "config.json").write_text(json.dumps(config))
    fails(["translate", copy], capsys, "config.json")
    (copy / "config.json").write_text('{"model": ')
    fails(["translate", copy], capsys, "config.json")


def caused_by(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("error", [
    MemoryError(), caused_by(RuntimeError("the export failed"), MemoryError()),
    ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    RuntimeError("can't start new thread"), OSError(12, "Cannot allocate memory"),
    RuntimeError("could not create a primitive"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")])
def test_where_memory_ends(error, monkeypatch, capsys):
    def no_memory(*_):
        raise error

    monkeypatch.setattr(cli, "prepare_process", no_memory)
    fails(["translate", "ende"], capsys, f"not enough memory: give a smaller {GREEDY[0]}")


def test_a_process_without_memory_ends_in_one_line(tmp_path):
    "PyTorch's own libraries do not fit."
    command = f"ulimit -v 400000; exec {sys.executable} -m annotated_transformer translate ende"
    done = subprocess.run(["bash", "-c", command], capture_output=True, stdin=subprocess.DEVNULL,
                          env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    assert done.returncode == 2 and b"Traceback" not in done.stderr, done.stderr
    assert done.stderr.decode().endswith(f"not enough memory: give a smaller {GREEDY[0]}, --batch-tokens, "
                                         "--device-tokens or model\n")


def test_a_parser_is_not_asked_to_translate(tmp_path, capsys):
    fails(["translate", "grammar-trees", write(tmp_path / "a.en", ["The cow sleeps."])], capsys,
          "annotated-transformer parse")


@pytest.mark.parametrize(("run", "text", "said"), [
    ("grammar", "The parliament sleeps.",
     "words that the built-in grammar lacks, and this model knows no others: parliament"),
    ("grammar-trees", "The parliament sleeps .",
     "words that the built-in grammar lacks, and this model knows no others: parliament"),
    ("grammar", "The cow SLEEPS.", ""), ("ende", "The parliament sleeps.", ""),
    ("ende", "The co\u00adw sleeps.", ""), ("ende", "Zu\u0308rich is large.", ""),
    ("ende", "The \u2585 sleeps.", "characters that the vocabulary lacks: \u2585 (U+2585)")])
def test_what_a_line_is_warned_of(run, text, said):
    t = loaded(run)
    assert likely_mistake(t, text, t.encode([text])[0])[0] == said


@pytest.mark.parametrize(("text", "sign"), [("The co\u00adw sleeps.", "U+00AD"), ("Zu\u0308rich is large.", "U+0308")])
def test_a_model_whose_text_was_not_normalised_is_warned_of_what_one_cannot_see(text, sign):
    t = load("ende")
    t.vocabulary = t.vocabulary.normalised_by("none")
    said = likely_mistake(t, text, t.encode([text])[0])[0]
    assert said == f"invisible characters, or letters in parts: {sign}"


@without_checker()
@pytest.mark.parametrize("ask", [
    lambda t: t.n_best("one text"), lambda t: list(t.stream("one text")), lambda t: list(t.stream(["a"], ahead=0)),
    lambda t: t.translate("a\ud800"), lambda t: load(None), lambda t: load(b"run"), lambda t: load(5),
    lambda t: t.measure(["a"], ["b", "c"]), lambda t: t.measure([], []), lambda t: load(t.run.folder, "int4")])
def test_what_python_may_not_ask(ask, made):
    with pytest.raises(InputError):
        ask(load(made / "run"))


@pytest.mark.parametrize(("part", "name", "value", "said"), [
    ("model", "n_heads", "two", "model: n_heads is 'two': give a whole number"), ("model", "d_k", 1.5, "d_k is 1.5"),
    ("model", "d_ff", None, "d_ff is None"), ("model", "positions", "x" * 100_000, "positions is 'xxx"),
    ("model", "n_layers", 10**9, "do not fit"), ("model", "d_model", 2**20, "do not fit"),
    ("model", "vocab_size", 10**13, "do not fit"),
    ("model", "parameter_heads", 10**6, "do not fit"), ("data", "longest", "long", "longest"),
    ("data", "tgt", 5, "tgt"), ("data", "folder", 5, "folder is 5"),
    ("model", "n_heads", 0, "n_heads is 0: give a whole number, 1 or more"),
    ("data", "normaliser", ["nfc"], "normaliser"), ("data", "splits", {"dev": 5}, "splits"),
    ("data", "longest", {"src": -5}, "longest"), ("", "kernel", ["x"], "kernel"), ("", "extended", 5, "extended")])
def test_what_a_stranger_wrote_in_a_configuration(part, name, value, said, copy, capsys):
    "One line at once, and no memory for a model that the weights are not of."
    config = json.loads((copy / "config.json").read_text())
    (config[part] if part else config)[name] = value
    (copy / "config.json").write_text(json.dumps(config))
    fails(["translate", copy, copy / "config.json"], capsys, said)
    if part == "model":
        fails(["train", copy / "new", "--data", copy / "new", "--config", copy], capsys)


def test_what_is_missing_in_a_configuration(copy, capsys):
    config = json.loads((copy / "config.json").read_text())
    del config["data"]["splits"], config["data"]["src"]
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "text").write_text("The cow is old .\n")
    cli.main(["translate", str(copy), str(copy / "text")])
    cli.main(["evaluate", str(copy), "--src", str(copy / "text"), "--references", str(copy / "text")])


def test_lines_are_counted_on_from_batch_to_batch(tmp_path, monkeypatch, capsys):
    "In Moses' numbers, in warnings and in errors."
    monkeypatch.setattr("annotated_transformer.commands.translate.BATCH", 2)
    (tmp_path / "text").write_bytes(b"The dog sleeps.\n" * 4 + "The \u2585 sleeps.\n".encode() + b"\xdf\n")
    code, out, told = typed(capsys, "translate", "grammar", tmp_path / "text", *GREEDY, "--nbest", 1)
    assert [line.split(" ||| ")[0] for line in out.splitlines()] == [*"01234"]
    assert code == 2 and "warning: line 5 has" in told and "text, line 6: not UTF-8" in told


@pytest.mark.parametrize("words, options", [
    (["--prefix", "Eine "], {"prefix": "Eine "}), (["--max-length", 3], {"max_length": 3}),
    (["--sample", "--temperature", 3, "--seed", 5, "--max-length", 9],
     {"sample": True, "temperature": 3.0, "seed": 5, "max_length": 9})])
def test_the_search_hears_each_option(words, options, tmp_path, capsys):
    lines = ["The cow is old .", "A dog sleeps ."]
    made = said(capsys, "translate", "grammar", write(tmp_path / "text", lines), *words).splitlines()
    assert made == loaded("grammar").translate(lines, **options) != loaded("grammar").translate(lines)


def test_the_precision_is_the_one_that_is_asked_for(tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(translation, "load", lambda run, precision=None: asked.append(precision) or loaded(run))
    said(capsys, "translate", "grammar", write(tmp_path / "text", ["A dog sleeps ."]), "--precision", "int8")
    assert asked == ["int8"]
