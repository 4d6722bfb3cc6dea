"""Tidy rows become lines with intervals that can be told apart."""

import itertools
import math
import re

import pytest
from charts import panels_of

from baseline_research.plot import Axis, Panel, draw
from paired_eval.pages import style
from paired_eval.pages.figures import page, picture

M = Axis("m", "responses")


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


def test_the_legend_shows_short_names():
    name = "baselines_of_mine.py:trimmed_mean_1@1a2b3c4d"
    (drawing,) = draw(rows("js", name, mse=float), {"mse": Panel("Error", "MSE")}, M)
    drawn = style.svg(drawing.chart())
    assert "baselines_o…med_mean_1<" in drawn and "1a2b3c4d<" not in drawn
