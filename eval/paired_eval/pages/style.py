"""The look of every picture: an altair theme, on a white background.

Series take their colours, dashes and markers from the library's schemes, so that they differ even
without colours.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import altair as alt

from answer_graders.programs.files import atomic_write

INK = "#37352f"
LINE_WIDTH = 2  # pixels
PNG_SCALE = 1.5  # file pixels for each pixel of the picture


@alt.theme.register("openrlhf_js", enable=True)
def theme() -> alt.theme.ThemeConfig:
    """No frame, a light grid behind the values, and text of 13 pixels."""
    text = {"labelColor": INK, "labelFontSize": 13, "titleColor": INK, "titleFontSize": 13}
    config: Any = {
        "aria": False,
        "background": "white",
        "font": "sans-serif",
        "padding": 8,
        "range": {"category": {"scheme": "category10"}},
        "view": {"stroke": None},
        "axis": {
            **text,
            "domainColor": "#c9c8c5",
            "gridColor": "#e3e2e0",
            "labelLimit": 0,
            "labelPadding": 6,
            "ticks": False,
            "titleFontWeight": "normal",
        },
        "axisX": {"grid": False, "labelFlush": False},
        "axisY": {"domain": False},
        "header": text,
        "legend": {
            **text,
            "columns": 2,
            "labelLimit": 0,
            "orient": "bottom",
            "symbolOpacity": 1,
            "symbolSize": 90,
            "title": None,
        },
        "title": {
            "anchor": "start",
            "color": INK,
            "fontSize": 15,
            "frame": "group",
            "offset": 10,
            "subtitleColor": INK,
            "subtitleFontSize": 13,
        },
    }
    return {"config": config}


def svg(chart: alt.TopLevelMixin) -> str:
    """The picture as SVG."""
    buffer = io.StringIO()
    chart.save(buffer, format="svg")
    return buffer.getvalue()


def save_png(chart: alt.TopLevelMixin, path: Path) -> Path:
    """Writes the picture atomically, and returns its path."""
    with atomic_write(path) as file:
        chart.save(file, format="png", scale_factor=PNG_SCALE)
    return path
