"""The pictures of a reward model's evaluation, as SVG."""

from __future__ import annotations

import itertools
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from openrlhf_js.report import style
from openrlhf_js.report.style import INK, printable

BLUE, ORANGE = "#0b6e99", "#d9730d"
SHOWN_SUBSETS = 30
NORMAL_95 = 1.96


def pictures(found: dict[str, Any]) -> dict[str, str]:
    """Title and SVG of each picture of an evaluation.

    Args:
        found: what stands in `evaluation.json`.
    """
    drawn = {
        "Reliability": _drawn(_reliability, found, 4.4),
        "Margins": _drawn(_margins, found, 4.4),
        "Reward and length": _drawn(_lengths, found, 4.4),
    }
    if found["subsets"]:
        shown = min(len(found["subsets"]), SHOWN_SUBSETS)
        drawn["Accuracy by subset"] = _drawn(_subsets, found, 1.4 + 0.32 * shown)
    return drawn


def _drawn(draw: Any, found: dict[str, Any], height: float) -> str:
    """One picture, from its first tag on; sizes in inches."""
    with rc_context(style.HOUSE):
        figure = Figure(figsize=(5.6, height), layout=ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.1))
        axes = figure.subplots()
        draw(axes, found)
        axes.tick_params(colors=INK, length=0)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        return style.svg(figure)


def _reliability(axes: Axes, found: dict[str, Any]) -> None:
    bins = found["calibration"]["bins"]
    confidence = [each["confidence"] for each in bins]
    spread = [
        NORMAL_95 * (c * (1 - c) / each["pairs"]) ** 0.5
        for c, each in zip(confidence, bins, strict=True)
    ]
    axes.plot([0.5, 1], [0.5, 1], "--", color=INK, linewidth=1, label="exact")
    axes.fill_between(
        confidence,
        [c - s for c, s in zip(confidence, spread, strict=True)],
        [min(1.0, c + s) for c, s in zip(confidence, spread, strict=True)],
        color=INK,
        alpha=0.12,
        linewidth=0,
        label="95 % of exact models",
    )
    axes.plot(confidence, [each["accuracy"] for each in bins], "o-", color=BLUE, label="model")
    axes.set_xlabel("confidence, sigmoid of |margin|", color=INK)
    axes.set_ylabel("accuracy, share of pairs", color=INK)
    axes.legend(frameon=False, loc="upper left")
    axes.grid(color="#e3e2e0", linewidth=0.8)


def _margins(axes: Axes, found: dict[str, Any]) -> None:
    counts, edges = (found["pictures"]["margins"][key] for key in ("counts", "edges"))
    middles = [(a + b) / 2 for a, b in itertools.pairwise(edges)]
    for name, colour, hatch, inside in (
        ("0 or more", BLUE, "", [m > 0 for m in middles]),
        ("below 0", ORANGE, "////", [m < 0 for m in middles]),
    ):
        axes.bar(
            [m for m, keep in zip(middles, inside, strict=True) if keep],
            [c for c, keep in zip(counts, inside, strict=True) if keep],
            edges[1] - edges[0],
            color=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.5,
            label=name,
        )
    axes.set_xlabel("margin, chosen less rejected reward", color=INK)
    axes.set_ylabel("pairs", color=INK)
    axes.legend(frameon=False)
    axes.grid(axis="y", color="#e3e2e0", linewidth=0.8)


def _lengths(axes: Axes, found: dict[str, Any]) -> None:
    points = found["pictures"]["points"]
    # Whole numbers: beside each other, neither side hides the other where few lengths occur.
    for side, colour, marker, shift in (
        ("chosen", BLUE, "o", -0.1),
        ("rejected", ORANGE, "x", 0.1),
    ):
        axes.scatter(
            [length + shift for length in points[f"{side}_lengths"]],
            points[side],
            s=9,
            alpha=0.45,
            color=colour,
            marker=marker,
            linewidths=0.7,
            label=side,
            rasterized=True,  # thousands of points would make a page of megabytes
        )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(f"length of the response, {found['length']['unit']}", color=INK)
    axes.set_ylabel("reward", color=INK)
    legend = axes.legend(  # above the picture: points may be anywhere
        frameon=False, markerscale=2, loc="lower right", bbox_to_anchor=(1, 1), ncols=2
    )
    for handle in legend.legend_handles:
        if handle:  # as faint as the points, it could not be told apart
            handle.set_alpha(1)
    axes.grid(color="#e3e2e0", linewidth=0.8)


def _subsets(axes: Axes, found: dict[str, Any]) -> None:
    largest = sorted(found["subsets"].items(), key=lambda each: -each[1]["pairs"])[:SHOWN_SUBSETS]
    names = [printable(f"{name[:39]}…" if len(name) > 40 else name) for name, _ in largest[::-1]]
    accuracies = [part["accuracy"] for _, part in largest[::-1]]
    values = [each["value"] for each in accuracies]
    reach = [
        [max(0.0, v - each["low"]) for v, each in zip(values, accuracies, strict=True)],
        [max(0.0, each["high"] - v) for v, each in zip(values, accuracies, strict=True)],
    ]
    axes.errorbar(values, range(len(values)), xerr=reach, fmt="o", color=BLUE, capsize=3)
    axes.margins(y=0.15)
    axes.axvline(found["accuracy"]["value"], color=INK, linestyle="--", linewidth=1, label="all")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("accuracy, with its 95 % interval", color=INK)
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1))
    axes.grid(axis="x", color="#e3e2e0", linewidth=0.8)
