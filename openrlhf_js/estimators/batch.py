"""The input of a baseline: one rollout batch, checked once, with its group statistics."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from openrlhf_js.estimators.group_stats import (
    GroupStatistics,
    as_tensor,
    check_rewards,
    checked_statistics,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Checked rewards of n prompt groups with m responses each, and what goes with them."""

    rewards: Tensor
    """(n, m) float64, 0 where masked."""
    mask: Tensor
    """(n, m) bool, True where the response is valid."""
    greedy_rewards: Tensor | None = None
    """(n,) reward of each prompt's greedy response."""
    lengths: Tensor | None = None
    """(n, m) tokens of each response, float64, 0 where masked."""
    squared_score_norms: Tensor | None = None
    """(n, m) squared length of each response's score gradient up to a common factor, float64, 0
    where masked."""
    shrinkage: float | None = None
    """The coefficient that the user gives, in [0, 1]."""
    keys: Tensor | None = None
    """(n,) keys that identify the prompts (`memory.key_of`)."""
    step: int = 0
    """The number of the batch in its run."""
    past: Any = None
    """What the estimator's memory recalls for this batch (`Memory.recall`); its type depends on the
    estimator, which alone reads it."""

    @cached_property
    def statistics(self) -> GroupStatistics:
        """Computed on first use, then kept."""
        return checked_statistics(self.rewards, self.mask)

    @cached_property
    def weights(self) -> Tensor:
        """(n, m) how much each squared advantage counts in the variance of the gradient: the
        squared score norms, or 1 for every valid response without them."""
        if self.squared_score_norms is None:
            return self.mask.to(self.rewards.dtype)
        return self.squared_score_norms

    @property
    def present(self) -> Tensor:
        """(n,) bool: prompts with a valid response; all prompts, if none has one."""
        present = self.mask.any(1)
        return present | ~present.any()


def make_batch(
    rewards: Any,
    *,
    mask: Any = None,
    lengths: Any = None,
    squared_score_norms: Any = None,
    greedy_rewards: Any = None,
    shrinkage: float | None = None,
    keys: Any = None,
    step: int = 0,
    past: Any = None,
) -> Batch:
    """Return a checked batch, in float64, of n prompt groups with m responses each.

    The zero of a reward model is arbitrary, and far from it float32 leaves a baseline few digits:
    around a reward of 1e6, advantages of size 1 would be off by 0.1.

    Args:
        rewards: (n, m), a tensor, an array or lists, of floats, integers or booleans.
        mask: (n, m) bool, True where the response is valid; masked rewards may be anything.
        lengths: (n, m) tokens of each response; read by `opo`.
        squared_score_norms: (n, m) squared length of each response's score gradient, up to a factor
            that is the same for a whole run (`squared_score_norms`); read by `js_grad`.
        greedy_rewards: (n,) reward of each prompt's greedy response; read by `remax`.
        shrinkage: coefficient in [0, 1]; read by `js_fixed`.
        keys: (n,) keys that identify the prompts (`key_of`); read by estimators with a memory.
        step: the number of the batch in its run.
        past: what a memory recalls for the batch; read by estimators with a memory.

    Raises:
        ValueError: an argument does not fit the rewards; says what came and what is allowed.
    """
    rewards, mask = check_rewards(rewards, mask)
    rewards = rewards.double()
    if keys is not None:
        keys = _one_a_prompt("keys", keys, rewards)
    if lengths is not None:
        lengths = _one_a_response("lengths", lengths, mask)
    if squared_score_norms is not None:
        squared_score_norms = _one_a_response("squared_score_norms", squared_score_norms, mask)
    if greedy_rewards is not None:
        greedy_rewards = _one_a_prompt("greedy_rewards", greedy_rewards, rewards)
        greedy_rewards = greedy_rewards.to(rewards).where(mask.any(1), 0.0)
        if not greedy_rewards.isfinite().all():
            raise ValueError(
                "a greedy reward is not finite: repair the reward function, or mask the prompt's "
                "responses."
            )
    return Batch(
        rewards=rewards,
        mask=mask,
        greedy_rewards=greedy_rewards,
        lengths=lengths,
        squared_score_norms=squared_score_norms,
        shrinkage=shrinkage,
        keys=keys,
        step=step,
        past=past,
    )


def _one_a_prompt(name: str, values: Any, rewards: Tensor) -> Tensor:
    """(n,) values."""
    numbers = as_tensor(values, name)
    if numbers.shape != rewards.shape[:1]:
        came = tuple(numbers.shape)
        raise ValueError(f"{name} must be a tensor ({len(rewards)},), one a prompt; got {came}.")
    return numbers


def _one_a_response(name: str, values: Any, mask: Tensor) -> Tensor:
    """(n, m) float64 on the mask's device, 0 where masked."""
    numbers = as_tensor(values, name).to(mask.device).double()
    if numbers.shape != mask.shape:
        raise ValueError(
            f"{name} must have the rewards' shape {tuple(mask.shape)}; got {tuple(numbers.shape)}."
        )
    numbers = numbers.where(mask, 0.0)
    if not (numbers.isfinite() & (numbers >= 0)).all():
        raise ValueError(
            f"{name} must be finite and not negative; mask the responses that have none."
        )
    return numbers
