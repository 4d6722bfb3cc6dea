"""js_memory: rloo shrunk to what the prompt's own past predicts, by a regression on that past.

In small-area statistics this is the estimator of Fay and Herriot (1979). Derivation and ablations:
docs/memory.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openrlhf_js.estimators.baselines.shrinkage import (
    corrected_shrinkage,
    guard,
    limited_coefficient,
)
from openrlhf_js.estimators.batch import Batch, Evidence
from openrlhf_js.estimators.group_stats import ratio, sum_of_others
from openrlhf_js.estimators.record import Estimator, Look, Shrinkage

if TYPE_CHECKING:
    from torch import Tensor

    from openrlhf_js.estimators.memory import PromptMemory

CHANCE = 2.0  # a slope counts as far as it explains more than so many times what chance would
CONTRADICTION = 9.0  # squared standard errors between today's slope and the earlier steps'
ROUNDING = 1e-9


def memory_shrinkage(batch: Batch) -> Shrinkage:
    """Return what the past predicts for every prompt, and how far to shrink to it.

    With x the past of a prompt and y the mean of its rewards today, of the other prompts:

        t_i = y_{-i} + beta_i (x_i - x_{-i})
        T_i = (A + guard)(1 + h_i) + v h_i
        h_i = 1/p + kept (x_i - x_{-i})^2 / S_xx    beta_i = slope * kept (`_slope`)

    A is the residual variance without v, the noise of the means, and the guard is js_plus's, times
    the share of the variance that the past leaves unexplained. The coefficient is js_plus's, of
    this target and T. A prompt without a past is shrunk as by js_plus. A reward of prompt i enters
    t_i and T_i nowhere, and no baseline of its own, so that the gradient stays unbiased.
    """
    without_past = corrected_shrinkage(batch)
    if batch.past is None:
        return without_past
    known = batch.past.means.isfinite() & (batch.statistics.valid_responses >= 1)
    counts = known.to(batch.rewards.dtype)
    # x and y are distances to a point among them, which far from 0 have more digits; 0 if unknown.
    x = batch.past.means.where(known, 0.0)
    x = (x - x.sum() / counts.sum().clamp(min=1)) * counts
    origin = batch.statistics.prompt_mean[counts.argmax()].detach()
    y = (batch.statistics.prompt_mean - origin) * counts

    others = sum_of_others(counts, 0)
    divisor = others.clamp(min=1)
    x_distance = x - sum_of_others(x, 0) / divisor
    y_others = sum_of_others(y, 0) / divisor
    evidence = _evidence_of_today(batch, x, y, counts)
    if batch.past.earlier is not None:
        evidence = _with_earlier(evidence, batch.past.earlier)
    beta, kept = _slope(evidence)
    leverage = 1 / divisor + ratio(kept * x_distance.square(), evidence.xx)
    unexplained, hidden = _variances(evidence, beta, kept)
    error = unexplained * (1 + leverage) + evidence.v * leverage
    target = origin + y_others + beta * x_distance
    coefficient = limited_coefficient(
        batch.statistics,
        sigma2=evidence.sigma2,
        target=target,
        target_error=error + hidden * (1 + leverage),
        prompts=evidence.prompts,
    )
    usable = known & (others >= 1)
    return Shrinkage(
        coefficient=coefficient.where(usable[:, None], without_past.coefficient),
        target=target.where(usable, without_past.target),
        target_error=error,
    )


def _evidence_of_today(batch: Batch, x: Tensor, y: Tensor, counts: Tensor) -> Evidence:
    """(n,) each: sums over the other prompts with a past, `counts` 1; x and y are 0 elsewhere."""
    others = sum_of_others(counts, 0)
    divisor = others.clamp(min=1)
    x_sum = sum_of_others(x, 0)
    y_sum = sum_of_others(y, 0)
    xx = sum_of_others(x * x, 0) - x_sum.square() / divisor
    differs = xx > ROUNDING * (x * x).sum()
    xy = sum_of_others(x * y, 0) - x_sum * y_sum / divisor
    yy = sum_of_others(y * y, 0) - y_sum.square() / divisor
    return Evidence(
        degrees=(others - 1).clamp(min=0),
        xx=xx.where(differs, 0.0),
        xy=xy.where(differs, 0.0),
        yy=yy.clamp(min=0),
        noise=others * batch.statistics.within_variance,
        variance=others * batch.statistics.other_reward_variance,
    )


def _with_earlier(today: Evidence, earlier: Evidence) -> Evidence:
    """Adds earlier steps, unless their slope is CONTRADICTION squared standard errors from today's:
    then the policy has jumped, and what a past was worth is no longer known."""
    slope_today = ratio(today.xy, today.xx)
    slope_of_all = ratio(today.xy + earlier.xy, today.xx + earlier.xx)
    residual = (today.yy - slope_today * today.xy).clamp(min=0)
    degrees = today.degrees - 1
    residual_variance = residual / degrees.clamp(min=1)
    contradiction = today.xx * (slope_of_all - slope_today).square()
    agree = (contradiction <= CONTRADICTION * residual_variance) | (degrees < 1)
    weight = agree.to(contradiction.dtype)
    return Evidence._make(new + weight * old for new, old in zip(today, earlier, strict=True))


def _slope(evidence: Evidence) -> tuple[Tensor, Tensor]:
    """(n,) each: beta, and how much of the slope S_xy / S_xx, at most 1, it keeps.

    A past that misleads counts nothing: kept = (1 - CHANCE / F)_+, the positive-part James-Stein
    factor. F is what the slope explains over the residual variance, about 1 by chance. Since a past
    is a noisy value, its slope lies between 0 and 1.
    """
    slope = ratio(evidence.xy, evidence.xx)
    explained = (slope * evidence.xy).where(slope > 0, 0.0)
    residual = (evidence.yy - slope * evidence.xy).clamp(min=0)
    residual_variance = residual / (evidence.degrees - 1).clamp(min=1)
    kept = (1 - ratio(CHANCE * residual_variance, explained)).clamp(min=0)
    kept = kept.where((evidence.degrees >= 2) & (explained > 0), 0.0)
    return slope.clamp(min=0, max=1) * kept, kept


def _variances(evidence: Evidence, beta: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) each: A, the variance of values that the past does not explain, and the guard."""
    residual = evidence.yy - 2 * beta * evidence.xy + beta.square() * evidence.xx
    residual_variance = residual.clamp(min=0) / (evidence.degrees - kept).clamp(min=1)
    unexplained = (residual_variance - evidence.v).clamp(min=0)
    total_variance = evidence.yy / evidence.degrees.clamp(min=1)
    share = ratio(residual_variance, total_variance).clamp(max=1)
    share = share.where(total_variance > 0, 1.0)
    return unexplained, share * guard(evidence.sigma2, evidence.v, evidence.degrees)


def make_memory() -> PromptMemory:
    """What it remembers before the first batch."""
    from openrlhf_js.estimators.memory import PromptMemory

    return PromptMemory()


JS_MEMORY = Estimator(
    name="js_memory",
    summary="rloo shrunk to what the prompt's own past predicts, where prompts come again",
    equation=r"b_i^j = (1-\lambda_i)\,\hat\mu_i^{-j} + \lambda_i\,(\bar y_{-i} + "
    r"\beta_i (x_i - \bar x_{-i}))",
    source="docs/memory.md; Fay and Herriot (1979)",
    unbiased=True,
    look=Look("#c2185b", "-", "*"),
    shrink=memory_shrinkage,
    least_rewards=2,
    remembers_prompts=True,
    needs_keys=True,
    memory=make_memory,
)
