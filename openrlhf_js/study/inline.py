"""The inline engine: REINFORCE of a tiny model in this process, for laptops.

One update a batch, so that the clipped objective of OpenRLHF is the plain policy gradient; the
other settings are those of the quickstart's training: AdamW (0.9, 0.95), constant learning rate,
gradient norm clipped at 1, mean over tokens, temperature 1.
"""

from __future__ import annotations

import itertools
from bisect import bisect
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
from openrlhf_js.study.rollout import (
    Rollout,
    joined,
    kept_groups,
    mixed_groups,
    sample,
    valid_tokens,
)
from openrlhf_js.study.run_estimator import RunEstimator
from openrlhf_js.study.tasks import STUDY_TASKS
from openrlhf_js.tiny.policy import TinyPolicy
from openrlhf_js.tiny.tasks import SOLVED, UNSOLVABLE, Problem

STEPS_PER_MEASUREMENT = 5  # of the gradient's variance
MICRO_BATCHES = 4  # of a step whose gradient is measured
SEEDS_PER_RUN = 100_003  # more than steps, so that no two runs share a step's seed
LATE_SHARE = 4  # of the steps: the last fourth
EVALUATION_SAMPLES = 2  # to each held-out prompt, during training


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


class Groups(NamedTuple):
    """What one step has sampled, and what of it is trained on."""

    sampled_problems: list[Problem]
    sampled_rewards: Tensor  # (n, m)
    problems: list[Problem]
    rollout: Rollout
    weights: Tensor  # (n,) of the problems' advantages


def train(run: Run, settings: StudySettings) -> Figures:
    """Trains from the warm start, and returns what was measured."""
    policy = policy_in(settings.start_of(run.task), settings)
    order = problem_order(run, settings)
    estimator = RunEstimator(settings.estimator_name(run.estimator), policy)
    estimator.start(STUDY_TASKS[run.task], order.problems, settings.offline)
    training = Training(run, policy, estimator, groups=run.prompts * settings.steps)
    evaluations = Evaluations(run, settings, policy)
    steps: list[Step] = []
    while training.groups_left:
        steps.append(training.step(len(steps), order))
        evaluations.after(training.groups_left)
    pass1 = held_out_pass1(run.task, settings, policy, settings.samples)
    figures = _figures(steps, pass1, settings.steps)
    return figures._replace(
        updates=training.updates if order.filters else None,
        pass1_curve=evaluations.curve or None,
        **order.figures()._asdict(),
    )


class Evaluations:
    """pass@1 at equal distances in sampled responses."""

    def __init__(self, run: Run, settings: StudySettings, policy: TinyPolicy):
        self.curve: list[tuple[int, float]] = []
        self._run = run
        self._settings = settings
        self._policy = policy
        self._groups = run.prompts * settings.steps

    def after(self, groups_left: int) -> None:
        """Measures pass@1 if enough was sampled since the last time, and the training goes on."""
        groups = self._groups - groups_left
        due = groups * (self._settings.evaluations + 1) // self._groups > len(self.curve)
        if due and groups_left:
            samples = min(EVALUATION_SAMPLES, self._settings.samples)
            pass1 = held_out_pass1(self._run.task, self._settings, self._policy, samples)
            self.curve.append((groups * self._run.responses, pass1))


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
        policy = {"length": lengths.mean().item(), "entropy": gradient.entropy}
        return step._replace(logged=estimated.logged | policy, gradient=gradient.sums.moments())

    def _sample(self, number: int, order: ProblemOrder) -> Groups:
        """Groups for one step; where equal ones are dropped, in as many rounds as it takes."""
        generator = torch.Generator().manual_seed(self.run.seed * SEEDS_PER_RUN + number)
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
        return Groups(
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


def _figures(steps: Sequence[Step], pass1: float, batches: int) -> Figures:
    """What was measured in these steps, which sampled so many batches, and after them."""
    updates = [step for step in steps if step.logged]
    gradients = [step.gradient for step in updates if step.gradient is not None]
    variance = mean_square = None
    if gradients:  # of several updates the first is measured, if it has groups enough
        variance = fmean(gradient.variance for gradient in gradients)
        mean_square = fmean(gradient.mean_square for gradient in gradients)
    rloo_error = sum(_logged(updates, "js/baseline_mse_rloo"))
    baseline_error = None
    if rloo_error > 0 and "js/baseline_mse" in updates[0].logged:
        baseline_error = sum(_logged(updates, "js/baseline_mse")) / rloo_error
    rewards = _rewards_by_batch(steps, batches)
    late_steps = updates[-max(1, len(updates) // LATE_SHARE) :]
    sampled_groups = sum(step.sampled_groups for step in steps)
    return Figures(
        pass1=pass1,
        reward=fmean(rewards),
        curve=learning_curve(rewards),
        steps=batches,
        dead=sum(step.equal_groups for step in steps) / sampled_groups,
        baseline_error=baseline_error,
        gradient_variance=variance,
        gradient_snr=mean_square / variance if variance and mean_square is not None else None,
        spread=_spread(late_steps) if late_steps else None,
        length=fmean(_logged(late_steps, "length")) if late_steps else None,
        entropy=fmean(_logged(late_steps, "entropy")) if late_steps else None,
    )


def _rewards_by_batch(steps: Sequence[Step], batches: int) -> list[float]:
    """The reward of the step in which each batch of responses was sampled, where it has any."""
    ends = list(itertools.accumulate(step.sampled_groups for step in steps))
    rewards = []
    for batch in range(batches):
        middle = (batch + 0.5) * ends[-1] / batches
        reward = steps[bisect(ends, middle)].reward
        if reward is not None:
            rewards.append(reward)
    return rewards


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
        log_probs = policy.log_probs(rollout.prompts.at(places), rollout.responses[rows])
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
