"""Trains with whole batches and with one prompt group at a time, in time and up to 8 steps late.

.venv/bin/python research/studies/online.py OUT     # a quarter of an hour of a core; resumes

A late group trains the policy of that time, with the plain gradient (no importance ratios), under
every estimator alike. Prompts, delays and the start are the same for all runs of a seed.
"""

import argparse
import json
import random
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from baseline_research.markdown_table import print_table
from baseline_research.study.design import InlineStudy
from baseline_research.study.inline.prompts import (
    held_out_pass1,
    policy_in,
    training_batches,
    warm_start,
)
from baseline_research.study.inline.rollout import Rollout, sample, valid_tokens
from baseline_research.study.inline.training import (
    SEEDS_PER_RUN,
    Training,
    keys_of,
    set_gradient,
)
from baseline_research.study.runs import Run
from baseline_research.tiny.record import Problem
from openrlhf_js.estimators import LiveEstimator, OnlineBaseline, advantage, squared_score_norms
from paired_eval.stats import clustered_mean, paired_difference

TASK = "sort"
LONGEST_DELAYS = (0, 8)  # steps
SEEDS = range(100, 105)
STEPS = 60
FIRST_STEPS = 10  # without a past, or with a short one
DONE = "online.json"


class SampledGroup(NamedTuple):
    """A prompt group, from when it is sampled until it trains."""

    step: int
    problem: Problem
    responses: Tensor  # (m, T)
    log_probs: Tensor  # (m, T)
    weights: Tensor  # (m,)
    rewards: Tensor  # (m,)


class WholeBatches:
    """The groups that train in a step are one batch."""

    def __init__(self, estimator: str):
        self.live = LiveEstimator(estimator)

    def begin(self, step: int) -> None:
        pass

    def advantages(self, groups: list[SampledGroup]) -> Tensor:
        """(n, m)"""
        batch = self.live.batch(
            torch.stack([group.rewards for group in groups]),
            squared_score_norms=torch.stack([group.weights for group in groups]),
            keys=keys_of([group.problem for group in groups]),
        )
        advantages = self.live.estimate(batch).advantages
        self.live.learn(batch)
        return advantages


class OneAtATime:
    """Each group is handed over alone, with or without its step."""

    def __init__(self, *, steps_known: bool):
        self.online = OnlineBaseline("js_grad")
        self.steps_known = steps_known

    def begin(self, step: int) -> None:
        if self.steps_known:
            self.online.begin(step)

    def advantages(self, groups: list[SampledGroup]) -> Tensor:
        """(n, m)"""
        return torch.stack([self._advantages(group) for group in groups])

    def _advantages(self, group: SampledGroup) -> Tensor:
        return self.online.advantages(
            f"{group.problem.prompt} {group.problem.label}",
            group.rewards,
            score_weights=group.weights,
            step=group.step if self.steps_known else None,
        )


FORMS: dict[str, Callable[[], WholeBatches | OneAtATime]] = {
    "`rloo`": lambda: WholeBatches("rloo"),
    "`js_grad`, whole batches": lambda: WholeBatches("js_grad"),
    "`js_grad`, one group at a time": lambda: OneAtATime(steps_known=True),
    "the same without `step`": lambda: OneAtATime(steps_known=False),
}


def train(form: str, longest_delay: int, seed: int, start: Path, settings: InlineStudy) -> dict:
    """pass@1 after training, and the noise sum w A^2 of its gradients over that with `rloo`."""
    run = Run(
        task=TASK,
        mix="natural",
        prompts=16,
        responses=2,
        estimator="rloo",
        learning_rate=2e-4,
        seed=seed,
    )
    policy = policy_in(start, settings)
    training = Training(run, policy, settings)
    batches = training_batches(run, settings)
    delays = random.Random(seed)
    advantages_of = FORMS[form]()
    arriving: dict[int, list[SampledGroup]] = {step: [] for step in range(settings.steps + 9)}
    noise: list[float] = []
    noise_of_rloo: list[float] = []
    for step in range(settings.steps):
        advantages_of.begin(step)
        for group in sampled(training, batches[step], step):
            arriving[step + delays.randint(0, longest_delay)].append(group)
        groups = arriving[step]
        if not groups:
            continue
        advantages = advantages_of.advantages(groups)
        update(training, groups, advantages.float())
        weights = torch.stack([group.weights for group in groups])
        rewards = torch.stack([group.rewards for group in groups])
        noise.append(float((weights * advantages.square()).sum()))
        noise_of_rloo.append(float((weights * advantage("rloo", rewards).square()).sum()))
    return {
        "pass1": held_out_pass1(TASK, settings, policy),
        "noise": sum(noise) / sum(noise_of_rloo),
        "later_noise": sum(noise[FIRST_STEPS:]) / sum(noise_of_rloo[FIRST_STEPS:]),
    }


