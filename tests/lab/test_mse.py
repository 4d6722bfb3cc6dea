import itertools

import numpy as np
import pytest
import torch

from openrlhf_js.estimators import ESTIMATORS, baseline
from openrlhf_js.lab import mse
from openrlhf_js.lab.mse import best_coefficient, check, draw, left_out, measure, measurements
from openrlhf_js.lab.mse_summary import arrays, influences, mean_error, summarise
from openrlhf_js.lab.reductions import reduction
from openrlhf_js.uncertainty import clustered_mean

VALUES = np.array([0.1, 0.5, 0.8, 0.95, 0.3])
N = len(VALUES)


def pool(responses, seed=0, values=VALUES):
    draws = np.random.default_rng(seed).random((len(values), responses))
    return (draws < values[:, None]).astype(float)


def row(found, name):
    return found.sums[found.names.index(name)]


def test_a_batch_is_drawn_without_replacement_and_the_value_from_the_rest():
    numbers = np.arange(30.0).reshape(5, 6)  # every reward another one
    chosen, rewards, value, noise = draw(numbers, 3, 2, 50, np.random.default_rng(0))
    assert chosen.shape == (50, 3)
    assert rewards.shape == (50, 3, 2)
    for b, i in itertools.product(range(50), range(3)):
        assert len(set(chosen[b])) == 3
        own = numbers[chosen[b, i]]
        drawn = rewards[b, i]
        assert len(set(drawn)) == 2
        assert set(drawn) <= set(own)
        rest = [each for each in own if each not in drawn]
        assert value[b, i] == pytest.approx(np.mean(rest))
        assert noise[b, i] == pytest.approx(np.var(rest, ddof=1) / 4)
    assert set(chosen.ravel()) == set(range(5))


def test_errors_are_those_of_a_slow_loop():
    rewards, greedy = pool(10), np.array([0.0, 1, 1, 0, 1])
    batches, n, m = 40, 4, 3
    found = measure(rewards, n, m, batches, 7, greedy)
    generator = np.random.default_rng([7, n, m])
    chosen, drawn, value, noise = draw(rewards, n, m, batches, generator)
    for name in found.names:
        if name == "js_fixed":
            continue
        sums = np.zeros(N)
        for b in range(batches):
            first = torch.from_numpy(greedy[chosen[b]])
            made = baseline(name, torch.from_numpy(drawn[b]), greedy_rewards=first).numpy()
            for i in range(n):
                error = np.mean([(made[i, j] - value[b, i]) ** 2 for j in range(m)])
                sums[chosen[b, i]] += error - noise[b, i]
        assert row(found, name) == pytest.approx(sums, abs=1e-12), name
    assert found.counts.sum() == batches * n
    assert set(found.names) == set(ESTIMATORS)


def test_the_oracle_is_the_best_constant_coefficient():
    rewards = pool(12, seed=3)
    n, m, batches = 4, 2, 60
    found = measure(rewards, n, m, batches, 1)
    chosen, drawn, value, noise = draw(rewards, n, m, batches, np.random.default_rng([1, n, m]))

    def total(shrinkage):
        sums = np.zeros(N)
        for b in range(batches):
            made = baseline("js_fixed", torch.from_numpy(drawn[b]), shrinkage=shrinkage).numpy()
            errors = np.square(made - value[b][:, None]).mean(1) - noise[b]
            np.add.at(sums, chosen[b], errors)
        return sums

    assert 0.05 < found.best < 0.95
    assert row(found, "js_fixed") == pytest.approx(total(found.best))
    for other in (found.best - 0.02, found.best + 0.02, 0.0, 1.0):
        assert total(other).sum() > row(found, "js_fixed").sum()
    assert found.shrinkage[found.names.index("js_fixed")] == pytest.approx(found.best)


def test_cross_is_what_a_batch_without_the_prompt_tells(monkeypatch):
    rewards, n, m = pool(10), 4, 3
    monkeypatch.setattr(mse, "CROSS_BATCHES", 12)
    found = measure(rewards, n, m, 30, 7)
    chosen, drawn, value, _ = draw(rewards, n, m, 12, np.random.default_rng([7, n, m, 1]))
    for name in ("rloo", "js", "js_plus", "bloo", "reinforce++"):
        told = [[] for _ in range(N)]
        for b, k in itertools.product(range(12), range(n)):
            others = [i for i in range(n) if i != k]
            with_it = baseline(name, torch.from_numpy(drawn[b])).numpy()[others]
            without = baseline(name, torch.from_numpy(drawn[b][others])).numpy()
            true = value[b][others][:, None]
            change = np.square(with_it - true) - np.square(without - true)
            told[chosen[b, k]].append(change.mean(1).sum())
        wanted = [np.mean(each) for each in told]
        assert found.cross[found.names.index(name)] == pytest.approx(wanted, abs=1e-12), name
    assert found.cross[found.names.index("rloo")] == pytest.approx(np.zeros(N))
    assert influences(found).sum(1) == pytest.approx(found.sums.sum(1))


