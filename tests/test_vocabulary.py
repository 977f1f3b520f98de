"""Vocabularies: text comes back as it went in, the same text gives the same bytes, and what cannot be is said in one line."""
import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_transformer.corpus.corpora import file_corpus
from annotated_transformer.tools.files import InputError
from annotated_transformer.model.transformer import END, PAD, START, UNKNOWN
from annotated_transformer.corpus.vocabulary import (BytePairVocabulary, WordPieceVocabulary, drawn_lines, kept_vocabulary,
                                              learn_vocabulary, load_vocabulary, spaced)

KINDS = [BytePairVocabulary, WordPieceVocabulary]
SIGNS = string.ascii_letters + string.digits + string.punctuation + "äöüßÄÖÜéè„“–…"


def make_text(n: int = 200) -> list[str]:
    "Lines of made-up words; every character of SIGNS occurs, each at least once at the beginning of a word."
    rng = random.Random(0)
    words = ["".join(rng.choices("aeioubdgklmnrst", k=rng.randint(1, 8))) for _ in range(60)]
    return [" ".join(rng.choices(words, k=9)) for _ in range(n)] + [" ".join(SIGNS)]


TEXT = make_text()


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def vocabulary(request):
    return request.param.learn(TEXT, 320)


@settings(max_examples=150, deadline=None)
@given(text=st.text(SIGNS + " \t\n\u00a0\u2581", max_size=60))
def test_known_text_comes_back(vocabulary, text):
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == spaced(text)
    assert not {PAD, UNKNOWN, START, END} & set(ids) and vocabulary.encode_batch([text, "a", ""]) == [ids, vocabulary.encode("a"), []]


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_can_be_encoded(vocabulary, text):
    ids = vocabulary.encode(text)
    assert all(0 <= i < len(vocabulary) for i in ids) and not {PAD, START, END} & set(ids)
    if set(spaced(text)) <= set(SIGNS + " "):
        assert vocabulary.decode(ids) == spaced(text)


@pytest.mark.parametrize("text", ["don't stop", "don ' t stop", "a,b , c ,d", "(a) [b] {c}", "##a # ## a##", "...", "", "<s> </s> <pad> <unk>"])
def test_spaces_around_punctuation_stay(vocabulary, text):
    assert vocabulary.decode(vocabulary.encode(text)) == text


def test_unknown_characters_show(vocabulary):
    assert UNKNOWN in vocabulary.encode("東京")
    assert vocabulary.decode(vocabulary.encode("ab 東京 cd")) == "ab \u2047 cd"


def test_special_symbols(vocabulary):
    assert vocabulary.pieces([0, 1, 2, 3]) == ["<pad>", "<unk>", "<s>", "</s>"]
    ids = vocabulary.encode("abra kadabra")
    assert vocabulary.decode([START, *ids, END, PAD, PAD]) == "abra kadabra" and vocabulary.decode([]) == ""
    assert vocabulary.pieces(ids)[0].startswith("\u2581") and len(vocabulary) == 320


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_text_gives_the_same_bytes(kind):
    assert len({kind.learn(iter(TEXT), 300).content for _ in range(3)}) == 1
    assert kind.learn(TEXT, 301).digest != kind.learn(TEXT, 300).digest


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_that_cannot_be(kind):
    text = ["low low low lower newest newest widest"] * 3
    with pytest.raises(InputError, match=r"vocab_size 900: .* at most \d+ symbols") as error:
        kind.learn(text, 900)
    most = int(str(error.value).split("at most ")[1].split()[0])
    assert len(kind.learn(text, most)) == most  # the number named is right: it can be had, one more cannot
    with pytest.raises(InputError, match=f"at most {most} "):
        kind.learn(text, most + 1)
    with pytest.raises(InputError, match=r"vocab_size 7: .* four special symbols take \d+; give") as error:
        kind.learn(text, 7)
    least = int(str(error.value).split("take ")[1].split(";")[0])
    assert len(kind.learn(text, least)) == least
    with pytest.raises(InputError, match=f"take {least};"):
        kind.learn(text, least - 1)
    with pytest.raises(InputError, match="vocab_size 2: "):
        kind.learn(text, 2)
    for nothing in ([], [""], ["", "  "]):
        with pytest.raises(InputError, match="no text"):
            kind.learn(nothing, 50)


