"""Published baselines of others: each against numbers worked out from its paper by hand."""

import math

import pytest
import torch

from openrlhf_js.estimators import LiveEstimator, advantage, baseline

REWARDS = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
KEYS = torch.tensor([7, 8, 9])


def close(result, expected, digits=1e-12):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(result, expected, rtol=0, atol=digits)


def step(live, number, rewards=REWARDS, **inputs):
    """One training step: the estimate, then what is learnt."""
    batch = live.batch(rewards, keys=KEYS, step=number, **inputs)
    result = live.estimate(batch)
    live.learn(batch)
    return result


def test_opo_weighs_rewards_by_lengths():
    lengths = torch.tensor([[3, 1], [1, 1], [2, 7]])
    close(baseline("opo", REWARDS, lengths=lengths), [[0.75, 0.75], [1.0, 1.0], [0.0, 0.0]])
    close(baseline("opo", REWARDS, lengths=0 * lengths)[0], [0.5, 0.5])
    with pytest.raises(ValueError, match=r"opo needs the lengths of the responses"):
        baseline("opo", REWARDS)


def test_weighted_means_of_the_group():
    norms = torch.tensor([[3, 1], [1, 1], [2, 0]])
    close(
        baseline("weighted_mean", REWARDS, squared_score_norms=norms),
        [[0.75, 0.75], [1.0, 1.0], [0.0, 0.0]],
    )
    rewards = torch.tensor([[1.0, 0.0, 0.5]], dtype=torch.float64)
    norms = torch.tensor([[3, 1, 0]])
    # of the second and third: 0; of the first and third: 1; of the first two: 3 / 4
    close(baseline("weighted_rloo", rewards, squared_score_norms=norms), [[0.0, 1.0, 0.75]])
    close(baseline("weighted_rloo", REWARDS), baseline("rloo", REWARDS))
    close(
        baseline("weighted_rloo", rewards, squared_score_norms=0 * norms), baseline("rloo", rewards)
    )


def test_maxrl_divides_by_the_success_rate():
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0] * 4], dtype=torch.float64)
    close(advantage("maxrl", rewards), [[3.0, -1.0, -1.0, -1.0], [0.0] * 4])


def test_jspo_plus_plus_smooths_coefficient_and_mean():
    live = LiveEstimator("jspo++")
    # v = mean(1/2, 0, 0) / 2 = 1/12, s = mean(0, 1/4, 1/4) = 1/6, l = 1/3, M = 1/2
    first = step(live, 1)
    close(first.baseline, [[1 / 6, 5 / 6], [5 / 6, 5 / 6], [1 / 6, 1 / 6]])
    # the second batch is all right: v = s = 0, l = 0, M = 1; step 1 keeps w^1642.65, which is 0
    second = step(live, 2, torch.ones_like(REWARDS))
    close(second.advantages, torch.zeros_like(REWARDS))
    weight = 1.0
    for number in range(3, 200):
        step(live, number)
    for number in range(1, 200):
        weight = math.sqrt(0.95) ** (1642.65 / number) * weight + 1
    assert live.memory.recall(live.batch(REWARDS, keys=KEYS, step=200)).weight == pytest.approx(
        weight
    )


def test_mc_grpo_subtracts_the_median():
    rewards = torch.tensor([[0.0, 0.5, 1.0], [0.1, 0.1, 0.7]], dtype=torch.float64)
    close(baseline("mc_grpo", rewards), [[0.5] * 3, [0.1] * 3])
    one = 0.5 / 0.501
    close(advantage("mc_grpo", rewards), [[-one, 0.0, one], [0.0, 0.0, 600.0]])
    # of an even number the lower one of the middle two
    close(baseline("mc_grpo", REWARDS), [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])


def test_ebpo_shrinks_to_the_mean_since_the_start():
    live = LiveEstimator("ebpo")
    first = step(live, 1)
    # the six rewards have the variance 3/10, the three means 1/4: S = 0.15 / (0.15 + 0.25)
    shrunk = [0.5, 0.8125, 0.1875]
    close(first.baseline, [[value, value] for value in shrunk])
    deviation = math.sqrt((2 * 0.25 + 4 * 0.1875**2) / 5) + 1e-8
    close(first.advantages[1], [0.1875 / deviation] * 2)
    # twice the same: 12 rewards with the variance 3/11, six means with 1/5
    weight = (3 / 22) / (3 / 22 + 1 / 5)
    second = step(live, 2)
    close(second.baseline[1], [1 - weight / 2] * 2)
    # all wrong: the mean since the start is 1/3
    third = live.estimate(live.batch(torch.zeros(3, 2), keys=KEYS, step=3))
    close(third.baseline, torch.zeros(3, 2))  # which the normalisation takes back
    close(advantage("ebpo", REWARDS), first.advantages)


def test_dbb_counts_a_prompts_history():
    live = LiveEstimator("dbb")
    close(step(live, 1).baseline[:, 0], [1.5 / 3, 2.5 / 3, 0.5 / 3])
    second = step(live, 2, torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]]))
    # alpha and beta were 1.5 and 1.5; half of each is kept
    rate = 2.75 / (2.75 + 0.75)
    close(second.baseline[0], [rate] * 2)
    close(second.advantages[0], [(1 - rate) / math.sqrt(rate * (1 - rate))] * 2)
    masked = live.batch(
        REWARDS, mask=torch.tensor([[False] * 2, [True] * 2, [True] * 2]), keys=KEYS, step=3
    )
    close(masked.past[0], [2.75, 0.75])  # no response, no visit
    with pytest.raises(ValueError, match="dbb takes rewards between 0 and 1, got -1 to 1"):
        live.batch(torch.tensor([[-1.0, 1.0]]), keys=KEYS[:1], step=4)


def test_dbb_stays_finite_however_often_a_prompt_is_right():
    live = LiveEstimator("dbb")
    for number in range(1200):  # beta halves at each visit, and is 0 in the end
        result = step(live, number)
    assert result.advantages.isfinite().all()
    close(result.advantages[1:], torch.zeros(2, 2), digits=1e-7)


@pytest.mark.parametrize("name", ["dbb", "spo"])
def test_a_prompt_twice_in_a_batch_keeps_the_group_that_was_answered(name):
    live = LiveEstimator(name)
    keys = torch.tensor([7, 7])
    mask = torch.tensor([[True, True], [False, False]])
    live.learn(live.batch(REWARDS[1:], mask=mask, keys=keys, step=1))
    alone = LiveEstimator(name)
    alone.learn(alone.batch(REWARDS[1:2], keys=keys[:1], step=1))
    for column, values in alone.state_dict().items():
        assert torch.equal(live.state_dict()[column], values)


def test_spo_tracks_a_value_that_holds_nothing_of_today():
    live = LiveEstimator("spo")
    first = step(live, 1)
    close(first.baseline, torch.full((3, 2), 0.5))
    close(first.advantages[0, 0], 0.5 / (math.sqrt(6 / 4 / 5) + 1e-8))
    second = live.batch(REWARDS, keys=KEYS, step=2)
    close(second.past, [(0.875 * 0.5 + right) / 2.875 for right in (1, 2, 0)])
    rest = REWARDS - second.past[:, None]
    close(live.estimate(second).advantages, (rest - rest.mean()) / (rest.std() + 1e-8))
