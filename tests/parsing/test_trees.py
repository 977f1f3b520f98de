"""Trees read, written, put in sequences and back, on trees drawn at random; bracket scores compared with EVALB's own
sample."""
import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_transformer.parsing.bracket_f1 import (
    COLLINS,
    Rules,
    Scores,
    compare,
    percent,
    score_trees,
)
from annotated_transformer.parsing.trees import Tree, clean_tree, linearise, read_tree, read_trees, restore, trees_in
from here import examples, fails, shared

# --- trees drawn at random --------------------------------------------------------------------------------------------

drawn = settings(max_examples=examples(100), deadline=None)

# any character but brackets, the six blanks of ASCII, and what UTF-8 cannot write; odd spaces and line separators among
# them
text = st.text(st.characters(exclude_characters="() \t\r\n\f\v", exclude_categories=["Cs"]), min_size=1, max_size=6)
label = st.sampled_from(["S", "NP", "VP", "NP-SBJ-1", "PP=2", "ADVP|PRT", "", "X-Y", "TOP", "XX"]) | text
leaf = st.tuples(label, text).map(lambda pair: (f"({pair[0]}", pair[1], ")"))


def phrase(children):
    return st.tuples(label,
                     st.lists(children, min_size=1,
                              max_size=5)).map(lambda p: (f"({p[0]}", *(t for child in p[1] for t in child), ")"))


def around(walk, labels):
    "The walk in as many brackets as there are labels: deep trees, which hypothesis by itself would not draw."
    return (*(f"({name}" for name in labels), *walk, *[")"] * len(labels))


def beside(walk, count):
    "The walk so many times side by side in one bracket."
    return ("(S", *walk * count, ")")


inner = st.recursive(leaf, phrase, max_leaves=12)
deep = st.builds(lambda walk, name, n: around(walk, [name] * n), inner, label, st.integers(1, 4000))
wide = st.builds(beside, inner, st.integers(1, 1500))
trees = (inner | deep | wide | st.builds(around, wide, st.lists(label, max_size=30))).map(Tree)
rooted = trees.map(lambda tree: Tree(("(S", *tree.walk, ")")))  # with a phrase at the top


@drawn
@given(trees)
def test_writing_and_reading_is_lossless(tree):
    assert read_tree(str(tree)) == tree
    assert str(read_tree(str(tree))) == str(tree)
    assert len(tree.words) == len(tree.tags)


@drawn
@given(trees, st.sampled_from(["\n", "\n\n   ", "\t", " \r\n "]))
def test_layout_does_not_matter(tree, gap):
    text = str(tree).replace(")", f" ){gap}")
    assert read_tree(text.replace(" (", f"{gap}(")) == tree


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(trees, min_size=1, max_size=8), st.booleans())
def test_files_are_lossless(tmp_path_factory, some, zipped):
    "One tree a line; each comes with its line."
    path = tmp_path_factory.mktemp("trees") / "file"
    content = "".join(f"{tree}\n" for tree in some).encode()
    path.write_bytes(gzip.compress(content) if zipped else content)
    assert list(read_trees(path)) == list(enumerate(some, 1))


plain_leaf = st.tuples(st.sampled_from(["NN", "DT"]),
                       st.sampled_from(["a", "b", "-LRB-"])).map(lambda p: (f"({p[0]}", p[1], ")"))


def plain_phrase(children):
    return st.tuples(st.sampled_from(["S", "NP-SBJ", ""]), st.lists(children, min_size=1, max_size=5)).map(
        lambda p: (f"({p[0]}", *(t for child in p[1] for t in child), ")"))


@drawn
@given(st.recursive(plain_leaf, plain_phrase, max_leaves=20).map(Tree))  # NLTK takes all of Unicode's spaces for blanks
def test_nltk_reads_the_same(tree):
    import nltk
    theirs = nltk.Tree.fromstring(str(tree))
    assert theirs.leaves() == tree.words and [tag for _, tag in theirs.pos()] == tree.tags
    assert " ".join(str(theirs).split()) == str(tree)
    inside = [t for t in theirs.subtrees() if t.height() > 2]
    assert [(t.label(), len(t.leaves())) for t in inside] == [(b.label, b.end - b.start) for b in tree.brackets]


