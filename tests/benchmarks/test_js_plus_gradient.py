import sys
from itertools import permutations

import numpy as np
import pytest
import torch

from openrlhf_js.estimators import baseline, start_history, update_history
from openrlhf_js.lab.policy_gradient import Response, ScoreSum
from openrlhf_js.tiny.model import make_model, make_tokenizer
from openrlhf_js.tiny.tasks import TASKS

T_1 = 12.706  # 97.5 % of Student's t with 1 degree of freedom


@pytest.fixture(scope="module")
def pools():
    import pool_distances

    return pool_distances


@pytest.fixture(scope="module")
def report():
    import js_plus_gradient_report

    return js_plus_gradient_report


def pool_of(pools, rng, prompts=6, responses=5, dimensions=3):
    rewards = rng.integers(0, 2, (prompts, responses)).astype(float)
    scores = rng.standard_normal((prompts, responses, dimensions)).astype(np.float32)
    return pools.Pool(rewards, scores)


def test_the_signal_is_the_mean_product_of_different_prompts_gradients(pools):
    pool = pool_of(pools, np.random.default_rng(0))
    gradients = []
    for rewards, scores in zip(pool.rewards, pool.scores, strict=True):
        own = np.zeros(3)
        for j, (reward, score) in enumerate(zip(rewards, scores, strict=True)):
            others = [each for k, each in enumerate(rewards) if k != j]
            own += (reward - np.mean(others)) * score.astype(float) / len(rewards)
        gradients.append(own)
    products = [a @ b for a, b in permutations(gradients, 2)]
    assert pools.signal(pool) == pytest.approx(np.mean(products), rel=1e-5)


def test_distances_are_unbiased_for_the_variance_of_the_gradient(pools):
    """A coin of probability 1/2 with score +-1/2 and reward a, two tosses to each of n prompts.

    Every prompt has a parameter of its own, so that the mean gradient over all prompts there are
    is 0. A prompt's gradient with rloo is (a_1 - a_2)^2 / 2, with a mean square of 1/8.
    """
    rng, found = np.random.default_rng(1), []
    for seed in range(150):
        tosses = rng.integers(0, 2, (6, 4)).astype(float)
        scores = np.eye(6)[:, None, :] * (tosses - 0.5)[:, :, None]
        pool = pools.Pool(tosses, scores.astype(np.float32))
        found.append(pools.compare(pool, 4, 2, 4, seed, start_history(50)).distances["rloo"])
    assert np.mean(found) == pytest.approx(1 / 32, rel=0.1)


def test_every_baseline_is_measured_on_the_same_batches(pools):
    pool, n, m = pool_of(pools, np.random.default_rng(2)), 4, 2
    seen = np.random.default_rng(3).integers(0, 2, (5, n, m)).astype(float)
    history = pools.history_of(seen)
    found = pools.compare(pool, n, m, 1, 7, history)
    rng = np.random.default_rng([7, n, m])
    chosen = rng.choice(6, n, replace=False)
    order = rng.random((n, 5)).argsort(1)
    for name in pools.COMPARED:
        drawn = zip(chosen, order[:, :m], strict=True)
        rewards = np.array([[pool.rewards[i, j] for j in columns] for i, columns in drawn])
        given = {"history": history} if name == pools.HISTORY else {}
        rule = "js_plus" if name == pools.HISTORY else name
        b = baseline(rule, torch.from_numpy(rewards), **given).numpy()
        gradient, error = np.zeros(3), 0.0
        for row, (i, columns) in enumerate(zip(chosen, order, strict=True)):
            rest = [pool.rewards[i, j] for j in columns[m:]]
            for place, j in enumerate(columns[:m]):
                gradient += (rewards[row, place] - b[row, place]) * pool.scores[i, j] / (n * m)
                error += (b[row, place] - np.mean(rest)) ** 2 / (n * m)
            error -= np.var(rest, ddof=1) / len(rest) / n
        expected = gradient @ gradient - pools.signal(pool)
        assert found.distances[name] == pytest.approx(expected, rel=1e-4, abs=1e-7)
        assert found.errors[name] == pytest.approx(error)
    ends = found.distances["rloo"], found.distances["bloo"]
    assert found.distances[pools.BEST] <= min(ends) + 1e-9
    assert 0 <= found.best <= 1


def test_a_pool_without_differences_is_refused(pools):
    pool = pools.Pool(np.ones((4, 4)), np.ones((4, 4, 2), np.float32))
    with pytest.raises(ValueError, match="is 0 with n = 2, m = 2: all rewards of each prompt"):
        pools.compare(pool, 2, 2, 2, 0, start_history(50))


def test_a_reduction_needs_a_reference_above_zero(pools):
    assert pools.reductions([80, 150], [100, 100]) == pytest.approx([20, -50])
    with pytest.raises(ValueError, match="came out as -1: the pool is too small"):
        pools.reductions([1, 1], [2, -1])


def test_a_history_is_that_of_the_steps_in_their_order(pools):
    steps = np.random.default_rng(0).integers(0, 2, (3, 4, 2)).astype(float)
    expected = start_history(50)
    assert pools.history_of(steps[:0]) == expected
    for step in steps:
        expected = update_history(expected, torch.from_numpy(step))
    assert pools.history_of(steps) == expected


