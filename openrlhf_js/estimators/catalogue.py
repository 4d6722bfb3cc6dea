"""All estimators by name."""

from __future__ import annotations

from openrlhf_js.estimators.baselines import classic, memory, shrinkage
from openrlhf_js.estimators.record import Estimator

ESTIMATORS: dict[str, Estimator] = {
    record.name: record for record in (*classic.ESTIMATORS, *shrinkage.ESTIMATORS, memory.JS_MEMORY)
}


def find_estimator(name: str) -> Estimator:
    """Return the estimator of that name, or raise a ValueError that lists them all."""
    if name not in ESTIMATORS:
        raise ValueError(f"unknown estimator {name!r}; choose one of {', '.join(ESTIMATORS)}.")
    return ESTIMATORS[name]
