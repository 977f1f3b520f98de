"""Models of other programs: logits and translations beside the program or an independent twin; and what is refused."""
import argparse
import json
import os
import subprocess
import sys

import pytest
import torch
import transformers  # it loads a model when it is first named
import yaml
from torch import nn

from annotated_transformer.commands import cli
from annotated_transformer.corpus.vocabulary import BytePairVocabulary
from annotated_transformer.decoding.search import beam_search
from annotated_transformer.decoding.translation import load
from annotated_transformer.exports.hugging_face import export_hugging_face
from annotated_transformer.imports.imported import (
    NOT_WRITTEN, Imported, ImportedConfig, imported_vocabulary, in_turn, joined_pairs, order_of_rows)
from annotated_transformer.imports.joeynmt import read_merges
from annotated_transformer.imports.marian import read_marian
from annotated_transformer.inside.attention_figures import figure_4
from annotated_transformer.model.embedding import sinusoids
from annotated_transformer.model.layers import EPSILON
from annotated_transformer.model.symbols import END, PAD, START, UNKNOWN
from annotated_transformer.model.transformer import Transformer, TransformerConfig
from annotated_transformer.tools.files import InputError
from command_line import fails
from here import SMALL

pytestmark = pytest.mark.xdist_group("imports")  # one process reads the other programs' code
LINES = ["The dog sees the cow.", "The child that the woman knows sleeps in the old house.",
         "A “quoted” word — ☃", "no"]


def randomise(model: nn.Module, seed: int) -> nn.Module:
    "Weights wide enough that the choices of a search are clear; gains near 1; no bias is zero."
    torch.manual_seed(seed)
    for name, p in model.named_parameters():
        if "embed_positions" not in name:
            nn.init.normal_(p, float("norm" in name and "weight" in name), 0.3 if p.dim() < 2 else p.size(-1) ** -0.5)
    return model.eval()


def write_marian(folder, seed=0, heads=4, width=32, depth=(2, 2), names=None, **changes) -> nn.Module:
    "A random model in the layout of the OPUS models: </s>, <unk>, the pieces of both languages, <pad>."
    pieces = BytePairVocabulary(load("grammar").vocabulary.content)
    names = names or ["</s>", "<unk>", *sorted(pieces.pieces(range(4, 190))), "<pad>"]
    sizes = {f"{stack}_{name}": n for stack, layers in zip(("encoder", "decoder"), depth)
             for name, n in (("layers", layers), ("attention_heads", heads), ("ffn_dim", 2 * width))}
    config = {"vocab_size": len(names), "d_model": width, "pad_token_id": len(names) - 1, "eos_token_id": 0,
              "forced_eos_token_id": 0, "decoder_start_token_id": len(names) - 1, "activation_function": "swish",
              "scale_embedding": True, "max_position_embeddings": 128, **sizes, **changes}
    model = randomise(transformers.MarianMTModel(transformers.MarianConfig(**config)), seed)
    nn.init.normal_(model.final_logits_bias)
    model.save_pretrained(folder)
    for name, content in (("vocab.json", {name: i for i, name in enumerate(names)}),
                          ("tokenizer_config.json", {"source_lang": "en", "target_lang": "de"})):
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(pieces.content)
    return model


class Theirs(torch.nn.Module):
    "A model of transformers' with our ids, as our search asks for one."

    def __init__(self, model, config, rows):
        super().__init__()
        self.model, self.config, self.weight = model, config, torch.empty(0)
        self.rows, self.doubled = torch.tensor(rows), rows.count(rows[START]) > 1

    @property
    def embedding(self):
        return self

    def encode(self, src):
        return self.model.model.encoder(self.rows[src], attention_mask=(src != PAD).long())[0], src != PAD

    def decode(self, tgt, memory, mask):
        ids = self.rows[tgt]  # FSMT makes no causal mask without some input_ids
        return self.model(input_ids=ids, encoder_outputs=(memory,), attention_mask=mask.long(),
                          decoder_input_ids=ids, use_cache=False).logits

    def logits(self, scores):
        found = scores[..., self.rows]
        if self.doubled:
            found[..., START] = NOT_WRITTEN
        return found

    def forward(self, src, tgt):
        return self.logits(self.decode(tgt, *self.encode(src)))


