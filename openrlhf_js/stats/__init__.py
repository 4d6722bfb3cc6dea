"""Intervals and tests that say how sure a figure is; docs/api.md helps to choose."""

from openrlhf_js import needs

needs("eval", "scipy")

from openrlhf_js.stats.clustered import (
    clustered_mean,
    holm,
    mean_of_means,
    paired_difference,
    ratio_of_means,
)
from openrlhf_js.stats.estimate import CONFIDENCE, Difference, Estimate, detectable_effect
from openrlhf_js.stats.proportions import clustered_proportion, pass_at_k

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
