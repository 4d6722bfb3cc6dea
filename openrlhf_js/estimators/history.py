"""What earlier batches tell about today's shrinkage: running statistics, plain numbers.

Earlier responses are independent of today's, given the policy. A coefficient that is made of them
and of today's other prompts leaves the gradient unbiased. Formulas and their reasons:
docs/js_plus.md; what was measured: docs/js_plus_streams.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from openrlhf_js.estimators.coefficients import (
    GUARD,
    best_coefficient,
    corrected_coefficient,
    net_dispersion,
)
from openrlhf_js.estimators.group_stats import GroupStatistics, check_rewards, checked_statistics

RULES = ("running", "js", "js_plus")

# A batch whose variance is this many times smaller is in other units. Rare kinds of prompts, absent
# from a small batch, can make it 4 times smaller (docs/js_plus_streams.md).
OTHER_UNITS = 16

# Where today's prompts differ by more standard errors (of Gaussian means) than this from the
# history, the history is of other data (docs/js_plus_streams.md).
STANDARD_ERRORS = 4.0


class RunningStatistics(NamedTuple):
    """Sums over earlier batches, each weighted by 2^(-age / half_life), the last one of age 1.

    Plain numbers, in reward units (variances: squared), so that a checkpoint can hold them.
    """

    half_life: float
    """In batches."""
    batches: float = 0.0
    """Weights of the batches that had a variance."""
    prompts: float = 0.0
    """Prompts in them that had one."""
    variance: float = 0.0
    """sigma^2, summed over those prompts."""
    degrees: float = 0.0
    """Degrees of freedom of the values' dispersion: prompts less one for each batch."""
    net: float = 0.0
    """Dispersion of the values (that of the means less their noise), times the degrees."""
    gain: tuple[float, ...] = (0.0,) * 3
    """Sum of lambda v2 over prompts, for each of RULES."""
    cost: tuple[float, ...] = (0.0,) * 9
    """Sum of lambda lambda' (v2 + T) over prompts, for each pair of RULES, row by row."""


def start_history(half_life: float) -> RunningStatistics:
    """Return the history of a run that has seen no batch.

    Args:
        half_life: after how many batches one counts half; ValueError unless finite and above 0.
    """
    if not 0 < half_life < math.inf:
        raise ValueError(f"half_life must be a finite number of batches above 0, got {half_life}.")
    return RunningStatistics(float(half_life))


def update_history(
    history: RunningStatistics, rewards: Tensor, mask: Tensor | None = None
) -> RunningStatistics:
    """Return the history with one more batch; call it when that batch has its advantages.

    Args:
        history: of the batches before this one.
        rewards: (n, m), as `advantage` takes them; errors as there.
        mask: (n, m) bool, as there.

    Examples:
        >>> update_history(start_history(1), torch.tensor([[1.0, 0.0], [1.0, 1.0]])).prompts
        1.0
    """
    rewards, mask = check_rewards(rewards, mask)
    stats = checked_statistics(rewards.detach().double(), mask)
    paired = stats.valid_responses >= 2
    if not paired.any():
        return _aged(history)
    noise = (stats.reward_variance / stats.valid_responses.clamp(min=1))[paired].mean()
    means = stats.prompt_mean[stats.valid_responses >= 1]
    degrees = len(means) - 1
    net = float((means - means[0]).var() - noise) if degrees else 0.0
    gain, cost = _losses(history, stats)
    history = _in_units(history, float(stats.reward_variance[paired].mean()) + max(0.0, net))
    with_batch = history._replace(
        batches=history.batches + 1,
        prompts=history.prompts + float(paired.sum()),
        variance=history.variance + float(stats.reward_variance[paired].sum()),
        degrees=history.degrees + degrees,
        net=history.net + degrees * net,
        gain=_plus(history.gain, gain),
        cost=_plus(history.cost, cost),
    )
    return _aged(with_batch)


def _plus(sums: tuple[float, ...], more: Tensor) -> tuple[float, ...]:
    return tuple(old + new for old, new in zip(sums, more.flatten().tolist(), strict=True))


def _in_units(history: RunningStatistics, spread: float) -> RunningStatistics:
    """Return the history in the units of a batch whose rewards, all together, have that variance.

    Rewards that are suddenly many times smaller, as another scale makes them, would count for
    nothing beside the larger ones before. Larger ones need no help.
    """
    earlier = _value_variance(history) + _reward_variance(history)
    if spread <= 0 or spread * OTHER_UNITS >= earlier:
        return history
    return _scaled(history, spread / earlier)


def _scaled(history: RunningStatistics, factor: float) -> RunningStatistics:
    return history._replace(
        variance=factor * history.variance,
        net=factor * history.net,
        gain=tuple(factor * total for total in history.gain),
        cost=tuple(factor * total for total in history.cost),
    )


def _aged(history: RunningStatistics) -> RunningStatistics:
    """Return the history one batch later."""
    weight = 0.5 ** (1 / history.half_life)
    return _scaled(history, weight)._replace(
        batches=weight * history.batches,
        prompts=weight * history.prompts,
        degrees=weight * history.degrees,
    )


def _reward_variance(history: RunningStatistics) -> float:
    return history.variance / history.prompts if history.prompts else 0.0


def _value_variance(history: RunningStatistics) -> float:
    return max(0.0, history.net) / history.degrees if history.degrees else 0.0


