"""Each prompt's value, the mean of its rewards: the program `lab value`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from openrlhf_js.lab.pool import Samples
from openrlhf_js.lab.results import LabResult, Row, rows_of
from openrlhf_js.stats import Estimate, clustered_mean, clustered_proportion
from openrlhf_js.stats.estimate import Floats

ALL = "all"


def values_of(pool: Samples) -> LabResult:
    """Each prompt's value with its standard error; and their mean and spread, also by group."""
    prompts, responses = pool.rewards.shape
    lengths = np.array([[len(response) for response in group] for group in pool.response_tokens])
    groups = np.array([prompt.group or "-" for prompt in pool.prompts])
    rows = _rows(pool, lengths, np.ones(prompts, dtype=bool), ALL)
    names = sorted(set(groups.tolist()))
    for name in names if len(names) > 1 else ():
        rows += _rows(pool, lengths, groups == name, name)
    arrays = {
        "values": pool.rewards.mean(1),
        "standard_errors": standard_errors(pool.rewards),
        "rewards": pool.rewards,
        "greedy_rewards": pool.greedy_rewards,
        "finished": pool.finished,
        "lengths": lengths,
        "groups": groups,
    }
    notes = {"prompts": prompts, "responses": responses, "samples": pool.settings}
    caption = f"{prompts} prompts, {responses} responses to each; 95 % intervals over prompts"
    return LabResult(rows, caption, arrays, notes)


def _rows(
    pool: Samples, lengths: NDArray[np.int64], chosen: NDArray[np.bool_], group: str
) -> list[Row]:
    rewards = pool.rewards[chosen]
    quantities = {
        "prompts": chosen.sum(),
        "mean_value": mean_value(rewards),
        "sd_of_values": spread(rewards),
        "all_rewards_equal": (np.ptp(rewards, axis=1) == 0).mean(),
        "greedy_reward": pool.greedy_rewards[chosen].mean(),
        "tokens": lengths[chosen].mean(),
        "unfinished": 1 - pool.finished[chosen].mean(),
    }
    return rows_of(quantities, group=group)


def standard_errors(rewards: Floats) -> Floats:
    """(n,) of the means of (n, m); NaN with one response."""
    prompts, responses = rewards.shape
    if responses < 2:
        return np.full(prompts, np.nan)
    return np.sqrt(rewards.var(1, ddof=1) / responses)


def mean_value(rewards: Floats) -> Estimate:
    """The mean value of the prompts (n, m) with its interval, clustered by prompt."""
    clusters = np.repeat(np.arange(len(rewards)), rewards.shape[1])
    if rewards.min() >= 0 and rewards.max() <= 1:
        return clustered_proportion(rewards.ravel(), clusters)
    return clustered_mean(rewards.ravel(), clusters)


def spread(rewards: Floats) -> float:
    """The standard deviation of the true values over prompts: of the means, less their noise.

    0 where the noise explains everything, NaN with one prompt or one response.
    """
    if min(rewards.shape) < 2:
        return math.nan
    noise = rewards.var(1, ddof=1).mean() / rewards.shape[1]
    return math.sqrt(max(0.0, float(rewards.mean(1).var(ddof=1) - noise)))
