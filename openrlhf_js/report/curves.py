"""One picture of a quickstart run: reward, pass@1, shrinkage and gradient norm over steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from openrlhf_js.report import scalars
from openrlhf_js.report.scalars import Scalars, Series
from openrlhf_js.report.summary import SHRINKING

COLOURS = ("#0b6e99", "#d9730d", "#448361", "#ad1a72", "#6940a5", "#937264")
INK = "#37352f"


def plot(run: Path, summary: dict[str, Any], path: Path) -> None:
    """Draws the curves of every estimator of a run, each in its colour, and saves a PNG.

    Args:
        run: holds `tensorboard/<estimator>/`.
        summary: of `summarise`.
        path: of the PNG.
    """
    spaced = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12, hspace=0.04, wspace=0.04)
    figure = Figure(figsize=(11, 7.4), dpi=150, layout=spaced)
    reward, held_out, shrinkage, gradient = figure.subplots(2, 2, sharex=True).flat
    estimators = list(summary["results"])
    for i, estimator in enumerate(estimators):
        colour = COLOURS[i % len(COLOURS)]
        logged = Scalars(run / "tensorboard" / estimator)
        _line(reward, logged[scalars.REWARD], colour, estimator)
        _held_out(held_out, logged, summary, estimator, colour, i - (len(estimators) - 1) / 2)
        _line(shrinkage, logged[scalars.SHRINKAGE], colour, estimator, estimator not in SHRINKING)
        if len(estimators) == 1:
            _band(shrinkage, logged, colour)
        _line(gradient, logged[scalars.GRADIENT_NORM], colour, estimator)

    task = summary["task"]
    measured = f"{task}, with its 95 % interval before and after"
    _dress(reward, "Training reward", f"{task}, mean over the batch", share=True)
    _dress(held_out, "Held-out pass@1", measured, share=True)
    _dress(shrinkage, "Shrinkage λ", _shrinkage_note(estimators), share=True)
    _dress(gradient, "Gradient norm", "of every update, before clipping")
    gradient.set_ylim(bottom=0)
    for axes in (shrinkage, gradient):
        axes.set_xlabel("training step", color=INK)
    if len(estimators) > 1:
        handles, labels = reward.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=len(labels), frameon=False)
    figure.savefig(path)


def _line(axes: Axes, series: Series, colour: str, label: str, dashed: bool = False) -> None:
    style = "--" if dashed else "-"
    axes.plot(series.steps, series.values, style, color=colour, label=label, linewidth=1.8)


def _held_out(
    axes: Axes, logged: Scalars, summary: dict[str, Any], name: str, colour: str, place: float
) -> None:
    """Measured points while training, and the two evaluations with their intervals."""
    curve, result = logged[scalars.HELD_OUT], summary["results"][name]
    before, after, last = summary["before"], result["after"], result["steps"]
    inner = [(s, v) for s, v in zip(*curve, strict=True) if 0 < s < last]
    steps = [0, *(s for s, _ in inner), last]
    values = [before["value"], *(v for _, v in inner), after["value"]]
    axes.plot(steps, values, color=colour, marker="o", markersize=4, linewidth=1.8)
    for step, each in ((0, before), (last, after)):
        axes.errorbar(
            step + place * last / 100,  # side by side where several end at the same step
            each["value"],
            [[each["value"] - each["low"]], [each["high"] - each["value"]]],
            color=colour,
            capsize=4,
            linewidth=1.5,
        )
        if len(summary["results"]) == 1:
            text = f"{each['value']:.0%}"
            axes.annotate(
                text,
                (step, each["high"]),
                (0, 6),
                textcoords="offset points",
                ha="center",
                color=colour,
                fontweight="bold",
            )


def _band(axes: Axes, logged: Scalars, colour: str) -> None:
    low, high = logged[scalars.SHRINKAGE_MIN], logged[scalars.SHRINKAGE_MAX]
    axes.fill_between(low.steps, low.values, high.values, color=colour, alpha=0.2, linewidth=0)


def _shrinkage_note(estimators: list[str]) -> str:
    note = "mean" if len(estimators) > 1 else "mean, least and greatest"
    note += " over the prompts of the batch"
    unused = [name for name in estimators if name not in SHRINKING]
    return f"{note}; dashed: what js would take" if unused else note


def _dress(axes: Axes, title: str, note: str, share: bool = False) -> None:
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK, pad=20)
    axes.text(0, 1.02, note, transform=axes.transAxes, fontsize=9, color=INK, alpha=0.7)
    axes.grid(axis="y", color="#e3e2e0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0)
    axes.margins(x=0.04)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#c9c8c5")
    if share:
        axes.set_ylim(0, 1)
