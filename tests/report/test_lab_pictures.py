"""The lab's results are found, drawn, and shown in a report."""

from __future__ import annotations

import hashlib
import json
import sys
import types

import numpy as np
import pytest

from openrlhf_js.report import lab, page, style
from openrlhf_js.report.runs import find_conditions


@pytest.fixture
def result(tmp_path, monkeypatch):
    """A result of a command whose picture is drawn by a module of the test's own."""

    def draw(summary, arrays):
        figure = style.figure()
        figure.axes[0].plot(arrays["x"], label=summary["finding"])
        return figure

    module = types.ModuleType("drawn_by_a_test")
    module.draw = draw
    monkeypatch.setitem(sys.modules, "drawn_by_a_test", module)
    monkeypatch.setitem(lab.FIGURES, "mse", "drawn_by_a_test:draw")
    path = tmp_path / "lab" / "early" / "mse.json"
    path.parent.mkdir(parents=True)
    rows = [{"m": 2, "MSE": 0.123456}, {"m": 4, "note": "<b>"}]
    np.savez(path.with_suffix(".npz"), x=np.arange(3.0))
    digest = hashlib.sha256(path.with_suffix(".npz").read_bytes()).hexdigest()
    said = {"lab": "mse", "finding": "js wins & <b>", "rows": rows, "arrays_sha256": digest}
    path.write_text(json.dumps(said))
    return path


def test_results_are_found_among_other_files(result, tmp_path):
    for name, text in (
        ("value", '{"lab": "something else"}'),
        ("gradient", "[1]"),
        ("sweep", '{"lab": "ms'),
        ("simulate", '{"lab": ["mse"]}'),
        ("data", '{"lab": "mse"}'),  # by no command's name: not even read, it may be huge
    ):
        (tmp_path / "lab" / f"{name}.json").write_text(text)
    assert lab.lab_results(tmp_path) == [result]
    with pytest.raises(ValueError, match=r"no folder .*nowhere"):
        lab.lab_results(tmp_path / "nowhere")


def test_a_result_becomes_a_picture(result, tmp_path):
    out = lab.picture(result, tmp_path / "mse.png")
    assert out.read_bytes().startswith(b"\x89PNG")


def test_what_is_no_result_is_refused(result, tmp_path):
    result.with_suffix(".npz").unlink()
    with pytest.raises(ValueError, match=r"has no mse\.npz beside it; copy both"):
        lab.picture(result, tmp_path / "mse.png")
    result.write_text("{}")
    with pytest.raises(ValueError, match="is not a result of openrlhf-js lab"):
        lab.picture(result, tmp_path / "mse.png")


def test_numbers_of_another_call_and_damage_are_refused(result, tmp_path):
    np.savez(result.with_suffix(".npz"), x=np.arange(4.0))
    with pytest.raises(ValueError, match=r"mse\.npz is not the one that mse\.json was written"):
        lab.picture(result, tmp_path / "mse.png")
    np.savez(result.with_suffix(".npz"), y=np.arange(4.0))
    digest = hashlib.sha256(result.with_suffix(".npz").read_bytes()).hexdigest()
    result.write_text(json.dumps({"lab": "mse", "rows": [], "arrays_sha256": digest}))
    with pytest.raises(ValueError, match=r"damaged or of another version \(KeyError.*run the lab"):
        lab.picture(result, tmp_path / "mse.png")


def test_rows_of_different_columns_make_one_table(result):
    columns, rows = lab.table(lab.read(result))
    assert columns == ("m", "MSE", "note")
    assert rows == [("2", "0.1235", "-"), ("4", "-", "<b>")]


def test_a_report_shows_the_lab(result, log, tmp_path):
    conditions = find_conditions([str(log("js", {"train/rollout/reward_mean": [0.5]}))])
    found = page.write(conditions, [result], tmp_path / "out")
    text = found.page.read_text(encoding="utf-8")
    assert "js wins &amp; &lt;b&gt;" in text
    assert "<td>0.1235</td>" in text
    assert {path.name for path in found.pictures} == {
        "training_reward.png",
        "early_mse.png",
    }


def test_a_report_may_be_of_the_lab_alone(result, tmp_path):
    found = page.write([], [result], tmp_path / "out")
    text = found.page.read_text(encoding="utf-8")
    assert "js wins" in text
    assert "Final figures" not in text
    assert found.left_out == []


@pytest.mark.parametrize("command", lab.FIGURES)
def test_every_command_has_a_module_to_draw_it(command):
    module, function = lab.FIGURES[command].split(":")
    assert module == f"openrlhf_js.report.lab_{command}"
    assert function == "draw"
