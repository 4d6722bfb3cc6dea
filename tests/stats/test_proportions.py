"""Shares and pass@k: scipy, exact counts, and intervals that stay in [0, 1]."""

import math
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from openrlhf_js.stats import clustered_proportion, mean_pass_at_k, pass_at_k


def test_a_clustered_share_is_wilsons_with_its_own_variance():
    # 3 of 40: variance p (1 - p) / 39, so 39 trials, and t of 39 degrees of freedom.
    found = clustered_proportion([1] * 3 + [0] * 37)
    p, n, t = 3 / 40, 39, stats.t.ppf(0.975, 39)
    ends = np.roots([1 + t**2 / n, -(2 * p + t**2 / n), p**2])
    assert found == pytest.approx((p, ends.min(), ends.max()))


@pytest.mark.parametrize("value", [0, 1])
def test_all_alike_still_has_a_width(value):
    found = clustered_proportion([value] * 120, np.arange(120) // 3)
    wilson = stats.binomtest(40 * value, 40).proportion_ci(method="wilson")
    assert found == pytest.approx((value, *wilson))
    assert found.half_width == pytest.approx(0.0438, abs=1e-4)


def test_degenerate_shares():
    assert clustered_proportion([0.5] * 4) == (0.5, 0.5, 0.5)
    assert clustered_proportion([0.1] * 3) == pytest.approx((0.1, 0.1, 0.1), abs=1e-15)
    assert clustered_proportion([1, 0, 1], ["a"] * 3) == pytest.approx((2 / 3, 0, 1))
    assert clustered_proportion([1.0]) == (1, 0, 1)
    # Two items: variance 1/4, so one trial, with t of one degree of freedom.
    half = 12.7062 / math.sqrt(1 + 12.7062**2) / 2
    assert clustered_proportion([1, 0]) == pytest.approx((0.5, 0.5 - half, 0.5 + half))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: clustered_proportion([0.5, 1.5]), "lies in"),
        (lambda: clustered_proportion([]), "not empty"),
        (lambda: clustered_proportion([float("nan")]), "finite"),
    ],
)
def test_what_is_no_share_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@given(st.integers(1, 9), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    answers = [True] * c + [False] * (n - c)
    subsets = [any(subset) for subset in combinations(answers, k)]
    assert pass_at_k(n, [c], k) == pytest.approx(sum(subsets) / len(subsets))


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
        ([4, 2], [1, 1], 3, "fewest samples of an item are 2"),
        (4, [1], 0, "needs 1 <= k"),
    ],
)
def test_impossible_counts_are_refused(samples, correct, k, message):
    with pytest.raises(ValueError, match=message):
        pass_at_k(samples, correct, k)
