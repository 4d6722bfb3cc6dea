"""The shrinkage coefficient of `js_plus`, from group statistics that leave the prompt out."""

from __future__ import annotations

from torch import Tensor

from openrlhf_js.estimators.group_stats import GroupStatistics, ratio

# c in `corrected_coefficient`: about the largest that from 64 prompts on costs less than 5 % of
# what the best coefficient saves (docs/js_plus_mse.md).
GUARD = 1.2


def corrected_coefficient(stats: GroupStatistics) -> Tensor:
    """(n,) lambda of `js_plus`: the best coefficient by corrected estimates from other prompts.

        lambda_i = v2 / (v2 + T)         T = s2 (1 + 1/p) + v / p         v2 = sigma^2 / (m - 1)
        s2 = s_net + w sigma^2       w = c / (c + sqrt(p - 1))
        s_net = max(0, p/(p-1) s_{-i} - v_{-i})

    p is the number of other prompts, and T the mean squared distance of a new prompt's value to
    their mean. s_net is the dispersion of the values, without the noise of the means. Few prompts
    show too small an s_net when a rare kind of prompt is not among them, and then the coefficient
    is largest where it hurts most. So s2 leans on the variance of all other rewards, the largest
    that values can have, as if c sqrt(p - 1) more prompts had shown it. See docs/js_plus.md.
    """
    others, sigma2 = stats.other_prompts.clamp(min=1), stats.other_reward_variance
    dispersion = stats.between_variance * others / (others - 1).clamp(min=1)
    guard = GUARD / (GUARD + (others - 1).sqrt())
    s2 = (dispersion - stats.within_variance).clamp(min=0) + sigma2 * guard
    v2 = sigma2 / (stats.valid_responses - 1).clamp(min=1)
    return ratio(v2, v2 + s2 * (1 + 1 / others) + stats.within_variance / others)
