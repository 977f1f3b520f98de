"""Vocabularies: text comes back as it went in, the same text gives the same bytes, and what cannot be is said in one
line."""
import io
import random
import string
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_transformer.corpus.cleaning import Cleaning, to_nfc
from annotated_transformer.corpus.corpora import file_corpus
from annotated_transformer.corpus.vocabulary import (
    BytePairVocabulary, WordPieceVocabulary, adopt_model, code_points, collapse_whitespace, drawn_lines, fields,
    kept_vocabulary, learn_vocabulary, load_vocabulary, unknown_parts)
from annotated_transformer.model.symbols import END, PAD, START, UNKNOWN
from annotated_transformer.tools.files import InputError

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
    assert vocabulary.decode(ids) == collapse_whitespace(text)
    assert not {PAD, UNKNOWN, START,
                END} & set(ids) and vocabulary.encode("") == []


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_can_be_encoded(vocabulary, text):
    ids = vocabulary.encode(text)
    assert all(0 <= i < len(vocabulary) for i in ids) and not {PAD, START, END} & set(ids)
    if set(collapse_whitespace(text)) <= set(SIGNS + " "):
        assert vocabulary.decode(ids) == collapse_whitespace(text)


@pytest.mark.parametrize("text", ["don't stop", "don ' t stop", "a,b , c ,d", "(a) [b] {c}", "##a # ## a##", "...", "",
                                  "<s> </s> <pad> <unk>"])
def test_spaces_around_punctuation_stay(vocabulary, text):
    assert vocabulary.decode(vocabulary.encode(text)) == text


def test_unknown_characters_show(vocabulary):
    assert UNKNOWN in vocabulary.encode("東京")
    assert vocabulary.decode(vocabulary.encode("ab 東京 cd")) == "ab \u2047 cd"


def test_special_tokens(vocabulary):
    assert vocabulary.pieces([0, 1, 2, 3]) == ["<pad>", "<unk>", "<s>", "</s>"]
    ids = vocabulary.encode("abra kadabra")
    assert vocabulary.decode([START, *ids, END, PAD, PAD]) == "abra kadabra" and vocabulary.decode([]) == ""
    assert vocabulary.pieces(ids)[0].startswith("\u2581") and len(vocabulary) == 320


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_that_cannot_be(kind):
    text = ["low low low lower newest newest widest"] * 3
    with pytest.raises(InputError, match=r"vocab_size 900: .* at most \d+ tokens") as error:
        kind.learn(text, 900)
    most = int(str(error.value).split("at most ")[1].split()[0])
    assert len(kind.learn(text, most)) == most  # the number named is right: it can be had, one more cannot
    with pytest.raises(InputError, match=f"at most {most} "):
        kind.learn(text, most + 1)
    with pytest.raises(InputError, match=r"vocab_size 7: .* four special tokens take \d+; give") as error:
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


def test_a_vocabulary_with_other_special_tokens_is_refused(tmp_path):
    import sentencepiece
    from tokenizers import Tokenizer, models
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXT), model_prefix=str(tmp_path / "vocabulary"),
                                             vocab_size=150,
                                             model_type="bpe", normalization_rule_name="identity", minloglevel=3)
    with pytest.raises(InputError, match="its four special tokens are not ours: .* --vocabulary"):
        load_vocabulary(tmp_path)
    (tmp_path / "vocabulary.model").unlink()
    (tmp_path / "vocabulary.json").write_text(
        Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]")).to_str())
    with pytest.raises(InputError, match="not a vocabulary"):
        load_vocabulary(tmp_path)


# --- characters -------------------------------------------------------------------------------------------------------

@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(
    "u\u0308\u00ad\u200b\u200c\u200d\u2060\ufeff"), max_size=20))
def test_the_normaliser(text):
    normal = to_nfc(text)
    assert to_nfc(normal) == normal == unicodedata.normalize("NFC",
                                                               normal) and not set(normal) & set(
                                                                   "\u00ad\u200b\u2060\ufeff")
    assert normal.count("\u200c") == text.count("\u200c") and normal.count("\u200d") == text.count(
        "\u200d")  # joiners have a meaning
    assert to_nfc(text.replace("\u00ad", "")) == normal


@pytest.mark.parametrize("kind", KINDS)
def test_behind_its_normaliser_a_word_is_cut_the_same_however_it_is_written(kind, tmp_path):
    vocabulary = kind.learn(TEXT, 320)
    other = unicodedata.normalize("NFD", "\ufeffschö\u00adner\u200b Fluß")
    assert vocabulary.encode(other) == vocabulary.encode("schöner Fluß") and vocabulary.normaliser == "nfc"
    assert UNKNOWN in vocabulary.normalised_by("none").encode(other)
    two = kind(vocabulary.content, kind.learn(TEXT, 310), "none").normalised_by("nfc")
    assert two.source.encode(other) == two.source.encode("schöner Fluß")
    vocabulary.save(tmp_path)  # a folder that does not say: as in version 0.1
    assert load_vocabulary(tmp_path).normaliser == "none"
    (tmp_path / "config.json").write_text('{"data": {"normaliser": "nfc"}}')
    assert load_vocabulary(tmp_path).normaliser == "nfc"
    (tmp_path / "config.json").write_text('{"data": {"normaliser": "nfd"}}')
    with pytest.raises(InputError, match="normaliser 'nfd': there are nfc, none"):
        load_vocabulary(tmp_path)


