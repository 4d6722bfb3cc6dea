"""Interactive charts hold the numbers of their rows, and no name can break the page."""

import html
import json
import math
import re

import pytest
from plotly.graph_objects import Figure

from openrlhf_js.report.chart import chart
from openrlhf_js.report.plot import Panel

HOSTILE = "</script><b>'\""
ROWS = [
    {"m": m, "estimator": name, "quantity": quantity, "value": at * m, "low": at * m - 1} | high
    for name, at in (("js", 1), (HOSTILE, 2))
    for quantity in ("mse", "saved", "unasked")
    for m, high in ((8, {"high": None}), (2, {"high": at * 2 + 1}), (4, {"high": at * 4 + 0.5}))
] + [{"m": 3, "estimator": "js", "quantity": "mse", "value": math.nan}]


def figures(panels, **more):
    """The title and the figure, as plotly reads and checks it, of each chart."""
    page = chart(ROWS, panels, x="m", xlabel="responses", **more)
    assert not re.search("script|<b>'", re.sub('data-figure=".*?"', "", page))
    found = re.findall(r'<b>(.*?)</b>.*?data-figure="(.*?)"', page, re.S)
    return {title: Figure(json.loads(html.unescape(data))) for title, data in found}


def test_a_panel_has_its_lines_in_order_with_bands_around_them():
    panels = {"mse": Panel("<Error>", "MSE", "a note", log=True), "none": Panel("None", "")}
    ((title, figure),) = figures(panels, scale="log2").items()
    assert title == "&lt;Error&gt;"
    band, js, _, other = figure.data
    assert (js.x, js.y) == ((2, 4, 8), (2, 4, 8))
    assert js.text == ("2 (1 to 3)", "4 (3 to 4.5)", "8")
    assert (band.x, band.y) == ((2, 4, 4, 2), (1, 3, 4.5, 3))  # there and back
    assert band.legendgroup == js.legendgroup and band.fillcolor == js.line.color
    assert "<" not in other.name and html.unescape(other.name) == HOSTILE
    assert other.line.dash != js.line.dash and other.marker.symbol != js.marker.symbol
    assert figure.layout.xaxis.type == "log" and figure.layout.xaxis.tickvals == (2, 4, 8)
    low, high = figure.layout.yaxis.range
    assert math.log10(2) > low > 0 and math.log10(16) == pytest.approx(high, abs=0.1)


def test_a_panel_has_bars_limits_and_a_reference():
    bars = Panel("Saved", "%", intervals="bars", reference=20.0, limits=(0, None))
    (figure,) = figures({"saved": bars}).values()
    js, _ = figure.data
    assert js.error_y.array == (1, 0.5, None) and js.error_y.arrayminus == (1, 1, None)
    low, high = figure.layout.yaxis.range
    assert low == 0 and high > 20 == figure.layout.shapes[0].y1
