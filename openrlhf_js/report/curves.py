"""One picture of a quickstart run: reward, pass@1, shrinkage and gradient norm over steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes

from openrlhf_js.report import scalars, style
from openrlhf_js.report.scalars import Scalars, Series
from openrlhf_js.report.style import Label
from openrlhf_js.report.summary import SHRINKING

STEP = "training step"
Look = dict[str, Any]


def plot(run: Path, summary: dict[str, Any], path: Path) -> None:
    """Draws the curves of every estimator of a run, each in its look, and saves a PNG.

    Args:
        run: holds `tensorboard/<estimator>/`.
        summary: of `summarise`.
        path: of the PNG.
    """
    with rc_context(style.HOUSE):
        figure = style.figure(2, 2, 5.5, 3.7)
        reward, held_out, shrinkage, gradient = figure.axes
        estimators = list(summary["results"])
        looks = style.series_styles(estimators)
        ends: dict[Axes, list[Label]] = {axes: [] for axes in figure.axes}
        for i, estimator in enumerate(estimators):
            look = looks[estimator]
            logged = Scalars(run / "tensorboard" / estimator)
            middle = (len(estimators) - 1) / 2
            shown = {
                reward: _line(reward, logged[scalars.REWARD], look),
                held_out: _held_out(held_out, logged, summary, estimator, look, i - middle),
                shrinkage: _line(shrinkage, logged[scalars.SHRINKAGE], look),
                gradient: _line(gradient, logged[scalars.GRADIENT_NORM], look),
            }
            if len(estimators) == 1:
                _band(shrinkage, logged, look["color"])
            for axes, (steps, values) in shown.items():
                if steps:
                    ends[axes].append(Label(steps[-1], values[-1], estimator, look["color"]))

        task = summary["task"]
        measured = f"{task}, with its 95 % interval before and after"
        _dress(reward, "Training reward", "reward", f"{task}, mean over the batch")
        _dress(held_out, "Held-out pass@1", "share of the responses", measured)
        _dress(shrinkage, "Shrinkage λ", "λ, 0: rloo, 1: bloo", _shrinkage_note(estimators))
        _dress(gradient, "Gradient norm", "norm", "of every update, before clipping")
        for axes in (reward, held_out, shrinkage):
            axes.set_ylim(0, 1)
        gradient.set_ylim(bottom=0)
        if len(estimators) > 1:
            for axes, labels in ends.items():
                style.label_ends(axes, labels)
        style.save_png(figure, path)


def _line(axes: Axes, series: Series, look: Look) -> Series:
    style.line(axes, series.steps, series.values, look)
    return series


def _held_out(
    axes: Axes, logged: Scalars, summary: dict[str, Any], name: str, look: Look, place: float
) -> Series:
    """Measured points while training, and the two evaluations with their intervals."""
    curve, result = logged[scalars.HELD_OUT], summary["results"][name]
    before, after, last = summary["before"], result["after"], result["steps"]
    inner = [(s, v) for s, v in zip(*curve, strict=True) if 0 < s < last]
    steps = [0, *(s for s, _ in inner), last]
    values = [before["value"], *(v for _, v in inner), after["value"]]
    axes.plot(steps, values, **look)
    for step, each in ((0, before), (last, after)):
        axes.errorbar(
            step + place * last / 100,  # side by side where several end at the same step
            each["value"],
            [[each["value"] - each["low"]], [each["high"] - each["value"]]],
            color=look["color"],
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
                color=look["color"],
                fontweight="bold",
            )
    return Series(steps, values)


def _band(axes: Axes, logged: Scalars, colour: str) -> None:
    low, high = logged[scalars.SHRINKAGE_MIN], logged[scalars.SHRINKAGE_MAX]
    axes.fill_between(low.steps, low.values, high.values, color=colour, alpha=0.2, linewidth=0)


def _shrinkage_note(estimators: list[str]) -> str:
    note = "mean" if len(estimators) > 1 else "mean, least and greatest"
    note += " over the prompts of the batch"
    unused = [name for name in estimators if name not in SHRINKING]
    return f"{note}; {', '.join(unused)}: what js would take" if unused else note


def _dress(axes: Axes, title: str, ylabel: str, note: str) -> None:
    style.dress(axes, title, STEP, ylabel, note)
    style.whole_steps(axes)
    axes.margins(x=0.04)
