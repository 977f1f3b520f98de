"""Command lines drawn from the commands' own declarations, most of them wrong: each ends with exit code 0 or 2, and
what it says in the end is one line."""
import contextlib
import os
import shutil
import signal
from importlib import import_module

import jaxtyping
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from annotated_transformer.commands import cli, prepare
from annotated_transformer.tools.options import OptionParser, add_arguments
from command_line import typed, write

COMMANDS = [*cli.COMMANDS, *(f"prepare {kind}" for kind in prepare.CORPORA)]
NUMBERS = ["0", "1", "2", "3", "8", "-1", "0.5", "nan", "inf", "1e400", "99999999999999999999", "", "x"]
WORDS = ["", "en", "da", "no", "zz", "tiny", "recurrent", "bpe", "word-pieces", "dev", "test", "--", "-", "\u2028"]
PLACES = ["ende", "grammar", "grammar-trees", "RUN", "IMPORTED", "PARSER", "DATA", "TEXT", "OTHER", "EMPTY", "BYTES",
          "FOLDER", "NOWHERE", "new", "TOML", "new.json", "/dev/null", "MARIAN"]
# what each begins with: a line that is right, so that many of those drawn go far
BEGINNINGS = {
    "demo": ["new --steps 2"],
    "prepare": ["new --train DATA/train.en DATA/train.de --holdout 5 --vocab-size 150", "DATA --train TEXT OTHER"],
    "prepare grammar": ["new --vocab-size 300"], "prepare multi30k": ["new --source FOLDER"],
    "prepare wmt14": ["new --source FOLDER"], "prepare sources": ["new TOML"], "prepare trees": ["new ptb FOLDER"],
    "train": ["new --data DATA --config tiny --steps 1", "RUN", "IMPORTED", "PARSER", "ende",
              "new --data DATA --from RUN"],
    "average": ["RUN --last 1", "RUN --best", "IMPORTED --best", "PARSER --last 1", "IMPORTED --last 1 --data DATA"],
    "evaluate": ["RUN --beam-size 1", "--translations TEXT --references OTHER", "PARSER", "RUN grammar --split dev",
                 "IMPORTED --src TEXT --references OTHER", "grammar --src TEXT --references OTHER"],
    "score": ["RUN TEXT OTHER", "PARSER TEXT OTHER", "IMPORTED TEXT TEXT"],
    "translate": ["RUN TEXT", "IMPORTED TEXT", "PARSER TEXT", "RUN RUN TEXT", "grammar BYTES"],
    "parse": ["PARSER TEXT", "RUN TEXT", "IMPORTED TEXT", "PARSER --split dev"],
    "export": ["RUN new --to huggingface", "IMPORTED new", "PARSER new"],
    "import": ["MARIAN new", "RUN new", "FOLDER new", "EMPTY new"], "explore": ["RUN new.html", "IMPORTED", "PARSER"],
    "play": ["new.html", "FOLDER"]}
assert BEGINNINGS.keys() == set(COMMANDS)


def declared(command: str) -> tuple[list, list]:
    "The options of a command and its places, as its parser knows them."
    module = import_module(f"annotated_transformer.{cli.COMMANDS[command.split()[0]]}")
    parser = OptionParser(command)
    add_arguments(parser, getattr(module, f"{command.replace(' ', '_')}_command"))
    actions = [action for action in parser._actions if action.dest != "help"]
    return [a for a in actions if a.option_strings], [a for a in actions if not a.option_strings]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_help(command):
    options, places = declared(command)
    assert [action.dest for action in options + places if not action.help] == []


def values(action) -> st.SearchStrategy:
    "What may be typed after an option: of its kind, or of another."
    if action.nargs == 0:
        return st.just([])
    numbers = getattr(action.type, "__name__", "") in ("int", "float")
    own = [str(choice) for choice in action.choices or ()] or (NUMBERS if numbers else PLACES + WORDS)
    return st.lists(st.sampled_from(own), min_size=1, max_size=2 if action.nargs in ("+", "*") else 1)


