"""From treebanks to records: sources and their splits, mixing, vocabularies, parsers that always give trees."""
import itertools
import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_transformer.corpus import grammar
from annotated_transformer.corpus.corpora import Corpus
from annotated_transformer.corpus.vocabulary import Vocabulary, load_vocabulary
from annotated_transformer.model.symbols import END
from annotated_transformer.parsing import parser as parsing
from annotated_transformer.parsing.parser import Parser, TreeConstraint, WordedTreeConstraint, load_parser, parse_corpus
from annotated_transformer.parsing.treebanks import (
    escape, gold_trees, encode_trees, source_line, tokenise, tree_corpus, tree_files, treebank)
from annotated_transformer.parsing.trees import clean_tree, linearise, read_tree, read_trees, restore
from annotated_transformer.training.checkpoints import remove_checkpoint
from annotated_transformer.training.loop import train
from annotated_transformer.training.starting import start_run
from annotated_transformer.training.runs import Run
from here import PARSER_SHAPE, PARSER_TRAINING, TREES, examples, fails, shared

pytestmark = pytest.mark.usefixtures("short_outputs")


def drawn(count, seed=0):
    return [e.tree for e in itertools.islice(grammar.examples(seed), count)]


# --- sources and splits -----------------------------------------------------------------------------------------------

@pytest.fixture
def wsj(tmp_path):
    for section in range(25):
        (tmp_path / "wsj" / f"{section:02}").mkdir(parents=True)
        for article in (1, 2):
            (tmp_path / "wsj" / f"{section:02}" / f"wsj_{section:02}{article:02}.mrg").write_text(
                f"( (S (NP-SBJ-1 (CD {section}) (CD {article})) (VP (VBZ counts) (NP (-NONE- *-1)))) )\n\n( (NP "
                f"(-NONE- *)) )\n")
    return tmp_path / "wsj"


def test_penn_treebank_by_its_usual_sections(tmp_path, wsj):
    corpus = tree_corpus(tmp_path / "data", "ptb", wsj)
    wanted = {"train": range(2, 22), "dev": [22], "test": [23]}
    for split, sections in wanted.items():
        assert [src for src, _ in corpus.pairs(split)] == [f"{s} {a} counts" for s in sections for a in (1, 2)]
    assert corpus.splits["train"]["dropped"]["empty"] == 40  # trees of traces alone: left out and counted
    flat = tmp_path / "flat"
    flat.mkdir()
    for path in wsj.rglob("*.mrg"):
        (flat / path.name).write_bytes(path.read_bytes())
    assert tree_corpus(tmp_path / "again", "ptb", flat).digest == corpus.digest


def test_split_by_file_not_by_sentence(tmp_path, treebanks):
    corpus = tree_corpus(tmp_path / "data", "craft", treebanks / "treebank_craft")
    files = sorted((treebanks / "treebank_craft").iterdir())
    for split, numbers in (("dev", (8, 18)), ("test", (9, 19))):
        assert [src.split() for src, _ in corpus.pairs(split)] == [t.words for i in numbers for _,
                                                                   t in read_trees(files[i])]
    assert corpus.splits["train"]["pairs"] == 16 * 12


def test_a_treebank_beside_another(tmp_path, treebanks):
    "The folder holds another treebank's files, too."
    craft = tree_corpus(tmp_path / "craft", "craft", treebanks / "treebank_craft")
    beside = tree_corpus(tmp_path / "beside", "craft", treebanks)
    assert all(list(beside.pairs(split)) == list(craft.pairs(split)) for split in craft.splits)


@pytest.mark.parametrize("lost", [2, 15, 21, 22, 23])
def test_missing_section(tmp_path, wsj, lost):
    for path in (wsj / f"{lost:02}").iterdir():
        path.unlink()
    fails(lambda: tree_corpus(tmp_path / "data", "ptb", wsj), wsj, f"section {lost:02}",
          {22: "dev", 23: "test"}.get(lost, "train"))
    assert not (tmp_path / "data").exists()


