"""Distances of gradients from sketches of score gradients."""

import numpy as np
import pytest
import torch
from kit import qwen

from openrlhf_js.estimators import baseline, find_estimator
from openrlhf_js.lab.policy_gradient import ScoreSum, TokenSequence, dot, terms
from openrlhf_js.lab.pool import Samples
from openrlhf_js.sampling.prompts import Prompt


@pytest.fixture
def study(program):
    return program("pretrained_gradient")


def sequences():
    """Responses of one to four tokens, in random order."""
    rng = np.random.default_rng(0)
    return [TokenSequence([1, 2, 3], rng.integers(1, 11, size).tolist()) for size in (4, 1, 3)]


@pytest.mark.parametrize(("numbers", "off"), [(1 << 13, 1e-6), (1 << 8, 0.3)])
def test_products_of_sketches_are_those_of_gradients(study, monkeypatch, tmp_path, numbers, off):
    """Exactly, where there are as many numbers as parameters."""
    torch.manual_seed(0)
    model = qwen(vocab_size=11, max_position_embeddings=64, initializer_range=0.3)
    scores = ScoreSum(model)
    gradients = []
    for response in sequences():
        scores.clear()
        scores.add(terms([response], np.ones(1)))
        gradients.append([part.clone() for part in scores.total])
    exact = np.array([[dot(left, right) for right in gradients] for left in gradients])
    norms = np.sqrt(np.diag(exact))
    assert sum(part.numel() for part in scores.total) < 1 << 13
    monkeypatch.setattr(study, "NUMBERS", numbers)
    path = tmp_path / "sketches.npy"
    gram = study.gram_matrix(scores, sequences(), path)
    np.testing.assert_allclose(
        gram / np.outer(norms, norms), exact / np.outer(norms, norms), atol=off
    )
    monkeypatch.setattr(scores, "add", None)  # what the file has is not computed again
    np.testing.assert_array_equal(study.gram_matrix(scores, sequences(), path), gram)


def test_a_sketch_has_random_signs(study, monkeypatch):
    """Without them, the 16 equal numbers of a sum would give a squared length 16 times too long."""
    monkeypatch.setattr(study, "NUMBERS", 256)
    found = study.Sketch(4096, torch.device("cpu"))([torch.ones(4000), torch.ones(2, 48)])
    assert float(found.square().sum()) == pytest.approx(4096, rel=0.3)  # standard deviation: 0.09


def coins(rng, questions, responses):
    """Tosses of coins, whose sides are responses 0 and 1 and pay 0 and 1."""
    tosses = rng.integers(0, 2, (questions, responses))
    return Samples(
        prompts=[Prompt(f"coin {i}", "", "", [i]) for i in range(questions)],
        response_tokens=[[[toss] for toss in row] for row in tosses.tolist()],
        rewards=tosses.astype(float),
        finished=np.ones(tosses.shape, dtype=bool),
        greedy_rewards=np.ones(questions),
        settings={},
    )


def test_distances_are_those_to_the_true_gradient(study, monkeypatch):
    """Each of N = 6 coins has a parameter, and the scores of its sides are -1/2 and 1/2.

    grad J is 1/(4 N) for each coin. In a batch of n = 4 coins, with two tosses, rloo's gradient of
    a coin is (a_1 - a_2)^2 / (2 n), with a mean of 1/(4 n) and a mean square of 1/(8 n^2); so

        E ||g||^2 = 1/(8 n)        E <g, grad J> = ||grad J||^2 = 1/(16 N)
    """
    monkeypatch.setattr(study, "QUESTIONS", 4)
    monkeypatch.setattr(study, "RESPONSES", (2,))
    monkeypatch.setattr(study, "BATCHES", 20)
    monkeypatch.setattr(study, "CHUNK", 20)
    rng = np.random.default_rng(1)
    found = []
    for _ in range(600):
        pool = coins(rng, questions=6, responses=6)
        different, places = study.different_responses(pool)
        question = np.array([response.prompt[0] for response in different])
        side = np.array([response.response[0] for response in different]) - 0.5
        gram = np.outer(side, side) * (question[:, None] == question)
        scored = study.ScorePool(pool, pool.lengths.astype(float), places, gram)
        found.append(study.moments(scored, [find_estimator("rloo")]))
    assert np.mean([moments.squared_norms for moments in found]) == pytest.approx(1 / 32, rel=0.05)
    assert np.mean([moments.products for moments in found]) == pytest.approx(1 / 96, rel=0.05)
    assert np.mean([moments.signal for moments in found]) == pytest.approx(1 / 96, rel=0.05)
    assert np.mean([moments.distances for moments in found]) == pytest.approx(1 / 48, rel=0.1)


def test_every_baseline_of_a_batch_is_that_of_the_estimator(study):
    rng = np.random.default_rng(2)
    rewards = rng.integers(0, 2, (3, 5, 4)).astype(float)
    names = ("rloo", "js_plus", "bloo", "remax", "opo")
    estimators = [find_estimator(name) for name in names]
    greedy_rewards = rng.random((3, 5))
    lengths = rng.integers(1, 9, rewards.shape).astype(float)
    found = study.baselines(estimators, rewards, greedy_rewards, lengths)
    for batch in range(3):
        for place, name in enumerate(names):
            expected = baseline(
                name,
                torch.from_numpy(rewards[batch]),
                greedy_rewards=torch.from_numpy(greedy_rewards[batch]),
                lengths=lengths[batch],
            )
            np.testing.assert_allclose(found[batch, place], expected.numpy())


def test_intervals_are_those_of_the_jackknife(study):
    """Of a mean it is Student's interval: 1, 2, 3 and 6 have the mean 3 and the deviation 2.16."""
    values = np.array([1.0, 2.0, 3.0, 6.0])
    without = [np.array([(values.sum() - value) / 3]) for value in values]
    (found,) = study.jackknife(np.array([3.0]), without)
    assert found.value == 3
    assert found.high - 3 == pytest.approx(3.182 * 2.1602 / 2, rel=1e-3)
