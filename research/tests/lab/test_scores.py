"""Sketches of score gradients, against the gradients themselves."""

import numpy as np
import pytest
import torch

from baseline_research.lab.score_pool import different_responses, score_pool
from baseline_research.lab.scores import ScoreSketcher, TokenSequence

EXACT = 1 << 13  # numbers, more than parameters: a sketch is then the gradient with other signs


def products(own, samples):
    """(U, U) inner products of the score gradients (N, M, parameters) of different responses."""
    different, places = different_responses(samples)
    vectors = np.zeros((len(different), own.shape[2]))
    vectors[places] = own
    return vectors @ vectors.T


@pytest.mark.parametrize(("numbers", "off"), [(EXACT, 1e-5), (1 << 8, 0.35)])
def test_products_of_sketches_are_those_of_gradients(kit, tmp_path, samples, own, numbers, off):
    pool = score_pool(ScoreSketcher(kit.small_model(), numbers=numbers), samples, tmp_path)
    expected = products(own, samples)
    norms = np.sqrt(np.diag(expected)) + 1e-12  # one response is empty
    np.testing.assert_allclose(np.diag(pool.gram), np.diag(expected), rtol=1e-5)
    scale = np.outer(norms, norms)
    np.testing.assert_allclose(pool.gram / scale, expected / scale, atol=off)


def test_a_sketch_has_random_signs(kit):
    """Without them, the 14 equal numbers of each sum would give a squared length 14 times too
    long."""
    sketcher = ScoreSketcher(kit.small_model(), numbers=256)
    total = 0
    for parameter in sketcher.model.parameters():
        total += parameter.numel()
        parameter.grad = None
    (sum(parameter.sum() for parameter in sketcher.model.parameters())).backward()
    assert float(sketcher._sketch.square().sum()) == pytest.approx(total, rel=0.3)
    assert total > 10 * 256


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_those_of_sampling(kit, temperature):
    model = kit.small_model()
    response = TokenSequence([3, 1, 4], np.array([1, 5, 9], np.int32))
    score = ScoreSketcher(model, temperature)(response)
    logits = model.eval()(torch.tensor([[3, 1, 4, 1, 5, 9]])).logits[0] / temperature
    expected = [logits[place].log_softmax(0)[token] for place, token in ((2, 1), (3, 5), (4, 9))]
    torch.testing.assert_close(score.log_probs, torch.stack(expected).detach())


def test_the_weight_of_a_response_is_that_of_its_tokens(kit, tmp_path, samples):
    pool = score_pool(ScoreSketcher(kit.small_model()), samples, tmp_path)
    different, _ = different_responses(samples)
    probabilities = ScoreSketcher(kit.small_model())(different[7]).log_probs.exp().tolist()
    assert pool.weights[7] == pytest.approx(sum((1 - p) ** 2 for p in probabilities), rel=1e-5)
    assert pool.weights[0] == 0  # it is empty


class Stopped(Exception):
    pass


def test_a_pool_resumes_and_what_is_there_takes_no_pass(kit, tmp_path, samples, monkeypatch):
    sketcher = ScoreSketcher(kit.small_model())
    whole = score_pool(sketcher, samples, tmp_path / "whole")
    log_probs = sketcher._log_probs
    passes = []

    def counted(response):
        if len(passes) == 40:
            raise Stopped
        passes.append(response)
        return log_probs(response)

    monkeypatch.setattr(sketcher, "_log_probs", counted)
    with pytest.raises(Stopped):
        score_pool(sketcher, samples, tmp_path / "broken")
    monkeypatch.setattr(sketcher, "_log_probs", log_probs)
    resumed = score_pool(sketcher, samples, tmp_path / "broken")
    np.testing.assert_array_equal(resumed.gram, whole.gram)
    np.testing.assert_array_equal(resumed.weights, whole.weights)
    monkeypatch.setattr(sketcher, "_log_probs", None)
    other_rewards = samples._replace(
        rewards=1 - samples.rewards, settings=samples.settings | {"versions": {"torch": "9"}}
    )
    again = score_pool(sketcher, other_rewards, tmp_path / "broken")
    np.testing.assert_array_equal(again.gram, whole.gram)
    assert np.array_equal(again.samples.rewards, 1 - samples.rewards)


def test_another_model_or_temperature_is_sketched_anew(kit, tmp_path, samples):
    small = samples.at([0, 1], 3)
    score_pool(ScoreSketcher(kit.small_model()), small, tmp_path)
    score_pool(ScoreSketcher(kit.small_model(), 0.5), small, tmp_path)
    other = small._replace(settings=small.settings | {"model_sha256": "other"})
    score_pool(ScoreSketcher(kit.small_model()), other, tmp_path)
    assert len(list((tmp_path / "gradients").iterdir())) == 3
