"""Resampling by cluster: known moments, the delta method, agreement with formulas."""

import math

import numpy as np
import pytest

from openrlhf_js.stats import bootstrap_interval, clustered_mean
from openrlhf_js.stats.bootstrap import _standard_error, counts


def ratio(total):
    return total[..., 0] / total[..., 1]


def sums_of(values):
    return np.column_stack([values, np.ones(len(values))])


def test_counts_are_a_multinomial_draw_whatever_the_pieces(monkeypatch):
    drawn = np.concatenate(list(counts(5, 40_000, 0)))
    assert drawn.shape == (40_000, 5)
    assert (drawn.sum(1) == 5).all()
    assert drawn.mean(0) == pytest.approx([1] * 5, abs=0.03)
    assert np.cov(drawn.T)[0, :2] == pytest.approx([0.8, -0.2], abs=0.03)
    monkeypatch.setattr("openrlhf_js.stats.bootstrap.CHUNK_NUMBERS", 22)
    assert (np.concatenate(list(counts(5, 50, 0))) == drawn[:50]).all()


def test_the_delta_methods_error_is_that_of_the_mean():
    values = np.random.default_rng(3).normal(size=12) + 1e6
    drawn = next(counts(12, 5, 0))
    found = _standard_error(drawn, drawn @ sums_of(values), sums_of(values), ratio)
    repeated = [np.repeat(values, row.astype(int)) for row in drawn]
    expected = [sample.std() / math.sqrt(11) for sample in repeated]
    assert found == pytest.approx(expected, rel=1e-3)


def test_it_agrees_with_the_formula_where_there_is_one():
    rng = np.random.default_rng(4)
    values = rng.normal(size=200)
    found = bootstrap_interval(sums_of(values), ratio, seed=0, rounds=10_000)
    assert found == pytest.approx(clustered_mean(values), abs=0.012)
    few = bootstrap_interval(sums_of(values[:6]), ratio, seed=0, rounds=10_000)
    assert few.half_width == pytest.approx(clustered_mean(values[:6]).half_width, rel=0.3)


def test_degenerate_samples():
    assert bootstrap_interval(sums_of([2.0]), ratio, seed=0) == (2, -math.inf, math.inf)
    assert bootstrap_interval(sums_of([2.0, 2.0, 2.0]), ratio, seed=0) == (2, 2, 2)
    sums = np.array([[1.0, 1.0], [0.0, 0.0]])  # a quarter of the resamples divide by 0
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="not finite in"):
        bootstrap_interval(sums, ratio, seed=0)
