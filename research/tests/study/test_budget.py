"""The same samples for every estimator: what is tried, what is chosen, and what is shown."""

import json
import lzma
import re
import sys
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path

import budgets
import conditions
import pytest
import rates
import yaml

from answer_graders.programs.settings import SettingsError
from baseline_research.study.analysis import analyse, share_to_reach
from baseline_research.study.budget import (
    all_runs,
    budget_cells,
    final_records,
    search,
    tried_splits,
)
from baseline_research.study.design import InlineStudy
from baseline_research.study.tables import choice_table
from baseline_research.tiny.chains import FAMILIES

ROOT = Path(__file__).parents[3]
TASK_IN_STEPS = re.compile(rf"\| (misled_)?({'|'.join(family.name for family in FAMILIES)})_\d+ \|")


def study(**changes):
    settings = {
        "estimators": ["rloo", "js_grad"],
        "budget": 16,
        "splits": [1, 2, 4, 8],
        "learning_rates": [1e-4],
        "choice_seeds": "100-101",
        "seeds": "2",
    }
    return InlineStudy(**(settings | changes))


def landscape(run):
    """js_grad is best with one response at 4e-4, rloo with four at 1e-4; a seed adds a bit."""
    best_responses, best_rate = (1, 4e-4) if run.estimator == "js_grad" else (4, 1e-4)
    distance = abs(run.learning_rate / best_rate - 1) + abs(run.responses / best_responses - 1)
    return 0.9 - distance / 100 + run.seed / 1e5


def trained(settings):
    """All records of a study, as its rounds come."""
    records = {}
    rounds = 0
    while new := [run for run in all_runs(settings, records) if run not in records]:
        rounds += 1
        for run in new:
            pass1 = landscape(run)
            curve = [pass1 * step / 10 for step in range(1, 11)]
            figures = {"pass1": pass1, "pass16": 0.95, "reward": pass1, "curve": curve}
            figures |= {"steps": 10, "dead": 0.5, "entropy": 0.1}
            records[run] = {**run._asdict(), **figures}
    return records, rounds


def test_an_estimator_walks_to_its_best_setting_and_trains_there():
    settings = study()
    records, rounds = trained(settings)
    (cell,) = budget_cells(settings)
    tried, best = search(cell, "js_grad", settings, records)
    assert best == (16, 1, 4e-4)
    assert {(each.responses, each.learning_rate) for each in tried} >= {(1, 8e-4), (2, 4e-4)}
    assert search(cell, "rloo", settings, records)[1] == (4, 4, 1e-4)
    assert all(run.responses > 1 for run in records if run.estimator == "rloo")
    final = [run for run in records if run.seed < 100]
    assert {(run.estimator, run.responses, run.learning_rate) for run in final} == {
        ("js_grad", 1, 4e-4),
        ("rloo", 4, 1e-4),
    }
    assert len(final) == 4 and rounds > 2


def test_a_grid_with_the_best_inside_needs_no_more():
    settings = study(estimators=["rloo"], splits=[2, 4, 8], learning_rates=[5e-5, 1e-4, 2e-4])
    records, rounds = trained(settings)
    assert len(records) == 2 * 9 + 2 and rounds == 2


def test_the_results_are_those_of_the_final_seeds():
    settings = study()
    records, _ = trained(settings)
    final = final_records(settings, records.values())
    findings = analyse(final, "rloo")
    assert findings.cells == ["sort, natural, 16 responses a step"]
    (row,) = [row for row in findings.differences if row.quantity == "pass1"]
    assert (row.split, row.learning_rate, row.seeds) == ("16 x 1", "0.0004", 2)
    assert row.value == pytest.approx(0.0)
    splits = {(row.estimator, row.split): row for row in tried_splits(settings, records)}
    assert splits["js_grad", "16 x 1"].learning_rate == 4e-4
    assert splits["js_grad", "16 x 1"].pass1 == pytest.approx(0.9 + 100.5 / 1e5)
    assert ("rloo", "16 x 1") not in splits
    rloo, js_grad = choice_table(tried_splits(settings, records))
    assert list(rloo) == list(js_grad) == ["estimator", "16 x 1", "8 x 2", "4 x 4", "2 x 8"]
    assert rloo["16 x 1"] == "" and js_grad["16 x 1"] == "90.1 at 0.0004"


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Writes a study's records as the kept ones of the script."""
    monkeypatch.setattr(budgets, "HERE", tmp_path)
    return partial(keep, tmp_path)