def test_intervals_of_js_cover():
    """With 5 % outside, 8 or more of 60 come up once in 90 times; own errors alone miss 20."""
    reductions, errors, references = [], [], []
    for seed in range(60):
        values = np.random.default_rng([seed, 1]).beta(0.5, 0.5, 32)
        found = measure(pool(16, seed, values), 16, 2, 40, seed)
        shares = influences(found)
        js, rloo = (shares[found.names.index(name)] for name in ("js", "rloo"))
        reductions.append(reduction(js, rloo))
        errors.append(js.sum())
        references.append(rloo.sum())
    truth = 100 * (1 - sum(errors) / sum(references))
    assert sum(not each.low <= truth <= each.high for each in reductions) < 8


@pytest.mark.parametrize(
    ("sums", "wanted"), [((4, 2, 1), 0.75), ((1, 9, 2), 0), ((9, 1, 2), 1), ((2, 2, 2), 0)]
)
def test_best_coefficient_by_hand(sums, wanted):
    assert best_coefficient(*sums) == pytest.approx(wanted)


def exact(name, m):
    """The true mean squared error of a baseline, by going through every outcome: n = N = 3."""
    values = VALUES[:3]
    total = 0.0
    for outcome in itertools.product((0.0, 1.0), repeat=3 * m):
        rewards = np.array(outcome).reshape(3, m)
        chance = np.prod(np.where(rewards == 1, values[:, None], 1 - values[:, None]))
        made = baseline(name, torch.from_numpy(rewards)).numpy()
        total += chance * np.square(made - values[:, None]).mean()
    return total


POOLS = 300


@pytest.fixture(scope="module")
def many_pools():
    """Mean squared errors of many small pools of the same three prompts, (e, pools)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mse, "CROSS_BATCHES", 0)  # which is of intervals, and takes the longest
        found = [measure(pool(6, seed, VALUES[:3]), 3, 2, 20, seed) for seed in range(POOLS)]
    return found[0].names, np.stack([each.sums.sum(1) / 60 for each in found], 1)


@pytest.mark.parametrize(
    "name", ["rloo", "bloo", "js", "js_plus", "js1", "dr_grpo", "reinforce++", "reinforce"]
)
def test_the_mean_is_the_error_to_the_true_value_however_small_the_pool(many_pools, name):
    """With 4 responses left, the value's own error is as large as that of a good baseline."""
    names, means = many_pools
    errors = means[names.index(name)]
    standard_error = errors.std(ddof=1) / np.sqrt(POOLS)
    truth = exact(name, 2)
    assert abs(errors.mean() - truth) < 3.5 * standard_error
    noise = (VALUES[:3] * (1 - VALUES[:3])).mean() / 4
    assert noise > 5 * standard_error  # what would be off if it had not been taken off


def test_exact_errors_by_hand():
    variance = VALUES[:3] * (1 - VALUES[:3])
    assert exact("rloo", 2) == pytest.approx(variance.mean())
    assert exact("dr_grpo", 2) == pytest.approx(variance.mean() / 2)
    assert exact("reinforce", 2) == pytest.approx(np.square(VALUES[:3]).mean())


def test_the_same_seed_gives_the_same():
    first = measure(pool(10), 3, 2, 9, 0)
    again = measure(pool(10), 3, 2, 9, 0)
    assert first.sums.tolist() == again.sums.tolist()
    assert measure(pool(10), 3, 2, 9, 1).sums.tolist() != first.sums.tolist()


def test_progress_counts_batches_and_those_without_a_prompt(monkeypatch):
    monkeypatch.setattr(mse, "CHUNK_REWARDS", 120)
    monkeypatch.setattr(mse, "CROSS_BATCHES", 5)
    told = []
    measure(pool(10), 3, 2, 9, 0, progress=told.append)
    assert told == [4 * 4, 5 * 4, 20 + 4, 20 + 8, 20 + 9]  # 4 of each: itself, and without one of 3
    assert measurements(3, 9) == 29
    told.clear()
    measure(pool(10), 2, 2, 9, 0, progress=told.append)
    assert told[-1] == measurements(2, 9) == 9  # with two prompts none is left out