def _losses(history: RunningStatistics, stats: GroupStatistics) -> tuple[Tensor, Tensor]:
    """Return (3,) and (3, 3): what this batch adds to `gain` and `cost`.

    A prompt's error (1 - lambda)^2 v2 + lambda^2 T is estimated without bias, since its own rewards
    are in neither the other prompts' mean nor in lambda: v2 by sigma_i^2 / (m - 1), and T by
    (mu_i - mu_{-i})^2 - sigma_i^2 / m.
    """
    known = (stats.valid_responses >= 2) & (stats.other_prompts >= 1)
    valid, variance = stats.valid_responses[known], stats.reward_variance[known]
    v2 = variance / (valid - 1)
    distance = (stats.prompt_mean - stats.loo_batch_mean)[known].square() - variance / valid
    rules = _coefficients(history, stats)[known]
    return rules.T @ v2, (rules * (v2 + distance)[:, None]).T @ rules


def running_coefficient(stats: GroupStatistics, history: RunningStatistics) -> Tensor:
    """(n,) lambda of `js_plus` with the statistics of earlier batches beside today's.

        lambda_i = sum_k a_k lambda_i^k         over k = running, js, js_plus

    The weights a are those that would have been best in earlier batches, see `rule_weights`.
    """
    weights = stats.shrinkage.new_tensor(rule_weights(history))
    return _coefficients(history, stats) @ weights


def _coefficients(history: RunningStatistics, stats: GroupStatistics) -> Tensor:
    """(n, 3) the coefficients of RULES, each without prompt i.

    The first is that of `js_plus` with pooled estimates: sums of today's other prompts and of
    earlier ones, over the sums of their degrees of freedom. The guard becomes c / (c + W), but for
    what today's prompts add, with W degrees of freedom from earlier batches. And it takes the
    prompts for no more alike than the lower end of what today's others allow.
    """
    others = stats.other_prompts.clamp(min=1)
    degrees = others - 1
    pooled = (degrees + history.degrees).clamp(min=1e-300)
    net = (degrees * net_dispersion(stats) + history.net) / pooled
    margin = 1 + STANDARD_ERRORS * (2 / degrees.clamp(min=1)).sqrt()
    dispersion = stats.between_variance * others / degrees.clamp(min=1)
    net = net.maximum(dispersion / margin - stats.within_variance)
    sigma2 = (others * stats.other_reward_variance + history.variance) / (others + history.prompts)
    guard = GUARD / (GUARD + (degrees + history.degrees**2).sqrt())
    running = best_coefficient(stats, net, sigma2, guard)
    return torch.stack([running, stats.shrinkage, corrected_coefficient(stats)], 1)


def rule_weights(history: RunningStatistics) -> tuple[float, float, float]:
    """Return the weights of RULES, none negative, sum 1, that make the least error so far.

        minimise  sum over earlier prompts of (1 - a . lambda)^2 v2 + (a . lambda)^2 T

    As if one more batch had shown that the first rule is best. Without any batch it has weight 1.
    """
    gain = list(history.gain)
    cost = [list(history.cost[row : row + 3]) for row in (0, 3, 6)]
    # distances of the other two rules from the first, in the metric of the cost
    apart = [cost[0][0] + cost[k][k] - 2 * cost[0][k] for k in (1, 2)]
    prior = sum(apart) / 2 / history.batches if history.batches > 0 else 0.0
    if prior <= 0:
        return 1.0, 0.0, 0.0
    for k in (1, 2):
        cost[k][k] += prior
    return _least_on_simplex(gain, cost)


def _least_on_simplex(gain: list[float], cost: list[list[float]]) -> tuple[float, float, float]:
    """Return the a >= 0 with sum 1 that minimises a' cost a - 2 a' gain, cost positive definite."""
    slope = [gain[k] - gain[0] - (cost[0][k] - cost[0][0]) for k in (1, 2)]
    xx, yy = (cost[0][0] + cost[k][k] - 2 * cost[0][k] for k in (1, 2))
    xy = cost[0][0] + cost[1][2] - cost[0][1] - cost[0][2]
    determinant = xx * yy - xy * xy
    if determinant > 0:
        x = (slope[0] * yy - slope[1] * xy) / determinant
        y = (slope[1] * xx - slope[0] * xy) / determinant
        if x >= 0 and y >= 0 and x + y <= 1:
            return 1 - x - y, x, y
    # the function is convex: its least value lies on an edge
    across = xx + yy - 2 * xy
    along = (slope[0] - slope[1] - xy + yy) / across if across > 0 else 0.0
    first, second, third = (min(1.0, max(0.0, t)) for t in (slope[0] / xx, slope[1] / yy, along))
    edges = [(first, 0.0), (0.0, second), (third, 1 - third)]

    def loss(x: float, y: float) -> float:
        return x * x * xx + 2 * x * y * xy + y * y * yy - 2 * (x * slope[0] + y * slope[1])

    x, y = min(edges, key=lambda edge: loss(*edge))
    return 1 - x - y, x, y


def history_metrics(history: RunningStatistics) -> dict[str, float]:
    """Return what a training step logs about the history that it used, under `js/running_*`."""
    weights = rule_weights(history)
    return {
        "js/running_prompts": history.prompts,
        "js/running_reward_variance": _reward_variance(history),
        "js/running_value_variance": _value_variance(history),
        **{
            f"js/running_weight_{rule}": weight for rule, weight in zip(RULES, weights, strict=True)
        },
    }
