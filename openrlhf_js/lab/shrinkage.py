"""`lab sweep`: the distance to the true gradient for every shrinkage, from three of them.

With one coefficient lambda for all prompts the baseline is (1 - lambda) rloo + lambda bloo, and
the gradient is linear in lambda. So each batch's squared distance D is a parabola, given exactly by
what it is at 0, 1/2 and 1:

    D(lambda) = D(0) + b lambda + c lambda^2
    c = 2 (D(0) - 2 D(1/2) + D(1))               b = D(1) - D(0) - c

The mean over batches is least at lambda = -mean(b) / (2 mean(c)).

`lab heterogeneity` is the same for each group of prompts and for their mix (the paper's appendices
on heterogeneity).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from openrlhf_js.lab.gradient import MIDDLE, BatchPlan, Measured, caption_of, notes_of
from openrlhf_js.lab.results import REFERENCE, Ints, LabResult, LabRow, rows_of
from openrlhf_js.lab.value import mean_value, spread
from openrlhf_js.stats import Estimate
from openrlhf_js.stats.estimate import Floats

SWEPT = (REFERENCE, MIDDLE, "bloo", "js")  # the first three are lambda = 0, 1/2 and 1
GRID = np.linspace(0, 1, 41)
MIX = "mix"
LEAST_DISTANCE = "least distance"
SHARED_ARRAYS = ("m", "shrinkage", "estimators")  # the same for all sets of prompts


def parabolas(at_none: Floats, at_half: Floats, at_one: Floats) -> Floats:
    """(..., 3) D(0), b and c of every batch, see above."""
    c = 2 * (at_none - 2 * at_half + at_one)
    return np.stack([at_none, at_one - at_none - c, c], -1)


def at(parabola: Floats, shrinkage: Floats | float) -> Floats:
    """D(lambda) of every batch (..., 3), for one lambda or one for each."""
    return parabola[..., 0] + parabola[..., 1] * shrinkage + parabola[..., 2] * shrinkage**2


def best(parabola: Floats) -> float:
    """The lambda in [0, 1] at which the mean of the batches (B, 3) is least."""
    _, b, c = parabola.sum(0)
    return float(np.clip(-b / (2 * c), 0, 1)) if c > 0 else float(b < 0)


def minimiser(measured: Measured, parabola: Floats) -> Estimate:
    """`best` with its interval over prompts, that of a ratio of means."""
    value = best(parabola)
    _, b, c = parabola.T
    if not c.mean() > 0:  # where all rewards are equal, lambda does not matter
        return Estimate(value, 0.0, 1.0)
    ratio = measured.ratio(-b, 2 * c)
    low, high = np.clip([ratio.low, ratio.high], 0, 1)
    return Estimate(value, float(low), float(high))


def held_out(parabola: Floats, halves: Ints) -> Floats:
    """(B,) each batch's distance at the lambda that is best with the other half of the responses.

    At the lambda that is best for these very responses it would look lower than it is for others.
    """
    best_of_halves = np.array([best(parabola[halves == half]) for half in (0, 1)])
    return at(parabola, best_of_halves[1 - halves])


def sweep(measured: Measured, plan: BatchPlan, **settings: Any) -> LabResult:
    """The result of `lab sweep`; rows have the settings too, such as the set of prompts."""
    rows = []
    curves = []
    shrinkage_of_js = measured.shrinkage[:, measured.names.index("js")]
    for place, m in enumerate(plan.responses):
        rloo = measured.of(m, REFERENCE)
        bloo = measured.of(m, "bloo")
        parabola = parabolas(rloo, measured.of(m, MIDDLE), bloo)
        curves.append([measured.reduction(at(parabola, shrinkage), rloo) for shrinkage in GRID])
        points = {  # each one's shrinkage, and the batches' distances (B,)
            LEAST_DISTANCE: (
                minimiser(measured, parabola),
                held_out(parabola, measured.draws.halves),
            ),
            "bloo": (Estimate(1.0, 1.0, 1.0), bloo),
            "js": (measured.mean(shrinkage_of_js[place]), measured.of(m, "js")),
        }
        for point, (shrinkage, point_distances) in points.items():
            quantities = {
                "shrinkage": shrinkage,
                "reduction_percent": measured.reduction(point_distances, rloo),
            }
            rows += rows_of(quantities, **settings, m=m, point=point)
    reductions = np.array(curves)  # by m, by lambda of GRID: value, low, high
    arrays = {
        "m": np.array(plan.responses),
        "shrinkage": GRID,
        "reduction_percent": reductions[..., 0],
        "reduction_low": reductions[..., 1],
        "reduction_high": reductions[..., 2],
        "estimators": np.array(measured.names),
        "distances": measured.distances,
    }
    return LabResult(rows, caption_of(measured, plan), arrays, notes_of(measured, plan))


def sets(groups: Sequence[str]) -> dict[str, Ints]:
    """Rows of the pool for each group by itself and for the mix, about equally many of each.

    A group gives as many prompts as the smallest one has, its first; the mix takes equal shares.
    """
    names = sorted(set(groups))
    if len(names) < 2:
        raise ValueError(f"groups of prompts: {names}; give two or more (--group_key, or files)")
    size = min(groups.count(name) for name in names)
    share = size // len(names)
    group_of_row = np.array(groups)
    rows = {}
    mix = []
    for name in names:
        rows[name] = np.flatnonzero(group_of_row == name)[:size]
        mix.append(rows[name][:share])
    return {**rows, MIX: np.concatenate(mix)}


def heterogeneity(measured_sets: Mapping[str, Measured], plan: BatchPlan) -> LabResult:
    """The result of `lab heterogeneity`, from what was measured of SWEPT for each set."""
    rows = []
    sweeps = []
    for name, measured in measured_sets.items():
        swept = sweep(measured, plan, prompts=name)
        sweeps.append(swept)
        rows += _moments(measured.samples.rewards, plan, name)
        rows += swept.rows
    first = sweeps[0]
    arrays = {}
    for key, array in first.arrays.items():
        arrays[key] = array
        if key not in SHARED_ARRAYS:
            arrays[key] = np.stack([swept.arrays[key] for swept in sweeps])
    arrays["sets"] = np.array(list(measured_sets))
    caption = (
        f"{plan.batches} batches of {plan.prompts} prompts of each set; "
        "95 % intervals over prompts; reductions against rloo"
    )
    return LabResult(rows, caption, arrays, first.notes)


def _moments(rewards: Floats, plan: BatchPlan, name: str) -> list[LabRow]:
    """Of all the rewards of a set: what decides which shrinkage is best."""
    rows = []
    for m in plan.responses:
        moments = {
            "value": mean_value(rewards),
            "v": rewards.var(1, ddof=1).mean() / (m - 1),
            "s": spread(rewards) ** 2,
        }
        rows += rows_of(moments, prompts=name, m=m, point="all rewards")
    return rows
