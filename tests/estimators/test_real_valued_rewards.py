"""Rewards as reward models give them: anywhere on the line, on any scale, with outliers."""

import numpy as np
import pytest
import torch

from openrlhf_js.estimators import ESTIMATORS, advantage, baseline, diagnostics, group_statistics

SHRINKING = ["js", "js_plus", "js_fixed"]
SHIFT_FREE = [name for name in ESTIMATORS if name != "reinforce"]
SCALE_FREE = [name for name, estimator in ESTIMATORS.items() if estimator.scaling is not None]


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


@pytest.mark.parametrize("shift", [100.0, 1e4, 1e6, -1e6])
@pytest.mark.parametrize("name", SHIFT_FREE)
def test_float32_far_from_zero_keeps_every_digit_of_the_advantage(name, shift):
    rewards = sixteenths()
    far = (rewards + shift).float()
    assert torch.equal(far.double() - shift, rewards)
    result = run(advantage, name, far, shift)
    assert result.dtype == torch.float32
    expected = run(advantage, name, rewards).float()
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", SHIFT_FREE)
def test_a_mask_far_from_zero(name):
    rewards = sixteenths()
    mask = torch.rand(rewards.shape, generator=torch.Generator().manual_seed(1)) < 0.7
    far = (rewards + 1e6).float().masked_fill(~mask, float("nan"))
    result = run(advantage, name, far, 1e6, mask=mask)
    expected = run(advantage, name, rewards, mask=mask).float()
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["js", "js_plus"])
def test_the_baseline_moves_with_the_rewards(name):
    rewards = sixteenths()
    torch.testing.assert_close(
        baseline(name, rewards + 1000), baseline(name, rewards) + 1000, rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("name", ["js", "js_plus"])
def test_what_is_logged_does_not_depend_on_where_zero_is(name):
    rewards = sixteenths()
    far = diagnostics(name, (rewards + 1e6).float())
    assert far == pytest.approx(diagnostics(name, rewards), rel=1e-6)


@pytest.mark.parametrize("factor", [1e-30, 1e-18, 1e-6, 1e6, 1e15])
@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in SCALE_FREE])
def test_float32_on_any_scale(name, factor):
    rewards = sixteenths().float()
    scaled = rewards * factor
    result = run(advantage, name, scaled).double() / factor
    expected = run(advantage, name, rewards.double())
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [*SHRINKING, "rloo", "bloo", "dr_grpo"])
def test_nearly_constant_rewards(name):
    """Rewards of 1 and a few of the smallest steps that float32 has there."""
    steps = sixteenths() * 16
    step = torch.finfo(torch.float32).eps
    rewards = (1 + steps * step).float()
    assert torch.equal((rewards.double() - 1) / step, steps)
    result = run(advantage, name, rewards).double() / step
    torch.testing.assert_close(result, run(advantage, name, steps), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("value", [0.1, -7.3, 1e6 + 1 / 16, 1e-20])
@pytest.mark.parametrize("name", ["js", "js_plus"])
def test_constant_rewards_have_no_advantage(name, value):
    rewards = torch.full((6, 7), value, dtype=torch.float32)
    assert (advantage(name, rewards) == 0).all()
    logged = diagnostics(name, rewards)
    assert logged["js/shrinkage_mean"] == 0
    assert logged["js/all_equal_groups"] == 1


@pytest.mark.parametrize("kind", ["t(3)", "Cauchy", "log-normal", "one outlier"])
@pytest.mark.parametrize("name", ["js", "js_plus"])
def test_heavy_tails_are_as_the_slow_definition_says(name, kind, slow):
    rewards = heavy(kind, 12, 4)
    expected = slow["baseline"](name, rewards)
    torch.testing.assert_close(baseline(name, rewards), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["t(3)", "Cauchy", "log-normal", "one outlier"])
@pytest.mark.parametrize("name", ["js", "js_plus"])
def test_heavy_tails_leave_the_baseline_between_its_ends(name, kind):
    rewards = heavy(kind, 32, 8).float()
    b = baseline(name, rewards)
    assert b.isfinite().all()
    ends = torch.stack([baseline("rloo", rewards), baseline("bloo", rewards)])
    slack = 1e-6 * rewards.abs().max()
    assert (b >= ends.amin(0) - slack).all()
    assert (b <= ends.amax(0) + slack).all()


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
def test_the_sign_of_all_rewards_turns_the_advantage_over(name):
    rewards = heavy("log-normal", 16, 4)
    torch.testing.assert_close(advantage(name, -rewards), -advantage(name, rewards))


@pytest.mark.parametrize("name", ["js", "js_plus"])
def test_noise_that_differs_by_prompt(name):
    """Values N(0, 1), noise of a standard deviation from 0.2 to 5 by prompt: closer than RLOO."""
    draw = torch.Generator().manual_seed(0)
    errors = {each: 0.0 for each in (name, "rloo")}
    for _ in range(200):
        values = torch.randn(64, 1, generator=draw)
        spread = 0.2 * 25 ** torch.rand(64, 1, generator=draw)
        rewards = values + spread * torch.randn(64, 4, generator=draw)
        for each in errors:
            errors[each] += (baseline(each, rewards) - values).square().mean().item()
    assert errors[name] < 0.8 * errors["rloo"]


def test_bfloat16_rewards_are_taken_as_they_are():
    """A reward model in bfloat16 rounds before anybody else; nothing is rounded again."""
    rewards = (sixteenths() * 3.7).bfloat16()
    result = advantage("js", rewards)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, advantage("js", rewards.double()).float(), rtol=0, atol=0)


def test_statistics_of_two_scales_in_one_batch():
    """Half of the prompts have rewards of 1e-3, half of 1e3: none is lost in the sums."""
    rewards = sixteenths(n=8).float()
    rewards[:4] *= 1e-3
    rewards[4:] *= 1e3
    stats, exact = group_statistics(rewards), group_statistics(rewards.double())
    for field in ("within_variance", "between_variance", "shrinkage"):
        torch.testing.assert_close(
            getattr(stats, field).double(), getattr(exact, field), rtol=1e-5, atol=0
        )
