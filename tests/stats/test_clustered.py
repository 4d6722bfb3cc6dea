"""Means and differences by cluster: textbook cases, matrices by definition, invariances."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg, stats

from openrlhf_js.stats import (
    Estimate,
    clustered_mean,
    detectable_effect,
    paired_difference,
    ratio_of_means,
    stratified_mean,
)
from openrlhf_js.stats.clustered import degrees_of_freedom
from openrlhf_js.stats.estimate import welch


def by_definition(values, clusters):
    """The jackknife variance of a mean, and Bell and McCaffrey's df from their matrices."""
    n, names = len(values), np.unique(clusters)
    left_out = np.array([values[clusters != name].mean() for name in names])
    variance = (len(names) - 1) / len(names) * np.square(left_out - values.mean()).sum()
    hat = np.full((n, n), 1 / n)
    columns = []
    for name in names:
        own = np.flatnonzero(clusters == name)
        block = np.eye(len(own)) - hat[np.ix_(own, own)]
        adjusted = np.linalg.inv(linalg.sqrtm(block)).real @ np.ones(len(own)) / n
        columns.append((np.eye(n) - hat)[:, own] @ adjusted)
    g = np.stack(columns, 1)
    eigenvalues = np.linalg.eigvalsh(g.T @ g)
    return variance, eigenvalues.sum() ** 2 / np.square(eigenvalues).sum()


def test_one_row_a_cluster_is_the_t_interval():
    values = [0.3, 1.2, -0.7, 2.0, 0.1]
    expected = stats.ttest_1samp(values, 0).confidence_interval()
    found = clustered_mean(values)
    assert found.value == pytest.approx(np.mean(values))
    assert found[1:] == pytest.approx(tuple(expected))
    assert found.half_width == pytest.approx((expected.high - expected.low) / 2)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 2, 3), (5, 1, 1, 1), (2, 2, 7, 3, 1)])
def test_unequal_clusters_match_the_definition(sizes):
    rng = np.random.default_rng(1)
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    values = rng.normal(size=len(clusters)) + clusters
    variance, degrees = by_definition(values, clusters)
    assert degrees_of_freedom(np.array(sizes, float)) == pytest.approx(degrees)
    found = clustered_mean(values, clusters)
    assert found.value == pytest.approx(values.mean())
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, degrees) * math.sqrt(variance))


def test_a_ratio_is_a_mean_weighted_by_its_denominator():
    a, b, clusters = np.array([1.0, 2, 3, 5]), np.array([2.0, 2, 5, 4]), [0, 0, 1, 2]
    found = ratio_of_means(a, b, clusters)
    assert found.value == pytest.approx(11 / 13)
    assert found == pytest.approx(clustered_mean(a / b, clusters, weights=b))
    with pytest.raises(ValueError, match="denominators must be 0 or more"):
        ratio_of_means([1.0, 1.0], [1.0, -1.0])
    with pytest.raises(ValueError, match="the same length"):
        ratio_of_means([1.0, 1.0], [1.0])


def test_the_paired_difference_is_the_paired_t_test():
    rng = np.random.default_rng(3)
    b = rng.normal(size=30)
    a = b + 0.2 + rng.normal(size=30) / 3
    expected = stats.ttest_rel(a, b)
    found = paired_difference(a, b)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert found.degrees_of_freedom == pytest.approx(29)
    assert found.standard_error == pytest.approx(stats.sem(a - b))
    assert found.estimate == Estimate(*found[:3])


def test_paired_rows_may_weigh_differently():
    # The weighted win shares of two models on the same questions: their difference has the
    # variance that leaving out one question after the other gives.
    rng = np.random.default_rng(4)
    hard = rng.random(300)
    a, b = ((rng.random(300) < hard) * 1.0 for _ in range(2))
    weights_a, weights_b = rng.choice([1, 3, 6], (2, 300))
    found = paired_difference(a, b, weights_a=weights_a, weights_b=weights_b)

    def difference(keep):
        return np.average(a[keep], weights=weights_a[keep]) - np.average(
            b[keep], weights=weights_b[keep]
        )

    rows = np.arange(300)
    left_out = np.array([difference(rows != row) for row in rows])
    jackknife = np.square(left_out - difference(rows >= 0)).sum() * 299 / 300
    assert found.value == pytest.approx(difference(rows >= 0))
    assert found.standard_error == pytest.approx(math.sqrt(jackknife))
    assert found.degrees_of_freedom == pytest.approx(
        min(degrees_of_freedom(weights.astype(float)) for weights in (weights_a, weights_b))
    )


