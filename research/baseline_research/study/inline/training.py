"""The training of one inline run: each step samples groups and updates the policy once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from answer_graders.tasks.sort import SOLVED, UNSOLVABLE
from baseline_research.study.design import Run
from baseline_research.study.inline.rollout import Rollout, sample, valid_tokens
from baseline_research.tiny.policy import TinyPolicy
from baseline_research.tiny.record import Problem
from baseline_research.tiny.tasks import TASKS
from openrlhf_js.estimators import LiveEstimator, key_of, squared_score_norms
from openrlhf_js.estimators.gradient import GradientMoments, GradientSums

STEPS_PER_MEASUREMENT = 5  # steps between measurements of the gradient's variance
MICRO_BATCHES = 4  # in a step whose gradient is measured
SEEDS_PER_RUN = 100_003  # more than steps, so that no two runs share a step's seed


class Step(NamedTuple):
    """The log of one step."""

    reward: float  # mean over the learnable prompts
    equal_groups: int
    length: float  # mean tokens of a response
    entropy: float
    logged: dict[str, float]  # by its estimator
    gradient: GradientMoments | None


class Estimated(NamedTuple):
    """An estimator's output for one rollout."""

    advantages: Tensor  # (n, m) float32
    logged: dict[str, float]


class PolicyGradient(NamedTuple):
    """Measurements of a policy gradient."""

    sums: GradientSums
    entropy: float
    """The mean of -log pi over the sampled tokens, which is the policy's entropy there but for
    noise: nats a token."""


class Training:
    """A policy in training, with its optimizer and the estimator of the given name.

    The learning rate rises over the `warm_up` first steps.
    """

    def __init__(self, run: Run, policy: TinyPolicy, estimator: str, *, warm_up: int = 0):
        self.run = run
        self.warm_up = warm_up
        self.task = TASKS[run.task]
        self.policy = policy
        self.estimator = LiveEstimator(estimator)
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
            greedy=self.estimator.record.needs_greedy,
        )
        estimated = self._estimate(rollout, problems, number)
        micro_batches = 1
        if number % STEPS_PER_MEASUREMENT == 0:
            micro_batches = min(MICRO_BATCHES, len(problems))
        gradient = set_gradient(self.policy, rollout, estimated.advantages, micro_batches)
        torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), 1.0)
        share = min(1.0, (number + 1) / (self.warm_up + 1))
        self.optimizer.param_groups[0]["lr"] = share * self.run.learning_rate
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

    def _estimate(self, rollout: Rollout, problems: Sequence[Problem], step: int) -> Estimated:
        """The advantages of a rollout, from which the estimator then learns."""
        valid = valid_tokens(self.policy, rollout.responses)
        shape = rollout.rewards.shape
        batch = self.estimator.batch(
            rollout.rewards,
            lengths=valid.sum(1).view(shape),
            squared_score_norms=squared_score_norms(rollout.log_probs, valid).view(shape),
            greedy_rewards=rollout.greedy_rewards,
            keys=keys_of(problems),
            step=step,
        )
        estimate = self.estimator.estimate(batch)
        logged = self.estimator.describe(batch, estimate)
        self.estimator.learn(batch)
        return Estimated(advantages=estimate.advantages.float(), logged=logged)


def keys_of(problems: Sequence[Problem]) -> Tensor:
    """(n,) keys by which an estimator recognises the problems."""
    return torch.tensor([key_of(problem.prompt, problem.label) for problem in problems])


def _learnable_reward(problems: Sequence[Problem], rewards: Tensor) -> float:
    """Mean reward over the problems that are neither always solved nor unsolvable."""
    learnable = torch.tensor([problem.label not in (SOLVED, UNSOLVABLE) for problem in problems])
    return float(rewards[learnable].mean())


def set_gradient(
    policy: TinyPolicy, rollout: Rollout, advantages: Tensor, micro_batches: int
) -> PolicyGradient:
    """Sets the gradient of the loss, added up over micro-batches of whole prompt groups."""
    valid = valid_tokens(policy, rollout.responses)  # (n * m, T)
    total = [torch.zeros_like(parameter) for parameter in policy.model.parameters()]
    squares = 0.0
    squared_responses = 0
    surprise = 0.0
    for part in _micro_batches(policy, rollout, advantages, valid, micro_batches):
        torch._foreach_add_(total, part.gradients)
        squares += _squared_norm(part.gradients)
        squared_responses += part.responses**2
        surprise += part.surprise
    for parameter, gradient in zip(policy.model.parameters(), total, strict=True):
        parameter.grad = gradient
    sums = GradientSums(
        squares=squares,
        square_of_sum=_squared_norm(total),
        responses=advantages.numel(),
        squared_responses=squared_responses,
    )
    return PolicyGradient(sums, entropy=surprise / int(valid.sum()))


class _MicroBatch(NamedTuple):
    """A micro-batch's contribution to the gradient."""

    gradients: tuple[Tensor, ...]
    responses: int
    surprise: float
    """The sum of -log pi over its tokens."""


def _micro_batches(
    policy: TinyPolicy, rollout: Rollout, advantages: Tensor, valid: Tensor, count: int
) -> Iterator[_MicroBatch]:
    prompts, responses = advantages.shape
    tokens = int(valid.sum())
    weights = advantages.reshape(-1, 1) * valid
    parameters = list(policy.model.parameters())
    for places in torch.arange(prompts).tensor_split(count):
        rows = slice(int(places[0]) * responses, (int(places[-1]) + 1) * responses)
        log_probs = policy.log_probs(rollout.prompts.at(places), rollout.responses[rows])
        loss = -(log_probs * weights[rows]).sum() / tokens
        yield _MicroBatch(
            gradients=torch.autograd.grad(loss, parameters),
            responses=len(places) * responses,
            surprise=-float((log_probs.detach() * valid[rows]).sum()),
        )


def _squared_norm(gradients: Sequence[Tensor]) -> float:
    norms = torch._foreach_norm(list(gradients))
    return float(sum(norm.double() ** 2 for norm in norms))
