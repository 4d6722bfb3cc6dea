"""An independent slow oracle: every estimator from its definition, one number at a time."""

import math
import random

import pytest
import torch


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
