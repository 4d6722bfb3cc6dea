"""Running averages, seeds and ratios, against hand-computed values and slow loops."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.report import panels, runs
from openrlhf_js.report.panels import estimates, final_figures, over_seeds, ratio, running_mean
from openrlhf_js.report.runs import Series, find_conditions
from openrlhf_js.stats import ratio_of_means


def series(*values, first=1):
    return Series(list(range(first, first + len(values))), list(values))


@given(
    st.lists(st.floats(-100, 100), min_size=1, max_size=30), st.integers(min_value=1, max_value=40)
)
def test_the_running_mean_is_that_of_a_slow_loop(values, window):
    assert running_mean(series(1, 3, 5, 9), 2) == ([2, 3, 4], [2, 4, 7])
    got = running_mean(series(*values), window)
    window = min(window, len(values))
    expected = []
    for last in range(window - 1, len(values)):
        total = 0.0
        for k in range(window):
            total += values[last - k]
        expected.append(total / window)
    assert got.values == pytest.approx(expected, abs=1e-9)


def test_seeds_are_averaged_on_the_steps_that_all_have():
    found = over_seeds([series(1, 2, 3), series(3, 4)])
    # t of one degree of freedom is 12.706; the standard error is sqrt(2) / sqrt(2) = 1
    assert list(found) == [1, 2]
    assert found[1] == pytest.approx((2, 2 - 12.706, 2 + 12.706), abs=1e-3)
    assert found[2] == pytest.approx((3, 3 - 12.706, 3 + 12.706), abs=1e-3)
    (alone,) = over_seeds([series(1)]).values()
    assert alone.value == 1 and not math.isfinite(alone.low)


def test_ratios_have_intervals_over_blocks_of_steps_or_over_seeds():
    draw = np.random.default_rng(1)
    ours, theirs = draw.gamma(3.0, size=100), draw.gamma(4.0, size=100)
    assert ratio([series(*ours)], [series(*ours)]) == pytest.approx((1, 1, 1))
    got = ratio([series(*ours)], [series(*theirs)])
    assert got == pytest.approx(ratio_of_means(ours, theirs, [step // 5 for step in range(100)]))
    assert got.value == pytest.approx(ours.sum() / theirs.sum())
    got = ratio([series(1, 3), series(2, 4), series(3, 3)],
                [series(4, 4), series(4, 6), series(6, 6)])  # fmt: skip
    assert got == pytest.approx(ratio_of_means([2, 3, 3], [4, 5, 6]))
    assert got.value == pytest.approx(8 / 15)


def test_there_is_no_ratio_without_a_common_step_or_to_nothing():
    assert over_seeds([series(1, 2), series(3, first=7)]) == {}
    for theirs in (series(1, first=5), series(0, 0), series(-1, 2)):
        assert ratio([series(1, 2)], [theirs]) is None


def figures(*words):
    return {row.pop(""): list(row.values()) for row in final_figures(find_conditions(words))}


def test_final_figures_are_of_the_last_tenth_or_of_all_steps(log):
    a = log("a", {runs.REWARD: range(1, 21), runs.SHRINKAGE: [0.25, 0.75], "train/kl": [0.0, 0.0]})
    b = log("b", {"train/js/gradient_variance": [4.0, 8.0], "eval/eval_x_pass1": [0.5, 0.25]})
    found = figures(f"a={a}", f"b={b}")
    assert found == {  # a KL that is not measured is logged as 0
        "Training reward": ["19.500", "-"],
        "Held-out pass@1, x": ["-", "25.0%"],
        "Shrinkage λ": ["0.5", "-"],
        "Gradient variance": ["-", "6"],
    }


def test_figures_of_seeds_have_intervals_and_ratios_are_to_the_first(log):
    seeds = [log(f"s{i}", {runs.REWARD: [value], "train/js/gradient_variance": [1.0, 2.0]})
             for i, value in enumerate([0.4, 0.5, 0.6])]  # fmt: skip
    one = log("one", {"train/js/gradient_variance": [2.0, 4.0]})
    found = figures(f"one={one}", f"js={','.join(map(str, seeds))}")
    half = 4.3027 * 0.1 / math.sqrt(3)  # t of two degrees of freedom, standard error
    assert found["Training reward"] == ["-", f"0.500 ({0.5 - half:.3f} to {0.5 + half:.3f})"]
    assert found["Gradient variance over that of one"] == ["-", "0.500 (0.500 to 0.500)"]


def test_pass_at_1_of_one_quickstart_has_intervals_over_prompts(log, tmp_path):
    for seed in ("s0", "s1"):
        log(f"{seed}/tensorboard/js", {runs.HELD_OUT.format("held_out"): {1: 0.5, 2: 0.6}})
        before, after = ({"value": v, "low": v - 0.1, "high": v + 0.1} for v in (0.3, 0.7))
        summary = {"before": before, "results": {"js": {"steps": 2, "after": after}}}
        (tmp_path / seed / "summary.json").write_text(json.dumps(summary))
    (one,) = find_conditions([str(tmp_path / "s0")])
    found = estimates(panels.PASS_AT_1, runs.HELD_OUT.format("held_out"), one)
    assert list(found) == [0, 1, 2]
    assert found[0] == (0.3, 0.3 - 0.1, 0.3 + 0.1)
    assert not math.isfinite(found[1].low)
    assert figures(str(tmp_path / "s0"))["Held-out pass@1"] == ["70.0% (60.0% to 80.0%)"]
    (both,) = find_conditions([f"{tmp_path / 's0'},{tmp_path / 's1'}"])
    assert list(estimates(panels.PASS_AT_1, runs.HELD_OUT.format("held_out"), both)) == [
        1,
        2,
    ]  # over seeds instead
    (tmp_path / "s0" / "summary.json").write_text("{}")
    with pytest.raises(ValueError, match=r"summary\.json is damaged"):
        find_conditions([str(tmp_path / "s0")])


@pytest.mark.parametrize(
    ("steps", "smooth", "points"), [(50, None, 50), (200, None, 191), (50, 7, 44)]
)
def test_only_long_runs_are_averaged_unasked(log, steps, smooth, points):
    conditions = find_conditions([str(log("a", {runs.REWARD: range(1, steps + 1)}))])
    ((panel, rows),) = panels.draw(panels.SECTIONS["Learning"][0], conditions, smooth)
    assert len(rows) == points
    assert ("running average" in panel.note) == (points < steps)
    assert rows[0]["value"] == (steps - points + 2) / 2
