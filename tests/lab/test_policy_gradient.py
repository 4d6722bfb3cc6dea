"""Sums of score gradients against each response's own, computed alone and in float64."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.lab import policy_gradient
from openrlhf_js.lab.policy_gradient import (
    Response,
    ScoreSum,
    dot,
    micro_batches,
    squared_distance,
    terms,
)

sys.path.insert(0, str(Path(__file__).parent))
from gradient_pools import float64_model, pool, score_gradients, small_model

SAMPLES = pool(prompts=4, responses=6)
RESPONSES = [
    Response(prompt, response)
    for prompt, group in zip(SAMPLES.prompt_tokens, SAMPLES.response_tokens, strict=True)
    for response in group
]
WEIGHTS = np.random.default_rng(1).normal(size=len(RESPONSES))
WEIGHTS[[3, 10]] = 0


def flat(vector: list[torch.Tensor]) -> np.ndarray:
    return torch.cat([part.flatten() for part in vector]).double().numpy()


def relative(found: np.ndarray, right: np.ndarray) -> float:
    return float(np.linalg.norm(found - right) / np.linalg.norm(right))


@pytest.mark.parametrize("max_tokens", [1, 30, 10_000])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_sum_is_that_of_every_responses_own_gradient(max_tokens, temperature, checkpointing):
    model = small_model()
    own = score_gradients(model, SAMPLES, temperature).reshape(len(RESPONSES), -1)
    scores = ScoreSum(model, temperature, max_tokens, checkpointing)
    scores.add(terms(RESPONSES, WEIGHTS))
    assert relative(flat(scores.total), WEIGHTS @ own) < 1e-5
    assert all(parameter.grad is None for parameter in model.parameters())


def test_float64_is_exact():
    model = float64_model()
    own = score_gradients(model, SAMPLES).reshape(len(RESPONSES), -1)
    scores = ScoreSum(model)
    scores.add(terms(RESPONSES, WEIGHTS))
    assert relative(flat(scores.total), WEIGHTS @ own) < 1e-12


def test_it_adds_up_until_it_is_cleared():
    scores = ScoreSum(small_model())
    scores.add(terms(RESPONSES, WEIGHTS))
    once = flat(scores.total)
    scores.add(terms(RESPONSES, WEIGHTS))
    assert relative(flat(scores.total), 2 * once) < 1e-6
    scores.clear()
    assert not flat(scores.total).any()


def test_a_bfloat16_model_has_a_float32_sum_that_keeps_growing():
    model = small_model(dtype=torch.bfloat16)
    scores = ScoreSum(model)
    one = terms(RESPONSES[1:2], np.ones(1))
    scores.add(one)
    once = flat(scores.total)
    scores.add(terms(RESPONSES[1:2], np.full(1, 255)))
    for _ in range(44):
        scores.add(one)
    assert {part.dtype for part in scores.total} == {torch.float32}
    # In bfloat16 the sum would stop at 256 times its first summand.
    assert relative(flat(scores.total), 300 * once) < 1e-2


@pytest.mark.parametrize("max_tokens", [20, 60])
def test_a_sum_that_was_stopped_goes_on(max_tokens):
    scores = ScoreSum(small_model(), max_tokens=max_tokens)
    summands, steps = terms(RESPONSES, WEIGHTS), []
    scores.add(summands, on_pass=steps.append)
    whole = flat(scores.total)
    assert steps == sorted(set(steps)) and steps[-1] == len(summands.responses) == 21

    class Stopped(Exception):
        pass

    def stop(done: int) -> None:
        if done >= 9:
            reached.append(done)
            raise Stopped

    reached: list[int] = []
    scores.clear()
    with pytest.raises(Stopped):
        scores.add(summands, on_pass=stop)
    scores.max_tokens = 35  # other micro-batches than before
    scores.add(summands, done=reached[0])
    assert relative(flat(scores.total), whole) < 1e-6


def test_parameters_that_are_frozen_have_no_part():
    model = small_model()
    model.model.embed_tokens.requires_grad_(False)
    scores = ScoreSum(model)
    scores.add(terms(RESPONSES, WEIGHTS))
    assert len(scores.total) == len(list(model.parameters())) - 1


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 120), st.integers(0, 10))
def test_micro_batches_are_bounded_and_hold_each_response_once(lengths, max_tokens, start):
    lengths.sort(reverse=True)
    found = list(micro_batches(lengths, max_tokens, start))
    assert [k for a, b in found for k in range(a, b)] == list(range(start, len(lengths)))
    for a, b in found:
        assert (b - a) * lengths[a] <= max_tokens or b - a == 1
        if b < len(lengths):  # the next one had no room
            assert (b - a + 1) * lengths[a] > max_tokens


def test_products_and_distances_of_vectors():
    a = [torch.tensor([[1.0, 2.0]]), torch.tensor([3.0])]
    b = [torch.tensor([[4.0, -1.0]]), torch.tensor([2.0])]
    assert dot(a, b) == 1 * 4 - 2 * 1 + 3 * 2
    assert squared_distance(a, b) == 9 + 9 + 1


def test_long_vectors_are_taken_in_pieces_in_float64(monkeypatch):
    monkeypatch.setattr(policy_gradient, "PIECE", 1000)
    long = [torch.full((300, 70), 0.1), torch.ones(3)]
    exact = 21_000 * float(np.float32(0.1)) ** 2 + 3
    assert dot(long, long) == pytest.approx(exact, rel=1e-13)
    zero = [torch.zeros_like(part) for part in long]
    assert squared_distance(long, zero) == pytest.approx(exact, rel=1e-13)


def test_what_does_not_count_is_left_out():
    found = terms([Response([1], [2]), Response([1], []), Response([1], [3])], np.array([0, 1, 2]))
    assert found.responses == [Response([1], [3])] and found.weights.tolist() == [2]


@pytest.mark.parametrize("weights", [[1.0], [1.0, np.nan]])
def test_a_weight_is_missing_or_not_finite(weights):
    with pytest.raises(ValueError, match="finite weight for each of 2 responses"):
        terms([Response([1], [2])] * 2, np.array(weights))


def test_a_prompt_without_tokens():
    with pytest.raises(ValueError, match="prompt of response 1 has no token; leave it out"):
        terms([Response([1], [2]), Response([], [2])], np.ones(2))


def test_greedy_sampling_has_no_gradient():
    with pytest.raises(ValueError, match=r"temperature is 0.*above 0"):
        ScoreSum(small_model(), temperature=0)


def test_a_model_with_nothing_to_train():
    with pytest.raises(ValueError, match="set requires_grad"):
        ScoreSum(small_model().requires_grad_(False))


def test_no_room_for_a_token():
    with pytest.raises(ValueError, match="1 token or more, got 0"):
        ScoreSum(small_model(), max_tokens=0)