@st.composite
def command_lines(draw) -> list[str]:
    command = draw(st.sampled_from(COMMANDS))
    found = [*command.split(), *draw(st.sampled_from(BEGINNINGS[command])).split()]
    options, _ = declared(command)
    for action in draw(st.lists(st.sampled_from(options), max_size=2)) if options else []:
        found += [draw(st.sampled_from(action.option_strings)), *draw(values(action))]
    change = draw(st.sampled_from(["none", "none", "none", "less", "other", "more"]))
    at = draw(st.integers(1, len(found) - 1))
    if change == "more":
        found.insert(at, draw(st.sampled_from(NUMBERS + WORDS + PLACES)))
    elif change != "none":
        found[at : at + 1] = [draw(st.sampled_from(NUMBERS + WORDS + PLACES))] if change == "other" else []
    return found


@pytest.fixture(scope="module")
def places(made, imported, small_parser, tmp_path_factory):
    "What the words in capitals stand for. Each command line finds them as they were."
    folder = tmp_path_factory.mktemp("places")
    (folder / "FOLDER").mkdir()
    shutil.copytree(made / "run", folder / "RUN")
    shutil.copytree(made / "data", folder / "DATA")
    shutil.copytree(small_parser / "run", folder / "PARSER")
    write(folder / "TEXT", ["The cow is old .", "", "A dog sleeps ."])
    write(folder / "OTHER", ["Die Kuh ist alt .", "", "Ein Hund schl\u00e4ft ."])
    (folder / "EMPTY").touch()
    (folder / "BYTES").write_bytes(bytes(range(256)))
    (folder / "TOML").write_text("config = 'tiny'\n")
    shutil.copytree(imported, folder / "IMPORTED")
    shutil.copytree(imported.parent / "marian", folder / "MARIAN")
    return folder


def check(line: list[str], places, copy, monkeypatch, capsys) -> None:
    shutil.copytree(places, copy, symlinks=True)
    monkeypatch.chdir(copy)
    monkeypatch.setattr("sys.stdin", open(os.devnull))
    if {"onnx", "--compile"} & {*line}:  # neither looks through the checker of shapes
        monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    code, out, told = typed(capsys, *line)
    assert code in (0, 2, None), (line, code, told)
    assert "Traceback" not in told, (line, told)
    if code == 2 and line:
        last = told.rstrip("\n").splitlines()[-1]
        assert last.startswith("annotated-transformer: "), (line, told)


@pytest.fixture
def quick(monkeypatch):
    "Nothing is fetched, nothing is trained for long, and the grammar's corpus is small."
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr("annotated_transformer.training.loop.stop_signals", asked_to_stop)
    monkeypatch.setattr("annotated_transformer.corpus.sources.hub_pairs", refuse)
    monkeypatch.setattr("annotated_transformer.corpus.sources.sacrebleu_files", refuse)
    monkeypatch.setattr("annotated_transformer.commands.exchange.fetched", refuse)
    monkeypatch.setattr("annotated_transformer.inside.explore.page", lambda translator, lines: "page")
    monkeypatch.setattr("annotated_transformer.commands.pages.page", lambda translator, lines: "page")
    from annotated_transformer.corpus import corpora
    whole = corpora.grammar_corpus
    small = lambda folder, **options: whole(folder, 300, 9, 9, 9, **options)  # noqa: E731
    monkeypatch.setattr(corpora, "grammar_corpus", small)
    monkeypatch.setattr("annotated_transformer.commands.demo.grammar_corpus", small)


@contextlib.contextmanager
def asked_to_stop():
    "A training makes one update, and its checkpoint."
    yield [signal.SIGTERM]


def refuse(*arguments, **options):
    from annotated_transformer.tools.files import InputError
    raise InputError("no network in tests: give a folder")


def fuzz(examples: int):
    @settings(max_examples=examples, deadline=None, database=None, derandomize=examples < 100,
              phases=[Phase.explicit, Phase.generate],
              suppress_health_check=[*HealthCheck])
    @given(line=command_lines())
    @example(line=["train", "RUN", "--dev-bleu", "9" * 20])
    def run(line, places, tmp_path_factory, quick, capsys):
        copy = tmp_path_factory.mktemp("line") / "here"
        with pytest.MonkeyPatch.context() as patch:
            check(line, places, copy, patch, capsys)
            patch.undo()
        shutil.rmtree(copy)
    return run


test_a_few_command_lines = fuzz(10)
test_many_command_lines = pytest.mark.slow(fuzz(1500))
