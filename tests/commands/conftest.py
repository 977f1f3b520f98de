"Small corpora and runs, made by the functions that the commands call: a test types its own command's options alone."
import shutil

import pytest

from annotated_transformer.commands.exchange import import_command
from annotated_transformer.commands.train import open_or_start
from annotated_transformer.corpus import grammar
from annotated_transformer.corpus.batching import encode_corpus
from annotated_transformer.corpus.corpora import file_corpus
from annotated_transformer.corpus.vocabulary import BytePairVocabulary, learn_vocabulary
from annotated_transformer.decoding.translation import load
from annotated_transformer.exports.hugging_face import export_hugging_face
from annotated_transformer.training.loop import train
from command_line import prepared, write
from here import SHAPE, SMALL, TRAINING


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    "Three pairs of files with sentences of the grammar: (English, German) for train, dev and test."
    folder = tmp_path_factory.mktemp("text")
    parts = grammar.splits(seed=3, train=300, dev=30, test=30, test_long=5)
    return {split: (write(folder / f"{split}.en", [e.src for e in parts[split]]),
                    write(folder / f"{split}.de", [e.tgt for e in parts[split]]))
            for split in ("train", "dev", "test")}


@pytest.fixture(scope="session")
def made(tmp_path_factory, text):
    "A prepared corpus and a run of a few updates."
    folder = tmp_path_factory.mktemp("made")
    numbers = {"steps": 12, "save_every": 4, "report_every": 2, "batch_tokens": 400}
    assert train(open_or_start(folder / "run", prepared(folder / "data", text), "tiny", SMALL["transformer"] | numbers))
    return folder


@pytest.fixture
def copy(made, tmp_path):
    "A copy of the run that a test may damage."
    return shutil.copytree(made / "run", tmp_path / "run")


@pytest.fixture(scope="session")
def two_alphabets(tmp_path_factory):
    """A corpus prepared with separate vocabularies, whose languages share no letters but those of names, and a
    finished run on it."""
    folder = tmp_path_factory.mktemp("separate")
    english = [f"The {what} cow number {n} is {how}." for n in range(20) for what in ("old", "young", "red")
               for how in ("hungry", "tired")]
    greek = str.maketrans("abcdefghiklmnoprstuwxyzT", "αβψδεφγηικλμνοπρστθωχυζΘ")
    files = [write(folder / "text.en", english), write(folder / "text.el", [line.translate(greek) for line in english])]
    corpus = file_corpus(folder / "data", "en", "el", files, holdout=6)
    encode_corpus(corpus, learn_vocabulary(corpus, BytePairVocabulary, 70, separate=True))
    assert train(open_or_start(folder / "run", corpus.folder, (SHAPE, TRAINING), {}))
    return folder


@pytest.fixture(scope="session")
def imported(tmp_path_factory):
    "A run of another program's model: our own, exported before."
    folder = tmp_path_factory.mktemp("imported")
    export_hugging_face(load("grammar"), folder / "marian")
    import_command(str(folder / "marian"), folder / "imported")
    return folder / "imported"
