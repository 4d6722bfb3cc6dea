"""The calibration of predicted pass rates, against figures worked out by hand."""

import pytest

from openrlhf_js.report import pages, panels, selection
from openrlhf_js.report.runs import find_conditions


def logged(low_observed, high_observed):
    """Two steps; the second has no prompt in the highest bin."""
    return {
        "train/js/predicted_rate_0": {2: 0.1, 3: 0.1},
        "train/js/observed_rate_0": {2: low_observed, 3: 0.0},
        "train/js/rated_responses_0": {2: 30, 3: 10},
        "train/js/predicted_rate_4": {2: 0.9},
        "train/js/observed_rate_4": {2: high_observed},
        "train/js/rated_responses_4": {2: 8},
    }


def test_bins_are_averaged_over_responses_and_then_over_seeds(log):
    first = log("a", logged(low_observed=0.2, high_observed=1.0))
    second = log("b", logged(low_observed=0.4, high_observed=1.0))
    conditions = find_conditions([f"informative={first},{second}"])
    ((panel, rows),) = selection.calibration(conditions)
    assert "all steps, 96 responses" in panel.note
    low, high = rows
    assert (low["predicted"], low["responses"]) == (0.1, 80)
    gaps = [0.2 * 30 / 40 - 0.1, 0.4 * 30 / 40 - 0.1]
    assert low["value"] == pytest.approx(sum(gaps) / 2)
    assert low["low"] < gaps[0]
    assert low["high"] > gaps[1]
    assert (high["predicted"], high["responses"]) == (0.9, 16)
    assert high["value"] == pytest.approx(0.1)
    assert "Calibration of predicted" in pages.draw_runs(conditions).charts[panels.CHOSEN]


def test_a_run_without_chosen_prompts_has_no_panel(log):
    conditions = find_conditions([str(log("a", {"train/js/all_equal_groups": [0.5]}))])
    assert selection.calibration(conditions) == []
    assert panels.CHOSEN not in pages.draw_runs(conditions).charts