@drawn
@given(trees)
def test_brackets_nest(tree):
    "Phrases come in the order of opening, inside the sentence, and no two of them cross."
    brackets, n = tree.brackets[:40] + tree.brackets[-20:], len(tree.words)
    assert all(0 <= b.start < b.end <= n for b in tree.brackets)
    assert [b.start for b in tree.brackets] == sorted(b.start for b in tree.brackets)
    assert not any(a.start < b.start < a.end < b.end for a in brackets for b in brackets)


# --- cleaning ---------------------------------------------------------------------------------------------------------

@drawn
@given(trees)
def test_clean_leaves_words_in_order_and_one_root(tree):
    kept = [word for tag, word in zip(tree.tags, tree.words) if tag != "-NONE-"]
    cleaned = clean_tree(tree)
    assert (cleaned.words if cleaned else []) == kept
    if cleaned:
        assert clean_tree(cleaned) == cleaned and read_tree(str(cleaned)) == cleaned
        assert not {"-NONE-", ""} & {b.label for b in cleaned.brackets[:1]} and cleaned.brackets
        assert cleaned.brackets[0][1:] == (0, len(kept))


@drawn
@given(st.lists(st.sampled_from(["(NP (-NONE- *))", "(VP (VP (-NONE- *T*-1)))", "(-NONE- 0)"]), min_size=1, max_size=4))
def test_traces_alone_leave_nothing(parts):
    assert clean_tree(read_tree(f"( (S {' '.join(parts)}))")) is None
    assert str(clean_tree(read_tree(f"( (S {' '.join(parts)} (VP (VB Go))))"))) == "(S (VP (VB Go)))"


# --- sequences --------------------------------------------------------------------------------------------------------

@drawn
@given(rooted)
def test_sequence_and_back(tree):
    symbols = linearise(tree)
    assert restore(symbols, tree.words, tree.tags) == (tree, False)
    assert [s for s in linearise(tree, "tags") if s not in symbols] == [tag for tag in tree.tags if tag not in symbols]
    assert len(symbols) == len(tree.words) + 2 * len(tree.brackets)


symbol = st.sampled_from(["(S", "(NP", "(VP", ")S", ")NP", ")VP", "XX", ")", "(", "NN", "\u2047", "NP", "NN(NP", "(NP)",
                          ")NP(VP"])


@drawn
@given(st.lists(symbol, max_size=60), st.integers(1, 12))
def test_any_symbols_become_a_tree(symbols, n):
    words = [f"w{i}" for i in range(n)]
    tree, mended = restore(symbols, words)
    assert tree.words == words and read_tree(str(tree)) == tree
    assert mended == (linearise(tree) != [s if s[0] in "()" and not set(s[1:]) & set("()") else "XX" for s in symbols])
    assert restore(linearise(tree, "tags"), words) == (tree, False)  # what was mended needs no mending


@drawn
@given(rooted, st.data())
def test_a_cut_sequence_keeps_what_was_written(tree, data):
    "Each phrase that was closed before the cut is in the mended tree."
    symbols = linearise(tree)
    cut = symbols[:data.draw(st.integers(0, len(symbols) - 1))]
    mended, changed = restore(cut, tree.words, tree.tags)
    assert changed and mended.words == tree.words and mended.tags == tree.tags
    seen, stack, closed = 0, [], []
    for s in cut:
        if s == "XX":
            seen += 1
        elif s.startswith("("):
            stack.append((s[1:], seen))
        else:
            closed.append((*stack.pop(), seen))
    have = [tuple(b) for b in mended.brackets]
    for bracket in closed[:200]:
        have.remove(bracket)


def test_words_after_the_last_symbol_are_the_roots():
    "Cut within a phrase, which ends there."
    tree, mended = restore("(S (NP XX".split(), list("abc"))
    assert str(tree) == "(S (NP (XX a)) (XX b) (XX c))" and mended


def test_a_tag_alone_has_no_sequence():
    with pytest.raises(ValueError, match="no phrase"):
        linearise(read_tree("(NN Abstract)"))
    with pytest.raises(ValueError, match="one word"):
        restore([], [])


