"""Flat rewards with the ids of their groups, as most stacks hold them."""

import numpy as np
import pytest
import torch

from openrlhf_js.estimators import ESTIMATORS, LiveEstimator, advantage, baseline, diagnostics
from openrlhf_js.estimators.advantages import warn_once

FLAT = sorted(ESTIMATORS.keys() - {"remax"})
REWARDS = torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
LENGTHS = torch.tensor([[4, 1, 2], [3, 3, 3], [1, 5, 2]])
ORDER = torch.randperm(9, generator=torch.Generator().manual_seed(0))
IDS = np.array(["b", "a", "c"]).repeat(3)[ORDER.numpy()]


@pytest.mark.filterwarnings("ignore:.*knows nothing of earlier batches")
@pytest.mark.parametrize("name", sorted(FLAT))
def test_any_order_of_whole_groups(name):
    result = advantage(
        name,
        REWARDS.flatten()[ORDER],
        groups=IDS,
        lengths=LENGTHS.flatten()[ORDER],
        shrinkage=0.3,
    )
    expected = advantage(name, REWARDS, lengths=LENGTHS, shrinkage=0.3)
    torch.testing.assert_close(result, expected.flatten()[ORDER], rtol=1e-12, atol=1e-12)


def test_groups_of_different_sizes_and_masked_responses():
    rewards = [1.0, 0.0, 0.5, 1.0, 0.0, float("nan")]
    groups = [3, 3, 3, 8, 8, 8]
    mask = [True, True, True, True, True, False]
    result = advantage("js_grad", rewards, groups=groups, mask=mask)
    padded = torch.tensor([[1.0, 0.0, 0.5], [1.0, 0.0, 0.0]])
    valid = torch.tensor([[True] * 3, [True, True, False]])
    torch.testing.assert_close(result, advantage("js_grad", padded, mask=valid).flatten())
    ragged = advantage("js_grad", rewards[:5], groups=groups[:5])
    torch.testing.assert_close(ragged, result[:5])


@pytest.mark.parametrize(
    "groups",
    [
        [0, 0, 1, 1],
        np.array([9, 9, 5, 5]),
        torch.tensor([1, 1, 2, 2]),
        list(torch.tensor([1, 1, 2, 2])),
    ],
)
@pytest.mark.parametrize(
    "rewards", [[1, 0, 1, 1], [True, False, True, True], np.array([1, 0, 1, 1], dtype=np.int8)]
)
def test_rewards_and_ids_as_they_come(rewards, groups):
    result = baseline("rloo", rewards, groups=groups)
    assert result.dtype == torch.float32
    assert result.tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("rewards", "groups", "message"),
    [
        ([1.0, 0.0], [1], r"rewards and groups must be lists of the same length; got \(2,\)"),
        ([], [], "not empty"),
        (torch.zeros(2, 2), [1, 2], r"same length; got \(2, 2\) and \(2,\)"),
        ([1.0, float("inf")], ["a", "a"], "prompt 0, response 1 is inf"),
        ([1.0, 0.0], None, "Flat rewards come with groups="),
        ([1.0, 0.0], torch.zeros(2, 1), r"groups must be a flat list \(B,\) with the id of each"),
        ([1.0, 0.0], 2, r"groups must be a flat list \(B,\) with the id of each"),
    ],
)
def test_what_does_not_fit(rewards, groups, message):
    with pytest.raises(ValueError, match=message):
        advantage("rloo", rewards, groups=groups)


def test_without_a_past_it_is_said_once_at_the_users_line():
    warn_once.cache_clear()
    with pytest.warns(UserWarning, match="js_grad knows nothing of earlier batches here"):
        first = advantage("js_grad", REWARDS)
    live = LiveEstimator("js_grad")
    for call in (baseline, advantage, diagnostics, lambda _, rewards: live.batch(rewards)):
        warn_once.cache_clear()
        with pytest.warns(UserWarning, match="js_grad weighs all responses alike here") as said:
            call("js_grad", REWARDS)
        assert {warning.filename for warning in said} == {__file__}
    assert torch.equal(first, live.estimate(live.batch(REWARDS)).advantages)
