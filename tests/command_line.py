"A command line as somebody types it, in this process or in one of its own, and what it says."
import subprocess
import sys
from importlib import import_module

from annotated_transformer.commands import cli
from annotated_transformer.corpus.batching import encode_corpus
from annotated_transformer.corpus.corpora import file_corpus
from annotated_transformer.corpus.vocabulary import BytePairVocabulary, learn_vocabulary
from annotated_transformer.tools.files import InputError
from annotated_transformer.tools.options import OptionParser, add_arguments


def typed(capsys, *arguments) -> tuple[int, str, str]:
    "The exit code of a command, and what it writes on standard output and on standard error."
    capsys.readouterr()
    code = 0
    try:
        cli.main([str(a) for a in arguments])
    except SystemExit as end:
        code = end.code
    return code, *(text if isinstance(text, str) else text.decode() for text in capsys.readouterr())


def said(capsys, *arguments) -> str:
    "What a command says that succeeds."
    code, out, told = typed(capsys, *arguments)
    assert code == 0, told
    return told + out


def fails(arguments, capsys, *named, alone: bool = True) -> str:
    "The command must end with code 2 and a line that names all of `named`; `alone`: it writes nothing else."
    code, out, told = typed(capsys, *arguments)
    line = told.splitlines()[-1]
    assert code == 2 and line.startswith("annotated-transformer: ") and "Traceback" not in told, told
    assert not alone or (out, told) == ("", line + "\n"), out + told
    for name in named:
        assert str(name) in line, line
    return line


def refused(capsys, *arguments) -> str:
    "The one line with which a command line is refused."
    return fails(arguments, capsys)


def wrong(arguments, named, made, tmp_path, capsys) -> None:
    "Words in capitals stand for places; a command that is refused leaves no folder NEW."
    places = {"RUN": str(made / "run"), "DATA": str(made / "data"), "NEW": str(tmp_path / "new"),
              "NOTHING": str(tmp_path / "nothing")}
    filled = [places.get(a, a.replace("DATA/", places["DATA"] + "/").replace("NOTHING", places["NOTHING"]))
              for a in arguments]
    fails(filled, capsys,
          *[places.get(n, n.replace("DATA", places["DATA"]).replace("NOTHING", places["NOTHING"])) for n in named])
    assert not (tmp_path / "new").exists() or arguments[0] == "demo"


def in_process(arguments, stdin=b"", **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "annotated_transformer", *map(str, arguments)], input=stdin,
                          capture_output=True, **options)


def options(values: dict) -> list[str]:
    "Fields of a model or a training as they are typed."
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def prepared(folder, text: dict, vocab_size: int = 300):
    "A corpus of two files a split, encoded."
    corpus = file_corpus(folder, None, None, *map(list, text.values()))
    encode_corpus(corpus, learn_vocabulary(corpus, BytePairVocabulary, vocab_size))
    return folder


def parser_of(command: str, words: list[str]) -> tuple[OptionParser, list[str]]:
    "Of `prepare`, that of the kind of corpus; what is not typed and needed is two files of text."
    module, function = import_module(f"annotated_transformer.{cli.COMMANDS[command]}"), command
    if command == "prepare":
        function, words = module.subcommand(words)
    parser = OptionParser(command)
    add_arguments(parser, getattr(module, f"{function}_command"))
    needed = [action.option_strings[0] for action in parser._actions if action.required and action.option_strings]
    return parser, [*words, *(word for option in needed for word in (option, "x", "x"))]


def wrong_with(command: str, words: list[str]) -> str:
    "What is wrong with a command line whose places are filled."
    parser, given = parser_of(command, words)
    for places in range(5):
        try:
            parser.parse_intermixed_args(["x"] * places + given)
            return ""
        except InputError as error:
            if "required: " not in (said := str(error)):
                break
    return said
