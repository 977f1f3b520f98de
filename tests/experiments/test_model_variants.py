"""Dependencies by distance, and models whose code is another: small rules run to their end, records as claims ask."""
import math
from dataclasses import replace

import pytest
import torch

from annotated_transformer.corpus.corpora import Corpus
from annotated_transformer.corpus.grammar import examples
from annotated_transformer.decoding.translation import load
from annotated_transformer.engine.fast import plain
from annotated_transformer.engine.kinds import build
from annotated_transformer.experiments.judge import read_claims
from annotated_transformer.experiments.rivals_measured import System, read_rules
from annotated_transformer.experiments.runner import Place, Step, experiment, read_plan, summary, work
from annotated_transformer.model.symbols import START
from annotated_transformer.model.transformer import TransformerConfig, count_parameters
from annotated_transformer.tools.files import InputError
from annotated_transformer.tools.records import add_record, find_record, make_record, read_records
from annotated_transformer.training.loop import train
from annotated_transformer.training.starting import start_run
from annotated_transformer.training.presets import PRESETS
from here import small_corpus

by_distance, model_variants = experiment("by_distance"), experiment("model_variants")

TINY = {"n_layers": 1, "d_model": 16, "d_ff": 16, "n_heads": 2, "d_k": 8, "d_v": 8}
FEW = {"batch_tokens": 300, "steps": 2, "warmup_steps": 1, "save_every": 2, "keep": 1}


@pytest.fixture
def data(tmp_path):
    small_corpus(tmp_path / "data", train=120, dev=6)
    return tmp_path / "data"


def small(name: str, module, systems: dict[str, System], **more) -> list[Step]:
    "The steps of a plan with fewer updates and other systems."
    plan = {key: value for key, value in read_plan(name).items() if key != "steps"}
    trials = plan["trials"] | ({} if len(plan["trials"]["peaks"]) == 1 else FEW)
    return module.steps(**plan | {"data": {"de": "data"}, "training": plan["training"] | FEW, "trials": trials,
                                  "system": [s._asdict() for s in systems.values()]}, **more)


def asked(prefix: str) -> set[str]:
    "The numbers that the claims want of such records."
    sides = [claim[side] for claim in read_claims()["claim"] for side in ("better", "worse") if side in claim]
    return {side[key].removeprefix("metrics.") for side in sides if side["record"].startswith(prefix)
            for key in ("value", "over") if key in side}


def test_variants_of_the_model_to_the_end(data, tmp_path):
    "The rows base and (E) are asked for; once they are there, positions are measured."
    systems = {name: s._replace(model=TINY, seeds={"de": [0]}) for name, s
               in read_rules("model_variants").systems.items()}
    steps, place = small("model_variants", model_variants, systems), Place(tmp_path, tmp_path / "runs",
                                                                           tmp_path / "out")
    assert work(steps, place, "model_variants") == []
    assert summary(steps, place).splitlines()[0] == "row_small_base_seed0: no record yet; another plan makes it"
    for row, kind in (("base", "sinusoidal"), ("E", "learned")):
        name = f"row_small_{row}_seed0"
        run = start_run(place.runs / "variations" / name, data,
                        TransformerConfig(vocab_size=300, **TINY, positions=kind), replace(PRESETS["small"][1], **FEW))
        assert train(run)
        add_record(make_record(name, "variation", data={}, config={}, seed=0, seconds=0, metrics={}), place.out)
    assert work(steps, place, "model_variants") == [] and summary(steps, place) == "All is done."
    assert {step.name for step in steps} == {f"variant_{name}_seed0"
                                             for name in (*systems, "positions")}  # one rate: no trials
    found = find_record("variant_positions_seed0", place.out)
    assert asked("variant_positions") <= set(found["metrics"]) and len(found["metrics"]) == 6
    assert {line["positions"] for line in found["by_position"]} == set(model_variants.POSITIONS)
    assert {"perplexity/dev", "sacrebleu/dev"} <= set(find_record("variant_additive_seed0", place.out)["metrics"])