def test_what_is_no_treebank(tmp_path, wsj, treebanks):
    (tmp_path / "text").mkdir()
    for i in range(10):
        (tmp_path / "text" / f"{i}.tree").write_text("The dog sleeps.\n")
    make = lambda name, source, **options: lambda: tree_corpus(tmp_path / "data", name, source, **options)
    fails(make("craft", tmp_path / "text"), "0.tree, line 1", "no treebank")
    fails(make("craft", tmp_path / "nowhere"), "nowhere")
    fails(make("craft", None), "give")
    fails(make("craft", wsj / "02"), "2 files")
    fails(make("ptb", treebanks / "treebank_ptb_sample"), "section 02", "ptb-sample")
    bad = wsj / "07" / "wsj_0702.mrg"
    for content, line, what in ((b"( (S (NP (NN a)))\n", 1, "not closed"), (b"( (S (NN a)) )\n()\n", 2, "empty"),
                                (b"(S (NN f(x)))\n", 1, "-LRB-"),
                                (b"(S (NN a))\n(S (NN \xe4))\n", 2, "UTF-8"), (b"", 0, "empty")):
        bad.write_bytes(content)
        fails(make("ptb", wsj), "wsj_0702.mrg", f"line {line}" if line else "", what)
    assert not (tmp_path / "data").exists() and not list(tmp_path.glob("*.tmp"))


def test_the_sample_through_nltk(tmp_path, treebanks, monkeypatch):
    import nltk
    "Found where NLTK keeps it; a clear word where it is not there and cannot be fetched."
    kept = tmp_path / "nltk_data" / "corpora" / "treebank"
    kept.mkdir(parents=True)
    (kept / "combined").symlink_to(treebanks / "treebank_ptb_sample")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "nltk_data"), str(treebanks)])
    assert tree_corpus(tmp_path / "data", "ptb-sample").splits["test"]["pairs"] == 24
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "empty")])
    monkeypatch.setattr(nltk, "download", lambda name, quiet: False)
    fails(lambda: tree_corpus(tmp_path / "other", "ptb-sample"), "network", "give")


def test_wrong_options(tmp_path, treebanks):
    (tmp_path / "extra").write_text("(S (NN a)\n")
    (tmp_path / "none").write_text("(S (NN a))\n(())\n")
    make = lambda **options: lambda: tree_corpus(tmp_path / "data", "craft", treebanks / "treebank_craft", **options)
    for options, named in (({"share": 0}, "share 0"), ({"share": 1.5}, "share 1.5"),
                           ({"extra": tmp_path / "extra", "extra_weight": 0.0}, "extra_weight 0.0"),
                           ({"extra": tmp_path / "extra", "extra_weight": 1000}, "extra_weight 1000"),
                           ({"extra": tmp_path / "absent"}, "absent"),
                           ({"extra": tmp_path / "extra"}, "extra, line 1"),
                           ({"extra": tmp_path / "none"}, "none, line 2")):
        fails(make(**options), named)
    assert not (tmp_path / "data").exists()
    make()()
    fails(make(share=0.5), "other files or options")


# --- text, weights, vocabulary ----------------------------------------------------------------------------------------

def test_weight_is_what_one_tree_counts_beside_another(tmp_path, treebanks):
    (tmp_path / "extra").write_text("(ROOT (S (NP (PRP It)) (VP (VBZ works))))\n\n(S (VP (VB Go)))\n")
    for weight, gold, extra in ((1, 1, 1), (0.25, 4, 1), (2.5, 2, 5), (0.3, 10, 3)):
        corpus = tree_corpus(tmp_path / f"w{weight}", "craft", treebanks / "treebank_craft", extra=tmp_path / "extra",
                             extra_weight=weight)
        lines = [src for src, _ in corpus.pairs("train")]
        assert (lines.count("It works"), lines.count("Go"), len(lines)) == (extra, extra, 192 * gold + 2 * extra)


def test_odd_words_stay_one_word():
    "Treebanks have words with spaces of Unicode's in them; the source has as many words as the tree."
    tree = read_tree("(S (NP (NN a\u200ab) (NN c\u00a0d) (NN \u2003)) (VP (VB e)))")
    assert len(source_line(tree.words).split()) == len(tree.words) == 4
    assert source_line(tree.words).split()[0] == "ab"


def test_brackets_are_single_symbols(tmp_path, small_parser):
    corpus, vocabulary = Corpus.open(small_parser / "data"), load_vocabulary(small_parser / "data")
    for _, target in corpus.pairs("train"):
        assert len(vocabulary.encode(target)) == len(target.split()) and vocabulary.decode(
            vocabulary.encode(target)) == target
    assert len(
        vocabulary.encode("(NAC )NAC (UCP )UCP")) == 4  # labels of the Penn Treebank that this text does not have


