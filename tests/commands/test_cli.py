"""The command line end to end, and what it says when something is wrong: one line, exit code 2, no traceback,
nothing half-written."""
import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings

import pytest
from checking import without_checker

from annotated_transformer import __version__
from annotated_transformer.commands import cli
from annotated_transformer.commands.prepare import subcommand
from annotated_transformer.commands.translate import oddity
from annotated_transformer.corpus import grammar
from annotated_transformer.corpus.vocabulary import load_vocabulary
from annotated_transformer.decoding.translation import load
from annotated_transformer.tools.files import InputError, file_digest
from annotated_transformer.tools.text_files import LONGEST
from annotated_transformer.training.runs import Run, find_run, ship, shipped_runs

OPTIONS = ("--n-layers 1 --d-model 16 --d-ff 32 --n-heads 2 --d-k 8 --d-v 8 "
           "--steps 12 --save-every 4 --report-every 2 --batch-tokens 400").split()
MODEL = "--n-layers 1 --d-model 16 --d-ff 32 --n-heads 2 --d-k 8 --d-v 8".split()
GREEDY = ["--beam-size", "1"]  # quick, where a test is about something else


def write(path, lines, newline="\n"):
    path.write_text("".join(line + newline for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    "Three pairs of files with sentences of the grammar: (English, German) for train, dev and test."
    folder = tmp_path_factory.mktemp("text")
    parts = grammar.splits(seed=3, train=300, dev=30, test=30, test_long=5)
    return {split: (write(folder / f"{split}.en", [e.src for e in parts[split]]),
                    write(folder / f"{split}.de", [e.tgt for e in parts[split]]))
            for split in ("train", "dev", "test")}


def prepare_arguments(folder, text, *more):
    return ["prepare", str(folder), "--train", *text["train"], "--dev", *text["dev"], "--test", *text["test"], *more]


@pytest.fixture(scope="session")
def made(tmp_path_factory, text):
    "A prepared corpus and a run of a few updates."
    folder = tmp_path_factory.mktemp("made")
    cli.main(prepare_arguments(folder / "data", text, "--vocab-size", "300"))
    cli.main(["train", str(folder / "run"), "--data", str(folder / "data"), "--config", "tiny", *MODEL,
              *"--steps 12 --save-every 4 --report-every 2 --batch-tokens 400".split()])
    return folder


@pytest.fixture
def copy(made, tmp_path):
    "A copy of the run that a test may damage."
    return shutil.copytree(made / "run", tmp_path / "run")


def test_shipped_weights_load_with_8_and_16_bits(made, tmp_path):
    run, exact = Run.open(made / "run"), load(made / "run").model.state_dict()
    for bits, steps in ((16, 2**11), (8, 254)):
        ship(run, tmp_path / str(bits), bits)
        for name, tensor in load(tmp_path / str(bits)).model.state_dict().items():
            largest = exact[name].abs().max() if exact[name].dim() < 2 else exact[name].abs().amax(1, keepdim=True)
            assert ((tensor - exact[name]).abs() <= largest / (steps if exact[name].dim() > 1
                                                               else 2**11) * 1.001 + 1e-7).all(), name
    size = {bits: (tmp_path / str(bits) / "averaged.safetensors").stat().st_size for bits in (8, 16)}
    assert size[8] < 0.8 * size[16]  # rows of 8 numbers: of wider ones the scale is a smaller part


def fails(arguments, capsys, *named):
    "Run the command in this process; it must end with code 2 and one line that names all of `named`."
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        cli.main([str(a) for a in arguments])
    told = capsys.readouterr().err
    told = told if isinstance(told, str) else told.decode()
    said = told.strip().split("\n")[-1]
    assert end.value.code == 2
    assert said.startswith("annotated-transformer: ") and "Traceback" not in told
    for name in named:
        assert str(name) in said, said
    return said


def run(arguments, stdin=b"", **options):
    return subprocess.run([sys.executable, "-m", "annotated_transformer", *map(str, arguments)], input=stdin,
                          capture_output=True, **options)


# --- what is right ----------------------------------------------------------------------------------------------------

def test_chain_leaves_a_whole_run(made, capsys):
    record = json.loads((made / "run" / "record.json").read_text())
    assert record["metrics"]["steps"] == 12 and [tried["checkpoints"] for tried in record["averages"]] == [1, 2, 3]
    assert {"command", "revision", "date", "data", "config", "seed", "hardware", "versions", "seconds"} <= set(record)
    assert [line["step"]
            for line in map(json.loads,
                            (made / "run" / "metrics.jsonl").read_text().splitlines())] == [2, 4, 6, 8, 10, 12]
    assert sorted(p.name for p in (made / "run" / "checkpoints").iterdir()) == ["step_12", "step_4", "step_8"]


def test_evaluate_adds_its_scores_to_the_record(made, copy, tmp_path, capsys):
    cli.main(["evaluate", str(copy), "--data", str(made / "data"), "--split", "test", *GREEDY,
              "--record", str(tmp_path / "kept.json")])
    assert "sacreBLEU" in capsys.readouterr().out
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert {"sacrebleu/test", "perplexity/test", "accuracy/test"} <= set(kept["metrics"]) and kept["name"] == "kept"
    assert kept["signature"].startswith("nrefs:1") and kept["search"] == {"test": {"beam_size": 1, "alpha": 0.6}}
    cli.main(["train", str(copy), "--data", str(made / "data"), "--config=tiny", *OPTIONS])  # nothing is left to do
    assert json.loads((copy / "record.json").read_text())["metrics"] == kept["metrics"]


def test_evaluate_takes_the_development_set(made, copy, capsys):
    cli.main(["evaluate", str(copy), "--data", str(made / "data"), *GREEDY])
    assert capsys.readouterr().out.startswith("dev: 30 sentences")
    assert not any(name.endswith("/test") for name in json.loads((copy / "record.json").read_text())["metrics"])


def test_evaluate_takes_files(made, text, capsys):
    cli.main(["evaluate", str(made / "run"), "--src", text["test"][0], "--ref", text["test"][1], *GREEDY])
    assert "30 sentences" in capsys.readouterr().out


def test_evaluate_keeps_the_scores_of_files_by_their_names(made, copy, text, tmp_path, capsys):
    "Two sizes of one test set stay apart in the run's record, each with the digests of its files."
    sources, references = (open(path, encoding="utf-8").read().splitlines() for path in text["test"])
    for name, count in (("news_full", 30), ("news_filtered_20", 20)):
        files = [write(tmp_path / f"{name}.{side}", lines[:count]) for side,
                 lines in (("en", sources), ("de", references))]
        cli.main(["evaluate", str(copy), "--src", files[0], "--ref", files[1], *GREEDY, "--record",
                  str(tmp_path / "kept.json")])
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert {name: facts["pairs"] for name,
            facts in kept["data"]["scored"].items()} == {"news_full": 30, "news_filtered_20": 20}
    assert kept["data"]["scored"]["news_full"]["sha256"]["src"] == file_digest(text["test"][0])
    assert {"sacrebleu/news_full", "sacrebleu/news_filtered_20"} <= set(kept["metrics"])
    assert json.loads((copy / "record.json").read_text())["metrics"] == kept["metrics"]
    same = [write(tmp_path / f"dev.{side}", ["A set of another name."]) for side in ("en", "de")]
    fails(["evaluate", copy, "--src", same[0], "--ref", same[1], "--record", tmp_path / "no.json"], capsys, "no.json")
    fails(["evaluate", copy, "--record", tmp_path], capsys, "--record", "a folder")
    assert not (tmp_path / "no.json").exists()


def test_translate_keeps_line_n_at_line_n(made, text):
    lines = open(text["test"][0], "rb").read().splitlines()[:4]
    odd = "dog\u2028dog\x85dog\x0b\x0c\x1c\x1d\x1e\u2029dog\rdog".encode(
        )  # no newline, whatever other programs hold them for
    stdin = lines[0] + b"\n\n" + lines[1] + b"\r\n" + odd + b"\n\xe2\x80\xa8\n" + lines[
        2]  # an empty line, a Windows line; no end
    done = run(["translate", made / "run", *GREEDY], stdin)
    assert done.returncode == 0 and not done.stderr
    out = done.stdout.decode().split("\n")
    assert len(out) == 7 and out[1] == out[4] == out[6] == "" and out[0] and out[3] and out[5]
    alone = run(["translate", made / "run", *GREEDY], lines[1] + b"\n").stdout.decode()
    assert alone == out[2] + "\n"


def test_translate_answers_before_the_input_ends(made):
    process = subprocess.Popen([sys.executable, "-m", "annotated_transformer", "translate", str(made / "run"),
                                *GREEDY],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        process.stdin.write(b"The dog sleeps.\n")
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\n")  # the input is still open
    finally:
        process.stdin.close()
        process.wait(60)


def test_translate_survives_a_reader_that_leaves(made, text):
    command = f"{sys.executable} -m annotated_transformer translate {made / 'run'} {' '.join(GREEDY)}"
    lines = open(text["train"][0], "rb").read() * 3
    process = subprocess.Popen([*command.split()], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    process.stdout.close()
    _, error = process.communicate(lines)
    assert process.returncode == 141 and b"Traceback" not in error


def test_ten_thousand_words(made):
    done = run(["translate", made / "run", *GREEDY], b"dog " * 10_000 + b"\nThe dog sleeps.\n")
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
def test_translate_stops_at_bytes_that_are_not_utf8(made, tmp_path, place):
    "What stands before them is translated first."
    lines = b"The dog sleeps.\n\nThe dog sleeps.\nStra\xdfe\nThe dog sleeps.\n"
    (tmp_path / "latin.en").write_bytes(lines)
    on_file = place == "file"
    done = run(["translate", made / "run", *GREEDY, *([tmp_path / "latin.en"] if on_file else [])], b""
               if on_file else lines)
    assert done.returncode == 2 and done.stdout.count(b"\n") == 3 and done.stdout.endswith(b"\n")
    told = done.stderr.decode().splitlines()
    assert len(told) == 1 and "line 4" in told[0] and "UTF-8" in told[0] and (
        "latin.en" if on_file else "standard input") in told[0]


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
cli.main(["translate", "grammar", "--beam-size", "1"])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr)
"""


def streamed(tmp_path, translator, pieces):
    "The memory, in MB, and the output of `translate` on a stream whose `pieces` are written one after the other."
    with open(tmp_path / "out", "wb") as out:
        process = subprocess.Popen([sys.executable, "-c", STREAM, translator], stdin=subprocess.PIPE, stdout=out,
                                   stderr=subprocess.PIPE)
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


def test_train_whose_report_nobody_reads(made, tmp_path):
    command = (f"{sys.executable} -m annotated_transformer train {tmp_path / 'run'} --data {made / 'data'} "
               f"--config tiny {' '.join(OPTIONS)} 2>&1 | head -n 1; echo ${{PIPESTATUS[0]}}")
    done = subprocess.run(["bash", "-c", command], capture_output=True)
    assert done.stdout.startswith(b"Learning rate") and done.stdout.endswith(b"\n141\n") and not done.stderr


def test_translate_with_head(made, tmp_path):
    file = write(tmp_path / "text.en", ["The dog sleeps."] * 5000)
    command = (f"{sys.executable} -m annotated_transformer translate {made / 'run'} {file} {' '.join(GREEDY)} "
               "| head -n 1; echo ${PIPESTATUS[0]}")
    done = subprocess.run(["bash", "-c", command], capture_output=True)
    assert done.stdout.count(b"\n") == 2 and done.stdout.endswith(b"\n141\n") and not done.stderr


def test_interrupted_translation(made):
    "Ctrl-C: what is ready has been written, and no traceback is."
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


def test_interrupted_training_continues(made, tmp_path):
    arguments = ["train", tmp_path / "run", "--data", made / "data", "--config", "tiny", *MODEL,
                 *"--steps 100000 --save-every 50000 --report-every 1 --batch-tokens 400".split()]
    process = subprocess.Popen([sys.executable, "-m", "annotated_transformer", *map(str, arguments)],
                               stderr=subprocess.PIPE)
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.time() + 120
    while not (metrics.exists() and metrics.stat().st_size) and time.time() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 0 and b"Traceback" not in error
    assert b"Continue with: annotated-transformer train" in error
    stopped = json.loads(metrics.read_text().splitlines()[-1])["step"]
    cli.main(["train", str(tmp_path / "run"), "--minutes", "0.01"])
    steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert steps == list(range(1, steps[-1] + 1)) and steps[-1] > stopped


def test_a_value_that_is_some_presets_default_is_not_ignored(made, tmp_path, capsys):
    "Small's 200 updates between checkpoints, asked of a run of another preset, by itself and beside --config."
    for more in ([], ["--data", made / "data"], ["--config", "tiny"]):
        fails(["train", made / "run", "--save-every", "200", *more], capsys, "--save-every 200 (it has 4)")


def test_train_says_the_rates_peak_and_warns(made, tmp_path, capsys):
    for name, rate, warned in (("usual", "0.5", False), ("mistaken", "5e-4", True)):
        cli.main(["train", str(tmp_path / name), "--data", str(made / "data"), "--config", "tiny", *MODEL, "--steps",
                  "1", "--warmup-steps", "400",
                  "--rate", rate])
        said = capsys.readouterr().err
        assert f"up to {float(rate) * 16**-0.5 * 400**-0.5:.2g} at update 400" in said
        assert ("warning: --rate 0.0005 multiplies equation 3" in said) == warned
    assert "give --rate 0.04" in said  # 0.04 * (16 * 400) ** -0.5 is 5e-4


def test_same_command_again_continues(made, capsys):
    before = (made / "run" / "metrics.jsonl").read_text()
    cli.main(["train", str(made / "run"), "--data", str(made / "data"), "--config", "tiny", *MODEL,
              *"--steps 12 --save-every 4 --report-every 2 --batch-tokens 400".split()])
    assert (made / "run" / "metrics.jsonl").read_text() == before


def test_word_pieces(text, tmp_path, capsys):
    cli.main(prepare_arguments(tmp_path / "data", text, "--vocab-size", "300", "--vocabulary", "word-pieces"))
    assert (tmp_path / "data" / "vocabulary.json").exists()
    cli.main(["train", str(tmp_path / "run"), "--data", str(tmp_path / "data"), "--config", "tiny", *MODEL, "--steps",
              "2"])
    cli.main(["evaluate", str(tmp_path / "run"), *GREEDY])


def test_help_and_version_after_the_options_of_every_command(capsys):
    for argv in (["-h"], ["--threads", "1", "--help"]):
        cli.main(argv)
        assert capsys.readouterr().out == cli.USAGE + "\n"
    cli.main(["--version"])
    assert capsys.readouterr().out == f"annotated-transformer {__version__}\n"


@pytest.mark.parametrize("command", ["", *cli.COMMANDS])
def test_help_has_examples(command, capsys):
    with contextlib.nullcontext() if not command else pytest.raises(SystemExit, match="^0$"):
        cli.main([*command.split(), "--help"])
    out = capsys.readouterr().out
    assert "Examples:" in out or not command and "Begin with:" in out
    assert f"  annotated-transformer {command or 'prepare'}" in out or command == "parse"
    assert command or all(f"\n  {name} " in out for name in cli.COMMANDS)


# --- what is wrong ----------------------------------------------------------------------------------------------------

def test_empty_file(text, tmp_path, capsys):
    (tmp_path / "empty.en").write_text("")
    (tmp_path / "empty.de").write_text("")
    fails(["prepare", tmp_path / "data", "--train", tmp_path / "empty.en", tmp_path / "empty.de"], capsys, "empty.en")
    assert not (tmp_path / "data").exists()


def test_files_of_different_lengths(text, tmp_path, capsys):
    short = write(tmp_path / "short.de", ["eins", "zwei"])
    fails(["prepare", tmp_path / "data", "--train", text["train"][0], short], capsys, "short.de", "300", "2")
    assert not (tmp_path / "data").exists()


def test_line_that_is_not_utf8(text, tmp_path, capsys):
    lines = open(text["train"][1], "rb").read().split(b"\n")
    (tmp_path / "latin.de").write_bytes(b"\n".join(lines[:6] + [b"Stra\xdfe"] + lines[7:]))
    fails(["prepare", tmp_path / "data", "--train", text["train"][0], tmp_path / "latin.de"], capsys, "latin.de",
          "line 7", "UTF-8")
    assert not (tmp_path / "data").exists()


def test_empty_line_on_one_side_is_left_out_and_counted(text, tmp_path, capsys):
    english = open(text["train"][0], encoding="utf-8").read().splitlines()
    broken = write(tmp_path / "broken.en", english[:9] + [""] + english[10:])
    rest = ["--dev", *text["dev"], "--test", *text["test"], "--vocab-size", "300"]
    cli.main(["prepare", str(tmp_path / "data"), "--train", broken, text["train"][1], *rest])
    said = capsys.readouterr().err
    assert "299 pairs" in said and "empty" in said
    fails(["prepare", tmp_path / "strict", "--train", broken, text["train"][1], *rest, "--strict"], capsys, "broken.en",
          "line 10")
    assert not (tmp_path / "strict").exists()


def test_ten_thousand_word_line_is_left_out_and_counted(text, tmp_path, capsys):
    english = open(text["train"][0], encoding="utf-8").read().splitlines()
    long = write(tmp_path / "long.en", ["dog " * 10_000] + english[1:])
    cli.main(["prepare", str(tmp_path / "data"), "--train", long, text["train"][1], "--dev", *text["dev"], "--test",
              *text["test"],
              "--vocab-size", "300"])
    said = capsys.readouterr().err
    assert "299 pairs" in said and "long" in said


@pytest.mark.parametrize("kind", ["bpe", "word-pieces"])
def test_vocabulary_larger_than_the_text_allows(text, tmp_path, capsys, kind):
    said = fails(prepare_arguments(tmp_path / "data", text, "--vocab-size", "90000", "--vocabulary", kind), capsys,
                 "90000", "at most")
    largest = said.split("at most ")[1].split()[0]
    cli.main(prepare_arguments(tmp_path / "data", text, "--vocab-size", largest, "--vocabulary",
                               kind))  # the advice holds


def test_not_a_run_directory(made, tmp_path, capsys):
    for command in (["translate", tmp_path], ["evaluate", tmp_path], ["translate", made / "data"],
                    ["evaluate", tmp_path / "nothing"]):
        fails(command, capsys, command[1])
    fails(["train", tmp_path / "new"], capsys, "--data")
    assert not (tmp_path / "new").exists()
    (tmp_path / "occupied").mkdir()
    write(tmp_path / "occupied" / "letter.txt", ["dear"])
    fails(["train", tmp_path / "occupied", "--data", made / "data", "--config", "tiny"], capsys, "occupied")


def test_checkpoint_cut_short(made, copy, capsys):
    "One is passed over; where all are damaged, that is said."
    (copy / "averaged.safetensors").unlink()
    *others, newest = sorted((copy / "checkpoints").iterdir(), key=lambda p: int(p.name[5:]))
    assert others
    for checkpoint in (newest, *others):
        weights = checkpoint / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
        if checkpoint == newest:
            assert Run.open(copy).weights() and str(weights) in capsys.readouterr().err
    for command in ("translate", "train"):
        with pytest.raises(SystemExit) as end:
            cli.main([command, str(copy)])
        said = capsys.readouterr().err
        assert end.value.code == 2 and str(newest) in said and "there is no intact one before it" in said


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


def test_vocabulary_of_another_run(made, copy, text, tmp_path, capsys):
    cli.main(prepare_arguments(tmp_path / "other", text, "--vocab-size", "299"))
    shutil.copy(tmp_path / "other" / "vocabulary.model", copy)
    fails(["translate", copy], capsys, "vocabulary")
    fails(["train", made / "run", "--data", tmp_path / "other"], capsys)


def test_no_pickle_is_opened(copy, capsys):
    """A checkpoint whose state would run code when unpickled is refused: its digest is wrong, and with a right one
    it is still not run."""
    import pickle

    from annotated_transformer.tools.files import file_digest

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {copy}/ran",)

    state = copy / "checkpoints" / "step_12" / "state.pt"
    state.write_bytes(pickle.dumps(Evil()))
    digests = json.loads((state.parent / "digests.json").read_text())
    (state.parent / "digests.json").write_text(json.dumps(digests | {"state.pt": file_digest(state)}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch remarks on the pickle's protocol
        fails(["train", copy], capsys, state)
    assert not (copy / "ran").exists()


def test_references_of_another_length(made, text, tmp_path, capsys):
    short = write(tmp_path / "short.de", ["ein Satz"])
    fails(["evaluate", made / "run", "--src", text["test"][0], "--ref", short], capsys, "test.en has 30",
          "short.de has 1")


@pytest.mark.parametrize("arguments, named", [
    (["trian"], ["trian", "train"]),
    (["train", "RUN", "--stepz", "3"], ["--stepz"]),
    (["train", "RUN", "--steps", "many"], ["--steps", "many"]),
    (["train", "RUN", "--data", "DATA", "--config", "huge"], ["--config", "huge"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--steps", "0"], ["steps 0"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--steps", "1" + "0" * 30], ["at most 10^12"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--n-heads", "0"], ["n_heads", "0"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--dropout", "1.5"], ["dropout", "1.5"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--vocab-size", "77"],
     ["unrecognized arguments: --vocab-size 77"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--d-model", "1" + "0" * 26],
     ["TransformerConfig: no model can be built", "give smaller ones"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--d-ff", "9" * 14], ["weights", "give a smaller model"]),
    (["train", "NEW", "--data", "DATA", "--from", "RUN", "--dropout", "2"], ["dropout is 2"]),
    (["train", "NEW", "--data", "DATA", "--from", "RUN", "--d-model", "0"], ["d_model is 0"]),
    (["train", "NEW", "--data", "DATA", "--config", "recurrent-own", "--warmup-steps", "0"], ["--warmup-steps 0"]),
    (["train", "NEW", "--data", "DATA", "--config", "recurrent-own", "--d-model", "0"], ["d_model is 0"]),
    (["train", "NEW", "--data", "NOTHING", "--config", "tiny"], ["NOTHING is not a corpus"]),
    (["train", "NEW", "--data", "NOTHING", "--from", "RUN"], ["NOTHING is not a corpus"]),
    (["train", "RUN", "--data", "DATA", "--config", "tiny"], ["--save-every"]),
    (["translate", "RUN", "NOTHING"], ["nothing: No such file", "give a text file"]),
    (["parse", "grammar-trees", "DATA"], ["DATA: Is a directory", "give a text file"]),
    (["explore", "RUN", "DATA"], ["the page DATA: a folder: name a file"]),
    (["explore", "RUN", "DATA/test.en/page.html"], ["page.html: nothing can be written there"]),
    (["export", "RUN", "DATA", "--to", "page"], ["the page DATA: a folder: name a file"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--code", "DATA"], ["--code DATA: a folder"]),
    (["translate", "RUN", "--beam-size", "0"], ["--beam-size 0"]),
    (["translate", "RUN", "--alpha", "nan"], ["alpha nan"]),
    (["translate", "RUN", "--alpha", "abc"], ["--alpha", "abc"]),
    (["translate", "RUN", "--nbest", "5"], ["n_best 5", "4"]),
    (["translate", "RUN", "--nbest", "0"], ["n_best 0"]),
    (["translate", "RUN", "DATA"], ["DATA"]),
    (["export", "RUN", "NEW", "--quantization", "int7"], ["--quantization", "int7"]),
    (["export", "RUN", "DATA"], ["DATA", "exists"]),
    (["evaluate", "RUN", "--alpha", "1000"], ["alpha 1000"]),
    (["train", "RUN", "--steps", "5"], ["--steps 5", "12"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--attention-dropout", "1.5"],
     ["attention_dropout", "1.5"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--seed", "-1"], ["seed -1"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--rate", "nan"], ["rate nan"]),
    (["prepare", "grammar", "NEW", "--src", "de", "--tgt", "en"], ["--src de", "prepare grammar --help"]),
    (["evaluate", "RUN", "--split", "exam"], ["exam", "test"]),
    (["evaluate", "RUN", "--src", "DATA/test.en"], ["--ref"]),
    (["prepare", "NEW"], ["--train"]),
    (["prepare", "NEW", "--train", "DATA/train.en", "DATA/train.de", "--vocabulary", "unigram"],
     ["--vocabulary unigram: give bpe, word-pieces, or a file"]),
    (["prepare", "NEW", "--train", "DATA/train.en", "DATA/train.de", "--vocabulary", "NOTHING.model"],
     ["nothing.model: No such file"]),
    (["prepare", "NEW", "--train", "DATA/train.en", "DATA/train.de", "--vocabulary", "a.model", "--vocab-size", "9"],
     ["--vocab-size", "--vocabulary a.model"]),
    (["prepare", "grammar"], ["FOLDER", "prepare grammar --help"]),
    (["prepare", "NEW", "--corpus", "novels"], ["novels"]),
    *[(["prepare", "grammar", "NEW", "--vocab-size", size],
       [f"--vocab-size {size}: give a number from 5 to 10,000,000"])
      for size in ("99999999999", "2147483647", "4", "-5")],
    # options that would have no effect
    (["prepare", "multi30k", "NEW", "--max-words", "80"], ["--max-words 80", "multi30k"]),
    (["prepare", "multi30k", "NEW", "--max-ratio", "9"], ["--max-ratio", "multi30k"]),
    (["prepare", "multi30k", "NEW", "--holdout", "10"], ["--holdout 10", "multi30k"]),
    (["prepare", "multi30k", "NEW", "--train", "DATA/train.en", "DATA/train.de"],
     ["--train", "prepare multi30k --help"]),
    (["prepare", "NEW", "--train", "DATA/train.en", "DATA/train.de", "--holdout", "10", "--vocabulary-from", "NOTHING"],
     ["NOTHING"]),
    (["demo", "NEW", "--steps", "0"], ["steps 0"]),
    (["evaluate", "RUN", "--against", "NOTHING"], ["NOTHING: no such run"]),
    (["evaluate", "--translations", "DATA/test.de", "--references", "DATA/test.de", "--against", "ende"],
     ["--against ende: no such file", "translations"]),
    (["train", "RUN", "--minutes", "0"], ["minutes 0.0"]),
    (["train", "NEW", "--data", "DATA", "--config", "tiny", "--positions", "learned", "--max-length", "3"],
     ["--max-length 3", "tokens: give"]),
    (["prepare", "trees", "NEW", "ptb-sample", "--vocabulary", "bpe"], ["--vocabulary bpe", "prepare trees --help"]),
    (["prepare", "trees", "NEW", "grammar-trees", "--extra-weight", "2"], ["--extra-weight", "--extra"]),
    (["prepare", "trees", "NEW", "grammar-trees", "DATA"], ["DATA: has no effect", "grammar-trees"]),
    (["prepare", "trees", "NEW", "ptb-sample", "--separate-vocabularies"], ["--separate-vocabularies"]),
    (["prepare", "NEW", "--train", "a", "b", "--dev", "a", "b", "--test", "a", "b", "--holdout", "10"],
     ["--holdout 10"]),
    (["evaluate", "--translations", "a", "--references", "b", "--beam-size", "8"], ["--beam-size"]),
    (["evaluate", "RUN", "--references", "DATA/test.de", "--split", "dev"], ["--src"]),
    (["train", "RUN", "--d-k", "64"], ["--d-k 64", "8"]),
    (["train", "RUN", "--steps", "7"], ["--steps 7", "12"]),
    (["train", "RUN", "--dropout", "0.3"], ["--dropout 0.3", "0.05"]),
])
def test_wrong_options(made, tmp_path, capsys, arguments, named):
    places = {"RUN": str(made / "run"), "DATA": str(made / "data"), "NEW": str(tmp_path / "new"),
              "NOTHING": str(tmp_path / "nothing")}
    filled = [places.get(a, a.replace("DATA/", places["DATA"] + "/").replace("NOTHING", places["NOTHING"]))
              for a in arguments]
    fails(filled, capsys,
          *[places.get(n, n.replace("DATA", places["DATA"]).replace("NOTHING", places["NOTHING"])) for n in named])
    assert not (tmp_path / "new").exists() or arguments[0] == "demo"


# --- nothing is lost --------------------------------------------------------------------------------------------------

def test_another_vocabulary_is_never_mixed_with_old_ids(made, text, tmp_path, monkeypatch, capsys):
    "`prepare` stopped while it encodes anew: what lies in the folder is no longer taken for a whole corpus."
    cli.main(prepare_arguments(tmp_path / "data", text, "--vocab-size", "300"))
    from annotated_transformer.corpus import batching

    def stopped(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(batching, "encode_lines", stopped)
    with pytest.raises(SystemExit):
        cli.main(prepare_arguments(tmp_path / "data", text, "--vocab-size", "290"))
    fails(["train", tmp_path / "run", "--data", tmp_path / "data", "--config", "tiny"], capsys, "not encoded")


@pytest.mark.slow
def test_demo_reaches_90_bleu(tmp_path, capsys):
    cli.main(["demo", str(tmp_path / "demo")])
    record = json.loads((tmp_path / "demo" / "run" / "record.json").read_text())
    assert record["metrics"]["sacrebleu/test"] >= 90
    assert (tmp_path / "demo" / "attention.svg").stat().st_size > 1000


def test_waiting_threads_sleep_soon():
    "The setting is there before torch loads, which reads it once; one that the user made stays."
    look = ("import os, sys; from annotated_transformer import cli; early = 'torch' in sys.modules; "
            "cli.prepare_process(cli.for_every_command(['train'])[0]); print(early, os.environ['GOMP_SPINCOUNT'])")
    for given, expected in (({}, "False 1000"), ({"GOMP_SPINCOUNT": "7"}, "False 7")):
        environment = {k: v for k, v in os.environ.items() if k != "GOMP_SPINCOUNT"} | given
        assert subprocess.run([sys.executable, "-c", look], env=environment, capture_output=True, text=True,
                              check=True).stdout.split() == expected.split()


# --- what a user's trial found ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("wrong", ["--minutes -1", "--device-tokens 0", "--seed -1", "--seed 99999999999999999999"])
def test_a_refused_training_leaves_nothing(wrong, made, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["train", str(tmp_path / "run"), "--data", str(made / "data"), "--config", "tiny", *MODEL,
                  *wrong.split()])
    assert end.value.code == 2 and capsys.readouterr().err.count("\n") == 1 and not (tmp_path / "run").exists()


def test_a_refused_training_does_not_change_a_run(copy, capsys):
    before = (copy / "config.json").read_bytes()
    with pytest.raises(SystemExit):
        cli.main(["train", str(copy), "--steps", "99", "--minutes", "-1"])
    with Run.open(copy).lock(), pytest.raises(SystemExit):
        cli.main(["train", str(copy), "--steps", "99"])
    fails(["train", copy, "--steps", "99", "--data", copy / "nowhere"], capsys, "nowhere is not a corpus")
    (copy / "record.json").unlink()
    cli.main(["train", str(copy), "--abandon", "why not"])
    fails(["train", copy, "--steps", "99"], capsys, "abandoned (why not)")
    assert (copy / "config.json").read_bytes() == before


def test_a_corpus_that_has_moved_is_named_with_data(made, copy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config = json.loads((copy / "config.json").read_text())
    config["data"]["folder"] = "moved"
    (copy / "config.json").write_text(json.dumps(config))
    for command in ("train", "average --last 1", "evaluate"):
        name, *options = command.split()
        fails([name, copy, *options], capsys, "run: its corpus, moved, is not here: name it with --data")
    fails(["parse", "grammar-trees", "--split", "test"], capsys, "is not here: name it with --data")
    cli.main(["average", str(copy), "--last", "1", "--data", str(made / "data")])


def test_the_other_run_is_looked_at_before_the_work(made, copy, tmp_path, capsys):
    (tmp_path / "run" / "averaged.safetensors").write_bytes(b"no weights")
    own = shutil.copytree(made / "run", tmp_path / "own")
    before = Run.open(own).history.evaluations()
    evaluate = ["evaluate", own, "--data", made / "data", "--against"]
    fails([*evaluate, copy], capsys, "averaged.safetensors: not a safetensors file")
    fails([*evaluate, "grammar-trees"], capsys, "grammar-trees: a parser")
    assert Run.open(own).history.evaluations() == before


@pytest.mark.parametrize("arguments", [["prepare", "grammar", "HERE"], ["export", "grammar", "HERE"]])
def test_the_directory_that_we_are_in_is_not_replaced(arguments, tmp_path, monkeypatch, capsys):
    (tmp_path / "here" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "inner")
    fails(["." if a == "HERE" else a for a in arguments], capsys,
          ".: a new folder would take the place of the one that you are in")
    fails(["prepare", "grammar", ".."], capsys, "..: a new folder would take the place")
    assert not any((tmp_path / "here" / "inner").iterdir()) and os.listdir(tmp_path) == ["here"]


@pytest.mark.parametrize("closed, printed", [("<&-", 0), (">&-", 0), ("2>&-", 1)])
def test_a_standard_stream_that_is_closed(made, tmp_path, closed, printed):
    "As if the null device stood there: no traceback, and nothing meant for one stream in another."
    file = write(tmp_path / "text.en", ["The dog sleeps."])
    program = f"{sys.executable} -m annotated_transformer translate {made / 'run'} {' '.join(GREEDY)}"
    done = subprocess.run(["bash", "-c", f"exec {program} < {file} {closed}"], capture_output=True)
    assert done.returncode == 0 and not done.stderr and done.stdout.count(b"\n") == printed


def run_in(env: dict, *arguments, **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "annotated_transformer", *map(str, arguments)], capture_output=True,
                          env=os.environ | env, **options)


def test_a_terminal_that_shows_ascii_alone(made, tmp_path):
    "Nothing ends in a traceback; what cannot be shown is escaped, and JSON stays JSON."
    sources, wanted = write(tmp_path / "müde.en",
                            ["The dog sleeps."]), write(tmp_path / "müde.de", ["Der Hund schläft."])
    ascii_alone = {"PYTHONIOENCODING": "ascii"}
    for more in ([], ["--json"]):
        done = run_in(ascii_alone, "evaluate", made / "run", "--src", sources, "--references", wanted, *GREEDY, *more)
        assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
        assert json.loads(done.stdout)["set"] == "müde" if more else done.stdout.startswith(b"m\\xfcde: 1 sentence")
    done = run_in(ascii_alone, "prepare", "sources", "--help")
    assert done.returncode == 0
    done = run_in(ascii_alone, "evaluate", tmp_path / "größer")
    assert done.returncode == 2 and b"gr\\xf6\\xdfer" in done.stderr and done.stderr.count(b"\n") == 1


def test_a_name_of_any_bytes(made, tmp_path):
    "A reference file whose name is not UTF-8: its scores stand in the run's record, and the next command reads it."
    run = shutil.copytree(made / "run", tmp_path / "run\udcfe")
    (tmp_path / "text.en").write_text("The dog sleeps.\n")
    name = os.fsencode(tmp_path) + b"/text\xff.de"
    with open(name, "wb") as file:
        file.write("Der Hund schläft.\n".encode())
    for _ in range(2):
        done = run_in({}, "evaluate", run, "--src", tmp_path / "text.en", "--references", os.fsdecode(name),
                      *GREEDY,
                      "--record", os.fsdecode(os.fsencode(tmp_path) + b"/kept\xfe.json"))
        assert done.returncode == 0, done.stderr
    assert [e["set"] for e in Run.open(run).record.read()["evaluations"]][-2:] == ["text\udcff"] * 2
    for to in ("huggingface", "ctranslate2"):
        cli.main(["export", str(run), str(tmp_path / to), "--to", to])
        assert "run\\udcfe" in (tmp_path / to / "README.md").read_text(encoding="utf-8")


def test_names_that_begin_with_a_dash(made, tmp_path, text):
    (tmp_path / "-x.en").write_text("The dog sleeps.\n")
    (tmp_path / "-x.de").write_text("Der Hund schläft.\n", encoding="utf-8")
    for arguments in (["translate", *GREEDY, made / "run", "--", "-x.en"],
                      ["--threads", "1", "translate", *GREEDY, "--", made / "run", "-x.en"],
                      ["translate", made / "run", "-x.en", *GREEDY],
                      ["score", made / "run", "-x.en", "-x.de"]):
        done = run_in({}, *arguments, cwd=tmp_path)
        assert done.returncode == 0 and done.stdout.count(b"\n") == 1, done.stderr
    done = run_in({}, "prepare", "--holdout", "10", "--vocab-size", "300", "--train", *text["train"], "--", "-data",
                  cwd=tmp_path)
    assert done.returncode == 0 and done.stderr.endswith(
        b"train runs/-data --data ./-data --config small\n"), done.stderr


@pytest.mark.parametrize("arguments", [
    ["evaluate", "--translations", "-x.de", "--references", "-x.de"], ["evaluate", "RUN", "--src", "-x.en",
                                                                      "--references", "-x.de"]])
def test_options_whose_files_begin_with_a_dash(arguments, made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-x.en").write_text("The dog sleeps.\n")
    (tmp_path / "-x.de").write_text("Der Hund schläft.\n", encoding="utf-8")
    cli.main([str(made / "run") if word == "RUN" else word for word in arguments])
    assert capsys.readouterr().out.startswith("-x: 1 sentence")


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
    def no_memory(given):
        raise error

    monkeypatch.setattr(cli, "prepare_process", no_memory)
    fails(["translate", "ende"], capsys, "not enough memory: give a smaller --beam-size")


def test_a_process_without_memory_ends_in_one_line(tmp_path):
    "PyTorch's own libraries do not fit."
    command = f"ulimit -v 400000; exec {sys.executable} -m annotated_transformer translate ende"
    done = subprocess.run(["bash", "-c", command], capture_output=True, stdin=subprocess.DEVNULL,
                          env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    assert done.returncode == 2 and b"Traceback" not in done.stderr, done.stderr
    assert done.stderr.endswith(b"not enough memory: give a smaller --beam-size, --batch-tokens, --device-tokens or "
                                b"model\n")


def test_other_errors_of_these_kinds_are_not_hidden(monkeypatch):
    def wrong(given):
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(cli, "prepare_process", wrong)
    with pytest.raises(RuntimeError, match="mistake"):
        cli.main(["translate", "ende"])


def test_an_error_quotes_what_was_given_shortly(capsys):
    with pytest.raises(SystemExit):
        cli.main(["evaluate", "x\x1b[31m\n" + "y" * 100_000])
    said = capsys.readouterr().err
    assert len(said) < 1500 and said.count("\n") == 1 and "\x1b" not in said and "such run directory" in said


def test_weights_that_ship_win_over_a_folder(made, tmp_path, monkeypatch, capsys):
    shutil.copytree(made / "run", tmp_path / "grammar")
    monkeypatch.chdir(tmp_path)
    assert find_run("grammar").folder == shipped_runs()["grammar"]
    assert ("warning: grammar: the weights that ship are taken; for your own, "
            f"give {tmp_path / 'grammar'}") in capsys.readouterr().err
    assert find_run(tmp_path / "grammar").folder == tmp_path / "grammar"
    for arguments in (["train", "ende", "--data", made / "data", "--config", "tiny"], ["export", made / "run", "ende"],
                      ["export", made / "run", "./ende", "--to", "page"], ["import", made, "ende"]):
        fails(arguments, capsys, "ende: the name of weights that ship")
    assert not (tmp_path / "ende").exists()


def test_a_folder_of_ones_own_is_not_swept_away(tmp_path, text, capsys):
    for name in ("data.tmp", "data.old.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("mine")
    fails(prepare_arguments(tmp_path / "data", text, "--tgt", "tmp"), capsys, "language 'tmp': give a code")
    cli.main(prepare_arguments(tmp_path / "data", text, "--vocab-size", "300"))
    assert all((tmp_path / name / "mine").exists() for name in ("data.tmp", "data.old.tmp"))


def test_scores_of_given_targets(made, tmp_path, capsysbinary):
    "Line by line the log-probability; the beam's own score is that number, divided by its length penalty."
    lines = ["The dog sleeps.", "", "Every cow is old."]
    src, tgt, t = write(tmp_path / "a.en", lines), tmp_path / "a.de", load(made / "run")
    found = [h[0] for h in t.n_best(lines, 1)]
    write(tgt, [h.text for h in found])
    capsysbinary.readouterr()
    cli.main(["score", str(made / "run"), str(src), str(tgt), "--tokens"])
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert len(lines) == 3
    for line, h in zip(lines, found):
        total, tokens = line.split(" ||| ")
        numbers = [float(token.rsplit(":", 1)[1]) for token in tokens.split()]
        assert float(total) == pytest.approx(sum(numbers), abs=1e-3)
        if h.log_probabilities and h.symbols[-1] == "</s>" and t.encode([h.text], "tgt")[0][:-1] == t.vocabulary.encode(
            h.text) and len(numbers) == len(h.symbols):
            assert numbers == pytest.approx(h.log_probabilities, abs=2e-3)
    fails(["score", str(made / "run"), str(src), str(write(tmp_path / "b.de", ["eins"]))], capsysbinary,
          "a.en has 3 lines")


def test_several_runs_are_scored_as_one(made, tmp_path, capsys):
    "An ensemble of twice the same run has the run's own numbers."
    src, tgt = write(tmp_path / "a.en",
                     ["The dog sleeps.", "Every cow is old."]), write(tmp_path / "a.de",
                                                                      ["Der Hund schläft.", "Jede Kuh ist alt."])
    capsys.readouterr()
    found = []
    for runs in ([made / "run"], [made / "run"] * 2):
        cli.main(["evaluate", *map(str, runs), "--src", str(src), "--references", str(tgt), "--json"])
        found.append(json.loads(capsys.readouterr().out)["metrics"])
    assert found[0] == pytest.approx(found[1], rel=1e-5)
    fails(["evaluate", str(made / "run"), str(made / "run"), "--record", str(tmp_path / "r.json")], capsys, "--record",
          "several runs")


@pytest.mark.parametrize(("typed", "name", "now"), [
    ("d --corpus grammar --vocab-size 9", "prepare_grammar", "d --vocab-size 9"),
    ("--overwrite d --corpus=multi30k --source s", "prepare_multi30k", "--overwrite d --source s"),
    ("d --corpus ptb --source s --leaves tags", "prepare_trees", "d ptb s --leaves tags"),
    ("d --corpus files --train a b", "prepare", "d --train a b"),
    ("d --sources s.toml --strict", "prepare_sources", "d s.toml --strict"),
    ("grammar --train a b", "prepare", "grammar --train a b"), ("trees d ptb s", "prepare_trees", "d ptb s")])
def test_the_spelling_of_version_0_1(capsys, typed, name, now):
    assert subcommand(typed.split()) == (name, now.split())
    assert ("spelling of version 0.1" in capsys.readouterr().err) == ("--corpus" in typed and "files" not in typed
                                                                      or "--sources" in typed)


def test_files_that_name_another_language_are_refused(text, tmp_path, capsys):
    english, german = text["train"]
    with pytest.raises(SystemExit) as end:
        cli.main(["prepare", str(tmp_path / "data"), "--train", german, english, "--holdout", "10", "--src", "en",
                  "--tgt", "de"])
    assert end.value.code == 2 and "ends in .de, and its side's language is en" in capsys.readouterr().err and not (
        tmp_path / "data").exists()


def test_standard_input_is_one_text(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Der Hund schläft.\n".encode())))
    fails(["evaluate", "--translations", "-", "--references", "-"], capsys, "-: standard input holds one text")


@pytest.mark.parametrize(("ending", "more", "said"), [
    ("zh", [], "its tokeniser zh for zh; --tokenize names another"), ("zh", ["--tokenize", "char"], ""), ("de", [], ""),
    ("sr", [], "Moses has no rules for sr"), ("txt", [], "name the references' language")])
def test_what_is_said_of_a_language(ending, more, said, tmp_path, capsys):
    file = write(tmp_path / f"a.{ending}", ["Der Hund schläft hier."] * 2)
    cli.main(["evaluate", "--translations", str(file), "--references", str(file), *more])
    told, _, rest = capsys.readouterr().err.partition("Next:")
    assert rest and (said in told if said else not told)


def test_a_parser_is_not_asked_to_translate(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["translate", "grammar-trees", write(tmp_path / "a.en", ["The cow sleeps."])])
    assert end.value.code == 2 and "annotated-transformer parse" in capsys.readouterr().err


@pytest.mark.parametrize(("run", "text", "said"), [
    ("grammar", "The parliament sleeps.",
     "words that the built-in grammar lacks, and this model knows no others: parliament"),
    ("grammar-trees", "The parliament sleeps .",
     "words that the built-in grammar lacks, and this model knows no others: parliament"),
    ("grammar", "The cow SLEEPS.", ""), ("ende", "The parliament sleeps.", ""),
    ("ende", "The co\u00adw sleeps.", "invisible characters, or letters in parts: U+00AD"),
    ("ende", "Zu\u0308rich is large.", "invisible characters, or letters in parts: U+0308"),
    ("ende", "The \u2585 sleeps.", "characters that the vocabulary lacks: \u2585 (U+2585)")])
def test_what_a_line_is_warned_of(run, text, said):
    t = load(run)
    assert oddity(t, text, t.encode([text])[0])[0] == said


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
    ("data", "tgt", 5, "tgt")])
def test_what_a_stranger_wrote_in_a_configuration(part, name, value, said, copy, capsys):
    "One line at once, and no memory for a model that the weights are not of."
    config = json.loads((copy / "config.json").read_text())
    config[part][name] = value
    (copy / "config.json").write_text(json.dumps(config))
    fails(["translate", copy, copy / "config.json"], capsys, said)


@pytest.mark.parametrize(("name", "value", "said"),
                         [("seed", "x", "seed is 'x'"), ("save_minutes", "soon", "give a number")])
def test_what_a_stranger_wrote_of_the_training(name, value, said, copy, capsys):
    config = json.loads((copy / "config.json").read_text())
    config["training"][name] = value
    (copy / "config.json").write_text(json.dumps(config))
    fails(["train", copy], capsys, said)


def test_weights_that_ship_have_no_text_to_be_scored_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        cli.main(["evaluate", "grammar"])
    said = capsys.readouterr().err
    assert end.value.code == 2 and "--data" in said and "--src" in said


@pytest.mark.parametrize("options", [["--threads", "2"], ["--device", "cpu"]])
def test_options_without_a_command_are_one_line(options, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(options)
    said = capsys.readouterr().err
    assert end.value.code == 2 and said.count("\n") == 1 and "no command: give one of demo, prepare" in said
