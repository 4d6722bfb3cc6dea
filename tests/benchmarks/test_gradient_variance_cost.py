"""The most memory that an action takes for a moment, as the benchmark of the cost measures it."""

from __future__ import annotations

import pytest
import torch

from openrlhf_js.plugin.gradient_variance import PIECE_ELEMENTS, squared_norm

ELEMENTS = 10 * PIECE_ELEMENTS


@pytest.fixture(scope="module")
def momentary_bytes():
    from gradient_variance_cost import momentary_bytes

    return momentary_bytes


def test_what_operators_take_counts_until_they_give_it_back(momentary_bytes):
    gradient = torch.zeros(ELEMENTS)

    def one_after_the_other():
        for _ in range(3):
            gradient.clone()

    assert momentary_bytes(one_after_the_other) == 4 * ELEMENTS
    assert momentary_bytes(lambda: len([gradient.clone() for _ in range(3)])) == 12 * ELEMENTS
    assert momentary_bytes(lambda: gradient.double().square().sum()) == 16 * ELEMENTS
    assert momentary_bytes(lambda: None) == 0


def test_a_gradient_is_squared_without_a_copy_of_it(momentary_bytes):
    gradient = torch.zeros(ELEMENTS)
    assert 0 < momentary_bytes(lambda: squared_norm(gradient)) < 1024
    half = gradient.to(torch.bfloat16)  # a piece at a time, the next before the last one is let go
    assert momentary_bytes(lambda: squared_norm(half)) == pytest.approx(8 * PIECE_ELEMENTS, abs=64)
