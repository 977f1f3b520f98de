"""`parse`: a tree a line, and the scores of a treebank."""
import io
import json
import re

import pytest

from annotated_transformer.commands.train import open_or_start
from annotated_transformer.corpus.corpora import Corpus
from annotated_transformer.parsing import parser as parsing
from annotated_transformer.parsing.treebanks import encode_trees, gold_trees, tree_corpus
from annotated_transformer.parsing.trees import read_tree
from annotated_transformer.training.loop import train
from command_line import fails, typed
from here import SMALL

pytestmark = pytest.mark.usefixtures("short_outputs")
GREEDY = ["--beam-size", "1"]


@pytest.fixture
def lines_of(small_parser, tmp_path, capsysbinary):
    "Parse the lines of a text; gives what is written, line by line, and what is told."
    def parse(text, *options):
        (tmp_path / "text").write_bytes(text if isinstance(text, bytes) else text.encode())
        code, out, told = typed(capsysbinary, "parse", small_parser / "run", tmp_path / "text", GREEDY[0], "2",
                                *options)
        return out.split("\n"), told, code
    return parse


def test_parse_keeps_line_n_at_line_n(lines_of):
    out, told, code = lines_of("The dog sleeps.\n\nA child (or two) doesn't wait.\n \nEvery cow is old.")
    assert code == 0 and len(out) == 6 and out[1] == out[3] == out[5] == ""
    lacking = re.findall(r"^warning: line (\d) has characters that the vocabulary lacks: (.*): the result", told,
                         re.MULTILINE)
    assert lacking == [("3", "- (U+002D), L (U+004C), R (U+0052), ' (U+0027)"),
                       ("5", "E (U+0045)")]  # a bracket is read as -LRB- or -RRB-, whose B the toy's words have
    assert read_tree(out[0]).words == ["The", "dog", "sleeps", "."]
    assert read_tree(out[2]).words == ["A", "child", "-LRB-", "or", "two", "-RRB-", "does", "n't", "wait", "."]
    assert read_tree(out[2]).tags[-1] == "." and read_tree(out[0]).tags[1] == "XX"


def test_parse_with_the_shipped_parser(tmp_path, capsysbinary, monkeypatch):
    monkeypatch.setattr(parsing, "EXTRA", 300)
    (tmp_path / "text").write_text("The cow is old, but it plays.\n\nThe dog sleeps.\n")
    _, out, told = typed(capsysbinary, "parse", "grammar-trees", tmp_path / "text", *GREEDY)
    assert not told and out.split("\n") == [
        "(S (S (NP (DT The) (NN cow)) (VP (VBZ is) (ADJP (JJ old)))) (, ,) (CC but) (S (NP (PRP it)) (VP (VBZ "
        "plays))) (. .))", "",
        "(S (NP (DT The) (NN dog)) (VP (VBZ sleeps)) (. .))", ""]


def test_parse_takes_words_that_are_cut_already(lines_of):
    out, _, _ = lines_of("don't f(x) :-) ( . . .\n", "--tokenized")
    assert read_tree(out[0]).words == ["don't", "f-LRB-x-RRB-", ":--RRB-", "-LRB-", ".", ".", "."]


def test_a_sentence_longer_than_any_in_training(small_parser, lines_of):
    "A warning with its line, and a tree all the same; an error with --strict, after the lines before it."
    longest = json.loads((small_parser / "run" / "config.json").read_text())["data"]["longest"]["src"]
    text = f"The dog sleeps.\n{'dog ' * longest}\nThe dog sleeps.\n"
    out, told, code = lines_of(text)
    assert code == 0 and told.count("warning") == 1 and "line 2" in told and str(longest) in told
    assert len(out) == 4 and len(read_tree(out[1]).words) == longest
    cut, told, code = lines_of(text, "--strict")
    assert code == 2 and cut == [out[0], ""] and told.count("\n") == 1 and "text, line 2" in told


