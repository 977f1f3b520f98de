"""Charts: where `show` writes them."""
import altair as alt
import pandas as pd

from annotated_transformer.drawing.charts import show


def test_a_chart_with_a_name_is_saved_where_there_is_a_place(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("ANNOTATED_FIGURES", str(tmp_path / "figures"))
    chart = alt.Chart(pd.DataFrame({"x": [1, 2]})).mark_point().encode(x="x")
    show(chart)
    assert not (tmp_path / "figures").exists()
    show(chart, "drawn")
    show(chart, "dotted", png=True)
    saved = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    assert {name: content[:4] for name, content in saved.items()} == {"drawn.svg": b"<svg", "dotted.png": b"\x89PNG"}
    monkeypatch.delenv("ANNOTATED_FIGURES")
    show(chart, "away")  # from a checkout
    assert not any((tmp_path / "elsewhere").iterdir())
