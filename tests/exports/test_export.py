"""What `export` writes, used as others would use it: by CTranslate2's engine, transformers and onnxruntime, with
nothing of this package."""
import ast
import itertools
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import ctranslate2
import pytest
import torch
import yaml

from annotated_transformer.commands import cli
from annotated_transformer.corpus import grammar
from annotated_transformer.corpus.vocabulary import BytePairVocabulary, WordPieceVocabulary
from annotated_transformer.decoding.search import SUPPRESSED, beam_search, greedy
from annotated_transformer.decoding.translation import Translator, load
from annotated_transformer.exports.ctranslate2 import export_ctranslate2, symbols_of
from annotated_transformer.exports.hugging_face import card, export_hugging_face
from annotated_transformer.exports.onnx import export_onnx
from annotated_transformer.imports.imported import imported_vocabulary
from annotated_transformer.model.symbols import END, PAD, START
from annotated_transformer.model.transformer import BASE, Transformer
from annotated_transformer.tools.files import InputError
from here import ROOT

pytestmark = pytest.mark.xdist_group("export")  # one process exports for all of these
SMALL = replace(BASE, vocab_size=100, n_layers=2, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8)
EXAMPLES = cache(lambda: list(itertools.islice(grammar.examples(seed=5), 500)))


def engine_of(folder):
    return ctranslate2.Translator(str(folder), device="cpu", intra_threads=1)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "grammar"
    cli.main(["export", "grammar", str(folder)])
    return folder


@pytest.fixture(scope="module")
def vocabulary():
    return BytePairVocabulary.learn([e.tgt for e in EXAMPLES()], 100)


@pytest.mark.parametrize("changes", [
    {"n_layers": 1, "n_heads": 4, "d_k": 4, "d_v": 4}, {"attention_bias": True, "d_k": 3, "d_v": 5, "n_heads": 3},
    {"pre_norm": True, "attention_bias": True, "positions": "learned", "max_length": 128, "d_v": 16}], ids=str)
