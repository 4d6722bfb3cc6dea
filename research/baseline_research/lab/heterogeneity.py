"""The distance to the true gradient for every shrinkage: the program `lab heterogeneity`.

With one coefficient lambda for all prompts, each batch's squared distance is a parabola in lambda,
fixed exactly by its values at 0 (rloo), 1/2 and 1 (bloo). The mean distance is least at the minimum
of the mean parabola. Results are for each group of prompts and for their mix (the paper's
appendices on heterogeneity).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from baseline_research.lab.batches import BatchPlan, at, best, parabolas
from baseline_research.lab.gradient import MIDDLE, Measured, measure, notes_of
from baseline_research.lab.results import REFERENCE, Ints, LabResult, rows_of
from baseline_research.lab.sampling import sampled
from baseline_research.lab.score_pool import open_score_pool
from baseline_research.lab.settings import HeterogeneitySettings
from baseline_research.lab.value import mean_value, spread
from paired_eval.stats import Estimate
from paired_eval.stats.estimate import Floats

SWEPT = (REFERENCE, MIDDLE, "bloo", "js")  # the first three are lambda = 0, 1/2 and 1
GRID = np.linspace(0, 1, 41)
ALL = "all"  # the set's name if there are no groups
MIX = "mix"
LEAST_DISTANCE = "least distance"


def every_shrinkage(settings: HeterogeneitySettings) -> LabResult:
    """`lab heterogeneity`."""
    samples = sampled(settings)
    rows_of_sets = sets([prompt.group for prompt in samples.prompts])
    smallest = min(rows_of_sets.values(), key=len)
    plan = BatchPlan.of(settings, samples.rewards[smallest])
    pool = open_score_pool(settings, samples)
    measured = {}
    for name, rows in rows_of_sets.items():
        measured[name] = measure(pool.at(rows), plan, SWEPT, title=f"batches of {name}")
    return heterogeneity(measured, plan)


def sets(groups: Sequence[str]) -> dict[str, Ints]:
    """The pool's rows for each group by itself and for the mix, about equally many in each set.

    Each group gives its first prompts, as many as the smallest group has; the mix takes equal
    shares. A single group is the whole pool.
    """
    names = sorted(set(groups))
    if len(names) == 1:
        return {ALL: np.arange(len(groups))}
    size = min(groups.count(name) for name in names)
    share = size // len(names)
    group_of_row = np.array(groups)
    rows = {}
    mix = []
    for name in names:
        rows[name] = np.flatnonzero(group_of_row == name)[:size]
        mix.append(rows[name][:share])
    return {**rows, MIX: np.concatenate(mix)}


def minimiser(measured: Measured, parabola: Floats) -> Estimate:
    """`best` with its interval over prompts, as a ratio of means."""
    value = best(parabola)
    _, b, c = parabola.T
    if not c.mean() > 0:  # where all rewards are equal, lambda does not matter
        return Estimate(value, 0.0, 1.0)
    ratio = measured.over.ratio(-b, 2 * c)
    low, high = np.clip([ratio.low, ratio.high], 0, 1)
    return Estimate(value, float(low), float(high))


def held_out(parabola: Floats, halves: Ints) -> Floats:
    """(B,) each batch's distance at the lambda that is best on the other half of the responses.

    At the lambda that is best on the same responses, the distance would be biased low.
    """
    best_of_halves = np.array([best(parabola[halves == half]) for half in (0, 1)])
    return at(parabola, best_of_halves[1 - halves])


class Sweep(NamedTuple):
    """What shrinkage does to the gradients of a set of prompts at one m."""

    curve: Floats
    """(len(GRID), 3) by how many percent each lambda is below rloo, with its interval."""
    points: dict[str, dict[str, Estimate]]
    """The shrinkage and the reduction of rules."""


def sweep(measured: Measured, m: int) -> Sweep:
    """Computes it from the measured distances of SWEPT."""
    over = measured.over
    rloo = measured.of(m, REFERENCE)
    bloo = measured.of(m, "bloo")
    parabola = parabolas(rloo, measured.of(m, MIDDLE), bloo)
    shrinkage_of_js = measured.shrinkage[measured.responses.index(m), measured.names.index("js")]
    rules = {  # each rule's shrinkage, and the batches' distances (B,)
        LEAST_DISTANCE: (minimiser(measured, parabola), held_out(parabola, measured.draws.halves)),
        "bloo": (Estimate(1.0, 1.0, 1.0), bloo),
        "js": (over.mean(shrinkage_of_js), measured.of(m, "js")),
    }
    points = {}
    for name, (shrinkage, distances) in rules.items():
        reduction = over.reduction(distances, rloo)
        points[name] = {"shrinkage": shrinkage, "reduction_percent": reduction}
    curve = [over.reduction(at(parabola, shrinkage), rloo) for shrinkage in GRID]
    return Sweep(np.array(curve), points)


def heterogeneity(measured_sets: Mapping[str, Measured], plan: BatchPlan) -> LabResult:
    """Rows and curves, from the measured distances of SWEPT for each set."""
    rows = []
    curves = []
    for name, measured in measured_sets.items():
        for m in plan.responses:
            swept = sweep(measured, m)
            curves.append(swept.curve)
            moments = _moments(measured.samples.rewards, m)
            rows += rows_of(moments, prompts=name, m=m, point="all rewards")
            for point, quantities in swept.points.items():
                rows += rows_of(quantities, prompts=name, m=m, point=point)
    shape = len(measured_sets), len(plan.responses), len(GRID), 3
    reductions = np.array(curves).reshape(shape)
    arrays = {
        "sets": np.array(list(measured_sets)),
        "m": np.array(plan.responses),
        "shrinkage": GRID,
        "reduction_percent": reductions[..., 0],
        "reduction_low": reductions[..., 1],
        "reduction_high": reductions[..., 2],
        "estimators": np.array(SWEPT),
        "distances": np.stack([measured.distances for measured in measured_sets.values()]),
    }
    caption = (
        f"{plan.batches} batches of {plan.prompts} prompts of each set; "
        "95 % intervals over prompts; reductions against rloo: below 0, farther off"
    )
    notes = notes_of(next(iter(measured_sets.values())), plan)
    return LabResult(rows, caption, arrays, notes)


def _moments(rewards: Floats, m: int) -> dict[str, Estimate | float]:
    """The moments of all of a set's rewards, which decide the best shrinkage."""
    return {
        "value": mean_value(rewards),
        "v": rewards.var(1, ddof=1).mean() / (m - 1),
        "s": spread(rewards) ** 2,
    }
