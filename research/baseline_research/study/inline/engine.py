"""The inline engine: trains a tiny model with REINFORCE in this process, for laptops.

With one update per batch, OpenRLHF's clipped objective is the plain policy gradient. The other
settings are those of the quickstart's training: AdamW (0.9, 0.95), a learning rate that is constant
after its warm-up, gradient norm clipped at 1, mean over tokens, temperature 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from baseline_research.study.design import InlineStudy
from baseline_research.study.figures import Figures, learning_curve
from baseline_research.study.inline.prompts import (
    held_out_greedy,
    held_out_rates,
    policy_in,
    training_batches,
)
from baseline_research.study.inline.training import Step, Training
from baseline_research.study.runs import Run
from baseline_research.tiny.policy import TinyPolicy
from paired_eval.stats import pass_at_k

LATE_SHARE = 4  # the last fourth of the steps
ROUNDING = 1e-3  # of a number of right responses, from a mean in float32


def silent(note: str) -> None:
    """Shows no progress."""


def train(run: Run, settings: InlineStudy, note: Callable[[str], None] = silent) -> Figures:
    """Trains from the warm start, and returns what was measured; `note` gets the progress."""
    return train_policy(policy_in(settings.start_of(run.task), settings), run, settings, note)


def train_policy(
    policy: TinyPolicy, run: Run, settings: InlineStudy, note: Callable[[str], None] = silent
) -> Figures:
    """Trains a policy in place, and returns what was measured; `note` gets the progress."""
    training = Training(run, policy, settings)
    steps: list[Step] = []
    for number, problems in enumerate(training_batches(run, settings)):
        note(f"{run.name}, step {number} of {settings.steps}")
        steps.append(training.step(number, problems))
    rates = held_out_rates(run.task, settings, policy)
    greedy = held_out_greedy(run.task, settings, policy)
    return _figures(steps, rates, greedy, settings.samples, groups=len(steps) * run.prompts)


def _figures(
    steps: Sequence[Step], rates: list[float], greedy: float, samples: int, groups: int
) -> Figures:
    """The figures of these steps of `groups` groups, and of held-out prompts after them."""
    gradients = [step.gradient for step in steps if step.gradient is not None]
    variance = fmean(gradient.variance for gradient in gradients)
    mean_square = fmean(gradient.mean_square for gradient in gradients)
    rloo_error = sum(_logged(steps, "js/value_error_rloo"))
    baseline_error = None
    if rloo_error > 0 and "js/value_error" in steps[0].logged:
        baseline_error = sum(_logged(steps, "js/value_error")) / rloo_error
    rewards = [step.reward for step in steps]
    late_steps = steps[-max(1, len(steps) // LATE_SHARE) :]
    return Figures(
        pass1=fmean(rates),
        pass4=pass_at(4, rates, samples),
        pass16=pass_at(16, rates, samples),
        greedy=greedy,
        reward=fmean(rewards),
        curve=learning_curve(rewards),
        steps=len(steps),
        dead=sum(step.equal_groups for step in steps) / groups,
        baseline_error=baseline_error,
        gradient_variance=variance,
        gradient_snr=mean_square / variance if variance else None,
        length=fmean(step.length for step in late_steps),
        entropy=fmean(step.entropy for step in late_steps),
    )


def pass_at(tries: int, rates: Sequence[float], samples: int) -> float | None:
    """pass@`tries` from pass rates, which are exact with 0 samples.

    None if there are fewer samples, or if a rate is no count of right responses.
    """
    if not samples:
        return fmean(1 - (1 - rate) ** tries for rate in rates)
    counts = [round(rate * samples) for rate in rates]
    are_counts = all(
        abs(count - rate * samples) < ROUNDING for count, rate in zip(counts, rates, strict=True)
    )
    if tries > samples or not are_counts:
        return None
    return float(pass_at_k([samples] * len(counts), counts, tries).mean())


def _logged(steps: Sequence[Step], name: str) -> list[float]:
    return [step.logged[name] for step in steps]
