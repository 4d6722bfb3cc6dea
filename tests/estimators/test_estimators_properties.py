"""What must hold for every batch: symmetry, units, masks that equal deletion, precision."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openrlhf_js.estimators import ESTIMATORS, advantage, baseline, diagnostics, group_statistics

SHRINKING = ["js", "js_fixed", "js_plus"]
SHIFT_FREE = [name for name in ESTIMATORS if name != "reinforce"]
OPTIONS = settings(max_examples=15, deadline=None)


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


@pytest.mark.parametrize("name", ESTIMATORS)
@OPTIONS
@given(rewards=batches(), data=st.data())
def test_order_does_not_matter(name, rewards, data):
    n, m = rewards.shape
    prompts = torch.tensor(data.draw(st.permutations(range(n))))
    responses = torch.tensor(data.draw(st.permutations(range(m))))
    shuffled = run(advantage, name, rewards[prompts][:, responses])
    close(shuffled, run(advantage, name, rewards)[prompts][:, responses])


@pytest.mark.parametrize("name", SHIFT_FREE)
@OPTIONS
@given(rewards=batches(), shift=st.integers(-1000, 1000))
def test_shift_does_not_matter(name, rewards, shift):
    greedy = torch.zeros(len(rewards), dtype=torch.float64)
    shifted = run(advantage, name, rewards + shift, greedy_rewards=greedy + shift)
    close(shifted, run(advantage, name, rewards))


@pytest.mark.parametrize("name", ESTIMATORS)
@OPTIONS
@given(rewards=batches(), factor=st.sampled_from([0.25, 2.0, 3.0, 100.0]))
def test_advantage_scales_with_the_rewards(name, rewards, factor):
    result = run(advantage, name, rewards * factor)
    unit = 1.0 if ESTIMATORS[name].scaling else factor
    torch.testing.assert_close(result, run(advantage, name, rewards) * unit, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", SHRINKING)
@OPTIONS
@given(rewards=batches())
def test_shrunk_baseline_lies_between_its_ends(name, rewards):
    b = run(baseline, name, rewards)
    ends = torch.stack([baseline("rloo", rewards), baseline("bloo", rewards)])
    assert (b >= ends.amin(0) - 1e-12).all() and (b <= ends.amax(0) + 1e-12).all()


@pytest.mark.parametrize("name", ESTIMATORS)
@OPTIONS
@given(rewards=batches(), extra=st.integers(1, 2), data=st.data())
def test_mask_equals_deletion(name, rewards, extra, data):
    """A masked prompt, and masked responses at any place of each prompt, leave no trace."""
    n, m = rewards.shape
    wide = torch.full((n + 1, m + extra), float("nan"), dtype=torch.float64)
    mask = torch.zeros_like(wide, dtype=torch.bool)
    gone = data.draw(st.integers(0, n))
    rows = [i for i in range(n + 1) if i != gone]
    for i, row in enumerate(rows):
        keep = data.draw(st.permutations(range(m + extra)))[:m]
        wide[row, keep] = rewards[i]
        mask[row, keep] = True
    greedy = torch.arange(n, dtype=torch.float64)
    wide_greedy = torch.full((n + 1,), float("nan"), dtype=torch.float64)
    wide_greedy[rows] = greedy
    result = run(advantage, name, wide, mask=mask, greedy_rewards=wide_greedy)
    assert (result[~mask] == 0).all()
    assert (run(baseline, name, wide, mask=mask, greedy_rewards=wide_greedy)[~mask] == 0).all()
    plain = run(advantage, name, rewards, greedy_rewards=greedy)
    for i, row in enumerate(rows):
        # Deletion keeps the order of what is left.
        order = [rewards[i].tolist().index(value) for value in wide[row, mask[row]].tolist()]
        close(result[row, mask[row]], plain[i, order])


@pytest.mark.parametrize("name", ESTIMATORS)
@OPTIONS
@given(rewards=batches(least=2), data=st.data())
def test_any_mask_gives_finite_numbers(name, rewards, data):
    flags = data.draw(st.lists(st.booleans(), min_size=rewards.numel(), max_size=rewards.numel()))
    mask = torch.tensor(flags).view_as(rewards)
    rewards = rewards.masked_fill(~mask, float("nan"))
    assert run(advantage, name, rewards, mask=mask).isfinite().all()
    assert torch.tensor(list(run(diagnostics, name, rewards, mask=mask).values())).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_float_dtype(name, dtype):
    rewards = (torch.arange(24) % 5).view(6, 4).to(dtype) / 4
    result = run(advantage, name, rewards)
    assert result.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(
        result.double(), run(advantage, name, rewards.double()), rtol=1e-5, atol=1e-5
    )


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
