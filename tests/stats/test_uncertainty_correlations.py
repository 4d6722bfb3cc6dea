import math

import numpy as np
import pytest
from scipy import stats

from openrlhf_js.stats import correlation
from openrlhf_js.stats.correlations import _Ranks, _Values, _weighted


@pytest.mark.parametrize("levels", [3, 1000])
def test_the_value_is_scipys(levels):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, levels, (2, 50))
    y = y + x
    pearson = correlation(x, y, kind="pearson", seed=0, rounds=50)
    spearman = correlation(x, y, seed=0, rounds=50)
    assert pearson.value == pytest.approx(stats.pearsonr(x, y)[0])
    assert spearman.value == pytest.approx(stats.spearmanr(x, y)[0])
    assert -1 <= spearman.low < spearman.value < spearman.high <= 1


def test_a_resample_ranks_its_own_rows():
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 6, (2, 30)).astype(float)
    weights = rng.integers(0, 4, 30)
    repeated = [np.repeat(column, weights) for column in (x, y)]
    for kind, expected in ((_Ranks, stats.spearmanr), (_Values, stats.pearsonr)):
        found = _weighted([kind(x), kind(y)], weights[None].astype(float))
        assert found[0] == pytest.approx(expected(*repeated)[0])


def test_normal_rows_have_fishers_interval():
    rng = np.random.default_rng(2)
    x = rng.normal(size=2000)
    y = x + rng.normal(size=2000)
    found = correlation(x, y, kind="pearson", seed=0)
    expected = stats.pearsonr(x, y).confidence_interval()
    assert found[1:] == pytest.approx(tuple(expected), abs=0.005)


def test_copies_of_a_row_tell_nothing_new():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 60))
    once = correlation(x, y, list(range(60)), seed=0)
    eight = correlation(np.repeat(x, 8), np.repeat(y, 8), np.repeat(range(60), 8), seed=0)
    assert eight == pytest.approx(once)


def test_degenerate_columns():
    x = np.arange(20.0)
    assert correlation(x, -x, seed=0) == (-1, -1, pytest.approx(-1))
    assert correlation(x, x**2, [0] * 10 + [1] * 10, seed=0) == (1, -1, 1)
    # A resample without the one row that differs has no correlation, and is left out.
    rare = np.where(x == 7, 1.0, 0.0)
    found = correlation(x, rare, seed=0)
    assert all(math.isfinite(end) for end in found)
    assert found.low < 0 < found.high


@pytest.mark.parametrize(
    ("x", "y", "options", "message"),
    [
        ([1, 2, 3], [4, 4, 4], {}, "y is constant, 4"),
        ([1, 2], [1, 2, 3], {}, "2 rows and y 3"),
        ([1, 2], [1, math.nan], {}, "y must be finite"),
        ([], [], {}, "not empty"),
        ([1, 2], [2, 1], {"kind": "kendall"}, "'kendall'"),
        ([1, 2], [2, 1], {"confidence": 2}, "between 0 and 1"),
    ],
)
def test_what_has_no_correlation_is_refused(x, y, options, message):
    with pytest.raises(ValueError, match=message):
        correlation(x, y, seed=0, **options)
