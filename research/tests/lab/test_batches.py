"""Intervals over prompts, and parabolas over the shrinkage."""

import numpy as np
import pytest

from baseline_research.lab.batches import (
    BatchMeans,
    at,
    best,
    error_over_prompts,
    measured_names,
    parabolas,
)
from openrlhf_js.estimators import ESTIMATORS, find_estimator


@pytest.mark.parametrize(("n", "noise"), [(2, 0.3), (10, 0.3), (10, 2.0)])
def test_intervals_over_prompts_cover_as_often_as_they_say(n, noise):
    """Of a square of means, which is not linear in prompts, over pools of 20. With much noise and
    half of the prompts in a batch, the noise of batches that were drawn with replacement would be
    too much to subtract."""
    generator = np.random.default_rng(0)
    truth = 1 + 1 / n
    means = []
    errors = []
    for _ in range(300):
        prompts = generator.normal(1, 1, size=20)
        chosen = generator.random((400, 20)).argsort(1)[:, :n]
        values = prompts[chosen].mean(1) ** 2 + noise * generator.normal(size=400)
        means.append(values.mean())
        errors.append(error_over_prompts(values, chosen, 20))
    covered = np.abs(np.array(means) - truth) < 2.09 * np.array(errors)
    assert 0.85 <= covered.mean() <= 0.99
    assert 0.91 <= np.sqrt(np.mean(np.square(errors))) / np.std(means) <= 1.1


def test_ratios_and_reductions_by_hand():
    over = BatchMeans(np.array([[0, 1], [2, 3], [0, 2], [1, 3]]), prompts=4)
    reference = np.array([2.0, 4.0, 6.0, 4.0])
    assert over.reduction(reference / 2, reference) == pytest.approx((50, 50, 50))
    assert over.mean(reference).value == 4
    halves = over.some(np.array([True, True, False, False]))
    assert halves.mean(reference[:2]).value == 3
    assert np.isnan(over.ratio(reference, np.zeros(4))).all()


def test_the_minimum_is_that_of_the_mean_between_rloo_and_bloo(kit):
    curves = kit.parabolas([0.2, 0.6], [3.0, 1.0])
    assert parabolas(at(curves, 0), at(curves, 0.5), at(curves, 1)) == pytest.approx(curves)
    grid = np.linspace(0, 1, 1001)
    assert best(curves) == pytest.approx((0.2 * 3 + 0.6) / 4)
    means = [at(curves, x).mean() for x in grid]
    assert grid[np.argmin(means)] == pytest.approx(best(curves), abs=1e-3)
    assert best(kit.parabolas([1.5], [1.0])) == 1
    assert best(kit.parabolas([-2], [1.0])) == 0
    # A curve that does not bend falls to its end.
    assert best(np.array([[1.0, -0.1, 0.0]])) == 1
    assert best(np.array([[1.0, 0.1, 0.0]])) == 0


def test_what_cannot_be_measured_says_why():
    remembering = [name for name in ESTIMATORS if find_estimator(name).needs_keys]
    for name in remembering:
        with pytest.raises(ValueError, match=f"{name} needs an earlier visit"):
            measured_names([name])
    everything = measured_names([name for name in ESTIMATORS if name not in remembering])
    assert everything[0] == "rloo"
    assert set(everything) == set(ESTIMATORS) - set(remembering)
    for name, known in {
        "maxrl": "unit",
        "remax": "greedy",
        "opo": "lengths",
    }.items():
        with pytest.raises(ValueError, match=f"{name} needs "):
            measured_names([name], **{known: False})