def test_strata_count_alike():
    values, strata = [0.0, 1, 1, 5, 7], ["a", "a", "a", "b", "b"]
    assert stratified_mean(values, strata).value == pytest.approx((2 / 3 + 6) / 2)
    # Variances of the means: 1/9 with 2 df, 1 with 1 df.
    parts = np.array([1 / 9, 1]) / 4
    degrees = welch(list(parts), [2, 1])
    assert degrees == pytest.approx(parts.sum() ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2))
    half = stats.t.ppf(0.975, degrees) * math.sqrt(parts.sum())
    assert stratified_mean(values, strata).half_width == pytest.approx(half)


def test_a_cluster_in_two_strata_is_one_draw():
    values = [0.2, 0.5, 0.9, 0.1]
    twice = stratified_mean(values * 2, ["a"] * 4 + ["b"] * 4, list("pqrs") * 2)
    once = clustered_mean(values)
    error = once.half_width / stats.t.ppf(0.975, 3)
    assert twice.half_width == pytest.approx(error * stats.t.ppf(0.975, 6))
    apart = stratified_mean(values * 2, ["a"] * 4 + ["b"] * 4)
    assert apart.half_width == pytest.approx(twice.half_width / math.sqrt(2))


@given(
    st.lists(st.floats(-5, 5), min_size=2, max_size=12), st.floats(-100, 100), st.floats(0.1, 10)
)
def test_intervals_move_with_the_data(values, shift, scale):
    values = np.array(values)
    clusters = np.arange(len(values)) // 2
    before = clustered_mean(values, clusters)
    after = clustered_mean(shift + scale * values, clusters)
    assert before.low <= before.value <= before.high
    assert after == pytest.approx([shift + scale * end for end in before], abs=1e-9, rel=1e-9)


@given(st.floats(-1e9, 1e9), st.lists(st.integers(1, 30), min_size=2, max_size=6))
def test_equal_values_have_a_point_for_an_interval(value, sizes):
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    values = np.full(len(clusters), value)
    assert clustered_mean(values, clusters) == (value, value, value)
    assert stratified_mean(values, clusters > 0).half_width in (0, math.inf)
    assert paired_difference(values, 0 * values, clusters)[:3] == (value, value, value)


def test_one_cluster_bounds_nothing():
    found = clustered_mean([1.0, 2.0, 6.0], ["a", "a", "a"])
    assert found == (3, -math.inf, math.inf)
    assert found.plain() == {"value": 3, "low": None, "high": None}
    assert clustered_mean([4.0]).value == 4
    assert clustered_mean([1.0, 2.0], weights=[1e-19, 0.1])[1:] == (-math.inf, math.inf)
    assert paired_difference([1.0], [0.0])[:4] == (1, -math.inf, math.inf, 1)
    assert stratified_mean([1.0, 2, 3], ["a", "a", "b"])[1:] == (-math.inf, math.inf)


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
    found = detectable_effect(1 / math.sqrt(items), items - 1)
    assert found == pytest.approx(expected, abs=2e-7)


@pytest.mark.parametrize("degrees", [1, 1.2, 2.4, 11])
def test_an_effect_of_that_size_is_found_four_times_in_five(degrees):
    effect = detectable_effect(1, degrees)
    drawn = stats.norm.rvs(size=100_000, random_state=0) + effect
    drawn = drawn / np.sqrt(stats.chi2.rvs(degrees, size=100_000, random_state=1) / degrees)
    assert (np.abs(drawn) > stats.t.ppf(0.975, degrees)).mean() == pytest.approx(0.8, abs=0.006)
    assert detectable_effect(1, 0) == math.inf


def test_more_clusters_show_smaller_effects():
    found = [detectable_effect(1, degrees) for degrees in np.geomspace(1, 1e6, 60)]
    assert (np.diff(found) < 0).all() and found[-1] == pytest.approx(2.8016, abs=1e-4)