def test_variations_give_the_same_probabilities(changes, vocabulary, tmp_path):
    "Random weights, every bias and gain among them; the engine scores given outputs."
    torch.manual_seed(1)
    model = Transformer(replace(SMALL, **changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    engine = engine_of(export_ctranslate2(Translator(model, vocabulary), tmp_path / "out"))
    names = symbols_of(vocabulary)
    pairs = [torch.randint(4, 100, (2, n)).tolist() for n in (1, 2, 5, 9, 30)]
    scored = engine.score_batch([[names[i] for i in src] for src, _ in pairs],
                                [[names[i] for i in out] for _, out in pairs])
    for (src, out), their in zip(pairs, scored):
        with torch.no_grad():
            logits = model(torch.tensor([src + [END]]), torch.tensor([[START] + out]))[0]
        logits[:, SUPPRESSED] = -torch.inf
        expected = logits.log_softmax(-1).gather(1, torch.tensor(out + [END])[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(their.log_probs), expected, atol=1e-4, rtol=1e-4)


def test_padding_and_start_are_never_written(vocabulary, tmp_path):
    "A model that likes nothing better."
    torch.manual_seed(0)
    model = Transformer(replace(SMALL, pre_norm=True)).eval()
    with torch.no_grad():
        model.embedding.weight[SUPPRESSED] += 1.0
        model.decoder_norm.bias.fill_(3.0)
    translator, src = Translator(model, vocabulary), torch.randint(4, 100, (8, 6))
    src[:, -1] = END
    with torch.no_grad():
        first = model(src, torch.full((8, 1), START))[:, 0].argmax(-1)
    assert set(first.tolist()) <= set(SUPPRESSED)
    names = symbols_of(vocabulary)
    engine = engine_of(export_ctranslate2(translator, tmp_path / "out"))
    for options in ({"beam_size": 1}, {"beam_size": 4, "num_hypotheses": 4}):
        found = engine.translate_batch([[names[i] for i in row[:-1]] for row in src.tolist()], max_decoding_length=56,
                                       **options)
        for result in found:
            for output in result.hypotheses:
                assert not {names[PAD], names[START]} & set(output)
        if options["beam_size"] == 1:
            assert [[names.index(s) for s in r.hypotheses[0]] for r in found] == [h.ids for h in greedy(model, src)]


def page_program(folder):
    "The lines of Python in an exported folder's README."
    return re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)[1]


def page_translates(folder, program, line, translator):
    "The README's program, given `line` and a greedy search, prints the translator's own translation."
    changed = program.replace('["A sentence.", "And another one."]',
                              ascii([line])).replace("length_penalty=0.6", "length_penalty=0")
    changed = changed.replace("beam_size=4", "beam_size=1").replace("print(", "print(ascii(").rstrip() + ")\n"
    done = subprocess.run([sys.executable, "-c", changed], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made, = ast.literal_eval(done.stdout)
    assert made.replace(" \u2047", "\u2047") == translator.translate(line, beam_size=1).replace(" \u2047", "\u2047")


@pytest.mark.parametrize("kind, export", [(BytePairVocabulary, export_ctranslate2),
                                          pytest.param(BytePairVocabulary, export_onnx, marks=pytest.mark.slow),
                                          (WordPieceVocabulary, export_ctranslate2)])
def test_the_page_says_how(kind, export, tmp_path):
    "The lines of Python in the folder's README are run as they stand, but for the sentences and the length penalty."
    lines = ["The cow is old, but it plays.", "Every  dog\tsleeps. \u2603", "The co\u00adw \u2581 is \ufeffold."]
    if kind is BytePairVocabulary:
        translator = load("grammar")
    else:
        torch.manual_seed(3)
        learned = kind.learn([e.src for e in EXAMPLES()] + [e.tgt for e in EXAMPLES()], 200)
        translator = Translator(Transformer(replace(SMALL, vocab_size=len(learned))), learned)
    folder = export(translator, tmp_path / "out")
    program = page_program(folder)
    for line in lines:
        page_translates(folder, program, line, translator)
    assert subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True).returncode == 0


def test_the_folder(exported):
    assert sorted(path.name for path in exported.iterdir()) == ["README.md", "config.json", "model.bin",
                                                                "shared_vocabulary.json", "vocabulary.model"]
    assert json.loads((exported / "config.json").read_text())["layer_norm_epsilon"] == 1e-6
    model = load("grammar").model
    parameters = sum(p.numel() for p in model.parameters())
    assert (exported / "model.bin").stat().st_size < 4 * (
        parameters + 1074 * model.config.d_model) + 20_000  # shared weights are stored once


def test_quantization(tmp_path, exported):
    "Well under half the size; the model that was exported stays as it was."
    translator = load("grammar")
    export_ctranslate2(translator, tmp_path / "int8", "int8")
    assert all(torch.equal(a, b) for a, b in zip(translator.model.parameters(), load("grammar").model.parameters()))
    assert (tmp_path / "int8" / "model.bin").stat().st_size < 0.5 * (exported / "model.bin").stat().st_size


def test_what_cannot_be_exported(tmp_path, vocabulary, monkeypatch):
    translator = Translator(Transformer(replace(SMALL, parameter_heads=2, n_p=8)), vocabulary)
    with pytest.raises(InputError, match="parameter_heads 2"):
        export_ctranslate2(translator, tmp_path / "out")
    theirs = Translator(Transformer(SMALL), imported_vocabulary(["a"] * 100, [*range(100)]))
    for export in (export_ctranslate2, export_hugging_face, export_onnx):
        with pytest.raises(InputError, match="another program's vocabulary"):
            export(theirs, tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="full: exists"):
        export_ctranslate2(load("grammar"), tmp_path / "full")
    for library, export in (("ctranslate2", export_ctranslate2), ("onnxscript", export_onnx)):
        monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
        with pytest.raises(InputError, match=f"{library} is not installed.*export"):
            export(load("grammar"), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["full", "letter.txt"]


def with_two_vocabularies(vocabulary):
    "A random model whose source has a vocabulary of its own."
    both = type(vocabulary)(vocabulary.content, type(vocabulary).learn([e.src for e in EXAMPLES()], 90))
    return Translator(with_every_bias(replace(SMALL, vocab_size=len(vocabulary), src_vocab_size=90)), both)


def test_the_engine_gets_both_vocabularies(vocabulary, tmp_path):
    translator = with_two_vocabularies(vocabulary)
    lines = [e.src for e in EXAMPLES()[:20]]
    engine = engine_of(export_ctranslate2(translator, tmp_path / "out"))
    cut = [translator.vocabulary.source.pieces(translator.vocabulary.source.encode(line)) for line in lines]
    found = [engine.translate_batch([symbols], beam_size=1, max_decoding_length=len(symbols) + 51)[0]
             for symbols in cut]
    ours = [found[0].ids for found in translator.search(lines, beam_size=1)]
    assert sum(symbols_of(vocabulary).index(symbol) == i for result, ids in zip(found, ours) for symbol,
               i in zip(result.hypotheses[0], ids)) \
        >= 0.99 * sum(map(len, ours))


@pytest.mark.parametrize("kind, export", [
    (BytePairVocabulary, export_ctranslate2), pytest.param(WordPieceVocabulary, export_onnx, marks=pytest.mark.slow)])
def test_the_page_says_how_with_both_vocabularies(kind, export, tmp_path):
    translator = with_two_vocabularies(kind.learn([e.tgt for e in EXAMPLES()], 120))
    folder = export(translator, tmp_path / "out")
    page_translates(folder, page_program(folder), EXAMPLES()[0].src, translator)


def test_transformers_gets_both_vocabularies(vocabulary, tmp_path):
    from transformers import MarianMTModel, MarianTokenizer
    translator = with_two_vocabularies(vocabulary)
    folder, lines = export_hugging_face(translator, tmp_path / "out"), [e.src for e in EXAMPLES()[:10]]
    theirs, tokenizer = MarianMTModel.from_pretrained(folder).eval(), MarianTokenizer.from_pretrained(folder)
    inputs = tokenizer(lines, return_tensors="pt", padding=True)
    assert [row[: row.index(END) + 1] for row in inputs.input_ids.tolist()] == translator.encode(lines)
    tgt = torch.randint(4, len(vocabulary), (10, 7))
    with torch.no_grad():
        logits = theirs(**inputs, decoder_input_ids=tgt).logits
        torch.testing.assert_close(logits.log_softmax(-1), translator.model(inputs.input_ids, tgt).log_softmax(-1),
                                   atol=1e-3, rtol=0)
    ids = translator.encode([EXAMPLES()[0].tgt], "tgt")[0]
    assert tokenizer.decode(ids, skip_special_tokens=True) == translator.vocabulary.decode(ids)
    pieces = with_two_vocabularies(WordPieceVocabulary.learn([e.tgt for e in EXAMPLES()], 120))
    with pytest.raises(InputError, match="two vocabularies of word pieces"):
        export_hugging_face(pieces, tmp_path / "pieces")
    assert not (tmp_path / "pieces").exists()


def test_transformers_reads_white_space_as_we_do(tmp_path):
    from transformers import PreTrainedTokenizerFast
    translator = Translator(with_every_bias(SMALL), WordPieceVocabulary.learn([e.src for e in EXAMPLES()], 120))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(export_hugging_face(translator, tmp_path / "out"))
    for line in ("  The  cow", "The\tcow\u00a0sleeps. ", "The \u2581cow", "The cow\u3000sleeps."):
        assert tokenizer(line).input_ids == translator.encode([line])[0]


@pytest.mark.parametrize("kind", [BytePairVocabulary, WordPieceVocabulary])
def test_transformers_reads_names_of_special_tokens_as_text(kind, tmp_path):
    "With the page's `normal`, also decomposed letters and what nobody sees."
    from transformers import AutoTokenizer
    lines = ["The </s> cow", "<unk> cow", "a<pad>b", "<s>", ">>de<< cow", "Zu\u0308rich and co\u00adws\u200b",
             "\ufeffThe \u2581 cow"]
    vocabulary = kind.learn([e.src for e in EXAMPLES()] + lines, 200)
    folder = export_hugging_face(Translator(with_every_bias(replace(SMALL, vocab_size=200)), vocabulary),
                                 tmp_path / "out")
    tokenizer, names = AutoTokenizer.from_pretrained(folder), {}
    exec((folder / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("from transformers")[0],
         names)
    for line in lines:
        assert tokenizer(" " + names["normal"](line)).input_ids == [*vocabulary.encode(line), END]
        assert kind is BytePairVocabulary or tokenizer(line).input_ids == [*vocabulary.encode(line), END]  # built in
    umask = os.umask(0)
    os.umask(umask)
    assert (folder / "model.safetensors").stat().st_mode & 0o777 == 0o666 & ~umask


# --- Hugging Face -----------------------------------------------------------------------------------------------------

def with_every_bias(config, seed=1):
    "A random model, no bias or gain of which is zero or one."
    torch.manual_seed(seed)
    model = Transformer(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import MarianMTModel, MarianTokenizer
    folder = tmp_path_factory.mktemp("marian") / "grammar"
    export_hugging_face(load("grammar"), folder)
    return folder, MarianMTModel.from_pretrained(folder).eval(), MarianTokenizer.from_pretrained(folder)


def test_the_cards_lines_translate(marian):
    program = page_program(marian[0]).replace("generate(**inputs,", "generate(**inputs, num_beams=1,")
    page_translates(marian[0], program, "The cow is old, but it plays.", load("grammar"))


def test_the_card_is_made_of_the_record(marian):
    text, record = (marian[0] / "README.md").read_text(encoding="utf-8"), load("grammar").run.record.read()
    assert "pipeline_tag: translation" in text and yaml.safe_load(
        text.split("---")[1])["language"] == [record["data"]["src"], record["data"]["tgt"]]
    assert record["command"] in text and f"{record['data']['splits']['train']['pairs']:,}" in text
    for name, value in record["metrics"].items():
        if name.startswith("sacrebleu/"):
            assert f"| {value:.2f} |" in text
    assert not {"model.bin", "pytorch_model.bin"} & {path.name
                                                     for path in marian[0].iterdir()}  # safetensors, no pickle


def test_norwegian_is_no_boolean(monkeypatch):
    translator = load("grammar")
    monkeypatch.setitem(translator.run.config["data"], "tgt", "no")
    assert yaml.safe_load(card(translator, "x").split("---")[1])["language"] == ["en", "no"]


@pytest.mark.parametrize("changes", [{"pre_norm": True}, {"positions": "learned"}, {"parameter_heads": 2, "n_p": 8},
                                     {"d_k": 24}, {"d_v": 24}], ids=str)
def test_what_is_no_marian_model_is_refused(changes, vocabulary, tmp_path):
    others = "onnx" if "parameter_heads" in changes else "ctranslate2 or onnx"
    with pytest.raises(InputError, match=f"{next(iter(changes))}.*MarianMTModel.* to {others}$"):
        export_hugging_face(Translator(Transformer(replace(SMALL, **changes)), vocabulary), tmp_path / "out")
    assert not list(tmp_path.iterdir())


# --- ONNX -------------------------------------------------------------------------------------------------------------

class Graphs:
    "The two graphs as a search wants a model; its mask is the source itself."

    def __init__(self, folder, config):
        import onnxruntime
        self.config, self.embedding = config, SimpleNamespace(weight=torch.empty(0), logits=lambda scores: scores)
        self.sessions = [onnxruntime.InferenceSession(folder / f"{half}.onnx") for half in ("encoder", "decoder")]

    def encode(self, src):
        return torch.from_numpy(self.sessions[0].run(None, {"src": src.numpy()})[0]), src

    def decode(self, tgt, memory, src):
        return torch.from_numpy(self.sessions[1].run(None, {"tgt": tgt.numpy(), "memory": memory.numpy(),
                                                            "src": src.numpy()})[0])[:, None]


@pytest.mark.slow  # ten seconds to export, each
@pytest.mark.parametrize("changes", [
    {}, {"pre_norm": True, "positions": "learned", "max_length": 64, "d_k": 3, "d_v": 5, "attention_bias": True},
    {"parameter_heads": 2, "n_p": 8}], ids=str)
def test_onnx_graphs_are_the_same_model_at_every_length(changes, vocabulary, tmp_path):
    model = with_every_bias(replace(SMALL, **changes))
    graphs = Graphs(export_onnx(Translator(model, vocabulary), tmp_path / "out"), model.config)
    for batch, longest, written in ((1, 1, 1), (5, 12, 1), (2, 3, 20)):
        src, tgt = torch.randint(4, 100, (batch, longest)), torch.randint(4, 100, (batch, written))
        src[:, -1], src[0, longest // 2 + 1:] = END, PAD
        with torch.no_grad():
            torch.testing.assert_close(graphs.decode(tgt, *graphs.encode(src))[:, 0],
                                       model(src, tgt)[:, -1].log_softmax(-1), atol=1e-4, rtol=0)
    src = torch.randint(4, 100, (4, 6))
    src[:, -1] = END
    theirs, ours = ([h.ids for h in greedy(m, src, max_extra_tokens=5)] for m in (graphs, model))
    assert theirs == ours
    theirs, ours = ([h[0].ids for h in beam_search(m, src, beam_size=3, max_extra_tokens=5)] for m in (graphs, model))
    assert theirs == ours


@pytest.mark.parametrize("write", [export_ctranslate2, export_hugging_face,
                                   pytest.param(export_onnx, marks=pytest.mark.slow)])
def test_a_run_of_version_0_1_is_exported(tmp_path, write):
    write(load(ROOT / "tests/data/v0_1/run"), tmp_path / "exported")
    assert (tmp_path / "exported" / "README.md").exists()