@pytest.mark.slow
def test_a_sentence_beyond_the_models_limit(lines_of):
    out, told, code = lines_of("The dog sleeps.\n\n" + "dog " * 1500 + "\nThe dog sleeps.\n", *GREEDY)
    assert code == 0 and "line 3" in told and "1,024" in told and told.count("warning") == 1
    assert len(read_tree(out[2]).words) == 1500 and out[3] == out[0]


def test_parse_stops_at_bytes_that_are_not_utf8(lines_of):
    out, told, code = lines_of(b"The dog sleeps.\n\nStra\xdfe\nThe dog sleeps.\n")
    assert code == 2 and len(out) == 3 and "text, line 3" in told and "UTF-8" in told and told.count("\n") == 1


def test_parse_from_a_pipe(small_parser, monkeypatch, capsysbinary):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"The dog sleeps.\n\n"))))
    code, out, told = typed(capsysbinary, "parse", small_parser / "run", *GREEDY)
    assert code == 0 and not told and out.count("\n") == 2 and out.startswith("(")


def test_a_part_of_a_treebank_is_scored(tmp_path, treebanks, capsysbinary):
    data, run = tmp_path / "data", tmp_path / "run"
    encode_trees(tree_corpus(data, "craft", treebanks / "treebank_craft"), 300)
    numbers = {"steps": 6, "save_every": 3, "batch_tokens": 1000}
    assert train(open_or_start(run, data, "parser-small", SMALL["transformer"] | numbers))
    _, out, told = typed(capsysbinary, "parse", run, "--split", "test", *GREEDY, "--record", tmp_path / "kept.json")
    gold = gold_trees(Corpus.open(data), "test")
    assert [read_tree(line).words for line in out.splitlines()] == [tree.words for tree in gold]
    record = json.loads((tmp_path / "kept.json").read_text())
    assert record["task"] == "parsing" and f"{record['metrics']['f1/test']:.2f}" in told and "24 sentences" in told


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["recurrent", "convolutional"])
def test_a_rival_parses(kind, tmp_path, capsys):
    "Among trees alone."
    sizes = {"train": 60, "dev": 8, "test": 8, "test_long": 5}
    corpus = tree_corpus(tmp_path / "data", "grammar-trees", leaves="tags", sizes=sizes)
    encode_trees(corpus, 300)
    numbers = {"steps": 20, "warmup_steps": 5, "save_every": 6, "report_every": 1, "batch_tokens": 300}
    assert train(open_or_start(tmp_path / "run", tmp_path / "data", kind, SMALL[kind] | numbers))
    _, out, told = typed(capsys, "parse", tmp_path / "run", "--split", "test", GREEDY[0], "2")
    gold = gold_trees(corpus, "test")
    assert [read_tree(line).words for line in out.splitlines()] == [tree.words for tree in gold] and "F1" in told


# --- what is wrong ----------------------------------------------------------------------------------------------------

def test_what_is_typed_wrong(small_parser, tmp_path, capsys):
    for arguments, named in (
        (["parse", "grammar-trees", small_parser / "data"], ["data: Is a directory", "give a text file"]),
        (["parse", "grammar-trees", "--split", "test"], ["is not here: name it with --data"]),
        (["parse", "grammar"], ["trees"]), (["parse", tmp_path / "nothing"], ["nothing"]),
        (["parse", small_parser / "run", tmp_path / "nothing"], ["nothing"]),
        (["parse", small_parser / "run", "--beam-size", "0"], ["--beam-size 0"]),
        (["parse", small_parser / "run", "--split", "train"], ["gold"]),
        (["parse", small_parser / "run", "--split", "tset"], ["tset"]),
        (["parse", small_parser / "run", "--record", tmp_path / "r.json"], ["--split"]),
        (["parse", small_parser / "run", "file", "--split", "test"], ["--split", "file"]),
        (["evaluate", small_parser / "run"], ["annotated-transformer parse"])):
        fails(arguments, capsys, *named)
    assert not (tmp_path / "r.json").exists()
