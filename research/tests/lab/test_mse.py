"""Values and squared errors against slow loops, enumeration, and simulated coverage."""

import itertools

import numpy as np
import pytest
import torch

from baseline_research.lab.batches import BatchPlan
from baseline_research.lab.mse import draw, measure, mse
from baseline_research.lab.pool import Samples
from baseline_research.lab.value import spread, values_of
from openrlhf_js.estimators import ESTIMATORS, LiveEstimator, baseline
from paired_eval.sampling.prompts import Prompt

VALUES = np.array([0.1, 0.5, 0.8, 0.95, 0.3])
N = len(VALUES)


def pool(responses, seed=0, values=VALUES):
    draws = np.random.default_rng(seed).random((len(values), responses))
    return (draws < values[:, None]).astype(float)


def samples(rewards, groups=None, greedy=None):
    rewards = np.array(rewards, dtype=float)
    n, m = rewards.shape
    if groups is None:
        groups = [""] * n
    if greedy is None:
        greedy = np.zeros(n)
    lengths = range(1, m + 1)
    return Samples(
        prompts=[Prompt("p", "p", group, [1]) for group in groups],
        response_tokens=[[np.zeros(size, dtype=np.int32) for size in lengths] for _ in range(n)],
        rewards=rewards,
        finished=np.arange(n * m).reshape(n, m) % 2 == 0,
        greedy_rewards=greedy,
        settings={"a": 1},
    )


def quantities(result, **settings):
    """The rows with these settings, by their quantity."""
    rows = {}
    for row in result.rows:
        if settings.items() <= row.settings.items():
            rows[row.quantity] = row.flat()
    return rows


def test_values_by_hand():
    rewards = [[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]]
    greedy = np.array([1.0, 1, 0])
    result = values_of(samples(rewards, ["a", "b", "a"], greedy))
    assert result.arrays["values"] == pytest.approx([0.5, 1, 0.25])
    assert result.arrays["standard_errors"] == pytest.approx(np.sqrt([1 / 12, 0, 1 / 16]))
    assert result.arrays["lengths"][0].tolist() == [1, 2, 3, 4]
    everything = quantities(result, group="all")
    a = quantities(result, group="a")
    b = quantities(result, group="b")
    assert a["prompts"]["value"] == 2
    assert a["mean_value"]["value"] == pytest.approx(3 / 8)
    assert a["greedy_reward"]["value"] == 0.5
    assert b["all_rewards_equal"]["value"] == 1
    assert everything["tokens"]["value"] == 2.5
    assert everything["unfinished"]["value"] == 0.5
    assert everything["all_rewards_equal"]["value"] == pytest.approx(1 / 3)
    mean = everything["mean_value"]
    assert mean["value"] == pytest.approx(7 / 12)
    assert 0 < mean["low"] < 7 / 12 < mean["high"] < 1
    assert result.caption == "3 prompts, 4 responses to each; 95 % intervals over prompts"


def test_the_spread_is_that_of_the_true_values():
    """Without the correction it would be sqrt(0.09 + 0.24 / 4) = 0.39 instead of 0.3."""
    rewards = pool(4, values=np.where(np.arange(4000) % 2, 0.2, 0.8))
    assert spread(rewards) == pytest.approx(0.3, abs=0.01)
    assert rewards.mean(1).std() > 0.34
    assert spread(np.array([[0.0, 1], [1, 0]])) == 0
    assert np.isnan(spread(np.array([[0.0, 1]])))


def test_a_batch_is_drawn_without_replacement_and_the_value_from_the_rest():
    numbers = np.arange(30.0).reshape(5, 6)  # every reward another one
    chosen, known = draw(samples(numbers), 3, 2, 50, np.random.default_rng(0))
    rewards = known.rewards.numpy()
    assert chosen.shape == (50, 3)
    assert rewards.shape == (50, 3, 2)
    for b, i in itertools.product(range(50), range(3)):
        assert len(set(chosen[b])) == 3
        prompt_rewards = numbers[chosen[b, i]]
        drawn = rewards[b, i]
        assert len(set(drawn)) == 2
        assert set(drawn) <= set(prompt_rewards)
        others = [reward for reward in prompt_rewards if reward not in drawn]
        assert known.values[b, i] == pytest.approx(np.mean(others))
        assert known.value_errors[b, i] == pytest.approx(np.var(others, ddof=1) / 4)
    assert set(chosen.ravel()) == set(range(5))


