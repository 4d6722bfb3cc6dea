"""ESTIMATORS: name -> baseline, scaling and preconditions; and the two functions that use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from openrlhf_js.estimators import baselines as b
from openrlhf_js.estimators.baselines import Batch
from openrlhf_js.estimators.coefficients import corrected_coefficient
from openrlhf_js.estimators.group_stats import check_rewards, checked_statistics
from openrlhf_js.estimators.regression import Earlier, fit

# GRPO's delta: keeps an all-equal group at 0 and leaves every other scale alone.
STD_FLOOR = 1e-8


@dataclass(frozen=True)
class Estimator:
    """An advantage estimator: reward minus baseline, over a scale if it has one."""

    summary: str
    function: Callable[[Batch], Tensor]
    """Baseline (n, m) of a batch."""
    independent: bool
    """Whether $b_i^j$ does not contain $r_i^j$, so that the gradient is unbiased."""
    least_prompts: int = 1
    least_responses: int = 1
    least_rewards: int = 1
    """Least n * m."""
    needs_greedy: bool = False
    needs_shrinkage: bool = False
    takes_covariates: bool = False
    scaling: Callable[[Batch], Tensor] | None = None
    """Standard deviation that the advantage is divided by."""
    coefficient: Callable[[Batch], Tensor] | None = None
    """Shrinkage (n,), for those that shrink prompt by prompt."""

    def lacks(self, prompts: int, responses: int) -> str | None:
        """What a batch of this size has too little of; None if it is large enough."""
        for least, came, what in (
            (self.least_prompts, prompts, "prompts in a batch"),
            (self.least_responses, responses, "responses per prompt"),
            (self.least_rewards, prompts * responses, "rewards in a batch"),
        ):
            if came < least:
                return f"needs at least {least} {what}, got {came}"
        return None


def _shrinking(rule: Callable[[Batch], tuple[Tensor, Tensor]], **fields: Any) -> Estimator:
    """An estimator that shrinks rloo by a coefficient (n,) to a target (n,)."""

    def baseline(batch: Batch) -> Tensor:
        coefficient, target = rule(batch)
        return b.shrink(batch, b.live_coefficient(batch.stats, coefficient), target)

    return Estimator(
        function=baseline,
        independent=True,
        coefficient=lambda batch: b.live_coefficient(batch.stats, rule(batch)[0]),
        **fields,
    )


def _to_others(coefficient: Callable[[Batch], Tensor]) -> Callable[[Batch], tuple[Tensor, Tensor]]:
    """The rule that shrinks to the other prompts' mean."""
    return lambda batch: (coefficient(batch), batch.stats.loo_batch_mean)


def _to_prediction(batch: Batch) -> tuple[Tensor, Tensor]:
    found = fit(batch.stats, batch.covariates, batch.earlier)
    return found.shrinkage, found.prediction


ESTIMATORS: dict[str, Estimator] = {
    "reinforce": Estimator("no baseline", b.zero, independent=True),
    "rloo": Estimator(
        "mean of the prompt's other rewards", b.loo_prompt_mean, independent=True, least_responses=2
    ),
    "bloo": Estimator(
        "mean of the other prompts' means", b.loo_batch_mean, independent=True, least_prompts=2
    ),
    "grpo": Estimator(
        "prompt mean, over the prompt's standard deviation",
        b.prompt_mean,
        independent=False,
        least_responses=2,
        scaling=b.prompt_std,
    ),
    "dr_grpo": Estimator("prompt mean", b.prompt_mean, independent=False, least_responses=2),
    "reinforce++": Estimator(
        "batch mean, over the batch's standard deviation",
        b.batch_mean,
        independent=False,
        least_rewards=2,
        scaling=b.batch_std,
    ),
    "remax": Estimator(
        "reward of the greedy response", b.greedy_reward, independent=True, needs_greedy=True
    ),
    "js1": Estimator(
        "prompt mean shrunk to the batch mean, nothing left out (biased)",
        b.naive_shrinkage,
        independent=False,
        least_prompts=2,
        least_responses=2,
    ),
    "js": _shrinking(
        _to_others(lambda batch: batch.stats.shrinkage),
        summary="rloo shrunk to bloo by the paper's coefficient",
        least_rewards=2,
    ),
    "js_fixed": _shrinking(
        _to_others(lambda batch: torch.full_like(batch.stats.shrinkage, batch.shrinkage)),
        summary="rloo shrunk to bloo by a given coefficient",
        least_prompts=2,
        least_responses=2,
        needs_shrinkage=True,
    ),
    "js_plus": _shrinking(
        _to_others(lambda batch: corrected_coefficient(batch.stats)),
        summary="rloo shrunk to bloo by a coefficient corrected for noise and few prompts",
        least_rewards=2,
    ),
    "js_memory": _shrinking(
        _to_prediction,
        summary="rloo shrunk to what each prompt's past, or other covariates, predict",
        least_rewards=2,
        takes_covariates=True,
    ),
}


