"""Each prompt's value by Monte Carlo, and what the values say of shrinkage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openrlhf_js.lab.store import Samples
from openrlhf_js.uncertainty import Estimate, clustered_mean, clustered_proportion
from openrlhf_js.uncertainty.estimate import Floats

ALL = "all"  # the name of the row for all prompts together


class Values(NamedTuple):
    """What the rewards of n prompts say, each prompt's (n,).

    Attributes:
        values: mean rewards.
        standard_errors: of these; NaN with one response.
        variances: of the rewards, without bias; NaN with one response.
    """

    values: Floats
    standard_errors: Floats
    variances: Floats


def values_of(rewards: Floats) -> Values:
    """The value of each prompt, from rewards (n, m), with se = sqrt(variance / m)."""
    m = rewards.shape[1]
    mean = rewards.mean(1)
    squares = np.square(rewards - mean[:, None]).sum(1)
    variance = squares / (m - 1) if m > 1 else np.full_like(mean, np.nan)
    return Values(mean, np.sqrt(variance / m), variance)


def summarise(samples: Samples) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The summary and the arrays of `lab value`.

    Returns:
        finding and rows: one for all prompts, and one for each group if there are several; and the
        values (n,) with what belongs to them.
    """
    found = values_of(samples.rewards)
    lengths = np.array([[len(each) for each in group] for group in samples.response_tokens])
    groups = np.array([group or "-" for group in samples.groups])
    names = sorted(set(groups.tolist()))
    everything = np.ones(len(groups), dtype=bool)
    parts = {ALL: everything} | ({name: groups == name for name in names} if names[1:] else {})
    rows = [_row(name, samples, found, lengths, chosen) for name, chosen in parts.items()]
    summary = {
        "finding": _finding(rows[0], samples.rewards),
        "rows": rows,
        "samples": samples.settings,
    }
    arrays = {
        **found._asdict(),
        "rewards": samples.rewards,
        "finished": samples.finished,
        "lengths": lengths,
        "groups": groups,
    }
    if samples.greedy_rewards is not None:
        arrays["greedy_rewards"] = samples.greedy_rewards
    return summary, arrays


def _row(
    name: str, samples: Samples, found: Values, lengths: NDArray[Any], chosen: NDArray[np.bool_]
) -> dict[str, Any]:
    rewards = samples.rewards[chosen]
    mean = mean_value(rewards)
    greedy = samples.greedy_rewards
    return {
        "group": name,
        "prompts": int(chosen.sum()),
        "responses": rewards.shape[1],
        "mean_value": mean.value,
        "low": mean.low,
        "high": mean.high,
        "standard_error_of_a_value": float(np.sqrt(np.mean(found.standard_errors[chosen] ** 2))),
        "sd_of_values": spread(rewards),
        "all_rewards_equal": float((np.ptp(rewards, axis=1) == 0).mean()),
        "greedy_reward": None if greedy is None else float(greedy[chosen].mean()),
        "tokens": float(lengths[chosen].mean()),
        "unfinished": float(1 - samples.finished[chosen].mean()),
    }


def mean_value(rewards: Floats) -> Estimate:
    """The mean value of the prompts that these were drawn from, with its 95 % interval.

    Args:
        rewards: (n, m).
    """
    clusters = np.repeat(np.arange(len(rewards)), rewards.shape[1])
    share = rewards.min() >= 0 and rewards.max() <= 1
    return (clustered_proportion if share else clustered_mean)(rewards.ravel(), clusters)


def spread(rewards: Floats) -> float:
    """The standard deviation of the true values over prompts, from rewards (n, m).

    The means differ by more than the values, for they hold noise: its mean variance, the mean
    squared standard error, is taken off. 0 where that leaves nothing, NaN with one prompt or one
    response.
    """
    found = values_of(rewards)
    if min(rewards.shape) < 2:
        return float("nan")
    noise = np.mean(found.standard_errors**2)
    return float(np.sqrt(max(0.0, np.var(found.values, ddof=1) - noise)))


def _finding(row: Mapping[str, Any], rewards: Floats) -> str:
    n, m = rewards.shape
    if np.ptp(rewards) == 0:
        return (
            f"Every one of the {n} x {m} rewards is {rewards.flat[0]:g}: nothing tells prompts "
            "apart, and every baseline but that of plain REINFORCE is exact; take other prompts, "
            "or an earlier or later model."
        )
    mean = f"Mean value {row['mean_value']:.3f}"
    if n == 1:
        return f"{mean} for one prompt with {m} responses: one prompt says nothing of the others."
    sentence = (
        f"{mean} (95 % interval {row['low']:.3f} to {row['high']:.3f}, by {n} prompts); their "
        f"values differ by a standard deviation of {row['sd_of_values']:.3f}"
    )
    if m == 1:
        return f"{mean} (95 % interval {row['low']:.3f} to {row['high']:.3f}, by {n} prompts)."
    return (
        f"{sentence}, each is known to a standard error of {row['standard_error_of_a_value']:.3f}, "
        f"and for {row['all_rewards_equal']:.0%} of the prompts all {m} rewards are equal."
    )
