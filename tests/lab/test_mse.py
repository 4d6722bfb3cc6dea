"""Values and squared errors against slow loops, enumeration, and simulated coverage."""

import itertools

import numpy as np
import pytest
import torch

from openrlhf_js.estimators import ESTIMATORS, LiveEstimator, baseline
from openrlhf_js.lab import mse
from openrlhf_js.lab.mse import check_batch_size, draw, left_out, measure
from openrlhf_js.lab.pool import Samples
from openrlhf_js.lab.results import reduction
from openrlhf_js.lab.value import spread, values_of
from openrlhf_js.sampling.prompts import Prompt

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


def sums_of(errors, name):
    """(N,) the summed squared errors of a baseline."""
    return errors.sums[errors.names.index(name)]


def cross_of(errors, name):
    """(N,) what each prompt adds to the others' errors."""
    return errors.cross[errors.names.index(name)]


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


def slow_sums(name, chosen, known, past, shrinkage=None):
    """(N,) summed squared errors of a live estimator, batch after batch.

    `chosen` (b, n) are the prompts of the batches, `past` (N,) rewards in an earlier visit.
    """
    sums = np.zeros(N)
    for b, prompts in enumerate(chosen):
        live = LiveEstimator(name, shrinkage=shrinkage)
        keys = torch.from_numpy(prompts)
        earlier = torch.from_numpy(past[prompts, None])
        live.start(live.batch(earlier, mask=earlier.isfinite(), keys=keys))
        batch = live.batch(
            known.rewards[b],
            lengths=known.lengths[b],
            greedy_rewards=known.greedy_rewards[b],
            keys=keys,
            step=1,
        )
        baselines = live.estimate(batch).baseline
        for i, prompt in enumerate(prompts):
            squares = (baselines[i] - known.values[b, i]) ** 2
            sums[prompt] += float(squares.mean() - known.value_errors[b, i])
    return sums


def test_errors_are_those_of_a_slow_loop():
    rewards = pool(10)
    greedy = np.array([0.0, 1, 1, 0, 1])
    past = np.array([0.1, 0.9, 0.4, np.nan, 0.6])
    batches = 20
    n = 4
    m = 3
    pool_with_past = samples(rewards, greedy=greedy)._replace(past=past[:, None])
    errors = measure(pool_with_past, n, m, batches, 7)
    generator = np.random.default_rng([7, n, m])
    chosen, known = draw(samples(rewards, greedy=greedy), n, m, batches, generator)

    assert set(errors.names) == set(ESTIMATORS)
    assert errors.counts.sum() == batches * n
    for name in set(errors.names) - {"js_fixed"}:
        expected = slow_sums(name, chosen, known, past)
        assert sums_of(errors, name) == pytest.approx(expected, abs=1e-6), name  # memory: float32
    # The oracle is the best constant coefficient.
    best = errors.shrinkage[errors.names.index("js_fixed")]
    oracle = sums_of(errors, "js_fixed")
    assert 0.05 < best < 0.95
    assert oracle == pytest.approx(slow_sums("js_fixed", chosen, known, past, best))
    for other in (best - 0.02, best + 0.02, 0.0, 1.0):
        assert slow_sums("js_fixed", chosen, known, past, other).sum() > oracle.sum()


def test_the_oracle_needs_no_other_baseline():
    everything = measure(samples(pool(10)), 4, 3, 20, 7)
    alone = measure(samples(pool(10)), 4, 3, 20, 7, chosen=("js_fixed",))
    assert alone.names == ("rloo", "js_fixed")
    assert alone.shrinkage[1] == everything.shrinkage[everything.names.index("js_fixed")] > 0
    assert sums_of(alone, "js_fixed") == pytest.approx(sums_of(everything, "js_fixed"))


def slow_cross(name, chosen, known):
    """(N,) the change of the others' summed errors where a prompt is in their batch."""
    changes = [[] for _ in range(N)]
    n = chosen.shape[1]
    for b, k in itertools.product(range(len(chosen)), range(n)):
        others = [i for i in range(n) if i != k]
        rewards = known.rewards[b]
        values = known.values[b, others][:, None]
        with_it = baseline(name, rewards)[others] - values
        without = baseline(name, rewards[others]) - values
        change = (with_it.square() - without.square()).mean(1).sum()
        changes[chosen[b, k]].append(float(change))
    return [np.mean(prompt_changes) for prompt_changes in changes]


def test_cross_is_what_a_batch_without_the_prompt_shows(monkeypatch):
    rewards = pool(10)
    n = 4
    m = 3
    monkeypatch.setattr(mse, "CROSS_BATCHES", 12)
    errors = measure(samples(rewards), n, m, 30, 7)
    generator = np.random.default_rng([7, n, m, 1])
    chosen, known = draw(samples(rewards), n, m, 12, generator)
    for name in ("rloo", "js", "js_grad", "bloo", "reinforce++"):
        expected = slow_cross(name, chosen, known)
        assert cross_of(errors, name) == pytest.approx(expected, abs=1e-12), name
    assert cross_of(errors, "rloo") == pytest.approx(np.zeros(N), abs=1e-12)
    assert errors.influences().sum(1) == pytest.approx(errors.sums.sum(1))


