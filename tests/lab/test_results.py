import json
import math

import numpy as np
import pytest

from openrlhf_js.lab.results import LabResult, effects, quoted, reduction, rows_of, save
from openrlhf_js.stats import Estimate


def test_reductions_by_hand():
    found = reduction(np.array([1.0, 2, 3]), np.array([2.0, 4, 6]))
    assert found == pytest.approx((50, 50, 50))  # always half, however rows differ
    found = reduction(np.array([1.0, 3]), np.array([4.0, 4]))  # deviations -1, 1: se 1
    assert found.value == pytest.approx(50)
    assert found.value - found.low == pytest.approx(100 * 12.706 / 4, rel=1e-4)
    assert found.high == 100  # an error is not below 0


def test_a_reduction_with_a_row_below_0_by_hand():
    ours, theirs = np.array([1.0] * 9 + [3.0]), np.array([4.0] * 9 + [-1.0])
    found = reduction(ours, theirs)  # R = 12 / 35
    deviations = ours - 12 / 35 * theirs
    half = 2.262157 * deviations.std(ddof=1) / math.sqrt(10) / 3.5
    assert found == pytest.approx((100 * 23 / 35, 100 * (23 / 35 - half), 100 * (23 / 35 + half)))


def test_a_reference_that_may_be_0_bounds_nothing():
    found = reduction(np.array([1.0, 1.0]), np.array([-1.0, 5.0]))
    assert found == Estimate(50.0, -math.inf, 100.0)
    for theirs in (np.zeros(3), -np.ones(3), np.array([1.0, -1, 0])):
        assert np.isnan(reduction(np.ones(3), theirs)).all()


def test_a_result_is_saved_as_strict_json_beside_its_arrays(tmp_path):
    rows = rows_of({"share": math.nan}, m=2)
    result = LabResult(rows, "js is nearer", {"errors": np.arange(3.0)}, {"counts": [0, 1]})
    path = save(tmp_path / "new", "mse", result, {"out": tmp_path, "seed": 3})
    assert sorted(each.name for each in path.parent.iterdir()) == ["mse.json", "mse.npz"]

    def refuse(constant):
        raise AssertionError(constant)

    read = json.loads(path.read_text(), parse_constant=refuse)
    assert (read["lab"], read["finding"], read["counts"]) == ("mse", "js is nearer", [0, 1])
    assert read["settings"] == {"out": str(tmp_path), "seed": 3}
    assert read["rows"][0]["value"] is None
    assert read["versions"].keys() >= {"python", "openrlhf_js", "numpy"}
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        assert arrays["errors"].tolist() == [0, 1, 2]


def test_rows_are_tidy_and_quoted():
    gain = {"reduction_percent": Estimate(1, -math.inf, 2), "n": np.float64(3), "x": math.nan}
    rows = rows_of(gain, m=2, estimator="js")
    of = {"m": 2, "estimator": "js"}
    assert rows == [
        {**of, "quantity": "reduction_percent", "value": 1, "low": None, "high": 2},
        {**of, "quantity": "n", "value": 3, "low": None, "high": None},
        {**of, "quantity": "x", "value": None, "low": None, "high": None},
    ]
    rows += rows_of({"reduction_percent": Estimate(-5, -6, -4)}, m=4, estimator="js_plus")
    assert effects("the error", rows) == (
        "js lowers the error by 1.0 % (unknown to 2.0) at m = 2; js_plus raises it by 5.0 % "
        "(4.0 to 6.0) at m = 4"
    )
    assert quoted([{**rows[1], "prompts": "easy"}], "n", ".2f", estimator="js") == (
        "3.00 (unknown to unknown) on easy at m = 2"
    )


def reductions(m, **values):
    rows = []
    for name, value in values.items():
        end = Estimate(value, value - 1, value + 1)
        rows += rows_of({"reduction_percent": end}, m=m, estimator=name)
    return rows


def test_the_sentence_names_what_is_better_than_js():
    rows = reductions(2, rloo=0, bloo=89, dr_grpo=95, js_fixed=96, js=67, js_plus=88)
    rows += reductions(4, rloo=0, bloo=68, dr_grpo=95, js_fixed=96, js=67, js_plus=70)
    rows += reductions(8, rloo=0, bloo=-200, dr_grpo=95, js_fixed=96, js=-1, js_plus=2)
    js, js_plus, *better = effects("the error", rows).split("; ")
    assert js.endswith("at m = 4, raises it by 1.0 % (0.0 to 2.0) at m = 8")
    assert js_plus.startswith("js_plus lowers it by 88.0 %")
    assert better == [
        "bloo lowers it by 89.0 % (88.0 to 90.0) at m = 2, better than js and js_plus",
        "bloo lowers it by 68.0 % (67.0 to 69.0) at m = 4, better than js",
    ]
    assert effects("the error", reductions(2, rloo=0, bloo=5)) == (
        "bloo lowers the error by 5.0 % (4.0 to 6.0) at m = 2"
    )