def test_sequences_with_tags(tmp_path, treebanks):
    """Each word's tag is a symbol; a parser that writes them gives them to its words, and XX has a symbol in the
    same vocabulary."""
    make = lambda name, **options: tree_corpus(tmp_path / name, "craft", treebanks / "treebank_craft", **options)
    plain, tagged = make("plain"), make("tagged", leaves="tags")
    fails(lambda: make("plain", leaves="tags"), "other files or options")
    for (source, target), (same, symbols), tree in zip(plain.pairs("test"), tagged.pairs("test"),
                                                       gold_trees(tagged, "test"), strict=True):
        assert source == same and len(target.split()) == len(symbols.split()) and restore(
            symbols.split(), tree.words) == (tree, False)
    vocabulary = encode_trees(tagged, 300)
    for text in [symbols for _, symbols in tagged.pairs("train")] + ["(S XX WRB , )S"]:
        assert len(vocabulary.encode(text)) == len(text.split()) and vocabulary.decode(vocabulary.encode(text)) == text


def test_sequences_with_words(tmp_path, treebanks):
    "Each word stands for itself, in the same pieces as in the source; brackets stay whole."
    worded = tree_corpus(tmp_path / "worded", "craft", treebanks / "treebank_craft", leaves="words")
    vocabulary = encode_trees(worded, 300)
    assert not {"\u2581NN", "\u2581VBZ", "\u2581DT"} & {*vocabulary.pieces(range(len(vocabulary)))}
    for (source, target), tree in zip(worded.pairs("test"), gold_trees(worded, "test"), strict=True):
        brackets = [symbol for symbol in target.split() if symbol[0] in "()"]
        assert [symbol for symbol in target.split() if symbol[0] not in "()"] == source.split() == tree.words
        assert len(vocabulary.encode(target)) == len(vocabulary.encode(source)) + len(brackets)


def test_prepared_twice_is_prepared_once(small_parser):
    before = {path: path.stat().st_mtime_ns for path in (small_parser / "data").iterdir()}
    encode_trees(tree_corpus(small_parser / "data", "grammar-trees", sizes=TREES), 300)
    assert before == {path: path.stat().st_mtime_ns for path in (small_parser / "data").iterdir()
                      if path.name != "encoded.json"} | {
        path: before[path] for path in before if path.name == "encoded.json"}


WORDS = st.lists(st.sampled_from(["The", "dog", "doesn't", "can't", "it's", "sleep", "cats'", "U.S.", "3.5", "1,000",
                                  "well-known", "Mr.", "they'll", "Cannot", "gonna", "gotta", "lemme", "wanna"]),
                 min_size=1, max_size=8)


@settings(max_examples=80, deadline=None)
@given(WORDS, st.sampled_from([".", "!", "?", "...", ""]), st.sampled_from([", ", "; ", " -- ", ": ", " "]))
def test_words_are_cut_as_nltk_cuts_them(words, end, join):
    import nltk
    line = words[0] + join + " ".join(words[1:]) + end
    if line.strip(" ,;:-"):
        assert tokenise(line) == [escape(w) for w in nltk.TreebankWordTokenizer().tokenize(line)]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_any_line_is_cut_into_words_without_brackets(line):
    words = tokenise(line)
    assert not any(set(word) & set("(){} \t\n") for word in words) and all(words)
    if words:
        tree, _ = restore(["XX"] * len(words), words)
        assert read_tree(str(tree)) == tree


# --- the search among trees -------------------------------------------------------------------------------------------

class Pieces(Vocabulary):
    "A vocabulary as a constraint sees it: two labels, two tags, and words of pieces."
    names = ["<pad>", "<unk>", "<s>", "</s>", *(f"\u2581{s}" for s in ("(S", ")S", "(NP", ")NP", "XX", "NN")),
             "\u2581wo", "rd"]

    def __init__(self):
        pass

    def __len__(self):
        return len(self.names)

    def encode(self, text):
        return [self.names.index(piece) for piece in text.split()]

    def pieces(self, ids):
        return [self.names[i] for i in ids]


CONSTRAINTS = [kind(Pieces(), extra=20, longest_chain=4) for kind in (TreeConstraint, WordedTreeConstraint)]
by_kind = pytest.mark.parametrize("constraint", CONSTRAINTS, ids=["a symbol a word", "words"])
SOURCES = torch.nn.utils.rnn.pad_sequence([torch.tensor([10, 11, 11] * n + [END]) for n in (1, 3, 5)], batch_first=True)


