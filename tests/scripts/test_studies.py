"""The kept records of studies, and the table that is printed of them."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from openrlhf_js.estimators import ESTIMATORS

STUDIES = Path(__file__).parents[2] / "scripts/studies"


@pytest.fixture(scope="module")
def results():
    return runpy.run_path(str(STUDIES / "results.py"))


@pytest.mark.parametrize("records", STUDIES.glob("*.jsonl.xz"), ids=lambda path: path.name)
def test_the_kept_records_are_of_estimators_that_there_are(records, results):
    runs = results["read"](records)
    assert {run["estimator"] for run in runs} <= set(ESTIMATORS)


def run_of(estimator, task, seed, pass1):
    return {
        "task": task,
        "mix": "natural",
        "prompts": 16,
        "responses": 2,
        "estimator": estimator,
        "learning_rate": 1e-5,
        "seed": seed,
        "pass1": pass1,
        "reward": pass1 - 0.1,
        "curve": [0.3, pass1],
        "steps": 30,
    }


def test_a_studys_averages_are_a_table(results, tmp_path, monkeypatch, capsys):
    finals = {  # by estimator and task, of two seeds
        ("rloo", "sort"): (0.40, 0.44),
        ("rloo", "maze"): (0.40, 0.44),
        ("js", "sort"): (0.42, 0.46),
        ("js", "maze"): (0.44, 0.48),
        ("bloo", "sort"): (0.40, 0.44),
        ("bloo", "maze"): (0.42, 0.40),
    }
    lines = ["{}"]
    for (estimator, task), values in finals.items():
        for seed, pass1 in enumerate(values):
            lines.append(json.dumps(run_of(estimator, task, seed, pass1)))
    (tmp_path / "runs-inline.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr(sys, "argv", ["results.py", str(tmp_path)])
    results["main"]()
    *_, head, _, row = capsys.readouterr().out.splitlines()
    assert head == "| responses | mix | js | bloo | js low | js high |"
    assert row == "| 2 | natural | **+3.0** | -0.5 | +2.0 | +4.0 |"
