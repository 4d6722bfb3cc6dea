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


def _shrinkage(name, others, rest):
    """Return lambda from the rewards of the other prompts and the prompt's other responses."""
    p = len(others)
    m = len(rest) + 1
    means = [_mean(group) for group in others]
    sigma2 = _mean(_variance(group, 1) for group in others)
    v = _mean(_variance(group, 1) / m for group in others)
    if name == "js":
        s = _variance(means, 0)
        return 0.0 if v + s == 0 else p / (p + 1) * v / (v + s)
    s_net = max(0.0, _variance(means, 1) - v) if p > 1 else 0.0
    s2 = s_net + sigma2 / (1 + (m - 1) * math.sqrt(p - 1))
    v2 = sigma2 / (m - 1)
    surprise = (_mean(rest) - _mean(means)) ** 2 * (m - 1) / m / (p + 1)
    total = v2 + s2 * (p + 1) / p + v / p + surprise
    return 0.0 if total == 0 else v2 / total


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
            if name == "reinforce":
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
            elif name == "rloo" or (not others and name in ("js", "js_plus", "js_memory")):
                b = _mean(rest)
            elif name == "bloo" or m == 1:
                b = _mean(_mean(g) for g in others)
            else:
                weight = shrinkage if name == "js_fixed" else _shrinkage(name, others, rest)
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
