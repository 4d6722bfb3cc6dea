"""Advantage estimators: rewards in, advantages out. Pure torch."""

from openrlhf_js.estimators.batch import Batch, Past, make_batch
from openrlhf_js.estimators.catalogue import (
    ESTIMATORS,
    LiveEstimator,
    advantage,
    baseline,
    diagnostics,
    estimate,
    find_estimator,
)
from openrlhf_js.estimators.group_stats import GroupStatistics, group_statistics
from openrlhf_js.estimators.memory import PromptMemory, key_of
from openrlhf_js.estimators.record import Estimate, Estimator

__all__ = [
    "ESTIMATORS",
    "Batch",
    "Estimate",
    "Estimator",
    "GroupStatistics",
    "LiveEstimator",
    "Past",
    "PromptMemory",
    "advantage",
    "baseline",
    "diagnostics",
    "estimate",
    "find_estimator",
    "group_statistics",
    "key_of",
    "make_batch",
]