@by_kind
@settings(max_examples=examples(60), deadline=None)
@given(random=st.randoms(use_true_random=False), greedy_for_brackets=st.floats(0, 1))
def test_whatever_a_constrained_search_chooses_is_a_tree(constraint, random, greedy_for_brackets):
    "Beams that pick any allowed symbol and reorder at will: each ends, in time, with a tree that needs no mending."
    for n, src in enumerate(SOURCES.split(1)):
        n, state, outputs = 2 * n + 1, constraint.start(src), [[]]
        for _ in range(3 * n + 1 + 20):
            allowed = constraint.allowed(state)[0]
            assert allowed.any(1).all()  # never a dead end
            parents = [random.randrange(len(outputs)) for _ in range(4)]
            symbols = []
            for parent in parents:
                some = allowed[parent].nonzero()[:, 0].tolist()
                opening = [i for i in some if i in (4, 6)]
                symbols.append(random.choice(opening if opening and random.random() < greedy_for_brackets else some))
            state = constraint.advance(state, torch.tensor([parents]), torch.tensor([symbols]))
            outputs = [outputs[parent] + [symbol] for parent, symbol in zip(parents, symbols)]
        for ids in outputs:
            assert END in ids and set(ids[ids.index(END):]) == {END}
            text = "".join(Pieces.names[i] for i in ids[:ids.index(END)]).replace("\u2581", " ").split()
            if constraint is CONSTRAINTS[1]:
                assert [symbol for symbol in text if symbol[0] not in "()"] == ["wordrd"] * n
            tree = [symbol if symbol[0] in "()" else "XX" for symbol in text]
            assert restore(tree, ["w"] * n)[1] is False and ids.index(END) <= 3 * n + 1 + 20 - 1


@by_kind
@pytest.mark.parametrize("most", [18, 20, 24])
def test_a_tree_ends_within_the_positions_that_were_learned(constraint, most):
    "However many brackets a model would like, a tree over five words ends within `most` symbols."
    narrow, ids = type(constraint)(Pieces(), extra=100, most=most), []
    state = narrow.start(SOURCES[2:])
    while END not in ids:
        some = narrow.allowed(state)[0, 0].nonzero()[:, 0].tolist()
        ids.append(next((i for i in some if i in (4, 6)), some[-1]))
        state = narrow.advance(state, torch.tensor([[0]]), torch.tensor([[ids[-1]]]))
    assert len(ids) <= most


@by_kind
def test_a_state_follows_its_hypothesis(constraint):
    "Reordered within beams and with sentences taken out, a state is that of the symbols since the start."
    random, state = __import__("random").Random(0), constraint.start(SOURCES)
    outputs = [[[]], [[]], [[]]]
    for step in range(12):
        allowed = constraint.allowed(state)
        for i, beam in enumerate(outputs):
            for place, ids in enumerate(beam):
                again = constraint.start(SOURCES[i:i + 1])
                for symbol in ids:
                    again = constraint.advance(again, torch.tensor([[0]]), torch.tensor([[symbol]]))
                assert torch.equal(constraint.allowed(again)[0, 0], allowed[i, place])
        parents = [[random.randrange(len(beam)) for _ in range(3)] for beam in outputs]
        symbols = [[random.choice(allowed[i, p].nonzero()[:, 0].tolist()) for p in row] for i,
                   row in enumerate(parents)]
        outputs = [[outputs[i][p] + [s] for p, s in zip(*rows)] for i, rows in enumerate(zip(parents, symbols))]
        state = constraint.advance(state, torch.tensor(parents), torch.tensor(symbols))
    allowed = constraint.allowed(state)
    state.select(torch.tensor([2, 0]))
    assert torch.equal(constraint.allowed(state), allowed[[2, 0]])