def test_kept_in_a_folder(vocabulary, tmp_path):
    with pytest.raises(InputError, match="no vocabulary in this folder"):
        load_vocabulary(tmp_path)
    for kind in KINDS:  # the last one saved counts
        kind.learn(TEXT, 200).save(tmp_path)
    vocabulary.save(tmp_path)
    loaded = load_vocabulary(tmp_path)
    assert type(loaded) is type(vocabulary) and loaded.digest == vocabulary.digest
    assert loaded.encode("abra") == vocabulary.encode("abra") and len(list(tmp_path.iterdir())) == 1


def test_damaged_files(vocabulary, tmp_path):
    path, whole = vocabulary.save(tmp_path), vocabulary.content
    lengths = range(0, len(whole), max(1, len(whole) // 150))
    for damaged in [whole[:n] for n in lengths] + [whole[:-1], b"\xff\xfe" * 50, b"{}", b"null", b"[1]"]:
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="not a vocabulary, or cut short"):
            load_vocabulary(tmp_path)


def test_a_vocabulary_with_other_special_symbols_is_refused(tmp_path):
    import sentencepiece
    from tokenizers import Tokenizer, models
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXT), model_prefix=str(tmp_path / "vocabulary"), vocab_size=150,
                                             model_type="bpe", normalization_rule_name="identity", minloglevel=3)
    with pytest.raises(InputError, match="not a vocabulary"):
        load_vocabulary(tmp_path)
    (tmp_path / "vocabulary.model").unlink()
    (tmp_path / "vocabulary.json").write_text(Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]")).to_str())
    with pytest.raises(InputError, match="not a vocabulary"):
        load_vocabulary(tmp_path)


# --- of a corpus -------------------------------------------------------------------------------------------------------------

@pytest.fixture
def corpus(tmp_path):
    "Two hundred pairs; with white space of other kinds in a few."
    path = tmp_path / "text.tsv"
    path.write_text("".join(f"{src}\t{tgt} \u2028 {i}\n" for i, (src, tgt) in enumerate(zip(TEXT, reversed(TEXT)))), encoding="utf-8")
    return file_corpus(tmp_path / "corpus", "en", "de", [path], holdout=1, max_ratio=100)


def test_drawn_lines(corpus):
    pairs = list(corpus.pairs("train"))
    for sample in (len(pairs), 500_000):
        assert list(drawn_lines(corpus, sample)) == [line for pair in pairs for line in pair]
    drawn = list(drawn_lines(corpus, 150))
    kept = list(zip(drawn[::2], drawn[1::2]))
    assert len(kept) == 150 and kept == [pair for pair in pairs if pair in set(kept)]  # in their order, each once
    assert drawn == list(drawn_lines(corpus, 150)) and kept != pairs[:150] and kept != pairs[-150:]


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_is_kept_for_what_it_was_learned_from(kind, corpus):
    assert kept_vocabulary(corpus, kind, 300) is None
    first = learn_vocabulary(corpus, kind, 300, sample=190)
    assert first.digest == kind.learn(drawn_lines(corpus, 190), 300).digest != kind.learn(drawn_lines(corpus), 300).digest
    assert kept_vocabulary(corpus, kind, 300, 190).digest == first.digest
    other = KINDS[1 - KINDS.index(kind)]
    for asked in ((kind, 301, 190), (kind, 300, 191), (other, 300, 190)):
        assert kept_vocabulary(corpus, *asked) is None
    learned, path = corpus.folder / "learned.json", corpus.folder / f"vocabulary{kind.suffix}"
    for file, content in ((learned, b""), (learned, b"[1]"), (path, first.content[:-30]), (path, kind.learn(TEXT, 300).content)):
        whole = file.read_bytes()
        file.write_bytes(content)
        assert kept_vocabulary(corpus, kind, 300, 190) is None
        file.write_bytes(whole)
    assert kept_vocabulary(corpus, kind, 300, 190).digest == first.digest
    another = corpus.folder.parent / "b.tsv"
    another.write_text("".join(f"{line}\t{line}\n" for line in TEXT), encoding="utf-8")
    note = learned.read_bytes()
    replaced = file_corpus(corpus.folder, "en", "de", [another], holdout=1, overwrite=True)
    first.save(replaced.folder)
    learned.write_bytes(note)
    assert kept_vocabulary(replaced, kind, 300, 190) is None  # it is another text's
