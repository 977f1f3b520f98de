"A source left out: the same vocabulary and sets, less training text, a record; stopped and continued."
import pytest

from annotated_transformer.corpus import grammar
from annotated_transformer.commands.prepare import prepare
from annotated_transformer.corpus.corpora import Corpus
from annotated_transformer.experiments import sources_left_out
from annotated_transformer.experiments.sources_left_out import leave_out, without
from annotated_transformer.tools.files import InputError
from annotated_transformer.tools.records import read_record


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    "A sources file of two sources of the grammar's sentences, one with a held-out part, and its prepared corpus."
    folder = tmp_path_factory.mktemp("mixed")
    parts = grammar.splits(seed=5, train=400, dev=20, test=20, test_long=5)
    for name, examples in (("one", parts["train"][:200]), ("two", parts["train"][200:]), ("dev", parts["dev"])):
        (folder / f"{name}.tsv").write_text("".join(f"{e.src}\t{e.tgt}\n" for e in examples), encoding="utf-8")
    (folder / "s.toml").write_text('[train.one]\nfiles = ["one.tsv"]\n[train.two]\nfiles = ["two.tsv"]\nweight = 2\nholdout = 10\n'
                                   '[dev]\nfiles = ["dev.tsv"]\n', encoding="utf-8")
    prepare(folder / "data", sources=folder / "s.toml", vocab_size=300)
    return folder


@pytest.fixture
def small(monkeypatch):
    shapes = sources_left_out.shapes

    def smaller(vocab_size, steps, seed):
        model, training = shapes(vocab_size, steps, seed)
        sizes = dict(n_layers=1, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8)
        return sources_left_out.replace(model, **sizes), sources_left_out.replace(training, batch_tokens=200)

    monkeypatch.setattr(sources_left_out, "shapes", smaller)


def test_each_run_is_measured_on_the_same_sets(mixed, small, tmp_path):
    for name, left in (("nothing", ()), ("first", ("one",)), ("second", ("two",))):
        leave_out(mixed / "s.toml", mixed / "data", left, name, steps=3, folder=tmp_path / "runs", out=tmp_path)
    corpora = {name: Corpus.open(tmp_path / "runs" / f"data_{name}" / "corpus") for name in ("nothing", "first", "second")}
    records = {name: read_record(tmp_path / f"sources_{name}_seed0.json") for name in corpora}
    assert {tuple(sorted(corpus.splits)) for corpus in corpora.values()} == {("dev", "test_two", "train")}
    for split in ("dev", "test_two"):
        assert all(list(corpus.pairs(split)) == list(corpora["nothing"].pairs(split)) for corpus in corpora.values())
        assert all(record["metrics"][f"perplexity/{split}"] > 1 for record in records.values())
    pairs = {name: corpus.splits["train"]["pairs"] for name, corpus in corpora.items()}
    assert pairs["nothing"] > pairs["first"] > pairs["second"] > 0
    assert len({record["data"]["vocabulary"] for record in records.values()}) == 1
    assert records["first"]["config"]["weights"] == {"one": 1.0, "two": 2.0}
    assert records["first"]["config"]["without"] == ["one"] and records["first"]["metrics"]["steps"] == 3
    with pytest.raises(InputError, match="run_first_seed0: a run of --steps 3"):
        leave_out(mixed / "s.toml", mixed / "data", ("one",), "first", steps=4, folder=tmp_path / "runs", out=tmp_path / "again")


def test_what_cannot_be_left_out(mixed, tmp_path):
    with pytest.raises(InputError, match="no training source 'three': there are one, two"):
        without(mixed / "s.toml", ["three"])
    with pytest.raises(InputError, match="nothing would be left"):
        without(mixed / "s.toml", ["one", "two"])
    with pytest.raises(InputError, match="--without and a --name"):
        leave_out(mixed / "s.toml", mixed / "data", ("one",), folder=tmp_path, out=tmp_path)
    assert not list(tmp_path.iterdir())
