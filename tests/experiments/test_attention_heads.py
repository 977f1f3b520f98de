"""Heads whose behaviour is known, links of sentences written by hand, and controls that must not move."""
import hashlib
import json
from itertools import islice, permutations
from random import Random

import numpy as np
import pytest
import torch

from annotated_transformer.corpus.grammar import examples
from annotated_transformer.corpus.vocabulary import BytePairVocabulary, WordPieceVocabulary
from annotated_transformer.decoding.translation import load
from annotated_transformer.experiments import attention_heads as heads
from annotated_transformer.experiments import word_alignment
from annotated_transformer.experiments.attention_heads import (
    Measured, find_heads, link_sums, measure_heads, position_sums, sentence_sums, shuffled_links, summarise,
    word_weights)
from annotated_transformer.experiments.links import (
    Sentence, SplitLine, gold, governors, grammar_sentences, phrases, split_words, text_sentences, tree_sentences)
from annotated_transformer.experiments.word_alignment import AlignedPair
from annotated_transformer.model.symbols import END
from annotated_transformer.parsing.trees import read_tree
from annotated_transformer.tools.files import InputError
from annotated_transformer.tools.records import find_record
from annotated_transformer.training.runs import find_run
from command_line import prepared


@pytest.fixture(scope="module")
def translator():
    return load("grammar")


@pytest.fixture(scope="module")
def sentences(translator):
    return grammar_sentences(translator.vocabulary, 24)


# --- words and pieces -----------------------------------------------------------------------------

TEXT = ["the dog, which sleeps.", "dogs sleep; cats don't!", "a cat... (it sleeps)", "well-known 3,5 dogs"] * 3


@pytest.mark.parametrize("kind", [BytePairVocabulary, WordPieceVocabulary])
def test_words_are_whole_and_pieces_are_the_vocabularys(kind):
    vocabulary = kind.learn(TEXT, 60)
    for line in TEXT:
        words = split_words(vocabulary, line)
        assert words.ids == vocabulary.encode(line) + [END]
        assert "".join(words.words) == line.replace(" ", "")
        assert words.group == sorted(words.group) and set(words.group) == set(range(len(words.words) + 1))
        pieces = [piece.replace("\u2581", "") for piece in vocabulary.pieces(words.ids)]
        for i, word in enumerate(words.words):
            assert "".join(piece for piece, owner in zip(pieces, words.group) if owner == i) == word
    assert split_words(vocabulary, "the dog, which").words == ["the", "dog", ",", "which"]
    assert split_words(vocabulary, "  ").words == [] and split_words(vocabulary, "").group == [0]


@pytest.mark.parametrize("kind", [BytePairVocabulary, WordPieceVocabulary])
def test_a_word_with_an_unknown_character_stays_whole(kind):
    vocabulary = kind.learn(TEXT, 60)
    words = split_words(vocabulary, "the \u0416dog. sleeps")
    assert words.words == ["the", "\u0416dog.",
                           "sleeps"] and words.ids == vocabulary.encode("the \u0416dog. sleeps") + [END]
    assert set(words.group) == {0, 1, 2, 3}


def test_a_piece_over_two_words_joins_them():
    class Odd(BytePairVocabulary):
        def __init__(self): pass
        def encode(self, text): return [4, 5]
        def pieces(self, ids): return ["\u2581a,", "b"]

    assert split_words(Odd(), "a,b")[::2] == (["a,b"], [0, 0, 1])


# --- what is known of a sentence ------------------------------------------------------------------

def test_phrases_by_hand():
    tree = "(S (NP (NP (DT The) (NN man)) (SBAR (WHNP (WP who)) (S (VP (VBD slept))))) (VP (VBD sang)) (. .))"
    assert phrases(read_tree(tree)) == [range(0, 2), range(2, 4), range(0, 4)]
    tree = "(S (NP (DT A) (NN dog)) (, ,) (VP (VB ran) (PRT (RP away))))"
    assert phrases(read_tree(tree)) == [range(0, 2), range(3, 5)]
    assert phrases(read_tree("(S (NP (PRP It)) (VP (VBZ rains)))")) == []


def test_links_point_into_the_sentence(sentences):
    for s in sentences:
        for kind, links in s.links.items():
            queries = s.tgt.words if kind == "alignment" else s.src.words
            assert all(0 <= word < len(queries) and all(0 <= there < len(s.src.words) for there in to) for word,
                       to in links)
            assert kind == "alignment" or all(to and word not in to for word, to in links)
        assert [word for word, _ in s.links["alignment"]] == list(range(len(s.tgt.words)))


# --- heads made by hand ---------------------------------------------------------------------------

