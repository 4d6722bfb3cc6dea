"""Differences from a reference, against scipy's tests and values worked out by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from openrlhf_js.stats import differences

RLOO = {0: 0.5, 1: 0.7, 2: 0.4, 3: 0.6}


def test_same_seeds_are_pairs_and_p_values_are_corrected_for_their_number():
    draw = np.random.default_rng(0)
    ours = {
        name: {seed: v + shift + draw.normal(0, 0.1) for seed, v in reversed(RLOO.items())}
        for name, shift in {"a": 0.1, "b": 0.3, "c": 0.0, "d": 0.6}.items()
    }
    found = differences({"rloo": RLOO} | ours, "rloo")
    largest = 0.0
    for i, each in enumerate(sorted(found, key=lambda each: each.difference.p_value)):
        pairs = [ours[each.name][seed] for seed in RLOO], list(RLOO.values())
        expected = stats.ttest_rel(*pairs)
        assert each.paired
        assert each.difference.p_value == pytest.approx(expected.pvalue)
        assert each.difference[1:3] == pytest.approx(tuple(expected.confidence_interval(0.95)))
        largest = max(largest, (4 - i) * expected.pvalue)
        assert each.corrected_p == pytest.approx(min(1, largest))


def test_other_seeds_are_no_pairs_and_one_seed_bounds_nothing():
    values = {"first": {0: 1.0, 1: 3.0}, "apart": {8: 2.0, 9: 6.0}, "half": {1: 2.0, 2: 6.0}}
    apart, half = differences(values, "first")
    assert not apart.paired and not half.paired
    assert apart.difference[0] == half.difference[0] == pytest.approx(2)
    # Jackknife errors: -1, 1 of the first and -2, 2 of the others, over sqrt(2).
    assert apart.difference.standard_error == pytest.approx(math.sqrt((1 + 1 + 4 + 4) / 2))
    assert half.difference.standard_error == pytest.approx(math.sqrt((1 + 3**2 + 4) / 2))
    (only,) = differences({"rloo": {1: 0.5}, "js": {1: 0.75}}, "rloo")
    assert only.paired and only.corrected_p == 1
    assert only.difference[:3] == (0.25, -math.inf, math.inf)
    assert differences({"rloo": RLOO}, "rloo") == []
