"""Intervals and tests; docs/api.md helps to choose."""

from paired_eval.stats.clustered import (
    clustered_mean,
    holm,
    mean_of_means,
    paired_difference,
    ratio_of_means,
)
from paired_eval.stats.estimate import CONFIDENCE, Difference, Estimate, detectable_effect
from paired_eval.stats.proportions import clustered_proportion, pass_at_k

__all__ = [
    "CONFIDENCE",
    "Difference",
    "Estimate",
    "clustered_mean",
    "clustered_proportion",
    "detectable_effect",
    "holm",
    "mean_of_means",
    "paired_difference",
    "pass_at_k",
    "ratio_of_means",
]
