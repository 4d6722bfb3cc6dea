"""The held-out reward does not enter its baseline, and the gradient is exactly unbiased."""

import pytest
import torch

from openrlhf_js.estimators import ESTIMATORS, baseline, group_statistics

HOLES = torch.tensor([[0, 0, 0], [0, 1, 0], [1, 1, 0], [0, 1, 1], [1, 1, 1]], dtype=torch.bool)


@pytest.mark.parametrize("mask", [torch.ones_like(HOLES), HOLES], ids=["whole", "masked"])
@pytest.mark.parametrize("name", ["bloo", "js", "js_fixed"])  # test_grad.py has js_grad
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


@pytest.mark.parametrize("m", [2, 3])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_gradient_with_given_prompts(name, m, gradient_error):
    error = gradient_error(name, m)
    assert error < 1e-12 if ESTIMATORS[name].unbiased else error > 1e-3


@pytest.mark.parametrize("m", [2, 3])
@pytest.mark.parametrize("name", ["rloo", "js", "js_grad", "weighted_rloo", "no_baseline"])
def test_the_noise_of_a_gradient_is_that_of_the_weighted_errors_and_of_the_signal(
    name, m, every_batch
):
    """Proposition 2 of docs/report.md, summed over every possible batch."""
    k = every_batch["of"](name, m)
    gradients = every_batch["true_gradients"]  # (n, 3, 3)
    terms = (k.advantages[..., None, None] * k.scores).flatten(3)  # (k, n, m, 9)
    errors = terms.sum((1, 2)) - m * gradients.flatten(1).sum(0)
    noise = (k.probabilities * errors.square().sum(1)).sum()

    weights = k.scores.flatten(3).square().sum(3)
    squares = torch.einsum("k,knm->", k.probabilities, weights * k.advantages.square())
    signal = m * gradients.square().sum()
    baseline_terms = ((k.rewards - k.advantages)[..., None, None] * k.scores).flatten(3)
    products = baseline_terms.sum((1, 2)).square().sum(1) - baseline_terms.square().sum((1, 2, 3))
    entangled = (k.probabilities * products).sum()
    torch.testing.assert_close(noise, squares - signal + entangled, rtol=0, atol=1e-12)
    if name == "rloo":
        torch.testing.assert_close(entangled, signal / (m - 1))
    if name == "no_baseline":
        assert entangled == 0
