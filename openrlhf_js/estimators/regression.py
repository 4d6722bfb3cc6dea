"""The baseline of `js_memory`: rloo shrunk to what a regression on covariates predicts.

In small-area statistics this is the estimator of Fay and Herriot (1979). Derivation:
docs/memory.md.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from openrlhf_js.estimators.coefficients import GUARD
from openrlhf_js.estimators.group_stats import GroupStatistics, ratio, sum_of_others

# A regression counts as far as it explains more than so many times what chance would; of few
# degrees of freedom d it must explain SURE_OF_FEW / d^2 times more.
SURE, SURE_OF_FEW = 2.0, 100.0
PRIOR_DEGREES = 4.0  # as if so many more prompts had shown the pooled residual variance
GUARD_DEGREES = 8.0  # that show by half how much smaller than the means' variance it is
FADE = 0.9  # weight of a step's prompts one step later, as of further others
STALE = 9.0  # residual variances by which earlier steps fit today's others worse, to be left out
ROUNDING = 1e-9
JITTER = 1e-6  # of the number of prompts: keeps equal columns apart


class Fit(NamedTuple):
    """A regression of the prompts' means on covariates, for each prompt i without prompt i."""

    prediction: Tensor
    """(n,) x_i' beta_{-i}, in reward units."""
    shrinkage: Tensor
    """(n,) lambda_i."""
    error: Tensor
    """(n,) estimated squared error of the prediction, without the guard."""
    slopes: Tensor
    """(n, k) of the standardised covariates, in reward units."""


class Earlier(NamedTuple):
    """Sums over the prompts of earlier steps that had all k covariates, weighted by FADE^age.

    Covariates z and mean rewards y are taken as deviations from their step's means, so that a
    policy that improves moves nothing here but what a covariate is worth.
    """

    number: Tensor
    """() degrees of freedom: prompts, less one for each step."""
    gram: Tensor
    """(k, k) of z z'."""
    cross: Tensor
    """(k,) of z y."""
    square: Tensor
    """() of y^2."""
    noise: Tensor
    """() of v, the variance of y about the prompt's value."""
    variance: Tensor
    """() of sigma^2."""


def remember(earlier: Earlier | None, stats: GroupStatistics, covariates: Tensor) -> Earlier:
    """Return what earlier steps have shown with one more; call it when that has its advantages.

    Args:
        earlier: None in the first step; of another number of covariates it is forgotten.
        stats: of that step's n prompts.
        covariates: (n, k), as `fit` took them.
    """
    known = covariates.isfinite().all(1) & (stats.valid_responses >= 1)
    z, y = covariates[known].double(), stats.prompt_mean[known].double()
    z, y = z - z.mean(0), y - y.mean()
    paired = stats.valid_responses >= 2
    variance, pairs = stats.reward_variance[paired].double(), paired.sum().clamp(min=1)
    v, sigma2 = (variance / stats.valid_responses[paired]).sum() / pairs, variance.sum() / pairs
    degrees = (known.sum() - 1).clamp(min=0).double()
    found = Earlier(degrees, z.T @ z, z.T @ y, y @ y, degrees * v, degrees * sigma2)
    if earlier is None or earlier.gram.shape != found.gram.shape:
        return found
    return Earlier(*(FADE * old + new for old, new in zip(earlier, found, strict=True)))


class _Sums(NamedTuple):
    """Sums over the other prompts, for each of n prompts: their number, and of q columns x."""

    number: Tensor
    gram: Tensor
    """(n, q, q) of x x'."""
    cross: Tensor
    """(n, q) of x y."""
    square: Tensor
    """(n,) of y^2."""

    def plus(self, earlier: _Sums, share: Tensor) -> _Sums:
        """With as much (n,) of earlier steps, whose sums have leading dimension 1."""
        parts = zip(self, earlier, strict=True)
        return _Sums(*(a + share.view(-1, *[1] * (b.ndim - 1)) * b for a, b in parts))

    def residual(self, beta: Tensor) -> Tensor:
        """(n,) sum of (y - x' beta_{-i})^2."""
        fitted = (beta[:, None] @ self.gram @ beta[..., None])[:, 0, 0]
        return (self.square - 2 * (beta * self.cross).sum(1) + fitted).clamp(min=0)

    def degrees(self, inverse: Tensor) -> Tensor:
        """(n,) degrees of freedom that the residuals keep."""
        kept = self.number - (inverse * self.gram).sum((1, 2))
        return kept.where(kept > ROUNDING, 0.0)


