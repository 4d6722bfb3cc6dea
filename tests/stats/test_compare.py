"""Differences from a reference, against scipy's tests and values worked out by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from openrlhf_js.stats import differences, holm

RLOO = {0: 0.5, 1: 0.7, 2: 0.4, 3: 0.6}  # by seed
SHIFTS = {"a": 0.1, "b": 0.3, "c": 0.0, "d": 0.6}  # of four others


def test_same_seeds_are_pairs_and_p_values_are_corrected_for_their_number():
    draw = np.random.default_rng(0)
    values = {"rloo": RLOO}
    for name, shift in SHIFTS.items():
        values[name] = {
            seed: value + shift + draw.normal(0, 0.1) for seed, value in reversed(RLOO.items())
        }
    comparisons = differences(values, "rloo")
    comparisons.sort(key=lambda comparison: comparison.difference.p_value)
    corrected = 0.0
    for rank, comparison in enumerate(comparisons):
        difference = comparison.difference
        paired_values = [values[comparison.name][seed] for seed in RLOO]
        expected = stats.ttest_rel(paired_values, list(RLOO.values()))
        interval = expected.confidence_interval(0.95)
        assert comparison.paired
        assert difference.p_value == pytest.approx(expected.pvalue)
        assert difference.low == pytest.approx(interval.low)
        assert difference.high == pytest.approx(interval.high)
        corrected = max(corrected, (len(SHIFTS) - rank) * expected.pvalue)
        assert comparison.corrected_p == pytest.approx(min(1, corrected))


def test_other_seeds_are_no_pairs():
    values = {
        "first": {0: 1.0, 1: 3.0},
        "apart": {8: 2.0, 9: 6.0},
        "half": {1: 2.0, 2: 6.0},
    }
    apart, half = differences(values, "first")
    assert not apart.paired
    assert not half.paired
    assert apart.difference.value == pytest.approx(2)
    assert half.difference.value == pytest.approx(2)
    # jackknife errors: -1, 1 of the first and -2, 2 of the others, over sqrt(2)
    error_apart = math.sqrt((1 + 1 + 4 + 4) / 2)
    error_half = math.sqrt((1 + 3**2 + 4) / 2)
    assert apart.difference.standard_error == pytest.approx(error_apart)
    assert half.difference.standard_error == pytest.approx(error_half)


def test_one_seed_bounds_nothing():
    (comparison,) = differences({"rloo": {1: 0.5}, "js": {1: 0.75}}, "rloo")
    assert comparison.paired
    assert comparison.corrected_p == 1
    assert comparison.difference[:3] == (0.25, -math.inf, math.inf)
    assert differences({"rloo": RLOO}, "rloo") == []


def test_p_values_of_any_order_are_corrected_and_no_p_values_are_none():
    # R's p.adjust(c(0.04, 0.01, 0.5, 0.03), "holm")
    assert holm([0.04, 0.01, 0.5, 0.03]) == pytest.approx([0.09, 0.04, 0.5, 0.09])
    assert holm([0.9, 0.6]) == [1, 1]
    assert holm([]) == []
