import json
import math

import numpy as np
import pytest

from baseline_research.lab.results import LabResult, reduction, rows_of, save


def test_reductions_by_hand():
    halved = reduction(np.array([1.0, 2, 3]), np.array([2.0, 4, 6]))
    assert halved == pytest.approx((50, 50, 50))  # always half, however rows differ
    differing = reduction(np.array([1.0, 3]), np.array([4.0, 4]))  # deviations -1, 1: se 1
    assert differing.value == pytest.approx(50)
    assert differing.value - differing.low == pytest.approx(100 * 12.706 / 4, rel=1e-4)


def test_a_result_is_saved_as_strict_json_beside_its_arrays(tmp_path):
    rows = rows_of({"share": math.nan}, m=2)
    result = LabResult(rows, "3 batches", {"errors": np.arange(3.0)}, {"counts": [0, 1]})
    path = save(tmp_path, "mse", result, {"out": tmp_path, "seed": 3})
    assert sorted(file.name for file in path.parent.iterdir()) == ["mse.json", "mse.npz"]

    def refuse(constant):
        raise AssertionError(constant)

    read = json.loads(path.read_text(), parse_constant=refuse)
    assert read["lab"] == "mse"
    assert read["caption"] == "3 batches"
    assert read["counts"] == [0, 1]
    assert read["settings"] == {"out": str(tmp_path), "seed": 3}
    assert read["rows"][0]["value"] is None
    assert read["versions"].keys() >= {"python", "openrlhf_js", "numpy"}
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        assert arrays["errors"].tolist() == [0, 1, 2]
