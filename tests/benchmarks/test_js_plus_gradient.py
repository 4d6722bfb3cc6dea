import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from openrlhf_js.estimators import baseline


@pytest.fixture(scope="module")
def study():
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))  # as for a script
    import js_plus_gradient

    yield js_plus_gradient
    sys.path.pop(0)


def pool_of(study, rng, prompts=6, responses=5, dimensions=3):
    rewards = rng.integers(0, 2, (prompts, responses)).astype(float)
    scores = rng.standard_normal((prompts, responses, dimensions)).astype(np.float32)
    return study.ScorePool(rewards, scores)


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
        found.append(study.compare(pool, 4, 2, 4, seed)["distances"]["rloo"])
    assert np.mean(found) == pytest.approx(1 / 32, rel=0.2)


def test_every_baseline_is_measured_on_the_same_batches(study):
    pool, n, m = pool_of(study, np.random.default_rng(2)), 4, 2
    found = study.compare(pool, n, m, 1, 7)
    rng = np.random.default_rng([7, n, m])
    chosen = rng.choice(6, n, replace=False)
    order = rng.random((n, 5)).argsort(1)
    rewards = np.array([pool.rewards[i, row[:m]] for i, row in zip(chosen, order, strict=True)])
    for name in study.COMPARED:
        b = baseline(name, torch.from_numpy(rewards)).numpy()
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
