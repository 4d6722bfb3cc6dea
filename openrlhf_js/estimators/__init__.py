"""Advantage estimators: rewards in, advantages out. Pure torch.

Names are imported on first use, so that code which reads only the records, such as `--help`, does
not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openrlhf_js.estimators.advantages import (
        LiveEstimator,
        advantage,
        baseline,
        diagnostics,
        estimate,
    )
    from openrlhf_js.estimators.batch import Batch, make_batch
    from openrlhf_js.estimators.catalogue import ESTIMATORS, find_estimator
    from openrlhf_js.estimators.gradient import squared_score_norms
    from openrlhf_js.estimators.group_stats import GroupStatistics, group_statistics
    from openrlhf_js.estimators.memory import key_of
    from openrlhf_js.estimators.online import OnlineBaseline
    from openrlhf_js.estimators.record import Estimate, Estimator

__all__ = [
    "ESTIMATORS",
    "Batch",
    "Estimate",
    "Estimator",
    "GroupStatistics",
    "LiveEstimator",
    "OnlineBaseline",
    "advantage",
    "baseline",
    "diagnostics",
    "estimate",
    "find_estimator",
    "group_statistics",
    "key_of",
    "make_batch",
    "squared_score_norms",
]
_MODULES = {
    "advantages": ("LiveEstimator", "advantage", "baseline", "diagnostics", "estimate"),
    "batch": ("Batch", "make_batch"),
    "catalogue": ("ESTIMATORS", "find_estimator"),
    "gradient": ("squared_score_norms",),
    "group_stats": ("GroupStatistics", "group_statistics"),
    "memory": ("key_of",),
    "online": ("OnlineBaseline",),
    "record": ("Estimate", "Estimator"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
