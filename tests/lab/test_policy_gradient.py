"""Sums of score gradients against each response's own, computed alone and in float64."""

import numpy as np
import pytest
import torch

from openrlhf_js.lab.policy_gradient import ScoreSum, TokenSequence, terms


@pytest.fixture(scope="module")
def samples(kit):
    return kit.pool(prompts=4, responses=6)


@pytest.fixture(scope="module")
def responses(samples):
    responses = []
    for prompt, group in zip(samples.prompts, samples.response_tokens, strict=True):
        responses += [TokenSequence(prompt.tokens, tokens) for tokens in group]
    return responses


@pytest.fixture(scope="module")
def weights(responses):
    weights = np.random.default_rng(1).normal(size=len(responses))
    weights[[3, 10]] = 0
    return weights


def flat(vector):
    return torch.cat([part.flatten() for part in vector]).double().numpy()


def relative(vector, right):
    return float(np.linalg.norm(vector - right) / np.linalg.norm(right))


@pytest.mark.parametrize(("max_tokens", "temperature"), [(1, 1.0), (30, 0.6), (10_000, 0.6)])
def test_the_sum_is_that_of_every_response_s_own_gradient(
    kit, samples, responses, weights, max_tokens, temperature
):
    model = kit.small_model()
    own = kit.score_gradients(model, samples, temperature).reshape(len(responses), -1)
    scores = ScoreSum(model, temperature, max_tokens)
    scores.add(terms(responses, weights))
    once = flat(scores.total)
    assert relative(once, weights @ own) < 1e-5
    assert all(parameter.grad is None for parameter in model.parameters())
    scores.add(terms(responses, weights))
    assert relative(flat(scores.total), 2 * once) < 1e-6
    scores.clear()
    assert not flat(scores.total).any()


def test_a_bfloat16_model_has_a_float32_sum_that_keeps_growing(kit, responses):
    scores = ScoreSum(kit.small_model(dtype=torch.bfloat16))
    one = terms(responses[1:2], np.ones(1))
    scores.add(one)
    once = flat(scores.total)
    scores.add(terms(responses[1:2], np.full(1, 255)))
    for _ in range(44):
        scores.add(one)
    assert {part.dtype for part in scores.total} == {torch.float32}
    # In bfloat16 the sum would stop at 256 times its first summand.
    assert relative(flat(scores.total), 300 * once) < 1e-2


def test_micro_batches_are_bounded_with_padding_and_a_longer_response_goes_alone(kit, responses):
    scores = ScoreSum(kit.small_model(), max_tokens=10)
    widths = []
    scores.model.register_forward_pre_hook(lambda _, given: widths.append(given[0].shape))
    scores.add(terms(responses, np.ones(len(responses))))
    assert len(widths) > 5
    assert all(rows * (width + 1) <= 10 or rows == 1 for rows, width in widths)
    assert max(width for _, width in widths) > 10
    assert max(rows for rows, _ in widths) > 1


def test_terms_that_count():
    without_weight = TokenSequence([1], [2])
    empty = TokenSequence([1], [])
    counts = TokenSequence([1], [3])
    weights = np.array([0, 1, 2])
    assert terms([without_weight, empty, counts], weights) == [(counts, 2)]
