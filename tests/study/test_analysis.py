"""What a study computes from its records, against figures worked out by hand."""

import math
from statistics import fmean, stdev

import pytest

from openrlhf_js.study import analysis
from openrlhf_js.study.analysis import analyse, regret, steps_to


def record(estimator, seed, pass1, rate=1e-4, task="sort", curve=(0.0, 0.5, 1.0), **more):
    cell = {"task": task, "mix": "natural", "prompts": 16, "responses": 2, "vary": ""}
    names = ("baseline_error", "gradient_variance", "gradient_snr", "dead", "spread")
    figures = {"reward": pass1 / 2, "steps": 30, **dict.fromkeys(names, 1.0)}
    run = {"estimator": estimator, "learning_rate": rate, "seed": seed, "curve": list(curve)}
    return {**cell, **figures, **run, "pass1": pass1, **more}


def of(rows, estimator, quantity, **settings):
    wanted = {"estimator": estimator, "quantity": quantity, **settings}
    (found,) = [row for row in rows if all(row[k] == v for k, v in wanted.items())]
    return found


RLOO = {1e-4: [0.30, 0.40, 0.50], 2e-4: [0.10, 0.20, 0.60]}
JS = {1e-4: [0.35, 0.40, 0.54], 2e-4: [0.45, 0.50, 0.70]}


@pytest.fixture
def found():
    records = [
        record(name, seed, value, rate)
        for name, rates in (("rloo", RLOO), ("js", JS))
        for rate, values in rates.items()
        for seed, value in enumerate(values)
    ]
    return analyse(reversed(records), "rloo")


def test_each_estimator_is_compared_at_its_own_best_rate_and_at_each(found):
    assert {name: rate for (_, name), rate in found.best.items()} == {"rloo": 1e-4, "js": 2e-4}
    row = of(found.differences, "js", "pass1")
    gains = [0.45 - 0.30, 0.50 - 0.40, 0.70 - 0.50]
    assert row["value"] == pytest.approx(fmean(gains))
    half = 4.302653 * stdev(gains) / math.sqrt(3)  # t with 2 degrees of freedom
    assert (row["low"], row["high"]) == pytest.approx((fmean(gains) - half, fmean(gains) + half))
    assert row["seeds"] == 3 and row["p_holm"] == row["p"]
    same = of(found.at_each_rate, "js", "pass1", learning_rate=1e-4)
    assert same["value"] == pytest.approx(fmean([0.05, 0.0, 0.04]))
    tolerance = of(found.differences, "js", "any_rate")
    assert tolerance["value"] == pytest.approx(
        fmean([fmean([0.35, 0.45]) - 0.2, 0.45 - 0.3, 0.62 - 0.55])
    )


def test_p_values_are_corrected_over_all_cells():
    values = {"bloo": [0.52, 0.61, 0.72], "js": [0.51, 0.62, 0.71], "rloo": [0.4, 0.5, 0.6]}
    records = [
        record(name, seed, value + (0.05 if task == "maze" and name == "js" else 0), task=task)
        for task in ("sort", "maze")
        for name, each in values.items()
        for seed, value in enumerate(each)
    ]
    rows = [row for row in analyse(records, "rloo").differences if row["quantity"] == "pass1"]
    ranked = sorted(row["p"] for row in rows)
    least = min(rows, key=lambda row: row["p"])
    assert len(rows) == 4 and least["p_holm"] == pytest.approx(min(1, 4 * ranked[0]))


def test_steps_to_a_target():
    rising = [0.0, 0.3, 0.6, 0.9]  # averaged over neighbours: 0.15, 0.3, 0.6, 0.75
    assert steps_to(0.45, rising) == pytest.approx((1 + 0.5 + 0.5) / 4)
    assert steps_to(0.1, rising) == pytest.approx(0.5 / 4)  # from the start
    assert steps_to(0.8, rising) == 1.0  # never
    assert analysis.target([record("rloo", 0, 1.0, curve=[0.2, 0.9, 0.7])]) == pytest.approx(0.6)
    assert analysis.target([record("rloo", 0, 1.0, curve=[0.5, 0.9, 0.4])]) is None


def test_regret_is_the_distance_to_the_best_of_the_cell():
    records = [
        record(name, seed, value, task=task)
        for task, finals in {
            "sort": {"rloo": 0.5, "bloo": 0.7, "js": 0.6},
            "maze": {"rloo": 0.5, "bloo": 0.1, "js": 0.5},
        }.items()
        for name, value in finals.items()
        for seed in range(2)
    ]
    rows = {row["estimator"]: row for row in analyse(records, "rloo").regret}
    assert [*rows] == ["js", "rloo", "bloo"]  # by mean
    assert rows["js"]["mean"] == pytest.approx(0.05) and rows["js"]["worst"] == pytest.approx(0.1)
    assert rows["bloo"]["worst"] == pytest.approx(0.4)
    assert rows["bloo"]["worst_cell"].startswith("maze")
    assert regret([]) == []
