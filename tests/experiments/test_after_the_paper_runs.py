"""The runs after the paper, on tiny sizes: each leaves what its rules ask for, and a stopped one goes on."""
import pytest

from annotated_transformer.experiments.runner import Place, Session, TimeUp, experiment, read_plan
from annotated_transformer.tools.files import InputError

steps = experiment("after_the_paper").steps


@pytest.mark.slow
@pytest.mark.parametrize("what", ["encoder", "continuation", "spans", "alignment"])
def test_every_run_leaves_a_record_with_what_its_rules_ask_for(what, tmp_path):
    [step] = steps([{"what": what, "seeds": [0]}], scale=0.005)
    record = step.do(Place(tmp_path, tmp_path / "runs", tmp_path / "out"))
    asked = {rule[key] for rule in read_plan("after_the_paper")["rule"] if rule["records"] + "_seed0" == step.name
             for key in ("better", "worse") if key in rule}
    assert record["name"] == step.name and asked and asked <= set(record["metrics"])


def test_a_run_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    place, once, calls = Place(tmp_path, tmp_path / "runs", tmp_path / "out"), Session.once, []
    [step] = steps([{"what": "spans", "seeds": [0]}], scale=0.005)

    def stopping(session, name, measure):
        calls.append(name)
        if len(calls) == 3:
            raise TimeUp
        return once(session, name, measure)

    monkeypatch.setattr(Session, "once", stopping)
    with pytest.raises(TimeUp):
        step.do(place)
    folder = place.runs / "after" / "after_spans_seed0"
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.json") if path.name != "clock.json"}
    assert len(before) == 2
    monkeypatch.setattr(Session, "once", once)
    record = step.do(place)
    assert before.items() <= {path.name: path.stat().st_mtime_ns for path in folder.glob("*.json")}.items()
    assert record["status"] == "finished" and len(record["sittings"]) == 2


def test_nothing_begins_when_time_is_up(tmp_path):
    [step] = steps([{"what": "spans", "seeds": [0]}], scale=0.005)
    with pytest.raises(TimeUp):
        step.do(Place(tmp_path, tmp_path / "runs", tmp_path / "out", until=0.0))


def test_data_that_is_not_there_is_named(tmp_path):
    [step] = steps([{"what": "encoder", "data": "treebank_x", "seeds": [0]}])
    with pytest.raises(InputError, match="treebank_x: no such folder"):
        step.do(Place(tmp_path, tmp_path / "runs", tmp_path / "out"))
