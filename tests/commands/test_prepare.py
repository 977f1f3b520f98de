"""`prepare`: text, vocabulary and ids, of whatever files; killed anywhere, it goes on."""
import itertools
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from annotated_transformer.commands import cli
from annotated_transformer.commands.prepare import subcommand
from annotated_transformer.commands.train import open_or_start
from annotated_transformer.corpus.batching import ParallelCorpus
from annotated_transformer.corpus.corpora import Corpus
from annotated_transformer.corpus.vocabulary import adopt_model, load_vocabulary
from annotated_transformer.model.symbols import END, UNKNOWN
from annotated_transformer.parsing import parser as parsing
from annotated_transformer.tools.files import InputError
from annotated_transformer.training.loop import train
from command_line import fails, refused, said, write, wrong, wrong_with
from here import SMALL
from installed import plainly


def prepare_arguments(folder, text, *more):
    return ["prepare", str(folder), "--train", *text["train"], "--dev", *text["dev"], "--test", *text["test"], *more]


def test_word_pieces(text, tmp_path, capsys):
    cli.main(prepare_arguments(tmp_path / "data", text, "--vocab-size", "300", "--vocabulary", "word-pieces"))
    assert (tmp_path / "data" / "vocabulary.json").exists()
    assert train(open_or_start(tmp_path / "run", tmp_path / "data", "tiny", SMALL["transformer"] | {"steps": 2}))
    cli.main(["evaluate", str(tmp_path / "run")])


def test_empty_line_on_one_side_is_left_out_and_counted(text, tmp_path, capsys):
    english = open(text["train"][0], encoding="utf-8").read().splitlines()
    broken = write(tmp_path / "broken.en", english[:9] + [""] + english[10:])
    rest = ["--dev", *text["dev"], "--test", *text["test"], "--vocab-size", "300"]
    told = said(capsys, "prepare", tmp_path / "data", "--train", broken, text["train"][1], *rest)
    assert "299 pairs" in told and "empty" in told
    fails(["prepare", tmp_path / "strict", "--train", broken, text["train"][1], *rest, "--strict"], capsys, "broken.en",
          "line 10")
    assert not (tmp_path / "strict").exists()


