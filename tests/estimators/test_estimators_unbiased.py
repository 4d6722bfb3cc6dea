"""The held-out reward does not enter its baseline, and the gradient is exactly unbiased."""

import functools
import itertools

import pytest
import torch

from openrlhf_js.estimators import (
    ESTIMATORS,
    Batch,
    baseline,
    estimate,
    group_statistics,
)

HOLES = torch.tensor([[0, 0, 0], [0, 1, 0], [1, 1, 0], [0, 1, 1], [1, 1, 1]], dtype=torch.bool)


@pytest.mark.parametrize("mask", [torch.ones_like(HOLES), HOLES], ids=["whole", "masked"])
@pytest.mark.parametrize("name", ["bloo", "js", "js_fixed", "js_grad"])
def test_own_reward_leaves_no_trace_in_floating_point(name, mask, batch):
    rewards = batch(5, 3).float()
    before = baseline(name, rewards, mask=mask, shrinkage=0.3)
    for i, j in mask.nonzero().tolist():
        changed = rewards.clone()
        changed[i, j] = 1e9
        assert torch.equal(baseline(name, changed, mask=mask, shrinkage=0.3)[i, j], before[i, j])


def test_coefficient_ignores_the_whole_prompt(batch):
    rewards = batch(6, 3)
    before = group_statistics(rewards)
    for i in range(6):
        changed = rewards.clone()
        changed[i] += torch.tensor([5.0, -7.0, 11.0])
        after = group_statistics(changed)
        for field in ("loo_batch_mean", "within_variance", "between_variance", "shrinkage"):
            assert torch.equal(getattr(after, field)[i], getattr(before, field)[i])


# Three kinds of prompts with three possible responses each; reward and length are known for all.
LOGITS = torch.tensor([[0.3, -0.5, 0.1], [1.0, 0.2, -0.7], [-0.4, 0.0, 0.9]], dtype=torch.float64)
REWARD = torch.tensor([[1.0, 0.0, 0.25], [0.0, 0.4, 0.8], [1.0, 0.2, 0.0]], dtype=torch.float64)
LENGTH = torch.tensor([[5.0, 2.0, 1.0], [1.0, 3.0, 9.0], [4.0, 1.0, 2.0]], dtype=torch.float64)


def true_gradient(prompts):
    """Return the gradient by the logits of the mean value of these prompts."""
    logits = LOGITS.clone().requires_grad_()
    value = (logits.softmax(1) * REWARD).sum(1)[prompts].mean()
    return torch.autograd.grad(value, logits)[0]


@functools.cache
def outcomes(prompts, m):
    """Every possible batch of responses: probabilities (k,), rewards and lengths (k, n, m), and
    scores (k, n, m, 3, 3)."""
    policy = LOGITS.softmax(1)
    n = len(prompts)
    rows = torch.tensor(prompts)[:, None]
    responses = torch.tensor(list(itertools.product(range(3), repeat=n * m))).view(-1, n, m)
    chosen = torch.nn.functional.one_hot(responses, 3) - policy[rows]
    scores = torch.nn.functional.one_hot(rows, 3)[None, ..., None] * chosen[..., None, :]
    probabilities = policy[rows, responses].flatten(1).prod(1)
    return probabilities, REWARD[rows, responses], LENGTH[rows, responses], scores


def expected_gradient(name, prompts, m=2):
    """E[g] (eq. grad) over every possible batch of responses, each with its probability."""
    probabilities, rewards, lengths, scores = outcomes(tuple(prompts), m)
    mask = torch.ones(len(prompts), m, dtype=torch.bool)

    def advantages(rewards, lengths):
        greedy = torch.ones(len(prompts), dtype=torch.float64)
        batch = Batch(rewards, mask, greedy_rewards=greedy, lengths=lengths, shrinkage=0.4)
        return estimate(ESTIMATORS[name], batch).advantages

    a = torch.vmap(advantages)(rewards, lengths)
    return torch.einsum("k,knm,knmpc->pc", probabilities, a, scores) / mask.numel()


@pytest.mark.parametrize("m", [2, 3])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_gradient_with_given_prompts(name, m):
    error = (expected_gradient(name, [0, 1, 2], m) - true_gradient([0, 1, 2])).abs().max()
    assert error < 1e-12 if ESTIMATORS[name].unbiased else error > 1e-3
