import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import pearsonr, spearmanr

from openrlhf_js.reward_model import length_control as lc


def preferences(count, margin_weight, length_weight, seed=0):
    """Margins and length differences of pairs whose labels follow both, independent clusters."""
    generator = np.random.default_rng(seed)
    reward, length = generator.normal(0, 2, count), generator.normal(0, 50, count)
    odds = margin_weight * reward + length_weight * length
    sign = np.where(generator.random(count) < expit(odds), 1.0, -1.0)
    return sign * reward, sign * length


def test_regression_finds_the_weights():
    margins, differences = preferences(40_000, 0.8, 0.01)
    found = lc.preference_regression(margins, differences, np.arange(40_000))
    assert found["margin"].value == pytest.approx(0.8, abs=4 * found["margin"].standard_error)
    assert found["length"].value == pytest.approx(0.01, abs=4 * found["length"].standard_error)
    assert 0 < found["length"].standard_error < 0.001


def test_regression_has_the_greatest_likelihood():
    margins, differences = preferences(300, 0.5, -0.02, seed=1)
    found = lc.preference_regression(margins, differences, np.arange(300))

    def loss(weights):
        return np.logaddexp(0, -(weights[0] * margins + weights[1] * differences)).sum()

    best = minimize(loss, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10})
    values = [found["margin"].value, found["length"].value]
    np.testing.assert_allclose(values, best.x, rtol=1e-4)


def test_errors_of_the_regression_are_those_of_repetition():
    found = [
        lc.preference_regression(*preferences(500, 0.8, 0.01, seed), np.arange(500))["length"]
        for seed in range(200)
    ]
    spread = np.std([each.value for each in found])
    assert np.mean([each.standard_error for each in found]) == pytest.approx(spread, rel=0.15)


def test_copies_of_a_pair_in_one_cluster_add_no_knowledge():
    margins, differences = preferences(400, 0.8, 0.01)
    once = lc.preference_regression(margins, differences, np.arange(400))
    thrice = lc.preference_regression(
        np.repeat(margins, 3), np.repeat(differences, 3), np.repeat(np.arange(400), 3)
    )
    assert thrice["length"] == pytest.approx(once["length"])


@pytest.mark.parametrize(
    ("margins", "differences"),
    [
        ([1.0, -1.0, 2.0], [0.0, 0.0, 0.0]),  # all lengths the same
        ([0.0, 0.0, 0.0], [1.0, -1.0, 2.0]),
        ([1.0, -1.0, 2.0, -0.5], [2.0, -2.0, 4.0, -1.0]),  # one follows from the other
        ([1.0, 2.0, 3.0], [5.0, -1.0, 1.0]),  # margins tell all pairs apart
        ([1.0], [1.0]),
    ],
)
def test_no_regression_where_none_is_determined(margins, differences):
    clusters = np.arange(len(margins))
    assert lc.preference_regression(np.array(margins), np.array(differences), clusters) is None


def test_matched_lengths_differ_by_a_tenth_of_their_mean():
    chosen, rejected = np.array([100.0, 100.0, 105.0, 0.0]), np.array([110.5, 112, 95, 0])
    assert lc.matched(chosen, rejected).tolist() == [True, False, True, True]


def test_without_length_nothing_proportional_to_it_is_left():
    differences = np.array([3.0, -1.0, 2.0])
    np.testing.assert_allclose(lc.without_length(0.7 * differences, differences), 0, atol=1e-12)
    margins = np.array([1.0, 2.0, -0.5])
    rest = lc.without_length(margins, differences)
    assert rest @ differences == pytest.approx(0)
    assert lc.without_length(margins, np.zeros(3)).tolist() == margins.tolist()


def test_correlations_are_those_of_scipy():
    a, b = np.random.default_rng(0).normal(size=(2, 50))
    b = np.round(b + a)  # with ties
    for kind, known in (("pearson", pearsonr), ("spearman", spearmanr)):
        found = lc.correlation(a, b, np.arange(50), kind)
        assert found.value == pytest.approx(known(a, b).statistic)
        assert -1 < found.low < found.value < found.high < 1


def test_what_does_not_vary_has_no_correlation():
    assert lc.correlation(np.full(4, 0.1), np.arange(4.0), np.arange(4), "pearson") is None
    assert lc.correlation(np.arange(4.0), np.full(4, 7.0), np.arange(4), "spearman") is None
    assert lc.correlation_within_pairs(np.zeros(3), np.ones(3)) is None


def test_correlation_within_pairs_knows_nothing_of_prompts():
    """Prompts with long responses have large rewards; within a pair the shorter one has more."""
    generator = np.random.default_rng(0)
    prompts = generator.normal(0, 10, 200)
    chosen_lengths, rejected_lengths = prompts + 30, prompts + 30 + generator.normal(size=200)
    chosen, rejected = 2 * prompts - chosen_lengths, 2 * prompts - rejected_lengths
    found = lc.summary_of_lengths(
        chosen_lengths, rejected_lengths, np.concatenate([chosen, rejected]), np.arange(200)
    )
    assert found["correlation"]["low"] > 0.9
    assert found["correlation_within_pairs"] == pytest.approx(-1)
