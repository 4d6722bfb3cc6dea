"""The one look and the one chart: tidy rows become lines with intervals that can be told apart."""

import itertools
import math
import re
import xml.etree.ElementTree as ET

import pytest
from charts import panels_of

from openrlhf_js.estimators.catalogue import ESTIMATORS
from paired_eval.pages import style
from paired_eval.pages.figures import page, picture, wide_picture
from paired_eval.pages.forest import Forest, ForestRow
from paired_eval.pages.plot import Axis, Panel, draw

M = Axis("m", "responses")
HOSTILE = "</script><b>'\"\x07,\n$1"


def test_no_two_series_of_a_picture_look_alike():
    looks = style.series_looks(["a", "js", "b", "rloo", "c"])
    assert looks["js"] == style.series_looks(["js", *map(str, range(30))])["js"]
    named = style.series_looks(["js-seed1", "js-seed0", "js", "stack/rloo"])
    assert named["js"] == looks["js"] and named["stack/rloo"] == looks["rloo"]
    assert style.series_looks(["js-seed1", "b"])["js-seed1"] == looks["js"]
    for one, other in itertools.combinations(looks.values(), 2):
        assert one.colour != other.colour
        assert (one.stroke, one.marker) != (other.stroke, other.marker)
        assert style.SHAPES[one.marker] and style.dashes(one)


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


def test_every_colour_can_be_read_on_white_and_on_a_dark_page():
    assert style.LOOKS.keys() == ESTIMATORS.keys()
    colours = {look.colour for look in style.LOOKS.values()}
    assert len(colours) == len(set(style.LOOKS.values())) == len(ESTIMATORS)
    assert len({style.on_dark(colour) for colour in colours}) == len(colours)
    for colour in colours | {style.INK}:
        assert style.contrast(colour, style.WHITE) >= 4.5, colour
        assert style.contrast(style.on_dark(colour), style.DARK_PAGE) >= 4.5, colour
    assert style.contrast("#000000", style.WHITE) == pytest.approx(21)
    assert style.contrast("#777777", style.WHITE) == pytest.approx(4.48, abs=0.01)


def test_a_chart_says_in_words_what_it_shows():
    (drawing,) = draw(rows("js", mse=float), {"mse": Panel("Error", "MSE")}, M)
    assert drawing.sentence() == "Error, MSE, by responses. js: 2 (1 to 3) at 2, 8 at 8."
    assert f'<img alt="{drawing.sentence()}"' in page([drawing])


@pytest.mark.parametrize(
    ("scale", "places"),
    [("linear", [2, 4, 8]), ("log2", [1, 2, 3])],
)
@pytest.mark.parametrize(("intervals", "mark"), [("band", "band"), ("bars", "bar")])
def test_rows_become_a_line_for_each_setting_in_a_panel_for_each_quantity(
    scale, places, intervals, mark
):
    panels = {
        "saved": Panel("Saved", "%", "a note", reference=0, intervals=intervals),
        "mse": Panel("Error", "MSE"),
    }
    tidy = rows("rloo", "js", mse=lambda m: 1 / m, saved=float, other=lambda m: math.inf)
    drawn = draw(tidy, panels, M._replace(scale=scale))
    saved, mse = panels_of(picture(drawn, title="model and task"))

    for line in mse.lines.values():
        assert line.value.tolist() == [0.5, 0.25, 0.125]
    assert len(mse.lines) == 2
    assert mse.lines["js"].x.tolist() == places
    assert mse.lines["js"]["at"].tolist() == [2, 4, 8]
    assert (saved.title, saved.note) == ("Saved", "a note")
    js = saved.lines["js"]
    rloo = saved.lines["rloo"]
    assert js.low.tolist()[:2] == [1, 3]
    assert js.high.isna().tolist() == [False, False, True]
    assert (js.x == rloo.x).all() == (mark == "band")  # bars stand side by side
    assert set(js.interval[:2]) == {mark}


def test_a_point_without_a_number_and_an_empty_panel_are_left_out():
    data = [
        {"step": i, "run": "a", "quantity": "x", "value": value}
        for i, value in enumerate([1.0, None, math.nan, 3.0])
    ]
    panels = {"x": Panel("X", "x", log=True, limits=(0, None)), "y": Panel("Y", "y")}
    (shown,) = panels_of(picture(draw(data, panels, Axis("step", "step"), line="run")))
    assert shown.lines["a"].x.tolist() == [0, 3]
    assert shown.vertical["type"] == "log"
    low, high = shown.vertical["domain"]
    assert 0.9 < low < 1 and 3 < high < 3.3


