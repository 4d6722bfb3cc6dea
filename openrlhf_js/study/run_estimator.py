"""The advantage estimator of an inline run: all that the engine asks of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from openrlhf_js.estimators import LiveEstimator, key_of
from openrlhf_js.study.design import TRACKER
from openrlhf_js.study.rollout import Rollout, pass_rates
from openrlhf_js.study.value_tracker import ValueTracker
from openrlhf_js.tiny.policy import TinyPolicy
from openrlhf_js.tiny.tasks import Problem, TinyTask


class Estimated(NamedTuple):
    """What an estimator says of one rollout."""

    advantages: Tensor  # (n, m) float32
    logged: dict[str, float]


class RunEstimator:
    """An estimator at work in a run, with what it remembers of the prompts.

    The value tracker `spo` logs the figures of `bloo`, which is the same without a past.
    """

    def __init__(self, name: str, policy: TinyPolicy):
        self.policy = policy
        self.live = LiveEstimator("bloo" if name == TRACKER else name)
        self.tracks = name == TRACKER
        self.tracker: ValueTracker | None = None

    @property
    def needs_greedy(self) -> bool:
        """Whether each prompt needs a greedy response."""
        return self.live.record.needs_greedy

    def start(self, task: TinyTask, problems: Sequence[Problem], samples: int) -> None:
        """Learns so many responses of the policy to each prompt, if it remembers anything."""
        memory = self.live.memory
        if not self.tracks and (memory is None or samples == 0):
            return
        distinct = list(dict.fromkeys(problems))
        keys = _keys(distinct)
        rates = torch.zeros(len(distinct), dtype=torch.float64)
        if samples:
            measured = pass_rates(self.policy, task, distinct, samples)
            rates = torch.tensor(measured, dtype=torch.float64)
        if self.tracks:
            self.tracker = ValueTracker(keys, right=samples * rates, samples=samples)
        elif memory is not None:
            rewards = rates[:, None].expand(-1, samples)  # of the same sums as the responses'
            memory.learn(keys, rewards, step=0)

    def estimate(self, rollout: Rollout, problems: Sequence[Problem], step: int) -> Estimated:
        """The advantages of a rollout, before it is learned from."""
        keys = _keys(problems)
        batch = self.live.batch(
            rollout.rewards,
            greedy_rewards=rollout.greedy_rewards,
            keys=keys,
            step=step,
        )
        estimate = self.live.estimate(batch)
        self.live.learn(batch)
        advantages = estimate.advantages
        if self.tracker is not None:
            advantages = self.tracker.advantages(keys, rollout.rewards)
            self.tracker.update(keys, rollout, self.policy)
        return Estimated(
            advantages=advantages.float(),
            logged=self.live.describe(batch, estimate),
        )


def _keys(problems: Sequence[Problem]) -> Tensor:
    return torch.tensor([key_of(problem.prompt, problem.label) for problem in problems])
