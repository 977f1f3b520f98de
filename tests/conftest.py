"What tests of several rooms train on, and one installation for all that ask for it."
import itertools
import sys
from dataclasses import replace

import pytest

from annotated_transformer.corpus import grammar
from annotated_transformer.corpus.batching import encode_corpus
from annotated_transformer.corpus.corpora import grammar_corpus
from annotated_transformer.corpus.vocabulary import BytePairVocabulary, learn_vocabulary
from annotated_transformer.parsing import parser
from annotated_transformer.parsing.treebanks import encode_trees, tree_corpus
from annotated_transformer.training.loop import train
from annotated_transformer.training.starting import start_run
import here
from here import PARSER_SHAPE, PARSER_TRAINING, SHAPE, TRAINING, TREES
from installed import run, wheel  # noqa: F401


def pytest_configure(config):
    here.DAILY = "not slow" in config.option.markexpr
    sys.modules.setdefault("rfc3987_syntax", None)  # jsonschema's, where JupyterLab is there: 2 s of each Altair import


def pytest_collection_modifyitems(items):
    "What takes longest comes first, so that no process waits for another at the end."
    items.sort(key=lambda item: item.path.name not in (
        "test_site_pages.py", "test_alone.py", "test_training.py", "test_explore.py"))


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    "A small corpus, encoded."
    corpus = grammar_corpus(tmp_path_factory.mktemp("small") / "data", train=200, dev=20, test=5, test_long=5)
    encode_corpus(corpus, learn_vocabulary(corpus, BytePairVocabulary, 300))
    return corpus.folder


@pytest.fixture(scope="session")
def finished(data, tmp_path_factory):
    "A run on it that is finished."
    made = start_run(tmp_path_factory.mktemp("small") / "finished", data, SHAPE, TRAINING)
    assert train(made)
    return made.folder


@pytest.fixture(scope="session")
def treebanks(tmp_path_factory):
    "A folder as the runs of record want it: two treebanks of 20 files with 12 trees of the grammar."
    folder, trees = tmp_path_factory.mktemp("treebanks"), (e.tree for e in grammar.examples(0))
    for name, file in (("treebank_craft", "{:03}.tree"), ("treebank_ptb_sample", "wsj_{:04}.mrg")):
        (folder / name).mkdir()
        for i in range(20):
            lines = (f"( {tree} )\n" for tree in itertools.islice(trees, 12))
            (folder / name / file.format(i)).write_text("".join(lines))
    return folder


@pytest.fixture(scope="session")
def small_parser(tmp_path_factory):
    "A folder with a corpus of the grammar's trees, and a run of a few updates on it."
    folder = tmp_path_factory.mktemp("parser")
    vocabulary = encode_trees(tree_corpus(folder / "data", "grammar-trees", sizes=TREES), 300)
    shape = replace(PARSER_SHAPE, vocab_size=len(vocabulary))
    assert train(start_run(folder / "run", folder / "data", shape, PARSER_TRAINING))
    return folder


@pytest.fixture(scope="module")
def short_outputs():
    "Parsers that have learned nothing write on to the limit: here it is near."
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "EXTRA", 12)
        yield
