"""`evaluate` and `score`: of runs and of files; what they write, what they keep, and what is wrong there."""
import errno
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import unicodedata
from datetime import UTC, datetime
from pathlib import Path

import pytest

from annotated_transformer.commands import cli
from annotated_transformer.corpus import corpora, grammar, sources
from annotated_transformer.decoding import evaluation, scores, translation
from annotated_transformer.decoding.scores import score
from annotated_transformer.decoding.translation import load
from annotated_transformer.tools.files import file_digest
from annotated_transformer.training.loop import train
from annotated_transformer.training.starting import start_run
from annotated_transformer.training.runs import Run, find_run
from command_line import fails, in_process, said, write, wrong
from here import SHAPE, TRAINING

GREEDY = ["--beam-size", "1"]  # quick, where a test is about something else
PRETRAINED = find_run("grammar").folder


# --- runs -------------------------------------------------------------------------------------------------------------

def test_evaluate_adds_its_scores_to_the_record(made, copy, tmp_path, capsys):
    cli.main(["evaluate", str(copy), "--data", str(made / "data"), "--split", "test", *GREEDY,
              "--record", str(tmp_path / "kept.json")])
    assert "sacreBLEU" in capsys.readouterr().out
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert {"sacrebleu/test", "perplexity/test", "accuracy/test"} <= set(kept["metrics"]) and kept["name"] == "kept"
    assert kept["signature"].startswith("nrefs:1")
    assert kept["search"] == {"test": {"beam_size": 1, "alpha": 0.6, "precision": "float16"}}
    assert train(Run.open(copy))  # nothing is left to do
    assert json.loads((copy / "record.json").read_text())["metrics"] == kept["metrics"]


def test_evaluate_takes_the_development_set(made, copy, capsys):
    cli.main(["evaluate", str(copy), "--data", str(made / "data"), *GREEDY])
    assert capsys.readouterr().out.startswith("dev: 30 sentences")
    assert not any(name.endswith("/test") for name in json.loads((copy / "record.json").read_text())["metrics"])


def test_evaluate_takes_files(made, imported, text, capsys):
    for run in (made / "run", imported):
        told = said(capsys, "evaluate", run, "--src", text["test"][0], "--ref", text["test"][1], *GREEDY)
        assert "30 sentences" in told and "perplexity" in told
    fails(["evaluate", imported], capsys, "--src")


def test_evaluate_keeps_the_scores_of_files_by_their_names(made, copy, text, tmp_path, capsys):
    "Two sizes of one test set stay apart in the run's record, each with the digests of its files."
    sources, references = (open(path, encoding="utf-8").read().splitlines() for path in text["test"])
    for name, count in (("news_full", 30), ("news_filtered_20", 20)):
        files = [write(tmp_path / f"{name}.{side}", lines[:count]) for side,
                 lines in (("en", sources), ("de", references))]
        cli.main(["evaluate", str(copy), "--src", files[0], "--ref", files[1], *GREEDY, "--record",
                  str(tmp_path / "kept.json")])
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert {name: facts["pairs"] for name,
            facts in kept["data"]["scored"].items()} == {"news_full": 30, "news_filtered_20": 20}
    assert kept["data"]["scored"]["news_full"]["sha256"]["src"] == file_digest(text["test"][0])
    assert {"sacrebleu/news_full", "sacrebleu/news_filtered_20"} <= set(kept["metrics"])
    assert json.loads((copy / "record.json").read_text())["metrics"] == kept["metrics"]
    same = [write(tmp_path / f"dev.{side}", ["A set of another name."]) for side in ("en", "de")]
    fails(["evaluate", copy, "--src", same[0], "--ref", same[1], "--record", tmp_path / "no.json"], capsys, "no.json")
    fails(["evaluate", copy, "--record", tmp_path], capsys, "--record", "a folder")
    assert not (tmp_path / "no.json").exists()