def test_all_words_mean_the_next_one():
    """What a model believes of words, whatever their spelling, is the probability of the next word; brackets and the
    end keep their own."""
    constraint, logs = CONSTRAINTS[1], torch.randn(1, 1, 12, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    names, p, state = Pieces.names, logs.exp()[0, 0], constraint.start(SOURCES[:1])  # one word of three pieces

    def then(symbol: str) -> dict[str, float]:
        "What may follow the symbol, with its probability."
        nonlocal state
        state = constraint.advance(state, torch.tensor([[0]]), torch.tensor([[names.index(symbol)]]))
        found = constraint.mask_logits(logs, state).exp()[0, 0]
        return {names[i]: found[i].item() for i in found.nonzero()[:, 0]}

    words = sum(p[names.index(name)].item()
                for name in ("<pad>", "<unk>", "<s>", "\u2581XX", "\u2581NN", "\u2581wo", "rd"))
    own = lambda name: pytest.approx(p[names.index(name)].item())  # noqa: E731
    assert then("\u2581(S") == {"\u2581wo": pytest.approx(words), "\u2581(S": own("\u2581(S"),
                                "\u2581(NP": own("\u2581(NP")}
    assert then("\u2581wo") == then("rd") == {"rd": 1.0}
    assert then("rd") == {"\u2581)S": own("\u2581)S")}
    assert then("\u2581)S") == {"</s>": own("</s>")}


def allows(constraint, vocabulary, source, target):
    "Whether a target can be written for a source, to its end."
    state = constraint.start(torch.tensor([vocabulary.encode(source) + [END]]))
    for symbol in vocabulary.encode(target) + [END]:
        if not constraint.allowed(state)[0, 0, symbol]:
            return False
        state = constraint.advance(state, torch.tensor([[0]]), torch.tensor([[symbol]]))
    return True


def test_every_gold_tree_of_a_treebank_can_be_written():
    "With tags, with XX and with the words, by the shipped vocabulary; and not with a word too few or too many."
    vocabulary = load_parser("grammar-trees").vocabulary
    constraints, checked = {kind: kind(vocabulary, 300) for kind in (TreeConstraint, WordedTreeConstraint)}, 0
    known = {piece[1:] for piece in vocabulary.pieces(range(len(vocabulary)))}
    for file in tree_files(shared("treebank_craft"))[:2]:
        for _, tree in itertools.islice(treebank([file]), examples(40)):
            if {b.label for b in tree.brackets} | set(tree.tags) <= {name.strip("(") for name in known}:
                for leaves in ("XX", "tags", "words"):
                    constraint, symbols = constraints[WordedTreeConstraint if leaves == "words"
                                                      else TreeConstraint], source_line(linearise(tree, leaves))
                    assert allows(constraint, vocabulary, source_line(tree.words), symbols)
                    assert not allows(constraint, vocabulary, source_line([*tree.words, "more"]), symbols)
                    assert len(tree.words) < 2 or not allows(constraint, vocabulary, source_line(tree.words[1:]),
                                                             symbols)
                checked += 1
    assert checked > examples(15)


# --- parsers ----------------------------------------------------------------------------------------------------------

def test_a_tree_for_every_sentence(small_parser):
    "Even from a model that has learned nothing: over the sentence's words, well-formed, alone as in a batch."
    parser = load_parser(small_parser / "run")
    sentences = [read_tree(tree).words for tree in drawn(12, seed=5)] + [["word"], ["\u4e2d"], ["-LRB-", "x", "-RRB-"]]
    parses = parser.parse_words(sentences, beam_size=3)
    for words, parse in zip(sentences, parses):
        assert parse.tree.words == words and read_tree(str(parse.tree)) == parse.tree
        assert parser.parse_words([words], beam_size=3)[0].tree == parse.tree
        assert not parse.mended
    free = parser.parse_words(sentences, beam_size=3, constrained=False)
    assert any(parse.mended for parse in free) and [parse.tree.words for parse in free] == sentences
    assert parser.parse_words([["(", "x", ")"]], beam_size=3)[0].tree.words == ["-LRB-", "x", "-RRB-"]
    first, found, last = parser.parse_words([[], sentences[0], []], beam_size=3)
    assert first is last is None and found.tree == parses[0].tree


def test_a_parser_that_writes_the_words(tmp_path):
    "However little it knows, its search writes each sentence; punctuation has its tags; free, it may write anything."
    corpus = tree_corpus(tmp_path / "data", "grammar-trees", sizes=TREES, leaves="words")
    vocabulary = encode_trees(corpus, 300)
    shape = replace(PARSER_SHAPE, vocab_size=len(vocabulary))
    assert train(start_run(tmp_path / "run", corpus.folder, shape, PARSER_TRAINING))
    parser, gold = load_parser(tmp_path / "run"), gold_trees(corpus, "test")[:6]
    parsed = parsing.parse_trees(parser, gold, beam_size=2)
    assert [p.tree.words for p in parsed.parses] == [tree.words for tree in gold] and parsed.mended == 0
    assert parsing.parse_trees(parser, gold, beam_size=1, constrained=False).mended > 0
    assert set(parser.parse("The dogs, they sleep.").tags) == {"XX", ",", "."}


def test_scores_count_every_sentence(small_parser):
    parsed = parse_corpus(load_parser(small_parser / "run"), Corpus.open(small_parser / "data"), "test", beam_size=1)
    metrics = parsed.metrics("test")
    assert metrics["sentences/test"] == 30 and metrics["not_counted/test"] == 0 and 0 <= metrics["mended/test"] <= 100
    assert [p.tree.tags for p in parsed.parses] == [tree.tags for tree in parsed.gold]
    assert metrics["mended/test"] == 100 * sum(p.mended for p in parsed.parses) / 30


class Oracle(Parser):
    "A parser that knows the right sequences, but for those it is told to cut."

    def __init__(self, trees, cut=()):
        self.answers = {source_line(tree.words): linearise(tree)[: -5 if i in cut else None] for i,
                        tree in enumerate(trees)}
        self.vocabulary, self.translator, self.constraint, self.worded = self, self, "trees alone", False

    def search(self, lines, beam_size, alpha, **options):
        assert (beam_size, alpha) == (21, 0.3)  # section 6.3
        assert options["max_extra_tokens"] == parsing.EXTRA and options["constraint"] == "trees alone"
        return [[type("Found", (), {"ids": self.answers[line], "score": 0.0})] for line in lines]

    def decode(self, ids):
        return " ".join(ids)


def test_a_perfect_parser_has_100(small_parser):
    gold = gold_trees(Corpus.open(small_parser / "data"), "test")
    whole = parsing.parse_trees(Oracle(gold), gold).metrics("test")
    assert [whole[f"{name}/test"]
            for name in ("f1", "precision", "recall", "complete", "mended")] == [100, 100, 100, 100, 0]
    cut = parsing.parse_trees(Oracle(gold, cut={0, 7, 9}), gold)
    assert cut.metrics("test")["mended/test"] == 10 and cut.scores.count(0) == 30


def test_the_shipped_parser(monkeypatch):
    """A sentence of the grammar gets its gold tree, tags and all; nearly all unseen ones do; a line that is no
    sentence gets a tree too."""
    monkeypatch.setattr(parsing, "EXTRA", 300)
    parser = load_parser("grammar-trees")
    gold = read_tree(
        "(S (S (NP (DT The) (NN cow)) (VP (VBZ is) (ADJP (JJ old)))) (, ,) (CC but) (S (NP (PRP it)) (VP (VBZ "
        "plays))) (. .))")
    assert parser.parse("The cow is old, but it plays.", beam_size=1) == gold
    known = [clean_tree(read_tree(e.tree)) for e in itertools.islice(grammar.examples(11), 80)
             if 4 <= grammar.n_words(e) <= 20]
    scores = parsing.parse_trees(parser, known, beam_size=1).scores
    assert len(known) > 40 and scores.f1 > 97 and scores.count(0) == len(known)
    assert parser.parse("xyzzy (\u4e2d", beam_size=1).words == ["xyzzy", "-LRB-", "\u4e2d"]
    told = "".join(path.read_text() for path in parser.translator.run.folder.glob("*.json"))
    assert not re.search(r"(?<![\w.])/(work|home|tmp|root|Users)\b", told)  # no path of the machine that made it


def test_a_translator_is_no_parser():
    fails(lambda: load_parser("grammar"), "into de", "corpus of trees")
    fails(lambda: load_parser("no/such/run"), "no such run")


def test_gold_trees_are_asked_of_a_corpus_that_has_none(small_parser):
    fails(lambda: parse_corpus(load_parser(small_parser / "run"), Corpus.open(small_parser / "data"), "train"), "gold")


def test_going_on_from_another_run(small_parser, tmp_path, treebanks):
    corpus = tree_corpus(tmp_path / "data", "craft", treebanks / "treebank_craft")
    encode_trees(corpus, 250)
    before = Run.open(small_parser / "run")
    fails(lambda: parsing.continue_on(tmp_path / "run", corpus.folder, before, 4), "another vocabulary")
    encode_trees(corpus, load_vocabulary(small_parser / "run"))
    run = parsing.continue_on(tmp_path / "run", corpus.folder, before, 4)
    for path in (tmp_path / "run" / "checkpoints").iterdir():  # killed before the weights were there
        remove_checkpoint(path)
    run = parsing.continue_on(tmp_path / "run", corpus.folder, before, 4)
    assert run.checkpoints.load()[1]["progress"]["step"] == 8
    assert train(run) and run.history.metrics()[-1]["step"] == 12 and run.config["data"]["name"] == "craft"