def batch(translator):
    src = nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in translator.encode(LINES)], batch_first=True)
    tgt = torch.randint(4, len(translator.vocabulary), (len(src), 10), generator=torch.Generator().manual_seed(0))
    tgt[:, 0] = START
    return src, tgt


def check_same(translator, theirs, tolerance=1e-4):
    "Logits, their spread far above the tolerance; all of beam 4's translations and scores, by our fast search."
    src, tgt = batch(translator)
    with torch.no_grad():
        a, b = theirs(src, tgt), translator.model(src, tgt)
    written = [i for i in range(a.size(-1)) if i != START]
    assert a[..., 4:].std() > 0.3 and (a - b)[..., written].abs().max() < tolerance
    assert (a.log_softmax(-1) - b.log_softmax(-1))[..., written].abs().max() < tolerance
    found, wanted = (sum(beam_search(model, src, max_extra_tokens=5, n_best=4), [])
                     for model in (translator.model, theirs))
    assert [h.ids for h in found] == [h.ids for h in wanted] and any(len(h.ids) > 2 for h in found)
    assert [h.score for h in found] == pytest.approx([h.score for h in wanted], abs=1e-3)


def test_the_vocabulary_of_a_run_in_a_process_of_its_own(tmp_path):
    export_hugging_face(load("grammar"), tmp_path / "marian")
    cli.main(["import", str(tmp_path / "marian"), str(tmp_path / "run")])
    alone = subprocess.run([sys.executable, "-c", "import sys, annotated_transformer as a; "
                            "print(a.load_vocabulary(sys.argv[1]).encode('The cow is old .'))", str(tmp_path / "run")],
                           capture_output=True, text=True)
    assert alone.stdout == f"{load('grammar').vocabulary.encode('The cow is old .')}\n", alone.stderr


def test_lines_are_read_alike(tmp_path):
    "A blank line, however it ends, has no tokens; what some tools take for a line's end is white space."
    words = imported_vocabulary(["<s>", "<pad>", "</s>", "<unk>", "a", "b"], order_of_rows(6, 1, 3, 2, 2))
    for blank in ("", "\r", " \u2028", "\x85", "\u3000"):
        assert words.encode(blank) == []
    assert words.encode("a\u2028b\r") == words.encode("a b")
    (tmp_path / "codes").write_text("#version: 0.2\r\na \u2028b\r\nb c</w>\r\n", encoding="utf-8", newline="")
    assert read_merges(tmp_path / "codes") == [["a", "\u2028b"], ["b", "c</w>"]]


def run_of(folder, tmp_path):
    cli.main(["import", str(folder), str(tmp_path / "run")])
    return load(tmp_path / "run", "float32")


@pytest.mark.parametrize("changes", [
    {}, {"activation_function": "relu", "scale_embedding": False}, {"depth": (3, 1)},
    {"depth": (1, 2), "activation_function": "gelu"},
    {"share_encoder_decoder_embeddings": False},
    {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
], ids=lambda changes: " ".join(changes) or "opus")
def test_marian_gives_the_same_logits_and_translations(changes, tmp_path):
    model = write_marian(tmp_path / "theirs", **changes)
    translator = run_of(tmp_path / "theirs", tmp_path)
    size = model.config.vocab_size
    check_same(translator, Theirs(model, translator.model.config, order_of_rows(size, size - 1, 1, size - 1, 0)))


@pytest.mark.slow
def test_marian_of_opus_size(tmp_path):
    names = ["</s>", "<unk>", *(f"▁{i}" for i in range(58_098)), "<pad>"]
    model = write_marian(tmp_path / "theirs", heads=8, width=512, depth=(6, 6), names=names,
                         encoder_ffn_dim=2048, decoder_ffn_dim=2048)
    translator = run_of(tmp_path / "theirs", tmp_path)
    assert 70e6 < sum(p.numel() for p in translator.model.parameters()) < 80e6
    last = len(names) - 1
    check_same(translator, Theirs(model, translator.model.config, order_of_rows(len(names), last, 1, last, 0)), 1e-3)


def test_greedy_search_is_generate(tmp_path):
    model = write_marian(tmp_path / "theirs")
    translator = run_of(tmp_path / "theirs", tmp_path)
    tokenizer, last = transformers.MarianTokenizer.from_pretrained(tmp_path / "theirs"), model.config.pad_token_id
    for line, (h,) in zip(LINES, translator.search(LINES, beam_size=1, max_extra_tokens=20)):
        found = model.generate(**tokenizer(line, return_tensors="pt"), num_beams=1, do_sample=False,
                               bad_words_ids=[[last]], forced_eos_token_id=None,
                               max_new_tokens=len(h.token_log_probabilities))
        ours = translator.vocabulary.decode(h.ids).replace("⁇", "")
        assert tokenizer.decode(found[0], skip_special_tokens=True).split() == ours.split()


def test_text_is_cut_as_marian_tokenizer_cuts_it(tmp_path):
    write_marian(tmp_path / "theirs")
    vocabulary = read_marian(tmp_path / "theirs")[2]
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "theirs")
    rows = order_of_rows(189, 188, 1, 188, 0)
    for line in [*LINES, "  two   spaces\tand a tab ", ">>de<< The dog", "’tis “so”…"]:
        assert [rows[i] for i in vocabulary.source.encode(line)] == tokenizer(line)["input_ids"][:-1], line
    assert UNKNOWN in vocabulary.encode("☃") and END not in vocabulary.encode("a </s> b")


