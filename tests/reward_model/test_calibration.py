import numpy as np
import pytest
from scipy.special import expit, logit

from openrlhf_js.reward_model import calibration


def margins_of(confidences, right):
    """Margins of these confidences, positive where right."""
    size = logit(np.array(confidences))
    return np.where(right, size, -size)


def drawn(count, spread=2.0, seed=0):
    """Margins whose signs are drawn with exactly the probability that they stand for."""
    generator = np.random.default_rng(seed)
    size = np.abs(generator.normal(0, spread, count))
    return np.where(generator.random(count) < expit(size), size, -size)


def test_a_tie_is_half_a_hit():
    assert calibration.hits(np.array([2.0, 0.0, -1e-300])).tolist() == [1.0, 0.5, 0.0]


def test_bins_hold_as_many_pairs_each_by_confidence():
    margins = margins_of([0.9] * 40 + [0.6] * 40, [True] * 30 + [False] * 10 + [True] * 40)
    low, high = calibration.reliability(margins, bins=2)
    assert low == (pytest.approx(0.6), 1.0, 40)
    assert high == (pytest.approx(0.9), 0.75, 40)
    # (0.4 + 0.15) / 2
    assert calibration.calibration_error([low, high]) == pytest.approx(0.275)


@pytest.mark.parametrize(("pairs", "bins"), [(1, 1), (39, 1), (40, 2), (299, 14), (5000, 15)])
def test_few_pairs_get_few_bins(pairs, bins):
    found = calibration.reliability(drawn(pairs))
    assert len(found) == bins
    assert sum(each.pairs for each in found) == pairs
    assert max(e.pairs for e in found) - min(e.pairs for e in found) <= 1


def test_a_bin_weighs_as_many_pairs_as_it_has():
    bins = [calibration.Bin(0.6, 0.5, 30), calibration.Bin(0.9, 0.9, 10)]
    assert calibration.calibration_error(bins) == pytest.approx(0.075)


def test_all_ties_are_exact():
    margins = np.zeros(100)
    assert calibration.calibration_error(calibration.reliability(margins)) == 0
    assert calibration.temperature(margins) is None
    assert calibration.log_loss(margins) == pytest.approx(np.log(2))


def test_error_by_chance_is_the_mean_error_of_exact_models():
    rounds = 300
    errors = [
        calibration.calibration_error(calibration.reliability(drawn(600, seed=seed)))
        for seed in range(rounds)
    ]
    expected = calibration.error_by_chance(drawn(600))
    assert np.mean(errors) == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("factor", [0.25, 1.0, 3.0])
def test_temperature_undoes_a_factor(factor):
    margins = drawn(40_000)
    found = calibration.temperature(margins * factor)
    assert found == pytest.approx(factor, rel=0.05)
    assert found == pytest.approx(factor * calibration.temperature(margins), rel=1e-6)


def test_temperature_has_the_least_log_loss():
    margins = drawn(500, seed=3) * 2
    best = calibration.temperature(margins)
    losses = [calibration.log_loss(margins / (best * by)) for by in (0.98, 1.0, 1.02)]
    assert min(losses) == losses[1]


def test_temperature_by_hand():
    """Three right and one wrong at margin 1: sigmoid(1 / T) = 3/4, so T = 1 / log 3."""
    found = calibration.temperature(np.array([1.0, 1.0, 1.0, -1.0]))
    assert found == pytest.approx(1 / np.log(3))


@pytest.mark.parametrize("margins", [[1.0, 2.0], [1.0, 0.0], [-1.0], [1.0, -1.0], [1.0, -3.0]])
def test_no_temperature_is_the_best(margins):
    assert calibration.temperature(np.array(margins)) is None


def test_huge_margins_stay_numbers():
    margins = np.array([1e30, 1e30, -1e30])
    assert np.isfinite(calibration.log_loss(margins))
    assert calibration.temperature(margins) == pytest.approx(1e30 / np.log(2))
    assert calibration.reliability(margins)[0].confidence == 1.0
