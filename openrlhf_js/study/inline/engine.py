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

from openrlhf_js.study.design import UNIFORM, Run, StudySettings, selection_of
from openrlhf_js.study.figures import Figures, learning_curve
from openrlhf_js.study.inline.greso import SkippingOrder
from openrlhf_js.study.inline.order import ChosenOrder, ProblemOrder
from openrlhf_js.study.inline.prompts import (
    distinct_problems,
    held_out_pass1,
    policy_in,
    problem_stream,
    training_problems,
)
from openrlhf_js.study.inline.run_estimator import RunEstimator
from openrlhf_js.study.inline.training import Step, Training
from openrlhf_js.study.tasks import STUDY_TASKS
from openrlhf_js.tiny.policy import TinyPolicy

LATE_SHARE = 4  # of the steps: the last fourth
EVALUATION_SAMPLES = 2  # to each held-out prompt, during training


def train(run: Run, settings: StudySettings) -> Figures:
    """Trains from the warm start, and returns what was measured."""
    return train_policy(policy_in(settings.start_of(run.task), settings), run, settings)


def train_policy(policy: TinyPolicy, run: Run, settings: StudySettings) -> Figures:
    """Trains a policy in place, and returns what was measured."""
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
        **order.figures(),
    )


def problem_order(run: Run, settings: StudySettings) -> ProblemOrder:
    """The order of a run's problems, as its estimator's label says."""
    selection = selection_of(run.estimator)
    if selection in (UNIFORM, "dynamic"):
        problems = training_problems(run, settings)
        return ProblemOrder(problems, problems, filters=selection == "dynamic")
    problems = distinct_problems(run, settings)
    if selection == "greso":
        return SkippingOrder(problems, problem_stream(run, settings), seed=run.seed)
    return ChosenOrder(problems, run.prompts, seed=run.seed, selection=selection)


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


def _figures(steps: Sequence[Step], pass1: float, batches: int) -> Figures:
    """What was measured in these steps, which sampled so many batches, and after them."""
    updates = [step for step in steps if step.logged]
    gradients = [step.gradient for step in updates if step.gradient is not None]
    variance = None
    signal_to_noise = None
    if gradients:  # none where filters left single groups in every step that was to be measured
        variance = fmean(gradient.variance for gradient in gradients)
        mean_square = fmean(gradient.mean_square for gradient in gradients)
        if variance:
            signal_to_noise = mean_square / variance
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
        gradient_snr=signal_to_noise,
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
