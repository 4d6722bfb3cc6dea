"""The panels of a report that are more than lines: lambda, gradients, statuses, time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from openrlhf_js.report import scalars, style
from openrlhf_js.report.bands import Band, average, over_seeds, ratio
from openrlhf_js.report.panels import (
    PANEL_WIDTH,
    Lines,
    Picture,
    Styles,
    averaged,
    draw_bands,
    draw_lines,
    finish,
    joined,
    missing_note,
    new_figure,
    short,
    window_over,
)
from openrlhf_js.report.runs import Condition

GRADIENT_VARIANCE = "train/js/gradient_variance"
STATUS = "train/status/"
GRADED = ("train/accuracy", "train/grading_seconds")
PHASES = {  # of a step, in their order; the hatches tell them apart without colour
    "train/timing/generation": ("generation", "#0072b2", ""),
    "train/timing/make_experience": ("rewards and advantages", "#e69f00", "////"),
    "train/timing/ppo_train": ("training", "#009e73", "...."),
    "train/timing/broadcast": ("weights to vLLM", "#b0508a", "xxxx"),
}
MOST_BANDS = 2  # of least and greatest lambda in one picture
VARIANCE_SHARE = 0.1


def draw_shrinkage(
    conditions: Sequence[Condition], styles: Styles, smooth: int | None
) -> list[Picture]:
    """Lambda: its mean over the prompts, and its least and greatest where the bands stay few."""
    shown = [c for c in conditions if c.series(scalars.SHRINKAGE)]
    if not shown:
        return []
    window = window_over(shown, scalars.SHRINKAGE, smooth, 0.04)
    figure = new_figure(len(shown))
    (axes,) = figure.axes
    bands = {}
    for condition in shown:
        mean, low, high = (
            over_seeds(condition.series(tag), window)
            for tag in (scalars.SHRINKAGE, scalars.SHRINKAGE_MIN, scalars.SHRINKAGE_MAX)
        )
        bands[condition.name] = Band(mean.steps, mean.values, low.values, high.values)
    if len(bands) > MOST_BANDS:
        bands = {
            name: band._replace(low=[math.nan], high=[math.nan]) for name, band in bands.items()
        }
    draw_bands(axes, bands, styles, (0.0, 1.0))
    finish(axes, "Shrinkage λ", "λ, 0: rloo, 1: bloo", bands, styles)
    notes = [
        "mean over the prompts of the batch"
        + ("; band: least and greatest" if len(bands) <= MOST_BANDS else ""),
        "for an estimator that does not shrink, what js would take",
        averaged(window),
        missing_note(shown, conditions),
    ]
    return [Picture("Shrinkage λ", figure, joined(notes))]


def draw_gradient_variance(
    conditions: Sequence[Condition], styles: Styles, smooth: int | None
) -> list[Picture]:
    """The gradient's variance, and what share of the first run's it is."""
    shown = [c for c in conditions if c.series(GRADIENT_VARIANCE)]
    variance = Lines(
        GRADIENT_VARIANCE,
        "Gradient variance",
        "squared gradient, log scale",
        "trace of the covariance of a step's gradient",
        log=True,
        share=VARIANCE_SHARE,
    )
    drawn = draw_lines(variance, conditions, styles, smooth)
    if drawn is None or len(shown) == 1:
        return [drawn] if drawn else []
    first, *others = shown
    window = window_over(shown, GRADIENT_VARIANCE, smooth, VARIANCE_SHARE)
    of_first = first.series(GRADIENT_VARIANCE)
    bands = {c.name: ratio(c.series(GRADIENT_VARIANCE), of_first, window) for c in others}
    bands = {name: band for name, band in bands.items() if band.steps}
    if not bands:
        return [drawn]
    figure = new_figure(len(bands))
    (axes,) = figure.axes
    axes.axhline(1, color=style.INK, linewidth=1)
    draw_bands(axes, bands, styles)
    title = f"Gradient variance over that of {short(first.name)}"
    finish(axes, title, "ratio", bands, styles)
    notes = [
        "below 1: less variance; each run is on its own trajectory",
        averaged(window),
        "95 % interval over seeds; where the runs have not the same number of several, over the "
        "steps of the average, taken as independent",
        missing_note(shown, conditions),
    ]
    return [drawn, Picture(title, figure, joined(notes))]


def draw_grading(
    conditions: Sequence[Condition], styles: Styles, smooth: int | None
) -> list[Picture]:
    """How the responses were graded: a panel for each status that ever occurs."""
    tags = sorted({tag for c in conditions for tag in c.tags if tag.startswith(STATUS)})
    occurring = [
        tag for tag in tags if any(any(s.values) for c in conditions for s in c.series(tag))
    ]
    panels = [
        Lines(
            tag, f"Graded “{tag.removeprefix(STATUS)}”", "share of the responses", "", (0.0, None)
        )
        for tag in occurring
    ]
    accuracies = sorted({tag for c in conditions for tag in c.tags if tag.startswith(GRADED[0])})
    panels += [
        Lines(tag, f"Right answers{_of(tag)}", "share of the responses", "", (0.0, 1.0))
        for tag in accuracies
    ]
    panels.append(Lines(GRADED[1], "Time to grade a response", "seconds, mean", "", (0.0, None)))
    drawn = (draw_lines(panel, conditions, styles, smooth) for panel in panels)
    return [picture for picture in drawn if picture]


def _of(tag: str) -> str:
    task = tag.removeprefix(GRADED[0]).removeprefix("/")
    return f", {task}" if task else ""


def draw_timings(
    conditions: Sequence[Condition], styles: Styles, smooth: int | None
) -> list[Picture]:
    """Seconds of a step, phase by phase, as a mean over the steps."""
    shown = [c for c in conditions if any(c.series(tag) for tag in PHASES)]
    if not shown:
        return []
    figure = style.figure(1, 1, PANEL_WIDTH, 1.9 + 0.35 * len(shown))
    (axes,) = figure.axes
    names = [short(condition.name) for condition in shown]
    left = np.zeros(len(shown))
    for tag, (phase, colour, hatch) in PHASES.items():
        means = [average(condition.series(tag)) for condition in shown]
        widths = np.array([0.0 if mean is None else mean.value for mean in means])
        axes.barh(
            range(len(shown)),
            widths,
            0.6,
            left=left,
            label=phase,
            color=colour,
            hatch=hatch,
            edgecolor="white",
        )
        left += widths
    for i, seconds in enumerate(left):
        axes.annotate(
            f"{seconds:.3g} s",
            (seconds, i),
            (4, 0),
            textcoords="offset points",
            va="center",
            color=style.INK,
            fontsize=9,
        )
    axes.set_yticks(range(len(shown)), names)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    style.dress(axes, "Time of a training step", "seconds, mean over the steps", "")
    axes.grid(visible=False, axis="y")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    note = "phases of an asynchronous run overlap"
    return [
        Picture("Time of a training step", figure, joined([note, missing_note(shown, conditions)]))
    ]
