"""Regret: the distance to a winner that other seeds have picked."""

import numpy as np
import pytest

from openrlhf_js.study.regret import regrets
from tests.study.test_analysis import record


def records_of(finals, task="sort"):
    """Records from {estimator: {rate: [a result for each seed]}}."""
    return [
        record(estimator, seed, value, rate, task=task)
        for estimator, by_rate in finals.items()
        for rate, values in by_rate.items()
        for seed, value in enumerate(values)
    ]


def test_a_winner_is_picked_by_other_seeds():
    """Two seeds: each picks the estimator that was lucky on it, which the other one shows."""
    runs = records_of({"rloo": {1e-4: [0.9, 0.1]}, "js": {1e-4: [0.2, 0.6]}})
    regret = {row.estimator: row.mean for row in regrets(runs)}
    # Seed 0 picks rloo, which has 0.1 on seed 1; seed 1 picks js, which has 0.2 on seed 0.
    assert regret["rloo"] == pytest.approx(100 * ((0.1 - 0.1) + (0.2 - 0.9)) / 2)
    assert regret["js"] == pytest.approx(100 * ((0.1 - 0.6) + (0.2 - 0.2)) / 2)


def test_a_rate_is_picked_by_other_seeds():
    finals = {"rloo": {1e-4: [0.5, 0.5]}, "js": {1e-4: [0.4, 0.8], 2e-4: [0.8, 0.4]}}
    js, rloo = sorted(regrets(records_of(finals)), key=lambda row: row.estimator)
    # Each seed picks js at the rate that is bad on the other one.
    assert js.mean == pytest.approx(0)
    assert rloo.mean == pytest.approx(100 * (0.4 - 0.5))


def test_equal_estimators_have_no_regret_on_average():
    """The distance to the highest mean would be above 2 points, though all are equal."""
    rng = np.random.default_rng(0)
    runs = []
    for cell in range(200):
        finals = {
            name: {rate: rng.normal(0.5, 0.1, 10) for rate in (1e-4, 2e-4)}
            for name in ("rloo", "bloo", "js")
        }
        runs += records_of(finals, task=f"task {cell}")
    assert [abs(row.mean) < 0.5 for row in regrets(runs)] == [True] * 3


def test_the_worst_cell_is_named_and_halves_may_be_unequal():
    runs = records_of({"rloo": {1e-4: [0.5] * 3}, "js": {1e-4: [0.7] * 3}})
    runs += records_of({"rloo": {1e-4: [0.2] * 3}, "js": {1e-4: [0.5] * 3}}, task="maze")
    _, rloo = regrets(runs)
    assert rloo.mean == pytest.approx(25)
    assert (rloo.worst_cell.task, rloo.worst) == ("maze", pytest.approx(30))


def test_many_seeds_are_halved_at_random(monkeypatch):
    monkeypatch.setattr("openrlhf_js.study.regret.MOST_HALVES", 10)
    js, rloo = regrets(records_of({"rloo": {1e-4: [0.5] * 8}, "js": {1e-4: [0.7] * 8}}))
    assert (js.mean, rloo.mean) == (0, pytest.approx(20))


def test_cells_without_an_estimator_and_seeds_without_a_run_are_left_out():
    runs = records_of({"rloo": {1e-4: [0.5, 0.5, 0.0]}, "js": {1e-4: [0.7, 0.7]}})
    runs += records_of({"rloo": {1e-4: [0.9, 0.9]}}, task="maze")
    js, rloo = regrets(runs)
    assert [cell.task for cell in rloo.points] == ["sort"]
    assert rloo.mean == pytest.approx(20)  # without the third seed, which is rloo's alone
    assert js.mean == pytest.approx(0)
    assert regrets(records_of({"rloo": {1e-4: [0.5]}, "js": {1e-4: [0.7]}})) == []
