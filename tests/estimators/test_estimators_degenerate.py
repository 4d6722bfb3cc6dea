"""Input at the edge has a defined answer, input beyond it a message that says what to do."""

import pytest
import torch

from openrlhf_js.estimators import ESTIMATORS, advantage, baseline, diagnostics, group_statistics

NAN = float("nan")
VALID = dict(greedy_rewards=torch.zeros(4), lengths=torch.ones(4, 3), shrinkage=0.3)


def test_one_equal_group_is_measured_against_the_batch():
    rewards = torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    for name in ("js", "js_grad"):
        assert (advantage(name, rewards)[0] > 0).all()
    assert (advantage("grpo", rewards)[0] == 0).all()


def test_two_prompts():
    """One other prompt shows no dispersion: s = 0, and `js` goes half the way."""
    rewards = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    assert group_statistics(rewards).between_variance.tolist() == [0.0, 0.0]
    assert group_statistics(rewards).shrinkage.tolist() == [0.5, 0.5]
    assert baseline("js", rewards)[0].tolist() == [0.25, 0.75]


@pytest.mark.parametrize(
    ("name", "shape", "what"),
    [
        ("rloo", (4, 1), "2 responses"),
        ("js1", (4, 1), "2 responses"),
        ("bloo", (1, 4), "2 prompts"),
        ("js_fixed", (1, 4), "2 prompts"),
        ("js", (1, 1), "2 rewards"),
    ],
)
def test_too_few(name, shape, what):
    with pytest.raises(ValueError, match=f"{name.replace('+', '.')} needs at least {what}"):
        advantage(name, torch.zeros(shape), shrinkage=0.3)


def test_group_of_one_valid_response():
    rewards = torch.tensor([[1.0, NAN], [0.0, 1.0], [1.0, 1.0]])
    mask = ~rewards.isnan()
    for name in ("js", "js_grad", "js_fixed"):
        b = baseline(name, rewards, mask=mask, shrinkage=0.3)
        assert b[0].tolist() == [0.75, 0.0]
    assert advantage("rloo", rewards, mask=mask)[0].tolist() == [0.0, 0.0]
    stats = group_statistics(rewards, mask)
    # It has a mean, so it counts in the batch mean and in s; it has no variance to give to v.
    assert stats.loo_batch_mean[1] == 1.0
    assert stats.between_variance[1] == 0.0
    assert stats.within_variance.tolist() == [0.125, 0.0, 0.25]


def test_nothing_valid():
    rewards = torch.full((4, 3), NAN)
    mask = torch.zeros(4, 3, dtype=torch.bool)
    for name in ESTIMATORS:
        assert (advantage(name, rewards, mask=mask, **VALID) == 0).all()
        values = torch.tensor(list(diagnostics(name, rewards, mask=mask, **VALID).values()))
        assert values.isfinite().all()


@pytest.mark.parametrize("value", [NAN, float("inf"), -float("inf"), 1e30])
def test_unusable_reward_names_its_prompt(value):
    rewards = torch.zeros(3, 2, dtype=torch.float64)
    rewards[1, 0] = value
    with pytest.raises(ValueError, match="prompt 1, response 0"):
        group_statistics(rewards)
    mask = torch.tensor([[True, True], [False, True], [True, True]])
    assert advantage("js", rewards, mask=mask).isfinite().all()


@pytest.mark.parametrize("value", [0.1, 1e6 + 1 / 16, 1e-20])
def test_all_rewards_equal(value):
    rewards = torch.full((6, 7), value)
    assert (group_statistics(rewards).shrinkage == 0).all()
    assert diagnostics("js", rewards)["js/share_of_equal_groups"] == 1
    starting_elsewhere = {"no_baseline", "remax", "spo"}
    starting_elsewhere |= {name for name, one in ESTIMATORS.items() if one.needs_unit_rewards}
    for name in ESTIMATORS.keys() - starting_elsewhere:
        assert not advantage(name, rewards, lengths=torch.ones(6, 7), shrinkage=0.3).any()


EQUAL = torch.zeros(3, 2)


@pytest.mark.parametrize(
    ("name", "rewards", "options", "message"),
    [
        ("jss", EQUAL, {}, "unknown estimator 'jss'.*js_grad"),
        ("js", torch.zeros(3), {}, "prompts, responses"),
        ("js", torch.zeros(0, 2), {}, "not empty"),
        ("js", [[1.0, 2.0], [1.0]], {}, "rows of equal length"),
        ("js", [["right", "wrong"]], {}, "rewards must be numbers"),
        ("js", EQUAL, {"mask": torch.ones(3, 2)}, "mask must be boolean"),
        ("js", EQUAL, {"mask": torch.ones(2, 3, dtype=torch.bool)}, "mask must be boolean"),
        ("remax", EQUAL, {}, r"remax needs greedy_rewards, one a prompt"),
        ("remax", EQUAL, {"greedy_rewards": torch.zeros(2)}, r"one a prompt; got \(2,\)"),
        ("remax", EQUAL, {"greedy_rewards": [0, 1, NAN]}, "a greedy reward is not finite"),
        ("remax", EQUAL, {"greedy_rewards": [1, None, 0]}, "greedy_rewards must be numbers"),
        ("js_fixed", EQUAL, {}, "js_fixed needs shrinkage"),
        ("js_fixed", EQUAL, {"shrinkage": NAN}, "js_fixed needs shrinkage"),
    ],
)
def test_wrong_input(name, rewards, options, message):
    with pytest.raises(ValueError, match=message):
        advantage(name, rewards, **options)