def test_a_model_of_ours_comes_back(tmp_path):
    "Exported as a Marian model and imported: the plain core, whose start token is its own, and attention weights."
    ours = load("grammar")
    export_hugging_face(ours, tmp_path / "marian")
    back = run_of(tmp_path / "marian", tmp_path)
    assert back.translate(LINES[:2]) == ours.translate(LINES[:2])
    for a, b in zip(ours.attention(LINES[0]).cross, back.attention(LINES[0]).cross):
        assert (a - b).abs().max() < 1e-3  # their LayerNorm adds 1e-5, ours 1e-6
    assert figure_4(back, LINES[1], word="that")


def test_python_opens_it(tmp_path):
    write_marian(tmp_path / "theirs", depth=(2, 1))
    translator = run_of(tmp_path / "theirs", tmp_path)
    quality = translator.measure(["The dog."], ["Der Hund."])
    src, tgt = translator.encode(["The dog."]), translator.encode(["Der Hund."], "tgt")
    src, tgt = torch.tensor(src), torch.tensor([[START, *tgt[0]]])
    with torch.no_grad():
        logs = translator.model(src, tgt[:, :-1]).log_softmax(-1)[0].gather(1, tgt[0, 1:, None])
    assert quality.perplexity == pytest.approx((-logs.mean()).exp().item(), rel=1e-4)
    record = translator.attention(LINES[0])
    assert (len(record.encoder), len(record.decoder), len(record.cross)) == (2, 1, 1)
    assert load(tmp_path / "run", "int8").translate("The dog.") is not None
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["kind"] == "imported" and config["data"]["src"] == "en" and len(config["imported"]["sha256"]) == 64


@pytest.mark.parametrize("argv, said", [
    (["export", "{run}", "{new}"], "imported, and only what was trained here is exported"),
    (["import", "{run}", "{new}"], "already"),
    (["import", "{theirs}", "{run}"], "exists already"),
])
def test_what_cannot_be_done_with_it(argv, said, tmp_path, capsys):
    write_marian(tmp_path / "theirs", depth=(1, 1))
    run_of(tmp_path / "theirs", tmp_path)
    places = {name: str(tmp_path / name) for name in ("run", "new", "theirs")}
    fails([argument.format(**places) for argument in argv], capsys, said)
    with pytest.raises(InputError, match="not trained"):
        load(tmp_path / "run").model.train()


class Evil:
    def __reduce__(self):
        return os.system, ("echo ran > ran",)