def one_hot_head(places, n):
    "A head whose query i puts all weight on key places[i]; key n is the special token."
    weights = torch.zeros(len(places), n + 1)
    weights[range(len(places)), places] = 1
    return weights


def test_there_may_be_more_queries_or_more_keys():
    for n_queries, n in ((3, 6), (6, 3), (1, 1)):
        weights = torch.rand(2, 2, n_queries, n + 1).softmax(-1)
        for offset, name in ((-1, "previous"), (0, "same"), (1, "next")):
            places = [(i, i + offset) for i in range(n_queries) if 0 <= i + offset < n]
            s = position_sums(weights)[name]
            assert s.count == len(places)
            expected = sum((weights[..., i, j] for i, j in places), torch.zeros(2, 2))
            torch.testing.assert_close(s.total, expected)


def test_shuffled_position_control_is_the_mean_over_all_orders():
    weights = torch.rand(1, 3, 4, 5).softmax(-1)
    every = [position_sums(weights[..., [*order, 4]]) for order in permutations(range(4))]
    for name in ("previous", "same", "next"):
        mean = torch.stack([s[name].total for s in every]).mean(0)
        for s in every:  # and no order changes the control
            torch.testing.assert_close(s[name].shuffled, mean)


def test_a_head_that_follows_the_gold_and_one_that_has_a_habit():
    links = [(0, frozenset({3})), (4, frozenset({2})), (3, frozenset({1, 2}))]
    moved = [(0, frozenset({1})), (4, frozenset({1})), (3, frozenset({1, 2}))]
    follows, two_back = one_hot_head([3, 5, 5, 1, 2], 5), one_hot_head([5, 5, 0, 1, 2], 5)
    end = torch.full((5, 6), 0.001)
    end[:, 5] = 0.9  # nearly all on the end token, but of the words the right ones first
    for word, to in links:
        end[word, list(to)] += 0.05
    sums = link_sums(torch.stack([follows, two_back, end])[None], links, moved, "governor")
    # row 0 of the second is empty: of four words that tie one is right
    assert sums["governor"].total[0].tolist() == pytest.approx([3, 2.25, 3])
    assert sums["governor, weight"].total[0, :2].tolist() == [3, 2] and sums["governor, weight"].total[0, 2] < 0.3
    assert sums["governor"].shuffled[0].tolist() == pytest.approx([1, 1.25, 1])


# --- controls -------------------------------------------------------------------------------------

def test_shuffled_links_keep_their_words_and_the_distances_of_their_kind(sentences):
    moved = shuffled_links(sentences, 3)
    assert moved == shuffled_links(sentences, 3) != shuffled_links(sentences, 4)
    for kind in ("antecedent", "governor", "constituent", "alignment"):
        distances = {frozenset(there - word for there in to) for s in sentences for word, to in s.links.get(kind, ())}
        for s, links in zip(sentences, moved):
            assert [word for word, _ in links.get(kind, ())] == [word for word, _ in s.links.get(kind, ())]
            for word, to in links.get(kind, ()):
                assert frozenset(there - word
                                 for there in to) in distances and all(0 <= there < len(s.src.words) for there in to)


def test_a_habit_of_place_gains_nothing_over_the_shuffled_gold():
    "Half of the governors are two back. A head that looks two back scores as well on the shuffled gold."
    rng, made = Random(0), []
    for _ in range(400):
        to = 6 if rng.random() < 0.5 else rng.choice([1, 2, 3])
        made.append(Sentence(SplitLine(["w"] * 10, [], []), SplitLine([], [], []),
                             {"governor": [(8, frozenset({to}))]}))
    habit = one_hot_head([max(i - 2, 0) for i in range(10)], 10)[None, None]
    total = shuffled = 0.0
    for s, links in zip(made, shuffled_links(made)):
        knows = one_hot_head([0] * 8 + list(s.links["governor"][0][1]) + [0], 10)[None, None]
        by_habit = link_sums(habit, s.links["governor"], links["governor"], "governor")["governor"]
        by_knowing = link_sums(knows, s.links["governor"], links["governor"], "governor")["governor"]
        total, shuffled = total + np.array([by_habit.total.item(), by_knowing.total.item()]), \
            shuffled + np.array([by_habit.shuffled.item(), by_knowing.shuffled.item()])
    assert abs(total[0] - shuffled[0]) / 400 < 0.07 and total[1] == 400 and shuffled[1] / 400 < 0.5