def test_a_step_of_training_learns_from_the_first_responses_alone():
    from tiny_policies import LEARNT_FROM, RECORDED, Drawn, learn

    tokenizer = make_tokenizer(TASKS["sort"])
    rng = np.random.default_rng(0)
    responses = [
        Response([3, 4], rng.integers(2, len(tokenizer), 3).astype(np.int32))
        for _ in range(2 * RECORDED)
    ]
    rewards = np.zeros((2, RECORDED))
    rewards[0, 0] = 1.0

    def learned(values):
        scores = ScoreSum(make_model(tokenizer, 0))
        learn(scores, torch.optim.SGD(scores.parameters, lr=0.1), Drawn(responses, values))
        return scores.model

    def surprise(model):
        tokens = torch.tensor([[*responses[0].prompt, *responses[0].response]])
        labels = tokens.clone()
        labels[:, :2] = -100
        return model(tokens, labels=labels).loss.item()

    model, other = learned(rewards), rewards.copy()
    other[:, LEARNT_FROM:] = 1.0
    assert surprise(model) < surprise(make_model(tokenizer, 0)) - 0.01
    for a, b in zip(model.parameters(), learned(other).parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.grad is None


@pytest.fixture
def policies(report):
    """Two seeds whose distances are 100 for rloo; js saves 10 and 14, js_plus 12 and 18."""

    def cell(js, js_plus, history):
        values = dict(zip(report.RULES, (js, js_plus, history), strict=True))
        values = {"rloo": 0, "bloo": -20, report.BEST: 30, **values}
        distances = {name: 100.0 - saved for name, saved in values.items()}
        errors = {name: 1.0 - saved / 200 for name, saved in values.items()}
        return {"n": 16, "m": 2, "distances": distances, "errors": errors, "best": 0.25}

    return [
        report.Policy("sort", 9, 0, 0.2, 9.0, [cell(10, 12, 5)]),
        report.Policy("sort", 9, 1, 0.4, 9.0, [cell(14, 18, 6)]),
    ]


def test_a_row_has_its_interval_over_seeds_and_gaps_are_paired(report, policies):
    (row,) = report.summarise(policies)
    assert row.distance["js"] == pytest.approx((12, 12 - 2 * T_1, 12 + 2 * T_1), abs=1e-2)
    assert row.error["js"] == pytest.approx((6, 6 - T_1, 6 + T_1), abs=1e-2)
    assert row.gaps["js_plus", "js"] == pytest.approx((3, 3 - T_1, 3 + T_1), abs=1e-2)  # 2 and 4
    assert (row.mean_reward, row.best) == (pytest.approx(0.3), 0.25)
    assert row.best_reduction == pytest.approx(30)
    assert row.plain()["gaps"]["js_plus below js"]["value"] == pytest.approx(3)


def test_a_verdict_counts_settings_and_names_where_it_is_higher(report, policies):
    rows = report.summarise(policies)
    against_rloo, against_js, *_ = report.verdicts(rows)
    assert "lower in 0 of 1 settings, higher in 0, and in 1 the seeds cannot tell" in against_js
    assert "on average lower by 15.0 points" in against_rloo
    surely = rows[0]._replace(gaps={pair: report.Estimate(-2, -3, -1) for pair in report.PAIRS})
    said = report.verdicts([surely])[1]
    assert "higher in 1" in said and "Higher: sort, step 9, n = 16, m = 2 (-2.0" in said


def test_the_tables_have_a_line_for_every_row(report, policies):
    lines = report.markdown(report.summarise(policies)).splitlines()
    assert sum(line.startswith("| sort | 9 (0.30) | 16 | 2 |") for line in lines) == 2
    tables = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in tables[:3]}) == 1
    assert len({line.count("|") for line in tables[3:6]}) == 1
    assert any("30.0 with 0.25 |" in line for line in lines)
    assert lines[-1] == "| sort | 9 | 2 | 1600 |"  # n times rloo's distance


def test_a_policy_without_a_step_before_it_says_nothing_of_a_history(report, policies):
    rows = report.summarise([each._replace(step=0) for each in policies])
    assert len(report.verdicts(rows)) == 2
    assert report.markdown(rows).count("none yet") == 2


def test_fewer_prompts_have_more_batches(pools, monkeypatch, tmp_path):
    drawn = {}

    def compare(pool, n, m, batches, seed, history):
        drawn[n] = batches
        return pools.Sums({}, {}, 0.0)

    pool = pool_of(pools, np.random.default_rng(0))
    monkeypatch.setattr(pools, "compare", compare)
    monkeypatch.setattr(pools, "make_pool", lambda *_: pool)
    np.save(tmp_path / pools.REWARDS, np.zeros((1, 64, 8)))
    pools.measure(tmp_path, "sort", 0, 1, pools.Size(batches=3))
    assert drawn == {16: 12, 64: 3}


def test_figures_of_other_settings_have_other_files(tmp_path):
    from js_plus_gradient import Training
    from pool_distances import Size

    def path(task="sort", seed=0, marks=(0, 4), size=None):
        return Training(task, seed, marks, size or Size(), tmp_path).path(4)

    others = [path(task="maze"), path(seed=1), path(marks=(0, 4, 5)), path(size=Size(batches=2))]
    assert len({path(), *others}) == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seeds", "0"], "one of --seeds has no interval: give 2 or more"),
        (["--seeds", "a"], "give numbers with commas between"),
        (["--tasks", "chess"], "choose from sort, countdown, maze"),
        (["--steps", "0"], "the last step is 1 or more"),
        (["--prompts", "63"], "--prompts must be 64 or more"),
    ],
)
def test_wrong_words_are_refused(monkeypatch, capsys, words, said):
    import js_plus_gradient

    monkeypatch.setattr(sys, "argv", ["js_plus_gradient.py", *words])
    with pytest.raises(SystemExit):
        js_plus_gradient.parse()
    assert said in " ".join(capsys.readouterr().err.split())
