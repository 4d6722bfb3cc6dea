"""Values and squared errors against slow loops, enumeration, and simulated coverage."""

import itertools

import numpy as np
import pytest
import torch

from openrlhf_js.estimators import ESTIMATORS, LiveEstimator, baseline
from openrlhf_js.lab import mse
from openrlhf_js.lab.mse import check, draw, left_out, measure
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
    tokens = [[np.zeros(1 + j, dtype=np.int32) for j in range(m)] for _ in range(n)]
    finished = np.arange(n * m).reshape(n, m) % 2 == 0
    prompts = [Prompt("p", "p", group, [1]) for group in groups or [""] * n]
    greedy = np.zeros(n) if greedy is None else greedy
    return Samples(prompts, tokens, rewards, finished, greedy, {"a": 1})


def quantities(result, **settings):
    return {
        row.quantity: row.flat() for row in result.rows if settings.items() <= row.settings.items()
    }


def test_values_by_hand():
    rewards = [[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]]
    found = values_of(samples(rewards, ["a", "b", "a"], np.array([1.0, 1, 0])))
    assert found.arrays["values"] == pytest.approx([0.5, 1, 0.25])
    assert found.arrays["standard_errors"] == pytest.approx(np.sqrt([1 / 12, 0, 1 / 16]))
    assert found.arrays["lengths"][0].tolist() == [1, 2, 3, 4]
    everything, a, b = (quantities(found, group=name) for name in ("all", "a", "b"))
    assert everything["mean_value"]["value"] == pytest.approx(7 / 12)
    assert (a["prompts"]["value"], a["mean_value"]["value"]) == (2, pytest.approx(3 / 8))
    assert b["all_rewards_equal"]["value"] == 1
    assert a["greedy_reward"]["value"] == 0.5
    assert everything["tokens"]["value"] == 2.5
    assert everything["unfinished"]["value"] == 0.5
    assert everything["all_rewards_equal"]["value"] == pytest.approx(1 / 3)
    assert 0 < everything["mean_value"]["low"] < 7 / 12 < everything["mean_value"]["high"] < 1
    assert found.caption == "3 prompts, 4 responses to each; 95 % intervals over prompts"


def test_the_spread_is_that_of_the_true_values():
    """Without the correction it would be sqrt(0.09 + 0.24 / 4) = 0.39 instead of 0.3."""
    rewards = pool(4, values=np.where(np.arange(4000) % 2, 0.2, 0.8))
    assert spread(rewards) == pytest.approx(0.3, abs=0.01)
    assert rewards.mean(1).std() > 0.34
    assert spread(np.array([[0.0, 1], [1, 0]])) == 0
    assert np.isnan(spread(np.array([[0.0, 1]])))


def row(found, name):
    return found.sums[found.names.index(name)]


def drawn_from(rewards, *numbers):
    """Prompts, rewards, values and their squared errors."""
    chosen, known = draw(samples(rewards), *numbers)
    return chosen, *(field.numpy() for field in known[:3])


def test_a_batch_is_drawn_without_replacement_and_the_value_from_the_rest():
    numbers = np.arange(30.0).reshape(5, 6)  # every reward another one
    chosen, rewards, value, noise = drawn_from(numbers, 3, 2, 50, np.random.default_rng(0))
    assert (chosen.shape, rewards.shape) == ((50, 3), (50, 3, 2))
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
    rewards = pool(10)
    greedy = np.array([0.0, 1, 1, 0, 1])
    batches = 40
    n = 4
    m = 3
    past = np.array([0.1, 0.9, 0.4, np.nan, 0.6])
    known = samples(rewards, greedy=greedy)._replace(past=past[:, None])
    found = measure(known, n, m, batches, 7)
    generator = np.random.default_rng([7, n, m])
    chosen, batch = draw(samples(rewards), n, m, batches, generator)
    drawn, value, noise = (field.numpy() for field in batch[:3])

    def sums_of(name, shrinkage=None):
        sums = np.zeros(N)
        for b in range(batches):
            live = LiveEstimator(name, shrinkage=shrinkage)
            keys = torch.from_numpy(chosen[b])
            earlier = torch.from_numpy(past[chosen[b], None])
            live.start(live.batch(earlier, mask=earlier.isfinite(), keys=keys))
            seen = live.batch(
                drawn[b],
                lengths=batch.lengths[b],
                greedy_rewards=torch.from_numpy(greedy[chosen[b]]),
                keys=keys,
                step=1,
            )
            made = live.estimate(seen).baseline.numpy()
            for i in range(n):
                error = np.mean([(made[i, j] - value[b, i]) ** 2 for j in range(m)])
                sums[chosen[b, i]] += error - noise[b, i]
        return sums

    assert set(found.names) == set(ESTIMATORS)
    assert found.counts.sum() == batches * n
    for name in set(found.names) - {"js_fixed"}:
        assert row(found, name) == pytest.approx(sums_of(name), abs=1e-6), name  # memory is float32
    # The oracle is the best constant coefficient.
    best = found.shrinkage[found.names.index("js_fixed")]
    assert 0.05 < best < 0.95
    assert row(found, "js_fixed") == pytest.approx(sums_of("js_fixed", shrinkage=best))
    for other in (best - 0.02, best + 0.02, 0.0, 1.0):
        assert sums_of("js_fixed", shrinkage=other).sum() > row(found, "js_fixed").sum()


