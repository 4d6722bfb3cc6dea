"""The inline engine: REINFORCE of a tiny model in this process, for laptops.

One update a batch, so that the clipped objective of OpenRLHF is the plain policy gradient; the
other settings are those of the quickstart's training: AdamW (0.9, 0.95), constant learning rate,
gradient norm clipped at 1, mean over tokens, temperature 1.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from openrlhf_js.common.files import atomic_write
from openrlhf_js.estimators import ESTIMATORS, LiveEstimator, key_of
from openrlhf_js.estimators.gradient import GradientSums
from openrlhf_js.study.design import TRACKER, Run, StudySettings
from openrlhf_js.tiny import model
from openrlhf_js.tiny.policy import PaddedPrompts, TinyPolicy, load
from openrlhf_js.tiny.tasks import (
    SOLVED,
    TASKS,
    UNSOLVABLE,
    Problem,
    TinySplit,
    TinyTask,
    draw,
    value_of,
)

SAMPLING_SEED = 0  # of what is measured, the same for all runs
SCREENED, SCREENING_SAMPLES = 1500, 16  # prompts of which the mix `alike` takes the middle third
MEASURED_EVERY, PARTS = 5, 4  # steps between two measurements of the gradient; micro-batches
POINTS = 20  # of a learning curve at most, each a mean over steps


class Rollout(NamedTuple):
    """One step's prompts with their responses and rewards."""

    prompts: PaddedPrompts  # (n, P)
    responses: Tensor  # (n * m, T)
    rewards: Tensor  # (n, m)
    greedy: Tensor | None  # (n,)


def warm_start(task: str, settings: StudySettings, on_step: Callable[[int], None]) -> Path:
    """The folder of the model that all runs of a task start from; made if it is not there."""
    folder = settings.start_of(task)
    if not folder.is_dir():
        partial = folder.with_name(f".{folder.name}.{os.getpid()}")
        model.warm_start(
            *(partial, TASKS[task], _split(task, settings).train),
            seed=settings.start_seed,
            width=settings.width,
            layers=settings.layers,
            on_step=lambda step, loss: on_step(step),
        )
        partial.rename(folder)
    return folder


