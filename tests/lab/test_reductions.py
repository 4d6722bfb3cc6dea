"""Reductions by hand, where a row is below 0 and where a reference may be 0; and their words."""

import math

import numpy as np
import pytest

from openrlhf_js.lab.reductions import listed, percent, reduction
from openrlhf_js.uncertainty import Estimate, ratio_of_means


def test_by_hand():
    found = reduction(np.array([1.0, 2, 3]), np.array([2.0, 4, 6]))
    assert found == pytest.approx((50, 50, 50))  # always half, however rows differ
    found = reduction(np.array([1.0, 3]), np.array([4.0, 4]))  # deviations -1, 1: se 1
    assert found.value == pytest.approx(50)
    assert found.high - found.value == pytest.approx(100 * 12.706 / 4, rel=1e-4)


def test_with_a_row_below_0_by_hand():
    ours, theirs = np.array([1.0] * 9 + [3.0]), np.array([4.0] * 9 + [-1.0])
    found = reduction(ours, theirs)  # R = 12 / 35
    deviations = ours - 12 / 35 * theirs
    half = 2.262157 * deviations.std(ddof=1) / math.sqrt(10) / 3.5
    assert found == pytest.approx((100 * 23 / 35, 100 * (23 / 35 - half), 100 * (23 / 35 + half)))


def test_rows_below_0_hardly_change_the_interval():
    """Both formulas where both can be had: one row of 100 is moved to just below 0."""
    generator = np.random.default_rng(0)
    theirs = generator.gamma(3.0, size=100)
    theirs[0] = 0
    ours = 0.7 * theirs + generator.normal(0, 0.1, 100)
    below = theirs - 1e-9 * (np.arange(100) == 0)
    share, found = ratio_of_means(ours, theirs), reduction(ours, below)
    assert found.value == pytest.approx(100 * (1 - share.value))
    assert found.half_width == pytest.approx(100 * share.half_width, rel=0.05)


def test_a_reference_that_may_be_0_bounds_nothing():
    found = reduction(np.array([1.0, 1.0]), np.array([-1.0, 5.0]))
    assert found == Estimate(50.0, -math.inf, math.inf)
    assert percent(found) == "50.0 % (unknown to unknown: no difference that these batches show)"


@pytest.mark.parametrize("theirs", [np.zeros(3), -np.ones(3), np.array([1.0, -1, 0])])
def test_a_reduction_needs_an_error_to_reduce(theirs):
    assert reduction(np.ones(3), theirs) is None


def test_words():
    assert percent(Estimate(-3.0, -4.0, -2.0)) == "-3.0 % (-4.0 to -2.0: raised)"
    assert percent(Estimate(3.0, 1.0, 5.0)) == "3.0 % (1.0 to 5.0)"
    noise = "3.0 % (-1.0 to 7.0: no difference that these rounds show)"
    assert percent(Estimate(3.0, -1.0, 7.0), "rounds") == noise
    assert listed(["a"]) == "a" and listed(["a", "b", "c"]) == "a, b and c"
