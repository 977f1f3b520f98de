"""Scores: words cut as Moses does, worked out by hand from its rules; counts by hand; `evaluate` on runs and on
files, and what is wrong there."""
import html
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_transformer.commands import cli
from annotated_transformer.corpus import corpora, grammar, sources
from annotated_transformer.corpus.vocabulary import BytePairVocabulary, load_vocabulary
from annotated_transformer.decoding import translation
from annotated_transformer.decoding.scores import (
    bleu,
    chrf,
    moses_languages,
    moses_tokens,
    paper_bleu,
    paper_tokens,
    replace_unicode_punctuation,
    score,
    split_compounds,
    word_perplexity,
)
from annotated_transformer.model.transformer import BASE
from annotated_transformer.tools.files import InputError
from annotated_transformer.training.regularization import Quality
from annotated_transformer.training.runs import Run
from here import ROOT

SHARED = Path(os.environ.get("ANNOTATED_SHARED", ROOT.parent / "shared")) / "data"
PRETRAINED = ROOT / "annotated_transformer" / "pretrained" / "grammar"


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


def test_word_perplexity_by_hand():
    assert math.isclose(word_perplexity(Quality(4.0, 1.0, tokens=3), ["Haustür"]), 8.0)
    assert math.isclose(word_perplexity(Quality(2.0, 1.0, tokens=12), ["eins zwei", " drei  "]), 2.0 ** (12 / 5))
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

needs_data = pytest.mark.skipif(not SHARED.exists() and "ANNOTATED_SHARED" not in os.environ,
                                reason="the texts are not here: set ANNOTATED_SHARED to the folder that holds data/")


@needs_data
def test_bleu_of_newstest2017_to_two_hundredths():
    folder = SHARED / "bleu_reference"
    read = lambda name: list(corpora.lines(folder / name))  # noqa: E731
    columns, *rows = [line.split("\t") for line in read("expected.tsv")]
    assert columns == ["system", "sacrebleu_13a", "moses_tokenised",
                       "moses_tokenised_compounds_split"] and len(rows) == 2
    wanted = read("newstest2017.reference.de")
    for system, *expected in rows:
        made = read(system)
        found = bleu(made, wanted), paper_bleu(made, wanted, compounds=False), paper_bleu(made, wanted)
        assert [s.value for s in found] == pytest.approx(list(map(float, expected)), abs=0.02)


@needs_data
def test_words_of_newstest2014():
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
    german, french = (list(corpora.lines(SHARED / "newstest" / f"newstest2014.en-{code}.{code}"))
                      for code in ("de", "fr"))
    count = lambda cut, lines: sum(len(cut(line).split()) for line in lines)  # noqa: E731
    assert len(german) == len(french) == 3003
    assert count(Tokenizer13a(), german) == 62_688 and count(Tokenizer13a(), french) == 77_306
    assert count(lambda line: paper_tokens(line, compounds=False), german) == 63_078
    assert count(paper_tokens, german) == 64_496


# --- evaluate ---------------------------------------------------------------------------------------------------------

def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def texts(tmp_path):
    "Sources, references and a file of translations with slips: ten sentences of the grammar."
    some = [e for _, e in zip(range(10), grammar.examples(seed=9))]
    return (write(tmp_path / "text.en", [e.src for e in some]), write(tmp_path / "text.de", [e.tgt for e in some]),
            write(tmp_path / "out.de", [e.tgt.replace("ein", "kein") for e in some]))


