import itertools
import math

import numpy as np
import pytest
from scipy import stats

from openrlhf_js.stats import (
    detectable_effect,
    mcnemar_detectable_difference,
    paired_detectable_effect,
    paired_difference,
    proportions_detectable_difference,
)
from openrlhf_js.stats.power import mcnemar_power


@pytest.mark.parametrize(
    ("items", "power", "expected"),
    [(40, 0.8, 0.45425711), (10, 0.9, 1.15456505), (500, 0.8, 0.12553232)],
)
def test_the_paired_effect_is_that_of_statsmodels(items, power, expected):
    # statsmodels 0.15.0: TTestPower().solve_power(nobs=items, alpha=0.05, power=power)
    found = paired_detectable_effect(1, items, power=power)
    assert found == pytest.approx(expected, abs=2e-7)
    assert paired_detectable_effect(0.3, items, power=power) == pytest.approx(0.3 * found)


def test_an_effect_of_that_size_is_found_four_times_in_five():
    rng = np.random.default_rng(0)
    effect = paired_detectable_effect(2, 12)
    samples = effect + 2 * rng.normal(size=(20_000, 12))
    found = stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.012)


@pytest.mark.parametrize("degrees", [1, 1.2, 1.5, 2.4, 3, 3.2])
def test_few_degrees_of_freedom_have_an_effect_too(degrees):
    effect = detectable_effect(1, degrees)
    drawn = stats.norm.rvs(size=100_000, random_state=0) + effect
    drawn = drawn / np.sqrt(stats.chi2.rvs(degrees, size=100_000, random_state=1) / degrees)
    assert (np.abs(drawn) > stats.t.ppf(0.975, degrees)).mean() == pytest.approx(0.8, abs=0.006)


def test_a_difference_tells_what_it_could_have_seen():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 40))
    difference = paired_difference(a, b)
    effect = detectable_effect(difference.standard_error, difference.degrees_of_freedom)
    assert effect == pytest.approx(paired_detectable_effect(np.std(a - b, ddof=1), 40))
    many = detectable_effect(0.01, 1e6)
    assert many == pytest.approx(0.01 * (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)), rel=1e-4)


def test_what_sees_nothing():
    assert paired_detectable_effect(1, 1) == math.inf
    assert paired_detectable_effect(0, 5) == 0
    one = paired_difference([1.0], [0.0])
    assert detectable_effect(one.standard_error, one.degrees_of_freedom) == math.inf
    assert mcnemar_detectable_difference(40, 0.05) == math.inf
    assert mcnemar_detectable_difference(5, 1) == math.inf  # 5 of 5 have p = 1/16
    assert mcnemar_detectable_difference(40, 0) == math.inf
    assert proportions_detectable_difference(0.99, 20, 20) == math.inf


def test_mcnemars_power_is_the_sum_over_all_outcomes():
    items, discordant, difference = 7, 0.7, 0.5
    up, down = (discordant + difference) / 2, (discordant - difference) / 2
    expected = 0.0
    for outcome in itertools.product((1, 0, -1), repeat=items):
        better, worse = outcome.count(1), outcome.count(-1)
        if better + worse and stats.binomtest(better, better + worse).pvalue <= 0.05:
            expected += up**better * down**worse * (1 - discordant) ** (items - better - worse)
    assert mcnemar_power(items, discordant, difference) == pytest.approx(expected)


def test_mcnemars_detectable_difference_has_that_power():
    found = mcnemar_detectable_difference(40, 0.3)
    assert found == pytest.approx(0.242, abs=1e-3)  # on AMC23, 10 of its 40 items
    assert mcnemar_power(40, 0.3, found) == pytest.approx(0.8)
    assert mcnemar_power(40, 0.3, 0) <= 0.05
    assert mcnemar_power(5000, 0.2, 0.02) == pytest.approx(
        stats.norm.cdf(0.02 * math.sqrt(5000 / 0.2) - 1.96), abs=0.03
    )


def test_two_shares_on_the_arcsine_scale():
    # statsmodels 0.15.0: NormalIndPower().solve_power(nobs1=40, alpha=0.05, power=0.8)
    effect = 0.6264527134
    found = proportions_detectable_difference(0.5, 40, 40)
    angle = 2 * math.asin(math.sqrt(0.5 + found)) - 2 * math.asin(math.sqrt(0.5))
    assert angle == pytest.approx(effect, abs=1e-6)
    assert proportions_detectable_difference(0.5, 40, 10**9) < found


@pytest.mark.parametrize(
    "call",
    [
        lambda: detectable_effect(1, 5, power=1),
        lambda: detectable_effect(1, 5, alpha=0.9),
        lambda: detectable_effect(-1, 5),
        lambda: detectable_effect(math.nan, 5),
        lambda: paired_detectable_effect(1, 1, power=2),
        lambda: mcnemar_power(40, 0.3, 0.4),
        lambda: mcnemar_power(0, 0.3, 0.1),
        lambda: proportions_detectable_difference(1.5, 4, 4),
    ],
)
def test_impossible_designs_are_refused(call):
    with pytest.raises(ValueError, match=r"needs|must be"):
        call()
