"""Means over seeds, running averages and ratios of what runs have logged, with 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from openrlhf_js.report.scalars import Series
from openrlhf_js.uncertainty import Estimate, clustered_mean, ratio_of_means
from openrlhf_js.uncertainty.estimate import Floats

MOST_POINTS = 200  # of a line: a picture is no wider, and a page of thousands of steps stays small
BLOCKS = 20  # of consecutive steps, each taken as one draw
UNSMOOTHED = 100
LAST_SHARE = 0.1  # of the steps, over which a final figure is the mean


class Band(NamedTuple):
    """A line with its interval."""

    steps: list[int]
    values: list[float]
    low: list[float]
    """Ends of the interval; not finite where there is none, as for a single seed."""
    high: list[float]


def finite(series: Series) -> Series:
    """The series without the values that are infinite or not a number."""
    kept = [(s, v) for s, v in zip(*series, strict=True) if math.isfinite(v)]
    return Series([s for s, _ in kept], [v for _, v in kept])


def window_of(logged: int, asked: int | None, share: float = 0.04) -> int:
    """How many logged values a running average takes.

    Args:
        logged: how many there are.
        asked: by the user, None for a share of them.
        share: of all values; up to 100 are drawn as they are.
    """
    return asked or (max(1, round(share * logged)) if logged > UNSMOOTHED else 1)


def running_mean(series: Series, window: int) -> Series:
    """At each step the mean of the last `window` logged values; begins once there are so many.

    A series that is shorter becomes one point, its mean.
    """
    window = min(window, len(series.values))
    means = np.lib.stride_tricks.sliding_window_view(np.array(series.values), window).mean(1)
    return Series(series.steps[window - 1 :], list(means))


def common(seeds: Sequence[Series]) -> tuple[list[int], Floats]:
    """The steps that every series has, and their values, (series, steps)."""
    first, *others = (series.steps for series in seeds)
    steps = sorted(set(first).intersection(*others))
    tables = [dict(zip(*series, strict=True)) for series in seeds]
    return steps, np.array([[table[s] for s in steps] for table in tables])


def over_seeds(seeds: Sequence[Series], window: int = 1) -> Band:
    """The mean over seeds of their running averages, with its interval over seeds.

    Args:
        seeds: the same scalar in several runs; only steps that all of them have are kept.
        window: of the running average.
    """
    steps, values = common([running_mean(series, window) for series in seeds])
    return _band({steps[i]: clustered_mean(values[:, i]) for i in _thinned(len(steps))})


def _thinned(count: int) -> list[int]:
    """Which of so many points are drawn; the first and the last one are."""
    return sorted({round(i) for i in np.linspace(count - 1, 0, min(count, MOST_POINTS))})


def ratio(ours: Sequence[Series], theirs: Sequence[Series], window: int) -> Band:
    """Our running average over theirs, with an interval over seeds where there are some.

    Args:
        ours: one series a seed.
        theirs: the same scalar in the runs that ours are compared with.
        window: of the running average; the interval of single seeds is over its steps.
    """
    steps, values = common([*ours, *theirs])
    a, b = values[: len(ours)], values[len(ours) :]
    found = {}
    window = min(window, len(steps))
    for begin in _thinned(len(steps) - window + 1):
        end = begin + window
        if estimate := _ratio(a[:, begin:end], b[:, begin:end]):
            found[steps[end - 1]] = estimate
    return _band(found)


def _band(estimates: dict[int, Estimate]) -> Band:
    of = estimates.values()
    return Band(list(estimates), [e.value for e in of], [e.low for e in of], [e.high for e in of])


def overall_ratio(ours: Sequence[Series], theirs: Sequence[Series]) -> Estimate | None:
    """The mean of ours over that of theirs on the steps that all have, None where there is none."""
    steps, values = common([*ours, *theirs])
    return _ratio(values[: len(ours)], values[len(ours) :]) if steps else None


def _ratio(ours: Floats, theirs: Floats) -> Estimate | None:
    """A ratio of means; rows are seeds if both have the same number of several, else steps.

    Args:
        ours: (seeds, steps).
        theirs: (seeds, steps).
    """
    if len(ours) == len(theirs) > 1:
        above, below, blocks = ours.mean(1), theirs.mean(1), None
    else:
        above, below = ours.mean(0), theirs.mean(0)
        blocks = np.arange(len(above)) * min(BLOCKS, len(above)) // len(above)
    if (below < 0).any() or not below.any():
        return None
    return ratio_of_means(above, below, blocks)


def final(seeds: Sequence[Series]) -> Estimate | None:
    """The mean over seeds of the last tenth of the logged values; None where nothing was."""
    lasts = [s.values[-max(1, round(LAST_SHARE * len(s.values))) :] for s in seeds if s.values]
    return clustered_mean([float(np.mean(values)) for values in lasts]) if lasts else None


def average(seeds: Sequence[Series]) -> Estimate | None:
    """The mean over seeds of the mean over all steps; None where nothing was logged."""
    means = [series.mean for series in seeds if series.mean is not None]
    return clustered_mean(means) if means else None
