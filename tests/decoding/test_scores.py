"Scores: words cut as Moses does, worked out by hand from its rules; counts by hand."
import html
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_transformer.corpus import corpora, grammar
from annotated_transformer.decoding.scores import (
    bleu, chrf, moses_languages, moses_tokens, paper_bleu, paper_tokens, replace_unicode_punctuation, score,
    split_compounds, word_perplexity)
from annotated_transformer.tools.files import InputError
from annotated_transformer.training.regularization import Quality
from here import shared


# --- words ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("language, line, tokens", [
    # every sign but . , ' - ` stands alone
    ("de", 'Er rief: "Halt!" (laut) – 50% & mehr; a/b=c?',
     'Er rief : &quot; Halt ! &quot; ( laut ) – 50 % &amp; mehr ; a / b = c ?'),
    ("de", "„Ja“ «nein» ‚vielleicht‘ 3€ §5 a_b", "„ Ja “ « nein » ‚ vielleicht ‘ 3 € § 5 a _ b"),
    ("de", "Nord-Süd-Bahn -20° wieder- `so`", "Nord-Süd-Bahn -20 ° wieder- `so`"),
    # XML's way, & first
    ("de", "[a|b] <c> &amp;", "&#91; a &#124; b &#93; &lt; c &gt; &amp; amp ;"),
    # a comma stays between digits alone
    ("de", "1,5 und 1.000,50, a,b und 3,a und b,3 oder 7,", "1,5 und 1.000,50 , a , b und 3 , a und b , 3 oder 7 ,"),
    ("de", "eins,zwei,drei ½,½", "eins , zwei , drei ½ , ½"),
    # full stops: an abbreviation that is listed, a full stop within, a word in lower case behind it; else it goes
    ("de", "Dr. Weber und Frau Weber. Herr Meier", "Dr. Weber und Frau Weber . Herr Meier"),
    ("de", "z.B. Anna, d.h. Otto. das Ende. 1. Mai 100. Mal.", "z.B. Anna , d.h. Otto. das Ende . 1. Mai 100 . Mal ."),
    ("de", "Ende. „Gut“ Ende. 5 Ende. - nein", "Ende . „ Gut “ Ende . 5 Ende . - nein"),
    ("de", "Warte... was.. Hm.... nein.", "Warte ... was .. Hm .... nein ."),
    ("de", "Er sagt . Nein .", "Er sagt . Nein ."),
    ("de", "Geht's gut? 'Ach', so 'n Ding'.", "Geht &apos; s gut ? &apos; Ach &apos; , so &apos; n Ding &apos; ."),
    ("de", "Das war's. Ende.", "Das war &apos; s. Ende ."),  # single letters are listed
    # the apostrophe: alone in German, with what stands before it in French, with what stands behind it in English
    ("fr", "L'homme qu'on a vu aujourd'hui, c'est '68.",
     "L&apos; homme qu&apos; on a vu aujourd&apos; hui , c&apos; est &apos; 68 ."),
    ("fr", "M. Dupont dit : « Oui ! »", "M. Dupont dit : « Oui ! »"),
    ("en", "The dogs' bone isn't John's, in the 1990's.",
     "The dogs &apos; bone isn &apos;t John &apos;s , in the 1990 &apos;s ."),
    ("es", "D'Artagnan", "D &apos; Artagnan"),
    # white space of any kind is a space, control characters go, letters of all scripts are letters
    ("de", " a\u00a0b\tc\u2003d\u2028e\x0bf ", "a b c d e f"),
    ("de", "a\x00b\x1cc\x1fd", "abcd"),
    ("de", "東京タワー 서울 Москва हिन्दी", "東京タワー 서울 Москва हिन ् दी"),
    ("de", "e\u0301t\u00adt", "e \u0301 t \u00ad t"),
    ("de", "", ""), ("de", " \u00a0 ", ""), ("de", ".", "."), ("de", ",", ","), ("de", "...", "..."),
])
def test_moses_words_by_hand(language, line, tokens):
    assert moses_tokens(line, language).split() == tokens.split()


