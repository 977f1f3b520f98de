"""The runs of Table 4 in small: every parser leaves a record, after what it needs, and a stopped run goes on."""
import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_transformer.experiments.parsing_baselines import right_branching
from annotated_transformer.experiments.runner import Place, TimeUp, experiment, summary, work
from annotated_transformer.model.transformer import TransformerConfig
from annotated_transformer.parsing import parser as parsing
from annotated_transformer.parsing.trees import read_tree
from annotated_transformer.tools.files import InputError
from annotated_transformer.tools.records import find_record, read_records

parsing_runs = experiment("parsing_runs")

MODEL = replace(parsing.PARSER_SMALL, n_layers=1, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8)
SCALE = 0.002
SOME = ["grammar_small", "grammar_xx", "craft_tenth", "craft_tenth_recurrent", "craft", "ptb_sample",
        "ptb_sample_after_craft", "baselines_craft"]


@pytest.fixture(scope="module", autouse=True)
def small_models():
    "Models that have learned nothing write on to the limit: here it is near."
    with pytest.MonkeyPatch.context() as patch:
        small = {name: MODEL if isinstance(e.model, TransformerConfig) else replace(e.model, d_model=16)
                 for name, e in parsing_runs.EXPERIMENTS.items()}
        patch.setattr(parsing_runs, "EXPERIMENTS", {name: replace(e, model=small[name])
                                                    for name, e in parsing_runs.EXPERIMENTS.items()})
        patch.setattr(parsing, "EXTRA", 12)
        yield


@pytest.fixture(scope="module")
def measured(tmp_path_factory, treebanks):
    folder = tmp_path_factory.mktemp("runs")
    place, steps = Place(treebanks, folder / "runs", folder / "out"), parsing_runs.steps(SOME, scale=SCALE)
    assert work(steps, place, "parsing") == [] and summary(steps, place) == "All is done."
    return place


def test_every_run_leaves_a_record(measured):
    kept = read_records(measured.out)
    found = {name: record for name, record in kept.items() if not name.startswith("trial_")}
    for name in ("craft_tenth", "craft_tenth_recurrent"):  # each trial of a rate leaves one, too
        tried = [f"trial_parsing_{name}_{dropout}_{rate}" for dropout, rate in parsing_runs.EXPERIMENTS[name].choices]
        assert len(set(tried)) == len(tried) and set(tried) <= set(kept)
    assert set(found) == {f"parsing_{name}" + "_seed0" * (name in parsing_runs.EXPERIMENTS) for name in SOME}
    for name, record in found.items():
        assert record["task"] == "parsing" and record["training_trees"] > 0, name
        assert record["trained_on"] and record["tested_on"], name
        assert {"command", "revision", "date", "data", "config", "seed", "hardware", "versions",
                "seconds"} <= set(record)
        assert record["scale"] == 0.002

    def of(name):
        return found[f"parsing_{name}_seed0"]

    for name in ("grammar_small", "grammar_xx"):
        assert {"f1/test", "f1/test_long", "mended/test", "f1_12/test", "not_counted/test",
                "seen/test"} <= set(of(name)["metrics"])
    for record in found.values():
        if "search" in record:
            assert set(record["search"]["f1_dev"]) == {"1", "4", "10", "21"}
            assert record["metrics"]["mended/test"] == 0 and 0 <= record["metrics"]["mended_free/test"] <= 100
    chosen = of("craft_tenth")["chosen"]
    assert len(chosen["candidates"]) == 3 and chosen["best"] in chosen["candidates"] and of("craft")["chosen"] is None
    sample = of("ptb_sample")
    assert sample["chosen"] == chosen and not sample["config"]["model"]["pre_norm"]
    assert sample["config"]["model"]["attention_dropout"] == chosen["best"]["dropout"]
    assert sample["config"]["training"]["lr_scale"] == chosen["best"]["rate"]
    assert of("craft_tenth")["training_trees"] < of("craft")["training_trees"]
    vocabularies = {name: of(name)["data"]["vocabulary"] for name in SOME if name in parsing_runs.EXPERIMENTS}
    assert vocabularies["grammar_small"] == vocabularies["grammar_xx"]
    assert vocabularies["craft"] == vocabularies["craft_tenth"]
    assert vocabularies["craft"] == vocabularies["ptb_sample_after_craft"] != vocabularies["ptb_sample"]
    assert of("ptb_sample_after_craft")["metrics"]["steps"] > of("craft")["metrics"]["steps"]


