"""One inline run in training: sampled groups, advantages, one update of the policy a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from openrlhf_js.estimators.gradient import GradientMoments, GradientSums
from openrlhf_js.study.design import Run
from openrlhf_js.study.inline.order import ProblemOrder
from openrlhf_js.study.inline.rollout import (
    Rollout,
    joined,
    kept_groups,
    mixed_groups,
    sample,
    valid_tokens,
)
from openrlhf_js.study.inline.run_estimator import RunEstimator
from openrlhf_js.study.tasks import STUDY_TASKS
from openrlhf_js.tiny.policy import TinyPolicy
from openrlhf_js.tiny.tasks import SOLVED, UNSOLVABLE, Problem

STEPS_PER_MEASUREMENT = 5  # of the gradient's variance
MICRO_BATCHES = 4  # of a step whose gradient is measured
SEEDS_PER_RUN = 100_003  # more than steps, so that no two runs share a step's seed


class Step(NamedTuple):
    """What one step logs."""

    reward: float | None  # mean over the prompts that can be learned; None without any
    sampled_groups: int
    equal_groups: int  # of those
    logged: dict[str, float]  # of its estimator and policy; empty where the policy was not updated
    gradient: GradientMoments | None


class PolicyGradient(NamedTuple):
    """What is known of a gradient beside itself."""

    sums: GradientSums
    entropy: float
    """The mean of -log pi over the sampled tokens, which is the policy's entropy there but for
    noise: nats a token."""


class SampledGroups(NamedTuple):
    """What one step has sampled, and what of it is trained on."""

    sampled_problems: list[Problem]
    sampled_rewards: Tensor  # (n, m)
    problems: list[Problem]
    rollout: Rollout
    weights: Tensor  # (n,) of the problems' advantages


class Training:
    """A policy in training, with its optimizer, its estimator, and the groups it may sample."""

    def __init__(self, run: Run, policy: TinyPolicy, estimator: RunEstimator, groups: int):
        self.run = run
        self.task = STUDY_TASKS[run.task]
        self.policy = policy
        self.estimator = estimator
        self.groups_left = groups
        self.updates = 0
        self.optimizer = torch.optim.AdamW(
            policy.model.parameters(),
            lr=run.learning_rate,
            betas=(0.9, 0.95),
            weight_decay=0,
            fused=True,
        )

    def step(self, number: int, order: ProblemOrder) -> Step:
        """Samples responses to the next problems, and updates the policy once.

        It does not update where the last responses leave too few groups for the estimator.
        """
        groups = self._sample(number, order)
        all_equal = groups.sampled_rewards.amax(1) == groups.sampled_rewards.amin(1)
        step = Step(
            reward=_learnable_reward(groups.sampled_problems, groups.sampled_rewards),
            sampled_groups=len(all_equal),
            equal_groups=int(all_equal.sum()),
            logged={},
            gradient=None,
        )
        if self.estimator.lacks(groups.rollout):
            return step
        estimated = self.estimator.estimate(groups.rollout, groups.problems, number)
        micro_batches = 1
        if number % STEPS_PER_MEASUREMENT == 0:
            micro_batches = min(MICRO_BATCHES, len(groups.problems))
        advantages = estimated.advantages * groups.weights[:, None]
        gradient = set_gradient(self.policy, groups.rollout, advantages, micro_batches)
        torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), 1.0)
        self.optimizer.step()
        self.updates += 1
        lengths = valid_tokens(self.policy, groups.rollout.responses).sum(1).float()
        of_policy = {"length": lengths.mean().item(), "entropy": gradient.entropy}
        return step._replace(
            logged=estimated.logged | of_policy,
            gradient=gradient.sums.moments(),
        )

    def _sample(self, number: int, order: ProblemOrder) -> SampledGroups:
        """Groups for one step; where equal ones are dropped, in as many rounds as it takes."""
        generator = self.policy.generator(self.run.seed * SEEDS_PER_RUN + number)
        sampled_problems: list[Problem] = []
        rollouts: list[Rollout] = []
        problems: list[Problem] = []
        kept_rollouts: list[Rollout] = []
        kept_weights: list[Tensor] = []
        while len(problems) < self.run.prompts and self.groups_left:
            size = min(self.run.prompts - len(problems), self.groups_left)
            batch = order.batch(number, size)
            rollout = sample(
                self.policy,
                self.task,
                batch.problems,
                self.run.responses,
                generator,
                greedy=self.estimator.needs_greedy,
            )
            order.learn(number, batch.problems, rollout.rewards)
            self.groups_left -= size
            kept = torch.ones(size, dtype=torch.bool)
            if order.filters:
                kept = mixed_groups(rollout.rewards)
            sampled_problems += batch.problems
            rollouts.append(rollout)
            problems += [batch.problems[place] for place in kept.nonzero()]
            kept_rollouts.append(kept_groups(rollout, kept))
            kept_weights.append(batch.weights[kept])
        return SampledGroups(
            sampled_problems=sampled_problems,
            sampled_rewards=torch.cat([rollout.rewards for rollout in rollouts]),
            problems=problems,
            rollout=joined(self.policy, problems, kept_rollouts),
            weights=torch.cat(kept_weights),
        )


def _learnable_reward(problems: Sequence[Problem], rewards: Tensor) -> float | None:
    """Mean over the problems that are neither solved by anything nor unsolvable."""
    learnable = torch.tensor([problem.label not in (SOLVED, UNSOLVABLE) for problem in problems])
    if not learnable.any():
        return None  # where problems are chosen
    return float(rewards[learnable].mean())


def set_gradient(
    policy: TinyPolicy, rollout: Rollout, advantages: Tensor, micro_batches: int
) -> PolicyGradient:
    """Sets the gradient of the loss, added up over micro-batches of whole prompt groups."""
    n, m = advantages.shape
    valid = valid_tokens(policy, rollout.responses)  # (n * m, T)
    tokens = int(valid.sum())
    weights = advantages.reshape(-1, 1) * valid
    parameters = list(policy.model.parameters())
    total = [torch.zeros_like(parameter) for parameter in parameters]
    squares = 0.0
    squared_responses = 0
    surprise = 0.0
    for places in torch.arange(n).tensor_split(micro_batches):
        first = int(places[0])
        rows = slice(first * m, (first + len(places)) * m)
        log_probs = policy.log_probs(rollout.prompts.at(places), rollout.responses[rows])
        loss = -(log_probs * weights[rows]).sum() / tokens
        surprise -= float((log_probs.detach() * valid[rows]).sum())
        gradients = torch.autograd.grad(loss, parameters)
        torch._foreach_add_(total, gradients)
        squares += _squared_norm(gradients)
        squared_responses += len(log_probs) ** 2
    for parameter, gradient in zip(parameters, total, strict=True):
        parameter.grad = gradient
    sums = GradientSums(
        squares=squares,
        square_of_sum=_squared_norm(total),
        responses=n * m,
        squared_responses=squared_responses,
    )
    return PolicyGradient(sums, entropy=surprise / tokens)


def _squared_norm(gradients: Sequence[Tensor]) -> float:
    norms = torch._foreach_norm(list(gradients))
    return float(sum(norm.double() ** 2 for norm in norms))