def baseline(
    name: str,
    rewards: Tensor,
    *,
    mask: Tensor | None = None,
    greedy_rewards: Tensor | None = None,
    shrinkage: float | None = None,
    covariates: Tensor | None = None,
    earlier: Earlier | None = None,
) -> Tensor:
    """Return the baseline $b_i^j$ of every response, (n, m), in reward units; 0 where masked.

    A valid response without another valid one in its group gets the batch mean from `js`, `js_plus`
    and `js_fixed`, and what the covariates predict from `js_memory`. Where no baseline can exist,
    it is the reward itself, and the advantage 0.

    Args:
        name: a key of ESTIMATORS.
        rewards: (n, m), any float dtype, on a device that has float64; the result is at least
            float32.
        mask: (n, m) bool, True where the response is valid; masked rewards may be anything.
        greedy_rewards: (n,) reward of each prompt's greedy response; read by `remax` only.
        shrinkage: coefficient in [0, 1]; read by `js_fixed` only.
        covariates: (n, k) what was known of each prompt before its responses, such as its past
            (`Memory`); NaN where nothing was. Read by `js_memory` only, which without any is
            `js_plus`.
        earlier: what such covariates were worth in earlier steps (`Memory.earlier`).

    Raises:
        ValueError: unknown name, input that does not fit, or too few prompts or responses.
    """
    estimator = find_estimator(name)
    batch = make_batch(name, rewards, mask, greedy_rewards, shrinkage, covariates, earlier)
    return _handed_out(estimator.function(batch), batch, rewards)


def advantage(
    name: str,
    rewards: Tensor,
    *,
    mask: Tensor | None = None,
    greedy_rewards: Tensor | None = None,
    shrinkage: float | None = None,
    covariates: Tensor | None = None,
    earlier: Earlier | None = None,
) -> Tensor:
    """Return the advantage $A_i^j = r_i^j - b_i^j$ of every response, (n, m); 0 where masked.

    `grpo` and `reinforce++` divide it by a standard deviation. Arguments and errors: `baseline`.

    Examples:
        >>> advantage("js", torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))  # 3 prompts
        tensor([[ 1.0000, -1.0000],
                [ 0.3333,  0.3333],
                [-0.3333, -0.3333]])
    """
    estimator = find_estimator(name)
    batch = make_batch(name, rewards, mask, greedy_rewards, shrinkage, covariates, earlier)
    result = batch.rewards - estimator.function(batch)
    if estimator.scaling is not None:
        result = result / (estimator.scaling(batch) + STD_FLOOR)
    return _handed_out(result, batch, rewards)


def _handed_out(result: Tensor, batch: Batch, rewards: Tensor) -> Tensor:
    """The result, 0 where masked, in the dtype of the rewards but at least float32."""
    dtype = torch.promote_types(rewards.dtype, torch.float32)
    return result.where(batch.mask, 0.0).to(dtype)


def find_estimator(name: str) -> Estimator:
    """Return the estimator of that name, or raise a ValueError that lists them all."""
    if name not in ESTIMATORS:
        raise ValueError(f"unknown estimator {name!r}; choose one of {', '.join(ESTIMATORS)}.")
    return ESTIMATORS[name]


def make_batch(
    name: str,
    rewards: Tensor,
    mask: Tensor | None,
    greedy_rewards: Tensor | None,
    shrinkage: float | None,
    covariates: Tensor | None = None,
    earlier: Earlier | None = None,
) -> Batch:
    """Check the input of one estimator and return it with its group statistics, in float64.

    Reward models place their zero anywhere, and far from it float32 leaves a baseline few digits:
    around a reward of 1e6, advantages of size 1 would be off by 0.1.
    """
    estimator = find_estimator(name)
    rewards, mask = check_rewards(rewards, mask)
    rewards = rewards.double()
    if lacking := estimator.lacks(*rewards.shape):
        raise ValueError(f"{name} {lacking}.")
    greedy, weight = torch.zeros_like(rewards[:, 0]), 0.0
    if estimator.needs_greedy:
        greedy = _check_greedy(name, greedy_rewards, rewards, mask)
    if estimator.needs_shrinkage:
        if shrinkage is None or not 0 <= shrinkage <= 1:
            raise ValueError(
                f"{name} needs shrinkage between 0 (rloo) and 1 (bloo), got {shrinkage}."
            )
        weight = shrinkage
    known = _check_covariates(covariates, rewards) if estimator.takes_covariates else None
    if earlier is not None:
        earlier = Earlier(*(part.to(rewards) for part in earlier))
    stats = checked_statistics(rewards, mask)
    return Batch(rewards, mask, stats, greedy, weight, known, earlier)


def _check_covariates(covariates: Tensor | None, rewards: Tensor) -> Tensor | None:
    if covariates is None or covariates.numel() == 0:
        return None
    if covariates.ndim != 2 or len(covariates) != len(rewards):
        came = tuple(covariates.shape)
        raise ValueError(f"covariates must be a tensor ({len(rewards)}, k); got {came}.")
    return covariates.to(rewards)


def _check_greedy(name: str, greedy: Tensor | None, rewards: Tensor, mask: Tensor) -> Tensor:
    """Return the greedy rewards in the rewards' dtype, 0 for prompts without a valid response."""
    if greedy is None or greedy.shape != rewards.shape[:1]:
        came = None if greedy is None else tuple(greedy.shape)
        raise ValueError(f"{name} needs greedy_rewards, a tensor ({len(rewards)},); got {came}.")
    greedy = greedy.to(rewards).where(mask.any(1), 0.0)
    if not torch.isfinite(greedy).all():
        prompt = int((~torch.isfinite(greedy)).nonzero()[0])
        raise ValueError(
            f"greedy reward of prompt {prompt} is {greedy[prompt].item()}; it must be finite. "
            "Repair the reward function, or mask the prompt's responses."
        )
    return greedy
