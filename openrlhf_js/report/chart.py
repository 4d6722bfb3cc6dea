"""Interactive charts of the rows that `plot` draws: hover, zoom, runs switched on and off, offline.

plotly.js draws them in the browser. Bokeh's script is a quarter as long, but building its charts
took 3 seconds where this takes 0.1, and its hover shows each line in a box of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from openrlhf_js.report import style
from openrlhf_js.report.plot import MAX_MARKERS, Panel, Row, Scale, finite, short

HEIGHT, LEGEND_HEIGHT = 300, 8  # pixels, of a chart and more for each line in it
WIDTH = 2  # pixels, of a line
AXIS_TYPES = {"linear": "linear", "log2": "log", "categories": "category"}
SYMBOLS = {
    **{"o": "circle", "s": "square", "D": "diamond", "P": "cross", "X": "x", "p": "pentagon"},
    **{"^": "triangle-up", "v": "triangle-down", "<": "triangle-left", ">": "triangle-right"},
    "h": "hexagon",
}
RULER = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"width": 1}}
LAYOUT = {
    "font": {"family": "system-ui, sans-serif", "size": 12, "color": style.INK},
    "margin": {"l": 56, "r": 12, "t": 8, "b": 44},
    "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    "hovermode": "x unified",
    "hoverlabel": {"bgcolor": "white"},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": style.RULE, "activecolor": style.INK},
    "scattermode": "group",  # error bars stand side by side
    "scattergap": 0.85,
}
FIGURE = Markup(
    '<figure><figcaption><b>{}</b><br><span class="quiet">{}</span></figcaption>\n'
    '<div class="chart" style="min-height: {}px" data-figure="{}"></div></figure>\n'
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
    rows = [row for row in rows if row[panel] in panels and finite(row.get("value"))]
    rows.sort(key=lambda row: row[x])
    looks = looks or style.series_styles(list(dict.fromkeys(str(row[line]) for row in rows)))
    figures = []
    for quantity, shown in panels.items():
        own = [row for row in rows if row[panel] == quantity]
        lines = {name: [row for row in own if str(row[line]) == name] for name in looks}
        lines = {name: each for name, each in lines.items() if each}
        if not lines:
            continue
        ticks = {"tickvals": sorted({row[x] for row in own})} if scale != "linear" else {}
        height = HEIGHT + LEGEND_HEIGHT * len(lines)
        layout = LAYOUT | {
            "height": height,
            "showlegend": len(looks) > 1,
            "xaxis": _axis(xlabel, AXIS_TYPES[scale])
            | {"showgrid": False, "unifiedhovertitle": {"text": f"{xlabel} %{{x}}"}}
            | ticks,
            "yaxis": _vertical(shown, own),
        }
        if shown.reference is not None:
            layout["shapes"] = [RULER | {"y0": shown.reference, "y1": shown.reference}]
        traces = [
            trace
            for name, each in lines.items()
            for trace in _traces(shown, name, each, x, looks[name])
        ]
        data = json.dumps({"data": traces, "layout": layout}, allow_nan=False)
        texts = map(style.printable, (shown.title, shown.note))
        figures.append(FIGURE.format(*texts, height, data))
    return Markup('<div class="panels">\n{}</div>\n').format(Markup().join(figures))


def script() -> Markup:
    """plotly.js, and what draws the charts above it: 5 MB, once, at the end of a page."""
    own = (Path(__file__).parent / "templates" / "chart.js").read_text(encoding="utf-8")
    return Markup(f"<script>{get_plotlyjs()}</script>\n<script>{own}</script>")


def _axis(title: str, kind: str) -> dict[str, Any]:
    return {
        "title": {"text": title},
        "type": kind,
        "zeroline": False,
        "linecolor": style.RULE,
        "gridcolor": style.GRID,
    }


def _vertical(panel: Panel, rows: Sequence[Row]) -> dict[str, Any]:
    """The vertical axis; a wide band does not press the lines together."""
    keys = ("value", "low", "high") if panel.intervals == "bars" else ("value",)
    heights = [row[key] for row in rows for key in keys if finite(row.get(key))]
    log = panel.log and min(heights) > 0
    if log:
        heights = [math.log10(height) for height in heights]
    elif panel.reference is not None:
        heights.append(panel.reference)
    low, high = min(heights), max(heights)
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1
    bottom, top = (None, None) if panel.log else panel.limits
    limits = [low - margin if bottom is None else bottom, high + margin if top is None else top]
    return _axis(panel.ylabel, "log" if log else "linear") | {"range": limits}


def _traces(
    panel: Panel, name: str, rows: Sequence[Row], x: str, look: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The band of a line's intervals, unless they are bars, and the line."""
    group = {"legendgroup": name, "name": escape(short(name))}  # plotly reads HTML in it
    dashes = () if look["linestyle"] == style.SOLID else look["linestyle"][1]
    dash = ",".join(f"{WIDTH * length}px" for length in dashes)
    marker = {"symbol": SYMBOLS[look["marker"]], "maxdisplayed": MAX_MARKERS}
    line = {
        "x": [row[x] for row in rows],
        "y": [_short(row["value"]) for row in rows],
        "mode": "lines+markers",
        "line": {"color": look["color"], "width": WIDTH, "dash": dash or "solid"},
        "marker": marker,
        "text": [style.interval(r["value"], r.get("low"), r.get("high"), ".4g") for r in rows],
        "hovertemplate": "%{text}",
        "offsetgroup": name,
    }
    there = [row for row in rows if finite(row.get("low")) and finite(row.get("high"))]
    if panel.intervals == "bars" or len(rows) == 1:
        marker["maxdisplayed"] = 0
        line["error_y"] = {"type": "data", "thickness": 1.2, "width": 3} | {
            key: [_short(abs(row[end] - row["value"])) if row in there else None for row in rows]
            for key, end in (("array", "high"), ("arrayminus", "low"))
        }
    elif there:
        back = there[::-1]
        yield group | {
            "x": [row[x] for row in there + back],
            "y": [_short(row["low"]) for row in there] + [_short(row["high"]) for row in back],
            "mode": "lines",
            "line": {"width": 0},
            "fill": "toself",
            "fillcolor": look["color"],
            "opacity": 0.15,
            "hoverinfo": "skip",
            "showlegend": False,
        }
    yield group | line


def _short(number: float) -> float:
    """Six digits of a number, which is more than a screen shows."""
    return float(f"{number:.6g}")