def test_full_stop_of_the_last_word_goes_by_the_older_rule():
    "As in the Moses of the paper's year: an abbreviation keeps its full stop at the end of a line too."
    assert moses_tokens("Das kostet 3 Mio.", "de") == "Das kostet 3 Mio."
    assert moses_tokens("bei Amazon.com.", "de") == "bei Amazon.com."
    assert moses_tokens("nach Amazon.", "de") == "nach Amazon ."


def test_signs_are_replaced_as_the_script_does():
    assert replace_unicode_punctuation("”a“ „b‘ c’d … x～y ％ （z） ０２３４５６７８９") \
        == "\"a\" „b‘ c'd ... x~y % (z) 023456789"
    assert replace_unicode_punctuation("１") == '"'  # the script's own slip
    assert replace_unicode_punctuation("Ende。  Neu．a、b：c；d？e！f《g》〈h〉【i】「j」━") \
        == 'Ende. Neu. a,b:c;d?e!f"g"<h>[i]"j"-'


def test_compounds_are_split_in_one_pass():
    at = " ##AT##-##AT## "
    assert split_compounds("E-Mail") == f"E{at}Mail"
    assert split_compounds("Blau-Weiß-Fest und A-B-C") == f"Blau{at}Weiß{at}Fest und A{at}B-C"  # B has been used up
    assert split_compounds("a - b -c d- 5-6 x--y ---") == f"a - b -c d- 5{at}6 x{at}-y {at.strip().join(['- ', ' -'])}"
    assert paper_tokens("„Die E-Mail.“") == f"„ Die E{at}Mail . &quot;"
    assert paper_tokens("L'e-mail", "fr", compounds=False) == "L&apos; e-mail"


def test_one_text_is_no_list_and_a_tokeniser_has_a_name():
    for texts in (("Ein Hund.", ["Ein Hund."]), (["Ein Hund."], "Ein Hund."), ("a", "a")):
        with pytest.raises(InputError, match="one text, where a list of lines is needed"):
            bleu(*texts)
    with pytest.raises(InputError, match="tokenize foo: there are 13a, "):
        bleu(["a"], ["a"], tokenize="foo")


def test_unknown_language():
    with pytest.raises(InputError, match="'tlh'.*de.*fr"):
        paper_bleu(["a"], ["b"], "tlh")
    assert {"de", "en", "fr"} <= set(moses_languages())


# --- counts -----------------------------------------------------------------------------------------------------------

def test_paper_bleu_by_hand():
    "Seven words, the third wrong; with the compound split nine, the fifth wrong."
    made, wanted = ["Die neue E-Post kam heute an."], ["Die neue E-Mail kam heute an."]
    whole = 100 * (6 / 7 * 4 / 6 * 2 / 5 * 1 / 4) ** (1 / 4)
    split = 100 * (8 / 9 * 6 / 8 * 4 / 7 * 2 / 6) ** (1 / 4)
    assert math.isclose(paper_bleu(made, wanted, compounds=False).value, whole)
    assert math.isclose(paper_bleu(made, wanted).value, split)
    assert math.isclose(paper_bleu(made, wanted, "fr").value, whole)  # no splitting but in German
    assert paper_bleu(["Die neue E-Post kam dann doch."], wanted, "fr").value == 0  # not one 4-gram, and no smoothing
    assert paper_bleu(["die neue E-mail kam heute an."], wanted).value < 60  # case counts


def test_shorter_translations_are_punished():
    made, wanted = ["eins zwei drei vier"], ["eins zwei drei vier fünf"]
    assert math.isclose(paper_bleu(made, wanted).value, 100 * math.exp(1 - 5 / 4))
    assert math.isclose(bleu(made, wanted).value, 100 * math.exp(1 - 5 / 4))


def test_a_word_perplexity_beyond_all_measure_is_a_number():
    assert word_perplexity(Quality(1e300, 0.0, tokens=5000), ["eins"]) < math.inf


