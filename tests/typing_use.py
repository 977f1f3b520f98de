"""From two text files to translations and their BLEU, without the shell, as a program with types would do it.

`test_types.py` checks this page with mypy and runs it.
"""
from dataclasses import replace
from pathlib import Path

from annotated_transformer import (
    BytePairVocabulary, Corpus, InputError, Run, SearchConfig, Transformer, Translator, bleu, encode_corpus, evaluate,
    file_corpus, learn_vocabulary, load, preset_named, start_run, train)


def prepared(folder: Path, english: Path, german: Path, vocab_size: int) -> Corpus:
    corpus = file_corpus(folder, "en", "de", [english, german], holdout=5)
    encode_corpus(corpus, learn_vocabulary(corpus, BytePairVocabulary, vocab_size))
    return Corpus.open(folder)


def trained(folder: Path, corpus: Corpus, vocab_size: int, steps: int) -> Run:
    model, training = preset_named("tiny")
    model = replace(model, vocab_size=vocab_size, d_model=16, d_ff=32)
    run = start_run(folder, corpus.folder, model, replace(training, steps=steps, save_every=steps, precision="float32"))
    finished: bool = train(run)
    assert finished, "stopped before its end"
    return run


def scores(run: Run, corpus: Corpus) -> tuple[float, float]:
    "BLEU on the test set, counted in two ways."
    translator: Translator = load(run.folder)
    assert isinstance(translator.model, Transformer) and len(run.vocabulary()) == translator.model.config.vocab_size
    sources, references = corpus.sides("test")
    settings = SearchConfig(beam_size=2, max_extra_tokens=5)
    first: str = translator.translate(sources[0], settings)
    translations: list[str] = translator.translate(sources, settings)
    assert translations[0] == first
    return bleu(translations, references).value, evaluate(translator, sources, references, settings).sacrebleu


def why_not(folder: Path) -> str | None:
    "What is wrong with a corpus, in one line."
    try:
        Corpus.open(folder)
    except InputError as error:
        return str(error)
    return None
