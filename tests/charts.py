"""What the charts of a picture show, read from their Vega-Lite."""

from typing import Any, NamedTuple

import pandas as pd


class Shown(NamedTuple):
    """A panel of lines."""

    title: str
    note: str
    lines: dict[str, pd.DataFrame]  # the points by name, in the order of the legend
    horizontal: dict[str, Any]  # the encoding
    vertical: dict[str, Any]  # the scale


def panels_of(chart):
    """The panels of lines in a picture."""
    shown = []
    for panel, data in _panels(chart):
        if _is_forest(panel):
            continue
        columns = ["line", "x", "shift", "value", "low", "high", "interval"]
        points = pd.DataFrame(data, columns=columns)
        encoding = panel["layer"][0]["encoding"]
        legend = encoding["color"]["legend"]
        names = legend["values"] if legend else points.line.unique()
        panel_shown = Shown(
            panel["title"]["text"],
            " ".join(panel["title"].get("subtitle", [])),
            {name: points[points.line == name].reset_index() for name in names},
            encoding["x"],
            encoding["y"]["scale"],
        )
        shown.append(panel_shown)
    return shown


def forests_of(chart):
    """The dots of each forest plot in a picture, as {(heading, name): (value, low, high)}."""
    return [
        {(dot["heading"], dot["name"]): (dot["value"], dot["low"], dot["high"]) for dot in data}
        for panel, data in _panels(chart)
        if _is_forest(panel)
    ]


def _panels(chart):
    """Each panel with its data, which stands in a layer, in the panel or in the whole picture."""
    drawn = chart.to_dict()
    for panel in drawn["concat"]:
        layer = panel["layer"][-1 if _is_forest(panel) else 0]
        data = layer.get("data") or panel.get("data") or drawn["data"]
        yield panel, data.get("values") or drawn["datasets"][data["name"]]


def _is_forest(panel):
    """Whether nothing joins its dots."""
    return all(layer["mark"]["type"] != "line" for layer in panel["layer"])
