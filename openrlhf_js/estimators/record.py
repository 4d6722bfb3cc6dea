"""The record of an estimator: whatever is shown about it anywhere is read from here.

Records load no torch, so that `--help` can read them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from openrlhf_js.estimators.batch import Batch


class Shrinkage(NamedTuple):
    """How far each baseline is shrunk: b = (1 - lambda_ij) mu_i^{-j} + lambda_ij t_i."""

    coefficient: Tensor
    """(n, m) lambda_ij in [0, 1], or (n, 1) for one coefficient per prompt; used where both the
    leave-one-out mean and the target exist."""
    target: Tensor
    """(n,) t_i, in reward units."""

    def live(self, batch: Batch) -> Tensor:
        """The coefficient; 1 where a prompt has fewer than 2 responses, else 0 without other
        prompts."""
        statistics = batch.statistics
        alone = statistics.other_prompts < 1
        single = statistics.valid_responses < 2
        return self.coefficient.masked_fill(alone[:, None], 0.0).masked_fill(single[:, None], 1.0)

    def baseline(self, batch: Batch) -> Tensor:
        """(n, m) the baseline; where none can exist, the response's own reward."""
        statistics = batch.statistics
        weight = self.live(batch)
        mixed = (1 - weight) * statistics.loo_prompt_mean + weight * self.target[:, None]
        exists = (statistics.valid_responses >= 2) | (statistics.other_prompts >= 1)
        return mixed.where(exists[:, None], batch.rewards)


def mean_of_responses(values: Tensor, batch: Batch) -> Tensor:
    """(n,) mean of values (n, m) or (n, 1) over valid responses, or over all if none is valid."""
    counted = batch.mask | ~batch.mask.any(1, keepdim=True)
    weight = counted.to(values.dtype)
    return (values * weight).sum(1) / weight.sum(1)


class Moments(NamedTuple):
    """Estimated moments of a batch, from which the errors of baselines follow."""

    v: Tensor
    """() error of a prompt mean, sigma^2 / m."""
    v2: Tensor
    """() error of a leave-one-out prompt mean, sigma^2 / (m - 1)."""
    s2: Tensor
    """() variance of the values between prompts."""
    batch_error: Tensor
    """() error of the leave-one-out batch mean, s2 (1 + 1/p) + v/p with p other prompts."""
    n: Tensor
    """() prompts with a valid response."""


class Memory(Protocol):
    """What an estimator remembers of earlier batches.

    `recall` is called for each batch before `learn`, when the memory holds earlier steps only.
    """

    def recall(self, batch: Batch) -> Any:
        """What the memory knows about a batch; the baseline reads it as `batch.past`."""

    def learn(self, batch: Batch) -> None:
        """Adds a batch, after its advantages are computed."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state from a checkpoint."""


class TableMemory:
    """A memory of float64 numbers for each prompt; `columns` gives their shapes."""

    columns: ClassVar[dict[str, tuple[int, ...]]]

    def __init__(self) -> None:
        import torch

        from openrlhf_js.estimators.memory import PromptTable

        shapes = self.columns.items()
        empty = {name: torch.zeros(0, *shape, dtype=torch.float64) for name, shape in shapes}
        self.table = PromptTable(**empty)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return self.table.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state from a checkpoint."""
        self.table.load_state_dict(state)


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """An advantage estimator: A_i^j = r_i^j - b_i^j, over a scale if it has one."""

    name: str
    summary: str
    """One line: what the baseline is."""
    source: str
    """Where it comes from."""
    unbiased: bool
    """Whether b_i^j does not depend on r_i^j and there is no scale, so that E[g] is the
    gradient."""
    baseline: Callable[[Batch], Tensor] | None = None
    """(n, m) baselines of a batch; None for an estimator that shrinks."""
    shrink: Callable[[Batch], Shrinkage] | None = None
    """Set for an estimator that shrinks rloo prompt by prompt."""
    scale: Callable[[Batch], Tensor] | None = None
    """Standard deviation that the advantage is divided by."""
    error: Callable[[Moments, Batch], Tensor] | None = None
    """() mean of (b_i^j - mu_i)^2; None for an estimator that shrinks, and where no formula is
    known."""
    describe: Callable[[Batch], dict[str, Tensor]] | None = None
    """What a training step logs about this estimator in addition to `log.describe`, under `js/`."""
    least_prompts: int = 1
    least_responses: int = 1
    least_rewards: int = 1
    """Least n * m."""
    needs_greedy: bool = False
    needs_shrinkage: bool = False
    needs_lengths: bool = False
    reads_score_norms: bool = False
    """Whether it weighs responses by `squared_score_norms`; without them all weights are 1."""
    remembers_prompts: bool = False
    """Whether its memory also holds single prompts, identified by their keys."""
    needs_keys: bool = False
    """Whether the keys are required."""
    needs_unit_rewards: bool = False
    """Whether rewards must lie between 0 and 1."""
    memory: Callable[[], Memory] | None = None
    """Creates its memory, before the first batch; None for an estimator that remembers nothing."""
    upstream: tuple[str, ...] = ()
    """OpenRLHF's names for it; a training run then uses OpenRLHF's own code."""

    @property
    def remembers(self) -> bool:
        """Whether it carries anything from one batch to the next."""
        return self.memory is not None

    def lacks(self, prompts: int, responses: int) -> str | None:
        """Why a batch of this size is too small; None if it is large enough."""
        for least, came, unit in (
            (self.least_prompts, prompts, "prompts in a batch"),
            (self.least_responses, responses, "responses per prompt"),
            (self.least_rewards, prompts * responses, "rewards in a batch"),
        ):
            if came < least:
                return f"needs at least {least} {unit}, got {came}"
        return None

    def check(self, batch: Batch) -> None:
        """Raises ValueError if the batch lacks something that this estimator needs."""
        prompts, responses = batch.rewards.shape
        lacking = self.lacks(prompts, responses)
        if lacking:
            raise ValueError(f"{self.name} {lacking}.")
        if self.needs_greedy and batch.greedy_rewards is None:
            raise ValueError(f"{self.name} needs greedy_rewards, one a prompt.")
        if self.needs_lengths and batch.lengths is None:
            raise ValueError(f"{self.name} needs the lengths of the responses.")
        if self.needs_shrinkage and (batch.shrinkage is None or not 0 <= batch.shrinkage <= 1):
            raise ValueError(
                f"{self.name} needs shrinkage between 0 (rloo) and 1 (bloo), got {batch.shrinkage}."
            )


def check_range(estimator: Estimator, batch: Batch) -> None:
    """Raises ValueError if rewards are outside the range that an estimator takes."""
    if estimator.needs_unit_rewards and not ((batch.rewards >= 0) & (batch.rewards <= 1)).all():
        low, high = float(batch.rewards.min()), float(batch.rewards.max())
        raise ValueError(
            f"{estimator.name} takes rewards between 0 and 1, got {low:g} to {high:g}: rescale "
            "them, or choose another estimator."
        )


class Estimate(NamedTuple):
    """What an estimator returns for one batch, in float64; 0 where masked."""

    baseline: Tensor
    """(n, m) in reward units."""
    advantages: Tensor
    """(n, m) in reward units, or in standard deviations."""
    shrinkage: Shrinkage | None
    """None for an estimator that does not shrink."""
