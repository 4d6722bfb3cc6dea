"""Batches of a pool's prompts, and means over them with intervals over prompts.

Axes: N prompts and M responses of the pool; B batches of n prompts and m responses; e estimators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from baseline_research.lab.results import REFERENCE, Ints
from baseline_research.lab.settings import LIMIT, BatchSettings
from openrlhf_js.estimators import find_estimator
from paired_eval.stats import Estimate
from paired_eval.stats.estimate import Floats, t_estimate


@dataclass(frozen=True)
class BatchPlan:
    """The batches to compare."""

    batches: int = 2000
    """B, for each m."""
    prompts: int = 64
    """n, of a batch."""
    responses: tuple[int, ...] = (2, 4, 8)
    """Every m to be compared."""
    steps: int = 1
    """Batches in a stream, in which an estimator remembers."""
    seed: int = 0

    @classmethod
    def of(cls, settings: BatchSettings, rewards: Floats, steps: int = 1) -> BatchPlan:
        """The plan for a pool with rewards (N, M). Raises ValueError if the pool is too small."""
        prompts, responses = rewards.shape
        plan = cls(
            batches=settings.batches,
            prompts=settings.batch_prompts or max(2, prompts // 2),
            responses=tuple(sorted(set(settings.m))),
            steps=steps,
            seed=settings.seed,
        )
        plan.check(prompts, responses)
        return plan

    def check(self, prompts: int, responses: int) -> None:
        """Raises ValueError unless a pool of N prompts with M responses each is large enough."""
        if 2 * self.prompts > prompts:
            raise ValueError(
                f"batches of {self.prompts} need {2 * self.prompts} prompts to be drawn from, "
                f"since intervals are over prompts; there are {prompts}"
            )
        if min(self.responses) < 2:
            raise ValueError("m = 1: rloo averages a prompt's other responses; give 2 or more")
        least = max(8, 2 * max(self.responses))
        if responses < least:
            raise ValueError(
                f"m = {max(self.responses)} needs {least} responses to a prompt: half of them are "
                f"for the truth; there are {responses}"
            )

    def caption(self, prompts: int) -> str:
        """Says what was measured on a pool of N prompts, and what the intervals are over."""
        return (
            f"{self.batches} batches of {self.prompts} of {prompts} prompts; "
            "95 % intervals over prompts; reductions against rloo: below 0, farther off"
        )


class BatchMeans(NamedTuple):
    """Means over batches, with intervals over the prompts that they were drawn from."""

    chosen: Ints
    """(B, n) the prompts of each batch, all different."""
    prompts: int
    """N, of the pool."""

    def some(self, batches: NDArray[np.bool_]) -> BatchMeans:
        """The means over the batches where the mask (B,) is True."""
        return self._replace(chosen=self.chosen[batches])

    def mean(self, values: Floats) -> Estimate:
        """The mean of a quantity (B,) of the batches."""
        return self.ratio(values, np.ones_like(values))

    def reduction(self, values: Floats, reference: Floats) -> Estimate:
        """By how many percent the mean of values (B,) is below the reference's."""
        ratio = self.ratio(values, reference)
        return Estimate(100 * (1 - ratio.value), 100 * (1 - ratio.high), 100 * (1 - ratio.low))

    def ratio(self, values: Floats, reference: Floats) -> Estimate:
        """The ratio of the means of two quantities (B,); NaN unless the second is above 0."""
        if not reference.mean() > 0:
            return Estimate(np.nan, np.nan, np.nan)
        ratio = float(values.mean() / reference.mean())
        residuals = (values - ratio * reference) / reference.mean()
        error = error_over_prompts(residuals, self.chosen, self.prompts)
        return t_estimate(ratio, error, self.prompts - 1)


def error_over_prompts(values: Floats, chosen: Ints, prompts: int) -> float:
    """The standard error of a mean over batches, with respect to both prompts and draws.

    To first order prompt i moves the mean by n/N h_i, where h_i is the mean of the batches with
    this prompt minus the mean of all (Hoeffding; with n of N prompts drawn without replacement,
    times (N - 1)/(N - n)). Drawing only finitely many batches adds to the spread of the h_i, and
    that part is subtracted: with c_i of B batches containing the prompt, it is the variance of one
    batch over c_i, times 1 - c_i/B since these are among the B. One standard error of the
    difference is added, so that few batches give a wider interval.

    Args:
        values: (B,) the quantity in each batch.
        chosen: (B, n) the prompts of each batch, all different.
        prompts: N.
    """
    n = chosen.shape[1]

    def sums(of_batches: Floats) -> Floats:
        return np.bincount(chosen.ravel(), np.repeat(of_batches, n), prompts).astype(np.float64)

    deviations = values - values.mean()
    counts = np.maximum(sums(np.ones_like(values)), 2)
    effects = sums(deviations) / counts
    variances = (sums(deviations**2) / counts - effects**2) / (counts - 1)
    noise = variances * (1 - counts / len(values))
    spread = max(0.0, float((effects**2 - noise).mean()))
    spread += float(noise.mean()) * (2 / prompts) ** 0.5
    over_prompts = n**2 / prompts * spread * ((prompts - 1) / (prompts - n)) ** 2
    return float(np.sqrt(over_prompts + deviations.var() / len(values)))


def parabolas(at_none: Floats, at_half: Floats, at_one: Floats) -> Floats:
    """(..., 3) coefficients of each batch's parabola a + b x + c x^2, from values at 0, 1/2, 1.

    A baseline (1 - lambda) rloo + lambda bloo is linear in lambda, so its squared error and the
    squared distance of its gradient are parabolas.
    """
    c = 2 * (at_none - 2 * at_half + at_one)
    return np.stack([at_none, at_one - at_none - c, c], -1)


def at(parabola: Floats, shrinkage: Floats | float) -> Floats:
    """Evaluates parabolas (..., 3) at one lambda, or at a lambda for each."""
    return parabola[..., 0] + parabola[..., 1] * shrinkage + parabola[..., 2] * shrinkage**2


def best(parabola: Floats) -> float:
    """The lambda in [0, 1] that minimises the mean of the batches' parabolas (B, 3)."""
    _, b, c = parabola.sum(0)
    return float(np.clip(-b / (2 * c), 0, 1)) if c > 0 else float(b < 0)


def measured_names(
    names: Sequence[str],
    *,
    greedy: bool = True,
    lengths: bool = True,
    unit: bool = True,
) -> tuple[str, ...]:
    """The reference, then the given names.

    Raises ValueError for an unknown name, and for an estimator that needs what is not available.
    `greedy` and `lengths` say whether these are known, `unit` whether rewards lie in [0, 1].
    Prompts never repeat.
    """
    for name in names:
        if name == LIMIT:
            continue
        estimator = find_estimator(name)
        lacking = {
            "the reward of a greedy response": estimator.needs_greedy and not greedy,
            "the lengths of the responses": estimator.needs_lengths and not lengths,
            "rewards between 0 and 1": estimator.needs_unit_rewards and not unit,
            "an earlier visit to each prompt": estimator.needs_keys,
        }
        for need, lacks in lacking.items():
            if lacks:
                raise ValueError(f"{name} needs {need}")
    return tuple(dict.fromkeys([REFERENCE, *names]))
