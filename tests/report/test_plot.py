"""The one look and the one plot: tidy rows become lines with intervals that can be told apart."""

import itertools
import math

import pytest

from openrlhf_js.report import style
from openrlhf_js.report.plot import Panel, plot, short


def test_no_two_series_of_a_picture_look_alike():
    found = style.series_styles(["a", "js", "b", "rloo", "c"])
    assert found["js"] == style.series_styles(["js", *map(str, range(30))])["js"]
    for one, other in itertools.combinations(found.values(), 2):
        assert one["color"] != other["color"]
        assert (one["linestyle"], one["marker"]) != (other["linestyle"], other["marker"])


def rows(*names, **quantities):
    """Rows of m = 2, 4, 8 from functions of m, with intervals one wide on both sides."""
    return [
        {"m": m, "estimator": name, "quantity": quantity, "value": of(m)}
        | ({"low": of(m) - 1, "high": of(m) + 1} if m < 8 else {"low": None})
        for name in names
        for quantity, of in quantities.items()
        for m in (8, 2, 4)
    ]


@pytest.mark.parametrize("scale", ["linear", "log2", "categories"])
@pytest.mark.parametrize("intervals", ["band", "bars"])
def test_rows_become_a_line_for_each_setting_in_a_panel_for_each_quantity(scale, intervals):
    panels = {
        "saved": Panel("Saved", "%", reference=0, intervals=intervals),
        "mse": Panel("Error", "MSE"),
    }
    data = rows("rloo", "js", mse=lambda m: 1 / m, saved=lambda m: m, other=lambda m: math.inf)
    figure = plot(data, panels, x="m", xlabel="responses", scale=scale, title="model and task")
    saved, mse = figure.axes
    assert saved.get_title(loc="left") == "Saved"
    assert [line.get_ydata().tolist() for line in mse.lines[:2]] == [[1 / 2, 1 / 4, 1 / 8]] * 2
    assert [text.get_text() for text in mse.get_legend().texts] == ["rloo", "js"]
    expected = [0, 1, 2] if scale == "categories" else [2, 4, 8]
    assert mse.lines[0].get_xdata().tolist() == expected
    drawn = saved.lines[1].get_xdata(), saved.lines[-1].get_xdata()
    assert (drawn[0] == drawn[1]).all() == (intervals == "band")  # bars stand side by side


def test_a_point_without_a_number_is_left_out_and_an_empty_panel_is_drawn():
    data = [{"step": i, "run": "a", "quantity": "x", "value": v} for i, v in
            enumerate([1.0, None, math.nan, 3.0])]  # fmt: skip
    panels = {"x": Panel("X", "x", log=True, limits=(0, None)), "y": Panel("Y", "y")}
    first, second = plot(data, panels, x="step", xlabel="step", line="run").axes
    assert first.lines[0].get_xdata().tolist() == [0, 3]
    assert first.get_yscale() == "log"
    assert not second.lines


def test_a_wide_band_does_not_press_the_lines_together():
    data = [{"step": i, "run": "a", "quantity": "x", "value": i / 10, "low": -99, "high": 99} for i
            in range(5)]  # fmt: skip
    (axes,) = plot(data, {"x": Panel("X", "x")}, x="step", xlabel="step", line="run").axes
    assert axes.get_ylim()[1] < 1


def test_a_picture_is_the_same_bytes_every_time_and_asks_for_nothing():
    def drawn():
        panel = Panel("costs $1 or $2", "reward", "a note")
        data = rows("$a$", "b\x07", mse=float)
        return style.svg(plot(data, {"mse": panel}, x="m", xlabel="responses"))

    svg = drawn()
    assert svg == drawn()
    assert svg.startswith("<svg")
    assert "costs $1 or $2" in svg and "\x07" not in svg
    assert 'href="http' not in svg and "url(http" not in svg
    assert short("quickstart_20260101_with_js_plus") == "quickstart_…with_js_plus"