def test_intervals():
    lines = [e.tgt for _, e in zip(range(80), grammar.examples(seed=5))]
    worse = [line.replace("ein", "kein") for line in lines]
    found = score(worse, lines, "de", samples=200)
    assert set(found) == {"sacrebleu", "chrf", "bleu_moses", "bleu_paper", "bleu_paper_2017"}
    for name, s in found.items():
        low, high = s.interval
        assert low < s.value < high <= 101 and "bs:200" in s.signature, name
    assert score(worse, lines, "de", samples=200) == found  # the same samples each time
    assert bleu(worse, lines).interval is None and set(score(worse, lines, "tlh", samples=0)) == {"sacrebleu", "chrf"}
    assert "tok:13a" in found["sacrebleu"].signature and "tok:moses-de-compounds-" in found["bleu_paper"].signature


def test_lines_that_are_not_as_many():
    for made, wanted in ((["a"], ["b", "c"]), ([], []), (["a"], [])):
        with pytest.raises(InputError, match=f"{len(made)} translations and {len(wanted)} references"):
            score(made, wanted, "de")


WORDS = st.lists(st.sampled_from(
    "der die Hund Katze E-Mail Nord-Süd-Bahn 1,5 Dr. usw. „ja“ läuft, nein! l'eau A-B-C ... 3. &".split()),
                 min_size=4, max_size=12).map(" ".join)
SIGNS = "abcÄß019 \u00a0.,'’-–\"„“&<>[]|()%€$/:;!?`中́"


@settings(max_examples=50, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=5))
def test_identical_text_scores_100(lines):
    assert all(math.isclose(s.value, 100) for s in score(lines, lines, "de", samples=0).values())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6), st.randoms())
def test_the_order_of_sentences_does_not_matter(pairs, random):
    mixed = random.sample(pairs, len(pairs))
    for count in (bleu, chrf, paper_bleu):
        assert math.isclose(count(*map(list, zip(*pairs))).value, count(*map(list, zip(*mixed))).value)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6))
def test_without_hyphens_nothing_is_split(pairs):
    made, wanted = ([line.replace("-", "") for line in lines] for lines in zip(*pairs))
    assert paper_bleu(made, wanted).value == paper_bleu(made, wanted, compounds=False).value


@settings(max_examples=300, deadline=None)
@given(st.text(SIGNS, max_size=40), st.sampled_from(["de", "fr", "en"]))
def test_cutting_into_words_loses_nothing(line, language):
    "But for spaces and XML's ways of writing, the words are the text."
    tokens = moses_tokens(line, language)
    assert html.unescape("".join(tokens.split())) == "".join(line.split())
    assert "".join(split_compounds(tokens).replace(" ##AT##-##AT## ", "-").split()) == "".join(tokens.split())


# --- the real thing, where it is at hand ------------------------------------------------------------------------------

@pytest.mark.slow
def test_bleu_of_newstest2017_to_two_hundredths():
    folder = shared("bleu_reference")
    read = lambda name: list(corpora.lines(folder / name))  # noqa: E731
    columns, *rows = [line.split("\t") for line in read("expected.tsv")]
    assert columns == ["system", "sacrebleu_13a", "moses_tokenised",
                       "moses_tokenised_compounds_split"] and len(rows) == 2
    wanted = read("newstest2017.reference.de")
    for system, *expected in rows:
        made = read(system)
        found = bleu(made, wanted), paper_bleu(made, wanted, compounds=False), paper_bleu(made, wanted)
        assert [s.value for s in found] == pytest.approx(list(map(float, expected)), abs=0.02)


def test_words_of_newstest2014():
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
    german, french = (list(corpora.lines(shared("newstest") / f"newstest2014.en-{code}.{code}"))
                      for code in ("de", "fr"))
    count = lambda cut, lines: sum(len(cut(line).split()) for line in lines)  # noqa: E731
    assert len(german) == len(french) == 3003
    assert count(Tokenizer13a(), german) == 62_688 and count(Tokenizer13a(), french) == 77_306
    assert count(lambda line: paper_tokens(line, compounds=False), german) == 63_078
    assert count(paper_tokens, german) == 64_496


def test_chrf_of_lines_that_hardly_match_has_an_interval():
    "Of the bootstrap's samples some match nothing at all."
    assert chrf(["x", "", "q"], ["x y z", "some words here", "others"], samples=50).interval is not None
