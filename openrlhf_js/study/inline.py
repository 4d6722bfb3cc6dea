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

from openrlhf_js.estimators import ESTIMATORS, LiveEstimator, key_of
from openrlhf_js.estimators.gradient import GradientMoments, GradientSums
from openrlhf_js.study.design import TRACKER, Run, StudySettings
from openrlhf_js.study.figures import Figures, learning_curve
from openrlhf_js.study.prompts import held_out_pass1, training_problems
from openrlhf_js.study.rollout import Rollout, pass_rates, sample, valid_tokens
from openrlhf_js.study.value_tracker import ValueTracker
from openrlhf_js.tiny.policy import PaddedPrompts, TinyPolicy, load
from openrlhf_js.tiny.tasks import SOLVED, TASKS, UNSOLVABLE, Problem

STEPS_PER_MEASUREMENT = 5  # of the gradient's variance
MICRO_BATCHES = 4  # of a step whose gradient is measured
SEEDS_PER_RUN = 100_003  # more than steps, so that no two runs share a step's seed


class Step(NamedTuple):
    """What one step logs."""

    reward: float  # mean over the prompts that can be learned
    logged: dict[str, float]  # of its estimator
    gradient: GradientMoments | None


def train(run: Run, settings: StudySettings) -> Figures:
    """Trains from the warm start, and returns what was measured."""
    problems = training_problems(run, settings)
    policy = load(settings.start_of(run.task))
    training = Training(run, settings, policy, problems)
    steps = []
    for number in range(settings.steps):
        batch = problems[number * run.prompts : (number + 1) * run.prompts]
        steps.append(training.step(number, batch))
    gradients = [step.gradient for step in steps if step.gradient is not None]
    variance = fmean(gradient.variance for gradient in gradients)
    mean_square = fmean(gradient.mean_square for gradient in gradients)
    error = sum(step.logged["js/baseline_mse"] for step in steps)
    rloo_error = sum(step.logged["js/baseline_mse_rloo"] for step in steps)
    known_error = rloo_error > 0 and run.estimator != TRACKER
    rewards = [step.reward for step in steps]
    return Figures(
        pass1=held_out_pass1(run.task, settings, policy),
        reward=fmean(rewards),
        curve=learning_curve(rewards),
        steps=settings.steps,
        dead=fmean(step.logged["js/all_equal_groups"] for step in steps),
        baseline_error=error / rloo_error if known_error else None,
        gradient_variance=variance,
        gradient_snr=mean_square / variance if variance > 0 else None,
        spread=_spread(steps[-max(1, len(steps) // 4) :]),
    )


class Training:
    """A policy in training, with its optimizer and what its estimator remembers."""

    def __init__(
        self, run: Run, settings: StudySettings, policy: TinyPolicy, problems: Sequence[Problem]
    ):
        self.run = run
        self.task = TASKS[run.task]
        self.policy = policy
        self.optimizer = torch.optim.AdamW(
            policy.model.parameters(),
            lr=run.learning_rate,
            betas=(0.9, 0.95),
            weight_decay=0,
            fused=True,
        )
        self.tracker: ValueTracker | None = None
        if run.estimator == TRACKER:
            self.estimator = LiveEstimator("bloo")  # whose figures are logged
            self._start_tracker(problems, settings.offline)
        else:
            self.estimator = LiveEstimator(run.estimator)
            if self.estimator.memory is not None and settings.offline:
                self._start_memory(problems, settings.offline)

    def _start_tracker(self, problems: Sequence[Problem], samples: int) -> None:
        distinct = list(dict.fromkeys(problems))
        right = torch.zeros(len(distinct), dtype=torch.float64)
        if samples:
            right = samples * self._pass_rates(distinct, samples)
        self.tracker = ValueTracker(_keys(distinct), right, samples)

    def _start_memory(self, problems: Sequence[Problem], samples: int) -> None:
        assert self.estimator.memory is not None
        distinct = list(dict.fromkeys(problems))
        rates = self._pass_rates(distinct, samples)
        rewards = rates[:, None].expand(-1, samples)  # with the same sums as the responses' own
        self.estimator.memory.learn(_keys(distinct), rewards, step=0)

    def _pass_rates(self, problems: Sequence[Problem], samples: int) -> Tensor:
        rates = pass_rates(self.policy, self.task, problems, samples)
        return torch.tensor(rates, dtype=torch.float64)

    def step(self, number: int, problems: Sequence[Problem]) -> Step:
        """Samples responses to a batch of problems, and updates the policy once."""
        seed = self.run.seed * SEEDS_PER_RUN + number
        rollout = sample(
            self.policy,
            self.task,
            problems,
            self.run.responses,
            torch.Generator().manual_seed(seed),
            greedy=self.tracker is None and ESTIMATORS[self.run.estimator].needs_greedy,
        )
        keys = _keys(problems)
        batch = self.estimator.batch(
            rollout.rewards, greedy_rewards=rollout.greedy_rewards, keys=keys, step=number
        )
        estimate = self.estimator.estimate(batch)
        self.estimator.learn(batch)
        advantages = estimate.advantages
        if self.tracker is not None:
            advantages = self.tracker.advantages(keys, rollout.rewards)
            self.tracker.update(keys, rollout, self.policy)
        micro_batches = 1
        if number % STEPS_PER_MEASUREMENT == 0:
            micro_batches = min(MICRO_BATCHES, self.run.prompts)
        gradient = set_gradient(self.policy, rollout, advantages.float(), micro_batches)
        torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), 1.0)
        self.optimizer.step()
        return Step(
            reward=_learnable_reward(problems, rollout.rewards),
            logged=self.estimator.describe(batch, estimate),
            gradient=gradient.moments(),
        )


def _keys(problems: Sequence[Problem]) -> Tensor:
    return torch.tensor([key_of(problem.prompt, problem.label) for problem in problems])


def _learnable_reward(problems: Sequence[Problem], rewards: Tensor) -> float:
    """Mean over the problems that are neither solved by anything nor unsolvable."""
    learnable = [
        place for place, problem in enumerate(problems) if problem.label not in (SOLVED, UNSOLVABLE)
    ]
    return float(rewards[learnable].mean())


def set_gradient(
    policy: TinyPolicy, rollout: Rollout, advantages: Tensor, micro_batches: int
) -> GradientSums:
    """Sets the gradient of the loss, added up over micro-batches of whole prompt groups."""
    prompts, responses_per_prompt = advantages.shape
    valid = valid_tokens(policy, rollout.responses)
    tokens = int(valid.sum())
    parameters = list(policy.model.parameters())
    total = [torch.zeros_like(parameter) for parameter in parameters]
    squares = 0.0
    sizes = []
    for places in torch.arange(prompts).tensor_split(micro_batches):
        size = len(places) * responses_per_prompt
        first = int(places[0]) * responses_per_prompt
        rows = slice(first, first + size)
        micro_batch = PaddedPrompts(rollout.prompts.tokens[places], rollout.prompts.mask[places])
        log_probs = policy.log_probs(micro_batch, rollout.responses[rows])
        weights = advantages[places].reshape(-1, 1)
        loss = -(log_probs * weights * valid[rows]).sum() / tokens
        gradients = torch.autograd.grad(loss, parameters)
        torch._foreach_add_(total, gradients)
        squares += _squared_norm(gradients)
        sizes.append(size)
    for parameter, gradient in zip(parameters, total, strict=True):
        parameter.grad = gradient
    return GradientSums(
        squares=squares,
        square_of_sum=_squared_norm(total),
        responses=sum(sizes),
        squared_responses=sum(size**2 for size in sizes),
    )


def _squared_norm(gradients: Sequence[Tensor]) -> float:
    norms = torch._foreach_norm(list(gradients))
    return float(sum(norm.double() ** 2 for norm in norms))


def _spread(steps: Sequence[Step]) -> float:
    """Standard deviation of the prompts' values in these steps.

    That of the means has the noise of m responses in it, which is taken off.
    """
    net = fmean(
        step.logged["js/between_variance"] - step.logged["js/within_variance"] for step in steps
    )
    return float(max(net, 0.0) ** 0.5)
