"""The distance to the true gradient for every shrinkage coefficient, from three passes a batch.

With one coefficient lambda for all prompts the baseline is (1 - lambda) rloo + lambda bloo, and
the gradient is linear in lambda:

    g(lambda) = g(0) + lambda (g(1) - g(0)).

So each batch's squared distance D is a parabola, given by what it is at 0, 1/2 and 1, without any
error:

    D(lambda) = D(0) + b lambda + c lambda^2
    c = 2 (D(0) - 2 D(1/2) + D(1))               b = D(1) - D(0) - c

The mean over batches is least at lambda = -mean(b) / (2 mean(c)). The same holds of the squared
error of the baseline itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from openrlhf_js.lab.gradient import Measured
from openrlhf_js.lab.gradient_summary import (
    REFERENCE,
    intervals,
    precision,
    reduction,
    saved_of,
    squared_errors,
)
from openrlhf_js.lab.reductions import listed, percent
from openrlhf_js.lab.small_batches import MIDDLE, Plan, draw, mean_shrinkage
from openrlhf_js.lab.store import Samples
from openrlhf_js.uncertainty import Estimate, bootstrap_interval, clustered_mean
from openrlhf_js.uncertainty.estimate import Floats

POINTS = (REFERENCE, MIDDLE, "bloo")  # lambda = 0, 1/2 and 1
ESTIMATED = ("js", "js_plus")
SWEPT = (*POINTS, *ESTIMATED)
GRID = np.linspace(0, 1, 41)
ROUNDS = 4000


class Curve(NamedTuple):
    """Reductions against lambda = 0 in percent, over GRID; (points,) each."""

    values: Floats
    low: Floats
    high: Floats


def parabolas(at_none: Floats, at_half: Floats, at_one: Floats) -> Floats:
    """(..., 3) D(0), b and c of every batch, see above."""
    c = 2 * (at_none - 2 * at_half + at_one)
    return np.stack([at_none, at_one - at_none - c, c], -1)


def at(parabola: Floats, shrinkage: Floats | float) -> Floats:
    """D(lambda) of every batch.

    Args:
        parabola: (..., 3).
        shrinkage: (...) or one for all.
    """
    return parabola[..., 0] + parabola[..., 1] * shrinkage + parabola[..., 2] * shrinkage**2


def best(parabola: Floats) -> float:
    """The lambda in [0, 1] at which the mean of the batches is least."""
    _, b, c = parabola.sum(0)
    return float(np.clip(-b / (2 * c), 0, 1)) if c > 0 else float(b < 0)


def minimiser(parabola: Floats, seed: int) -> Estimate:
    """`best` with its interval, from a studentized bootstrap over batches.

    Args:
        parabola: (B, 3).
        seed: of the resamples.
    """
    value = best(parabola)
    telling = parabola[parabola[:, 2] > 0]  # where all rewards are equal, lambda does not matter
    if len(telling) < 2:
        return Estimate(value, 0.0, 1.0)
    sums = np.stack([-telling[:, 1], 2 * telling[:, 2]], 1)
    found = bootstrap_interval(
        sums, lambda total: total[..., 0] / total[..., 1], seed=seed, rounds=ROUNDS
    )
    return Estimate(value, *(float(np.clip(end, 0, 1)) for end in found[1:]))


def unseen(parabola: Floats) -> Floats:
    """(B,) each batch's distance at the lambda that is best for all others.

    At the lambda that is best for these very batches it would look lower than it is for new ones.
    """
    others = parabola.sum(0) - parabola
    return np.array([at(own, best(rest[None])) for own, rest in zip(parabola, others, strict=True)])


def curve(parabola: Floats) -> Curve:
    """The reduction at every lambda of GRID."""
    found = [reduction(at(parabola, each), parabola[:, 0]) for each in GRID]
    return Curve(*(np.array(column) for column in zip(*found, strict=True)))


def summarise(
    samples: Samples, plan: Plan, measured: Measured
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Summary and arrays of `lab sweep`.

    Args:
        samples: the pool.
        plan: the batches.
        measured: of `gradient.measure`, for SWEPT.

    Raises:
        ValueError: see `gradient_summary.reduction`.
    """
    design = draw(len(samples.rewards), samples.rewards.shape[1], plan)
    errors = [squared_errors(samples, design, plan, name) for name in POINTS]
    distances = {name: measured.distances[measured.names.index(name)] for name in SWEPT}
    rows, curves = [], []
    for c, m in enumerate(plan.responses):
        parabola = parabolas(*(distances[name][c] for name in POINTS))
        of_values = parabolas(*(each[c] for each in errors))
        none = parabola[:, 0]
        curves.append(curve(parabola))
        least = minimiser(of_values, plan.seed)
        rows += [
            _row(m, "minimum", minimiser(parabola, plan.seed), reduction(unseen(parabola), none)),
            _row(m, "least mse", least, reduction(at(parabola, least.value), none)),
        ]
        for name in ESTIMATED:
            taken = clustered_mean(mean_shrinkage(samples, design, m, name))
            rows.append(_row(m, name, taken, reduction(distances[name][c], none)))
    summary = {
        "finding": _finding(plan, len(samples.prompts), design.disjoint, rows),
        "rows": rows,
        "precise": precision(samples, design, measured),
        "disjoint": design.disjoint,
    }
    arrays = {
        "m": np.array(plan.responses),
        "shrinkage": GRID,
        "reduction_percent": np.stack([each.values for each in curves]),
        "reduction_low": np.stack([each.low for each in curves]),
        "reduction_high": np.stack([each.high for each in curves]),
        "estimators": np.array(SWEPT),
        "distances": np.stack([distances[name] for name in SWEPT]),
    }
    return summary, arrays


def _row(m: int, point: str, shrinkage: Estimate, saved: Estimate) -> dict[str, Any]:
    return {
        "m": m,
        "point": point,
        "shrinkage": shrinkage.value,
        "shrinkage_low": shrinkage.low,
        "shrinkage_high": shrinkage.high,
        "reduction_percent": saved.value,
        "reduction_low": saved.low,
        "reduction_high": saved.high,
    }


def _finding(plan: Plan, prompts: int, disjoint: bool, rows: list[dict[str, Any]]) -> str:
    parts = []
    for m in plan.responses:
        own = {row["point"]: row for row in rows if row["m"] == m}
        least = own["minimum"]
        ends = (least["shrinkage_low"], least["shrinkage_high"])
        where = f"{least['shrinkage']:.2f} ({' to '.join(f'{end:.2f}' for end in ends)})"
        stand = listed(
            [
                f"{name} stands at {own[name]['shrinkage']:.2f} and lowers it by "
                f"{percent(saved_of(own[name]))}"
                for name in ESTIMATED
            ]
        )
        parts.append(
            f"at m = {m} the distance is least at lambda = {where}, where it is lower than "
            f"{REFERENCE}'s by {percent(saved_of(least))}; {stand}"
        )
    said = "; ".join(parts)
    return (
        f"{said[0].upper()}{said[1:]} ({plan.batches} batches of {plan.prompts} of {prompts} "
        f"prompts; {intervals(disjoint)})."
    )
