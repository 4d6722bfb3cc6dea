"""The interactive counterpart of `plot`, by plotly.js: hover, zoom, runs switched on and off."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from openrlhf_js.report import style
from openrlhf_js.report.plot import MAX_MARKERS, Panel, Row, Scale, finite, short

Trace = dict[str, Any]  # of plotly: a line or a band

WIDTH = 2  # pixels, of a line
SCALES = {"linear": "linear", "log2": "log", "categories": "category"}
SYMBOLS = "osDPX^v<>    ph  *"  # the markers of `style`, where plotly counts its own
AXIS = {"zeroline": False, "exponentformat": "power", "linecolor": style.RULE}
LAYOUT = {
    "font": {"family": "system-ui, sans-serif", "color": style.INK},
    "margin": {"l": 56, "r": 12, "t": 8, "b": 44},
    "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    "hovermode": "x unified",
    "scattermode": "group",  # error bars stand side by side
    "scattergap": 0.85,
}
RULER = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"width": 1}}
FIGURE = Markup(
    '<figure><figcaption><b>{}</b><br><span class="quiet">{}</span></figcaption>\n'
    '<div class="chart" style="height: {}rem" data-figure="{}"></div></figure>\n'
)


def chart(
    rows: Iterable[Row],
    panels: Mapping[str, Panel],
    *,
    x: str,
    xlabel: str,
    line: str = "estimator",
    panel: str = "quantity",
    scale: Scale = "linear",
    looks: Mapping[str, dict[str, Any]] | None = None,
) -> Markup:
    """HTML with an interactive chart for each panel that has values; arguments as of `plot`.

    The charts lie side by side as the width allows. A page with any ends with `script()`. A click
    on a line's name switches it off in all charts of the page, a double click all others.
    """
    rows = sorted((row for row in rows if finite(row.get("value"))), key=lambda row: row[x])
    looks = looks or style.series_styles(list(dict.fromkeys(str(row[line]) for row in rows)))
    figures = []
    for quantity, drawn in panels.items():
        panel_rows = [row for row in rows if row[panel] == quantity]
        if not panel_rows:
            continue
        traces: list[Trace] = []
        has_point = False  # a line of one point, whose interval is a bar
        for name, look in looks.items():
            line_rows = [row for row in panel_rows if str(row[line]) == name]
            has_point = has_point or len(line_rows) == 1
            traces += _line(name, line_rows, x, drawn, look)
        layout = LAYOUT | {
            "showlegend": len(looks) > 1,
            "xaxis": _horizontal(xlabel, scale, sorted({row[x] for row in panel_rows})),
            "yaxis": _vertical(drawn, panel_rows, bars=has_point or drawn.intervals == "bars"),
        }
        if drawn.reference is not None:
            layout["shapes"] = [{**RULER, "y0": drawn.reference, "y1": drawn.reference}]
        figures.append(_figure(drawn, traces, layout, height_rem=20 + len(looks) // 2))
    return Markup('<div class="panels">\n{}</div>\n').format(Markup().join(figures))


def _figure(
    panel: Panel, traces: Sequence[Trace], layout: Mapping[str, Any], height_rem: int
) -> Markup:
    """The HTML of a chart; numbers have six digits."""
    exact = json.dumps({"data": traces, "layout": layout}, allow_nan=False)
    rounded = json.loads(exact, parse_float=lambda number: float(f"{float(number):.6g}"))
    title = style.printable(panel.title)
    note = style.printable(panel.note)
    return FIGURE.format(title, note, height_rem, json.dumps(rounded))


def script() -> Markup:
    """plotly.js, and what draws the charts above it: 5 MB, once, at the end of a page."""
    draw = (Path(__file__).parent / "templates" / "chart.js").read_text(encoding="utf-8")
    return Markup(f"<script>{get_plotlyjs()}</script>\n<script>{draw}</script>")


def _horizontal(label: str, scale: Scale, values: Sequence[Any]) -> dict[str, Any]:
    axis = AXIS | {
        "title": {"text": label},
        "type": SCALES[scale],
        "showgrid": False,
        "unifiedhovertitle": {"text": f"{label} %{{x}}"},
    }
    if scale != "linear":
        axis["tickvals"] = list(values)
    return axis


def _vertical(panel: Panel, rows: Sequence[Row], bars: bool) -> dict[str, Any]:
    """The vertical axis; a wide band does not press the lines together, as bars do."""
    axis = AXIS | {"title": {"text": panel.ylabel}, "gridcolor": style.GRID}
    ends = ("value", "low", "high") if bars else ("value",)
    heights = [row[end] for row in rows for end in ends if finite(row.get(end))]
    if panel.reference is not None:
        heights.append(panel.reference)
    if panel.log and all(row["value"] > 0 for row in rows):
        low, high = _padded([math.log10(height) for height in heights if height > 0])
        return axis | {"type": "log", "range": [low, high], "dtick": "D2"}  # 1, 2, 5, 10, ...
    bottom, top = panel.limits
    low, high = _padded(heights)
    return axis | {
        "type": "linear",
        "range": [low if bottom is None else bottom, high if top is None else top],
    }


def _padded(heights: Sequence[float]) -> tuple[float, float]:
    """The least and greatest height with a margin."""
    low = min(heights)
    high = max(heights)
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1
    return low - margin, high + margin


def _line(
    name: str, rows: Sequence[Row], x: str, panel: Panel, look: Mapping[str, Any]
) -> list[Trace]:
    """A line, with its intervals as bars or in a band before it; nothing without rows."""
    if not rows:
        return []
    bounded = [row for row in rows if finite(row.get("low")) and finite(row.get("high"))]
    bars = panel.intervals == "bars" or len(rows) == 1
    group = {"legendgroup": name, "name": escape(short(name))}  # plotly reads HTML in it
    line = group | {
        "x": [row[x] for row in rows],
        "y": [row["value"] for row in rows],
        "error_y": _error_bars(rows) if bars else {"visible": False},
        "mode": "lines+markers",
        "line": {"color": look["color"], "width": WIDTH, "dash": _dash(look["linestyle"])},
        "marker": {
            "symbol": SYMBOLS.index(look["marker"]),
            "maxdisplayed": 0 if bars else MAX_MARKERS,  # 0: all
        },
        "text": [style.interval(r["value"], r.get("low"), r.get("high"), ".4g") for r in rows],
        "hovertemplate": "%{text}",
        "offsetgroup": name,
    }
    if bars or not bounded:
        return [line]
    back = bounded[::-1]
    band = group | {
        "x": [row[x] for row in bounded + back],
        "y": [row["low"] for row in bounded] + [row["high"] for row in back],
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": look["color"],
        "opacity": 0.15,
        "hoverinfo": "skip",
        "showlegend": False,
    }
    return [band, line]


def _error_bars(rows: Sequence[Row]) -> dict[str, Any]:
    above: list[float | None] = []
    below: list[float | None] = []
    for row in rows:
        bounded = finite(row.get("low")) and finite(row.get("high"))
        above.append(row["high"] - row["value"] if bounded else None)
        below.append(row["value"] - row["low"] if bounded else None)
    return {"type": "data", "thickness": 1.2, "width": 3, "array": above, "arrayminus": below}


def _dash(linestyle: Any) -> str:
    """A line style of matplotlib as plotly's."""
    if linestyle == style.SOLID:
        return "solid"
    _, lengths = linestyle
    return ",".join(f"{WIDTH * length}px" for length in lengths)
