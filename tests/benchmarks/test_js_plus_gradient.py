from itertools import permutations

import numpy as np
import pytest
import torch

from openrlhf_js.common.settings import SettingsError
from openrlhf_js.estimators import baseline, start_history, update_history
from openrlhf_js.lab.policy_gradient import Response, ScoreSum
from openrlhf_js.tiny.model import make_model, make_tokenizer
from openrlhf_js.tiny.tasks import TASKS

T_1 = 12.706  # 97.5 % of Student's t with 1 degree of freedom


@pytest.fixture(scope="module")
def study():
    import js_plus_gradient

    return js_plus_gradient


def pool_of(study, rng, prompts=6, responses=5, dimensions=3):
    rewards = rng.integers(0, 2, (prompts, responses)).astype(float)
    scores = rng.standard_normal((prompts, responses, dimensions)).astype(np.float32)
    return study.ScorePool(rewards, scores)


def test_the_signal_is_the_mean_product_of_different_prompts_gradients(study):
    pool = pool_of(study, np.random.default_rng(0))
    gradients = []
    for rewards, scores in zip(pool.rewards, pool.scores, strict=True):
        own = np.zeros(3)
        for j, (reward, score) in enumerate(zip(rewards, scores, strict=True)):
            others = [each for k, each in enumerate(rewards) if k != j]
            own += (reward - np.mean(others)) * score.astype(float) / len(rewards)
        gradients.append(own)
    products = [a @ b for a, b in permutations(gradients, 2)]
    assert study.signal_of(pool) == pytest.approx(np.mean(products), rel=1e-5)


def test_distances_are_unbiased_for_the_variance_of_the_gradient(study):
    """A coin of probability 1/2 with score +-1/2 and reward a, two tosses to each of n prompts.

    Every prompt has a parameter of its own, so that the mean gradient over all prompts there are
    is 0. A prompt's gradient with rloo is (a_1 - a_2)^2 / 2, with a mean square of 1/8.
    """
    rng, found = np.random.default_rng(1), []
    for seed in range(60):
        tosses = rng.integers(0, 2, (6, 4)).astype(float)
        scores = np.eye(6)[:, None, :] * (tosses - 0.5)[:, :, None]
        pool = study.ScorePool(tosses, scores.astype(np.float32))
        found.append(study.compare(pool, 4, 2, 4, seed, start_history(50))["distances"]["rloo"])
    assert np.mean(found) == pytest.approx(1 / 32, rel=0.2)


def test_every_baseline_is_measured_on_the_same_batches(study):
    pool, n, m = pool_of(study, np.random.default_rng(2)), 4, 2
    seen = np.random.default_rng(3).integers(0, 2, (5, n, m)).astype(float)
    history = start_history(50)
    for step in seen:
        history = update_history(history, torch.from_numpy(step))
    assert study.history_of(seen) == history and study.history_of(seen[:0]) == start_history(50)
    found = study.compare(pool, n, m, 1, 7, history)
    rng = np.random.default_rng([7, n, m])
    chosen = rng.choice(6, n, replace=False)
    order = rng.random((n, 5)).argsort(1)
    rewards = np.array([pool.rewards[i, row[:m]] for i, row in zip(chosen, order, strict=True)])
    for name in study.COMPARED:
        given = {"history": history} if name == study.HISTORY else {}
        rule = "js_plus" if name == study.HISTORY else name
        b = baseline(rule, torch.from_numpy(rewards), **given).numpy()
        gradient, error = np.zeros(3), 0.0
        for row, (i, columns) in enumerate(zip(chosen, order, strict=True)):
            rest = [pool.rewards[i, j] for j in columns[m:]]
            for place, j in enumerate(columns[:m]):
                gradient += (rewards[row, place] - b[row, place]) * pool.scores[i, j] / (n * m)
                error += (b[row, place] - np.mean(rest)) ** 2 / (n * m)
            error -= np.var(rest, ddof=1) / len(rest) / n
        expected = gradient @ gradient - study.signal_of(pool)
        assert found["distances"][name] == pytest.approx(expected, rel=1e-4, abs=1e-7)
        assert found["errors"][name] == pytest.approx(error)
    ends = found["distances"]["rloo"], found["distances"]["bloo"]
    assert found["distances"][study.BEST] <= min(ends) + 1e-9 and 0 <= found["best"] <= 1


