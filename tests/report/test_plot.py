"""Tidy rows become lines with intervals, and forests, that can be told apart."""

import itertools
import math
import re
import xml.etree.ElementTree as ET

import pytest
from charts import forests_of, panels_of

from openrlhf_js.report import style
from openrlhf_js.report.figures import page, picture
from openrlhf_js.report.forest import Forest, ForestRow
from openrlhf_js.report.plot import Axis, Panel, draw
from openrlhf_js.report.text import short_names

M = Axis("m", "responses")
HOSTILE = "</script><b>'\"\x07,\n$1"


def rows(*names, **quantities):
    """Rows of m = 8, 2, 4 from functions of m, with intervals one wide on both sides."""
    tidy = []
    for name, (quantity, function), m in itertools.product(names, quantities.items(), (8, 2, 4)):
        value = function(m)
        row = {"m": m, "estimator": name, "quantity": quantity, "value": value, "low": None}
        if m < 8:
            row |= {"low": value - 1, "high": value + 1}
        tidy.append(row)
    return tidy


def test_a_chart_says_in_words_what_it_shows():
    (drawing,) = draw(rows("js", mse=float), {"mse": Panel("Error", "MSE")}, M)
    assert drawing.sentence() == "Error, MSE, by responses. js: 2 (1 to 3) at 2, 8 at 8."
    assert f'<img alt="{drawing.sentence()}"' in page([drawing])


@pytest.mark.parametrize(("intervals", "mark"), [("band", "band"), ("bars", "bar")])
def test_rows_become_a_line_for_each_setting_in_a_panel_for_each_quantity(intervals, mark):
    panels = {
        "saved": Panel("Saved", "%", "a note", reference=0, intervals=intervals),
        "mse": Panel("Error", "MSE"),
    }
    tidy = rows("rloo", "js", mse=lambda m: 1 / m, saved=float, other=lambda m: math.inf)
    drawn = draw(tidy, panels, M)
    saved, mse = panels_of(picture(drawn, title="model and task"))

    for line in mse.lines.values():
        assert line.value.tolist() == [0.5, 0.25, 0.125]
    assert len(mse.lines) == 2
    assert mse.lines["js"].x.tolist() == [2, 4, 8]
    assert (saved.title, saved.note) == ("Saved", "a note")
    js = saved.lines["js"]
    rloo = saved.lines["rloo"]
    assert js.low.tolist()[:2] == [1, 3]
    assert js.high.isna().tolist() == [False, False, True]
    assert (js["shift"] == rloo["shift"]).all() == (mark == "band")  # bars stand side by side
    assert set(js.interval[:2]) == {mark}


def test_a_point_without_a_number_and_an_empty_panel_are_left_out():
    data = [
        {"step": i, "run": "a", "quantity": "x", "value": value}
        for i, value in enumerate([1.0, None, math.nan, 3.0])
    ]
    panels = {"x": Panel("X", "x", log=True), "y": Panel("Y", "y")}
    (shown,) = panels_of(picture(draw(data, panels, Axis("step", "step"), line="run")))
    assert shown.lines["a"].x.tolist() == [0, 3]
    assert shown.vertical["type"] == "log"


def test_a_picture_is_the_same_bytes_every_time_and_loads_nothing(tmp_path):
    data = rows("$a$", HOSTILE, mse=float)
    drawn = picture(draw(data, {"mse": Panel("costs $1 or $2", "reward", "a note")}, M))
    one, other = (style.save_png(drawn, tmp_path / name) for name in ("1.png", "2.png"))
    assert one == tmp_path / "1.png"
    assert one.read_bytes() == other.read_bytes()
    svg = style.svg(drawn)
    ET.fromstring(svg)
    assert "costs $1 or $2" in svg and "\x07" not in svg
    assert 'href="http' not in svg and "url(http" not in svg


def marks(chart, attribute):
    """The values of an attribute in the picture."""
    return set(re.findall(f' {attribute}="(.*?)"', style.svg(chart)))


def test_series_differ_in_colour_dashes_and_markers_as_their_place_in_the_picture_says():
    tidy = rows("rloo", "js", mse=float)
    (both,) = draw(tidy, {"mse": Panel("Error", "MSE")}, M)
    (second,) = draw(tidy[3:], {"mse": Panel("Error", "MSE")}, M, series=["rloo", "js"])
    _, other = sorted(marks(both.chart(), "stroke-dasharray"))
    assert marks(second.chart(), "stroke-dasharray") == {other}
    colours = marks(both.chart(), "fill") - marks(second.chart(), "fill")
    assert len(colours) == 1
    shapes = marks(both.chart(), "d") - marks(second.chart(), "d")
    assert len(shapes) > 1


def test_a_forest_shows_every_interval():
    dots = [ForestRow("", "a", 5.0, -99.0, 9.0), ForestRow("mixed", "b", 6.0, None, None)]
    forest = Forest("T", "n", "points", dots, ["a", "b"])
    assert forest.sentence() == "T, points. a: 5 (-99 to 9); mixed, b: 6."
    assert forests_of(picture([forest])) == [
        {("", "a"): (5, -99, 9), ("mixed", "b"): (6, None, None)}
    ]


def test_a_long_name_keeps_what_tells_it_apart():
    one, other = "baselines_of_mine.py:trimmed_mean_1", "baselines_of_mine.py:trimmed_mean_2"
    assert short_names(["rloo", f"{one}@1a2b3c4d", f"{other}@1a2b3c4d"]) == {
        "rloo": "rloo",
        f"{one}@1a2b3c4d": "baselines_o…med_mean_1",
        f"{other}@1a2b3c4d": "baselines_o…med_mean_2",
    }
    for names in (
        [f"{one}@1a2b3c4d", f"{one}@00000000"],  # two versions of one file
        ["runs/js/checkpoints/global_step100_hf", "runs/rloo/checkpoints/global_step100_hf"],
        [f"runs/of/this/autumn/{kind}/checkpoints/global_step100_hf" for kind in ("js", "rloo")],
    ):
        short = list(short_names(names).values())
        assert short[0] != short[1]


def test_the_legend_and_the_rows_show_short_names():
    name = "baselines_of_mine.py:trimmed_mean_1@1a2b3c4d"
    (drawing,) = draw(rows("js", name, mse=float), {"mse": Panel("Error", "MSE")}, M)
    dots = [ForestRow("", name, 5.0, 4.0, 9.0), ForestRow("", "js", 5.0, 4.0, 9.0)]
    forest = Forest("T", "n", "points", dots, [name, "js"])
    for chart in (drawing.chart(), forest.chart()):
        drawn = style.svg(chart)
        assert "baselines_o…med_mean_1<" in drawn and "1a2b3c4d<" not in drawn


def test_no_name_can_break_a_page():
    panels = {"mse": Panel("<Error>", "MSE", "a note", log=True), "none": Panel("None", "")}
    markup = page(draw(rows("js", HOSTILE, mse=float), panels, M._replace(scale="log2")))
    assert markup.count("<img") == 1
    assert "<b>&lt;Error&gt;</b>" in markup
    assert not re.search("</?script|<b>'|\x07", markup)
