"""The programs beside the studies: what they print and draw."""

import json
import lzma
import sys
from pathlib import Path

import pandas as pd
import pytest

from openrlhf_js.estimators import ESTIMATORS

STUDIES = Path(__file__).parents[2] / "scripts/studies"


@pytest.mark.parametrize("records", STUDIES.glob("*.jsonl.xz"), ids=lambda path: path.name)
def test_the_kept_records_are_of_estimators_that_there_are(records, program):
    estimators = {run["estimator"] for run in program("grid").read(records)}
    assert estimators <= set(ESTIMATORS)


def lines_of(finals, task="questions", responses=2):
    """Lines of runs with 16 prompts: estimator -> pass@1 by seed."""
    lines = []
    for estimator, values in finals.items():
        for seed, pass1 in enumerate(values):
            run = {"task": task, "mix": "natural", "prompts": 16, "responses": responses}
            run |= {"vary": "", "estimator": estimator, "learning_rate": 1e-5, "seed": seed}
            run |= {"pass1": pass1, "reward": pass1 - 0.1, "curve": [0.3, pass1], "steps": 30}
            run |= {"dead": 0.8, "baseline_error": 1.0, "gradient_variance": 1.0}
            run |= {"gradient_snr": 1.0, "spread": 0.3, "length": 3.0, "entropy": 0.4}
            lines.append(json.dumps(run) + "\n")
    return lines


def records(path, finals):
    """Writes runs on questions as packed records."""
    path.write_bytes(lzma.compress("".join(["{}\n", *lines_of(finals)]).encode()))


def test_the_pretrained_models_page_says_what_could_have_been_seen(
    program, tmp_path, monkeypatch, capsys
):
    pretrained = program("pretrained")
    monkeypatch.setattr(sys, "argv", ["pretrained.py"])
    finals = {"rloo": [0.40, 0.44, 0.42], "js_grad": [0.42, 0.44, 0.46]}  # +2, 0 and +4 points
    kept = {(dtype, "cpu"): tmp_path / f"{dtype}.jsonl.xz" for dtype in ("bfloat16", "float32")}
    monkeypatch.setattr(pretrained, "RECORDS", kept)
    records(kept["bfloat16", "cpu"], finals)
    pretrained.main()
    printed = capsys.readouterr().out
    assert "6 runs" in printed
    assert "| pass@1, points | `js_grad` | +2.00 | -2.97 | +6.97 | 0.23 | " in printed
    # A deviation of 2 points: 6 pairs give 80 % power for 3 points, by tables of the paired t test.
    assert "standard deviation of a pair 2.0 points; 6 pairs find 3 points" in printed


def test_rivals_are_kept_printed_and_drawn(program, tmp_path, monkeypatch, capsys):
    """Two folders, of two and four responses, each with two tasks."""
    rivals = program("rivals")
    monkeypatch.setattr(rivals, "RECORDS", tmp_path / "records.jsonl.xz")
    monkeypatch.setattr(rivals, "DOCS", tmp_path)
    for name in ("data", "images", "two", "four"):
        (tmp_path / name).mkdir()
    finals = {"rloo": [0.40, 0.44], "js_grad": [0.43, 0.45], "bloo": [0.40, 0.44]}
    for name, responses in (("two", 2), ("four", 4)):
        sort = lines_of(finals, "sort", responses)
        maze = lines_of({**finals, "js_grad": [0.45, 0.47]}, "maze", responses)
        (tmp_path / name / "runs-inline.jsonl").write_text("".join(["{}\n", *sort, *maze]))
    folders = [str(tmp_path / name) for name in ("two", "four")]
    monkeypatch.setattr(sys, "argv", ["rivals.py", *folders])
    rivals.main()
    printed = capsys.readouterr().out
    assert "24 runs, 8 differences" in printed
    assert "| 16 x 2 | natural | +3.0 | +0.0 |" in printed  # the mean of 2 and 4 points
    assert "| 16 x 4 | natural | +3.0 | +0.0 |" in printed
    for picture in ("rivals.png", "rivals-dark.png"):
        assert (tmp_path / "images" / picture).stat().st_size > 1000
    cells = pd.read_csv(tmp_path / "data/rivals.csv")
    assert cells.query("estimator == 'js_grad'").less_rloo.tolist() == [2.0, 4.0, 2.0, 4.0]
    monkeypatch.setattr(sys, "argv", ["rivals.py"])
    rivals.main()  # of what was kept
    assert capsys.readouterr().out == printed
