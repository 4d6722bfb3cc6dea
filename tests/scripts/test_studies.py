"""The programs beside the studies: what they print and draw."""

import importlib
import json
import lzma
import sys
from pathlib import Path

import pandas as pd
import pytest

STUDIES = Path(__file__).parents[2] / "scripts/studies"


@pytest.fixture
def program(monkeypatch):
    """A program of scripts/studies as a module."""
    monkeypatch.syspath_prepend(str(STUDIES))
    loaded = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - loaded:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == STUDIES:
            del sys.modules[name]


def test_every_cell_is_a_square_of_the_heat_map(program):
    cells = pd.read_csv(STUDIES.parents[1] / "docs/data/training.csv").dropna(subset=["less_rloo"])
    chart = program("heat_map").heat_map(cells).to_dict(validate=False)
    panels = [chart["datasets"][panel["data"]["name"]] for panel in chart["vconcat"]]
    assert [len(values) for values in panels] == [len(cells) // 3] * 3
    (square,) = [
        value
        for value in panels[0]
        if (value["column"], value["estimator"]) == ("sort 16 x 2", "bloo")
    ]
    assert square["text"] == "+10*"
    orders = [list(dict.fromkeys(value["column"] for value in values)) for values in panels]
    assert orders[0] == orders[1] == orders[2]  # one row of labels serves all panels
    assert orders[0][:4] == ["sort 16 x 2", "countdown 16 x 2", "maze 16 x 2", "sort 16 x 4"]


def records(path, finals):
    """Writes runs of 16 x 2 on questions: estimator -> pass@1 by seed."""
    lines = ["{}"]
    for estimator, values in finals.items():
        for seed, pass1 in enumerate(values):
            run = {"task": "questions", "mix": "natural", "prompts": 16, "responses": 2, "vary": ""}
            run |= {"estimator": estimator, "learning_rate": 1e-5, "seed": seed, "pass1": pass1}
            run |= {"reward": pass1 - 0.1, "curve": [0.3, pass1], "steps": 30, "dead": 0.8}
            run |= {"baseline_error": 1.0, "gradient_variance": 1.0, "gradient_snr": 1.0}
            run |= {"spread": 0.3, "length": 3.0, "entropy": 0.4}
            lines.append(json.dumps(run))
    path.write_bytes(lzma.compress("\n".join(lines).encode()))


def test_the_pretrained_models_page_says_what_could_have_been_seen(
    program, tmp_path, monkeypatch, capsys
):
    pretrained = program("pretrained")
    monkeypatch.setattr(pretrained, "RECORDS", tmp_path / "records.jsonl.xz")
    monkeypatch.setattr(sys, "argv", ["pretrained.py"])
    finals = {"rloo": [0.40, 0.44, 0.42], "js_plus": [0.42, 0.44, 0.46]}  # +2, 0 and +4 points
    records(pretrained.RECORDS, finals)
    pretrained.main()
    printed = capsys.readouterr().out
    assert "6 runs" in printed
    assert "| pass@1, points | `js_plus` | +2.00 | -2.97 | +6.97 | 0.23 | " in printed
    # A deviation of 2 points: 6 pairs give 80 % power for 3 points, by tables of the paired t test.
    assert "standard deviation of a pair 2.0 points; 6 pairs find 3 points" in printed


def test_rivals_are_printed_and_drawn(program, tmp_path, monkeypatch, capsys):
    rivals = program("rivals")
    monkeypatch.setattr(rivals, "RECORDS", tmp_path / "records.jsonl.xz")
    monkeypatch.setattr(rivals, "DOCS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["rivals.py"])
    for folder in ("data", "images"):
        (tmp_path / folder).mkdir()
    records(rivals.RECORDS, {"rloo": [0.40, 0.44], "ebpo": [0.43, 0.45]})
    rivals.main()
    assert "| questions | natural | `ebpo` | +2.0 | -10.7 | 14.7 |" in capsys.readouterr().out
    assert (tmp_path / "images/rivals.png").stat().st_size > 1000
    assert pd.read_csv(tmp_path / "data/rivals.csv").less_rloo.tolist() == [2.0]


def test_chosen_prompts_are_compared_by_kind_of_question(program, tmp_path, monkeypatch, capsys):
    chosen = program("pretrained_chosen")
    monkeypatch.setattr(chosen, "RECORDS", tmp_path / "records.jsonl")
    lines = []
    for seed in range(5):
        for estimator, pass1 in ((chosen.UNIFORM, 0.4 + seed / 100), (chosen.CHOSEN, 0.38)):
            kinds = {"last letter": pass1 / 2} if seed > 2 else {}
            run = {"estimator": estimator, "seed": seed, "pass1": pass1, "reward": 0.5}
            run["effective_prompts"] = None
            lines.append(json.dumps({**run, "kinds": kinds}))
    chosen.RECORDS.write_text("\n".join(lines))
    chosen.main()
    printed = capsys.readouterr().out.splitlines()
    assert "| pass1 | -2.0 -3.0 -4.0 -5.0 -6.0 | 42.0 | 38.0 | -4.0 | -6.0 | -2.0 |" in printed
    assert "| last letter | -2.5 -3.0 | 21.8 | 19.0 | -2.8 | -5.9 | +0.4 |" in printed
