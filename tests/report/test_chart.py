"""Interactive charts hold the numbers of their rows, and no name can break the page."""

from __future__ import annotations

import html
import json
import math
import re

import plotly.graph_objects
import pytest

from openrlhf_js.report.chart import chart
from openrlhf_js.report.plot import Panel

HOSTILE = "</script><b>'\""
ROWS = [
    {"m": m, "estimator": name, "quantity": quantity, "value": at * m, "low": at * m - 1} | high
    for name, at in (("js", 1), (HOSTILE, 2))
    for quantity in ("mse", "saved", "unasked")
    for m, high in ((8, {"high": None}), (2, {"high": at * 2 + 1}), (4, {"high": at * 4 + 0.5}))
]


def figures(panels, rows=ROWS, **more):
    """The title and the figure, as plotly reads and checks it, of each chart."""
    page = chart(rows, panels, x="m", xlabel="responses", **more)
    assert set(re.findall("<[^ >]*", page)) == {
        *("<div", "</div", "<figure", "</figure", "<figcaption", "</figcaption"),
        *("<b", "</b", "<br", "<span", "</span"),
    }
    found = re.findall(r'<b>(.*?)</b>.*?data-figure="(.*?)"', page, re.S)
    return {
        title: plotly.graph_objects.Figure(json.loads(html.unescape(data))) for title, data in found
    }


def test_each_panel_has_its_lines_in_order_with_bands_or_bars():
    bars = Panel("Saved", "%", intervals="bars", reference=20.0, limits=(0, None))
    found = figures({"mse": Panel("<Error>", "MSE", "a note"), "saved": bars})
    assert list(found) == ["&lt;Error&gt;", "Saved"]
    band, js, _, other = found["&lt;Error&gt;"].data
    assert (js.x, js.y) == ((2, 4, 8), (2, 4, 8))
    assert js.text == ("2 (1 to 3)", "4 (3 to 4.5)", "8")
    assert (band.x, band.y) == ((2, 4, 4, 2), (1, 3, 4.5, 3))  # there and back
    assert band.legendgroup == js.legendgroup and band.fillcolor == js.line.color
    assert other.name == html.escape(HOSTILE).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    assert other.line.dash != js.line.dash and other.marker.symbol != js.marker.symbol
    js, other = found["Saved"].data
    assert js.error_y.array == (1, 0.5, None) and js.error_y.arrayminus == (1, 1, None)
    low, high = found["Saved"].layout.yaxis.range
    assert low == 0 and high > 20
    assert found["Saved"].layout.shapes[0].y1 == 20


def test_a_scale_is_of_its_kind_and_what_is_missing_is_left_out():
    rows = [*ROWS, {"m": 3, "estimator": "js", "quantity": "mse", "value": math.nan}]
    panels = {"mse": Panel("Error", "MSE", log=True), "none": Panel("None", "none")}
    (figure,) = figures(panels, rows, scale="log2").values()
    assert figure.layout.xaxis.type == "log" and figure.layout.xaxis.tickvals == (2, 4, 8)
    assert figure.layout.yaxis.type == "log"
    low, high = figure.layout.yaxis.range
    assert math.log10(2) > low > 0 and math.log10(16) == pytest.approx(high, abs=0.1)
    assert figure.data[1].x == (2, 4, 8)
