"""The gradient variance of every baseline at one policy, from a pool of responses.

A pool has N prompts, drawn as training draws them, with M responses each. The score gradient
s = grad log pi(y | x) of every response is computed once and projected to K numbers by a random
sketch, which leaves squared norms unbiased. Small batches are drawn from the pool without
replacement, so that each is distributed as n prompts drawn for a step; the gradient of a batch is a
sum of what is there already, and thousands of batches cost next to nothing. All baselines see the
same. Squared distances are unbiased, their ratios only nearly.

The squared distance of a gradient g without bias to the true one, over all prompts of the task, is

    E ||g - grad J||^2 = E ||g||^2 - ||grad J||^2

and ||grad J||^2 is the mean of <g_i, g_k> over pairs of different prompts, g_i being the gradient
that all responses to prompt i give with rloo: unbiased, because they share nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tiny_policies import REWARDS, Drawn, Floats, engine_of, sample, training_items

from openrlhf_js.estimators import (
    RunningStatistics,
    baseline,
    start_history,
    update_history,
)
from openrlhf_js.lab.mse import best_coefficient
from openrlhf_js.lab.policy_gradient import ScoreSum, terms
from openrlhf_js.lab.projection import Sketch
from openrlhf_js.sampling.engines import key
from openrlhf_js.tiny.model import make_tokenizer
from openrlhf_js.tiny.tasks import TASKS, draw

HISTORY = "js_plus, half-life 50"
HALF_LIFE = 50.0
COMPARED = ("rloo", "bloo", "js", "js_plus", HISTORY)
BEST = "best constant"  # the lambda in [0, 1] at which this very pool's batches are nearest
PROMPTS_IN_BATCH, RESPONSES = (16, 64), (2, 4, 8)


@dataclass(frozen=True)
class Size:
    """How much is measured at a policy.

    Attributes:
        prompts: N of the pool.
        responses: M of the pool.
        batches: small ones of the most prompts; of fewer prompts as many more.
        dimensions: K.
    """

    prompts: int = 128
    responses: int = 32
    batches: int = 300
    dimensions: int = 4096


class Pool(NamedTuple):
    """Responses of a policy.

    Attributes:
        rewards: (N, M).
        scores: (N, M, K) projected score gradients, float32.
    """

    rewards: Floats
    scores: NDArray[np.float32]


class Sums(NamedTuple):
    """What batches of one size came to, a mean over them.

    Attributes:
        distances: E ||g - grad J||^2 by baseline.
        errors: E (b - mu)^2 by baseline.
        best: the constant lambda that would have been best for the gradient.
    """

    distances: dict[str, float]
    errors: dict[str, float]
    best: float


def measure(trained: Path, name: str, seed: int, step: int, size: Size) -> dict[str, Any]:
    """Samples a pool from the policy after `step` steps of training and measures all batch sizes.

    Args:
        trained: folder that `tiny_policies.train` has left.
        name: of the task.
        seed: of the pool, the sketch and the batches.
        step: the policy's.
        size: how much.

    Returns:
        For JSON: mean_reward, seconds, and cells, of n, m and the fields of `Sums`.
    """
    began = time.monotonic()
    pool = make_pool(trained / f"step-{step}", name, seed, step, size)
    seen = np.load(trained / REWARDS)[:step]
    cells = []
    for n in PROMPTS_IN_BATCH:
        for m in RESPONSES:
            history = history_of(seen[:, :n, :m])
            batches = size.batches * max(PROMPTS_IN_BATCH) // n
            found = compare(pool, n, m, batches, seed, history)
            cells.append({"n": n, "m": m, **found._asdict()})
    seconds = time.monotonic() - began
    return {"mean_reward": float(pool.rewards.mean()), "seconds": seconds, "cells": cells}


def make_pool(folder: Path, name: str, seed: int, step: int, size: Size) -> Pool:
    """A pool of the policy in a folder, its prompts drawn as training draws them."""
    task = TASKS[name]
    tokenizer = make_tokenizer(task)
    engine = engine_of(task, folder, tokenizer)
    rng = random.Random(f"pool/{seed}/{step}")
    items = draw(training_items(task, seed), size.prompts, rng)
    drawn = sample(engine, tokenizer, task, items, size.responses, key(seed, 1, step))
    # A sketch must not know the model's weights, which came out of a generator with the same seed.
    signs = key(seed, 2, step)
    return Pool(drawn.rewards, projected(ScoreSum(engine.model), drawn, size.dimensions, signs))


def projected(scores: ScoreSum, drawn: Drawn, dimensions: int, seed: int) -> NDArray[np.float32]:
    """(N, M, K) projected score gradients, each from a pass of its own."""
    sketch = Sketch(scores.total, dimensions, seed)
    found = np.empty((len(drawn.responses), dimensions), dtype=np.float32)
    one = np.ones(1)
    for row, response in enumerate(drawn.responses):
        scores.clear()
        scores.add(terms([response], one))
        found[row] = sketch(scores.total).numpy()
    return found.reshape(*drawn.rewards.shape, dimensions)


def history_of(rewards: Floats) -> RunningStatistics:
    """The running statistics after these steps (steps, n, m) of training."""
    history = start_history(HALF_LIFE)
    for batch in torch.from_numpy(rewards):
        history = update_history(history, batch)
    return history


def compare(
    pool: Pool, n: int, m: int, batches: int, seed: int, history: RunningStatistics
) -> Sums:
    """Draws batches of n prompts and m responses, and measures all baselines on them.

    Args:
        pool: of the policy.
        n: prompts of a batch.
        m: responses to each.
        batches: how many.
        seed: of the draws.
        history: of the steps before, for HISTORY.

    Raises:
        ValueError: rloo's gradient is 0 in all batches.
    """
    rng = np.random.default_rng([seed, n, m])
    flat = pool.scores.reshape(pool.rewards.size, -1)
    responses = pool.rewards.shape[1]
    norms, errors = np.zeros(len(COMPARED)), np.zeros(len(COMPARED))
    product = 0.0  # of rloo's gradient and bloo's
    for _ in range(batches):
        chosen = rng.choice(len(pool.rewards), n, replace=False)
        order = rng.random((n, responses)).argsort(1)
        shuffled = np.take_along_axis(pool.rewards[chosen], order, 1)
        rewards, rest = shuffled[:, :m], shuffled[:, m:]
        found = baselines(rewards, history)
        vectors = flat[(chosen[:, None] * responses + order[:, :m]).ravel()]
        weights = ((rewards - found) / rewards.size).reshape(len(COMPARED), -1)
        gradients = (weights.astype(np.float32) @ vectors).astype(np.float64)
        norms += np.square(gradients).sum(1)
        product += float(gradients[0] @ gradients[1])
        noise = (rest.var(1, ddof=1) / rest.shape[1]).mean()
        errors += np.square(found - rest.mean(1)[:, None]).mean((1, 2)) - noise
    norms, errors, product = norms / batches, errors / batches, product / batches
    if norms[0] == 0:
        raise ValueError(
            f"rloo's gradient is 0 with n = {n}, m = {m}: all rewards of each prompt are equal; "
            "take an earlier policy, or another task"
        )
    truth = signal(pool)
    best = best_coefficient(norms[0], norms[1], product)
    least = (1 - best) ** 2 * norms[0] + best**2 * norms[1] + 2 * best * (1 - best) * product
    distances = {name: float(norm - truth) for name, norm in zip(COMPARED, norms, strict=True)}
    return Sums(
        distances | {BEST: float(least - truth)},
        {name: float(error) for name, error in zip(COMPARED, errors, strict=True)},
        best,
    )


def baselines(rewards: Floats, history: RunningStatistics) -> Floats:
    """(baselines, n, m) in the order of COMPARED."""
    given = torch.from_numpy(np.ascontiguousarray(rewards))
    plain = [baseline(name, given) for name in COMPARED[:-1]]
    return torch.stack([*plain, baseline("js_plus", given, history=history)]).numpy()


def signal(pool: Pool) -> float:
    """||grad J||^2 without bias, see above; noise may make it negative."""
    rewards = torch.from_numpy(pool.rewards)
    advantages = (rewards - baseline("rloo", rewards)).numpy() / rewards.shape[1]
    own = np.einsum("nm,nmk->nk", advantages.astype(np.float32), pool.scores).astype(np.float64)
    prompts = len(own)
    pairs = np.square(own.sum(0)).sum() - np.square(own).sum()
    return float(pairs / (prompts * (prompts - 1)))


def reductions(values: Sequence[float], reference: Sequence[float]) -> Floats:
    """(seeds,) by how much values are lower than the reference, in percent of it.

    Raises:
        ValueError: a reference is not above 0, because noise is larger than what is left of it.
    """
    if min(reference) <= 0:
        raise ValueError(
            f"rloo's mean squared distance or error came out as {min(reference):.2g}: the pool is "
            "too small to measure it; give more --prompts, --responses or --batches"
        )
    return 100 * (1 - np.array(values) / np.array(reference))