def sampled(training: Training, problems: list[Problem], step: int) -> list[SampledGroup]:
    """A group for each problem, from the policy as it is."""
    run, policy = training.run, training.policy
    generator = policy.generator(run.seed * SEEDS_PER_RUN + step)
    rollout = sample(policy, training.task, problems, run.responses, generator)
    shape = rollout.rewards.shape
    columns = zip(
        problems,
        rollout.responses.unflatten(0, shape),
        rollout.log_probs.unflatten(0, shape),
        squared_score_norms(rollout.log_probs, rollout.valid).view(shape),
        rollout.rewards,
        strict=True,
    )
    return [SampledGroup(step, *values) for values in columns]


def update(training: Training, groups: list[SampledGroup], advantages: Tensor) -> None:
    """One step of the optimizer."""
    policy = training.policy
    responses = [response for group in groups for response in group.responses]
    log_probs = [response for group in groups for response in group.log_probs]
    padding = policy.tokenizer.pad_token_id
    padded = pad_sequence(responses, batch_first=True, padding_value=padding)
    rollout = Rollout(
        prompts=policy.prompts([group.problem.prompt for group in groups]),
        responses=padded,
        valid=valid_tokens(policy, padded),
        log_probs=pad_sequence(log_probs, batch_first=True),
        rewards=torch.stack([group.rewards for group in groups]),
        greedy_rewards=None,
    )
    set_gradient(policy, rollout, advantages, micro_batches=1)
    torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
    training.optimizer.step()


def print_results(found: dict[str, dict]) -> None:
    """pass@1, points over `rloo` with 95 % intervals, and the noise in percent of `rloo`'s."""
    columns = ("Groups come", "Advantages", "pass@1", "over `rloo`", "low", "high")
    columns += ("noise, % of `rloo`'s", f"after {FIRST_STEPS} steps")
    rows = []
    for delay in LONGEST_DELAYS:
        reference = percent(found, "pass1", "`rloo`", delay)
        for form in FORMS:
            pass1 = percent(found, "pass1", form, delay)
            gain = paired_difference(pass1, reference, SEEDS)
            noise = clustered_mean(percent(found, "noise", form, delay), SEEDS)
            later = clustered_mean(percent(found, "later_noise", form, delay), SEEDS)
            cells = [
                when(delay),
                form,
                f"{fmean(pass1):.1f}",
                *(f"{gain.value:+.1f}", f"{gain.low:.1f}", f"{gain.high:.1f}"),
                f"{noise.value:.1f} ({noise.low:.1f} to {noise.high:.1f})",
                f"{later.value:.1f} ({later.low:.1f} to {later.high:.1f})",
            ]
            if form == "`rloo`":
                cells[3:] = ["", "", "", "100", "100"]
            rows.append(cells)
    print_table(columns, rows, text_columns=2)


def print_cost(found: dict[str, dict]) -> None:
    """Points of pass@1 of one group at a time over whole batches."""
    for delay in LONGEST_DELAYS:
        whole, alone = (
            percent(found, "pass1", form, delay)
            for form in ("`js_grad`, whole batches", "`js_grad`, one group at a time")
        )
        cost = paired_difference(alone, whole, SEEDS)
        print(
            f"One group at a time over whole batches, {when(delay)}: "
            f"{cost.value:+.1f} points ({cost.low:.1f} to {cost.high:.1f})"
        )


def when(delay: int) -> str:
    return f"up to {delay} steps late" if delay else "in time"


def percent(found: dict[str, dict], quantity: str, form: str, delay: int) -> list[float]:
    """One number a seed."""
    return [100 * found[name_of(form, delay, seed)][quantity] for seed in SEEDS]


def name_of(form: str, delay: int, seed: int) -> str:
    return f"{form}, delay {delay}, seed {seed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    settings = InlineStudy(out=out, tasks=[TASK], steps=STEPS)
    start = warm_start(TASK, settings)
    path = out / DONE
    found = json.loads(path.read_text()) if path.is_file() else {}
    for seed in SEEDS:
        for delay in LONGEST_DELAYS:
            for form in FORMS:
                name = name_of(form, delay, seed)
                if name not in found:
                    print(name, flush=True)
                    found[name] = train(form, delay, seed, start, settings)
                    path.write_text(json.dumps(found))
    print_results(found)
    print_cost(found)


if __name__ == "__main__":
    main()