def test_the_baselines_parse_every_sentence_of_every_length(measured):
    record, craft = (find_record(f"parsing_{name}", measured.out) for name in ("baselines_craft", "craft_seed0"))
    assert record["metrics"]["sentences/test"] == craft["metrics"]["sentences/test"]
    assert 0 < record["metrics"]["f1_right/test"] < record["metrics"]["f1_pcfg/test"] <= 100
    words = record["data"]["splits"]["train"]
    assert words["tgt_words"] > words["src_words"]


def test_again_the_run_is_scored_alone(measured):
    "Nothing is trained or chosen a second time."
    before = {path: path.stat().st_mtime_ns for path in measured.runs.rglob("*")
              if path.name in ("averaged.safetensors", "chosen.json", "encoded.json")}
    [step] = parsing_runs.steps(["craft_tenth"], scale=SCALE)
    again, first = step.do(measured), find_record(step.name, measured.out)
    assert again["weights"] == first["weights"] and again["metrics"]["f1/test"] == first["metrics"]["f1/test"]
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_another_seed_has_a_record_of_its_own(measured):
    assert work(parsing_runs.steps(["craft_tenth"], [1], SCALE), measured, "parsing") == []
    first, second = (find_record(f"parsing_craft_tenth_seed{i}", measured.out) for i in (0, 1))
    assert second["seed"] == 1 and second["weights"] != first["weights"] and second["chosen"] == first["chosen"]


def test_a_run_in_slices_ends_as_one(treebanks, tmp_path, monkeypatch):
    "Stopped after every update, or before anything was begun."
    asked = itertools.count()

    def minutes(self):
        if next(asked) % 4 == 3:
            raise TimeUp
        return 1e-6

    monkeypatch.setattr(Place, "minutes", minutes)
    steps, place, calls = (parsing_runs.steps(["craft", "ptb_sample_after_craft"], scale=SCALE),
                           Place(treebanks, tmp_path / "runs", tmp_path / "out"), 0)
    assert steps[1].needs == ["parsing_craft_seed0"] and steps[1].models == ["parsing/craft/run_seed0"]
    while summary(steps, place) != "All is done.":
        assert work(steps, place, "parsing") == []
        calls += 1
        assert calls < 200
    assert calls > 10


def test_sentences_are_parsed_once(tmp_path):
    "In batches, each on the disk before the next; what has no tree keeps its line, and half a line is parsed again."
    asked, sentences = [], [[word] for word in "abcdefg"]

    def parse(some):
        if len(asked) == 2:
            asked.append([])
            raise KeyboardInterrupt
        asked.append(some)
        return [None if words == ["c"] else read_tree(f"(S (X {words[0]}))") for words in some]

    unlimited = parsing_runs.TreeSession(Place(tmp_path, tmp_path, tmp_path), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        parsing_runs.in_batches(tmp_path / "t.trees", sentences, parse, unlimited, batch=2)
    with open(tmp_path / "t.part", "a") as file:
        file.write("(S (X")
    found = parsing_runs.in_batches(tmp_path / "t.trees", sentences, parse, unlimited, batch=2)
    assert [word for some in asked for (word,) in some] == list("abcdefg")
    assert [tree and tree.words for tree in found] == [None if words == ["c"] else words for words in sentences]
    assert parsing_runs.in_batches(tmp_path / "t.trees", sentences, None, unlimited, batch=2) == found


def test_what_is_wrong_with_a_run(tmp_path):
    [step] = parsing_runs.steps(["craft"], scale=SCALE)
    with pytest.raises(InputError, match="--data .*treebank_craft"):
        step.do(Place(tmp_path, tmp_path / "runs", tmp_path / "out"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", ".", ","]), min_size=1, max_size=30))
def test_right_branching_is_a_tree_over_the_words(words):
    tree = right_branching(words)
    assert tree.words == words and read_tree(str(tree)) == tree
    assert all(b.end >= len(words) - 1 for b in tree.brackets)