def fit(stats: GroupStatistics, covariates: Tensor | None, earlier: Earlier | None = None) -> Fit:
    """Return what the other prompts predict for every prompt, and how far to shrink to it.

        beta_{-i} = (G + alpha D)^-1 c     G, c: sums of x_k x_k' and x_k mu_k over k != i
        lambda_i  = v2 / (v2 + T_i)        T_i = s2_i (1 + h_i) + v h_i      v2 = sigma^2 / (m - 1)
        h_i = x_i' (G + alpha D)^-1 x_i    s2_i = max(0, RSS / dof - v) + w sigma^2

    x_i is 1 and, for each covariate, its standardised value and whether it is missing. D leaves the
    intercept alone; alpha is the residual variance over the variance that the slopes seem to have,
    and infinite where the covariates explain no more than chance. RSS is of the prompts that lack a
    covariate, if prompt i does, or of those that do not. Without covariates all of it becomes
    `coefficients.corrected_coefficient`, whose guard w is here multiplied by the share of the
    means' variance that stays unexplained. The prompts of earlier steps are further others in all
    sums but those of the intercept, unless today's others contradict them (STALE).

    Args:
        stats: of n prompts.
        covariates: (n, k), known before the batch was sampled; NaN where a prompt has none.
        earlier: what earlier steps have shown of the same covariates; of another number of them,
            nothing.
    """
    weight = (stats.valid_responses >= 1).to(stats.prompt_mean.dtype)
    others, v, sigma2 = stats.other_prompts, stats.within_variance, stats.other_reward_variance
    x, lacking, spread = _design(covariates, weight)
    origin = stats.prompt_mean.gather(0, weight.argmax(0, keepdim=True)).detach()
    y = (stats.prompt_mean - origin) * weight
    today, lacking_others = _sums(x, y, weight), _sums(x, y, lacking)
    rest_of_them = _Sums(*(a - b for a, b in zip(today, lacking_others, strict=True)))
    all_others, alone = today, stats.between_variance * others
    ridge = JITTER * others.clamp(min=1)
    if earlier is not None and len(spread) == len(earlier.cross) > 0:
        older = _older(earlier, spread, x.shape[1])
        inverse, beta = _solve(today, ridge)
        least = today.residual(beta)
        noise = least / today.degrees(inverse).clamp(min=1)
        worse = today.residual(_solve(today.plus(older, weight), ridge)[1]) - least
        share = (worse <= STALE * noise).to(y.dtype) * (others >= 1)
        all_others, rest_of_them = today.plus(older, share), rest_of_them.plus(older, share)
        alone = alone + share * earlier.square
        more, counted = share * earlier.number, others.clamp(min=1)
        v = (counted * v + share * earlier.noise) / (counted + more)
        sigma2 = (counted * sigma2 + share * earlier.variance) / (counted + more)
    number = all_others.number.clamp(min=1)

    inverse, beta = _solve(all_others, ridge)  # the covariates as they are
    rest = all_others.residual(beta)
    degrees = all_others.degrees(inverse)
    noise = rest / degrees.clamp(min=1)
    sure = SURE + SURE_OF_FEW / degrees.clamp(min=1).square()
    signal = (alone - rest - sure * (number - 1 - degrees) * noise).clamp(min=0)
    scale = torch.diagonal(all_others.gram, dim1=1, dim2=2)[:, 1:].sum(1)
    found = (signal > 0) & (degrees >= 1)
    alpha = torch.where(found, ratio(noise * scale, signal), torch.inf)
    alpha = alpha.maximum(ridge).minimum(ridge / JITTER**3)

    inverse, beta = _solve(all_others, alpha)
    degrees = all_others.degrees(inverse)
    pooled = all_others.residual(beta) / degrees.clamp(min=1)
    own_variance = torch.where(
        lacking > 0,
        _variance(lacking_others, inverse, beta, pooled),
        _variance(rest_of_them, inverse, beta, pooled),
    )
    unexplained = torch.where(alone > 0, ratio(pooled * (number - 1).clamp(min=1), alone), 1.0)
    trust = (1 - lacking) * degrees / (degrees + GUARD_DEGREES)
    degrees = torch.where(lacking > 0, degrees - number + others, degrees)  # today's alone
    guard = GUARD / (GUARD + degrees.clamp(min=1e-30).sqrt())  # has a derivative at 0
    guard = guard * (1 - trust * (1 - unexplained.clamp(max=1)))
    leverage = (x[:, None] @ inverse @ x[..., None])[:, 0, 0]
    net = (own_variance - v).clamp(min=0)
    distance = (net + sigma2 * guard) * (1 + leverage) + v * leverage
    v2 = sigma2 / (stats.valid_responses - 1).clamp(min=1)
    k = 0 if covariates is None else covariates.shape[1]
    return Fit(
        prediction=origin + (x * beta).sum(1),
        shrinkage=ratio(v2, v2 + distance),
        error=net * (1 + leverage) + v * leverage,
        slopes=beta[:, 1 : k + 1],
    )


