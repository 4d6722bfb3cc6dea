"""The inline engine: REINFORCE of a tiny model in this process, for laptops.

One update a batch, so that the clipped objective of OpenRLHF is the plain policy gradient; the
other settings are those of the quickstart's training: AdamW (0.9, 0.95), constant learning rate,
gradient norm clipped at 1, mean over tokens, temperature 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor

from openrlhf_js.estimators.gradient import GradientMoments, GradientSums
from openrlhf_js.study.design import Run, StudySettings
from openrlhf_js.study.figures import Figures, learning_curve
from openrlhf_js.study.order import ProblemOrder, problem_order
from openrlhf_js.study.prompts import held_out_pass1, policy_in
from openrlhf_js.study.rollout import Rollout, sample, valid_tokens
from openrlhf_js.study.run_estimator import RunEstimator
from openrlhf_js.study.tasks import STUDY_TASKS
from openrlhf_js.tiny.policy import TinyPolicy
from openrlhf_js.tiny.tasks import SOLVED, UNSOLVABLE, Problem

STEPS_PER_MEASUREMENT = 5  # of the gradient's variance
MICRO_BATCHES = 4  # of a step whose gradient is measured
SEEDS_PER_RUN = 100_003  # more than steps, so that no two runs share a step's seed
LATE_SHARE = 4  # of the steps: the last fourth


class Step(NamedTuple):
    """What one step logs."""

    reward: float | None  # mean over the prompts that can be learned; None without any
    logged: dict[str, float]  # of its estimator
    gradient: GradientMoments | None
    length: float  # mean tokens of a response
    entropy: float  # nats a token


class PolicyGradient(NamedTuple):
    """What is known of a gradient beside itself."""

    sums: GradientSums
    entropy: float
    """The mean of -log pi over the sampled tokens, which is the policy's entropy there but for
    noise: nats a token."""


def train(run: Run, settings: StudySettings) -> Figures:
    """Trains from the warm start, and returns what was measured."""
    policy = policy_in(settings.start_of(run.task), settings)
    order = problem_order(run, settings)
    estimator = RunEstimator(settings.estimator_name(run.estimator), policy)
    estimator.start(STUDY_TASKS[run.task], order.problems, settings.offline)
    training = Training(run, policy, estimator)
    steps = []
    for number in range(settings.steps):
        steps.append(training.step(number, order))
    pass1 = held_out_pass1(run.task, settings, policy)
    return _figures(steps, pass1)._replace(**order.figures()._asdict())


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

    def step(self, number: int, order: ProblemOrder) -> Step:
        """Samples responses to the next problems, and updates the policy once."""
        problems, weights = order.batch(number)
        seed = self.run.seed * SEEDS_PER_RUN + number
        rollout = sample(
            self.policy,
            self.task,
            problems,
            self.run.responses,
            torch.Generator().manual_seed(seed),
            greedy=self.estimator.needs_greedy,
        )
        estimated = self.estimator.estimate(rollout, problems, number)
        order.learn(number, problems, rollout.rewards)
        micro_batches = 1
        if number % STEPS_PER_MEASUREMENT == 0:
            micro_batches = min(MICRO_BATCHES, self.run.prompts)
        advantages = estimated.advantages * weights[:, None]
        gradient = set_gradient(self.policy, rollout, advantages, micro_batches)
        torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), 1.0)
        self.optimizer.step()
        return Step(
            reward=_learnable_reward(problems, rollout.rewards),
            logged=estimated.logged,
            gradient=gradient.sums.moments(),
            length=float(valid_tokens(self.policy, rollout.responses).sum(1).float().mean()),
            entropy=gradient.entropy,
        )


def _learnable_reward(problems: Sequence[Problem], rewards: Tensor) -> float | None:
    """Mean over the problems that are neither solved by anything nor unsolvable."""
    learnable = torch.tensor([problem.label not in (SOLVED, UNSOLVABLE) for problem in problems])
    if not learnable.any():
        return None  # where problems are chosen
    return float(rewards[learnable].mean())


def _figures(steps: Sequence[Step], pass1: float) -> Figures:
    """What was measured in these steps and after them."""
    rewards = [step.reward for step in steps if step.reward is not None]
    gradients = [step.gradient for step in steps if step.gradient is not None]
    variance = fmean(gradient.variance for gradient in gradients)
    mean_square = fmean(gradient.mean_square for gradient in gradients)
    rloo_error = sum(_logged(steps, "js/baseline_mse_rloo"))
    baseline_error = None
    if rloo_error > 0 and "js/baseline_mse" in steps[0].logged:
        baseline_error = sum(_logged(steps, "js/baseline_mse")) / rloo_error
    late_steps = steps[-max(1, len(steps) // LATE_SHARE) :]
    return Figures(
        pass1=pass1,
        reward=fmean(rewards),
        curve=learning_curve(rewards),
        steps=len(steps),
        dead=fmean(_logged(steps, "js/all_equal_groups")),
        baseline_error=baseline_error,
        gradient_variance=variance,
        gradient_snr=mean_square / variance if variance > 0 else None,
        spread=_spread(late_steps),
        length=fmean(step.length for step in late_steps),
        entropy=fmean(step.entropy for step in late_steps),
    )


def _logged(steps: Sequence[Step], name: str) -> list[float]:
    return [step.logged[name] for step in steps]


def _spread(steps: Sequence[Step]) -> float:
    """Standard deviation of the prompts' values in these steps.

    That of the means has the noise of m responses in it, which is taken off.
    """
    between = _logged(steps, "js/between_variance")
    within = _logged(steps, "js/within_variance")
    net = fmean(b - w for b, w in zip(between, within, strict=True))
    return float(max(net, 0.0) ** 0.5)


def set_gradient(
    policy: TinyPolicy, rollout: Rollout, advantages: Tensor, micro_batches: int
) -> PolicyGradient:
    """Sets the gradient of the loss, added up over micro-batches of whole prompt groups."""
    prompts, responses_per_prompt = advantages.shape
    valid = valid_tokens(policy, rollout.responses)
    tokens = int(valid.sum())
    weights = advantages.reshape(-1, 1) * valid
    parameters = list(policy.model.parameters())
    total = [torch.zeros_like(parameter) for parameter in parameters]
    squares = 0.0
    surprise = 0.0
    sizes = []
    for places in torch.arange(prompts).tensor_split(micro_batches):
        first_row = int(places[0]) * responses_per_prompt
        size = len(places) * responses_per_prompt
        rows = slice(first_row, first_row + size)
        micro_batch = rollout.prompts._replace(
            tokens=rollout.prompts.tokens[places],
            mask=rollout.prompts.mask[places],
        )
        log_probs = policy.log_probs(micro_batch, rollout.responses[rows])
        loss = -(log_probs * weights[rows]).sum() / tokens
        surprise -= float((log_probs.detach() * valid[rows]).sum())
        gradients = torch.autograd.grad(loss, parameters)
        torch._foreach_add_(total, gradients)
        squares += _squared_norm(gradients)
        sizes.append(size)
    for parameter, gradient in zip(parameters, total, strict=True):
        parameter.grad = gradient
    sums = GradientSums(
        squares=squares,
        square_of_sum=_squared_norm(total),
        responses=sum(sizes),
        squared_responses=sum(size**2 for size in sizes),
    )
    return PolicyGradient(sums, entropy=surprise / tokens)


def _squared_norm(gradients: Sequence[Tensor]) -> float:
    norms = torch._foreach_norm(list(gradients))
    return float(sum(norm.double() ** 2 for norm in norms))