def keep(folder, settings, records):
    given = settings.model_dump(include=settings.model_fields_set)
    (folder / "own.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(given, default=str))))
    lines = ["{}", *map(json.dumps, records)]
    (folder / "own.jsonl.xz").write_bytes(lzma.compress("\n".join(lines).encode()))


def test_kept_studies_are_printed_and_drawn(kept, tmp_path, monkeypatch, capsys):
    settings = study()
    records, _ = trained(settings)
    monkeypatch.setattr(sys, "argv", ["budgets.py", str(tmp_path)])
    kept(settings, records.values())
    budgets.main()
    rows = capsys.readouterr().out.splitlines()
    end = "| 0, the same runs |  | 1.00 | 95.0 | 0.100 |"
    assert f"| sort | `js_grad` | 16 x 1 | 0.0004 | 90.0 {end}" in rows
    choice = "| 90.1 at 0.0004 | 89.1 at 0.0004 | 86.4 at 0.0001 | 82.4 at 0.0001 |"
    assert f"| sort | js_grad {choice}" in rows
    assert "| sort | `js_grad` | 16 x 1 | 0.0004 | 4 | 0 | 90.1 | 90.0 | 95.0 | 0.100 |" in rows
    assert (tmp_path / "results_own.png").stat().st_size > 10_000
    of_four = [{**record, "pass16": None, "pass4": 0.95} for record in records.values()]
    kept(settings, of_four)
    budgets.main()
    shown = capsys.readouterr().out
    assert f"| sort | `js_grad` | 16 x 1 | 0.0004 | 90.0 {end}" in shown
    assert shown.count("| pass@4 |") == 2
    unfinished = [record for run, record in records.items() if run.seed >= 100]
    kept(settings, unfinished)
    budgets.main()
    assert "| sort | `js_grad` | 16 x 1 | 0.0004 | 90.0" not in capsys.readouterr().out


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What these scripts print of the kept records."""
    images = tmp_path_factory.mktemp("images")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as shown:
        patch.setattr(sys, "argv", ["a script", str(images)])
        for script in (budgets, rates, conditions):
            script.main()
    assert (images / "results_rates.png").is_file()
    return shown.getvalue().splitlines()


def test_the_results_page_has_what_the_kept_records_say(printed):
    """Every row about tasks that are worked out in steps."""
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8").splitlines()
    claimed = [row for row in page if TASK_IN_STEPS.match(row)]
    assert len(claimed) > 20
    for row in claimed:
        assert row in printed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"splits": [3]}, "3 responses to each prompt do not divide --budget 16; choose from 1, 2"),
        ({"splits": [1], "estimators": ["rloo"]}, "--budget, --splits: rloo needs at least 2"),
        ({"seeds": "99-105"}, "--choice_seeds and --seeds must differ"),
        ({"splits": [8], "mixes": ["mixed"]}, "needs 3 prompts in a batch"),
        ({"splits": [16]}, "16 responses leave one prompt in a batch"),
        ({"choice_seeds": "0"}, "--choice_seeds 0: give a number above 0"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes, message):
    with pytest.raises(SettingsError, match=message):
        study(**changes)


def test_samples_to_the_end_of_another_curve():
    slow = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    fast = [min(1.2, 2 * value) for value in slow]
    assert share_to_reach(slow, end=slow) == 1
    assert share_to_reach(fast, end=slow) == 0.6  # (0.8 + 1.0) / 2 < 0.95 < (1.0 + 1.2) / 2
    assert share_to_reach([0.0] * 10, end=slow) is None