def test_the_vertical_axis_holds_intervals_limits_and_reference():
    def domain(half_width=99, **panel):
        tidy = [
            {
                "m": i,
                "estimator": "a",
                "quantity": "x",
                "value": i / 10,
                "low": half_width and -half_width,
                "high": half_width,
            }
            for i in range(5)
        ]
        (shown,) = panels_of(picture(draw(tidy, {"x": Panel("X", "x", **panel)}, M)))
        return shown.vertical["domain"]

    assert domain() == pytest.approx([-108.9, 108.9])
    assert domain(half_width=None) == pytest.approx([-0.02, 0.42])
    assert domain(intervals="bars") == pytest.approx([-108.9, 108.9])
    assert domain(limits=(0, 1)) == pytest.approx([-0.05, 1.05])
    assert domain(half_width=None, reference=1.0) == pytest.approx([-0.05, 1.05])


def test_a_picture_is_the_same_bytes_every_time_and_dark_where_pages_are(tmp_path):
    data = rows("$a$", HOSTILE, mse=float)
    drawn = picture(draw(data, {"mse": Panel("costs $1 or $2", "reward", "a note")}, M))
    one, other = (style.save_both(drawn, tmp_path / name) for name in ("1.png", "2.png"))
    assert one == tmp_path / "1.png"
    assert one.read_bytes() == other.read_bytes()
    assert one.read_bytes() != (tmp_path / "1-dark.png").read_bytes()
    svg = style.svg(drawn)
    ET.fromstring(svg)
    assert f'[stroke="#0072b2"]{{stroke:{style.on_dark("#0072b2")}}}' in svg
    assert "costs $1 or $2" in svg and "\x07" not in svg
    assert 'href="http' not in svg and "url(http" not in svg


def test_a_forest_stays_apart_in_black_and_white_and_shows_every_interval():
    dots = [ForestRow("", "a", 5.0, -99.0, 9.0), ForestRow("mixed", "b", 6.0, None, None)]
    forest = Forest("T", "n", "points", dots, style.series_looks(["a", "b"]))
    assert forest.sentence() == "T, points. a: 5 (-99 to 9); mixed, b: 6."
    drawn = forest.chart().to_dict()
    intervals, points = (layer["encoding"] for layer in drawn["layer"])
    assert len(set(points["shape"]["scale"]["range"])) == 2
    assert intervals["x"]["scale"]["domain"][0] < -99


def test_a_long_name_keeps_what_tells_it_apart():
    one, other = "baselines_of_mine.py:trimmed_mean_1", "baselines_of_mine.py:trimmed_mean_2"
    assert style.short_names(["rloo", f"{one}@1a2b3c4d", f"{other}@1a2b3c4d"]) == {
        "rloo": "rloo",
        f"{one}@1a2b3c4d": "…ine.py:trimmed_mean_1",
        f"{other}@1a2b3c4d": "…ine.py:trimmed_mean_2",
    }
    for names in (
        [f"{one}@1a2b3c4d", f"{one}@00000000"],  # two versions of one file
        ["runs/js/checkpoints/global_step100_hf", "runs/rloo/checkpoints/global_step100_hf"],
        [f"runs/of/this/autumn/{kind}/checkpoints/global_step100_hf" for kind in ("js", "rloo")],
    ):
        short = list(style.short_names(names).values())
        assert short[0] != short[1] and max(map(len, short)) <= 22


def test_the_legend_and_the_rows_show_short_names():
    name = "baselines_of_mine.py:trimmed_mean_1@1a2b3c4d"
    (drawing,) = draw(rows("js", name, mse=float), {"mse": Panel("Error", "MSE")}, M)
    dots = [ForestRow("", name, 5.0, 4.0, 9.0), ForestRow("", "js", 5.0, 4.0, 9.0)]
    forest = Forest("T", "n", "points", dots, style.series_looks([name, "js"]))
    for chart in (drawing.chart(), forest.chart()):
        drawn = style.svg(chart)
        assert "…ine.py:trimmed_mean_1<" in drawn and "1a2b3c4d<" not in drawn


def test_a_long_title_does_not_widen_a_picture():
    (drawing,) = draw(rows("js", mse=float), {"mse": Panel("Error", "MSE", "a note " * 12)}, M)
    drawn = wide_picture([drawing, drawing], "rloo, js_grad, " * 12)
    width = float(re.search(r'width="([0-9.]+)"', style.svg(drawn))[1])
    assert 780 <= width <= 800


def test_no_name_can_break_a_page():
    panels = {"mse": Panel("<Error>", "MSE", "a note", log=True), "none": Panel("None", "")}
    markup = page(draw(rows("js", HOSTILE, mse=float), panels, M._replace(scale="log2")))
    assert markup.count("<img") == 1
    assert "<b>&lt;Error&gt;</b>" in markup
    assert not re.search("</?script|<b>'|\x07", markup)
