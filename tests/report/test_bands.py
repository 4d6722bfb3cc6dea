"""Running averages, seeds and ratios, against hand-computed values and slow loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.report import bands
from openrlhf_js.report.scalars import Series
from openrlhf_js.uncertainty import clustered_mean, ratio_of_means


def series(*values, first=1):
    return Series(list(range(first, first + len(values))), list(values))


def test_a_running_mean_begins_with_a_full_window():
    assert bands.running_mean(series(1, 3, 5, 9), 2) == ([2, 3, 4], [2, 4, 7])


def test_a_short_series_becomes_its_mean():
    assert bands.running_mean(series(1, 3), 5) == ([2], [2])


def test_a_window_of_one_changes_nothing():
    assert bands.running_mean(series(1, 3, 2), 1) == ([1, 2, 3], [1, 3, 2])


@given(
    st.lists(st.floats(-100, 100), min_size=1, max_size=30), st.integers(min_value=1, max_value=40)
)
def test_the_running_mean_is_that_of_a_slow_loop(values, window):
    got = bands.running_mean(series(*values), window)
    window = min(window, len(values))
    expected = []
    for last in range(window - 1, len(values)):
        total = 0.0
        for k in range(window):
            total += values[last - k]
        expected.append(total / window)
    assert got.values == pytest.approx(expected, abs=1e-9)


def test_seeds_are_averaged_on_the_steps_that_all_have():
    found = bands.over_seeds([series(1, 2, 3), series(3, 4)])
    assert found.steps == [1, 2]
    assert found.values == [2, 3]
    # t of one degree of freedom is 12.706; the standard error is sqrt(2) / sqrt(2) = 1
    assert found.low == pytest.approx([2 - 12.706, 3 - 12.706], abs=1e-3)
    assert found.high == pytest.approx([2 + 12.706, 3 + 12.706], abs=1e-3)


def test_a_single_seed_has_no_interval():
    found = bands.over_seeds([series(1, 2)])
    assert found.values == [1, 2]
    assert not any(map(math.isfinite, found.low + found.high))


def test_long_lines_are_thinned_and_keep_both_ends():
    found = bands.over_seeds([series(*range(5000))])
    assert len(found.steps) <= bands.MOST_POINTS
    assert (found.steps[0], found.steps[-1]) == (1, 5000)


def test_series_without_a_common_step_give_nothing():
    assert bands.over_seeds([series(1, 2), series(3, first=7)]).steps == []
    assert bands.ratio([series(1)], [series(1, first=5)], 3).steps == []
    assert bands.overall_ratio([series(1)], [series(1, first=5)]) is None


def test_the_ratio_to_itself_is_one():
    steps = series(*np.random.default_rng(0).gamma(3.0, size=60))
    assert bands.overall_ratio([steps], [steps]) == pytest.approx((1, 1, 1))
    found = bands.ratio([steps], [steps], 10)
    assert found.steps == list(range(10, 61))
    assert found.values == pytest.approx([1] * 51)


def test_the_ratio_of_single_seeds_has_blocks_of_steps():
    draw = np.random.default_rng(1)
    ours, theirs = draw.gamma(3.0, size=100), draw.gamma(4.0, size=100)
    blocks = [step // 5 for step in range(100)]
    got = bands.overall_ratio([series(*ours)], [series(*theirs)])
    assert got == pytest.approx(ratio_of_means(ours, theirs, blocks))
    assert got.value == pytest.approx(ours.sum() / theirs.sum())


def test_the_ratio_of_several_seeds_has_an_interval_over_seeds():
    got = bands.overall_ratio(
        [series(1, 3), series(2, 4), series(3, 3)], [series(4, 4), series(4, 6), series(6, 6)]
    )
    assert got == pytest.approx(ratio_of_means([2, 3, 3], [4, 5, 6]))
    assert got.value == pytest.approx(8 / 15)


def test_no_ratio_to_nothing_or_less():
    assert bands.overall_ratio([series(1, 2)], [series(0, 0)]) is None
    assert bands.overall_ratio([series(1, 2)], [series(-1, 2)]) is None


def test_the_final_figure_is_of_the_last_tenth():
    assert bands.final([series(*range(1, 21))]).value == 19.5
    assert bands.final([series(5.0)]).value == 5
    seeds = [series(*[0] * 9, 1), series(*[0] * 9, 2), Series([], [])]
    assert bands.final(seeds) == pytest.approx(clustered_mean([1.0, 2.0]))
    assert bands.final([Series([], [])]) is None


def test_the_average_is_over_all_steps_and_seeds():
    assert bands.average([series(1, 2, 3), series(4)]).value == 3
    assert bands.average([]) is None


def test_values_that_are_not_finite_are_left_out():
    assert bands.finite(series(1, math.nan, 3, math.inf)) == ([1, 3], [1, 3])


@pytest.mark.parametrize(
    ("logged", "asked", "window"), [(50, None, 1), (100, None, 1), (500, None, 20), (50, 7, 7)]
)
def test_only_long_runs_are_averaged_unasked(logged, asked, window):
    assert bands.window_of(logged, asked) == window