def test_a_sketch_keeps_products(study):
    """E ||S g||^2 = ||g||^2, with a relative variance of at most 2 / K."""
    generator = torch.Generator().manual_seed(0)
    vector, norms = [torch.randn(30, 4, generator=generator), torch.randn(7)], []
    exact = sum(float(part.square().sum()) for part in vector)
    for _ in range(400):
        places = [torch.randint(64, (part.numel(),), generator=generator) for part in vector]
        once = study.sketched(vector, 32, places)
        twice = study.sketched([2 * part for part in vector], 32, places)
        torch.testing.assert_close(twice, 2 * once)
        norms.append(float(once.square().sum()))
    assert np.mean(norms) == pytest.approx(exact, abs=4 * exact * np.sqrt(2 / 32 / 400))


def test_a_step_of_training_learns_from_the_first_responses_alone():
    from tiny_policies import LEARNED_FROM, RECORDED, Drawn, learn

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
    other[:, LEARNED_FROM:] = 1.0
    assert surprise(model) < surprise(make_model(tokenizer, 0)) - 0.01
    for a, b in zip(model.parameters(), learned(other).parameters(), strict=True):
        assert torch.equal(a, b) and a.grad is None


@pytest.fixture
def records(study):
    """Two seeds whose distances are 100 for rloo; js saves 10 and 14, js_plus 12 and 18."""

    def record(seed, reward, *saved, step=9):
        values = {
            "rloo": 0,
            "bloo": -20,
            study.BEST: 30,
            **dict(zip(study.RULES, saved, strict=True)),
        }
        distances = {name: 100.0 - each for name, each in values.items()}
        errors = {name: 1.0 - each / 200 for name, each in values.items()}
        cell = {"n": 16, "m": 2, "distances": distances, "errors": errors, "best": 0.25}
        of = {"task": "sort", "step": step, "seed": seed, "mean_reward": reward}
        return {**of, "cells": [cell]}

    return [record(0, 0.2, 10, 12, 5), record(1, 0.4, 14, 18, 6)]


def test_rows_have_intervals_over_seeds_and_gaps_are_paired(study, records):
    rows = study.summarise(records)
    found = {(row["quantity"], row["rule"]): row for row in rows}
    ends = [found["distance", "js"][end] for end in ("value", "low", "high")]
    assert ends == pytest.approx((12, 12 - 2 * T_1, 12 + 2 * T_1), abs=1e-2)
    ends = [found["error", "js"][end] for end in ("value", "low", "high")]
    assert ends == pytest.approx((6, 6 - T_1, 6 + T_1), abs=1e-2)
    gap = found["gap", "js_plus against js"]
    assert [gap[end] for end in ("value", "low", "high")] == pytest.approx(
        (3, 3 - T_1, 3 + T_1), abs=1e-2
    )
    assert found["mean_reward", study.BEST]["value"] == pytest.approx(0.3)
    assert found["distance", study.BEST]["value"] == pytest.approx(30)
    against_rloo, against_js, *_ = study.verdicts(rows)
    assert "lower in 0 of 1 settings, higher in 0, and in 1 the seeds cannot tell" in against_js
    assert "on average lower by 15.0 points" in against_rloo
    surely = [{**row, "value": -2.0, "low": -3.0, "high": -1.0} for row in rows]
    said = study.verdicts(surely)[1]
    assert "on average higher by 2.0 points" in said
    assert "Higher: sort, step 9, n = 16, m = 2 (-2.0 (-3.0 to -1.0))" in said
    tables = [line for line in study.markdown(rows).splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in tables[:3]}) == 1
    assert tables[2].startswith("| sort | 9 | 16 | 2 | 12.0 (") and tables[2].endswith("| 30.0 |")


def test_a_policy_without_a_step_before_it_says_nothing_of_a_history(study, records):
    rows = study.summarise([{**each, "step": 0} for each in records])
    assert len(study.verdicts(rows)) == 2
    assert study.HISTORY not in {row["rule"] for row in rows}


def test_pools_without_differences_are_refused(study, records):
    pool = study.ScorePool(np.ones((4, 4)), np.ones((4, 4, 2), np.float32))
    with pytest.raises(ValueError, match="is 0 with n = 2, m = 2: all rewards of each prompt"):
        study.compare(pool, 2, 2, 2, 0, start_history(50))
    records[0]["cells"][0]["distances"]["rloo"] = -1.0
    with pytest.raises(ValueError, match="give a larger pool"):
        study.summarise(records)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tasks": ("chess",)}, "choose from sort"),
        ({"steps": (0,)}, "last step"),
        ({"seeds": (0,)}, "2"),
    ],
)
def test_wrong_settings_are_refused(study, settings, said):
    with pytest.raises(SettingsError, match=said):
        study.StudySettings(**settings)
