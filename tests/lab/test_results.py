import json
import math

import numpy as np
import pytest

from openrlhf_js.lab.results import (
    LabResult,
    change,
    effects,
    estimates,
    listed,
    reduction,
    rows_of,
    save,
)
from openrlhf_js.stats import Estimate


def test_reductions_by_hand():
    found = reduction(np.array([1.0, 2, 3]), np.array([2.0, 4, 6]))
    assert found == pytest.approx((50, 50, 50))  # always half, however rows differ
    found = reduction(np.array([1.0, 3]), np.array([4.0, 4]))  # deviations -1, 1: se 1
    assert found.value == pytest.approx(50)
    assert found.high - found.value == pytest.approx(100 * 12.706 / 4, rel=1e-4)


def test_a_reduction_with_a_row_below_0_by_hand():
    ours, theirs = np.array([1.0] * 9 + [3.0]), np.array([4.0] * 9 + [-1.0])
    found = reduction(ours, theirs)  # R = 12 / 35
    deviations = ours - 12 / 35 * theirs
    half = 2.262157 * deviations.std(ddof=1) / math.sqrt(10) / 3.5
    assert found == pytest.approx((100 * 23 / 35, 100 * (23 / 35 - half), 100 * (23 / 35 + half)))


def test_a_reference_that_may_be_0_bounds_nothing():
    found = reduction(np.array([1.0, 1.0]), np.array([-1.0, 5.0]))
    assert found == Estimate(50.0, -math.inf, math.inf)
    assert change("it", found) == "does not clearly change it (50.0 % lower, unknown to unknown)"
    for theirs in (np.zeros(3), -np.ones(3), np.array([1.0, -1, 0])):
        assert np.isnan(reduction(np.ones(3), theirs)).all()


@pytest.mark.parametrize(
    ("effect", "said"),
    [
        (Estimate(3.0, 1.0, 5.0), "lowers it by 3.0 % (1.0 to 5.0)"),
        (Estimate(-175.0, -200.0, -150.0), "raises it by 175.0 % (150.0 to 200.0)"),
        (Estimate(3.0, -1.0, 7.0), "does not clearly change it (3.0 % lower, -1.0 to 7.0)"),
        (Estimate(-3.0, -7.0, 1.0), "does not clearly change it (3.0 % higher, -1.0 to 7.0)"),
    ],
)
def test_a_change_in_every_direction(effect, said):
    assert change("it", effect) == said


def test_effects_are_grouped_by_direction_and_a_better_baseline_is_named():
    up, down, none = Estimate(5, 4, 6), Estimate(-5, -6, -4), Estimate(1, -1, 3)
    found = {
        "rloo": {"at m = 2": Estimate(0, 0, 0), "at m = 4": Estimate(0, 0, 0)},
        "bloo": {"at m = 2": Estimate(9, 8, 10), "at m = 4": down},
        "dr_grpo": {"at m = 2": Estimate(50, 49, 51), "at m = 4": up},  # biased: no rival
        "js": {"at m = 2": up, "at m = 4": down},
        "js_plus": {"at m = 2": Estimate(10, 9, 11), "at m = 4": none},
    }
    assert effects("the error", found) == (
        "js lowers the error by 5.0 % (4.0 to 6.0) at m = 2 and raises it by 5.0 % (4.0 to 6.0) at "
        "m = 4; js_plus lowers it by 10.0 % (9.0 to 11.0) at m = 2 and does not clearly change it "
        "(1.0 % lower, -1.0 to 3.0) at m = 4; better than js at m = 2: bloo lowers it by 9.0 % "
        "(8.0 to 10.0)"
    )
    assert effects("it", {"rloo": {}, "remax": {"at m = 2": up}}).startswith("remax lowers it")
    assert listed(["a"]) == "a" and listed(["a", "b", "c"]) == "a, b and c"


def test_rows_are_tidy_and_read_back():
    rows = rows_of(
        {"gain": Estimate(1, -math.inf, 2), "n": np.float64(3), "x": math.nan}, m=2, k="a"
    )
    assert rows == [
        {"m": 2, "k": "a", "quantity": "gain", "value": 1, "low": None, "high": 2},
        {"m": 2, "k": "a", "quantity": "n", "value": 3, "low": None, "high": None},
        {"m": 2, "k": "a", "quantity": "x", "value": None, "low": None, "high": None},
    ]
    found = estimates(rows, "gain", "k")["a"]["at m = 2"]
    assert found.value == 1 and math.isnan(found.low)
    of_set = [{**rows[0], "prompts": "easy"}]
    assert list(estimates(of_set, "gain", "k")["a"]) == ["on easy at m = 2"]


def test_a_result_is_saved_as_strict_json_beside_its_arrays(tmp_path):
    rows = rows_of({"share": math.nan}, m=2)
    result = LabResult(rows, "js is nearer", {"errors": np.arange(3.0)}, {"counts": np.arange(2)})
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
