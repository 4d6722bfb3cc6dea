"""An independent slow oracle: every estimator from its definition, one number at a time."""

import functools
import itertools
import math
import random
from typing import NamedTuple

import pytest
import torch

from openrlhf_js.estimators import ESTIMATORS, Batch, estimate


def _mean(values):
    values = list(values)
    return math.fsum(values) / len(values)


def _variance(values, less):
    center = _mean(values)
    return math.fsum((value - center) ** 2 for value in values) / (len(values) - less)


def _shrinkage(others):
    """Return lambda of js from the rewards of the other prompts."""
    p = len(others)
    v = _mean(_variance(group, 1) / len(group) for group in others)
    s = _variance([_mean(group) for group in others], 0)
    return 0.0 if v + s == 0 else p / (p + 1) * v / (v + s)


def slow_baseline(name, rewards, greedy=None, shrinkage=None):
    """Return the baseline of a rectangular batch without a mask, as lists."""
    groups = rewards.tolist()
    m = len(groups[0])
    result = []
    for i, group in enumerate(groups):
        others = groups[:i] + groups[i + 1 :]
        row = []
        for j in range(m):
            rest = group[:j] + group[j + 1 :]
            if name == "no_baseline":
                b = 0.0
            elif name == "remax":
                b = greedy[i].item()
            elif name in ("grpo", "dr_grpo", "reinforce_baseline"):
                b = _mean(group)
            elif name in ("reinforce++", "flash_reinforce"):
                b = _mean(_mean(g) for g in groups)
            elif name == "js1":
                means = [_mean(g) for g in groups]
                v = _mean(_variance(g, 1) / m for g in groups)
                s = _variance(means, 1)
                weight = v / (s + v)
                b = (1 - weight) * _mean(group) + weight * _mean(means)
            elif name == "rloo" or (name == "js" and not others):
                b = _mean(rest)
            elif name == "bloo" or m == 1:
                b = _mean(_mean(g) for g in others)
            else:
                weight = shrinkage if name == "js_fixed" else _shrinkage(others)
                b = (1 - weight) * _mean(rest) + weight * _mean(_mean(g) for g in others)
            row.append(b)
        result.append(row)
    return torch.tensor(result, dtype=torch.float64)


def slow_advantage(name, rewards, greedy=None, shrinkage=None):
    """Return the advantage of a rectangular batch without a mask."""
    result = rewards - slow_baseline(name, rewards, greedy, shrinkage)
    groups = rewards.tolist()
    if name == "grpo":
        std = torch.tensor([[math.sqrt(_variance(g, 0))] for g in groups], dtype=torch.float64)
        result = result / (std + 1e-8)
    if name == "reinforce_baseline":
        result = result / (result.square().mean().sqrt() + 1e-8)
    if name == "reinforce++":
        result = result / (math.sqrt(_variance(rewards.flatten().tolist(), 0)) + 1e-8)
    return result


@pytest.fixture(scope="session")
def slow():
    return {"baseline": slow_baseline, "advantage": slow_advantage}


@pytest.fixture
def batch():
    """Return a maker of random float64 rewards (n, m) of prompts that differ."""

    def make(n, m, seed=0):
        draw = random.Random(f"{n} {m} {seed}")
        values = [[draw.gauss(i % 3, 1.0) for _ in range(m)] for i in range(n)]
        return torch.tensor(values, dtype=torch.float64)

    return make


# Three prompts with three possible responses each; all is known of every response.
LOGITS = torch.tensor([[0.3, -0.5, 0.1], [1.0, 0.2, -0.7], [-0.4, 0.0, 0.9]], dtype=torch.float64)
REWARD = torch.tensor([[1.0, 0.0, 0.25], [0.0, 0.4, 0.8], [1.0, 0.2, 0.0]], dtype=torch.float64)
LENGTH = torch.tensor([[5.0, 2.0, 1.0], [1.0, 3.0, 9.0], [4.0, 1.0, 2.0]], dtype=torch.float64)
NORM = torch.tensor([[0.1, 2.0, 0.0], [1.5, 0.3, 0.6], [0.7, 0.2, 3.0]], dtype=torch.float64)


@functools.cache
def outcomes(m):
    """Every possible batch of responses: probabilities (k,), which they are (k, n, m), and scores
    (k, n, m, 3, 3)."""
    policy = LOGITS.softmax(1)
    rows = torch.arange(3)[:, None]
    responses = torch.tensor(list(itertools.product(range(3), repeat=3 * m))).view(-1, 3, m)
    chosen = torch.nn.functional.one_hot(responses, 3) - policy[rows]
    scores = torch.nn.functional.one_hot(rows, 3)[None, ..., None] * chosen[..., None, :]
    return policy[rows, responses].flatten(1).prod(1), responses, scores


class Enumerated(NamedTuple):
    """Every possible batch of responses of the three prompts, k in all."""

    probabilities: torch.Tensor  # (k,)
    rewards: torch.Tensor  # (k, n, m)
    advantages: torch.Tensor  # (k, n, m)
    scores: torch.Tensor  # (k, n, m, 3, 3)


def enumerated(name, m, past=None):
    """Return every possible batch with the advantages of an estimator."""
    probabilities, responses, scores = outcomes(m)
    rows = torch.arange(3)[:, None]

    def advantages(responses):
        batch = Batch(
            rewards=REWARD[rows, responses],
            mask=torch.ones(3, m, dtype=torch.bool),
            greedy_rewards=torch.ones(3, dtype=torch.float64),
            lengths=LENGTH[rows, responses],
            squared_score_norms=NORM[rows, responses],
            shrinkage=0.4,
            past=past,
        )
        return estimate(ESTIMATORS[name], batch).advantages

    return Enumerated(
        probabilities,
        rewards=REWARD[rows, responses],
        advantages=torch.vmap(advantages)(responses),
        scores=scores,
    )


def true_gradients():
    """Return the gradients (n, 3, 3) of the prompts' values."""
    policy = LOGITS.softmax(1)
    deviations = REWARD - (policy * REWARD).sum(1, keepdim=True)
    return torch.diag_embed((policy * deviations).T).permute(1, 2, 0)


@pytest.fixture(scope="session")
def every_batch():
    return {"of": enumerated, "true_gradients": true_gradients()}


@pytest.fixture(scope="session")
def gradient_error():
    """How far E[g] (eq. grad), over every possible batch, is from the gradient of the value."""
    logits = LOGITS.clone().requires_grad_()
    value = (logits.softmax(1) * REWARD).sum(1).mean()
    (true_gradient,) = torch.autograd.grad(value, logits)

    def error(name, m, past=None):
        k = enumerated(name, m, past)
        expected = torch.einsum("k,knm,knmpc->pc", k.probabilities, k.advantages, k.scores)
        return (expected / (3 * m) - true_gradient).abs().max().item()

    return error
