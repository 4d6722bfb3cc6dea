"""What a baseline may look at: one rollout batch, checked once, with its group statistics."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from openrlhf_js.estimators.group_stats import (
    GroupStatistics,
    check_rewards,
    checked_statistics,
)

if TYPE_CHECKING:
    from torch import Tensor


class Evidence(NamedTuple):
    """Sums over prompts with a past: x is that past, y the mean of the rewards that followed.

    Both are deviations from the means of their step, so that a policy that improves moves nothing
    here but what a past is worth.
    """

    degrees: Tensor
    """Prompts, less one for each step."""
    xx: Tensor
    xy: Tensor
    yy: Tensor
    noise: Tensor
    """Sum of v, the variance of y about the prompt's value."""
    variance: Tensor
    """Sum of sigma^2, the variance of a single reward about the prompt's value."""


class Past(NamedTuple):
    """What a memory tells of the n prompts of a batch, all of it older than the batch."""

    means: Tensor
    """(n,) discounted mean reward of each prompt; NaN where there is none."""
    earlier: Evidence | None = None
    """() each: what a past was worth in earlier steps."""


@dataclass(frozen=True)
class Batch:
    """Checked rewards of n prompt groups with m responses each, and what goes with them."""

    rewards: Tensor
    """(n, m) float64, 0 where masked."""
    mask: Tensor
    """(n, m) bool, True where the response is valid."""
    greedy_rewards: Tensor | None = None
    """(n,) reward of each prompt's greedy response."""
    shrinkage: float | None = None
    """The coefficient that the user gives, in [0, 1]."""
    keys: Tensor | None = None
    """(n,) what the prompts are known by (`memory.key_of`)."""
    step: int = 0
    """The number of the batch in its run."""
    past: Past | None = None

    @cached_property
    def statistics(self) -> GroupStatistics:
        """Worked out once, however many ask."""
        return checked_statistics(self.rewards, self.mask)

    @property
    def present(self) -> Tensor:
        """(n,) bool: prompts with a valid response; all of them, if there is none."""
        present = self.mask.any(1)
        return present | ~present.any()


def make_batch(
    rewards: Tensor,
    *,
    mask: Tensor | None = None,
    greedy_rewards: Tensor | None = None,
    shrinkage: float | None = None,
    keys: Tensor | None = None,
    step: int = 0,
    past: Past | None = None,
) -> Batch:
    """Return a checked batch, in float64.

    Reward models place their zero anywhere, and far from it float32 leaves a baseline few digits:
    around a reward of 1e6, advantages of size 1 would be off by 0.1.

    Args and errors: `catalogue.baseline`.
    """
    rewards, mask = check_rewards(rewards, mask)
    rewards = rewards.double()
    if greedy_rewards is not None:
        greedy_rewards = _check_greedy(greedy_rewards, rewards, mask)
    if past is not None:
        if past.means.shape != rewards.shape[:1]:
            came = tuple(past.means.shape)
            raise ValueError(f"the past must be of {len(rewards)} prompts; got {came}.")
        past = past._replace(means=past.means.to(rewards))
    return Batch(
        rewards=rewards,
        mask=mask,
        greedy_rewards=greedy_rewards,
        shrinkage=shrinkage,
        keys=keys,
        step=step,
        past=past,
    )


def _check_greedy(greedy: Tensor, rewards: Tensor, mask: Tensor) -> Tensor:
    """Return the greedy rewards in the rewards' dtype, 0 for prompts without a valid response."""
    if greedy.shape != rewards.shape[:1]:
        came = tuple(greedy.shape)
        raise ValueError(f"greedy_rewards must be a tensor ({len(rewards)},); got {came}.")
    greedy = greedy.to(rewards).where(mask.any(1), 0.0)
    if not greedy.isfinite().all():
        prompt = int((~greedy.isfinite()).nonzero()[0])
        raise ValueError(
            f"greedy reward of prompt {prompt} is {greedy[prompt].item()}; it must be finite. "
            "Repair the reward function, or mask the prompt's responses."
        )
    return greedy