def test_intervals_of_js_cover():
    """With 5 % outside, 6 or more of 40 come up once in 70 times; own errors alone miss 15."""
    reductions = []
    js_errors = 0.0
    rloo_errors = 0.0
    for seed in range(40):
        values = np.random.default_rng([seed, 1]).beta(0.5, 0.5, 32)
        errors = measure(samples(pool(16, seed, values)), 16, 2, 40, seed)
        influences = errors.influences()
        js = influences[errors.names.index("js")]
        rloo = influences[errors.names.index("rloo")]
        reductions.append(reduction(js, rloo))
        js_errors += js.sum()
        rloo_errors += rloo.sum()
    truth = 100 * (1 - js_errors / rloo_errors)
    missed = 0
    for estimate in reductions:
        missed += not estimate.low <= truth <= estimate.high
    assert missed < 6


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


def test_the_mean_is_the_error_to_the_true_value_however_small_the_pool(monkeypatch):
    """With 4 responses left, the value's own error is as large as that of a good baseline."""
    monkeypatch.setattr(mse, "CROSS_BATCHES", 0)  # for intervals, and slow
    pools = 250
    values = VALUES[:3]
    noise = (values * (1 - values)).mean() / 4
    names = ("rloo", "bloo", "js", "js_grad", "js1", "dr_grpo", "reinforce++", "no_baseline")
    means = {name: [] for name in names}
    for seed in range(pools):
        errors = measure(samples(pool(6, seed, values)), 3, 2, 20, seed)
        for name in names:
            means[name].append(sums_of(errors, name).sum() / 60)
    for name in names:
        standard_error = np.std(means[name], ddof=1) / np.sqrt(pools)
        difference = np.mean(means[name]) - exact(name, 2)
        assert abs(difference) < 3.5 * standard_error, name
        assert noise > 5 * standard_error  # what would be off without the correction


@pytest.mark.parametrize(
    ("n", "m", "message"),
    [
        (6, 2, "batches of 6 prompts cannot be drawn from 5: ask for fewer"),
        (3, 1, "m = 1: rloo averages"),
        (3, 6, "m = 6 is more than half of the 10 responses: sample more"),
    ],
)
def test_what_cannot_be_drawn(n, m, message):
    with pytest.raises(ValueError, match=message):
        check_batch_size(pool(10), n, m)
    assert np.isfinite(measure(samples(pool(10)), 3, 5, 3, 0).sums).all()  # half of the pool can


def test_rows_and_notes():
    result = mse.mse(samples(pool(20)), 4, (2, 4), 200, 0)
    rloo = quantities(result, m=2, estimator="rloo")
    js = quantities(result, m=2, estimator="js")
    reference = rloo["reduction_percent"]
    assert reference["low"] == reference["value"] == reference["high"] == 0
    ratio = js["mse"]["value"] / rloo["mse"]["value"]
    assert js["reduction_percent"]["value"] == pytest.approx(100 * (1 - ratio))
    assert 0 < js["shrinkage"]["value"] < 1
    assert rloo["shrinkage"]["value"] is None
    kinds = result.notes["gradients"]
    assert kinds["js"] == "unbiased"
    assert kinds["js1"] == "biased"
    assert kinds["js_fixed"] == "oracle"
    assert result.caption.startswith("200 batches of 4 of 5 prompts; 95 % intervals over prompts")
    assert result.arrays["squared_error_sums"].shape == (2, len(kinds), N)
    assert result.arrays["counts"].sum(1).tolist() == [800, 800]


def test_one_prompt_without_an_error():
    equal_rewards = samples(np.ones((1, 16)))
    result = mse.mse(equal_rewards, 1, (2,), 3, 0)
    expected = {"bloo", "js1", "js_fixed", "dbb", "spo"}
    assert result.notes["left_out"].keys() == expected
    assert left_out(2, past=True) == {}
    assert quantities(result, estimator="js")["mse"]["value"] == 0
    values = quantities(values_of(equal_rewards), group="all")
    assert values["all_rewards_equal"]["value"] == 1


def test_baselines_are_chosen_and_may_be_the_users_own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def mine(batch):\n"
        "    others = batch.statistics.loo_batch_mean[:, None]\n"
        "    return others.expand_as(batch.rewards)\n"
    )
    own = f"{file}:mine"
    errors = measure(samples(pool(10)), 4, 3, 30, 7, chosen=(own, "bloo"))
    assert errors.names == ("rloo", own, "bloo")
    assert sums_of(errors, own) == pytest.approx(sums_of(errors, "bloo"))
    assert cross_of(errors, own) == pytest.approx(cross_of(errors, "bloo"))
    shown = mse.mse(samples(pool(20)), 4, (2,), 30, 0, chosen=(own,))
    assert shown.notes["gradients"] == {"rloo": "unbiased", own: "unbiased"}
    with pytest.raises(ValueError, match="spo needs an earlier visit"):
        measure(samples(pool(10)), 4, 3, 30, 7, chosen=("spo",))
    with pytest.raises(ValueError, match="dbb takes rewards between 0 and 1"):
        measure(samples(2 * pool(10)), 4, 3, 30, 7, chosen=("dbb",))
