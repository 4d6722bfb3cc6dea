"""95 % intervals cover the truth in 93 to 97 % of 2,000 simulated sets."""

import numpy as np
import pytest

from openrlhf_js.stats import (
    clustered_mean,
    clustered_proportion,
    paired_difference,
    ratio_of_means,
    stratified_mean,
)

SETS = 2000

SIZES = {
    "equal": lambda rng, count: np.full(count, 4),
    "geometric": lambda rng, count: rng.geometric(0.2, count),
    "pareto": lambda rng, count: np.minimum(np.ceil(2 * rng.pareto(1.5, count)).astype(int), 50),
}
NOISE = {
    "normal": lambda rng, count: rng.normal(size=count),
    "heavy": lambda rng, count: rng.standard_t(3, count) / np.sqrt(3),
}


def coverage(interval, truth, sets=SETS, seed=0):
    """The share of the sets whose interval holds the truth."""
    rng = np.random.default_rng(seed)
    found = (interval(rng) for _ in range(sets))
    return sum(each.low <= truth <= each.high for each in found) / sets


def holds(share):
    return 0.93 <= share <= 0.97


def clustered(rng, clusters, sizes, noise, within=1.0):
    labels = np.repeat(np.arange(clusters), SIZES[sizes](rng, clusters))
    return NOISE[noise](rng, clusters)[labels] + within * rng.normal(size=len(labels)), labels


@pytest.mark.parametrize("noise", ["normal", "heavy"])
@pytest.mark.parametrize("sizes", list(SIZES))
@pytest.mark.parametrize("clusters", [5, 40])
def test_clustered_mean(clusters, sizes, noise):
    assert holds(coverage(lambda rng: clustered_mean(*clustered(rng, clusters, sizes, noise)), 0))


@pytest.mark.parametrize("clusters", [10, 40])
def test_paired_difference_with_weights(clusters):
    def interval(rng):
        item = 3 * rng.normal(size=clusters)
        a, b = item + 0.5 + rng.normal(size=clusters), item + rng.normal(size=clusters)
        weights_a, weights_b = rng.choice([1, 3], (2, clusters))
        return paired_difference(a, b, weights_a=weights_a, weights_b=weights_b)

    assert holds(coverage(interval, 0.5))


@pytest.mark.parametrize("clusters", [10, 40])
def test_the_p_value_is_uniform_where_nothing_differs(clusters):
    rng = np.random.default_rng(0)
    found = []
    for _ in range(SETS):
        b, labels = clustered(rng, clusters, "geometric", "normal")
        a = b + rng.normal(size=clusters)[labels] + rng.normal(size=len(b))
        found.append(paired_difference(a, b, labels).p_value)
    assert holds(1 - np.mean(np.array(found) < 0.05))
    assert np.mean(np.array(found) < 0.5) == pytest.approx(0.5, abs=0.035)


@pytest.mark.parametrize("shared", [False, True])
def test_stratified_mean(shared):
    def interval(rng):
        strata = np.repeat([0, 1, 2], [30, 60, 20])
        clusters = rng.integers(0, 15, 110) + (0 if shared else 100 * strata)
        effects = rng.normal(size=400)
        return stratified_mean(strata + effects[clusters] + rng.normal(size=110), strata, clusters)

    assert holds(coverage(interval, 1))


@pytest.mark.parametrize("share", [0.2, 0.5, 0.75])
@pytest.mark.parametrize("clusters", [10, 40])
def test_clustered_proportion(share, clusters):
    def interval(rng):
        labels = np.repeat(np.arange(clusters), rng.geometric(0.15, clusters))
        solved = rng.beta(3 * share, 3 * (1 - share), clusters)
        return clustered_proportion(rng.random(len(labels)) < solved[labels], labels)

    assert holds(coverage(interval, share))


@pytest.mark.parametrize("clusters", [5, 20])
def test_ratio_of_means(clusters):
    def interval(rng):
        below = rng.gamma(4, 1, clusters)
        return ratio_of_means(below * (0.4 + 0.3 * rng.normal(size=clusters)), below)

    assert holds(coverage(interval, 0.4))
