"""Running averages, seeds, ratios and differences, against hand-computed values."""

import json
import math

import pytest

from openrlhf_js.report import panels, runs
from openrlhf_js.report.panels import estimates, final_figures
from openrlhf_js.report.runs import find_conditions

REWARD = panels.SECTIONS["Learning"][0]
SHRINKAGE = panels.SECTIONS["Shrinkage"][0].tag


def test_seeds_are_averaged_on_the_steps_that_all_have(log):
    a, b = log("a", {runs.REWARD: {1: 1.0, 3: 2.0, 9: 3.0}}), log("b", {runs.REWARD: [3.0, 8, 4]})
    (both,) = find_conditions([f"js={a},{b}"])
    found = estimates(REWARD, runs.REWARD, both)
    # t of one degree of freedom is 12.706; the standard error is sqrt(2) / sqrt(2) = 1
    assert list(found) == [1, 3]
    assert found[1] == pytest.approx((2, 2 - 12.706, 2 + 12.706), abs=1e-3)
    (alone,) = find_conditions([str(a)])
    for window, expected in ((1, {1: 1, 3: 2, 9: 3}), (2, {3: 1.5, 9: 2.5}), (7, {9: 2})):
        found = estimates(REWARD, runs.REWARD, alone, window)
        assert {step: estimate.value for step, estimate in found.items()} == expected
        assert not any(math.isfinite(estimate.low) for estimate in found.values())


def test_the_error_of_a_baseline_is_a_ratio_of_averages_without_those_of_nothing(log):
    folder = log("js", {runs.BASELINE_MSE: [1.0, 2.0, 4.0, 1.0, 0.0],
                        runs.BASELINE_MSE_RLOO: [2.0, 8.0, 2.0, 0.0, 0.0]})  # fmt: skip
    (condition,) = find_conditions([str(folder)])
    curve, _ = (each for each in panels.SECTIONS["Shrinkage"] if each.divisor)
    for window, expected in ((1, {1: 0.5, 2: 0.25, 3: 2.0}), (2, {2: 0.3, 3: 0.6, 4: 2.5})):
        found = estimates(curve, runs.BASELINE_MSE, condition, window)
        assert {step: estimate.value for step, estimate in found.items()} == expected
    assert figures(str(folder)) == {"Error of the baseline over RLOO's, mean": [["js", "0.667"]]}
    equal = log("equal", {runs.BASELINE_MSE: [1.0], runs.BASELINE_MSE_RLOO: [0.0]})
    assert figures(str(equal)) == {}


def figures(*words):
    """The cells of each condition by figure."""
    found = {}
    for title, *cells in (row.values() for row in final_figures(find_conditions(words))):
        if title:
            found[title] = last = []
        last.append(cells)
    return found


def test_final_figures_are_of_the_last_tenth_or_of_all_steps(log):
    a = log("a", {runs.REWARD: range(1, 21), SHRINKAGE: [0.25, 0.75], "train/kl": [0.0, 0.0]})
    b = log("b", {"train/js/gradient_variance": [4.0, 8.0], "eval/eval_x_pass1": [0.5, 0.25]})
    nothing = ["-", "-"]
    assert figures(f"a={a}", f"b={b}") == {  # a KL that is not measured is logged as 0
        "Training reward, mean": [["a", "10.500", *nothing]],
        "Training reward, last tenth": [["a", "19.500", *nothing]],
        "Held-out pass@1, x, final": [["b", "25.0%", *nothing]],
        "Shrinkage λ, mean": [["a", "0.5", *nothing]],
        "Gradient variance, mean": [["b", "6", *nothing]],
    }


def test_figures_of_seeds_have_intervals_and_differences_from_the_first(log):
    def seeds(name, first, *values, tag=runs.REWARD, data="d"):
        folders = [log(f"{name}{seed}", {tag: [value]}) for seed, value in enumerate(values, first)]
        for seed, folder in enumerate(folders, first):
            flags = {"train.seed": seed, "data.prompt_dataset": data}
            record = {"flags": flags, "versions": {}, "outcome": "done"}
            (folder / runs.CONFIG).write_text(json.dumps(record))
        return f"{name}={','.join(map(str, folders))}"

    values = 0.5, 0.7, 1.2
    others = seeds("other", 1, *values), seeds("data", 0, *values, data="e")
    rows = figures(seeds("rloo", 0, 0.4, 0.5, 0.9), seeds("js", 0, *values), *others)
    *found, (_, _, on_other_data, _) = rows["Training reward, mean"]
    half = 4.3027 * 0.1 / math.sqrt(3)  # t of two degrees of freedom, error of 0.1, 0.2 and 0.3
    (_, _, *none), (_, value, paired, p), (_, same, unpaired, _) = found
    assert none == ["-", "-"] and value == same == "0.800 (-0.096 to 1.696)"
    assert paired == f"+0.200 ({0.2 - half:+.3f} to {0.2 + half:+.3f})"
    assert p == "0.22"  # three times 0.074
    assert unpaired == on_other_data
    assert unpaired.startswith("+0.200 (-") and unpaired.endswith("), unpaired")
    (step,) = figures(seeds("x", 0, 2.0, 3.0, tag="train/timing/step_total")).values()
    assert step == [["x", "2.5"]]


@pytest.mark.parametrize(
    ("steps", "smooth", "points"), [(50, None, 50), (200, None, 191), (50, 7, 44)]
)
def test_only_long_runs_are_averaged_unasked(log, steps, smooth, points):
    conditions = find_conditions([str(log("a", {runs.REWARD: range(1, steps + 1)}))])
    ((panel, rows),) = panels.draw(REWARD, conditions, smooth)
    assert len(rows) == points
    assert ("running average" in panel.note) == (points < steps)
    assert rows[0]["value"] == (steps - points + 2) / 2
