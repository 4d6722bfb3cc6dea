import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from openrlhf_js.lab import results
from openrlhf_js.lab.results import load, plain, save
from openrlhf_js.whole_file import whole_file

SUMMARY = {"finding": "js is nearer", "rows": [{"m": 2, "mse": 0.5}]}


class Pair(NamedTuple):
    low: float
    high: float


def test_what_was_saved_is_loaded(tmp_path):
    arrays = {"errors": np.arange(6.0).reshape(2, 3), "names": np.array(["js", "rloo"])}
    path = save(tmp_path / "new", "mse", {**SUMMARY, "more": 7}, arrays, {"seed": 3})
    assert path == tmp_path / "new" / "mse.json"
    assert sorted(each.name for each in path.parent.iterdir()) == ["mse.json", "mse.npz"]
    summary, found = load(path)
    assert summary["lab"] == "mse"
    assert summary["finding"] == "js is nearer"
    assert summary["rows"] == [{"m": 2, "mse": 0.5}]
    assert summary["more"] == 7
    assert summary["settings"] == {"seed": 3}
    assert summary["versions"].keys() >= {"python", "openrlhf_js", "numpy"}
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def test_no_value_of_ours_is_beyond_json():
    value = {
        2: np.float64("nan"),
        "ends": Pair(-np.inf, 1.5),
        "array": np.array([[1.0, np.nan], [2.0, 3.0]]),
        "count": np.int64(4),
        "right": np.bool_(True),
        "path": Path("a/b"),
        "nothing": None,
        "several": ("x", 1),
    }
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == {
        "2": None,
        "ends": {"low": None, "high": 1.5},
        "array": [[1.0, None], [2.0, 3.0]],
        "count": 4,
        "right": True,
        "path": "a/b",
        "nothing": None,
        "several": ["x", 1],
    }


def test_what_json_does_not_know_is_refused():
    with pytest.raises(TypeError, match="object cannot be written"):
        plain({"x": object()})


def test_the_file_is_strict_json(tmp_path):
    path = save(tmp_path, "mse", {**SUMMARY, "share": float("nan")}, {}, {"out": tmp_path})

    def refuse(constant):
        raise AssertionError(constant)

    read = json.loads(path.read_text(), parse_constant=refuse)
    assert read["share"] is None
    assert read["settings"]["out"] == str(tmp_path)


@pytest.mark.parametrize("missing", ["finding", "rows"])
def test_a_summary_without_its_essentials_is_refused(tmp_path, missing):
    summary = {key: value for key, value in SUMMARY.items() if key != missing}
    with pytest.raises(ValueError, match=f"lab mse has no {missing}"):
        save(tmp_path, "mse", summary, {}, {})
    assert list(tmp_path.iterdir()) == []


def test_arrays_of_objects_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        save(tmp_path, "mse", SUMMARY, {"bad": np.array([object()])}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_what_was_there(tmp_path):
    path = tmp_path / "kept.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), whole_file(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_of_the_disk_names_the_file(tmp_path):
    path = tmp_path / "full.txt"
    with pytest.raises(OSError, match="no space") as error, whole_file(path):
        raise OSError(28, "no space")
    assert error.value.filename == str(path)


def test_arrays_of_another_call_are_noticed(tmp_path):
    path = save(tmp_path, "mse", SUMMARY, {"x": np.zeros(3)}, {})
    np.savez(tmp_path / "mse.npz", x=np.ones(3))
    with pytest.raises(ValueError, match=r"mse\.npz is not the one .* run the command again"):
        load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[1]", "is no result of the lab"),
        ('{"lab": "mse", "rows": []}', "is no result of the lab"),
    ],
)
def test_other_files_are_refused(tmp_path, text, message):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load(path)


def test_a_package_that_is_not_loaded_has_no_version(monkeypatch):
    monkeypatch.setattr(results, "PACKAGES", ("numpy", "no_such_package"))
    assert results.versions().keys() == {"python", "openrlhf_js", "numpy"}
    assert results.versions()["numpy"] == np.__version__
