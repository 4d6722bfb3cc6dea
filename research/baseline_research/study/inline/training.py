"""The training of one inline run: each step samples groups and updates the policy once."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from baseline_research.study.design import InlineStudy
from baseline_research.study.inline.rollout import Rollout, sample
from baseline_research.study.runs import Run
from baseline_research.tiny.policy import TinyPolicy
from baseline_research.tiny.record import SOLVED, UNSOLVABLE, Problem
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
    noise: nats per token."""


class Training:
    """A run's policy in training, with its optimizer and its estimator."""

    def __init__(self, run: Run, policy: TinyPolicy, settings: InlineStudy):
        self.run = run
        self.settings = settings
        self.start = copy.deepcopy(policy) if settings.kl else None
        self.task = TASKS[run.task]
        self.policy = policy
        self.estimator = LiveEstimator(settings.estimator_name(run.estimator))
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
        share = min(1.0, (number + 1) / (self.settings.warm_up + 1))
        self.optimizer.param_groups[0]["lr"] = share * self.run.learning_rate
        loss = self._loss(rollout)
        gradient = set_gradient(self.policy, rollout, estimated.advantages, micro_batches, loss)
        self._update()
        later_loss = loss._replace(sampled=rollout.log_probs.where(rollout.valid, 0.0))
        for _ in range(self.settings.passes - 1):
            set_gradient(self.policy, rollout, estimated.advantages, 1, later_loss)
            self._update()
        all_equal = rollout.rewards.amax(1) == rollout.rewards.amin(1)
        lengths = rollout.valid.sum(1).float()
        return Step(
            reward=_learnable_reward(problems, rollout.rewards),
            equal_groups=int(all_equal.sum()) if self.run.responses > 1 else 0,
            length=lengths.mean().item(),
            entropy=gradient.entropy,
            logged=estimated.logged,
            gradient=gradient.sums.moments(),
        )

    def _update(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), 1.0)
        self.optimizer.step()

    def _loss(self, rollout: Rollout) -> Loss:
        """The loss of the first pass, whose policy is the one that sampled."""
        reference = None
        if self.start is not None:
            with torch.no_grad():
                reference = self.start.log_probs(rollout.prompts, rollout.responses)
            reference = reference.where(rollout.valid, 0.0)
        constant = self.settings.loss == "constant"
        return Loss(
            reference=reference,
            clip=self.settings.clip,
            kl=self.settings.kl,
            tokens_each=self.task.max_new_tokens if constant else None,
        )

    def _estimate(self, rollout: Rollout, problems: Sequence[Problem], step: int) -> Estimated:
        """The advantages of a rollout, from which the estimator then learns."""
        shape = rollout.rewards.shape
        norms = squared_score_norms(rollout.log_probs, rollout.valid)
        batch = self.estimator.batch(
            rollout.rewards,
            lengths=rollout.valid.sum(1).view(shape),
            squared_score_norms=norms.view(shape),
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


class Loss(NamedTuple):
    """The loss of each token, from its log-probability and its advantage.

    All log-probabilities are 0 where there is no token.
    """

    sampled: Tensor | None = None
    """(n * m, T) log-probabilities under the policy that sampled; None where it is this one."""
    reference: Tensor | None = None
    """(n * m, T) log-probabilities under the start; None without a KL term."""
    clip: float = 0.0
    kl: float = 0.0
    tokens_each: int | None = None
    """What the sum is divided by, for each response; None: by the batch's tokens."""

    def of(self, log_probs: Tensor, advantages: Tensor, rows: slice) -> Tensor:
        """(b, T) losses of these rows; PPO's (arXiv:1707.06347) if another policy sampled.

        The KL term is Schulman's third estimate, exp(q - p) - (q - p) - 1.
        """
        if self.sampled is None:
            losses = -log_probs * advantages
        else:
            ratio = (log_probs - self.sampled[rows]).exp()
            losses = -ratio * advantages
            if self.clip:
                clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
                losses = torch.maximum(losses, -clipped * advantages)
        if self.reference is not None:
            difference = self.reference[rows] - log_probs
            losses = losses + self.kl * (difference.exp() - difference - 1)
        return losses


PLAIN = Loss()


def set_gradient(
    policy: TinyPolicy,
    rollout: Rollout,
    advantages: Tensor,
    micro_batches: int,
    loss: Loss = PLAIN,
) -> PolicyGradient:
    """Sets the gradient of the loss, added up over micro-batches of whole prompt groups."""
    total = [torch.zeros_like(parameter) for parameter in policy.model.parameters()]
    squares = 0.0
    squared_responses = 0
    surprise = 0.0
    for part in _micro_batches(policy, rollout, advantages, micro_batches, loss):
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
    return PolicyGradient(sums, entropy=surprise / int(rollout.valid.sum()))


class _MicroBatch(NamedTuple):
    """A micro-batch's contribution to the gradient."""

    gradients: tuple[Tensor, ...]
    responses: int
    surprise: float
    """The sum of -log pi over its tokens."""


def _micro_batches(
    policy: TinyPolicy,
    rollout: Rollout,
    advantages: Tensor,
    count: int,
    loss: Loss,
) -> Iterator[_MicroBatch]:
    prompts, responses = advantages.shape
    tokens = int(rollout.valid.sum())
    if loss.tokens_each is not None:
        tokens = prompts * responses * loss.tokens_each
    of_responses = advantages.reshape(-1, 1)
    parameters = list(policy.model.parameters())
    for places in torch.arange(prompts).tensor_split(count):
        rows = slice(int(places[0]) * responses, (int(places[-1]) + 1) * responses)
        log_probs = policy.log_probs(rollout.prompts.at(places), rollout.responses[rows])
        log_probs = log_probs.where(rollout.valid[rows], 0.0)
        losses = loss.of(log_probs, of_responses[rows], rows)
        yield _MicroBatch(
            gradients=torch.autograd.grad(losses.sum() / tokens, parameters),
            responses=len(places) * responses,
            surprise=-float(log_probs.detach().sum()),
        )


def _squared_norm(gradients: Sequence[Tensor]) -> float:
    norms = torch._foreach_norm(list(gradients))
    return float(sum(norm.double() ** 2 for norm in norms))
