"""How to use an estimator: once, on a tensor of rewards, or step by step in a run."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from openrlhf_js.estimators.batch import Batch, make_batch
from openrlhf_js.estimators.catalogue import find_estimator
from openrlhf_js.estimators.flat import Groups
from openrlhf_js.estimators.group_stats import as_tensor
from openrlhf_js.estimators.log import describe
from openrlhf_js.estimators.record import Estimate, Estimator, Memory, check_range

NO_NORMS = (
    "{} weighs all responses alike here. Give it squared_score_norms, which the function of that "
    "name makes from log-probabilities."
)


def estimate(estimator: Estimator, batch: Batch) -> Estimate:
    """Return baselines and advantages of one batch. Raises ValueError if the batch does not fit."""
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
        advantages = advantages / estimator.scale(batch)
    return Estimate(
        baseline=baselines.where(batch.mask, 0.0),
        advantages=advantages.where(batch.mask, 0.0),
        shrinkage=shrunk,
    )


def baseline(
    name: str, rewards: Any, *, groups: Iterable[Any] | None = None, **inputs: Any
) -> Tensor:
    """Return the baseline $b_i^j$ of every response, in reward units; 0 where masked.

    For the only valid response of a group, `js` and `js_fixed` return the mean of the other
    prompts, and `js_grad` their weighted mean. Where no baseline can exist, it is the reward
    itself, so that the advantage is 0.

    Args:
        name: a key of ESTIMATORS, or your own baseline as `path/to/file.py:name`.
        rewards: (n, m) of n prompts with m responses each, or flat (B,) with `groups`; a tensor, an
            array or lists, of floats, integers or booleans. The result is at least float32.
        groups: (B,) the prompt of each flat reward: any ids, in any order, groups of any sizes.
        inputs: further inputs of some estimators, as in `make_batch`; with `groups`, those that are
            (n, m) there are flat, too.

    Returns:
        A tensor of the rewards' shape.

    Raises:
        ValueError: unknown name, input that does not fit, or too few prompts or responses.
    """
    estimator, batch, grouping = _batch_of(name, rewards, groups, inputs)
    return _as_given(estimate(estimator, batch).baseline, rewards, grouping)


def advantage(
    name: str, rewards: Any, *, groups: Iterable[Any] | None = None, **inputs: Any
) -> Tensor:
    """Return the advantage $A_i^j = r_i^j - b_i^j$ of every response; 0 where masked.

    Estimators with a scale, such as `grpo`, divide by it. Arguments and errors as for `baseline`.

    Examples:
        >>> advantage("js", torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))  # 3 prompts
        tensor([[ 1.0000, -1.0000],
                [ 0.3333,  0.3333],
                [-0.3333, -0.3333]])
        >>> advantage("rloo", [1, 0, 0, 1], groups=["a", "b", "a", "b"])
        tensor([ 1., -1., -1.,  1.])
    """
    estimator, batch, grouping = _batch_of(name, rewards, groups, inputs)
    return _as_given(estimate(estimator, batch).advantages, rewards, grouping)


def _as_given(values: Tensor, rewards: Any, grouping: Groups | None) -> Tensor:
    """The values (n, m) in the shape, the order and at least the precision of the rewards."""
    dtype = torch.promote_types(as_tensor(rewards, "rewards").dtype, torch.float32)
    values = values.to(dtype)
    return values if grouping is None else grouping.flatten(values)


def _batch_of(
    name: str, rewards: Any, groups: Iterable[Any] | None, inputs: dict[str, Any]
) -> tuple[Estimator, Batch, Groups | None]:
    """The estimator of that name, a checked batch for it, and the groups of flat rewards."""
    estimator = find_estimator(name)
    if estimator.remembers and inputs.get("past") is None:
        warn_once(
            f"{name} knows nothing of earlier batches here, and computes as for a run's first "
            "batch. A LiveEstimator remembers.",
            stacklevel=4,
        )
    if estimator.reads_score_norms and inputs.get("squared_score_norms") is None:
        warn_once(NO_NORMS.format(name), stacklevel=4)
    grouping = None if groups is None else Groups(groups)
    if grouping is not None:
        inputs = grouping.pad_inputs(inputs)
        rewards = grouping.pad(rewards, "rewards")
    batch = make_batch(rewards, **inputs)
    check_range(estimator, batch)
    return estimator, batch, grouping


@functools.cache
def warn_once(message: str, stacklevel: int) -> None:
    """Warns once per message, at the caller `stacklevel` frames up; this function is frame 1."""
    warnings.warn(message, stacklevel=stacklevel)


def diagnostics(
    name: str, rewards: Any, *, groups: Iterable[Any] | None = None, **inputs: Any
) -> dict[str, float]:
    """Return what a training step logs about its batch (see `log.describe`).

    Arguments and errors as for `baseline`.

    Examples:
        >>> logged = diagnostics("rloo", torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))
        >>> round(logged["js/share_of_equal_groups"], 2), round(logged["js/value_error"], 2)
        (0.67, 0.17)
    """
    estimator, batch, _ = _batch_of(name, rewards, groups, inputs)
    return describe(estimator, batch, estimate(estimator, batch))


class LiveEstimator:
    """An estimator in a run: its record, its options and its memory.

    For each batch call `batch`, `estimate`, perhaps `describe`, then `learn`. For estimators that
    remember nothing, `learn` does nothing and the state is empty.

    Examples:
        >>> live, keys = LiveEstimator("js_grad"), torch.tensor([7, 8])
        >>> batch = live.batch(torch.tensor([[1.0, 0.0], [1.0, 1.0]]), keys=keys, step=1)
        >>> live.estimate(batch).advantages.shape
        torch.Size([2, 2])
        >>> live.learn(batch)
    """

    def __init__(self, name: str, *, shrinkage: float | None = None, memory: Memory | None = None):
        """`shrinkage` is read by `js_fixed` only; `memory` replaces the record's."""
        self.record = find_estimator(name)
        self.shrinkage = shrinkage
        self.memory = memory
        if memory is None and self.record.memory is not None:
            self.memory = self.record.memory()

    def batch(self, rewards: Any, **inputs: Any) -> Batch:
        """A checked batch, with what is remembered so far of its prompts, identified by `keys`
        (n,)."""
        if self.record.needs_keys and inputs.get("keys") is None:
            raise ValueError(f"{self.record.name} needs the keys of the prompts (key_of).")
        batch = make_batch(rewards, shrinkage=self.shrinkage, **inputs)
        check_range(self.record, batch)
        if self.record.reads_score_norms and batch.squared_score_norms is None:
            warn_once(NO_NORMS.format(self.record.name), stacklevel=3)
        if self.memory is None:
            return batch
        return replace(batch, past=self.memory.recall(batch))

    def estimate(self, batch: Batch) -> Estimate:
        """Baselines and advantages of a batch. Raises ValueError if the batch does not fit."""
        return estimate(self.record, batch)

    def describe(self, batch: Batch, result: Estimate) -> dict[str, float]:
        """What is logged about a batch."""
        return describe(self.record, batch, result)

    def learn(self, batch: Batch) -> None:
        """Adds the batch to the memory, after its advantages are computed."""
        if self.memory is not None:
            self.memory.learn(batch)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {} if self.memory is None else self.memory.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state from a checkpoint."""
        if self.memory is not None:
            self.memory.load_state_dict(state)
