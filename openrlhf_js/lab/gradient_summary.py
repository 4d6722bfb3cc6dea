"""What the distances say: reductions with their intervals, a table, and one sentence.

Every interval is over batches, and every finding says what it covers. Where no response is in two
of them, batches are independent draws of prompts from the pool's and of responses of the policy,
and the interval covers what other such draws would give. Where batches share responses it covers
other draws from this pool alone. Neither covers other prompts than the pool's, nor the error of G,
which is common to all batches: it is subtracted in the mean, and its cross terms with each batch's
error are part of the batches' spread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from openrlhf_js.estimators.advantages import find_estimator
from openrlhf_js.lab import reductions
from openrlhf_js.lab.gradient import Measured
from openrlhf_js.lab.reductions import listed, percent
from openrlhf_js.lab.small_batches import Design, Plan, batch_baseline, draw, mean_shrinkage
from openrlhf_js.lab.store import Samples
from openrlhf_js.uncertainty import Estimate, clustered_mean
from openrlhf_js.uncertainty.estimate import Floats

REFERENCE = "rloo"
SPOKEN = ("js", "js_plus")  # of which the sentence speaks


def reduction(ours: Floats, theirs: Floats) -> Estimate:
    """`reductions.reduction` of (B,) distances, paired by batch.

    Raises:
        ValueError: theirs are 0, or their mean is not positive.
    """
    found = reductions.reduction(ours, theirs)
    if found is None:
        raise ValueError(
            f"the mean distance of {REFERENCE} to the precise gradient is {theirs.mean():.2g}: "
            "either each prompt's rewards are all equal, and other prompts are needed; or the "
            "precise gradient is no more precise than the batches: sample more responses"
        )
    return found


def squared_errors(samples: Samples, design: Design, plan: Plan, name: str) -> Floats:
    """(numbers of responses, B) mean of (b - mu)^2 of each batch's baselines.

    mu is the mean of the responses that make the precise gradient, which are in no batch; its own
    squared standard error is subtracted.

    Args:
        samples: the pool.
        design: of `draw`.
        plan: the batches.
        name: of an estimator, or MIDDLE.
    """
    apart = samples.rewards[:, : 2 * design.half]
    value, error = apart.mean(1), apart.var(1, ddof=1) / apart.shape[1]
    found = np.empty((len(plan.responses), plan.batches))
    for row, m in enumerate(plan.responses):
        for batch, prompts in enumerate(design.prompts):
            b = batch_baseline(samples, design, batch, m, name)
            found[row, batch] = (
                np.square(b - value[prompts][:, None]).mean() - error[prompts].mean()
            )
    return found


def summarise(samples: Samples, plan: Plan, measured: Measured) -> dict[str, Any]:
    """The finding, the rows of the table, and how precise it all is.

    Args:
        samples: the pool.
        plan: the batches.
        measured: of `gradient.measure`, for `rloo` and other baselines.

    Raises:
        ValueError: see `reduction`.
    """
    design = draw(len(samples.rewards), samples.rewards.shape[1], plan)
    rows = [
        _row(samples, plan, design, measured, c, name)
        for c in range(len(plan.responses))
        for name in measured.names
    ]
    found = {
        "finding": _finding(plan, len(samples.prompts), design.disjoint, rows),
        "rows": rows,
        "precise": precision(samples, design, measured),
        "batches": {
            "batches": plan.batches,
            "prompts": plan.prompts,
            "of_prompts": len(samples.prompts),
            "disjoint": design.disjoint,
        },
    }
    if measured.projection_errors:
        found["projection"] = {
            "relative_errors": list(measured.projection_errors),
            "root_mean_square": float(np.sqrt(np.mean(np.square(measured.projection_errors)))),
        }
    return found


def precision(samples: Samples, design: Design, measured: Measured) -> dict[str, Any]:
    """How precise the precise gradient is: its own error against the squared norm of grad J."""
    reference = measured.reference
    return {
        "responses": 2 * design.half * len(samples.prompts),
        "squared_norm": reference.signal,
        "squared_error": reference.error,
        "relative_error": reference.error / reference.signal if reference.signal > 0 else math.inf,
    }


def _row(
    samples: Samples, plan: Plan, design: Design, measured: Measured, c: int, name: str
) -> dict[str, Any]:
    place, base = (measured.names.index(each) for each in (name, REFERENCE))
    distances, plain = measured.distances[:, c], measured.plain[:, c]
    distance = clustered_mean(distances[place])
    saved = reduction(distances[place], distances[base])
    mse = reduction(*(squared_errors(samples, design, plan, each)[c] for each in (name, REFERENCE)))
    estimator = find_estimator(name)
    shrinkage = math.nan
    if estimator.coefficient:
        shrinkage = float(mean_shrinkage(samples, design, plan.responses[c], name).mean())
    return {
        "m": plan.responses[c],
        "estimator": name,
        "gradient": "unbiased" if estimator.independent else "biased",
        "distance": distance.value,
        "distance_low": distance.low,
        "distance_high": distance.high,
        "plain_distance": float(plain[place].mean()),
        "reduction_percent": saved.value,
        "reduction_low": saved.low,
        "reduction_high": saved.high,
        "mse_reduction_percent": mse.value,
        "mse_reduction_low": mse.low,
        "mse_reduction_high": mse.high,
        "shrinkage": shrinkage,
    }


def _finding(plan: Plan, prompts: int, disjoint: bool, rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(row["estimator"] for row in rows))
    spoken = [name for name in SPOKEN if name in names] or names[1:]
    parts = []
    for name in spoken:
        own = [row for row in rows if row["estimator"] == name]
        saved = listed([f"{percent(saved_of(row))} at m = {row['m']}" for row in own])
        parts.append(f"{name} lowers the squared distance of {REFERENCE}'s gradient by {saved}")
    return (
        f"{'; '.join(parts)} ({plan.batches} batches of {plan.prompts} of {prompts} prompts; "
        f"{intervals(disjoint)})."
    )


def intervals(disjoint: bool) -> str:
    """What is in brackets, and what it covers."""
    same = "prompts" if disjoint else "prompts and responses"
    return f"in brackets 95 % intervals, for further batches of the same {same}"


def saved_of(row: dict[str, Any]) -> Estimate:
    """The reduction that a row holds."""
    return Estimate(row["reduction_percent"], row["reduction_low"], row["reduction_high"])