def change(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


BREAKS = {
    "model_type bart": lambda f: change(f / "config.json", model_type="bart"),
    "activation_function tanh": lambda f: change(f / "config.json", activation_function="tanh"),
    "another number of heads": lambda f: change(f / "config.json", decoder_attention_heads=2),
    "source.spm: no such file": lambda f: (f / "source.spm").unlink(),
    "vocab.json: cannot be read": lambda f: (f / "vocab.json").unlink(),
    "do not belong together": lambda f: change(f / "vocab.json", more=189),
    "a special token has the id None": lambda f: change(f / "config.json", pad_token_id=None),
    "an architecture that is not read here":
        lambda f: change(f / "config.json", encoder_attention_heads=None, decoder_attention_heads=None),
    "has neither": lambda f: (f / "model.safetensors").unlink(),
    "model.safetensors: not a safetensors file": lambda f: (f / "model.safetensors").write_bytes(b"x" * 20),
    "such objects can run code": lambda f: as_bin(f, {"a": Evil()}),
    "pytorch_model.bin: cannot be read":
        lambda f: (as_bin(f, {}), (f / "pytorch_model.bin").write_bytes(b"PK\x03\x04")),
    'Missing key(s) in state_dict: "encoder.0.self_attention.query.weight"':
        lambda f: as_bin(f, {"model.encoder.layers.0.self_attn.q_proj.weight": None}),
    'Unexpected key(s) in state_dict: "encoder.layernorm_embedding.weight"':
        lambda f: as_bin(f, {"model.encoder.layernorm_embedding.weight": torch.ones(32)}),
    "not the sinusoids": lambda f: as_bin(f, {"model.encoder.embed_positions.weight": torch.ones(128, 32)}),
    "size mismatch": lambda f: as_bin(f, {"model.encoder.layers.0.fc1.bias": torch.ones(3)}),
}


def as_bin(folder, changes, half=False):
    "Replace model.safetensors by the older file, with every table in it, some of its entries changed."
    state = transformers.MarianMTModel.from_pretrained(folder).state_dict() | changes
    state = {name: x.half() if half else x for name, x in state.items() if x is not None}
    torch.save(state, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize("said", BREAKS)
def test_what_is_refused(said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_marian(tmp_path / "theirs", depth=(1, 1))
    BREAKS[said](tmp_path / "theirs")
    fails(["import", str(tmp_path / "theirs"), str(tmp_path / "run")], capsys, said)
    assert not (tmp_path / "run").exists() and not (tmp_path / "ran").exists()


def test_older_folders_are_read_alike(tmp_path):
    "pytorch_model.bin, with every table in it twice and in half precision."
    model = write_marian(tmp_path / "theirs")
    as_bin(tmp_path / "theirs", {}, half=True)
    translator = run_of(tmp_path / "theirs", tmp_path)
    model.half().float()  # their table of positions too, which we compute
    check_same(translator, Theirs(model, translator.model.config, order_of_rows(189, 188, 1, 188, 0)), 2e-3)


def test_a_name_is_fetched(tmp_path, monkeypatch, capsys):
    import huggingface_hub
    write_marian(tmp_path / "theirs", depth=(1, 1))
    asked = []
    monkeypatch.setattr(huggingface_hub, "snapshot_download",
                        lambda name, **options: asked.append(name) or str(tmp_path / "theirs"))
    cli.main(["import", "some/model", str(tmp_path / "run")])
    assert asked == ["some/model"] and load(tmp_path / "run").run.config["imported"]["from"] == "some/model"
    def unreachable(name, **options):
        raise ConnectionError("no\nnetwork")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    fails(["import", "some/model", str(tmp_path / "other")], capsys, "no network")
    fails(["import", str(tmp_path / "nowhere"), str(tmp_path / "other")], capsys, "no such folder")
    (tmp_path / "empty").mkdir()
    fails(["import", str(tmp_path / "empty"), str(tmp_path / "other")], capsys, "no model is found")


# --- fairseq, whose arithmetic transformers has as FSMT ---------------------------------------------------------------

CODES = "#version: 0.2\nl o\nlo w\nlo w</w>\ne r</w>\nt h\nth e</w>\nd o\ndo g</w>\nn e\nne w</w>\n"


def write_fairseq(folder, old=False, shared=True, **args):
    "A random FSMT model under fairseq's names, with its settings as a Namespace; `old` as the checkpoints of 2018."
    folder.mkdir()
    words = ["low@@", "er", "low", "new", "est@@", "the", "dog"]
    sizes = {"attention_heads": 4, "ffn_dim": 64, "layers": 2}
    shape = {f"{stack}_{name}": n for stack in ("encoder", "decoder") for name, n in sizes.items()}
    size = len(words) + 4
    model = randomise(transformers.FSMTForConditionalGeneration(transformers.FSMTConfig(
        src_vocab_size=size, tgt_vocab_size=size, d_model=32, max_position_embeddings=100, tie_word_embeddings=shared,
        **shape)), 3)
    state = {name.removeprefix("model."): x for name, x in model.state_dict().items() if "embed_positions" not in name}
    state |= {f"{stack}.embed_positions._float_tensor": torch.zeros(1) for stack in ("encoder", "decoder")}
    if old:
        state |= {f"{stack}.version": torch.tensor([3.0]) for stack in ("encoder", "decoder")}
        for name in [name for name in state if ".q_proj." in name]:
            parts = [state.pop(name.replace("q_proj", part)) for part in ("q_proj", "k_proj", "v_proj")]
            state[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
        for stack, norms in (("encoder", ("self_attn", "final")), ("decoder", ("self_attn", "encoder_attn", "final"))):
            for i, norm in enumerate(norms):
                for name in [name for name in state if name.startswith(stack) and f".{norm}_layer_norm." in name]:
                    state[name.replace(f"{norm}_layer_norm", f"layer_norms.{i}")] = state.pop(name)
    langs = {"source_lang": "en", "target_lang": "de"}
    settings = {"arch": "transformer", "encoder_attention_heads": 4, "decoder_attention_heads": 4, **langs,
                "encoder_normalize_before": False, **args}
    checkpoint = {"args": argparse.Namespace(**settings), "model": state, "extra_state": {"epoch": 3}}
    if not old:
        checkpoint |= {"args": None, "cfg": {"task": langs, "model": argparse.Namespace(**settings)}}
    torch.save(checkpoint, folder / "model.pt")
    for lang in ("en", "de"):
        (folder / f"dict.{lang}.txt").write_text("".join(f"{word} {i}\n" for i, word in enumerate(words)))
    (folder / "bpecodes").write_text(CODES)
    return model


@pytest.mark.parametrize("options", [{}, {"old": True}, {"shared": False}], ids=str)
def test_fairseq_gives_what_fsmt_gives(options, tmp_path, monkeypatch):
    model = write_fairseq(tmp_path / "theirs", **options)
    translator = run_of(tmp_path / "theirs", tmp_path)
    ids = translator.encode(["low lower the"])[0]
    assert translator.vocabulary.source.pieces(ids) == ["▁low", "▁low", "er", "▁the", "</s>"]
    assert translator.vocabulary.decode([UNKNOWN, *translator.vocabulary.encode("lower dog")]) == "⁇ lower dog"
    monkeypatch.setattr(sys.modules[__name__], "LINES", ["low lower the", "the dog", "new lower dog low low the dog"])
    check_same(translator, Theirs(model, translator.model.config, order_of_rows(11, 1, 3, 2, 2)))


@pytest.mark.parametrize("said, wrong", [
    ("encoder_normalize_before", {"encoder_normalize_before": True}),
    ("no_token_positional_embeddings", {"no_token_positional_embeddings": True}),
    ("decoder_attention_heads differ", {"decoder_attention_heads": 2}), ("test_imports.Holder", {"what": "Holder"}),
])
def test_fairseq_checkpoints_that_are_refused(said, wrong, tmp_path, capsys):
    wrong = {name: Holder() if value == "Holder" else value for name, value in wrong.items()}
    write_fairseq(tmp_path / "theirs", **wrong)
    fails(["import", str(tmp_path / "theirs"), str(tmp_path / "run")], capsys, said)


def test_a_fairseq_dictionary_that_is_not_utf8(tmp_path, capsys):
    write_fairseq(tmp_path / "theirs")
    (tmp_path / "theirs" / "dict.de.txt").write_bytes("größer 3\n".encode("latin-1"))
    fails(["import", str(tmp_path / "theirs"), str(tmp_path / "run")], capsys, "dict.de.txt, line 1: not UTF-8")


class Holder:
    "As fairseq's meters and OmegaConf's containers: an object of a class that is not allowed."


# --- JoeyNMT, beside PyTorch's own layers -----------------------------------------------------------------------------

class Joey(nn.Module):
    "A twin of JoeyNMT's Transformer made of PyTorch's, in whose names its weights are not."

    def __init__(self, pre, size, d=32, tied=True):
        super().__init__()
        self.core = nn.Transformer(d, 4, 2, 2, 64, 0.0, layer_norm_eps=1e-6, batch_first=True, norm_first=pre)
        if not pre:
            self.core.encoder.norm = self.core.decoder.norm = None
        self.src, self.trg = (nn.Embedding(size, d) for _ in range(2))
        self.out = nn.Linear(d, size, bias=False)
        if tied:
            self.trg, self.out.weight = self.src, self.src.weight

    def embed(self, table, ids):
        return table(ids) * 32**0.5 + sinusoids(ids.size(1), 32)

    def forward(self, src, tgt):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(1))
        return self.out(self.core(self.embed(self.src, src), self.embed(self.trg, tgt), tgt_mask=mask,
                                  src_key_padding_mask=src == 1, memory_key_padding_mask=src == 1))


def joey_state(twin, pre):
    "The twin's weights under JoeyNMT's names."
    state = {"src_embed.lut.weight": twin.src.weight, "trg_embed.lut.weight": twin.trg.weight,
             "decoder.output_layer.weight": twin.out.weight,
             "encoder.pe.pe": torch.zeros(1, 5, 32), "decoder.pe.pe": torch.zeros(1, 5, 32)}
    last, parts = "feed_forward.layer_norm", ("weight", "bias")
    norms = {"encoder": ("layer_norm", last), "decoder": ("x_layer_norm", "dec_layer_norm", last)}
    for stack, own in (("encoder", "src_src_att"), ("decoder", "trg_trg_att")):
        for i, layer in enumerate(getattr(twin.core, stack).layers):
            modules = {"feed_forward.pwff_layer.0": layer.linear1, "feed_forward.pwff_layer.3": layer.linear2}
            modules |= {name: getattr(layer, f"norm{j}") for j, name in enumerate(norms[stack], 1)}
            cross = {"src_trg_att": layer.multihead_attn} if stack == "decoder" else {}
            for name, attention in {own: layer.self_attn, **cross}.items():
                modules[f"{name}.output_layer"] = attention.out_proj
                for part, *x in zip("qkv", attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3)):
                    modules[f"{name}.{part}_layer"] = argparse.Namespace(weight=x[0], bias=x[1])
            state |= {f"{stack}.layers.{i}.{name}.{p}": getattr(m, p) for name, m in modules.items() for p in parts}
        if pre:
            state |= {f"{stack}.layer_norm.{p}": getattr(getattr(twin.core, stack).norm, p) for p in parts}
    return {name: x.detach().clone() for name, x in state.items()}


def write_joey(folder, pre=True, tied=True, special=None, **stack):
    special = special or {}
    ends = special.get("bos_token", "<s>"), special.get("eos_token", "</s>")
    names = ["<unk>", "<pad>", *ends, "the", "low@@", "er", "low", "dog"]
    twin = randomise(Joey(pre, len(names), tied=tied), 2)
    folder.mkdir()
    torch.save({"steps": 10, "model_state": joey_state(twin, pre), "optimizer_state": {}}, folder / "best.ckpt")
    half = {"type": "transformer", "num_heads": 4, "embeddings": {"embedding_dim": 32, "scale": True}} | stack
    side = {"level": "bpe", "lowercase": True, "tokenizer_cfg": {"codes": "far/away/codes"}}
    (folder / "config.yaml").write_text(yaml.safe_dump({"model": {"encoder": half, "decoder": half}, "data": {
        "src": side | {"lang": "en"}, "trg": side | {"lang": "de"}, "special_symbols": special}}))
    (folder / "codes").write_text(CODES)
    for name in ("src_vocab.txt", "trg_vocab.txt"):
        (folder / name).write_text("\n".join(names) + "\n")
    return twin


@pytest.mark.parametrize("options", [{}, {"tied": False, "special": {"bos_token": "<bos>", "eos_token": "<eos>"}},
                                     {"pre": False, "layer_norm": "post"}], ids=str)
def test_joeynmt_gives_what_pytorch_gives(options, tmp_path):
    twin = write_joey(tmp_path / "theirs", **options)
    translator = run_of(tmp_path / "theirs", tmp_path)
    rows = torch.tensor(order_of_rows(9, 1, 0, 2, 3))
    encoded = map(torch.tensor, translator.encode(["The lower dog", "dog", "low low the"]))
    src = nn.utils.rnn.pad_sequence([*encoded], batch_first=True)
    tgt = torch.tensor([[START, 4, 5, 6, 7]] * 3)
    with torch.no_grad():
        a, b = twin(rows[src], rows[tgt])[..., rows], translator.model(src, tgt)
    assert a.std() > 0.3 and (a - b).abs().max() < 1e-4
    assert translator.vocabulary.decode(translator.vocabulary.encode("The LOWER dog")) == "the lower dog"
    assert translator.run.config["data"]["tgt"] == "de" and len(translator.translate(["the dog", ""])) == 2


@pytest.mark.parametrize("said, options", [
    ("versions of JoeyNMT disagree", {"pre": False}), ("layer_norm post", {"layer_norm": "post"}),
    ("alpha 0.5", {"alpha": 0.5}),
    ("type recurrent", {"type": "recurrent"}), ("not as JoeyNMT writes it", {"embeddings": None}),
])
def test_joeynmt_models_that_are_refused(said, options, tmp_path, capsys):
    write_joey(tmp_path / "theirs", **options)
    fails(["import", str(tmp_path / "theirs"), str(tmp_path / "run")], capsys, said)


@pytest.mark.parametrize("name", ["codes", "trg_vocab.txt", "best.ckpt"])
def test_joeynmt_folders_that_lack_a_file(name, tmp_path, capsys):
    write_joey(tmp_path / "theirs")
    (tmp_path / "theirs" / name).unlink()
    fails(["import", str(tmp_path / "theirs"), str(tmp_path / "run")], capsys, name)


@pytest.mark.parametrize("name", ["codes", "src_vocab.txt", "config.yaml"])
def test_joeynmt_files_that_are_not_utf8(name, tmp_path, capsys):
    write_joey(tmp_path / "theirs")
    path = tmp_path / "theirs" / name
    path.write_bytes(path.read_bytes() + "# größer\n".encode("latin-1"))
    fails(["import", str(tmp_path / "theirs"), str(tmp_path / "run")], capsys, f"{name}, line ", "not UTF-8")


def test_joeynmt_without_a_language(tmp_path, capsys):
    write_joey(tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.yaml"
    path.write_text(path.read_text().replace("lang: de", "language: de"))
    fails(["import", str(tmp_path / "theirs"), str(tmp_path / "run")], capsys, "not as JoeyNMT writes it: 'lang'")


def test_joeynmt_without_a_number_of_heads(tmp_path, capsys):
    write_joey(tmp_path / "theirs", num_heads=None)
    fails(["import", str(tmp_path / "theirs"), str(tmp_path / "run")], capsys, "an architecture that is not read here")


# --- parts ------------------------------------------------------------------------------------------------------------

def test_byte_pairs():
    ranks = {pair: i for i, pair in enumerate([("a", "b"), ("ab", "ab"), ("b", "a"), ("c", "ab</w>"), ("a", "b</w>")])}
    assert joined_pairs("abab", ranks) == ["ab@@", "ab"]  # the last b is another token
    assert joined_pairs("ababx", ranks) == ["abab@@", "x"]
    assert joined_pairs("cab", ranks) == ["cab"] and joined_pairs("x", ranks) == ["x"]


def test_the_order_of_dimensions_is_the_sinusoids():
    halves = torch.cat((sinusoids(7, 10)[:, ::2], sinusoids(7, 10)[:, 1::2]), 1)
    assert torch.equal(in_turn({"embedding.weight": halves})["embedding.weight"], sinusoids(7, 10))


def test_a_model_that_differs_in_nothing_is_ours():
    "Nothing but what LayerNorm adds to the variance, which is PyTorch's number where nobody says another."
    shape = {"vocab_size": 30, **SMALL["transformer"]}
    theirs, ours = Imported(ImportedConfig(**shape, epsilon=EPSILON)), Transformer(TransformerConfig(**shape))
    weights = theirs.state_dict()
    assert not weights.pop("embedding.bias").any()
    ours.load_state_dict(weights)
    src, tgt = torch.randint(4, 30, (2, 3, 7))
    torch.testing.assert_close(theirs.double().eval()(src, tgt), ours.double().eval()(src, tgt))