def test_positions_are_measured_beyond_the_training_length(data, tmp_path):
    "Each number from the plain model's probabilities of single tokens, one joined pair at a time."
    run = start_run(tmp_path / "run", data, TransformerConfig(vocab_size=300, **TINY),
                    replace(PRESETS["small"][1], **FEW))
    assert train(run)
    pairs, translator = list(Corpus.open(data).pairs("dev")), load(tmp_path / "run")
    found, lines, limit = model_variants.by_position(tmp_path / "run", pairs)
    count = math.ceil(2 * limit * len(pairs) / sum(len(ids)
                                                   for ids in translator.encode([tgt for _, tgt in pairs], "tgt")))
    nats = {"within": [], "beyond": []}
    for i in range(0, len(pairs) // count * count, count):
        src, tgt = (translator.encode([" ".join(side)])[0] for side in zip(*pairs[i : i + count]))
        with torch.no_grad():
            logs = plain(translator.model)(torch.tensor([src]), torch.tensor([[START, *tgt[:-1]]]))[0].log_softmax(-1)
        for place, symbol in enumerate(tgt):
            nats["within" if place < limit else "beyond"].append(-logs[place, symbol].item())
    assert limit == run.config["data"]["longest"]["tgt"] and nats["beyond"]
    for part, of in nats.items():
        assert math.isclose(math.exp(sum(of) / len(of)), found[part], rel_tol=1e-4), part
    assert sum(line["tokens"] for line in lines) == sum(map(len, nats.values())) and lines[-1]["to"] > limit
    assert math.isclose(sum(line["tokens"] * math.log(line["perplexity"]) for line in lines),
                        sum(map(sum, nats.values())), rel_tol=1e-4)


def test_the_rules_of_the_variants_are_those_of_the_rows():
    from annotated_transformer.experiments.variations import scaled

    rules, (model, training) = read_rules("model_variants"), scaled("base", "small", 5000)
    shapes = {name: s.configuration(5000) for name, s in rules.systems.items()}
    assert all(vars(shape) == vars(model) for shape in shapes.values())
    assert {s.name: s.seeds["de"] for s in rules.systems.values()} == dict.fromkeys(rules.systems, [0, 1, 2])
    for name in ("steps", "warmup_steps", "batch_tokens", "label_smoothing"):
        assert rules.training[name] == getattr(training, name)
    peak = training.lr_scale * (training.warmup_steps * model.d_model) ** -0.5
    assert rules.trials["peaks"] == [pytest.approx(peak, rel=0.01)]
    sizes = {name: sum(p.numel() for p in build(shape).parameters()) for name, shape in shapes.items()}
    assert count_parameters(model) == sizes["no-positions"] == sizes["additive"] - 18 * 8 * 16


def test_additive_attention_looks_at_no_padding():
    torch.manual_seed(0)
    model = build(model_variants.AdditiveConfig(vocab_size=40, **TINY)).eval()
    src, tgt = torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7, 8]])
    padded = torch.tensor([[5, 6, 3, 0, 0]])
    torch.testing.assert_close(model(padded, tgt), model(src, tgt))


def test_distances_to_the_end(data, tmp_path):
    systems = {"transformer": System("transformer", "tiny", "base", {"de": [0]}, model=TINY)}
    place = Place(tmp_path, tmp_path / "runs", tmp_path / "out")
    assert work(small("by_distance", by_distance, systems, sentences=150), place, "by_distance") == []
    names = list(read_records(place.out))
    assert [name for name in names if "trial" not in name] == ["distance_transformer_seed0",
                                                               "grammar_transformer_seed0"]
    assert len(names) == 2 + 3
    found = find_record("distance_transformer_seed0", place.out)
    assert asked("distance_") <= set(found["metrics"])
    assert all(0 <= v <= 1 for k, v in found["metrics"].items() if k.startswith("kept"))
    assert sum(found["metrics"].get(f"pairs/{name}", 0) for name in by_distance.GROUPS) == sum(
        v for k, v in found["metrics"].items() if k in ("pairs/subject", "pairs/relative", "pairs/particle"))
    assert [point["step"] for point in found["curve"]] == [FEW["steps"]]
    assert set(found["curve"][0]) == {"step", "near", "far"}
    assert {k for k in found["metrics"] if k.startswith("far_at")} == {
        f"far_at/{level}" for level in by_distance.LEVELS if max(point["near"] for point in found["curve"]) >= level}


def test_the_far_ones_at_equal_quality():
    "Where the far ones lag, any level is read off between the checkpoints around it; claims ask for a measured level."
    curve = [{"near": n / 10, "far": (n / 10) ** 2} for n in range(1, 11)]
    for level in (0.05, 0.1, 0.55, 0.7, 1.0):
        low, high = int(level * 10) / 10, min(1.0, int(level * 10) / 10 + 0.1)
        assert low**2 - 1e-9 <= by_distance.far_at(curve, level) <= high**2 + 1e-9
    assert by_distance.far_at(curve, 0.7) == pytest.approx(0.49)
    with pytest.raises(InputError, match="near"):
        by_distance.far_at(curve[:4], 0.7)
    assert asked("distance-longer_") == {"far_at/0.7"} and 0.7 in by_distance.LEVELS


def test_a_wrong_form_loses_a_dependency():
    "Each word of a dependency, taken out of the right translation, loses it, and no other word can win it."
    seen = 0
    for example in (e for e, _ in zip(examples(5), range(200))):
        right = list(by_distance.kept_dependencies(example, example.tgt))
        assert all(kept for _, _, kept in right)
        for i, j in example.alignment:
            ends = [d for d in example.dependencies if i in (d.dependent, d.governor)]
            word = example.tgt_tokens[j]
            if ends and sum(token.lower() == word.lower() for token in example.tgt_tokens) == 1:
                text = " ".join(token for token in example.tgt_tokens if token != word)
                lost = [of for of, before in zip(by_distance.kept_dependencies(example, text), right) if of != before]
                both = [d for d in ends if {d.dependent, d.governor} <= {a for a, _ in example.alignment}]
                assert len(lost) == len(both)
                seen += len(lost)
    assert seen > 100


@pytest.mark.parametrize("name", ["by_distance", "by_distance_longer"])
def test_the_rules_by_distance_are_of_equal_size(name):
    rules = read_rules(name)
    assert all(s.seeds == {"de": [0, 1, 2]} for s in rules.systems.values())
    assert rules.systems["transformer"].config in PRESETS
    assert len(rules.systems) == 3 and rules.data == {"de": "grammar"}
    from annotated_transformer.rivals.base import body_parameters

    sizes = [body_parameters(s.configuration(1200)) for s in rules.systems.values()]
    assert max(sizes) / min(sizes) < 1.05
