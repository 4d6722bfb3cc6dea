"""Means and differences by cluster: textbook cases, matrices by definition, invariances."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg, stats

from paired_eval.stats import (
    Estimate,
    clustered_mean,
    detectable_effect,
    holm,
    mean_of_means,
    paired_difference,
    ratio_of_means,
)
from paired_eval.stats.clustered import degrees_of_freedom


class Definition(NamedTuple):
    """The variance of a mean over clusters, and its degrees of freedom."""

    variance: float
    degrees_of_freedom: float


def by_definition(values: np.ndarray, clusters: np.ndarray) -> Definition:
    """The jackknife variance of a mean, and Bell and McCaffrey's df from their matrices."""
    names = np.unique(clusters)
    means_left_out = np.array([values[clusters != name].mean() for name in names])
    squares = np.square(means_left_out - values.mean())
    variance = (len(names) - 1) / len(names) * squares.sum()

    rows = len(values)
    residual_maker = np.eye(rows) - np.full((rows, rows), 1 / rows)
    columns = []
    for name in names:
        members = np.flatnonzero(clusters == name)
        block = residual_maker[np.ix_(members, members)]
        adjustment = np.linalg.inv(linalg.sqrtm(block)).real
        adjusted = adjustment @ np.ones(len(members)) / rows
        columns.append(residual_maker[:, members] @ adjusted)
    g = np.stack(columns, axis=1)
    eigenvalues = np.linalg.eigvalsh(g.T @ g)
    degrees = eigenvalues.sum() ** 2 / np.square(eigenvalues).sum()
    return Definition(variance, degrees)


def test_one_row_a_cluster_is_the_t_interval():
    values = [0.3, 1.2, -0.7, 2.0, 0.1]
    expected = stats.ttest_1samp(values, 0).confidence_interval()
    mean = clustered_mean(values)
    assert mean.value == pytest.approx(np.mean(values))
    assert mean.low == pytest.approx(expected.low)
    assert mean.high == pytest.approx(expected.high)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 2, 3), (5, 1, 1, 1), (2, 2, 7, 3, 1)])
def test_unequal_clusters_match_the_definition(sizes):
    rng = np.random.default_rng(1)
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    values = rng.normal(size=len(clusters)) + clusters
    expected = by_definition(values, clusters)
    half = stats.t.ppf(0.975, expected.degrees_of_freedom) * math.sqrt(expected.variance)
    degrees = degrees_of_freedom(np.array(sizes, float))
    assert degrees == pytest.approx(expected.degrees_of_freedom)
    value = values.mean()
    expected_interval = (value, value - half, value + half)
    assert clustered_mean(values, clusters) == pytest.approx(expected_interval)


def test_a_ratio_is_a_mean_weighted_by_its_denominator():
    numerators = np.array([1.0, 2, 3, 5])
    denominators = np.array([2.0, 2, 5, 4])
    clusters = [0, 0, 1, 2]
    ratio = ratio_of_means(numerators, denominators, clusters)
    weighted = clustered_mean(numerators / denominators, clusters, weights=denominators)
    assert ratio.value == pytest.approx(11 / 13)
    assert ratio == pytest.approx(weighted)
    with pytest.raises(ValueError, match="denominators must be 0 or more"):
        ratio_of_means([1.0, 1.0], [1.0, -1.0])
    with pytest.raises(ValueError, match="the same length"):
        ratio_of_means([1.0, 1.0], [1.0])


def test_the_paired_difference_is_the_paired_t_test():
    rng = np.random.default_rng(3)
    b = rng.normal(size=30)
    a = b + 0.2 + rng.normal(size=30) / 3
    expected = stats.ttest_rel(a, b)
    interval = expected.confidence_interval()
    difference = paired_difference(a, b)
    assert difference.p_value == pytest.approx(expected.pvalue)
    assert difference.low == pytest.approx(interval.low)
    assert difference.high == pytest.approx(interval.high)
    assert difference.degrees_of_freedom == pytest.approx(29)
    assert difference.standard_error == pytest.approx(stats.sem(a - b))
    assert difference.estimate == Estimate(difference.value, difference.low, difference.high)


def test_paired_rows_may_weigh_differently():
    """The weighted win shares of two models on the same questions.

    Their difference has the variance that leaving out one question after the other gives.
    """
    questions = 300
    rng = np.random.default_rng(4)
    chance = rng.random(questions)
    a = (rng.random(questions) < chance).astype(float)
    b = (rng.random(questions) < chance).astype(float)
    weights_a = rng.choice([1, 3, 6], questions)
    weights_b = rng.choice([1, 3, 6], questions)

    def difference_of(keep: np.ndarray) -> float:
        share_a = np.average(a[keep], weights=weights_a[keep])
        share_b = np.average(b[keep], weights=weights_b[keep])
        return share_a - share_b

    rows = np.arange(questions)
    expected = difference_of(rows >= 0)
    left_out = np.array([difference_of(rows != row) for row in rows])
    variance = np.square(left_out - expected).sum() * (questions - 1) / questions
    degrees = [degrees_of_freedom(weights.astype(float)) for weights in (weights_a, weights_b)]

    difference = paired_difference(a, b, weights_a=weights_a, weights_b=weights_b)
    assert difference.value == pytest.approx(expected)
    assert difference.standard_error == pytest.approx(math.sqrt(variance))
    assert difference.degrees_of_freedom == pytest.approx(min(degrees))