def test_tags_of_punctuation():
    tree, _ = restore("(S XX XX XX XX XX XX )S".split(), ["``", "Go", ",", "-LRB-", "now", "!"])
    assert tree.tags == ["``", "XX", ",", "-LRB-", "XX", "."]


# --- scores -----------------------------------------------------------------------------------------------------------

EVALB = {"DELETE_LABEL": "delete", "EQ_LABEL": "equal_labels"}  # a parameter's name, and ours


def read_evalb_rules(path: Path) -> tuple[Rules, dict[str, list[str]]]:
    "A parameter file of EVALB's: the rules, and the other parameters."
    sets, others = {name: set() for name in EVALB.values()}, {}
    for line in path.read_text().splitlines():
        name, *values = line.split() or ["#"]
        if name in EVALB:
            sets[EVALB[name]].add(frozenset(values) if name.startswith("EQ_") else values[0])
        elif not name.startswith("#"):
            others[name] = values
    return Rules(**{name: frozenset(of) for name, of in sets.items()}), others


def trees_of(line: str) -> list[Tree]:
    "Those of a line of a file that EVALB reads: one, none, or several side by side."
    return [tree for _, tree in trees_in([(1, line)], "a line")]


def evalb_table(scores: Scores, cutoff: int) -> list[str]:
    """The lines of EVALB's own report, as its sample has it: the gold words of a skipped line, sentences without a
    crossing phrase in the totals."""
    rule, valid = "=" * 76, [r for r in scores.rows if r.status == 0]
    out = ["  Sent.                        Matched  Bracket   Cross        Correct Tag",
           " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy", rule]
    for i, r in enumerate(scores.rows, 1):
        out.append(
            f"{i:4}  {r.length:3}    {r.status}  {percent(r.matched, r.gold):6.2f} {percent(r.matched, r.test):6.2f}   "
            f"{r.matched:3}    "
                   f"{r.gold:3}  {r.test:3}    {r.crossing:3}   {r.words:4}  {r.right_tags:4}   "
                   f"{percent(r.right_tags, r.words):6.2f}")
    counts = [scores.total(column) for column in ("matched", "gold", "test", "words", "right_tags")]
    out += [rule,
            f"                {scores.recall:6.2f} {scores.precision:6.2f} {counts[0]:6} {counts[1]:6} {counts[2]:4}  "
                  f"{sum(r.crossing == 0 for r in valid):5}  {counts[3]:5} {counts[4]:5}   "
                  f"{percent(counts[4], counts[3]):6.2f}", "=== Summary ==="]
    for title, s in (("All", scores), (f"len<={cutoff}", scores.up_to(cutoff))):
        valid = [r for r in s.rows if r.status == 0]
        whole = {"Number of sentence": len(s.rows), "Number of Error sentence": s.count(1),
                 "Number of Skip  sentence": s.count(2),
                 "Number of Valid sentence": s.count(0)}
        shares = {"Bracketing Recall": s.recall, "Bracketing Precision": s.precision, "Complete match": s.complete,
                  "Average crossing": s.average_crossing,
                  "No crossing": percent(sum(r.crossing == 0 for r in valid), len(valid)),
                  "2 or less crossing": percent(sum(r.crossing <= 2 for r in valid), len(valid)),
                  "Tagging accuracy": percent(s.total("right_tags"), s.total("words"))}
        out += ["", f"-- {title} --", *(f"{name:25} = {value:6}" for name, value in whole.items()),
                *(f"{name:25} = {value:6.2f}" for name, value in shares.items())]
    return out


def test_evalb_sample_figure_for_figure():
    "EVALB's own sample with sample.prm: every row and every figure of the summary of sample.rsl."
    folder = shared("evalb_sample")
    rules, others = read_evalb_rules(folder / "sample.prm")
    gold, test, theirs = ((folder / f"sample.{end}").read_text().splitlines() for end in ("gld", "tst", "rsl"))
    rows = [compare(*(trees_of(line.replace(*others["EQ_WORD"])) for line in pair), rules)  # COLLINS.prm has none
            for pair in zip(gold, test, strict=True)]
    assert evalb_table(Scores(rows), int(*others["CUTOFF_LEN"])) == theirs
    assert sum(line[13:14] == "0" for line in theirs[3:27]) == 17  # valid rows there are