@pytest.mark.parametrize("odd",
                         ["▅", "</s>", "<s>", "<unk>", "<pad>", "a</s>b", "\U0001f600", "\u0301", "\ue000", "\ufffd"])
def test_every_character_of_the_text_gets_a_token(odd):
    "SentencePiece leaves out lines with its reserved sign, and the letters of its special tokens."
    text = ["low lower newest", f"low {odd} new", f"{odd}est"] * 3
    size = 4 + 3 + len(set("".join(text)))
    vocabulary = BytePairVocabulary.learn(text, size)
    for line in text:
        assert UNKNOWN not in vocabulary.encode(line) and vocabulary.decode(vocabulary.encode(line)) == line


def test_characters_are_named():
    vocabulary = BytePairVocabulary.learn(["low lower newest"] * 3, 20)
    assert unknown_parts(vocabulary, "low ▅\u200e lö\u0000 \u2581") == ["▁", "▅", "\u200e", "ö", "\0"]
    assert code_points("ö") == "ö (U+00F6)" and code_points("\u0301") == "U+0301" and code_points("\0") == "U+0000"
    assert code_points("\U0001f600") == "\U0001f600 (U+1F600)" and code_points("\u00a0") == "U+00A0"


@pytest.mark.parametrize("options", [{}, {"model_type": "unigram"}, {"byte_fallback": True}, {"pad_id": 3},
                                     {"unk_piece": "<UNK>"}, {"control_symbols": "<2de>"},
                                     {"normalization_rule_name": "nfkc_cf"}, {"character_coverage": 0.98}], ids=str)
def test_a_sentencepiece_model_of_ones_own(options, tmp_path):
    "Its pieces and its normaliser are taken over; ids 0 to 3 are ours."
    import sentencepiece
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXT), model_writer=content, minloglevel=3,
                                             **{"vocab_size": 400, "model_type": "bpe",
                                                "hard_vocab_limit": False} | options)
    (tmp_path / "own.model").write_bytes(content.getvalue())
    theirs, ours = sentencepiece.SentencePieceProcessor(model_proto=content.getvalue()), adopt_model(
        tmp_path / "own.model")
    for line in [*TEXT[:20], "ﬁne ＡＢＣ ½ Straße", "東京 tower", unicodedata.normalize("NFD", "schöner"), ""]:
        wanted = [ours.pieces([UNKNOWN])[0] if i == theirs.unk_id() else theirs.IdToPiece(i)
                  for i in theirs.Encode(line)]
        assert ours.pieces(ours.encode(line)) == wanted, line
    ours.save(tmp_path)
    assert load_vocabulary(tmp_path).encode(TEXT[0]) == ours.encode(TEXT[0])
    processor = sentencepiece.SentencePieceProcessor(model_proto=ours.content)  # as exports read it
    assert (processor.pad_id(), processor.unk_id(), processor.bos_id(),
            processor.eos_id()) == (PAD, UNKNOWN, START, END)
    assert {field for field, _ in fields(ours.content)} >= {1, 2, 3}


def test_models_that_cannot_be_taken_over(tmp_path):
    import sentencepiece
    with pytest.raises(InputError, match="own.model: No such file"):
        adopt_model(tmp_path / "own.model")
    for content in (b"", b"text", bytes(range(256))):
        (tmp_path / "own.model").write_bytes(content)
        with pytest.raises(InputError, match="not a SentencePiece model, or cut short"):
            adopt_model(tmp_path / "own.model")
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["of the house"] * 9 + TEXT),
                                             model_prefix=str(tmp_path / "own"),
                                             vocab_size=300, model_type="bpe", split_by_whitespace=False, minloglevel=3)
    with pytest.raises(InputError, match="run over spaces"):
        adopt_model(tmp_path / "own.model")


# --- of a corpus ------------------------------------------------------------------------------------------------------

@pytest.fixture
def corpus(tmp_path):
    "Two hundred pairs; with white space of other kinds in a few."
    path = tmp_path / "text.tsv"
    path.write_text("".join(f"{src}\t{tgt} \u2028 {i}\n" for i, (src, tgt) in enumerate(zip(TEXT, reversed(TEXT)))),
                    encoding="utf-8")
    return file_corpus(tmp_path / "corpus", "en", "de", [path], cleaning=Cleaning(max_ratio=100), holdout=1)


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
    assert first.digest == kind.learn(drawn_lines(corpus, 190),
                                      300).digest != kind.learn(drawn_lines(corpus), 300).digest
    assert kept_vocabulary(corpus, kind, 300, 190).digest == first.digest
    other = KINDS[1 - KINDS.index(kind)]
    for asked in ((kind, 301, 190), (kind, 300, 191), (other, 300, 190)):
        assert kept_vocabulary(corpus, *asked) is None
    learned, path = corpus.folder / "learned.json", corpus.folder / f"vocabulary{kind.suffix}"
    for file, content in ((learned, b""), (learned, b"[1]"), (path, first.content[:-30]),
                          (path, kind.learn(TEXT, 300).content)):
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
