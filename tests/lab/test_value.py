import numpy as np
import pytest

from openrlhf_js.lab.store import Samples
from openrlhf_js.lab.value import mean_value, spread, summarise, values_of
from openrlhf_js.uncertainty import clustered_mean, clustered_proportion


def samples(rewards, groups=None, greedy=None):
    rewards = np.array(rewards, dtype=float)
    n, m = rewards.shape
    tokens = [[np.zeros(1 + j, dtype=np.int32) for j in range(m)] for _ in range(n)]
    finished = np.arange(n * m).reshape(n, m) % 2 == 0
    names = [""] * n if groups is None else groups
    return Samples(
        ["p"] * n, ["l"] * n, names, [[1]] * n, tokens, rewards, finished, greedy, {"model": "x"}
    )


def test_values_by_hand():
    found = values_of(np.array([[0.0, 1, 1, 0], [2, 2, 2, 2], [1, 2, 3, 6]]))
    assert found.values.tolist() == [0.5, 2, 3]
    assert found.variances == pytest.approx([1 / 3, 0, 14 / 3])
    assert found.standard_errors == pytest.approx(np.sqrt([1 / 12, 0, 14 / 12]))


def test_far_from_0_values_keep_their_digits():
    rewards = np.array([[0.0, 1, 1, 0]])
    assert values_of(rewards + 1e9).variances == pytest.approx(values_of(rewards).variances)


def test_one_response_has_no_standard_error():
    found = values_of(np.array([[1.0], [0.0]]))
    assert found.values.tolist() == [1, 0]
    assert np.isnan(found.standard_errors).all()
    summary, _ = summarise(samples([[1], [0]]))
    assert summary["finding"].startswith("Mean value 0.500 (95 % interval")


def test_the_mean_is_clustered_by_prompt():
    rewards = np.array([[0.0, 1], [1, 1], [0, 0]])
    clusters = [0, 0, 1, 1, 2, 2]
    assert mean_value(rewards) == clustered_proportion([0, 1, 1, 1, 0, 0], clusters)
    assert mean_value(3 * rewards) == clustered_mean([0, 3, 3, 3, 0, 0], clusters)


def test_the_spread_is_that_of_the_true_values():
    """Without the correction it would be sqrt(0.09 + 0.24 / 4) = 0.39 in place of 0.3."""
    generator = np.random.default_rng(0)
    values = np.where(np.arange(4000) % 2, 0.2, 0.8)
    rewards = (generator.random((4000, 4)) < values[:, None]).astype(float)
    assert spread(rewards) == pytest.approx(0.3, abs=0.01)
    assert values_of(rewards).values.std() > 0.34
    assert spread(np.array([[0.0, 1], [1, 0]])) == 0
    assert np.isnan(spread(np.array([[0.0, 1]])))


def test_summary():
    rewards = [[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]]
    given = samples(rewards, ["a", "b", "a"], np.array([1.0, 1, 0]))
    summary, arrays = summarise(given)
    everything, a, b = summary["rows"]
    assert [each["group"] for each in summary["rows"]] == ["all", "a", "b"]
    assert everything["mean_value"] == pytest.approx(7 / 12)
    assert (a["prompts"], a["mean_value"]) == (2, pytest.approx(3 / 8))
    assert (b["all_rewards_equal"], everything["all_rewards_equal"]) == (1, pytest.approx(1 / 3))
    assert (everything["greedy_reward"], a["greedy_reward"]) == pytest.approx((2 / 3, 1 / 2))
    assert everything["tokens"] == 2.5
    assert everything["unfinished"] == 0.5
    assert summary["samples"] == {"model": "x"}
    assert arrays["values"] == pytest.approx([0.5, 1, 0.25])
    assert arrays["greedy_rewards"].tolist() == [1, 1, 0]
    assert arrays["lengths"][0].tolist() == [1, 2, 3, 4]
    assert f"({everything['low']:.3f} to {everything['high']:.3f}" in summary["finding"].replace(
        "95 % interval ", ""
    )
    assert "for 33% of the prompts all 4 rewards are equal" in summary["finding"]


def test_one_group_has_one_row():
    summary, arrays = summarise(samples([[0, 1], [1, 1]], ["a", "a"]))
    assert len(summary["rows"]) == 1
    assert summary["rows"][0]["greedy_reward"] is None
    assert "greedy_rewards" not in arrays


def test_equal_rewards():
    summary, _ = summarise(samples(np.zeros((3, 4))))
    assert summary["finding"].startswith("Every one of the 3 x 4 rewards is 0: nothing tells")


def test_one_prompt():
    summary, _ = summarise(samples([[0, 1, 1]]))
    assert "one prompt says nothing of the others" in summary["finding"]
