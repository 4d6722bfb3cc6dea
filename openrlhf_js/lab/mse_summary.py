"""What measured errors say: a table with intervals over prompts, and one sentence.

The prompts are the draws that intervals reckon with. A prompt counts twice: by its own error, and
by what it does to the others, which are shrunk with a mean and a coefficient of their batch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openrlhf_js.lab.mse import ORACLE, REFERENCE, Errors, Found, gradient_of
from openrlhf_js.lab.reductions import listed, percent, reduction
from openrlhf_js.uncertainty import Estimate, clustered_mean
from openrlhf_js.uncertainty.estimate import Floats

TOLD = ("js", "js_plus")


def influences(errors: Errors) -> Floats:
    """(e, N) the sums of errors, each prompt's with what it adds to others; the same in total.

    To first order the mean over batches moves by that much where a prompt is drawn: the Hajek
    projection of a mean over subsets. Without the second part, 95 % intervals of js covered 57 % of
    simulated pools.
    """
    mean = errors.cross @ errors.counts / errors.counts.sum()
    return errors.sums + errors.counts * (errors.cross - mean[:, None])


def mean_error(errors: Floats, counts: np.ndarray) -> Estimate:
    """The mean squared error of a batch's baselines, with its interval over prompts.

    Args:
        errors: (N,) sums over the batches that a prompt was in.
        counts: (N,) in how many it was.
    """
    drawn = counts > 0
    return clustered_mean(errors[drawn] / counts[drawn], weights=counts[drawn])


def summarise(found: Found, pool: Floats, n: int, batches: int) -> dict[str, Any]:
    """The finding and the rows of the table.

    Args:
        found: of `mse.measure`, by number of responses.
        pool: (N, M) rewards.
        n: prompts of a batch.
        batches: how many were drawn.
    """
    rows = [
        _row(m, name, errors, place)
        for m, errors in found.items()
        for place, name in enumerate(errors.names)
    ]
    return {
        "finding": _finding(rows, pool, n),
        "rows": rows,
        "prompts": pool.shape[0],
        "pool_responses": pool.shape[1],
        "batch_prompts": n,
        "batches": batches,
        "best_coefficient": {m: errors.best for m, errors in found.items()},
    }


def arrays(found: Found) -> dict[str, np.ndarray]:
    """The raw numbers, with k numbers of responses: sums (k, e, N), counts (k, N), cross."""
    first = next(iter(found.values()))
    return {
        "responses": np.array(list(found)),
        "estimators": np.array(first.names),
        "squared_error_sums": np.stack([each.sums for each in found.values()]),
        "counts": np.stack([each.counts for each in found.values()]),
        "cross": np.stack([each.cross for each in found.values()]),
        "shrinkage": np.stack([each.shrinkage for each in found.values()]),
    }


def _row(m: int, name: str, errors: Errors, place: int) -> dict[str, Any]:
    found, drawn = influences(errors), errors.counts > 0
    error = mean_error(found[place], errors.counts)
    reduced = reduction(found[place, drawn], found[errors.names.index(REFERENCE), drawn])
    value, low, high = reduced or (math.nan, math.nan, math.nan)
    return {
        "responses": m,
        "estimator": name,
        "gradient": gradient_of(name),
        "mse": error.value,
        "mse_low": error.low,
        "mse_high": error.high,
        "reduction_percent": value,
        "low": low,
        "high": high,
        "shrinkage": float(errors.shrinkage[place]),
    }


def _finding(rows: list[dict[str, Any]], pool: Floats, n: int) -> str:
    prompts, responses = pool.shape
    what = f"{prompts} prompts, {n} to a batch"
    if np.ptp(pool, axis=1).max() == 0:
        return (
            f"{what}: the {responses} rewards of every prompt are equal, so that rloo has no error "
            "to reduce; take other prompts, or an earlier or later model."
        )
    if n == 1:
        return f"{what}: with one prompt there is no other to shrink to, and js is rloo."
    told = "; ".join(
        f"{name} by {listed([_said(row) for row in rows if row['estimator'] == name])}"
        for name in TOLD
    )
    best = ", ".join(
        f"{row['reduction_percent']:.1f}" for row in rows if row["estimator"] == ORACLE
    )
    return (
        f"{what}: the mean squared error to the true value, against rloo's, is lowered by {told} "
        "(in brackets 95 % intervals over prompts); the best constant coefficient would lower it "
        f"by {best} %."
    )


def _said(row: dict[str, Any]) -> str:
    reduced = Estimate(row["reduction_percent"], row["low"], row["high"])
    return f"{percent(reduced, 'prompts')} at m = {row['responses']}"
