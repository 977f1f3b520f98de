"A source left out: the same vocabulary and sets, less training text, a record; stopped and continued."
import pytest

from annotated_transformer.commands.prepare import prepare_sources_command
from annotated_transformer.corpus import grammar
from annotated_transformer.corpus.corpora import Corpus
from annotated_transformer.experiments.runner import Place, experiment, work
from annotated_transformer.tools.files import InputError
from annotated_transformer.tools.records import read_records

sources_left_out = experiment("sources_left_out")
steps, without = sources_left_out.steps, sources_left_out.without


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    "A sources file of two sources of the grammar's sentences, one with a held-out part, and its prepared corpus."
    folder = tmp_path_factory.mktemp("mixed")
    parts = grammar.splits(seed=5, train=400, dev=20, test=20, test_long=5)
    for name, examples in (("one", parts["train"][:200]), ("two", parts["train"][200:]), ("dev", parts["dev"])):
        (folder / f"{name}.tsv").write_text("".join(f"{e.src}\t{e.tgt}\n" for e in examples), encoding="utf-8")
    (folder / "s.toml").write_text('[train.one]\nfiles = ["one.tsv"]\n'
                                   '[train.two]\nfiles = ["two.tsv"]\nweight = 2\nholdout = 10\n'
                                   '[dev]\nfiles = ["dev.tsv"]\n', encoding="utf-8")
    prepare_sources_command(folder / "data", folder / "s.toml", src="en", tgt="de", vocab_size=300)
    return folder


@pytest.fixture
def small(monkeypatch):
    shapes = sources_left_out.small_shapes

    def smaller(vocab_size, steps, seed):
        model, training = shapes(vocab_size, steps, seed)
        sizes = dict(n_layers=1, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8)
        return sources_left_out.replace(model, **sizes), sources_left_out.replace(training, batch_tokens=200)

    monkeypatch.setattr(sources_left_out, "small_shapes", smaller)


def test_each_run_is_measured_on_the_same_sets(mixed, small, tmp_path):
    place = Place(mixed, tmp_path / "runs", tmp_path / "out")
    some = steps("s.toml", "data", 3, [0, 1], {"first": ["one"], "second": ["two"]})
    assert [step.name for step in some] == [f"sources_{name}"
                                            for name in ("nothing_seed0", "nothing_seed1", "first_seed0",
                                                         "second_seed0")]
    assert work(some[:1] + some[2:], place, "sources_left_out") == []
    corpora = {name: Corpus.open(place.runs / "sources" / f"data_{name}" / "corpus")
               for name in ("nothing", "first", "second")}
    records = {name: read_records(place.out)[f"sources_{name}_seed0"] for name in corpora}
    assert {tuple(sorted(corpus.splits)) for corpus in corpora.values()} == {("dev", "test_two", "train")}
    for split in ("dev", "test_two"):
        assert all(list(corpus.pairs(split)) == list(corpora["nothing"].pairs(split)) for corpus in corpora.values())
        assert all(record["metrics"][f"perplexity/{split}"] > 1 for record in records.values())
    pairs = {name: corpus.splits["train"]["pairs"] for name, corpus in corpora.items()}
    assert pairs["nothing"] > pairs["first"] > pairs["second"] > 0
    assert len({record["data"]["vocabulary"] for record in records.values()}) == 1
    assert records["first"]["config"]["weights"] == {"one": 1.0, "two": 2.0}
    assert records["first"]["config"]["without"] == ["one"] and records["first"]["metrics"]["steps"] == 3
    more = steps("s.toml", "data", 4, [0], {"first": ["one"]})[1]
    with pytest.raises(InputError, match="run_first_seed0: begun with steps 3"):
        more.do(place)


def test_what_cannot_be_left_out(mixed):
    with pytest.raises(InputError, match="no training source 'three': there are one, two"):
        without(mixed / "s.toml", ["three"])
    with pytest.raises(InputError, match="nothing would be left"):
        without(mixed / "s.toml", ["one", "two"])