def test_the_search_that_is_asked_for_is_made(monkeypatch, capsys, tmp_path):
    asked, real = [], translation.beam_search
    monkeypatch.setattr(translation, "beam_search",
                        lambda model, src, config: asked.append((config.beam_size, config.alpha))
                        or real(model, src, config))
    pairs = [(e.src, e.tgt) for e in itertools.islice(grammar.examples(3), 4)]
    translation.evaluate(translation.load("grammar"), *map(list, zip(*pairs)), beam_size=3, alpha=1.5, samples=0)
    for side, lines in zip(("src", "ref"), zip(*pairs)):
        (tmp_path / side).write_text("\n".join(lines) + "\n", encoding="utf-8")
    cli.main(["evaluate", "grammar", "--src", str(tmp_path / "src"), "--ref", str(tmp_path / "ref"), "--beam-size", "2",
              "--alpha", "0.7"])
    assert set(asked) == {(3, 1.5), (2, 0.7)}


def evaluated(capsys, *arguments):
    "Standard output and standard error of `evaluate`."
    capsys.readouterr()
    cli.main(["evaluate", *map(str, arguments)])
    return capsys.readouterr()


def fails(capsys, arguments, *named):
    "`evaluate` must end with code 2, nothing on standard output, and one line that names all of `named`."
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        cli.main(["evaluate", *map(str, arguments)])
    out, told = capsys.readouterr()
    assert end.value.code == 2 and out == "" and told.count("\n") == 1 and told.startswith(
        "annotated-transformer: "), told
    for name in named:
        assert str(name) in told, told


def test_evaluate_a_file(texts, capsys, tmp_path):
    _, wanted, made = texts
    out, told = evaluated(capsys, "--translations", made, "--references", wanted)
    assert "text: 10 sentences" in out and "sacreBLEU" in out and "chrF" in out
    assert "BLEU, 2018" in out and "perplexity" not in out
    assert "tok:13a" in out and " to " in out and told.startswith("Next: ")
    assert evaluated(capsys, "--translations", made, "--ref", wanted, "--language", "fr").out != out
    write(tmp_path / "wanted.txt", wanted.read_text().splitlines())
    out, told = evaluated(capsys, "--translations", made, "--references", tmp_path / "wanted.txt")
    assert "BLEU, 2018" not in out and "--language" in told


def test_evaluate_writes_json_alone(texts, capsys, tmp_path):
    src, wanted, made = texts
    lines = [path.read_text(encoding="utf-8").splitlines() for path in (made, wanted)]
    found = json.loads(evaluated(capsys, "--translations", made, "--references", wanted, "--json", "--record",
                                 tmp_path / "kept.json").out)
    expected = score(*lines, "de")
    assert found["metrics"] == {name: s.value for name,
                                s in expected.items()} and found["set"] == "text" and found["sentences"] == 10
    assert found["intervals"] == {name: list(s.interval) for name, s in expected.items()}
    assert found["signatures"] == {name: s.signature for name, s in expected.items()}
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert kept["metrics"] == {f"{name}/text": round(s.value, 4) for name,
                               s in expected.items()} and kept["name"] == "kept"
    assert kept["task"] == "translation" and set(kept["intervals"]) == set(kept["metrics"]) and kept["data"][
        "sizes"] == {"text": 10}
    found = json.loads(evaluated(capsys, "--translations", made, "--references", wanted, "--json", "--against",
                                 wanted).out)["against"]
    assert {kind: set(than) for kind,
            than in found.items()} == dict.fromkeys(("sacrebleu", "chrf"), {"value", "p", "signature"})
    assert found["sacrebleu"]["value"] == pytest.approx(expected["sacrebleu"].value - 100)
    found = json.loads(evaluated(capsys, "grammar", "--src", src, "--references", wanted, "--beam-size", "1",
                                 "--json").out)
    assert {"sacrebleu", "chrf", "bleu_moses", "bleu_paper", "bleu_paper_2017", "perplexity", "perplexity_per_word",
            "accuracy"} == set(found["metrics"])
    assert found["search"] == {"beam_size": 1,
                               "alpha": 0.6} and found["metrics"]["perplexity_per_word"] > found["metrics"][
                                   "perplexity"] > 1