def test_several_runs_are_scored_as_one(made, tmp_path, capsys):
    "An ensemble of twice the same run has the run's own numbers."
    src, tgt = write(tmp_path / "a.en",
                     ["The dog sleeps.", "Every cow is old."]), write(tmp_path / "a.de",
                                                                      ["Der Hund schläft.", "Jede Kuh ist alt."])
    capsys.readouterr()
    found = []
    for runs in ([made / "run"], [made / "run"] * 2):
        cli.main(["evaluate", *map(str, runs), "--src", str(src), "--references", str(tgt), "--json"])
        found.append(json.loads(capsys.readouterr().out)["metrics"])
    assert found[0] == pytest.approx(found[1], rel=1e-5)
    fails(["evaluate", str(made / "run"), str(made / "run"), "--record", str(tmp_path / "r.json")], capsys, "--record",
          "several runs")


def test_the_other_run_is_looked_at_before_the_work(made, copy, tmp_path, capsys):
    (tmp_path / "run" / "averaged.safetensors").write_bytes(b"no weights")
    own = shutil.copytree(made / "run", tmp_path / "own")
    before = Run.open(own).history.evaluations()
    evaluate = ["evaluate", own, "--data", made / "data", "--against"]
    fails([*evaluate, copy], capsys, "averaged.safetensors: not a safetensors file")
    fails([*evaluate, "grammar-trees"], capsys, "grammar-trees: a parser")
    assert Run.open(own).history.evaluations() == before


def test_the_search_that_is_asked_for_is_made(monkeypatch, capsys, tmp_path):
    asked, real = [], translation.beam_search
    monkeypatch.setattr(translation, "beam_search",
                        lambda model, src, config: asked.append((config.beam_size, config.alpha))
                        or real(model, src, config))
    pairs = [(e.src, e.tgt) for e in itertools.islice(grammar.examples(3), 4)]
    evaluation.evaluate(translation.load("grammar"), *map(list, zip(*pairs)), beam_size=3, alpha=1.5, samples=0)
    for side, lines in zip(("src", "ref"), zip(*pairs)):
        (tmp_path / side).write_text("\n".join(lines) + "\n", encoding="utf-8")
    cli.main(["evaluate", "grammar", "--src", str(tmp_path / "src"), "--ref", str(tmp_path / "ref"), GREEDY[0], "2",
              "--alpha", "0.7"])
    assert set(asked) == {(3, 1.5), (2, 0.7)}


def test_each_look_at_a_test_set_is_kept(data, tmp_path):
    "Before the training is finished too, and with the date."
    run = start_run(tmp_path / "run", data, SHAPE, TRAINING)
    assert not train(run, minutes=1e-9)
    for beam in ("1", "2"):
        cli.main(["evaluate", str(run.folder), "--split", "test", GREEDY[0], beam, "--json"])
    assert train(run)
    found = run.record.read()["evaluations"]
    assert [(e["set"], e["search"]["beam_size"], e["steps"]) for e in found] == [("test", 1, 1), ("test", 2, 1)]
    assert all(datetime.fromisoformat(e["date"]) <= datetime.now(UTC) and "sacrebleu" in e["metrics"] for e in found)


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
        out = evaluated(capsys, wmt, *GREEDY, *(["--split", split] if split else []), "--record",
                        tmp_path / "kept.json").out
        assert f"{name}: {n} sentences" in out and "per token, " in out and "per word\n" in out
    kept = json.loads((tmp_path / "kept.json").read_text())
    for name in ("newstest2013", "newstest2014_full", "newstest2014_filtered_2737"):
        metrics = {kind.split("/")[0] for kind in kept["metrics"] if kind.endswith(f"/{name}")}
        assert metrics == {"sacrebleu", "chrf", "bleu_moses", "bleu_paper", "bleu_paper_2017", "perplexity",
                           "perplexity_per_word", "accuracy"}
        assert kept["search"][name] == {"beam_size": 1, "alpha": 0.6, "precision": "float16"}
        assert f"chrf/{name}" in kept["intervals"]
    assert json.loads((wmt / "record.json").read_text())["metrics"] == kept["metrics"]


