"""What must hold for every batch: symmetry, units, masks that equal deletion, precision."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openrlhf_js.estimators import ESTIMATORS, advantage, baseline, diagnostics

OPTIONS = settings(max_examples=10, deadline=None)


@st.composite
def batches(draw, least=2):
    """Draw rewards (n, m) that are small multiples of 1/8, so that ties and zeros are common."""
    n = draw(st.integers(least, 7))
    m = draw(st.integers(least, 5))
    numbers = draw(st.lists(st.integers(-16, 16), min_size=n * m, max_size=n * m))
    return torch.tensor(numbers, dtype=torch.float64).view(n, m) / 8


def close(result, expected):
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)


UNIT = [name for name, estimator in ESTIMATORS.items() if estimator.needs_unit_rewards]
WITH_A_ZERO = ["no_baseline", "spo", *UNIT]  # the value that they start from
WITH_A_UNIT = ["mc_grpo"]  # a floor below the scale; and the lower median has a direction


def run(function, name, rewards, **options):
    if name in UNIT:  # the batches of this file lie between -2 and 2
        rewards = ((rewards + 2) / 4).clamp(0, 1)
    greedy = options.pop("greedy_rewards", torch.zeros(len(rewards), dtype=torch.float64))
    lengths = torch.ones(rewards.shape)
    return function(name, rewards, greedy_rewards=greedy, lengths=lengths, shrinkage=0.3, **options)


@OPTIONS
@given(rewards=batches(), data=st.data())
def test_order_does_not_matter(rewards, data):
    n, m = rewards.shape
    prompts = torch.tensor(data.draw(st.permutations(range(n))))
    responses = torch.tensor(data.draw(st.permutations(range(m))))
    for name in ESTIMATORS:
        shuffled = run(advantage, name, rewards[prompts][:, responses])
        close(shuffled, run(advantage, name, rewards)[prompts][:, responses])


@OPTIONS
@given(rewards=batches(), shift=st.integers(-1000, 1000), factor=st.sampled_from([0.25, 3.0, -2.0]))
def test_zero_and_unit_of_the_rewards_do_not_matter(rewards, shift, factor):
    greedy = torch.zeros(len(rewards), dtype=torch.float64)
    for name in ESTIMATORS.keys() - {*WITH_A_ZERO, *WITH_A_UNIT}:
        result = run(advantage, name, factor * rewards + shift, greedy_rewards=greedy + shift)
        unit = factor if ESTIMATORS[name].scale is None else math.copysign(1, factor)
        expected = run(advantage, name, rewards) * unit
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)


@OPTIONS
@given(rewards=batches(), extra=st.integers(1, 2), data=st.data())
def test_mask_equals_deletion(rewards, extra, data):
    """A masked prompt, and masked responses at any place of each prompt, leave no trace."""
    n, m = rewards.shape
    wide = torch.full((n + 1, m + extra), float("nan"), dtype=torch.float64)
    gone = data.draw(st.integers(0, n))
    rows = [i for i in range(n + 1) if i != gone]
    for i, row in enumerate(rows):  # deletion keeps the order of what is left
        keep = sorted(data.draw(st.permutations(range(m + extra)))[:m])
        wide[row, keep] = rewards[i]
    mask = ~wide.isnan()
    greedy = torch.arange(n + 1, dtype=torch.float64)
    for name in ESTIMATORS:
        for function in (advantage, baseline):
            result = run(function, name, wide, mask=mask, greedy_rewards=greedy)
            assert (result[~mask] == 0).all()
            close(result[mask], run(function, name, rewards, greedy_rewards=greedy[rows]).flatten())


@OPTIONS
@given(rewards=batches(), data=st.data())
def test_any_mask_gives_finite_numbers(rewards, data):
    flags = data.draw(st.lists(st.booleans(), min_size=rewards.numel(), max_size=rewards.numel()))
    mask = torch.tensor(flags).view_as(rewards)
    rewards = rewards.masked_fill(~mask, float("nan"))
    for name in ESTIMATORS:
        assert run(advantage, name, rewards, mask=mask).isfinite().all()
        assert all(map(math.isfinite, run(diagnostics, name, rewards, mask=mask).values()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_every_float_dtype(dtype):
    rewards = (torch.arange(24) % 5).view(6, 4).to(dtype) / 4
    for name in ESTIMATORS:
        result = run(advantage, name, rewards)
        exact = run(advantage, name, rewards.double())
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, exact.float(), rtol=1e-5, atol=1e-5)


# rewards as reward models give them: anywhere on the line, on any scale, with outliers


def sixteenths(n=16, m=4, seed=0):
    """Rewards that float32 holds exactly even at 1e6, where its numbers are 1/16 apart."""
    draw = torch.Generator().manual_seed(seed)
    values = torch.randn(n, 1, generator=draw) + torch.randn(n, m, generator=draw)
    return (16 * values).round().double() / 16


@pytest.mark.parametrize("shift", [1e4, -1e6])
def test_float32_far_from_zero_keeps_every_digit_of_the_advantage(shift):
    rewards = sixteenths()
    mask = torch.rand(rewards.shape, generator=torch.Generator().manual_seed(1)) < 0.7
    far = (rewards + shift).float()
    greedy = torch.full((16,), shift)
    assert torch.equal(far.double() - shift, rewards)
    for name in ESTIMATORS.keys() - WITH_A_ZERO:
        for options in ({}, {"mask": mask}):
            result = run(advantage, name, far, greedy_rewards=greedy, **options)
            expected = run(advantage, name, rewards, **options).float()
            torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)
        values = run(diagnostics, name, far, greedy_rewards=greedy)
        assert values == pytest.approx(run(diagnostics, name, rewards), rel=1e-6)


@pytest.mark.parametrize("factor", [1e-30, 1e-6, 1e15])
def test_float32_on_any_scale(factor):
    rewards = sixteenths().float()
    for name in (name for name, record in ESTIMATORS.items() if record.scale is None):
        result = run(advantage, name, rewards * factor).double() / factor
        expected = run(advantage, name, rewards.double())
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["js", "js_grad"])
def test_a_distant_prompt_makes_the_others_rely_on_themselves(name):
    """Its distance shows as dispersion of the values, so shrinkage falls faster than it grows."""
    rewards = sixteenths(n=32, m=8)
    for distance in (1e2, 1e4, 1e6):
        far = rewards.clone()
        far[0] += distance
        moved = (baseline(name, far)[1:] - baseline("rloo", far)[1:]).abs().max()
        assert moved <= 20 / distance
