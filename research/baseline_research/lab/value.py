"""Each prompt's value, the mean of its rewards: the program `lab value`."""

from __future__ import annotations

import math

import numpy as np

from baseline_research.lab.pool import Samples
from baseline_research.lab.results import LabResult, LabRow, rows_of
from baseline_research.lab.sampling import sampled
from baseline_research.lab.settings import ValueSettings
from paired_eval.stats import Estimate, clustered_mean, clustered_proportion
from paired_eval.stats.estimate import Floats

ALL = "all"


def values(settings: ValueSettings) -> LabResult:
    """`lab value`."""
    return values_of(sampled(settings))


def values_of(pool: Samples) -> LabResult:
    """Each prompt's value with its standard error; and their mean and spread, also by group."""
    prompts, responses = pool.rewards.shape
    groups = np.array([prompt.group or "-" for prompt in pool.prompts])
    rows = _rows(pool, ALL)
    names = sorted(set(groups.tolist()))
    if len(names) > 1:
        for name in names:
            rows += _rows(pool.at(np.flatnonzero(groups == name)), name)
    arrays = {
        "values": pool.rewards.mean(1),
        "standard_errors": standard_errors(pool.rewards),
        "rewards": pool.rewards,
        "greedy_rewards": pool.greedy_rewards,
        "finished": pool.finished,
        "lengths": pool.lengths,
        "groups": groups,
    }
    notes = {"prompts": prompts, "responses": responses, "samples": pool.settings}
    caption = f"{prompts} prompts, {responses} responses to each; 95 % intervals over prompts"
    return LabResult(rows, caption, arrays, notes)


def _rows(pool: Samples, group: str) -> list[LabRow]:
    """The rows for all prompts, or for one group."""
    quantities = {
        "prompts": len(pool.prompts),
        "mean_value": mean_value(pool.rewards),
        "sd_of_values": spread(pool.rewards),
        "all_rewards_equal": (np.ptp(pool.rewards, axis=1) == 0).mean(),
        "greedy_reward": pool.greedy_rewards.mean(),
        "tokens": pool.lengths.mean(),
        "unfinished": 1 - pool.finished.mean(),
    }
    return rows_of(quantities, group=group)


def standard_errors(rewards: Floats) -> Floats:
    """(n,) standard errors of the row means of (n, m); NaN with one response."""
    prompts, responses = rewards.shape
    if responses < 2:
        return np.full(prompts, np.nan)
    return np.sqrt(rewards.var(1, ddof=1) / responses)


def mean_value(rewards: Floats) -> Estimate:
    """The mean value of the prompts, from rewards (n, m), with its interval clustered by prompt."""
    clusters = np.repeat(np.arange(len(rewards)), rewards.shape[1])
    if rewards.min() >= 0 and rewards.max() <= 1:
        return clustered_proportion(rewards.ravel(), clusters)
    return clustered_mean(rewards.ravel(), clusters)


def spread(rewards: Floats) -> float:
    """The standard deviation of the true values over prompts: that of the means, less their noise.

    0 if the noise explains everything, NaN with one prompt or one response.
    """
    if min(rewards.shape) < 2:
        return math.nan
    noise = rewards.var(1, ddof=1).mean() / rewards.shape[1]
    return math.sqrt(max(0.0, float(rewards.mean(1).var(ddof=1) - noise)))
