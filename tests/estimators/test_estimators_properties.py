"""What must hold for every batch: symmetry, units, masks that equal deletion, precision."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openrlhf_js.estimators import ESTIMATORS, advantage, baseline, diagnostics, group_statistics

OPTIONS = settings(max_examples=10, deadline=None)


@st.composite
def batches(draw, least=2):
    """Draw rewards (n, m) that are small multiples of 1/8, so that ties and zeros are common."""
    n, m = draw(st.integers(least, 7)), draw(st.integers(least, 5))
    numbers = draw(st.lists(st.integers(-16, 16), min_size=n * m, max_size=n * m))
    return torch.tensor(numbers, dtype=torch.float64).view(n, m) / 8


def close(result, expected):
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)


def run(function, name, rewards, **options):
    greedy = options.pop("greedy_rewards", torch.zeros(len(rewards), dtype=torch.float64))
    return function(name, rewards, greedy_rewards=greedy, shrinkage=0.3, **options)


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
    for name, estimator in ESTIMATORS.items():
        moved = shift if name != "reinforce" else 0
        result = run(advantage, name, factor * rewards + moved, greedy_rewards=greedy + moved)
        expected = run(advantage, name, rewards) * (
            factor if estimator.scaling is None else math.copysign(1, factor)
        )
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)


@OPTIONS
@given(rewards=batches())
def test_shrunk_baselines_lie_between_their_ends(rewards):
    ends = torch.stack([baseline("rloo", rewards), baseline("bloo", rewards)])
    for name in ("js", "js_fixed", "js_plus"):
        b = run(baseline, name, rewards)
        assert (b >= ends.amin(0) - 1e-12).all() and (b <= ends.amax(0) + 1e-12).all()


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
    mask, greedy = ~wide.isnan(), torch.arange(n + 1, dtype=torch.float64)
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
        result, exact = run(advantage, name, rewards), run(advantage, name, rewards.double())
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, exact.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shift", [1e6, -1e6])
def test_variances_survive_rewards_far_from_zero(shift):
    rewards = torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    plain, far = group_statistics(rewards), group_statistics(rewards + shift)
    for field in ("within_variance", "between_variance", "shrinkage", "reward_variance"):
        torch.testing.assert_close(getattr(far, field), getattr(plain, field))


def test_one_distant_prompt_does_not_blind_the_others():
    """The first prompt lies at 1e4: its own s, of the others, must still be exact in float32."""
    rewards = torch.tensor([[1e4, 1e4], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    for order in ([0, 1, 2, 3], [1, 2, 3, 0], [1, 0, 2, 3]):
        at = order.index(0)
        assert group_statistics(rewards[order]).between_variance[at] == pytest.approx(1 / 6)
