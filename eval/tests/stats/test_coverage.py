"""95 % intervals cover the truth in 93 to 97 % of 2,000 simulated sets."""

from collections.abc import Callable

import numpy as np
import pytest

from paired_eval.stats import (
    Difference,
    Estimate,
    clustered_mean,
    clustered_proportion,
    paired_difference,
    ratio_of_means,
)

SETS = 2000

Rng = np.random.Generator


def equal_sizes(rng: Rng, clusters: int) -> np.ndarray:
    return np.full(clusters, 4)


def geometric_sizes(rng: Rng, clusters: int) -> np.ndarray:
    return rng.geometric(0.2, clusters)


def pareto_sizes(rng: Rng, clusters: int) -> np.ndarray:
    sizes = np.ceil(2 * rng.pareto(1.5, clusters)).astype(int)
    return np.minimum(sizes, 50)


def normal(rng: Rng, clusters: int) -> np.ndarray:
    return rng.normal(size=clusters)


def heavy_tailed(rng: Rng, clusters: int) -> np.ndarray:
    """Of variance 1."""
    return rng.standard_t(3, clusters) / np.sqrt(3)


def share_covered(interval: Callable[[Rng], Estimate], truth: float) -> float:
    """The share of the sets whose interval holds the truth."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(SETS):
        estimate = interval(rng)
        covered += estimate.low <= truth <= estimate.high
    return covered / SETS


def is_near_95_percent(share: float) -> bool:
    return 0.93 <= share <= 0.97


@pytest.mark.parametrize("noise", [normal, heavy_tailed])
@pytest.mark.parametrize("sizes", [equal_sizes, geometric_sizes, pareto_sizes])
@pytest.mark.parametrize("clusters", [5, 40])
def test_clustered_mean(clusters, sizes, noise):
    def interval(rng: Rng) -> Estimate:
        labels = np.repeat(np.arange(clusters), sizes(rng, clusters))
        effects = noise(rng, clusters)
        values = effects[labels] + rng.normal(size=len(labels))
        return clustered_mean(values, labels)

    assert is_near_95_percent(share_covered(interval, truth=0))


@pytest.mark.parametrize("clusters", [10, 40])
def test_paired_difference_with_weights(clusters):
    def interval(rng: Rng) -> Difference:
        item_effects = 3 * rng.normal(size=clusters)
        a = item_effects + 0.5 + rng.normal(size=clusters)
        b = item_effects + rng.normal(size=clusters)
        weights_a = rng.choice([1, 3], clusters)
        weights_b = rng.choice([1, 3], clusters)
        return paired_difference(a, b, weights_a=weights_a, weights_b=weights_b)

    assert is_near_95_percent(share_covered(interval, truth=0.5))


@pytest.mark.parametrize("clusters", [10, 40])
def test_the_p_value_is_uniform_where_nothing_differs(clusters):
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(SETS):
        labels = np.repeat(np.arange(clusters), geometric_sizes(rng, clusters))
        b = normal(rng, clusters)[labels] + rng.normal(size=len(labels))
        cluster_differences = rng.normal(size=clusters)
        a = b + cluster_differences[labels] + rng.normal(size=len(b))
        p_values.append(paired_difference(a, b, labels).p_value)
    share_below_5_percent = np.mean(np.array(p_values) < 0.05)
    share_below_half = np.mean(np.array(p_values) < 0.5)
    assert is_near_95_percent(1 - share_below_5_percent)
    assert share_below_half == pytest.approx(0.5, abs=0.035)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.75])
@pytest.mark.parametrize("clusters", [10, 40])
def test_clustered_proportion(share, clusters):
    def interval(rng: Rng) -> Estimate:
        labels = np.repeat(np.arange(clusters), rng.geometric(0.15, clusters))
        pass_rates = rng.beta(3 * share, 3 * (1 - share), clusters)
        is_solved = rng.random(len(labels)) < pass_rates[labels]
        return clustered_proportion(is_solved, labels)

    assert is_near_95_percent(share_covered(interval, truth=share))


@pytest.mark.parametrize("clusters", [5, 20])
def test_ratio_of_means(clusters):
    def interval(rng: Rng) -> Estimate:
        denominators = rng.gamma(4, 1, clusters)
        ratios = 0.4 + 0.3 * rng.normal(size=clusters)
        return ratio_of_means(denominators * ratios, denominators)

    assert is_near_95_percent(share_covered(interval, truth=0.4))
