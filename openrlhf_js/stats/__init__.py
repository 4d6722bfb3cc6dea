"""Intervals, tests and fits that say how sure a figure is; docs/uncertainty.md helps to choose."""

from openrlhf_js.stats.bootstrap import bootstrap_interval, percentile_interval
from openrlhf_js.stats.correlations import correlation
from openrlhf_js.stats.estimate import CONFIDENCE, Difference, Estimate
from openrlhf_js.stats.intervals import (
    clustered_mean,
    independent_difference,
    paired_difference,
    ratio_of_means,
    stratified_mean,
)
from openrlhf_js.stats.passk import mean_pass_at_k, pass_at_k
from openrlhf_js.stats.power import (
    detectable_effect,
    mcnemar_detectable_difference,
    paired_detectable_effect,
    proportions_detectable_difference,
)
from openrlhf_js.stats.proportions import clustered_proportion, wilson

__all__ = [
    "CONFIDENCE",
    "Difference",
    "Estimate",
    "bootstrap_interval",
    "clustered_mean",
    "clustered_proportion",
    "correlation",
    "detectable_effect",
    "independent_difference",
    "mcnemar_detectable_difference",
    "mean_pass_at_k",
    "paired_detectable_effect",
    "paired_difference",
    "pass_at_k",
    "percentile_interval",
    "proportions_detectable_difference",
    "ratio_of_means",
    "stratified_mean",
    "wilson",
]