def test_a_folder_of_ones_own_is_not_swept_away(tmp_path, text, capsys):
    for name in ("data.tmp", "data.old.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("mine")
    fails(prepare_arguments(tmp_path / "data", text, "--tgt", "tmp"), capsys, "language 'tmp': give a code")
    cli.main(prepare_arguments(tmp_path / "data", text, "--vocab-size", "300"))
    assert all((tmp_path / name / "mine").exists() for name in ("data.tmp", "data.old.tmp"))


def test_another_vocabulary_is_never_mixed_with_old_ids(made, text, tmp_path, monkeypatch, capsys):
    "`prepare` stopped while it encodes anew: what lies in the folder is no longer taken for a whole corpus."
    cli.main(prepare_arguments(tmp_path / "data", text, "--vocab-size", "300"))
    from annotated_transformer.corpus import batching

    def stopped(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(batching, "encode_lines", stopped)
    with pytest.raises(SystemExit):
        cli.main(prepare_arguments(tmp_path / "data", text, "--vocab-size", "290"))
    with pytest.raises(InputError, match="not encoded"):
        open_or_start(tmp_path / "run", tmp_path / "data", "tiny", {})


@pytest.mark.slow
def test_a_corpus_from_pipes_is_continued(text, tmp_path):
    "The pipes' names are others each time."
    files = " ".join(f"<(cat {path})" for path in text["train"])
    command = (f"{sys.executable} -m annotated_transformer prepare data --train {files} --src en --tgt de --holdout 5 "
               "--vocab-size 150")
    for named in ("Learning", "Kept: the text in data"):
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0 and named in done.stderr, done.stderr


@pytest.mark.parametrize(("typed", "name", "now"), [
    ("grammar --train a b", "prepare", "grammar --train a b"), ("trees d ptb s", "prepare_trees", "d ptb s")])
def test_a_kind_of_corpus_or_a_folder_of_its_name(typed, name, now):
    assert subcommand(typed.split()) == (name, now.split())


def test_a_vocabulary_taken_from_a_run(finished, tmp_path, capsys):
    corpus = tmp_path / "text"
    for side, line in (("en", "The cow is old ."), ("de", "Die Kuh ist alt .")):
        Path(f"{corpus}.{side}").write_text("\n".join(f"{line} {n}" for n in range(40)), encoding="utf-8")
    given = ["prepare", tmp_path / "data", "--train", f"{corpus}.en", f"{corpus}.de", "--holdout", 5,
             "--vocabulary-from", finished]
    assert re.search(rf" train runs/data --\w+ .*/data --\w+ {finished}\n\Z", said(capsys, *given))
    assert train(open_or_start(tmp_path / "run", tmp_path / "data", None, {"steps": 2}, str(finished)))
    for option in (["--vocab-size", 500], ["--vocabulary", "word-pieces"], ["--byte-fallback"]):
        assert "no effect with --vocabulary-from" in refused(capsys, "prepare", tmp_path / "new", *given[2:], *option)
    assert not (tmp_path / "new").exists()


def test_each_side_is_cut_with_its_own_vocabulary(two_alphabets, tmp_path, capsys):
    text = [two_alphabets / f"text.{side}" for side in ("en", "el")]
    given = ["prepare", tmp_path / "data", "--src", "en", "--tgt", "el", "--train", *text, "--holdout", 6,
             "--vocab-size", 70, "--separate-vocabularies"]
    said(capsys, *given)
    corpus, vocabulary = Corpus.open(tmp_path / "data"), load_vocabulary(tmp_path / "data")
    assert vocabulary.separate and len(vocabulary) == len(vocabulary.source) == 70
    both = ParallelCorpus(corpus.folder, "train")
    for (src, tgt), ids, other in zip(corpus.pairs("train"), both.src, both.tgt):
        assert [*ids] == [*vocabulary.source.encode(src), END] and [*other] == [*vocabulary.encode(tgt), END]
        assert UNKNOWN not in ids and UNKNOWN not in other
    assert UNKNOWN in vocabulary.source.encode("γελάδα") and UNKNOWN in vocabulary.encode("cow")
    assert "Kept: the vocabulary" in said(capsys, *given)
    assert load_vocabulary(corpus.folder).digest == vocabulary.digest


def test_a_folder_whose_name_begins_with_a_dash(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    told = said(capsys, "prepare", "--holdout", 10, "--vocab-size", 300, "--train", *text["train"], "--", "-data")
    advice = shlex.split(told.splitlines()[-1].partition("Next: annotated-transformer ")[2])
    assert advice[:2] == ["train", "runs/-data"] and advice[3::2] == ["./-data", "small"], told
    assert wrong_with("train", advice[1:]) == ""


@pytest.mark.slow
@pytest.mark.xdist_group("package")
def test_it_needs_no_extra(run, text, tmp_path):
    plainly(run, ["prepare", tmp_path / "data", "--train", *text["train"], "--holdout", "20", "--vocab-size", "300"])
    assert open_or_start(tmp_path / "run", tmp_path / "data", "tiny", {})


def test_a_treebank_is_prepared(tmp_path, treebanks):
    (tmp_path / "machine").write_text("(ROOT (S (NP (PRP It)) (VP (VBZ works))))\n")
    given = ["prepare", "trees", str(tmp_path / "data"), "craft", str(treebanks / "treebank_craft"), "--vocab-size",
             "300", "--extra", str(tmp_path / "machine"), "--extra-weight", "0.5"]
    cli.main(given)
    assert Corpus.open(tmp_path / "data").splits["train"]["pairs"] == 2 * 192 + 1
    cli.main(given)  # again: nothing is done anew
    run = open_or_start(tmp_path / "run", tmp_path / "data", "parser-small", SMALL["transformer"])
    assert run.config["training"]["lr_scale"] == parsing.PARSER_PRESETS["parser-small"][1].lr_scale


# --- what is wrong ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("arguments, named", [
    (["prepare", "grammar", "NEW", "--src", "de", "--tgt", "en"], ["--src de", "prepare grammar --help"]),
    (["prepare", "NEW"], ["--train"]),
    (["prepare", "NEW", "--train", "DATA/train.en"], ["give the second file, as in text.en text.de"]),
    (["prepare", "grammar", "DATA/train.en/new"], ["the folder DATA/train.en/new: nothing can be written there"]),
    (["prepare", "NEW", "--train", "DATA/train.en", "DATA/train.de", "--vocabulary", "unigram"],
     ["--vocabulary unigram: give bpe, word-pieces, or a file"]),
    (["prepare", "NEW", "--train", "DATA/train.en", "DATA/train.de", "--vocabulary", "NOTHING.model"],
     ["nothing.model: No such file"]),
    (["prepare", "NEW", "--train", "DATA/train.en", "DATA/train.de", "--vocabulary", "a.model", "--vocab-size", "9"],
     ["--vocab-size", "--vocabulary a.model"]),
    (["prepare", "grammar"], ["FOLDER", "prepare grammar --help"]),
    (["prepare", "grammar", "NEW", "--extra", "NOTHING"], ["--extra", "prepare grammar --help"]),
    (["prepare", "multi30k", "NEW", "--source"], ["argument --source: expected one argument"]),
    (["prepare", "NEW", "--train"], ["argument --train: expected at least one argument"]),
    *[(["prepare", "grammar", "NEW", "--vocab-size", size],
       [f"--vocab-size {size}: give a number from 5 to 10,000,000"])
      for size in ("2147483647", "4")],
    (["prepare", "grammar", "NEW", "--max-words", "80"], ["--max-words 80", "grammar"]),
    (["prepare", "multi30k", "NEW", "--holdout", "10"], ["--holdout 10", "multi30k"]),
    (["prepare", "multi30k", "NEW", "--train", "DATA/train.en", "DATA/train.de"],
     ["--train", "prepare multi30k --help"]),
    (["prepare", "NEW", "--train", "DATA/train.en", "DATA/train.de", "--holdout", "10", "--vocabulary-from", "NOTHING"],
     ["NOTHING"]),
    (["prepare", "trees", "NEW", "ptb-sample", "--vocabulary", "bpe"], ["--vocabulary bpe", "prepare trees --help"]),
    (["prepare", "trees", "NEW", "grammar-trees", "--extra-weight", "2"], ["--extra-weight", "--extra"]),
    (["prepare", "trees", "NEW", "grammar-trees", "--extra", "x", "--extra-weight", "1000"], ["--extra-weight 1000"]),
    (["prepare", "trees", "NEW", "grammar-trees", "DATA"], ["DATA: has no effect", "grammar-trees"]),
    (["prepare", "trees", "NEW", "ptb-sample", "--separate-vocabularies"], ["--separate-vocabularies"]),
    (["prepare", "NEW", "--train", "a", "b", "--dev", "a", "b", "--test", "a", "b", "--holdout", "10"],
     ["--holdout 10"]),
    (["prepare", "NEW", "--train", "text", "--separate-vocabularies", "--vocabulary-from", "ende"],
     ["no effect with --vocabulary-from"]),
])
def test_wrong_options(made, tmp_path, capsys, arguments, named):
    wrong(arguments, named, made, tmp_path, capsys)


@pytest.mark.parametrize("kind", ["bpe", "word-pieces"])
def test_vocabulary_larger_than_the_text_allows(text, tmp_path, capsys, kind):
    said = fails(prepare_arguments(tmp_path / "data", text, "--vocab-size", "90000", "--vocabulary", kind), capsys,
                 "90000", "at most", alone=False)
    largest = said.split("at most ")[1].split()[0]
    cli.main(prepare_arguments(tmp_path / "data", text, "--vocab-size", largest, "--vocabulary",
                               kind))  # the advice holds


def test_what_is_wrong_with_treebanks(tmp_path, treebanks, capsys):
    craft, new = ["craft", treebanks / "treebank_craft"], ["prepare", "trees", tmp_path / "new"]
    for section in (*range(22), 23, 24):
        (tmp_path / "wsj" / f"{section:02}").mkdir(parents=True)
        (tmp_path / "wsj" / f"{section:02}" / f"wsj_{section:02}01.mrg").write_text("( (S (NN a)) )\n")
    for arguments, named in (([*new, "ptb", tmp_path / "wsj"], ["section 22", "dev"]), ([*new, "ptb"], ["source"]),
                             ([*new, *craft, "--extra", tmp_path / "no"], ["no"]),
                             ([*new, *craft, "--vocab-size", "20"], ["--vocab-size 20"])):
        fails(arguments, capsys, *named, alone="--vocab-size" not in arguments)


# --- killed -----------------------------------------------------------------------------------------------------------
CHANGES = {"os.rename": lambda path, *_: path, "os.remove": lambda path, *_: path, "os.mkdir": lambda path, *_: path,
           "open": lambda path, mode, *_: path if mode and set(mode) & set("wax+") else None}


def killed_at(number: int, folder, arguments) -> bool:
    """Run the command in a process of its own, which is killed (SIGKILL) before its change of `folder` of that number.

    False: it ended.
    """
    def child():
        changes = itertools.count(1)

        def hook(event, values):
            path = CHANGES[event](*values) if event in CHANGES else None
            if str(path).startswith(str(folder.parent)) and next(changes) == number:
                os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)
        cli.main(arguments)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def files_of(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def command(tmp_path):
    "Arguments for `prepare` of a small corpus of one's own in a folder."
    pairs = [(f"the number {i} and {i * i}", f"die Zahl {i} und {i * i} , ja") for i in range(120)]
    names = []
    for side, lang in ((0, "en"), (1, "de")):
        names.append(str(tmp_path / f"x.{lang}"))
        (tmp_path / f"x.{lang}").write_text("".join(pair[side] + "\n" for pair in pairs))
    return lambda folder, *more: ["prepare", str(folder), "--train", *names, "--holdout", "5",
                                  *(more or ("--vocab-size", "80"))]


@pytest.mark.slow
def test_killed_anywhere_prepare_goes_on(tmp_path, command, capsys):
    cli.main(command(tmp_path / "whole" / "data"))
    whole, kept = files_of(tmp_path / "whole" / "data"), set()
    capsys.readouterr()
    for number in itertools.count(1):
        folder = tmp_path / f"killed-{number}" / "data"
        if not killed_at(number, folder, command(folder)):
            break
        inodes = {path: path.stat().st_ino for path in folder.glob("*.ids")} if folder.exists() else {}
        cli.main(command(folder))
        said = capsys.readouterr().err
        assert files_of(folder) == whole, number
        assert not list(tmp_path.rglob("*.tmp")), number
        encoded = said.split("encoded already: ")[1].split("\n")[0].split(", ") if "encoded already" in said else []
        for name in encoded:  # what is said to be kept is the very file
            assert inodes[folder / f"{name}.ids"] == (folder / f"{name}.ids").stat().st_ino
        kept |= {("text", "the text in" in said), ("vocabulary", "the vocabulary of" in said),
                 ("encoded", len(encoded))}
    assert number > 30 and {("text", False), ("text", True), ("vocabulary", False), ("vocabulary", True)} <= kept
    assert {("encoded", n) for n in range(7)} <= kept


@pytest.mark.slow
@pytest.mark.parametrize("more", [["--vocab-size", "81"], ["--vocab-size", "80", "--vocabulary", "word-pieces"]])
def test_another_vocabulary_after_a_kill_or_without_one(tmp_path, command, more, capsys):
    "Nothing of the first vocabulary is left, wherever the second `prepare` was killed, and whichever comes third."
    cli.main(command(tmp_path / "first" / "data"))
    cli.main(command(tmp_path / "second" / "data", *more))
    first, second = files_of(tmp_path / "first" / "data"), files_of(tmp_path / "second" / "data")
    ids = [name for name in first if name.endswith((".ids", ".npy"))]
    for number in itertools.count(1):
        folder = tmp_path / str(number) / "data"
        shutil.copytree(tmp_path / "first" / "data", folder)
        killed, found = killed_at(number, folder, command(folder, *more)), files_of(folder)
        if "encoded.json" in found:  # then the ids are those of one vocabulary, the one it names
            of = first if found["encoded.json"] == first["encoded.json"] else second
            assert all(found[name] == of[name] for name in ["encoded.json", *ids])
        cli.main(command(folder, *more) if number % 2 else command(folder))
        assert files_of(folder) == (second if number % 2 else first), number
        if not killed:
            break
    assert number > 20
    capsys.readouterr()
    for expected in ("vocabulary was learned in another way: it is replaced", "Kept: the vocabulary"):
        cli.main(command(tmp_path / "first" / "data", *more))
        assert expected in capsys.readouterr().err


@pytest.mark.slow
def test_killed_while_one_folder_takes_the_place_of_another(tmp_path, command):
    "Sub-folders, such as runs, are never lost with the text that is replaced."
    other = command(tmp_path / "a", "--vocab-size", "80", "--overwrite", "--max-words", "100")
    cli.main([word.replace("/a", "/b") if word.endswith("/a") else word for word in other])
    for number in itertools.count(1):
        folder = tmp_path / "a"
        cli.main(command(folder, "--vocab-size", "80", "--overwrite"))
        for name in ("runs", "notes"):
            (folder / name).mkdir(exist_ok=True)
            (folder / name / "kept.txt").write_text("kept")
        went_on = killed_at(number, tmp_path / "a", other)
        cli.main(other)
        assert all((folder / name / "kept.txt").read_text() == "kept" for name in ("runs", "notes")), number
        assert {p.name for p in folder.iterdir() if p.is_file()} == {p.name for p in (tmp_path / "b").iterdir()}
        if not went_on or number > 40:  # the text is in place by then
            break
    assert number > 10


def test_bytes_and_a_model_of_ones_own(text, tmp_path):
    import sentencepiece
    cli.main(prepare_arguments(tmp_path / "bytes", text, "--vocab-size", "400", "--byte-fallback"))
    found = load_vocabulary(tmp_path / "bytes")
    assert UNKNOWN not in found.encode("\u6771\u4eac") and found.decode(found.encode("\u6771\u4eac")) == "\u6771\u4eac"
    sentencepiece.SentencePieceTrainer.train(input=",".join(text["train"]), model_prefix=str(tmp_path / "own"),
                                             vocab_size=200, model_type="bpe", minloglevel=3)
    cli.main(prepare_arguments(tmp_path / "data", text, "--vocabulary", str(tmp_path / "own.model")))
    assert Corpus.open(tmp_path / "data").normaliser == "none"
    assert load_vocabulary(tmp_path / "data").digest == adopt_model(tmp_path / "own.model").digest
