"""Running averages, seeds, ratios and differences, against hand-computed values."""

import json
import math

import pytest

from openrlhf_js.report import panels, runs
from openrlhf_js.report.panels import estimates, final_figures
from openrlhf_js.report.runs import find_conditions

REWARD = panels.SECTIONS["Learning"][0]
SHRINKAGE = panels.SECTIONS["Shrinkage"][0].tag


def values_of(curve, tag, condition, window):
    """The averages by step."""
    by_step = estimates(curve, tag, condition, window)
    return {step: estimate.value for step, estimate in by_step.items()}


def test_seeds_are_averaged_on_the_steps_that_all_have(log):
    first = log("a", {runs.REWARD: {1: 1.0, 3: 2.0, 9: 3.0}})
    second = log("b", {runs.REWARD: [3.0, 8, 4]})
    (condition,) = find_conditions([f"js={first},{second}"])
    by_step = estimates(REWARD, runs.REWARD, condition)
    # t of one degree of freedom is 12.706; the standard error is sqrt(2) / sqrt(2) = 1
    assert list(by_step) == [1, 3]
    assert by_step[1] == pytest.approx((2, 2 - 12.706, 2 + 12.706), abs=1e-3)


@pytest.mark.parametrize(
    ("window", "expected"),
    [(1, {1: 1, 3: 2, 9: 3}), (2, {3: 1.5, 9: 2.5}), (7, {9: 2})],
)
def test_a_running_average_of_one_seed_has_no_interval(log, window, expected):
    folder = log("a", {runs.REWARD: {1: 1.0, 3: 2.0, 9: 3.0}})
    (condition,) = find_conditions([str(folder)])
    by_step = estimates(REWARD, runs.REWARD, condition, window)
    assert {step: estimate.value for step, estimate in by_step.items()} == expected
    assert not any(math.isfinite(estimate.low) for estimate in by_step.values())


def test_the_error_of_a_baseline_is_a_ratio_of_averages_without_those_of_nothing(log):
    folder = log("js", {runs.BASELINE_MSE: [1.0, 2.0, 4.0, 1.0, 0.0],
                        runs.BASELINE_MSE_RLOO: [2.0, 8.0, 2.0, 0.0, 0.0]})  # fmt: skip
    (condition,) = find_conditions([str(folder)])
    (curve,) = (panel for panel in panels.SECTIONS["Shrinkage"] if panel.divisor)
    each_step = {1: 0.5, 2: 0.25, 3: 2.0}
    two_steps = {2: 0.3, 3: 0.6, 4: 2.5}
    assert values_of(curve, runs.BASELINE_MSE, condition, window=1) == each_step
    assert values_of(curve, runs.BASELINE_MSE, condition, window=2) == two_steps
    assert figures(str(folder)) == {"Error of the baseline over RLOO's, mean": ["0.667"]}
    equal = log("equal", {runs.BASELINE_MSE: [1.0], runs.BASELINE_MSE_RLOO: [0.0]})
    assert figures(str(equal)) == {}


def figures(*words):
    """The cells of each row, a cell for each condition."""
    conditions = find_conditions(words)
    rows = final_figures(conditions, panels.CURVES + panels.TIMINGS)
    return {title: cells for title, *cells in (row.values() for row in rows)}


def test_final_figures_are_of_the_last_tenth_or_of_all_steps(log):
    a = log("a", {runs.REWARD: range(1, 21), SHRINKAGE: [0.25, 0.75], "train/kl": [0.0, 0.0]})
    b = log("b", {"train/js/gradient_variance": [4.0, 8.0], "eval/eval_x_pass1": [0.5, 0.25]})
    assert figures(f"a={a}", f"b={b}") == {  # a KL that is not measured is logged as 0
        "Training reward, mean": ["10.500", "-"],
        "Training reward, last tenth": ["19.500", "-"],
        "Held-out mean reward, x, final": ["-", "0.250"],
        "Shrinkage λ, mean": ["0.5", "-"],
        "Gradient variance, mean": ["-", "6"],
    }


@pytest.fixture
def seeds(log):
    """Writes a run for each seed; the condition `name=folder,folder,...`."""

    def write(name, first_seed, values, tag=runs.REWARD, data="d"):
        folders = []
        for seed, value in enumerate(values, start=first_seed):
            folder = log(f"{name}{seed}", {tag: [value]})
            flags = {"train.seed": seed, "data.prompt_dataset": data}
            record = {"flags": flags, "versions": {}, "outcome": "done"}
            (folder / runs.CONFIG).write_text(json.dumps(record))
            folders.append(str(folder))
        return f"{name}={','.join(folders)}"

    return write


def test_figures_of_seeds_have_intervals_and_differences_from_the_first(seeds):
    values = [0.5, 0.7, 1.2]
    rows = figures(
        seeds("rloo", 0, [0.4, 0.5, 0.9]),
        seeds("js", 0, values),
        seeds("other seeds", 1, values),
        seeds("other data", 0, values, data="e"),
    )
    assert rows["Training reward, mean"][1:] == ["0.800 (-0.096 to 1.696)"] * 3
    reference, js, other_seeds, other_data = rows["less that of rloo"]
    assert reference == ""
    # t of two degrees of freedom, error of 0.1, 0.2 and 0.3; p is three times 0.074
    half_width = 4.3027 * 0.1 / math.sqrt(3)
    assert js == f"+0.200 ({0.2 - half_width:.3f} to {0.2 + half_width:.3f}), p 0.22"
    assert other_seeds.startswith("+0.200 (-")
    assert "), unpaired, p " in other_seeds
    assert other_data == other_seeds


def test_the_seconds_of_a_step_have_no_interval(seeds):
    (cells,) = figures(seeds("x", 0, [2.0, 3.0], tag="train/timing/step_total")).values()
    assert cells == ["2.5"]


@pytest.mark.parametrize(
    ("steps", "smooth", "points"), [(50, None, 50), (200, None, 191), (50, 7, 44)]
)
def test_only_long_runs_are_averaged_unasked(log, steps, smooth, points):
    conditions = find_conditions([str(log("a", {runs.REWARD: range(1, steps + 1)}))])
    ((panel, rows),) = panels.draw(REWARD, conditions, smooth)
    assert len(rows) == points
    assert ("running average" in panel.note) == (points < steps)
    assert rows[0]["value"] == (steps - points + 2) / 2