def slow_errors(name, known, shrinkage=None):
    """(B,) mean squared errors of a live estimator, batch after batch."""
    errors = []
    for b in range(len(known.rewards)):
        live = LiveEstimator(name, shrinkage=shrinkage)
        batch = live.batch(
            known.rewards[b],
            lengths=known.lengths[b],
            greedy_rewards=known.greedy_rewards[b],
            step=1,
        )
        squares = (live.estimate(batch).baseline - known.values[b][:, None]) ** 2
        errors.append(float((squares.mean(1) - known.value_errors[b]).mean()))
    return errors


PLAN = BatchPlan(batches=20, prompts=4, responses=(3,), seed=7)


def test_errors_are_those_of_a_slow_loop():
    rewards = pool(10)
    greedy = np.array([0.0, 1, 1, 0, 1])
    names = [name for name in ESTIMATORS if name not in ("dbb", "spo")]
    over, measured = measure(samples(rewards, greedy=greedy), PLAN, 3, names)
    chosen, known = draw(
        samples(rewards, greedy=greedy), 4, 3, 20, np.random.default_rng([7, 4, 3])
    )
    assert over.chosen.tolist() == chosen.tolist()
    for name, errors in zip(names, measured.errors, strict=True):
        if name != "js_fixed":
            assert errors == pytest.approx(slow_errors(name, known), abs=1e-6), name
    # The oracle is the best constant coefficient.
    oracle = names.index("js_fixed")
    best = measured.shrinkage[oracle, 0]
    assert 0.05 < best < 0.95
    assert measured.errors[oracle] == pytest.approx(slow_errors("js_fixed", known, best))
    for other in (best - 0.02, best + 0.02, 0.0, 1.0):
        assert np.mean(slow_errors("js_fixed", known, other)) > measured.errors[oracle].mean()
    _, alone = measure(samples(rewards, greedy=greedy), PLAN, 3, ["rloo", "js_fixed"])
    assert alone.errors[1] == pytest.approx(measured.errors[oracle])  # it needs no other baseline


def exact(name, m):
    """The true mean squared error of a baseline, by going through every outcome: n = N = 3."""
    values = VALUES[:3, None]
    total = 0.0
    for outcome in itertools.product((0.0, 1.0), repeat=3 * m):
        rewards = np.array(outcome).reshape(3, m)
        probabilities = np.where(rewards == 1, values, 1 - values)
        baselines = baseline(name, torch.from_numpy(rewards)).numpy()
        total += probabilities.prod() * np.square(baselines - values).mean()
    return total


def test_the_mean_is_the_error_to_the_true_value_however_small_the_pool():
    """With 4 responses left, the value's own error is as large as that of a good baseline."""
    pools = 250
    values = VALUES[:3]
    noise = (values * (1 - values)).mean() / 4
    names = ("rloo", "bloo", "js", "js_grad", "js1", "dr_grpo", "reinforce++", "no_baseline")
    means = []
    for seed in range(pools):
        plan = BatchPlan(batches=20, prompts=3, responses=(2,), seed=seed)
        _, measured = measure(samples(pool(6, seed, values)), plan, 2, names)
        means.append(measured.errors.mean(1))
    for name, of_pools in zip(names, np.transpose(means), strict=True):
        standard_error = np.std(of_pools, ddof=1) / np.sqrt(pools)
        difference = np.mean(of_pools) - exact(name, 2)
        assert abs(difference) < 3.5 * standard_error, name
        assert noise > 5 * standard_error  # what would be off without the correction


def test_rewards_that_are_all_equal():
    equal_rewards = samples(np.ones((4, 16)))
    result = mse(equal_rewards, BatchPlan(batches=3, prompts=2, responses=(2,)), ("rloo", "js"))
    js = quantities(result, estimator="js")
    assert js["mse"]["value"] == 0
    assert js["reduction_percent"]["value"] is None
    values = quantities(values_of(equal_rewards), group="all")
    assert values["all_rewards_equal"]["value"] == 1