def test_the_untrained_model_has_the_shape_and_other_weights_and_leaves_the_generator_alone(translator):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    fresh = heads.untrained(translator.model, 1)
    assert torch.equal(torch.rand(1), expected) and fresh.config == translator.model.config and not fresh.training
    again, other = heads.untrained(translator.model, 1).state_dict(), heads.untrained(translator.model, 2).state_dict()
    same = [torch.equal(value, again[name]) for name, value in fresh.state_dict().items()]
    assert all(same) and not all(torch.equal(value, other[name]) for name, value in again.items())
    assert not any(torch.equal(value, translator.model.state_dict()[name]) for name, value in again.items()
                   if "query" in name)


# --- a model --------------------------------------------------------------------------------------

def test_sums_over_sentences_are_the_shares(translator, sentences):
    measured = measure_heads(translator, sentences)
    weights = dict(word_weights(translator.model, sentences))
    right = links = largest = 0
    for i, s in enumerate(sentences):
        for word, to in s.links.get("antecedent", ()):
            row = weights[i]["encoder"][:, :, word, :-1].clone()
            largest += row.amax(-1).numpy()
            row[..., word] = -1
            right, links = right + np.isin(row.argmax(-1).numpy(), list(to)), links + 1
    m = measured["encoder/antecedent"]
    assert m.count.sum() == links > 3
    np.testing.assert_allclose(m.share(), right / links, atol=1e-6)
    np.testing.assert_allclose(measured["encoder/antecedent, largest"].share(), largest / links, atol=1e-6)
    assert measured["cross/AER"].share().min() < 0.4 and measured["cross/AER"].share("untrained").min() > 0.7
    judged = ["previous", "same", "next", "governor", "dependent", "antecedent", "constituent"]
    judged += [f"{kind}, {what}" for kind in judged[3:] for what in ("weight", "largest")]
    assert set(measured) == {"cross/AER", *(f"encoder/{name}" for name in judged)}


def test_real_text_has_the_measures_that_need_no_gold(translator):
    pairs = [("The dog sleeps.", "Der Hund schl\u00e4ft."), ("", "Nichts."), ("A cat sings.", "Eine Katze singt.")]
    found = text_sentences(translator.vocabulary, pairs)
    assert len(found) == 2
    sums = sentence_sums(dict(word_weights(translator.model, found))[0], {}, {})
    assert set(sums) == {"encoder/previous", "encoder/same", "encoder/next"}


def test_find_heads_chooses_on_one_half_and_tells_the_other():
    trained = np.zeros((10, 2, 2))
    trained[0::2, 0, 1] = 1  # all it knows is in the half that chooses
    trained[:, 1, 0] = 0.5
    nothing = np.zeros_like(trained)
    found = find_heads({"encoder/governor": Measured(trained, nothing, nothing, np.ones(10))})["encoder/governor"]
    assert (found.layer, found.head, found.value, found.holds, found.count) == (0, 1, 0.0, False, 5)
    trained[1::2, 0, 1] = 0.9
    found = find_heads({"encoder/governor": Measured(trained, nothing, nothing, np.ones(10))})["encoder/governor"]
    assert found.value == pytest.approx(0.9) and found.holds and found.over_shuffled == pytest.approx((0.9, 0.9))


def test_less_error_is_better():
    trained, fresh = np.full((20, 1, 3), 0.9), np.full((20, 1, 3), 0.8)
    trained[:, 0, 2] = 0.1
    found = find_heads({"cross/AER": Measured(trained, fresh, fresh, np.ones(20))})["cross/AER"]
    assert found.head == 2 and found.value == pytest.approx(0.1) and found.over_untrained == pytest.approx(
        (0.7, 0.7)) and found.holds


def test_what_has_no_cases_in_a_half_is_not_told():
    count = np.array([1.0, 0, 1, 0])
    assert find_heads({"encoder/antecedent": Measured(*np.zeros((3, 4, 1, 1)), count)}) == {}


# --- the record -----------------------------------------------------------------------------------

def test_the_command_writes_a_record(tmp_path, capsys):
    lines = ["The dog sleeps in the garden.", "A cat sings.", "My sister sees a horse."] * 10
    for name, first in (("train", 0), ("dev", 30), ("test", 60)):  # a pair of two sets would be left out of training
        for language in ("en", "de"):
            (tmp_path / f"{name}.{language}").write_text(
                "".join(f"{line} {i}\n" for i, line in enumerate(lines, first)), encoding="utf-8")
    corpus = tmp_path / "corpus"
    prepared(corpus, {name: [tmp_path / f"{name}.{side}" for side in ("en", "de")]
                      for name in ("train", "dev", "test")}, 60)
    heads.main(["grammar", "--out", str(tmp_path / "out"), "--sentences", "20", "--data", str(corpus)])
    record = find_record("heads_grammar", tmp_path / "out")
    assert record["task"] == "heads" and record["metrics"]["sentences"] == {"grammar": 20, "text": 20} and record[
        "seed"] == 0
    assert record["weights"] == hashlib.sha256(
        (find_run("grammar").folder / "averaged.safetensors").read_bytes()).hexdigest()
    assert record["data"]["sets"]["text"]["split"] == "dev" and "encoder/governor" in record["metrics"]["sets"][
        "grammar"]["heads"]
    for key, measure in record["metrics"]["sets"]["grammar"]["heads"].items():
        assert all(np.shape(measure[what]) == (2, 4)
                   for what in ("trained", "shuffled", "untrained", "margin_low")), key
    assert set(record["metrics"]["sets"]["text"]["found"]) == {"encoder/previous", "encoder/same", "encoder/next"}
    assert "antecedent" in capsys.readouterr().out


