"""Rewards as reward models give them: anywhere on the line, on any scale, with outliers."""

import numpy as np
import pytest
import torch

from openrlhf_js.estimators import ESTIMATORS, advantage, baseline, diagnostics

SHIFT_FREE = [name for name in ESTIMATORS if name != "reinforce"]
SCALED = [name for name, estimator in ESTIMATORS.items() if estimator.scaling is None]


def sixteenths(n=16, m=4, seed=0):
    """Rewards that float32 holds exactly even at 1e6, where its numbers are 1/16 apart."""
    draw = torch.Generator().manual_seed(seed)
    values = torch.randn(n, 1, generator=draw) + torch.randn(n, m, generator=draw)
    return (16 * values).round().double() / 16


def run(function, name, rewards, shift=0.0, **options):
    greedy = torch.full((len(rewards),), shift, dtype=rewards.dtype)
    return function(name, rewards, greedy_rewards=greedy, shrinkage=0.3, **options)


def heavy(kind, n, m, seed=0):
    draw = np.random.default_rng(seed)
    values = {
        "t(3)": lambda: draw.standard_t(3, (n, m)),
        "Cauchy": lambda: draw.standard_cauchy((n, m)),
        "log-normal": lambda: np.exp(2 * draw.standard_normal((n, m))),
        "one outlier": lambda: draw.standard_normal((n, m)) + 1e5 * np.eye(n, m),
    }[kind]()
    return torch.from_numpy(draw.standard_normal((n, 1)) + values)


@pytest.mark.parametrize("shift", [1e4, 1e6, -1e6])
@pytest.mark.parametrize("name", SHIFT_FREE)
def test_float32_far_from_zero_keeps_every_digit_of_the_advantage(name, shift):
    rewards = sixteenths()
    mask = torch.rand(rewards.shape, generator=torch.Generator().manual_seed(1)) < 0.7
    far = (rewards + shift).float()
    assert torch.equal(far.double() - shift, rewards)
    for options in ({}, {"mask": mask}):
        result = run(advantage, name, far, shift, **options)
        assert result.dtype == torch.float32
        expected = run(advantage, name, rewards, **options).float()
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)
    logged = run(diagnostics, name, far, shift)
    assert logged == pytest.approx(run(diagnostics, name, rewards), rel=1e-6)


@pytest.mark.parametrize("factor", [1e-30, 1e-6, 1e15])
@pytest.mark.parametrize("name", SCALED)
def test_float32_on_any_scale(name, factor):
    rewards = sixteenths().float()
    scaled = rewards * factor
    result = run(advantage, name, scaled).double() / factor
    expected = run(advantage, name, rewards.double())
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["t(3)", "Cauchy", "log-normal", "one outlier"])
@pytest.mark.parametrize("name", ["js", "js_plus"])
def test_heavy_tails_are_as_the_slow_definition_says(name, kind, slow):
    rewards = heavy(kind, 12, 4)
    expected = slow["baseline"](name, rewards)
    torch.testing.assert_close(baseline(name, rewards), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["js", "js_plus"])
def test_a_distant_prompt_makes_the_others_rely_on_themselves(name):
    """Its distance shows as dispersion of the values, so lambda falls faster than it grows."""
    rewards = sixteenths(n=32, m=8)
    for distance in (1e2, 1e4, 1e6):
        far = rewards.clone()
        far[0] += distance
        moved = (baseline(name, far)[1:] - baseline("rloo", far)[1:]).abs().max()
        assert moved <= 20 / distance


@pytest.mark.parametrize("name", ["js", "js_plus"])
def test_noise_that_differs_by_prompt(name):
    """Values N(0, 1), noise of a standard deviation from 0.2 to 5 by prompt: closer than RLOO."""
    draw = torch.Generator().manual_seed(0)
    errors = {each: 0.0 for each in (name, "rloo")}
    for _ in range(50):
        values = torch.randn(64, 1, generator=draw)
        spread = 0.2 * 25 ** torch.rand(64, 1, generator=draw)
        rewards = values + spread * torch.randn(64, 4, generator=draw)
        for each in errors:
            errors[each] += (baseline(each, rewards) - values).square().mean().item()
    assert errors[name] < 0.8 * errors["rloo"]