def test_cross_is_what_a_batch_without_the_prompt_shows(monkeypatch):
    rewards = pool(10)
    n = 4
    m = 3
    monkeypatch.setattr(mse, "CROSS_BATCHES", 12)
    found = measure(samples(rewards), n, m, 30, 7)
    generator = np.random.default_rng([7, n, m, 1])
    chosen, drawn, value, _ = drawn_from(rewards, n, m, 12, generator)
    for name in ("rloo", "js", "js_plus", "bloo", "reinforce++"):
        seen = [[] for _ in range(N)]
        for b, k in itertools.product(range(12), range(n)):
            others = [i for i in range(n) if i != k]
            with_it = baseline(name, torch.from_numpy(drawn[b])).numpy()[others]
            without = baseline(name, torch.from_numpy(drawn[b][others])).numpy()
            true = value[b][others][:, None]
            change = np.square(with_it - true) - np.square(without - true)
            seen[chosen[b, k]].append(change.mean(1).sum())
        wanted = [np.mean(each) for each in seen]
        assert found.cross[found.names.index(name)] == pytest.approx(wanted, abs=1e-12), name
    assert found.cross[found.names.index("rloo")] == pytest.approx(np.zeros(N), abs=1e-12)
    assert found.influences().sum(1) == pytest.approx(found.sums.sum(1))


def test_intervals_of_js_cover():
    """With 5 % outside, 6 or more of 40 come up once in 70 times; own errors alone miss 15."""
    reductions = []
    errors = []
    references = []
    for seed in range(40):
        values = np.random.default_rng([seed, 1]).beta(0.5, 0.5, 32)
        found = measure(samples(pool(16, seed, values)), 16, 2, 40, seed)
        shares = found.influences()
        js, rloo = (shares[found.names.index(name)] for name in ("js", "rloo"))
        reductions.append(reduction(js, rloo))
        errors.append(js.sum())
        references.append(rloo.sum())
    truth = 100 * (1 - sum(errors) / sum(references))
    assert sum(not each.low <= truth <= each.high for each in reductions) < 6


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


def test_the_mean_is_the_error_to_the_true_value_however_small_the_pool(monkeypatch):
    """With 4 responses left, the value's own error is as large as that of a good baseline."""
    monkeypatch.setattr(mse, "CROSS_BATCHES", 0)  # for intervals, and slow
    pools = 250
    found = [measure(samples(pool(6, seed, VALUES[:3])), 3, 2, 20, seed) for seed in range(pools)]
    means = np.stack([each.sums.sum(1) / 60 for each in found], 1)
    noise = (VALUES[:3] * (1 - VALUES[:3])).mean() / 4
    for name in ("rloo", "bloo", "js", "js_plus", "js1", "dr_grpo", "reinforce++", "reinforce"):
        errors = means[found[0].names.index(name)]
        standard_error = errors.std(ddof=1) / np.sqrt(pools)
        assert abs(errors.mean() - exact(name, 2)) < 3.5 * standard_error, name
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
        check(pool(10), n, m)
    assert np.isfinite(measure(samples(pool(10)), 3, 5, 3, 0).sums).all()  # half of the pool can


def test_rows_and_notes():
    rewards = pool(20)
    found = mse.mse(samples(rewards), 4, (2, 4), 200, 0)
    rloo, js = (quantities(found, m=2, estimator=name) for name in ("rloo", "js"))
    assert [rloo["reduction_percent"][end] for end in ("value", "low", "high")] == [0, 0, 0]
    reduced = js["reduction_percent"]
    ratio = js["mse"]["value"] / rloo["mse"]["value"]
    assert reduced["value"] == pytest.approx(100 * (1 - ratio))
    assert 0 < js["shrinkage"]["value"] < 1
    assert rloo["shrinkage"]["value"] is None
    kinds = found.notes["gradients"]
    assert (kinds["js"], kinds["js1"], kinds["js_fixed"]) == ("unbiased", "biased", "oracle")
    assert found.caption.startswith("200 batches of 4 of 5 prompts; 95 % intervals over prompts")
    one = mse.mse(samples(np.ones((1, 16))), 1, (2,), 3, 0)  # no other prompt, and no error
    assert one.notes["left_out"].keys() == {"bloo", "js1", "js_fixed", "js_memory", "dbb", "spo"}
    assert quantities(one, estimator="js")["mse"]["value"] == 0
    assert left_out(2, past=True) == {}
    equal = quantities(values_of(samples(np.ones((1, 16)))), group="all")["all_rewards_equal"]
    assert equal["value"] == 1
    assert found.arrays["squared_error_sums"].shape == (2, len(kinds), N)
    assert found.arrays["counts"].sum(1).tolist() == [800, 800]


def test_baselines_are_chosen_and_may_be_the_users_own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def mine(batch):\n"
        "    others = batch.statistics.loo_batch_mean[:, None]\n"
        "    return others.expand_as(batch.rewards)\n"
    )
    own = f"{file}:mine"
    found = measure(samples(pool(10)), 4, 3, 30, 7, chosen=(own, "bloo"))
    assert found.names == ("rloo", own, "bloo")
    assert row(found, own) == pytest.approx(row(found, "bloo"))
    mine = found.names.index(own)
    bloo = found.names.index("bloo")
    assert found.cross[mine] == pytest.approx(found.cross[bloo])
    shown = mse.mse(samples(pool(20)), 4, (2,), 30, 0, chosen=(own,))
    assert shown.notes["gradients"] == {"rloo": "unbiased", own: "unbiased"}
    with pytest.raises(ValueError, match="js_memory needs an earlier visit"):
        measure(samples(pool(10)), 4, 3, 30, 7, chosen=("js_memory",))
    with pytest.raises(ValueError, match="dbb takes rewards between 0 and 1"):
        measure(samples(2 * pool(10)), 4, 3, 30, 7, chosen=("dbb",))