def test_a_record_is_the_same_twice(translator, sentences):
    one, two = (summarise(measure_heads(translator, sentences)) for _ in range(2))
    assert one == two == json.loads(json.dumps(one))


@pytest.mark.parametrize("arguments, named",
                         [(["no/such/run"], "no/such/run"), (["grammar", "--sentences", "5"], "--sentences 5"),
                                              (["grammar", "--data", "no/such/corpus"], "no/such/corpus")])
def test_what_goes_wrong_is_one_line(arguments, named, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        heads.main([*arguments, "--out", str(tmp_path / "out")])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and named in said and said.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize("run, out, named", [("grammar-trees", "out", "grammar-trees: the hand-aligned pairs"),
                                             ("grammar", "file/out", "--out")])
def test_what_cannot_be_aligned_or_kept_is_told_before_the_work(run, out, named, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as ended:
        word_alignment.main([run, "--out", str(tmp_path / out)])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and named in said and said.count("\n") == 1 and not (tmp_path / "out").exists()


def test_each_side_is_cut_with_its_own_vocabulary():
    source, target = (BytePairVocabulary.learn([text] * 5, size) for text,
                      size in (("the cow sleeps", 24), ("die kuh schlaeft", 25)))
    both = BytePairVocabulary(target.content, source)
    (pair,) = text_sentences(both, [("the cow sleeps", "die kuh schlaeft")])
    assert pair.src.ids == [*source.encode("the cow sleeps"),
                            END] and pair.tgt.ids == [*target.encode("die kuh schlaeft"), END]
    assert pair.src == word_alignment.to_sentences(both, [AlignedPair(["the", "cow", "sleeps"],
                                                                      ["die", "kuh", "schlaeft"], set(), set())])[0].src


def test_a_vocabulary_that_cannot_write_the_grammar_is_told():
    vocabulary = BytePairVocabulary.learn(["abc abd abe"] * 5, 15)
    with pytest.raises(InputError, match="--data"):
        grammar_sentences(vocabulary, 10)


def test_the_largest_margin_is_chosen_not_the_largest_share():
    trained, shuffled = np.full((10, 1, 2), 0.9), np.full((10, 1, 2), 0.9)
    trained[:, 0, 1], shuffled[:, 0, 1] = 0.5, 0.1
    found = find_heads({"encoder/governor": Measured(trained, shuffled, np.zeros_like(trained),
                                                     np.ones(10))})["encoder/governor"]
    assert (found.head, found.value) == (1, pytest.approx(0.5))


def test_a_trees_words_and_phrases_are_those_of_its_sentence():
    "The grammar's trees, read as a treebank's: the same words, pieces and constituents."
    t = load("grammar")
    for e in islice(examples(5), 100):
        tree = read_tree(e.tree)
        if not 5 <= len(tree.words) <= 40:
            continue
        (sentence,) = tree_sentences(t.vocabulary, [tree], 1)
        assert sentence.src.words == list(e.src_tokens) and sentence.src.ids == t.encode([e.src])[0]
        words = [i for i, tag in enumerate(tree.tags) if tag[0].isalpha()]  # no punctuation
        of_grammar = {i: to for i, to in gold(e)["constituent"] if i in words}
        assert dict(sentence.links["constituent"]) == of_grammar
        found = governors(tree)
        (top,) = set(range(len(tree.words))) - found.keys()  # one word governs them all
        for word in found:
            seen = {word}
            while word != top:
                word = found[word]
                assert word not in seen
                seen.add(word)


def test_too_few_trees():
    with pytest.raises(InputError, match="1 sentences that the run's vocabulary can write"):
        tree_sentences(load("grammar").vocabulary, [read_tree("(S (NP (DT The) (NN dog)) (VP (VBZ is) (ADJP (JJ old))) "
                                                              "(. .))"), read_tree("(S (X \u2603))")], 2)
