"""Intervals by resampling, against simulated truth and worked-out cases."""

import numpy as np
import pytest

from openrlhf_js.stats import mean_of_means


def test_groups_count_alike_and_constants_have_no_width():
    estimate = mean_of_means([[1.0, 1.0, 1.0], [1.0]])
    assert estimate == (1.0, 1.0, 1.0)
    assert mean_of_means([[0.0, 2.0], [5.0]]).value == 3.0
    with pytest.raises(ValueError, match="must be finite"):
        mean_of_means([[1.0, float("nan")]])


def test_the_interval_has_the_spread_of_groups_and_of_values():
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(60):
        truths = rng.normal(size=(25, 1))
        estimate = mean_of_means(list(truths + rng.normal(size=(25, 4))))
        covered += estimate.low <= 0 <= estimate.high
    assert covered >= 50  # 83 to 100 % of 60