def test_collins_is_the_default():
    rules, others = read_evalb_rules(shared("evalb_sample") / "COLLINS.prm")
    assert rules == COLLINS == Rules() and "EQ_WORD" not in others
    assert (others["DELETE_LABEL_FOR_LENGTH"], others["LABELED"]) == (["-NONE-"], ["1"])


THREE = "(S (NP (N we)) (VP (V saw) (NP (D a) (N film))))"  # 4 words, 4 phrases


@pytest.mark.parametrize(("test", "expected"),
                         [  # counted by hand: status, matched, gold, test, crossing, words, right tags
    (THREE, (0, 4, 4, 4, 0, 4, 4)),
    ("(S (NP (N we)) (VP (V saw) (PP (D a) (N film))))", (0, 3, 4, 4, 0, 4, 4)),
    ("(S (NP (N we)) (VP (V saw) (NP (D a) (X film))))", (0, 4, 4, 4, 0, 4, 3)),
    ("(S (NP (N we) (V saw)) (NP (D a) (N film)))", (0, 2, 4, 3, 1, 4, 4)),
    ("(S (N we) (V saw) (D a) (N film))", (0, 1, 4, 1, 0, 4, 4)),
    ("(N we) (V saw) (D a) (N film)", (0, 0, 4, 0, 0, 4, 4)),
    ("(S (NP (N we)) (VP (V saw) (NP (NP (NP (D a) (N film))))))", (0, 4, 4, 6, 0, 4, 4)),
    ("", (2, 0, 0, 0, 0, 4, 0)),
    ("(S (NP (N we)) (VP (V see) (NP (D a) (N film))))", (1, 0, 0, 0, 0, 4, 0)),
    ("(S (NP (N we)) (VP (V saw) (R too) (NP (D a) (N film))))", (1, 0, 0, 0, 0, 4, 0)),
    ("(TOP (S (NP (N we)) (VP (V saw) (NP (D a) (N film)))))", (0, 4, 4, 4, 0, 4, 4)),
    ("(S (NP (N we)) (VP (V saw) (-NONE- *) (NP (D a) (N film)) (. .)))", (0, 4, 4, 4, 0, 4, 4)),
    ("(S (NP (N we)) (NP (-NONE- *)) (VP (V saw) (NP (D a) (N film))))", (0, 4, 4, 4, 0, 4, 4)),
    ("(S-TPC-1 (NP-SBJ (N we)) (VP=3 (V saw) (NP (D a) (N film))))", (0, 4, 4, 4, 0, 4, 4))])
def test_rows_counted_by_hand(test, expected):
    row = compare(trees_of(THREE), trees_of(test))
    assert (row.length, row[1:]) == (4, expected)


def test_each_rule():
    rules = Rules(frozenset("Q"), frozenset([frozenset("AB")]))
    gold = [read_tree("(A (Q the) (C (D this) (E dog)) (Z here))")]
    assert compare(gold, [read_tree("(B (X (D this) (E dog)) (Z here))")],
                   rules)[:6] == (4, 0, 1, 2, 2, 0)  # A is B, X is not C
    assert compare(gold, [read_tree("(B (X (D this) (E dogs)) (Z here))")], rules).status == 1


def test_prt_counts_as_advp():
    gold = [read_tree("(VP (V look) (PRT (RP up)))")]
    assert compare(gold, [read_tree("(VP (V look) (ADVP (RP up)))")]).matched == 2
    assert compare(gold, [read_tree("(VP (V look) (ADVP (RP up)))")], Rules(equal_labels=frozenset())).matched == 1


def test_the_summary_of_nothing():
    nothing = score_trees([read_tree(THREE)], [read_tree(THREE)]).up_to(3)
    assert nothing.rows == [] and nothing.f1 == 0.0


