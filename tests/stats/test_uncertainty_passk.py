from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.stats import clustered_proportion, mean_pass_at_k, pass_at_k


@given(st.integers(1, 9), st.data())
def test_it_is_the_share_of_subsets_with_a_correct_sample(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    answers = [True] * c + [False] * (n - c)
    subsets = [any(subset) for subset in combinations(answers, k)]
    assert pass_at_k(n, [c], k) == pytest.approx(sum(subsets) / len(subsets))


@pytest.mark.parametrize("k", [1, 2, 5, 16])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.9])
def test_it_is_unbiased(k, p):
    c = np.arange(17)
    probability = np.array([comb(16, i) * p**i * (1 - p) ** (16 - i) for i in c])
    assert probability @ pass_at_k(16, c, k) == pytest.approx(1 - (1 - p) ** k)


def test_one_sample_is_the_mean():
    assert pass_at_k([4, 5, 4], [1, 5, 0], 1) == pytest.approx([0.25, 1, 0])


def test_many_samples_lose_no_digits():
    n, k = 100_000, 100
    found = pass_at_k(n, [0, 1, 7, n - k, n - k + 1, n], k)
    exact = [1 - comb(n - c, k) / comb(n, k) for c in (0, 1, 7)]
    assert found[:3] == pytest.approx(exact, rel=1e-10)
    assert found[0] == 0
    assert found[3:].tolist() == [1, 1, 1]


def test_the_mean_takes_an_item_as_one_draw():
    correct = [0, 4, 16, 1, 9]
    found = mean_pass_at_k(16, correct, 4)
    assert found == clustered_proportion(pass_at_k(16, correct, 4))
    twins = mean_pass_at_k(16, correct * 2, 4, clusters=list(range(5)) * 2)
    assert twins == pytest.approx(found)
    assert mean_pass_at_k(16, [16] * 40, 8)[1] == pytest.approx(0.9124, abs=1e-4)


@pytest.mark.parametrize(
    ("samples", "correct", "k", "message"),
    [
        (4, [], 1, "not empty"),
        (4, [5], 1, "item 0 has 5 correct of 4"),
        (4, [0, -1], 1, "item 1 has -1 correct"),
        ([4, 2], [1, 1], 3, "fewest samples of an item are 2"),
        (4, [1], 0, "needs 1 <= k"),
        (4, [0.5], 1, "whole numbers"),
    ],
)
def test_impossible_counts_are_refused(samples, correct, k, message):
    with pytest.raises(ValueError, match=message):
        pass_at_k(samples, correct, k)
