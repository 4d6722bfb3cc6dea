"""The advantage estimator of an inline run: all that the engine asks of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from openrlhf_js.estimators import LiveEstimator, key_of, squared_score_norms
from openrlhf_js.study.inline.rollout import Rollout, pass_rates, valid_tokens
from openrlhf_js.tiny.policy import TinyPolicy
from openrlhf_js.tiny.tasks import Problem, TinyTask


class Estimated(NamedTuple):
    """What an estimator says of one rollout."""

    advantages: Tensor  # (n, m) float32
    logged: dict[str, float]


class RunEstimator:
    """An estimator at work in a run, with what it remembers of the prompts."""

    def __init__(self, name: str, policy: TinyPolicy):
        self.policy = policy
        self.live = LiveEstimator(name)

    @property
    def needs_greedy(self) -> bool:
        """Whether each prompt needs a greedy response."""
        return self.live.record.needs_greedy

    def start(self, task: TinyTask, problems: Sequence[Problem], samples: int) -> None:
        """Learns so many responses of the policy to each prompt, if it remembers prompts."""
        if not self.live.record.remembers_prompts or samples == 0:
            return
        distinct = list(dict.fromkeys(problems))
        rates = torch.tensor(pass_rates(self.policy, task, distinct, samples), dtype=torch.float64)
        rewards = rates[:, None].expand(-1, samples)  # of the same sums as the responses'
        self.live.start(self.live.batch(rewards, keys=keys_of(distinct), step=0))

    def estimate(self, rollout: Rollout, problems: Sequence[Problem], step: int) -> Estimated:
        """The advantages of a rollout, which is then learned from."""
        valid = valid_tokens(self.policy, rollout.responses)
        shape = rollout.rewards.shape
        batch = self.live.batch(
            rollout.rewards,
            lengths=valid.sum(1).view(shape),
            squared_score_norms=squared_score_norms(rollout.log_probs, valid).view(shape),
            greedy_rewards=rollout.greedy_rewards,
            keys=keys_of(problems),
            step=step,
        )
        estimate = self.live.estimate(batch)
        logged = self.live.describe(batch, estimate)
        self.live.learn(batch)
        return Estimated(advantages=estimate.advantages.float(), logged=logged)


def keys_of(problems: Sequence[Problem]) -> Tensor:
    """(n,) what problems are known by."""
    return torch.tensor([key_of(problem.prompt, problem.label) for problem in problems])
