"""The panels of a report with one line a run over the steps, and how lines are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from openrlhf_js.report import scalars, style
from openrlhf_js.report.bands import Band, over_seeds, window_of
from openrlhf_js.report.runs import Condition
from openrlhf_js.report.style import Label

STEP = "training step"
PANEL_WIDTH, PANEL_HEIGHT = 5.0, 3.2  # inches; small, so that the writing is large on a phone
MOST_LETTERS = 22  # of a name beside its line
GRADIENT_FLAG = "--js.gradient_variance"

Styles = Mapping[str, dict[str, Any]]


class Picture(NamedTuple):
    """A drawn panel."""

    title: str
    figure: Figure
    note: str
    """What a reader must know to read it."""


@dataclass(frozen=True)
class Lines:
    """A panel of one scalar.

    Attributes:
        tag: of the scalar.
        title: what is seen.
        unit: the label of the vertical axis.
        note: what a reader must know.
        limits: of the vertical axis, None for what the values ask for.
        log: whether the vertical axis is logarithmic; only where all values are above 0.
        share: of all logged values that a running average takes, on long runs.
        how: to have it logged, where not every run does.
    """

    tag: str
    title: str
    unit: str
    note: str = ""
    limits: tuple[float | None, float | None] = field(default=(None, None))
    log: bool = False
    share: float = 0.04
    how: str = ""


SHARE = (0.0, 1.0)
FROM_ZERO = (0.0, None)
LEARNING = (
    Lines(scalars.REWARD, "Training reward", "reward, mean over the batch"),
    Lines("train/rollout/reward_std", "Spread of rewards", "standard deviation over the batch"),
)
SHRINKAGE = (
    Lines(
        "train/js/within_variance",
        "v: noise of a prompt's mean reward",
        "squared reward",
        "mean over the prompts of the batch",
        FROM_ZERO,
    ),
    Lines(
        "train/js/between_variance",
        "s: spread between prompts",
        "squared reward",
        "variance of the prompts' mean rewards",
        FROM_ZERO,
    ),
    Lines(
        "train/js/all_equal_groups",
        "Degenerate groups",
        "share of the groups",
        "all responses to the prompt have the same reward",
        SHARE,
    ),
    Lines("train/js/masked_responses", "Masked responses", "responses in a step", "", FROM_ZERO),
)
GRADIENT = (
    Lines(
        "train/js/gradient_norm_squared",
        "Squared norm of the mean gradient",
        "squared gradient",
        "unbiased estimate, so that it may fall below 0",
        share=0.1,
        how=GRADIENT_FLAG,
    ),
    Lines(
        "train/js/gradient_snr",
        "Signal to noise of the gradient",
        "ratio",
        share=0.1,
        how=GRADIENT_FLAG,
    ),
    Lines(
        "train/js/gradient_noise_scale",
        "Gradient noise scale",
        "responses",
        "batch size at which signal and noise are alike",
        share=0.1,
        how=GRADIENT_FLAG,
    ),
    Lines(scalars.GRADIENT_NORM, "Gradient norm", "norm, before clipping", "", FROM_ZERO),
)
RESPONSES = (
    Lines("train/rollout/response_length_mean", "Response length", "tokens", "", FROM_ZERO),
    Lines("train/rollout/truncated_rate", "Responses cut off", "share of the responses", "", SHARE),
    Lines("train/kl", "KL to the reference model", "nats per token", how="--algo.kl.init_coef"),
    Lines("train/ppo_kl", "KL to the policy that generated", "nats per token"),
    Lines(
        "train/entropy_loss", "Entropy of the policy", "nats per token", how="--actor.entropy_coef"
    ),
)


def draw_lines(
    panel: Lines, conditions: Sequence[Condition], styles: Styles, smooth: int | None
) -> Picture | None:
    """One panel, None if no run has logged its scalar, or all of them nothing but 0.

    Args:
        panel: what to draw.
        conditions: one line each.
        styles: of the lines, by name of the condition.
        smooth: steps of the running average, None for a share of long runs.
    """
    shown = [condition for condition in conditions if condition.series(panel.tag)]
    if not any(any(series.values) for c in shown for series in c.series(panel.tag)):
        return None
    window = window_over(shown, panel.tag, smooth, panel.share)
    bands = {c.name: over_seeds(c.series(panel.tag), window) for c in shown}
    figure = new_figure(len(shown))
    (axes,) = figure.axes
    notes = [panel.note, averaged(window), seeds_note(shown), missing_note(shown, conditions)]
    draw_bands(axes, bands, styles, panel.limits)
    if panel.log and all(value > 0 for band in bands.values() for value in band.values):
        style.log_scale(axes)
    finish(axes, panel.title, panel.unit, bands, styles)
    return Picture(panel.title, figure, joined(notes))


def new_figure(lines: int) -> Figure:
    """A figure of one axes, high enough for the names of so many lines."""
    return style.figure(1, 1, PANEL_WIDTH, max(PANEL_HEIGHT, 1.2 + style.LABEL_GAP_INCHES * lines))


def window_over(conditions: Sequence[Condition], tag: str, smooth: int | None, share: float) -> int:
    """The window of a running average: one for all lines of a panel."""
    logged = max(len(series.steps) for c in conditions for series in c.series(tag))
    return window_of(logged, smooth, share)


def draw_bands(
    axes: Axes,
    bands: Mapping[str, Band],
    styles: Styles,
    limits: tuple[float | None, float | None] = (None, None),
) -> None:
    """Lines with their intervals. The lines decide how far the axis reaches, not the intervals."""
    for name, band in bands.items():
        style.line(axes, band.steps, band.values, styles[name])
    axes.set_ylim(axes.get_ylim())
    bottom, top = limits
    if bottom == 0 and top is None:  # a line along the upper edge would be hard to see
        top = 1.1 * axes.get_ylim()[1]
    axes.set_ylim(bottom, top)
    for name, band in bands.items():
        if np.isfinite(band.low).any():
            colour = styles[name]["color"]
            axes.fill_between(
                band.steps, band.low, band.high, color=colour, alpha=0.15, linewidth=0
            )


def finish(axes: Axes, title: str, unit: str, bands: Mapping[str, Band], styles: Styles) -> None:
    """Writing, grid and names of a panel over steps; after everything else is drawn."""
    style.dress(axes, title, STEP, unit)
    style.whole_steps(axes)
    ends = [
        Label(band.steps[-1], band.values[-1], short(name), styles[name]["color"])
        for name, band in bands.items()
        if band.steps
    ]
    style.label_ends(axes, ends)


def short(name: str) -> str:
    """The name as it fits beside a line: its beginning and its end."""
    name = style.printable(name)
    half = MOST_LETTERS // 2
    return name if len(name) <= MOST_LETTERS else f"{name[: half - 1]}…{name[-half:]}"


def averaged(window: int) -> str:
    """What was averaged over, in words."""
    return f"running average of {window}" if window > 1 else ""


def seeds_note(conditions: Sequence[Condition]) -> str:
    """What the bands are, where there are any."""
    if all(len(condition.runs) == 1 for condition in conditions):
        return ""
    return "band: 95 % interval over seeds"


def missing_note(shown: Sequence[Condition], conditions: Sequence[Condition]) -> str:
    """Who has not logged it, if others have."""
    absent = [c.name for c in conditions if c not in shown]
    return f"not logged by {', '.join(absent)}" if absent else ""


def joined(notes: Sequence[str]) -> str:
    """The notes that there are, as one line."""
    return "; ".join(filter(None, notes))


class Special(NamedTuple):
    """Panels that are more than lines.

    Attributes:
        title: of what is drawn.
        draw: takes what `draw_lines` takes after its panel.
        how: to have it logged, where not every run does.
    """

    title: str
    draw: Callable[[Sequence[Condition], Styles, int | None], list[Picture]]
    how: str = ""