def test_equal_rewards_have_no_error():
    found = measure(np.ones((4, 8)), 3, 2, 5, 0)
    for name in ("rloo", "bloo", "js", "js_plus", "js_fixed", "js1", "reinforce++"):
        assert row(found, name) == pytest.approx(np.zeros(4))
    summary = summarise({2: found}, np.ones((4, 8)), 3, 5)
    assert "equal, so that rloo has no error to reduce" in summary["finding"]
    assert all(np.isnan(each["reduction_percent"]) for each in summary["rows"])


def test_one_prompt():
    rewards = pool(16)[1:2]
    assert left_out(1, False).keys() == {"bloo", "js1", "js_fixed", "remax"}
    found = measure(rewards, 1, 2, 30, 0)
    assert row(found, "js").tolist() == pytest.approx(row(found, "rloo").tolist())
    summary = summarise({2: found}, rewards, 1, 30)
    assert "no other to shrink to, and js is rloo" in summary["finding"]
    assert np.isfinite(found.sums).all()


@pytest.mark.parametrize(
    ("n", "m", "message"),
    [
        (6, 2, "batches of 6 prompts cannot be drawn from 5: ask for fewer"),
        (3, 1, "m = 1: rloo averages"),
        (3, 6, r"m = 6 is more than half of the 10 responses.*--responses 128 or more, or lower m"),
    ],
)
def test_what_cannot_be_drawn(n, m, message):
    with pytest.raises(ValueError, match=message):
        check(pool(10), n, m)


def test_half_of_the_pool_can_be_drawn():
    assert np.isfinite(measure(pool(10), 3, 5, 3, 0).sums).all()


def test_mean_error_weights_prompts_by_how_often_they_were_drawn():
    found = mean_error(np.array([2.0, 9.0, 0.0]), np.array([1, 3, 0]))
    assert found.value == pytest.approx(11 / 4)
    assert found == clustered_mean([2, 3, 3, 3], [0, 1, 1, 1])


def test_summary():
    rewards = pool(20)
    found = {m: measure(rewards, 4, m, 200, 0) for m in (2, 4)}
    summary = summarise(found, rewards, 4, 200)
    assert [(each["responses"], each["estimator"]) for each in summary["rows"]] == [
        (m, name) for m in (2, 4) for name in found[2].names
    ]
    by = {(each["responses"], each["estimator"]): each for each in summary["rows"]}
    rloo, js = by[2, "rloo"], by[2, "js"]
    assert (rloo["reduction_percent"], rloo["low"], rloo["high"]) == (0, 0, 0)
    assert js["reduction_percent"] == pytest.approx(100 * (1 - js["mse"] / rloo["mse"]))
    assert (js["gradient"], by[2, "js1"]["gradient"]) == ("unbiased", "biased")
    assert by[2, "js_fixed"]["gradient"] == "oracle"
    assert 0 < js["shrinkage"] < 1
    assert np.isnan(rloo["shrinkage"])
    percent = f"js by {js['reduction_percent']:.1f} % ({js['low']:.1f} to {js['high']:.1f}"
    assert percent in summary["finding"]
    assert "in brackets 95 % intervals over prompts" in summary["finding"]
    raw = arrays(found)
    assert raw["squared_error_sums"].shape == (2, len(found[2].names), N)
    assert raw["counts"].sum(1).tolist() == [800, 800]


def test_an_effect_that_drowns_in_noise_is_said_to():
    rewards = pool(8, seed=1)
    text = summarise({4: measure(rewards, 5, 4, 3, 0)}, rewards, 5, 3)["finding"]
    assert ": no difference that these prompts show) at m = 4" in text


def test_prompts_that_were_never_drawn_do_not_make_an_interval_narrower():
    rewards = np.tile(pool(16), (8, 1))
    found = measure(rewards, 3, 2, 1, 0)
    drawn = found._replace(
        sums=found.sums[:, found.counts > 0],
        cross=found.cross[:, found.counts > 0],
        counts=found.counts[found.counts > 0],
    )
    assert drawn.counts.tolist() == [1, 1, 1]
    rows, of_drawn = (summarise({2: each}, rewards, 3, 1)["rows"] for each in (found, drawn))
    for one, other in zip(rows, of_drawn, strict=True):
        np.testing.assert_equal(one, other)