def _design(covariates: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (n, q) columns with mean 0 after the first, (n,) 1 where a covariate is missing, and
    (k,) the covariates' standard deviations.

    The first two are 0 for a prompt without a response. Covariates are older than the batch: that
    they are standardised over all prompts takes nothing of a prompt's own rewards.
    """
    if covariates is None:
        return weight[:, None], torch.zeros_like(weight), weight[:0]
    known = covariates.isfinite() & (weight > 0)[:, None]
    missing = weight[:, None] - known.to(weight.dtype)
    values = covariates.to(weight.dtype).where(known, 0.0)
    columns, spreads = [weight[:, None]], []
    for column, there in ((values, known.to(weight.dtype)), (missing, weight[:, None])):
        count = there.sum(0).clamp(min=1)
        centred = (column - column.sum(0) / count) * there
        spread = (centred.square().sum(0) / count).sqrt()
        columns.append(ratio(centred, spread.expand_as(centred)))
        spreads.append(spread)
    return torch.cat(columns, 1), missing.amax(1), spreads[0]


def _older(earlier: Earlier, spread: Tensor, q: int) -> _Sums:
    """The sums of earlier steps in units of today's design, with a leading dimension of 1."""
    k = len(spread)
    pad = (1, q - 1 - k)  # the intercept, and whether a covariate is missing, are today's
    cross, gram = ratio(earlier.cross, spread), ratio(earlier.gram, spread[:, None] * spread)
    return _Sums(
        earlier.number[None],
        torch.nn.functional.pad(gram, pad * 2)[None],
        torch.nn.functional.pad(cross, pad)[None],
        earlier.square[None],
    )


def _sums(x: Tensor, y: Tensor, part: Tensor) -> _Sums:
    x, y = x * part[:, None], y * part
    products = part, x[:, :, None] * x[:, None], x * y[:, None], y.square()
    return _Sums(*(sum_of_others(each, 0) for each in products))


def _solve(of: _Sums, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Return (n, q, q) (G + alpha D)^-1 and (n, q) beta_{-i}."""
    alone = (1 - of.gram[:, 0, 0]).clamp(min=0)  # 0, unless there is nobody else
    slopes = alpha[:, None].expand(-1, of.cross.shape[1] - 1)
    added = torch.cat([alone[:, None], slopes], 1)
    inverse = torch.linalg.inv(of.gram + torch.diag_embed(added))
    return inverse, (inverse @ of.cross[..., None])[..., 0]


def _variance(of: _Sums, inverse: Tensor, beta: Tensor, pooled: Tensor) -> Tensor:
    """(n,) residual variance of some of the others' means, leaning on that of all."""
    residual, degrees = of.residual(beta), of.degrees(inverse)
    return (residual + PRIOR_DEGREES * pooled) / (degrees + PRIOR_DEGREES)