def test_a_language_without_rules(wmt, capsys):
    "A run into it is scored, but for the paper's BLEU; asking for it by name is an error."
    config = json.loads((wmt / "config.json").read_text())
    config["data"]["tgt"] = "tlh"
    (wmt / "config.json").write_text(json.dumps(config))
    out, told = evaluated(capsys, wmt, *GREEDY)
    assert "sacreBLEU" in out and "BLEU, 2018" not in out and "Moses has no rules for tlh" in told
    again, told = evaluated(capsys, wmt, *GREEDY, "--language", "da")
    assert again == out and "Moses has no rules for da" in told
    fails(["evaluate", wmt, "--language", "Danish"], capsys, "--language 'Danish': give a code such as en")


@pytest.mark.parametrize("language", [None, "de", "da"])
@pytest.mark.parametrize("library", ["sacrebleu.metrics", "sacremoses", "regex"])
def test_what_scores_need_is_missed_before_the_search(library, language, made, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setattr("annotated_transformer.decoding.translation.Translator.search", None)
    text = write(tmp_path / "a", ["The dog sleeps."])
    for given in ([made / "run", "--src", text, "--references", text], ["--translations", text, "--references", text]):
        fails(["evaluate", *given, *(["--language", language] if language else [])], capsys, library.split(".")[0],
              "is not installed, and this needs it: pip install 'annotated-transformer[scores]'")


@pytest.mark.parametrize("analyser, library", [("ja-mecab", "MeCab"), ("ko-mecab", "mecab_ko")])
def test_an_analyser_that_is_not_installed(analyser, library, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scores, "find_spec", lambda name: None)
    text = write(tmp_path / "a", ["The dog sleeps."])
    fails(["evaluate", "--translations", text, "--references", text, "--tokenize", analyser], capsys,
          f"--tokenize {analyser}: {library} is not installed", f"pip install 'sacrebleu[{analyser[:2]}]'")


def test_a_text_changed_by_hand_is_not_scored(made, copy, tmp_path, capsys):
    data = shutil.copytree(made / "data", tmp_path / "data")
    text = (data / "dev.de").read_text(encoding="utf-8")
    (data / "dev.de").write_text(text.replace("e", "o", 1), encoding="utf-8")
    fails(["evaluate", copy, "--data", data, *GREEDY], capsys, "dev.de: changed after it was prepared")
    (data / "dev.de").write_text(text, encoding="utf-8")
    assert "sacreBLEU" in evaluated(capsys, copy, "--data", data, *GREEDY)[0]


def test_letters_in_parts_are_named(tmp_path, capsys):
    "The same words, and no score: a warning says why."
    lines = ["Fünf schöne Mädchen hören Flöten."] * 3
    made = write(tmp_path / "a.de", lines)
    parts = write(tmp_path / "b.de", [unicodedata.normalize("NFD", line) for line in lines])
    for translations, references, named in ((made, parts, "3 lines of the references"),
                                            (parts, made, "3 lines of the translations"), (made, made, ""),
                                            (parts, parts, "")):
        cli.main(["evaluate", "--translations", translations, "--references", references])
        told = capsys.readouterr().err
        assert (named in told and "letters in parts" in told) if named else "letters in parts" not in told


def test_scores_are_shown_where_they_cannot_be_kept(copy, tmp_path, monkeypatch, capsys):
    def refused(*arguments, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(copy / "evaluations.jsonl"))
    monkeypatch.setattr("annotated_transformer.training.runs.add_line", refused)
    out, told = evaluated(capsys, copy, *GREEDY)
    assert "sacreBLEU" in out and "evaluations.jsonl: Permission denied: the scores are not kept there" in told


def test_scores_of_weights_that_a_training_has_replaced_are_not_kept(copy, monkeypatch, capsys):
    weights, score = copy / "averaged.safetensors", evaluation.evaluate

    def slow(*arguments, **options):
        found = score(*arguments, **options)
        weights.write_bytes(weights.read_bytes())
        return found
    monkeypatch.setattr(evaluation, "evaluate", slow)
    before = {path: path.read_bytes() for path in copy.glob("*.json*")}
    out, told = evaluated(capsys, copy, *GREEDY)
    assert "sacreBLEU" in out and f"{weights}: has changed since it was loaded: the scores are not kept there" in told
    assert {path: path.read_bytes() for path in copy.glob("*.json*")} == before


# --- files ------------------------------------------------------------------------------------------------------------

@pytest.fixture
def texts(tmp_path):
    "Sources, references and a file of translations with slips: ten sentences of the grammar."
    some = [e for _, e in zip(range(10), grammar.examples(seed=9))]
    return [Path(write(tmp_path / name, lines)) for name, lines in (
        ("text.en", [e.src for e in some]), ("text.de", [e.tgt for e in some]),
        ("out.de", [e.tgt.replace("ein", "kein") for e in some]))]


def evaluated(capsys, *arguments):
    "Standard output and standard error of `evaluate`."
    capsys.readouterr()
    cli.main(["evaluate", *map(str, arguments)])
    return capsys.readouterr()


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
    found = json.loads(evaluated(capsys, "grammar", "--src", src, "--references", wanted, *GREEDY,
                                 "--json").out)
    assert {"sacrebleu", "chrf", "bleu_moses", "bleu_paper", "bleu_paper_2017", "perplexity", "perplexity_per_word",
            "accuracy"} == set(found["metrics"])
    assert found["search"] == {"beam_size": 1, "alpha": 0.6, "precision": "float16"}
    assert found["metrics"]["perplexity_per_word"] > found["metrics"]["perplexity"] > 1


@pytest.mark.slow
def test_scoring_files_needs_no_run_and_no_terminal(texts):
    "In a process of its own: JSON on standard output, no bar in a file, nothing but the next step on standard error."
    _, wanted, made = texts
    done = subprocess.run([sys.executable, "-m", "annotated_transformer", "evaluate", "--translations", made,
                           "--references", wanted, "--json"], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0 and json.loads(done.stdout)["sentences"] == 10
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("Next: ")


@pytest.mark.slow
def test_a_terminal_that_shows_ascii_alone(made, tmp_path):
    "Nothing ends in a traceback; what cannot be shown is escaped, and JSON stays JSON."
    sources, wanted = write(tmp_path / "müde.en",
                            ["The dog sleeps."]), write(tmp_path / "müde.de", ["Der Hund schläft."])
    ascii_alone = os.environ | {"PYTHONIOENCODING": "ascii"}
    for more in ([], ["--json"]):
        done = in_process(["evaluate", made / "run", "--src", sources, "--references", wanted, *GREEDY, *more],
                          env=ascii_alone)
        assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
        assert json.loads(done.stdout)["set"] == "müde" if more else done.stdout.startswith(b"m\\xfcde: 1 sentence")
    done = in_process(["prepare", "sources", "--help"], env=ascii_alone)
    assert done.returncode == 0
    done = in_process(["evaluate", tmp_path / "größer"], env=ascii_alone)
    assert done.returncode == 2 and b"gr\\xf6\\xdfer" in done.stderr and done.stderr.count(b"\n") == 1


@pytest.mark.slow
def test_a_name_of_any_bytes(made, tmp_path):
    "A reference file whose name is not UTF-8: its scores stand in the run's record, and the next command reads it."
    run = shutil.copytree(made / "run", tmp_path / "run\udcfe")
    (tmp_path / "text.en").write_text("The dog sleeps.\n")
    name = os.fsencode(tmp_path) + b"/text\xff.de"
    with open(name, "wb") as file:
        file.write("Der Hund schläft.\n".encode())
    for _ in range(2):
        done = in_process(["evaluate", run, "--src", tmp_path / "text.en", "--references", os.fsdecode(name), *GREEDY,
                           "--record", os.fsdecode(os.fsencode(tmp_path) + b"/kept\xfe.json")])
        assert done.returncode == 0, done.stderr
    assert [e["set"] for e in Run.open(run).record.read()["evaluations"]][-2:] == ["text\udcff"] * 2


@pytest.mark.parametrize("arguments", [
    ["evaluate", "--translations", "-x.de", "--references", "-x.de"], ["evaluate", "RUN", "--src", "-x.en",
                                                                      "--references", "-x.de"]])
def test_options_whose_files_begin_with_a_dash(arguments, made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-x.en").write_text("The dog sleeps.\n")
    (tmp_path / "-x.de").write_text("Der Hund schläft.\n", encoding="utf-8")
    cli.main([str(made / "run") if word == "RUN" else word for word in arguments])
    assert capsys.readouterr().out.startswith("-x: 1 sentence")


@pytest.mark.parametrize(("ending", "more", "said"), [
    ("zh", [], "its tokeniser zh for zh; --tokenize names another"), ("zh", ["--tokenize", "char"], ""), ("de", [], ""),
    ("sr", [], "Moses has no rules for sr"), ("txt", [], "name the references' language")])
def test_what_is_said_of_a_language(ending, more, said, tmp_path, capsys):
    file = write(tmp_path / f"a.{ending}", ["Der Hund schläft hier."] * 2)
    cli.main(["evaluate", "--translations", str(file), "--references", str(file), *more])
    told, _, rest = capsys.readouterr().err.partition("Next:")
    assert rest and (said in told if said else not told)


def test_scores_of_given_targets(tmp_path, capsysbinary):
    "Line by line the log-probability; the beam's own score is that number, divided by its length penalty."
    lines = ["The dog sleeps.", "", "Every cow is old."]
    src, tgt, t = write(tmp_path / "a.en", lines), tmp_path / "a.de", load("grammar")
    found = [h[0] for h in t.n_best(lines, 1)]
    write(tgt, [h.text for h in found])
    capsysbinary.readouterr()
    cli.main(["score", "grammar", str(src), str(tgt), "--tokens"])
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert len(lines) == 3
    for line, h in zip(lines, found):
        total, tokens = line.split(" ||| ")
        numbers = [float(token.rsplit(":", 1)[1]) for token in tokens.split()]
        assert float(total) == pytest.approx(sum(numbers), abs=1e-3)
        assert not h.text or numbers == pytest.approx(h.log_probabilities, abs=2e-3)
    fails(["score", "grammar", src, write(tmp_path / "b.de", ["eins"])], capsysbinary, "a.en has 3 lines")


# --- what is wrong ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("arguments, named", [
    (["evaluate", "RUN", "--alpha", "1000"], ["alpha 1000"]),
    (["evaluate", "RUN", "--split", "exam"], ["exam", "test"]),
    (["evaluate", "RUN", "--src", "DATA/test.en"], ["--ref"]),
    (["evaluate", "RUN", "--against", "NOTHING"], ["NOTHING: no such run"]),
    (["evaluate", "--translations", "DATA/test.de", "--references", "DATA/test.de", "--against", "ende"],
     ["--against ende: no such file", "translations"]),
    (["evaluate", "--translations", "a", "--references", "b", "--beam-size", "8"], ["--beam-size"]),
    (["evaluate", "RUN", "--references", "DATA/test.de", "--split", "dev"], ["--src"]),
    (["evaluate"], ["run directory", "--translations"]),
    (["evaluate", "grammar", "--translations", "DATA/test.de", "--references", "DATA/test.de"], ["not both"]),
    (["evaluate", "--translations", "DATA/test.de"], ["--references"]),
    (["evaluate", "--translations", "DATA/test.de", "--references", "DATA/test.de", "--split", "test"], ["--split"]),
    (["evaluate", "--translations", "DATA/test.de", "--references", "DATA/test.de", "--language", "klingon"],
     ["klingon"]),
    (["evaluate", "grammar", "--src", "DATA/test.en", "--references", "DATA/test.de", "--split", "test"], ["--split"]),
    (["evaluate", "grammar", "--src", "DATA/test.en", "--references", "DATA/test.de", "--beam-size", "0"],
     ["--beam-size 0"]),
])
def test_wrong_options(made, tmp_path, capsys, arguments, named):
    wrong(arguments, named, made, tmp_path, capsys)


def test_references_of_another_length(made, text, texts, capsys, tmp_path):
    src, wanted, out = texts
    short = write(tmp_path / "short.de", ["eins", "zwei", "drei"])
    fails(["evaluate", made / "run", "--src", text["test"][0], "--ref", short], capsys, "test.en has 30",
          "short.de has 3")
    fails(["evaluate", "--translations", out, "--references", short], capsys, "out.de has 10", "short.de has 3")
    fails(["evaluate", "--translations", short, "--references", wanted], capsys, "short.de has 3", "text.de has 10")
    fails(["evaluate", "grammar", "--src", src, "--references", short], capsys, "text.en has 10", "short.de has 3")


def test_files_that_cannot_be_read(texts, capsys, tmp_path):
    src, wanted, made = texts
    (tmp_path / "latin.de").write_bytes(b"eins\nzwei\nStra\xdfe\n" + b"x\n" * 7)
    (tmp_path / "empty.de").write_bytes(b"")
    for bad, named in (("latin.de", ("latin.de, line 3", "UTF-8")), ("empty.de", ("empty.de is empty",)),
                       ("none.de", ("none.de does not exist",))):
        fails(["evaluate", "--translations", tmp_path / bad, "--references", wanted], capsys, *named)
        fails(["evaluate", "--translations", made, "--references", tmp_path / bad], capsys, *named)
        fails(["evaluate", "grammar", "--src", src, "--references", tmp_path / bad], capsys, *named)


def test_unknown_set(wmt, capsys, tmp_path):
    fails(["evaluate", wmt, "--split", "newstest2015"], capsys, "newstest2015", "newstest2014_full",
          "newstest2014_filtered_2737")
    fails(["evaluate", wmt, "--data", tmp_path / "nowhere"], capsys, "nowhere")


def test_record_of_text_that_is_not_the_runs(wmt, capsys, tmp_path):
    "Said before the work begins."
    corpora.grammar_corpus(tmp_path / "other", 10, 5, 5, 5)
    fails(["evaluate", wmt, "--data", tmp_path / "other", "--split", "test", "--record", tmp_path / "kept.json"],
          capsys, "kept.json")
    assert not (tmp_path / "kept.json").exists()


def test_standard_input_is_one_text(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Der Hund schläft.\n".encode())))
    fails(["evaluate", "--translations", "-", "--references", "-"], capsys, "-: standard input holds one text")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Der Hund schläft.\n".encode())))
    two = write(tmp_path / "two.de", ["Der Hund schläft.", "Die Katze auch."])
    line = fails(["evaluate", "--translations", "-", "--references", two], capsys, "standard input has 1 line and")
    assert "tmp" not in line.split(" has ")[0], "by its name, not by that of its copy"


def test_weights_that_ship_have_no_text_to_be_scored_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fails(["evaluate", "grammar"], capsys, "--data", "--src")


def test_another_run_and_the_file_of_its_translations_are_one_rival(made, text, tmp_path, capsys):
    sources, wanted = (open(path, encoding="utf-8").read().splitlines() for path in text["test"])
    theirs = load(made / "run").translate(sources, beam_size=1)
    given = ["grammar", "--src", text["test"][0], "--references", text["test"][1], *GREEDY, "--json", "--against"]
    by_run, by_file = (json.loads(evaluated(capsys, *given, against).out)
                       for against in (made / "run", write(tmp_path / "theirs.de", theirs)))
    apart = by_run["metrics"]["sacrebleu"] - score(theirs, wanted, "de")["sacrebleu"].value
    assert by_run["against"] == by_file["against"] and apart > 1
    assert by_run["against"]["sacrebleu"]["value"] == pytest.approx(apart)
