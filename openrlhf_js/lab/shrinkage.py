"""The distance to the true gradient for every shrinkage coefficient, from three passes a batch.

With one coefficient lambda for all prompts the baseline is (1 - lambda) rloo + lambda bloo, and
the gradient is linear in lambda. So each batch's squared distance D is a parabola, given exactly by
what it is at 0, 1/2 and 1:

    D(lambda) = D(0) + b lambda + c lambda^2
    c = 2 (D(0) - 2 D(1/2) + D(1))               b = D(1) - D(0) - c

The mean over batches is least at lambda = -mean(b) / (2 mean(c)).

Heterogeneity is the same for each group of prompts and for their mix (the paper's appendices on
heterogeneity).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openrlhf_js.lab import results
from openrlhf_js.lab.gradient import MIDDLE, Distances, SmallBatches, notes_of
from openrlhf_js.lab.mse import mean_value, spread
from openrlhf_js.lab.results import OURS, REFERENCE, LabResult, Row, reduction
from openrlhf_js.stats import Estimate, clustered_mean, ratio_of_means
from openrlhf_js.stats.estimate import Floats

POINTS = (REFERENCE, MIDDLE, "bloo")  # lambda = 0, 1/2 and 1
SWEPT = (*POINTS, *OURS)
GRID = np.linspace(0, 1, 41)
MIX = "mix"
LEAST_DISTANCE = "least distance"


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


def minimiser(parabola: Floats) -> Estimate:
    """`best` with its interval over batches (B, 3), that of a ratio of means."""
    value = best(parabola)
    bent = parabola[parabola[:, 2] > 0]  # where all rewards are equal, lambda does not matter
    if not len(bent):
        return Estimate(value, 0.0, 1.0)
    _, low, high = np.clip(ratio_of_means(-bent[:, 1], 2 * bent[:, 2]), 0, 1)
    return Estimate(value, float(low), float(high))


def held_out(parabola: Floats) -> Floats:
    """(B,) each batch's distance at the lambda that is best for all others.

    At the lambda that is best for these very batches it would look lower than it is for new ones.
    """
    others = parabola.sum(0) - parabola
    return np.array([at(own, best(rest[None])) for own, rest in zip(parabola, others, strict=True)])


def sweep(batches: SmallBatches, found: Distances, **settings: Any) -> LabResult:
    """The result of `lab sweep`; rows have the settings too, such as the set of prompts."""
    plan, rows, curves = batches.plan, [], []
    for c, m in enumerate(plan.responses):
        parabola = parabolas(*(found.of(name, c) for name in POINTS))
        none = parabola[:, 0]
        curves.append([reduction(at(parabola, each), none) for each in GRID])
        points = {
            LEAST_DISTANCE: (minimiser(parabola), held_out(parabola)),
            "bloo": (Estimate(1.0, 1.0, 1.0), found.of("bloo", c)),
        }
        for name in OURS:
            points[name] = clustered_mean(batches.shrinkage(m, name)), found.of(name, c)
        for point, (shrinkage, distances) in points.items():
            quantities = {"shrinkage": shrinkage, "reduction_percent": reduction(distances, none)}
            rows += results.rows_of(quantities, **settings, m=m, point=point)
    value, low, high = np.moveaxis(np.array(curves), -1, 0)
    arrays = {
        **{"m": np.array(plan.responses), "shrinkage": GRID},
        **{"reduction_percent": value, "reduction_low": low, "reduction_high": high},
        **{"estimators": np.array(found.names), "distances": found.unbiased},
    }
    return LabResult(rows, _finding(rows, batches), arrays, notes_of(batches, found))


def _finding(rows: Sequence[Row], batches: SmallBatches) -> str:
    """Where the distance is least, and what js and js_plus do to it."""
    least = results.quoted(rows, "shrinkage", ".2f", point=LEAST_DISTANCE)
    saved = results.changes(rows, point=LEAST_DISTANCE)
    return (
        f"The squared distance to the true gradient is least at lambda = {least}, which {saved}, "
        f"against {REFERENCE}; {results.effects('it', rows, 'point')} ({batches.covered()})."
    )


def sets(groups: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Rows of the pool for each group by itself and for the mix, about equally many of each.

    A group gives as many prompts as the smallest one has, its first; the mix takes equal shares.
    """
    names = sorted(set(groups))
    if len(names) < 2:
        raise ValueError(f"groups of prompts: {names}; give two or more (--group_key, or files)")
    rows = {name: np.flatnonzero(np.array(groups) == name) for name in names}
    size = min(map(len, rows.values()))
    found = {name: rows[name][:size] for name in names}
    return {**found, MIX: np.concatenate([each[: size // len(names)] for each in found.values()])}


def heterogeneity(
    batches: Mapping[str, SmallBatches], measured: Mapping[str, Distances]
) -> LabResult:
    """The result of `lab heterogeneity`, from batches and the distances of SWEPT for each set."""
    rows, found = [], []
    for name, own in batches.items():
        found.append(sweep(own, measured[name], prompts=name))
        rewards = own.pool.rewards
        for m in own.plan.responses:
            v = rewards.var(1, ddof=1).mean() / (m - 1)
            moments = {"value": mean_value(rewards), "v": v, "s": spread(rewards) ** 2}
            rows += results.rows_of(moments, prompts=name, m=m, point="all rewards")
        rows += found[-1].rows
    arrays = {key: np.stack([one.arrays[key] for one in found]) for key in found[0].arrays}
    arrays |= {key: found[0].arrays[key] for key in ("m", "shrinkage", "estimators")}
    notes = {**found[0].notes, "precise": [one.notes["precise"] for one in found]}
    return LabResult(rows, _finding(rows, own), {**arrays, "sets": np.array(list(batches))}, notes)
