"""Advantage estimators: rewards in, advantages out. Pure torch."""

from openrlhf_js.estimators.advantages import ESTIMATORS, Estimator, advantage, baseline
from openrlhf_js.estimators.diagnostics import diagnostics
from openrlhf_js.estimators.group_stats import GroupStatistics, group_statistics
from openrlhf_js.estimators.memory import Memory

__all__ = [
    "ESTIMATORS",
    "Estimator",
    "GroupStatistics",
    "Memory",
    "advantage",
    "baseline",
    "diagnostics",
    "group_statistics",
]