@pytest.fixture
def wmt(tmp_path):
    "A corpus laid out as WMT 2014's, and a run that names it: the shipped weights with another config."
    some = [e for _, e in zip(range(24), grammar.examples(seed=11))]
    source = tmp_path / "source"
    source.mkdir()
    for stem, part in (("train", some[:8]), ("newstest2013.en-de", some[8:16]), ("newstest2014.en-de", some[16:])):
        write(source / f"{stem}.en", [e.src for e in part])
        write(source / f"{stem}.de", [e.tgt for e in part])
    write(source / "newstest2014.en-de.filtered_2737.indices", [0, 2, 3, 5])
    corpus = sources.wmt14(tmp_path / "wmt", "de", source)
    run = shutil.copytree(PRETRAINED, tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    config["data"] |= {"folder": str(corpus.folder),
                       "splits": {name: {"sha256": f["sha256"]} for name, f in corpus.splits.items()}}
    (run / "config.json").write_text(json.dumps(config))
    return run


def test_records_name_the_test_set_and_its_size(wmt, capsys, tmp_path):
    "newstest2013 to develop with, unless told otherwise; both sizes of newstest2014, each under a name of its own."
    for split, name, n in ((None, "newstest2013", 8), ("newstest2014_full", "newstest2014_full", 8),
                           ("newstest2014_filtered_2737", "newstest2014_filtered_2737", 4)):
        out = evaluated(capsys, wmt, "--beam-size", "1", *(["--split", split] if split else []), "--record",
                        tmp_path / "kept.json").out
        assert f"{name}: {n} sentences" in out and "per token, " in out and "per word\n" in out
    kept = json.loads((tmp_path / "kept.json").read_text())
    for name in ("newstest2013", "newstest2014_full", "newstest2014_filtered_2737"):
        metrics = {kind.split("/")[0] for kind in kept["metrics"] if kind.endswith(f"/{name}")}
        assert metrics == {"sacrebleu", "chrf", "bleu_moses", "bleu_paper", "bleu_paper_2017", "perplexity",
                           "perplexity_per_word", "accuracy"}
        assert kept["search"][name] == {"beam_size": 1, "alpha": 0.6} and f"chrf/{name}" in kept["intervals"]
    assert json.loads((wmt / "record.json").read_text())["metrics"] == kept["metrics"]


def test_a_language_without_rules(wmt, capsys):
    "A run into it is scored, but for the paper's BLEU; asking for it by name is an error."
    config = json.loads((wmt / "config.json").read_text())
    config["data"]["tgt"] = "tlh"
    (wmt / "config.json").write_text(json.dumps(config))
    out, told = evaluated(capsys, wmt, "--beam-size", "1")
    assert "sacreBLEU" in out and "BLEU, 2018" not in out and "Moses has no rules for tlh" in told
    fails(capsys, [wmt, "--language", "tlh"], "tlh", "de, ")


# --- what is wrong ----------------------------------------------------------------------------------------------------

def test_references_of_another_length(texts, capsys, tmp_path):
    src, wanted, made = texts
    short = write(tmp_path / "short.de", ["eins", "zwei", "drei"])
    fails(capsys, ["--translations", made, "--references", short], "out.de has 10", "short.de has 3")
    fails(capsys, ["--translations", short, "--references", wanted], "short.de has 3", "text.de has 10")
    fails(capsys, ["grammar", "--src", src, "--references", short], "text.en has 10", "short.de has 3")


def test_files_that_cannot_be_read(texts, capsys, tmp_path):
    src, wanted, made = texts
    (tmp_path / "latin.de").write_bytes(b"eins\nzwei\nStra\xdfe\n" + b"x\n" * 7)
    (tmp_path / "empty.de").write_bytes(b"")
    for bad, named in (("latin.de", ("latin.de, line 3", "UTF-8")), ("empty.de", ("empty.de is empty",)),
                       ("none.de", ("none.de does not exist",))):
        fails(capsys, ["--translations", tmp_path / bad, "--references", wanted], *named)
        fails(capsys, ["--translations", made, "--references", tmp_path / bad], *named)
        fails(capsys, ["grammar", "--src", src, "--references", tmp_path / bad], *named)


@pytest.mark.parametrize("arguments, named", [
    ([], ["run directory", "--translations"]),
    (["grammar", "--translations", "OUT", "--references", "REF"], ["not both"]),
    (["--translations", "OUT"], ["--references"]),
    (["--translations", "OUT", "--references", "REF", "--split", "test"], ["--split"]),
    (["--translations", "OUT", "--references", "REF", "--language", "klingon"], ["klingon"]),
    (["grammar", "--src", "SRC"], ["--references"]),
    (["grammar", "--src", "SRC", "--references", "REF", "--split", "test"], ["--split"]),
    (["grammar", "--src", "SRC", "--references", "REF", "--beam-size", "0"], ["--beam-size 0"]),
    (["grammar", "--src", "SRC", "--references", "REF", "--alpha", "nan"], ["alpha nan"]),
    (["grammar", "--src", "SRC", "--references", "REF", "--alpha", "abc"], ["--alpha", "abc"]),
    (["grammar", "--src", "SRC", "--references", "REF", "--beam-size", "two"], ["--beam-size", "two"]),
    (["grammar", "--src", "SRC", "--references", "REF", "--language", "tlh"], ["tlh"]),
])
def test_wrong_options(texts, capsys, arguments, named):
    places = dict(zip(("SRC", "REF", "OUT"), texts))
    fails(capsys, [places.get(a, a) for a in arguments], *named)


def test_unknown_set(wmt, capsys, tmp_path):
    fails(capsys, [wmt, "--split", "newstest2015"], "newstest2015", "newstest2014_full", "newstest2014_filtered_2737")
    fails(capsys, [wmt, "--data", tmp_path / "nowhere"], "nowhere")


def test_record_of_text_that_is_not_the_runs(wmt, capsys, tmp_path):
    "Said before the work begins."
    corpora.grammar_corpus(tmp_path / "other", 10, 5, 5, 5)
    fails(capsys, [wmt, "--data", tmp_path / "other", "--split", "test", "--record", tmp_path / "kept.json"],
          "kept.json")
    assert not (tmp_path / "kept.json").exists()


def test_run_without_a_checkpoint(texts, capsys, tmp_path):
    src, wanted, _ = texts
    vocabulary = load_vocabulary(PRETRAINED)
    small = replace(BASE, vocab_size=len(vocabulary), n_layers=1, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8)
    Run.create(tmp_path / "run", small, {"seed": 0}, {"vocabulary": vocabulary.digest, "tgt": "de"}, vocabulary)
    fails(capsys, [tmp_path / "run", "--src", src, "--references", wanted], "no checkpoint yet", "train")


def test_vocabulary_that_is_not_the_runs(texts, capsys, tmp_path):
    src, wanted, _ = texts
    run = shutil.copytree(PRETRAINED, tmp_path / "run")
    BytePairVocabulary.learn(src.read_text().splitlines() + wanted.read_text().splitlines(), 120).save(run)
    fails(capsys, [run, "--src", src, "--references", wanted], run, "vocabulary")


def test_scoring_files_needs_no_run_and_no_terminal(texts):
    "In a process of its own: JSON on standard output, no bar in a file, nothing but the next step on standard error."
    _, wanted, made = texts
    done = subprocess.run([sys.executable, "-m", "annotated_transformer", "evaluate", "--translations", made,
                           "--references", wanted, "--json"],
                          capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0 and json.loads(done.stdout)["sentences"] == 10
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("Next: ")


def test_chrf_of_lines_that_hardly_match_has_an_interval():
    "Of the bootstrap's samples some match nothing at all."
    assert chrf(["x", "", "q"], ["x y z", "some words here", "others"], samples=50).interval is not None
