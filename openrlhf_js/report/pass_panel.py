"""The panel of held-out pass@1, with intervals over seeds or held-out prompts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from openrlhf_js.report.bands import Band, over_seeds
from openrlhf_js.report.panels import Picture, Styles, finish, joined, missing_note, new_figure
from openrlhf_js.report.runs import Condition
from openrlhf_js.uncertainty import Estimate, clustered_mean

PASS_AT_1 = re.compile(r"eval/eval_(?P<source>.+)_pass1")


def draw_pass_at_1(
    conditions: Sequence[Condition], styles: Styles, smooth: int | None
) -> list[Picture]:
    """One panel for each set of held-out prompts, with intervals over seeds or prompts."""
    tags = sorted({tag for c in conditions for tag in c.tags if PASS_AT_1.fullmatch(tag)})
    return [_pass_at_1(tag, conditions, styles, alone=len(tags) == 1) for tag in tags]


def pass_at_1(condition: Condition, tag: str, alone: bool) -> dict[int, Estimate]:
    """pass@1 by step: over seeds; of a single run over its held-out prompts, where files tell.

    Args:
        condition: of which.
        tag: of one set of held-out prompts.
        alone: whether it is the only set, so that a quickstart's evaluations are of it.
    """
    if len(condition.runs) > 1:
        band = over_seeds(condition.series(tag))
        return {s: Estimate(*e) for s, *e in zip(*band, strict=True)}
    (run,) = condition.runs
    logged = dict(zip(*run.series(tag), strict=True))
    found = {step: Estimate(value, -math.inf, math.inf) for step, value in logged.items()}
    if alone:
        found |= {s: clustered_mean(list(of.values())) for s, of in run.evaluations.items()}
    return dict(sorted(found.items()))


def _pass_at_1(tag: str, conditions: Sequence[Condition], styles: Styles, alone: bool) -> Picture:
    source = PASS_AT_1.fullmatch(tag)["source"]  # type: ignore[index]
    shown = [c for c in conditions if c.series(tag)]
    figure = new_figure(len(shown))
    (axes,) = figure.axes
    bands = {}
    reach = max(step for c in shown for series in c.series(tag) for step in series.steps)
    for i, condition in enumerate(shown):
        found = pass_at_1(condition, tag, alone)
        of = found.values()
        bands[condition.name] = Band(
            list(found), [e.value for e in of], [e.low for e in of], [e.high for e in of]
        )
        apart = (i - (len(shown) - 1) / 2) * reach / 100  # so that no interval hides another
        _error_bars(axes, bands[condition.name], styles[condition.name], apart)
    axes.set_ylim(0, 1)
    title = f"Held-out pass@1, {source}"
    finish(axes, title, "share of the responses", bands, styles)
    return Picture(
        title, figure, joined([_kinds_of_interval(shown, alone), missing_note(shown, conditions)])
    )


def _error_bars(axes: Axes, band: Band, look: dict[str, Any], apart: float) -> None:
    axes.plot(band.steps, band.values, **look)
    known = [i for i, low in enumerate(band.low) if math.isfinite(low)]
    value, low, high = (
        np.array([column[i] for i in known]) for column in (band.values, band.low, band.high)
    )
    axes.errorbar(
        [band.steps[i] + apart for i in known],
        value,
        np.array([value - low, high - value]),
        fmt="none",
        ecolor=look["color"],
        capsize=3,
        linewidth=1.2,
    )


def _kinds_of_interval(shown: Sequence[Condition], alone: bool) -> str:
    kinds = [
        "over seeds" if any(len(c.runs) > 1 for c in shown) else "",
        "over held-out prompts, before and after, where there is one seed"
        if alone and any(len(c.runs) == 1 and c.runs[0].evaluations for c in shown)
        else "",
    ]
    return f"95 % intervals {' and '.join(filter(None, kinds))}" if any(kinds) else "no intervals"