@given(
    values=st.lists(st.floats(-5, 5), min_size=2, max_size=12),
    shift=st.floats(-100, 100),
    scale=st.floats(0.1, 10),
)
def test_intervals_move_with_the_data(values, shift, scale):
    values = np.array(values)
    clusters = np.arange(len(values)) // 2
    before = clustered_mean(values, clusters)
    after = clustered_mean(shift + scale * values, clusters)
    expected = [shift + scale * number for number in before]
    assert before.low <= before.value <= before.high
    assert after == pytest.approx(expected, abs=1e-9, rel=1e-9)


@given(st.floats(-1e9, 1e9), st.lists(st.integers(1, 30), min_size=2, max_size=6))
def test_equal_values_have_a_point_for_an_interval(value, sizes):
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    values = np.full(len(clusters), value)
    assert clustered_mean(values, clusters) == (value, value, value)
    assert paired_difference(values, 0 * values, clusters)[:3] == (value, value, value)


def test_one_cluster_bounds_nothing():
    mean = clustered_mean([1.0, 2.0, 6.0], ["a", "a", "a"])
    assert mean == (3, -math.inf, math.inf)
    assert mean.plain() == {"value": 3, "low": None, "high": None}
    assert clustered_mean([4.0]).value == 4
    assert clustered_mean([1.0, 2.0], weights=[1e-19, 0.1])[1:] == (-math.inf, math.inf)
    assert paired_difference([1.0], [0.0])[:4] == (1, -math.inf, math.inf, 1)


def test_equal_differences_are_left_to_the_sign_test():
    assert paired_difference([1.0, 2, 3], [0.0, 1, 2])[:4] == (1, 1, 1, 0.25)
    assert paired_difference([1.0, 2, 3], [1.0, 2, 3])[:4] == (0, 0, 0, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: clustered_mean([]), "not empty"),
        (lambda: clustered_mean([1.0, math.nan]), "number 1 is nan"),
        (lambda: clustered_mean([1.0, 2.0], weights=[1, -1]), "0 or more"),
        (lambda: paired_difference([1.0, 2.0], [1.0]), "same items: 2, 1"),
        (lambda: paired_difference([1.0, 2.0], [1.0, math.nan]), "b must be finite"),
    ],
)
def test_what_cannot_be_averaged_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("items", "expected"), [(40, 0.45425711), (500, 0.12553232)])
def test_the_detectable_effect_is_that_of_statsmodels(items, expected):
    # statsmodels 0.15.0: TTestPower().solve_power(nobs=items, alpha=0.05, power=0.8)
    effect = detectable_effect(1 / math.sqrt(items), items - 1)
    assert effect == pytest.approx(expected, abs=2e-7)
    assert detectable_effect(1, 0) == math.inf


def test_equal_differences_have_the_sign_test_whatever_their_rounding():
    assert paired_difference([0.3, 0.4], [0.2, 0.3]).p_value == 0.5
    assert paired_difference([0.3, 0.4, 0.8], [0.2, 0.3, 0.7]).p_value == 0.25
    assert paired_difference([0.1 + 0.2] * 10, [0.3] * 10).p_value == 1


def test_p_values_of_any_order_are_corrected_and_no_p_values_are_none():
    # R's p.adjust(c(0.04, 0.01, 0.5, 0.03), "holm")
    assert holm([0.04, 0.01, 0.5, 0.03]) == pytest.approx([0.09, 0.04, 0.5, 0.09])
    assert holm([0.9, 0.6]) == [1, 1]
    assert holm([]) == []


def test_groups_count_alike_and_each_has_its_own_spread():
    assert mean_of_means([[1.0, 1.0, 1.0], [1.0, 1.0]]).estimate == (1.0, 1.0, 1.0)
    assert mean_of_means([[0.0, 2.0], [5.0]]).estimate == (3.0, -math.inf, math.inf)
    # one group is the t test
    alone = mean_of_means([[1.0, 2.0, 4.0, 7.0]])
    assert alone == paired_difference([1.0, 2.0, 4.0, 7.0], [0.0] * 4)
    # Welch's test of a and -b is that of a difference
    a, b = [1.0, 2.0, 4.0, 9.0], [0.5, 0.0, 1.0]
    expected = stats.ttest_ind(a, b, equal_var=False)
    both = mean_of_means([a, [-value for value in b]])
    assert both.p_value == pytest.approx(expected.pvalue)
    assert both.degrees_of_freedom == pytest.approx(expected.df)
    with pytest.raises(ValueError, match="must be finite"):
        mean_of_means([[1.0, float("nan")]])
