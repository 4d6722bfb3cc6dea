import re

import numpy as np
import pytest
from scipy import stats

from openrlhf_js.lab import values as v
from openrlhf_js.lab.simulate import BATCH_ORACLE, NAMES, Simulated, best_coefficient, simulate
from openrlhf_js.lab.simulate_summary import arrays, reduction, summarise

ARCSINE = v.beta(0.5, 0.5)


@pytest.fixture(scope="module")
def found():
    return {m: simulate(ARCSINE, 64, m, 600, seed=0) for m in (2, 4, 8)}


@pytest.fixture(scope="module")
def summary(found):
    return summarise(ARCSINE, 64, found)


def row(summary, m, name):
    (only,) = [each for each in summary["rows"] if each["m"] == m and each["estimator"] == name]
    return only


def test_reduction_by_hand():
    found = reduction(np.array([1.0, 3.0]), np.array([4.0, 4.0]))
    assert found.value == pytest.approx(50)
    # The two ratios are 1/4 and 3/4: standard error 1/4.
    half = 25 * stats.t.ppf(0.975, 1)
    assert (found.low, found.high) == pytest.approx((50 - half, 50 + half))


def test_a_reference_without_error_is_refused():
    with pytest.raises(ValueError, match=r"RLOO had no error in any of 3 batches.*more rounds"):
        reduction(np.zeros(3), np.zeros(3))


@pytest.mark.parametrize(
    ("name", "expected"), [("js", (36.7, 21.7, 11.7)), ("js_plus", (47.4, 23.7, 11.9))]
)
def test_values_of_most_models_give_the_known_reductions(summary, name, expected):
    for m, percent in zip((2, 4, 8), expected, strict=True):
        each = row(summary, m, name)
        assert each["reduction_percent"] == pytest.approx(percent, abs=1.0)
        assert 0 < each["reduction_high"] - each["reduction_low"] < 2
        assert each["reduction_low"] < each["reduction_percent"] < each["reduction_high"]


def test_the_oracle_reaches_what_theory_says(summary):
    for m in (2, 4, 8):
        each = row(summary, m, "js_fixed")
        best = best_coefficient(ARCSINE, 64, m)
        assert each["shrinkage"] == pytest.approx(best)
        assert each["reduction_percent"] == pytest.approx(100 * best, abs=1.0)
        assert summary["best_coefficient"][m] == best


def test_rows_say_what_a_baseline_does_to_the_gradient(summary):
    kinds = {each["estimator"]: each["gradient"] for each in summary["rows"]}
    assert kinds["js_plus"] == kinds["rloo"] == kinds["bloo"] == "unbiased"
    assert kinds["js1"] == kinds["dr_grpo"] == kinds["reinforce++"] == "biased"
    assert kinds["js_fixed"] == kinds[BATCH_ORACLE] == "oracle"
    assert [each["estimator"] for each in summary["rows"]] == list(NAMES) * 3
    reference = row(summary, 2, "rloo")
    assert (reference["reduction_percent"], reference["reduction_low"]) == (0, 0)
    assert reference["mse"] == pytest.approx(0.125, rel=0.02)


def test_the_finding_says_both_reductions_with_their_intervals(summary):
    said = summary["finding"]
    assert said.startswith("Bernoulli, values Beta(0.5, 0.5), 64 prompts: js lowers")
    assert said.endswith("%.") and said.count("95 %") == 1
    assert len(re.findall(r"\d+\.\d % \(\d+\.\d to \d+\.\d\) at m = \d", said)) == 6
    each = row(summary, 8, "js_plus")
    low, high = each["reduction_low"], each["reduction_high"]
    assert f"{each['reduction_percent']:.1f} % ({low:.1f} to {high:.1f}) at m = 8" in said


def test_the_finding_tells_noise_and_harm_from_gain():
    reference = np.array([1.0, 2.0, 1.5, 1.0])
    errors = np.tile(reference, (len(NAMES), 1))
    errors[NAMES.index("js")] *= [0.8, 1.2, 1.0, 0.95]
    errors[NAMES.index("js_plus")] *= [1.31, 1.3, 1.29, 1.3]
    said = summarise(ARCSINE, 4, {2: Simulated(errors, np.zeros_like(errors))})["finding"]
    js, js_plus = said.split("; ")[:2]
    assert js.endswith(": no difference that these rounds show) at m = 2")
    assert ": raised)" in js_plus and "by -29.9 %" in js_plus


def test_arrays_hold_every_batch(found):
    raw = arrays(found)
    assert raw["squared_errors"].shape == raw["shrinkage"].shape == (3, len(NAMES), 600)
    assert raw["m"].tolist() == [2, 4, 8]
    assert tuple(raw["estimators"]) == NAMES
    np.testing.assert_array_equal(raw["squared_errors"][1], found[4].squared_errors)