def alike(task: str, settings: StudySettings) -> list[str]:
    """The middle third of the training prompts by pass rate under the warm start."""
    path = settings.start_of(task) / "alike.txt"
    if not path.is_file():
        tiny, policy = TASKS[task], load(path.parent)
        items = draw(_split(task, settings).train, SCREENED, random.Random(SAMPLING_SEED))
        listed = [Problem(tiny.prompt(item), tiny.label(item)) for item in items]
        rates = pass_rates(policy, tiny, listed, SCREENING_SAMPLES)
        ranked = sorted(range(len(items)), key=lambda i: (rates[i], i))
        kept = {listed[i].prompt for i in ranked[SCREENED // 3 : 2 * SCREENED // 3]}
        with atomic_write(path) as file:
            file.write("\n".join(sorted(kept)).encode())
    return path.read_text(encoding="utf-8").split("\n")


def _split(task: str, settings: StudySettings) -> TinySplit:
    return _drawn_split(task, settings.start_seed, settings.held_out)


@cache
def _drawn_split(task: str, seed: int, held_out: int) -> TinySplit:
    return TASKS[task].split(seed, held_out)


def problems(run: Run, settings: StudySettings) -> list[Problem]:
    """The prompts and labels of a run, in order; those of its seed, whatever trains on them."""
    task, rng = TASKS[run.task], random.Random(run.seed)
    kinds = _split(run.task, settings).train
    if run.mix == "alike":
        kept = set(alike(run.task, settings))
        kinds = [[item for kind in kinds for item in kind if task.prompt(item) in kept]]
    count = run.prompts * settings.steps
    drawn = draw(kinds, settings.distinct or count, rng)
    found = [Problem(task.prompt(item), task.label(item)) for item in drawn]
    if run.mix == "mixed":
        labels = (None, SOLVED, UNSOLVABLE)
        found = [each._replace(label=labels[i % 3] or each.label) for i, each in enumerate(found)]
    if not settings.distinct:
        return found
    parts = 3 if run.mix == "mixed" else 1  # of which every batch has its share
    ordered: list[Problem] = []
    while len(ordered) < count:
        shuffled = [rng.sample(own, len(own)) for own in (found[k::parts] for k in range(parts))]
        ordered += [shuffled[i % parts][i // parts] for i in range(len(found))]
    return ordered[:count]


def pass_rates(
    policy: TinyPolicy, task: TinyTask, given: Sequence[Problem], samples: int
) -> list[float]:
    """The mean score of each problem's samples."""
    generator, rates = torch.Generator().manual_seed(SAMPLING_SEED), []
    for start in range(0, len(given), 100):
        some = given[start : start + 100]
        prompts = policy.prompts([each.prompt for each in some])
        drawn = policy.sample(prompts, samples, task.max_new_tokens, generator)
        rates += _grade(policy, task, some, drawn).mean(1).tolist()
    return rates


def _grade(
    policy: TinyPolicy, task: TinyTask, given: Sequence[Problem], responses: Tensor
) -> Tensor:
    """(n, m) rewards."""
    texts, each = policy.texts(responses), len(responses) // len(given)
    scores = [value_of(task, text, given[i // each].label) for i, text in enumerate(texts)]
    return torch.tensor(scores).view(len(given), each)


def train(run: Run, settings: StudySettings) -> dict[str, Any]:
    """Trains from the warm start, and returns the run's record."""
    task, policy = TASKS[run.task], load(settings.start_of(run.task))
    parameters = list(policy.model.parameters())
    optimizer = torch.optim.AdamW(
        parameters, lr=run.learning_rate, betas=(0.9, 0.95), weight_decay=0, fused=True
    )
    given = problems(run, settings)
    steps: list[dict[str, float]] = []
    moments = []
    tracker = None
    # of the tracker, bloo's figures are logged
    live = LiveEstimator("bloo" if run.estimator == TRACKER else run.estimator)
    if (live.memory is not None and settings.offline) or run.estimator == TRACKER:
        kinds = list(dict.fromkeys(given))
        known, count = torch.tensor([key_of(*each) for each in kinds]), settings.offline
        rates = pass_rates(policy, task, kinds, count) if count else [0.0] * len(kinds)
        right = count * torch.tensor(rates, dtype=torch.float64)
        if live.memory is None:
            tracker = ValueTracker(known, right, count)
        else:
            live.memory.learn(known, (right / count)[:, None].expand(-1, count), step=0)
    for step in range(settings.steps):
        now = given[step * run.prompts : (step + 1) * run.prompts]
        generator = torch.Generator().manual_seed(run.seed * 100_003 + step)
        batch = _sample(policy, task, now, run, generator)
        keys = torch.tensor([key_of(*each) for each in now])
        group = live.batch(batch.rewards, greedy_rewards=batch.greedy, keys=keys, step=step)
        result = live.estimate(group)
        weights = result.advantages
        live.learn(group)
        if tracker:
            weights = tracker.advantage(keys, batch.rewards)
            tracker.update(keys, batch, policy)
        optimizer.zero_grad()
        measured = step % MEASURED_EVERY == 0
        sums = _backward(policy, batch, weights.float(), min(PARTS, run.prompts) if measured else 1)
        if measured and (found := sums.moments()):
            moments.append(found)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        logged = live.describe(group, result)
        real = [i for i, each in enumerate(now) if each.label not in (SOLVED, UNSOLVABLE)]
        steps.append({"reward": float(batch.rewards[real].mean()), **logged})
    ours, rloos = (sum(each[f"js/baseline_mse{of}"] for each in steps) for of in ("", "_rloo"))
    variance, square = (fmean(each) for each in zip(*moments, strict=True))
    return {
        **run._asdict(),
        "pass1": final(run.task, settings, policy),
        "reward": fmean(each["reward"] for each in steps),
        "curve": curve([each["reward"] for each in steps]),
        "steps": settings.steps,
        "dead": fmean(each["js/all_equal_groups"] for each in steps),
        "baseline_error": ours / rloos if rloos > 0 and not tracker else None,
        "gradient_variance": variance,
        "gradient_snr": square / variance if variance > 0 else None,
        "spread": _spread(steps[-max(1, len(steps) // 4) :]),
    }


class ValueTracker:
    """The baseline of Single-stream Policy Optimization (Xu and Ding, 2025): the past alone.

    A prompt's value is a / (a + b), at first of `study --offline` responses. A visit multiplies
    both by rho = 2^(-D / 0.06) and adds its right and its wrong responses; D is the mean absolute
    change of the log-probabilities of the last visit's tokens. Advantages are normalised over the
    batch. Constants and D are those of the authors' recipe; its sampling of uncertain prompts is
    left out, so that all estimators train on the same ones.
    """

    LOWEST, HIGHEST, HALF = 0.875, 0.96, 0.06

    def __init__(self, keys: Tensor, right: Tensor, samples: int):
        """Of `samples` earlier responses to each prompt (n,), so many (n,) have been right."""
        weight = 1 / (1 - self.LOWEST) if samples else 1
        counts = (torch.stack([right, samples - right], 1) + 0.5) / (samples + 1) * weight
        self.counts = dict(zip(keys.tolist(), counts, strict=True))
        self.visits: dict[int, tuple[Tensor, Tensor]] = {}  # tokens and log-probabilities (m, T)

    def advantage(self, keys: Tensor, rewards: Tensor) -> Tensor:
        """(n, m) before the update."""
        known = torch.stack([self.counts[key] for key in keys.tolist()])
        found = rewards - known[:, :1] / known.sum(1, keepdim=True)
        return (found - found.mean()) / (found.std() + 1e-8)

    @torch.no_grad()
    def update(self, keys: Tensor, batch: Rollout, policy: TinyPolicy) -> None:
        """Adds a step's responses."""
        n, m = batch.rewards.shape
        now = policy.log_probs(batch.prompts, batch.responses)
        own = list(zip(batch.responses.split(m), now.split(m), strict=True))
        last = [self.visits.get(int(key), own[i]) for i, key in enumerate(keys)]
        size, pad = max(t.shape[1] for t, _ in last), policy.tokenizer.pad_token_id
        seen = torch.cat([F.pad(t, (0, size - t.shape[1]), value=pad) for t, _ in last])
        then = torch.cat([F.pad(t, (0, size - t.shape[1])) for _, t in last])
        valid = _valid(policy, seen)
        moved = (policy.log_probs(batch.prompts, seen) - then).abs() * valid
        drift = moved.view(n, -1).sum(1) / valid.view(n, -1).sum(1)
        kept = (0.5 ** (drift / self.HALF)).clamp(self.LOWEST, self.HIGHEST)
        for i, key in enumerate(keys.tolist()):
            right = batch.rewards[i].sum().double()
            self.counts[key] = kept[i] * self.counts[key] + torch.stack([right, m - right])
            self.visits[key] = own[i]


def _valid(policy: TinyPolicy, responses: Tensor) -> Tensor:
    """(b, T) bool: up to the end; a padding token before it was sampled."""
    ends = (responses == policy.tokenizer.eos_token_id).long()
    return ends.cumsum(1) == ends


def held_out(task: str, settings: StudySettings) -> list[Problem]:
    """The prompts that pass@1 is measured on."""
    items = _split(task, settings).held_out
    return [Problem(TASKS[task].prompt(item), TASKS[task].label(item)) for item in items]


def final(task: str, settings: StudySettings, policy: TinyPolicy) -> float:
    """pass@1 on the held-out prompts."""
    return fmean(pass_rates(policy, TASKS[task], held_out(task, settings), settings.samples))


def _sample(
    policy: TinyPolicy,
    task: TinyTask,
    given: Sequence[Problem],
    run: Run,
    generator: torch.Generator,
) -> Rollout:
    prompts = policy.prompts([each.prompt for each in given])
    drawn = policy.sample(prompts, run.responses, task.max_new_tokens, generator)
    greedy = None
    if run.estimator != TRACKER and ESTIMATORS[run.estimator].needs_greedy:
        likeliest = policy.sample(prompts, 1, task.max_new_tokens, None)
        greedy = _grade(policy, task, given, likeliest).squeeze(1)
    return Rollout(prompts, drawn, _grade(policy, task, given, drawn), greedy)


def _backward(policy: TinyPolicy, batch: Rollout, weights: Tensor, parts: int) -> GradientSums:
    """Adds up the gradient of the loss, in micro-batches of whole prompt groups."""
    n, m = weights.shape
    valid = _valid(policy, batch.responses)
    tokens, squares, sizes = int(valid.sum()), 0.0, []
    parameters = list(policy.model.parameters())
    total = [torch.zeros_like(each) for each in parameters] if parts > 1 else []
    for part in torch.arange(n).tensor_split(parts):
        some = slice(int(part[0]), int(part[-1]) + 1)
        rows = slice(some.start * m, some.stop * m)
        prompts = PaddedPrompts(batch.prompts.tokens[some], batch.prompts.mask[some])
        found = policy.log_probs(prompts, batch.responses[rows])
        loss = -(found * weights[some].reshape(-1, 1) * valid[rows]).sum() / tokens
        loss.backward()
        sizes.append(len(part) * m)
        if total:
            gradients = [each.grad for each in parameters]
            squares += _squared(gradients)
            torch._foreach_add_(total, gradients)
            policy.model.zero_grad()
    for parameter, gradient in zip(parameters, total, strict=False):
        parameter.grad = gradient
    square = _squared(total) if total else 0.0
    return GradientSums(squares, square, sum(sizes), sum(size**2 for size in sizes))


def _squared(gradients: Sequence[Any]) -> float:
    return float(sum(norm.double() ** 2 for norm in torch._foreach_norm(list(gradients))))


def _spread(steps: Sequence[dict[str, float]]) -> float:
    """Standard deviation of the prompts' values in these steps.

    That of the means has the noise of m responses in it, which is taken off.
    """
    net = fmean(each["js/between_variance"] - each["js/within_variance"] for each in steps)
    return float(max(net, 0.0) ** 0.5)


def curve(values: Sequence[float]) -> list[float]:
    """A learning curve: means over equal stretches of the steps."""
    points = min(POINTS, len(values))
    ends = [round(i * len(values) / points) for i in range(points + 1)]
    return [round(fmean(values[a:b]), 4) for a, b in itertools.pairwise(ends)]
