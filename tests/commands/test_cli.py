"""The command line as a whole: its help, its table of features, and what it says when something is wrong: one line,
exit code 2, no traceback, nothing half-written."""
import contextlib
import itertools
import json
import os
import re
import shlex
import subprocess
import sys

import pytest
import torch

from annotated_transformer import __version__
from annotated_transformer.commands import cli
from annotated_transformer.commands.prepare import CORPORA
from command_line import fails, refused, said, wrong, wrong_with
from here import ROOT


def test_help_and_version_after_the_options_of_every_command(capsys):
    for argv in (["-h"], ["--threads", "1", "--help"]):
        cli.main(argv)
        assert capsys.readouterr().out == cli.USAGE + "\n"
    cli.main(["--version"])
    assert capsys.readouterr().out == f"annotated-transformer {__version__}\n"


@pytest.mark.parametrize("command", ["", *cli.COMMANDS, *(f"prepare {kind}" for kind in CORPORA)])
def test_help_has_examples(command, capsys):
    with contextlib.nullcontext() if not command else pytest.raises(SystemExit, match="^0$"):
        cli.main([*command.split(), "--help"])
    out = capsys.readouterr().out
    assert "Examples:" in out or not command and "Begin with:" in out
    assert f"  annotated-transformer {command or 'prepare'}" in out
    assert command or all(f"\n  {name} " in out for name in cli.COMMANDS)
    lines = re.findall(r"^  (?:.*\| |torchrun .* -m )?annotated[-_]transformer (.+)$", out, re.M)
    for line in lines:
        name, *words = itertools.takewhile(lambda word: word not in ("|", ">", "<"), shlex.split(line))
        assert wrong_with(name, words) == "", line
    assert lines


@pytest.mark.slow
def test_waiting_threads_sleep_soon():
    "The setting is there before torch loads, which reads it once; one that the user made stays."
    look = ("import os, sys; from annotated_transformer.commands import cli; early = 'torch' in sys.modules; "
            "cli.prepare_process(cli.for_every_command(['train'])[0], 'train'); "
            "print(early, os.environ['GOMP_SPINCOUNT'])")
    for given, expected in (({}, "False 1000"), ({"GOMP_SPINCOUNT": "7"}, "False 7")):
        environment = {k: v for k, v in os.environ.items() if k != "GOMP_SPINCOUNT"} | given
        assert subprocess.run([sys.executable, "-c", look], env=environment, capture_output=True, text=True,
                              check=True).stdout.split() == expected.split()


@pytest.mark.slow
def test_demo_reaches_90_bleu(tmp_path, capsys):
    cli.main(["demo", str(tmp_path / "demo")])
    record = json.loads((tmp_path / "demo" / "run" / "record.json").read_text())
    assert record["metrics"]["sacrebleu/test"] >= 90
    assert (tmp_path / "demo" / "attention.svg").stat().st_size > 1000


def feature_table() -> list[list[str]]:
    "The rows of the table in the chapter on import: feature, command, the words of JoeyNMT, fairseq and Marian."
    cells = json.loads((ROOT / "nbs/commands/exchange.ipynb").read_text(encoding="utf-8"))["cells"]
    text = next(text for text in ("".join(cell["source"]) for cell in cells) if "| in JoeyNMT |" in text)
    rows = [[column.strip() for column in line.strip("|").split("|")] for line in text.splitlines()
            if line.startswith("|")]
    return [row for row in rows[2:] if row[1]]


@pytest.mark.parametrize("row", feature_table(), ids=lambda row: row[0])
def test_every_command_of_the_table_can_be_typed(row):
    spans = re.findall(r"`([^`]+)`", row[1])
    assert len(row) == 5 and all(row) and (spans or row[1] == "always")
    for span in spans:
        words = shlex.split(span)
        if words[0].startswith("--"):  # an option of every command, or of one that trains or translates
            _, rest = cli.for_every_command(words)
            found = [wrong_with(name, rest) for name in ("train", "translate") if rest]
        else:
            found = [wrong_with(words[0], words[1:])] if words[0] in cli.COMMANDS else []
        assert not found or "" in found, found


def test_the_table_names_every_command():
    spans = {span.split()[0] for row in feature_table() for span in re.findall(r"`([^`]+)`", row[1])}
    assert {*cli.COMMANDS} - {"demo", "play"} <= spans  # the other programs have neither


# --- what is wrong ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("arguments, named", [
    (["trian"], ["trian", "train"]),
    (["demo", "NEW", "--steps", "0"], ["steps 0"]),
])
def test_wrong_options(made, tmp_path, capsys, arguments, named):
    wrong(arguments, named, made, tmp_path, capsys)


@pytest.mark.parametrize("options", [["--threads", "2"], ["--device", "cpu"]])
def test_options_without_a_command_are_one_line(options, capsys):
    fails(options, capsys, "no command: give one of demo, prepare")


def test_other_errors_of_these_kinds_are_not_hidden(monkeypatch):
    def wrong(*_):
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(cli, "prepare_process", wrong)
    with pytest.raises(RuntimeError, match="mistake"):
        cli.main(["translate", "ende"])


def test_an_error_quotes_what_was_given_shortly(capsys):
    line = fails(["evaluate", "x\x1b[31m\n" + "y" * 100_000], capsys, "such run directory")
    assert len(line) < 1500 and "\x1b" not in line


def test_the_directory_that_we_are_in_is_filled(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said(capsys, "export", "grammar", ".", "--to", "huggingface")
    assert (tmp_path / "config.json").is_file() and not [*tmp_path.glob(".*")]


def test_devices_and_threads(capsys, tmp_path):
    for device in ("", "tpu", "cuda:99", "cpu:1", "cuda:x", "cpu:", "cpu:00", "cpu:\u00b2",
                   *(() if torch.cuda.is_available() else ("cuda",))):
        assert f"--device {device}: there is no such device" in refused(
            capsys, "translate", "grammar", "--device", device)
    for threads in (0, 99_999_999_999):
        assert f"--threads {threads}: give a number from 1 to 4096" in refused(
            capsys, "translate", "grammar", "--threads", threads)
    before = torch.get_num_threads()
    file = tmp_path / "text"
    file.write_text("The cow is old .\n")
    said(capsys, "translate", "grammar", file, "--device", "cpu", "--threads", 1)
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("tools.records", "nbs/results"), ("commands.cli", "--version")])
def test_programs_whose_output_nobody_reads(arguments):
    "The reader has gone before the first line, or the stream is closed: no traceback, and nothing is said."
    command = f"{sys.executable} -m annotated_transformer.{' '.join(arguments)}"
    reader, writer = os.pipe()
    os.close(reader)
    left = subprocess.run(command.split(), stdout=writer, stderr=subprocess.PIPE, cwd=ROOT)
    os.close(writer)
    closed = subprocess.run(["bash", "-c", f"exec {command} >&-"], capture_output=True, cwd=ROOT)
    assert (left.returncode, left.stderr) == (141, b"") and (closed.returncode, closed.stderr) == (0, b"")