@drawn
@given(rooted)
def test_a_tree_is_its_own_best_parse(tree):
    if len(tree.brackets) < 200 and (cleaned := clean_tree(tree)):
        row = compare([cleaned], [cleaned])
        assert row.status == (0 if row.words else 2)
        assert row.matched == row.gold == row.test and row.crossing == 0 and row.right_tags == (
            row.words if row.status == 0 else 0)


# --- what is wrong ----------------------------------------------------------------------------------------------------

GOOD = "(S (NP (N we)))\n"


@pytest.mark.parametrize(("content", "line", "named"), [
    (GOOD + "(S (NP (N we))\n", 2, "not closed"), (GOOD + "(S\n (NP (N we)\n\n", 2, "not closed"),
    (GOOD + "(S (N we)))\n", 2, "too many"),
    (GOOD + ")\n", 2, "too many"), (GOOD + "()\n", 2, "empty"), (GOOD + "\n( )\n", 3, "empty"),
    ("(S (NP))\n", 1, "empty"),
    ("( (()))", 1, "empty"), ("It works.\n", 1, "no treebank"), (GOOD + "2 " + GOOD, 2, "no treebank"),
    ("(S (N f(x)))", 1, "-LRB-"),
    ("(S (N :)))", 1, "-LRB-"), ("(S (-LRB- ())", 1, "-LRB-"), ("(S (N we they))", 1, "another word"),
    ("(S (N we) they)", 1, "a bracket")])
def test_broken_treebanks_are_named_by_line(tmp_path, content, line, named):
    (tmp_path / "file.mrg").write_text(content)
    fails(lambda: list(read_trees(tmp_path / "file.mrg")), "file.mrg", f"line {line}:", named)


def test_files_that_are_no_treebank(tmp_path):
    (tmp_path / "blank").write_text("\n\n \n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "latin").write_bytes("(S (N Stra\u00dfe))".encode("latin-1"))
    (tmp_path / "cut.gz").write_bytes(gzip.compress((GOOD * 999).encode())[:40])
    for name, what in (("blank", "no tree"), ("empty", "empty"), ("latin", "UTF-8"), ("cut.gz", "compressed"),
                       ("absent", "does not exist")):
        fails(lambda: list(read_trees(tmp_path / name)), tmp_path / name, what)


def test_one_tree_is_asked_for():
    fails(lambda: read_tree(GOOD * 2), "2 trees")
    fails(lambda: read_tree(""), "0 trees")


# --- real treebanks ---------------------------------------------------------------------------------------------------

def test_penn_treebank_sample_as_nltk_reads_it():
    """Every tree of the sample: words, tags and phrases as NLTK has them; and as text again what the file says,
    blanks apart."""
    import nltk
    count = 0
    nltk.data.path.append(str(shared("treebank_ptb_sample")))  # NLTK reads from such folders only
    for path in sorted(shared("treebank_ptb_sample").glob("*.mrg"))[:40]:
        ours = [tree for _, tree in read_trees(path)]
        theirs = list(nltk.corpus.reader.BracketParseCorpusReader(str(path.parent), [path.name]).parsed_sents())
        assert "".join(map(str, ours)).replace(" ", "") == "".join(path.read_text().split())
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            a = Tree(a.walk[1:-1])  # NLTK's reader drops the outer bracket
            assert a.words == b.leaves() and a.tags == [tag for _, tag in b.pos()]
            assert [(p.label, p.end - p.start)
                    for p in a.brackets] == [(t.label(), len(t.leaves())) for t in b.subtrees() if t.height() > 2]
            cleaned = clean_tree(a)
            assert restore(linearise(cleaned), cleaned.words, cleaned.tags) == (cleaned, False)
        count += len(ours)
    assert count > 300


def test_craft_trees_come_back():
    count = 0
    for path in sorted(shared("treebank_craft").glob("*.tree"))[:10]:
        for (number, tree), line in zip(read_trees(path), path.read_text(encoding="utf-8").rstrip("\n").split("\n"),
                                        strict=True):
            assert str(tree).replace(" ", "") == line.replace(" ", "")
            cleaned = clean_tree(tree)
            assert restore(linearise(cleaned), cleaned.words, cleaned.tags) == (cleaned, False)
            count += 1
    assert count > 2000
