"""Shares and pass@k: scipy, exact counts, and intervals that stay in [0, 1]."""

import math
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from paired_eval.stats import clustered_proportion, pass_at_k


def test_a_clustered_share_is_wilsons_with_its_own_variance():
    # 3 of 40: variance p (1 - p) / 39, so 39 trials, and t of 39 degrees of freedom.
    share = 3 / 40
    trials = 39
    squared_t = stats.t.ppf(0.975, 39) ** 2
    ends = np.roots([1 + squared_t / trials, -(2 * share + squared_t / trials), share**2])
    proportion = clustered_proportion([1] * 3 + [0] * 37)
    assert proportion == pytest.approx((share, ends.min(), ends.max()))


@pytest.mark.parametrize("right", [0, 4, 20, 28, 40])
def test_all_alike_still_has_a_width(right):
    wilson = stats.binomtest(right, 40).proportion_ci(method="wilson")
    interval = pytest.approx((right / 40, wilson.low, wilson.high))
    assert clustered_proportion([right / 40] * 120, np.arange(120) // 3) == interval
    mixed = np.repeat([1, 0], [right, 40 - right])  # the same share in each cluster
    assert clustered_proportion(np.tile(mixed, 40), np.arange(1600) // 40) == interval


def test_degenerate_shares():
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
    correct = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    answers = [True] * correct + [False] * (n - correct)
    passes = [any(subset) for subset in combinations(answers, k)]
    assert pass_at_k(n, [correct], k) == pytest.approx(sum(passes) / len(passes))


def test_many_samples_lose_no_digits():
    n = 100_000
    k = 100
    few_correct = [0, 1, 7]
    exact = [1 - comb(n - correct, k) / comb(n, k) for correct in few_correct]
    shares = pass_at_k(n, few_correct, k)
    assert shares == pytest.approx(exact, rel=1e-10)
    assert shares[0] == 0
    assert pass_at_k(n, [n - k + 1, n], k).tolist() == [1, 1]
    assert pass_at_k(n, [n - k], k).tolist() == [1]


def test_the_mean_takes_an_item_as_one_draw():
    shares = pass_at_k(16, [0, 4, 16, 1, 9], 4)
    twins = clustered_proportion([*shares, *shares], list(range(5)) * 2)
    assert twins == pytest.approx(clustered_proportion(shares))


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
