"""One inline run in training: sampled groups, advantages, one update of the policy a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from openrlhf_js.estimators.gradient import GradientMoments, GradientSums
from openrlhf_js.study.design import Run
from openrlhf_js.study.inline.rollout import Rollout, sample, valid_tokens
from openrlhf_js.study.inline.run_estimator import RunEstimator
from openrlhf_js.study.tasks import STUDY_TASKS
from openrlhf_js.tiny.policy import TinyPolicy
from openrlhf_js.tiny.tasks import SOLVED, UNSOLVABLE, Problem

STEPS_PER_MEASUREMENT = 5  # of the gradient's variance
MICRO_BATCHES = 4  # of a step whose gradient is measured
SEEDS_PER_RUN = 100_003  # more than steps, so that no two runs share a step's seed


class Step(NamedTuple):
    """What one step logs."""

    reward: float  # mean over the prompts that can be learned
    equal_groups: int
    length: float  # mean tokens of a response
    entropy: float
    logged: dict[str, float]  # of its estimator
    gradient: GradientMoments | None


class PolicyGradient(NamedTuple):
    """What is known of a gradient beside itself."""

    sums: GradientSums
    entropy: float
    """The mean of -log pi over the sampled tokens, which is the policy's entropy there but for
    noise: nats a token."""


class Training:
    """A policy in training, with its optimizer and its estimator."""

    def __init__(self, run: Run, policy: TinyPolicy, estimator: RunEstimator):
        self.run = run
        self.task = STUDY_TASKS[run.task]
        self.policy = policy
        self.estimator = estimator
        self.optimizer = torch.optim.AdamW(
            policy.model.parameters(),
            lr=run.learning_rate,
            betas=(0.9, 0.95),
            weight_decay=0,
            fused=True,
        )

    def step(self, number: int, problems: Sequence[Problem]) -> Step:
        """Samples responses to the problems of a step, and updates the policy once."""
        rollout = sample(
            self.policy,
            self.task,
            problems,
            self.run.responses,
            self.policy.generator(self.run.seed * SEEDS_PER_RUN + number),
            greedy=self.estimator.needs_greedy,
        )
        estimated = self.estimator.estimate(rollout, problems, number)
        micro_batches = 1
        if number % STEPS_PER_MEASUREMENT == 0:
            micro_batches = min(MICRO_BATCHES, len(problems))
        gradient = set_gradient(self.policy, rollout, estimated.advantages, micro_batches)
        torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), 1.0)
        self.optimizer.step()
        all_equal = rollout.rewards.amax(1) == rollout.rewards.amin(1)
        lengths = valid_tokens(self.policy, rollout.responses).sum(1).float()
        return Step(
            reward=_learnable_reward(problems, rollout.rewards),
            equal_groups=int(all_equal.sum()),
            length=lengths.mean().item(),
            entropy=gradient.entropy,
            logged=estimated.logged,
            gradient=gradient.sums.moments(),
        )


def _learnable_reward(problems: Sequence[Problem], rewards: Tensor) -> float:
    """Mean over the problems that are neither solved by anything nor unsolvable."""
    learnable = torch.tensor([problem.label not in (SOLVED, UNSOLVABLE) for problem in problems])
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
