"""What simulated errors say: a table, and one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openrlhf_js.estimators import ESTIMATORS
from openrlhf_js.lab import reductions
from openrlhf_js.lab.reductions import listed, percent
from openrlhf_js.lab.simulate import (
    BATCH_ORACLE,
    LEFT_OUT,
    NAMES,
    ORACLE,
    REFERENCE,
    Simulated,
    best_coefficient,
)
from openrlhf_js.lab.values import Values
from openrlhf_js.uncertainty import Estimate, clustered_mean
from openrlhf_js.uncertainty.estimate import Floats

ORACLES = (ORACLE, BATCH_ORACLE)


def reduction(errors: Floats, reference: Floats) -> Estimate:
    """How much lower the mean of paired errors is, in percent of the reference's.

    Args:
        errors: (b,) one a batch, of a baseline.
        reference: (b,) of RLOO on the same batches.

    Raises:
        ValueError: the reference has no error in any batch.
    """
    found = reductions.reduction(errors, reference)
    if found is None:
        raise ValueError(
            f"RLOO had no error in any of {len(reference)} batches, since all rewards of each "
            "prompt were equal; take more rounds, or values farther from 0 and 1"
        )
    return found


def summarise(values: Values, n: int, found: Mapping[int, Simulated]) -> dict[str, Any]:
    """The finding, the rows of the table, and what was left out.

    Args:
        values: distribution of the prompts.
        n: prompts of a batch.
        found: errors by number of responses.

    Raises:
        ValueError: RLOO has no error in any batch.
    """
    reduced = {
        m: {
            name: reduction(errors, of.squared_errors[NAMES.index(REFERENCE)])
            for name, errors in zip(NAMES, of.squared_errors, strict=True)
        }
        for m, of in found.items()
    }
    return {
        "finding": _finding(values, n, reduced),
        "rows": [_row(m, name, of, reduced[m][name]) for m, of in found.items() for name in NAMES],
        "title": values.title,
        "prompts_count": n,
        "values": {"mean": values.mean, "s2": values.s2, "sigma2": values.sigma2},
        "best_coefficient": {m: best_coefficient(values, n, m) for m in found},
        "left_out": LEFT_OUT,
    }


def arrays(found: Mapping[int, Simulated]) -> dict[str, np.ndarray]:
    """The raw numbers, with k numbers of responses: squared_errors and shrinkage (k, e, b)."""
    return {
        "m": np.array(list(found)),
        "estimators": np.array(NAMES),
        "squared_errors": np.stack([of.squared_errors for of in found.values()]),
        "shrinkage": np.stack([of.shrinkage for of in found.values()]),
    }


def _row(m: int, name: str, of: Simulated, reduced: Estimate) -> dict[str, Any]:
    place = NAMES.index(name)
    return {
        "m": m,
        "estimator": name,
        "gradient": _gradient(name),
        "mse": clustered_mean(of.squared_errors[place]).value,
        "reduction_percent": reduced.value,
        "reduction_low": reduced.low,
        "reduction_high": reduced.high,
        "shrinkage": float(of.shrinkage[place].mean()),
    }


def _gradient(name: str) -> str:
    """Whether the baseline leaves the gradient unbiased; an oracle needs the true values."""
    if name in ORACLES:
        return "oracle"
    return "unbiased" if ESTIMATORS[name].independent else "biased"


def _finding(values: Values, n: int, found: Mapping[int, Mapping[str, Estimate]]) -> str:
    js, js_plus = (
        listed([f"{percent(each[name], 'rounds')} at m = {m}" for m, each in found.items()])
        for name in ("js", "js_plus")
    )
    best = listed([f"{each[ORACLE].value:.1f}" for each in found.values()])
    return (
        f"{values.title}, {n} prompts: js lowers the squared error of RLOO's baseline by {js}; "
        f"js_plus lowers it by {js_plus} (in brackets 95 % intervals); the best constant "
        f"coefficient, which only the truth tells, would lower it by {best} %."
    )
