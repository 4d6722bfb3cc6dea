"""How an estimator is used: once, on a tensor of rewards, or at work in a run."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from openrlhf_js.estimators.batch import Batch, Past, make_batch
from openrlhf_js.estimators.catalogue import find_estimator
from openrlhf_js.estimators.log import describe
from openrlhf_js.estimators.memory import HALF_LIVES, PromptMemory
from openrlhf_js.estimators.record import Estimate, Estimator

# GRPO's delta: keeps an all-equal group at 0 and leaves every other scale alone.
STD_FLOOR = 1e-8


def estimate(estimator: Estimator, batch: Batch) -> Estimate:
    """Return baselines and advantages of one batch. Raises ValueError if it does not fit."""
    estimator.check(batch)
    shrunk = None
    if estimator.shrink is not None:
        shrunk = estimator.shrink(batch)
        baselines = shrunk.baseline(batch)
    else:
        assert estimator.baseline is not None
        baselines = estimator.baseline(batch)
    advantages = batch.rewards - baselines
    if estimator.scale is not None:
        advantages = advantages / (estimator.scale(batch) + STD_FLOOR)
    return Estimate(
        baseline=baselines.where(batch.mask, 0.0),
        advantages=advantages.where(batch.mask, 0.0),
        shrinkage=shrunk,
    )


def baseline(
    name: str,
    rewards: Tensor,
    *,
    mask: Tensor | None = None,
    greedy_rewards: Tensor | None = None,
    shrinkage: float | None = None,
    past: Past | None = None,
) -> Tensor:
    """Return the baseline $b_i^j$ of every response, (n, m), in reward units; 0 where masked.

    A valid response without another valid one in its group gets the batch mean from `js`, `js_plus`
    and `js_fixed`, and what its past predicts from `js_memory`. Where no baseline can exist,
    it is the reward itself, and the advantage 0.

    Args:
        name: a key of ESTIMATORS.
        rewards: (n, m), any float dtype, on a device that has float64; the result is at least
            float32.
        mask: (n, m) bool, True where the response is valid; masked rewards may be anything.
        greedy_rewards: (n,) reward of each prompt's greedy response; read by `remax` only.
        shrinkage: coefficient in [0, 1]; read by `js_fixed` only.
        past: what `PromptMemory.recall` tells of the prompts; read by `js_memory` only, which
            without it is `js_plus`.

    Raises:
        ValueError: unknown name, input that does not fit, or too few prompts or responses.
    """
    batch = make_batch(
        rewards, mask=mask, greedy_rewards=greedy_rewards, shrinkage=shrinkage, past=past
    )
    return estimate(find_estimator(name), batch).baseline.to(_result_dtype(rewards))


def advantage(
    name: str,
    rewards: Tensor,
    *,
    mask: Tensor | None = None,
    greedy_rewards: Tensor | None = None,
    shrinkage: float | None = None,
    past: Past | None = None,
) -> Tensor:
    """Return the advantage $A_i^j = r_i^j - b_i^j$ of every response, (n, m); 0 where masked.

    `grpo` and `reinforce++` divide it by a standard deviation. Arguments and errors: `baseline`.

    Examples:
        >>> advantage("js", torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))  # 3 prompts
        tensor([[ 1.0000, -1.0000],
                [ 0.3333,  0.3333],
                [-0.3333, -0.3333]])
    """
    batch = make_batch(
        rewards, mask=mask, greedy_rewards=greedy_rewards, shrinkage=shrinkage, past=past
    )
    return estimate(find_estimator(name), batch).advantages.to(_result_dtype(rewards))


def diagnostics(
    name: str,
    rewards: Tensor,
    *,
    mask: Tensor | None = None,
    greedy_rewards: Tensor | None = None,
    shrinkage: float | None = None,
    past: Past | None = None,
) -> dict[str, float]:
    """Return what a training step logs about its batch, as `log.describe` says.

    Arguments and errors: `baseline`.

    Examples:
        >>> logged = diagnostics("rloo", torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))
        >>> round(logged["js/all_equal_groups"], 2), round(logged["js/baseline_mse"], 2)
        (0.67, 0.17)
    """
    batch = make_batch(
        rewards, mask=mask, greedy_rewards=greedy_rewards, shrinkage=shrinkage, past=past
    )
    estimator = find_estimator(name)
    return describe(estimator, batch, estimate(estimator, batch).shrinkage)


def _result_dtype(rewards: Tensor) -> torch.dtype:
    return torch.promote_types(rewards.dtype, torch.float32)


class LiveEstimator:
    """An estimator at work in a run: its record, its options, and what it remembers.

    One batch after another: `batch`, `estimate`, perhaps `describe`, then `learn`. Of estimators
    that remember nothing, `learn` does nothing and the state is empty.

    Examples:
        >>> live, keys = LiveEstimator("js_memory"), torch.tensor([7, 8])
        >>> batch = live.batch(torch.tensor([[1.0, 0.0], [1.0, 1.0]]), keys=keys, step=1)
        >>> live.estimate(batch).advantages.shape
        torch.Size([2, 2])
        >>> live.learn(batch)
    """

    def __init__(
        self, name: str, *, shrinkage: float | None = None, half_life: float | None = None
    ):
        """The coefficient is read by `js_fixed` only, and the half-life, in steps, by those that
        remember; by default the data choose it."""
        self.record = find_estimator(name)
        self.shrinkage = shrinkage
        self.memory: PromptMemory | None = None
        if self.record.remembers:
            self.memory = PromptMemory(HALF_LIVES if half_life is None else (half_life,))

    def batch(
        self,
        rewards: Tensor,
        *,
        mask: Tensor | None = None,
        greedy_rewards: Tensor | None = None,
        keys: Tensor | None = None,
        step: int = 0,
    ) -> Batch:
        """A checked batch, with what is remembered of its prompts (n,) `keys` as of this step."""
        past = None
        if self.memory is not None:
            if keys is None:
                raise ValueError(f"{self.record.name} needs the keys of the prompts (key_of).")
            past = self.memory.recall(keys, step)
        return make_batch(
            rewards,
            mask=mask,
            greedy_rewards=greedy_rewards,
            shrinkage=self.shrinkage,
            keys=keys,
            step=step,
            past=past,
        )

    def estimate(self, batch: Batch) -> Estimate:
        """Baselines and advantages of a batch. Raises ValueError if it does not fit."""
        return estimate(self.record, batch)

    def describe(self, batch: Batch, result: Estimate) -> dict[str, float]:
        """What is logged about a batch."""
        return describe(self.record, batch, result.shrinkage)

    def learn(self, batch: Batch) -> None:
        """Remembers the batch, which must have its advantages by now."""
        if self.memory is not None and batch.keys is not None:
            self.memory.learn(batch.keys, batch.rewards, batch.step, batch.mask)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {} if self.memory is None else self.memory.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a checkpoint."""
        if self.memory is not None:
            self.memory.load_state_dict(state)
