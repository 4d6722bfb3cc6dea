"""Pictures and tables of the lab, from results as its programs write them."""

import json

import numpy as np
import pytest
from charts import panels_of

from baseline_research.lab import mse, results
from baseline_research.lab import page as lab
from baseline_research.lab.batches import BatchPlan
from baseline_research.lab.pool import Samples
from baseline_research.lab.value import values_of
from paired_eval.sampling.prompts import Prompt


def samples(prompts=6, responses=20, groups=None, rewards=None):
    generator = np.random.default_rng(0)
    values = generator.random((prompts, 1))
    drawn = (generator.random((prompts, responses)) < values).astype(float)
    rewards = drawn if rewards is None else rewards
    n, m = rewards.shape
    tokens = [[np.zeros(2, dtype=np.int32)] * m] * n
    prompts = [Prompt("p", "l", group, [1]) for group in groups or [""] * n]
    return Samples(prompts, tokens, rewards, rewards > 0, rewards[:, 0], {})


def saved(folder, name, result):
    path = results.save(folder, name, result, {})
    return json.loads(path.read_text()), result.arrays


def test_errors_and_reductions_over_m(tmp_path):
    names = ("rloo", "js", "js_grad", "dr_grpo", "js_fixed")
    result = mse.mse(samples(20, 40), BatchPlan(30, 10, (2, 4)), names)
    summary, arrays = saved(tmp_path, "mse", result)
    errors, reductions = panels_of(lab.draw(summary, arrays))
    drawn = [line.value.tolist() for line in errors.lines.values()]
    for name, kind in summary["gradients"].items():
        values = [
            row["value"]
            for row in summary["rows"]
            if (row["estimator"], row["quantity"]) == (name, "mse")
        ]
        assert (pytest.approx(values, rel=1e-5) in drawn) == (kind != "oracle")
    assert {"dr_grpo (biased)", "js", "rloo"} < errors.lines.keys()
    assert {"js", "js_grad", "best constant"} < reductions.lines.keys()
    assert "rloo" not in reductions.lines
    assert errors.vertical["type"] == "log"
    assert errors.horizontal["axis"]["values"] == [2, 4]
    assert "30 batches of 10 prompts" in errors.note


def test_a_baseline_that_is_far_worse_is_named_and_not_drawn():
    kinds = {"rloo": "unbiased", "js": "unbiased", "remax": "unbiased"}
    rows = [
        row.flat()
        for m in (2, 4)
        for name, saves in (("rloo", 0.0), ("js", 10.0), ("remax", -900.0))
        for row in results.rows_of(
            {
                "distance": 10.0 - saves / 100,
                "reduction_percent": results.Estimate(saves, saves - 1, saves + 1),
            },
            m=m,
            estimator=name,
        )
    ]
    summary = {
        "lab": "gradient",
        "rows": rows,
        "gradients": kinds,
        "batches": 3,
        "batch_prompts": 4,
    }
    distance, reduction = panels_of(lab.draw({**summary, "title": "\x1b"}, {}))
    assert "remax" in distance.lines and "remax" not in reduction.lines
    assert "far higher: remax" in reduction.note


def test_values_ascend_and_stay_within_the_rewards(tmp_path):
    pool = samples(groups=["a/$1", "b"] * 3)
    (shown,) = panels_of(lab.draw(*saved(tmp_path, "value", values_of(pool))))
    for name, first in (("a/$1", 0), ("b", 1)):
        line = shown.lines[name]
        assert line.value.tolist() == pytest.approx(
            np.sort(pool.rewards[first::2].mean(1)).tolist(), rel=1e-5
        )
        assert line.low.min() >= 0 and line.high.max() <= 1


def interval(value, half_width):
    return results.Estimate(value, value - half_width, value + half_width)


def sweep_rows(prompts, m):
    """The rows of a sweep over lambda at one m, of a set of prompts."""
    rows = results.rows_of({"value": 0.4, "v": 0.07}, prompts=prompts, m=m, point="all rewards")
    for point, shrinkage in (("least distance", 0.5), ("bloo", 1.0), ("js", 0.4)):
        quantities = {
            "shrinkage": interval(shrinkage, 0.1),
            "reduction_percent": interval(10 * shrinkage, 2),
        }
        rows += results.rows_of(quantities, prompts=prompts, m=m, point=point)
    return rows


def test_curves_show_every_set_and_where_the_rules_are():
    settings = [(prompts, m) for prompts in ("easy", "h\x1brd", "mix") for m in (2, 4)]
    rows = []
    for prompts, m in settings:
        rows += sweep_rows(prompts, m)
    grid = np.linspace(0, 1, 5)
    reduction = np.tile(40 * grid * (1 - grid), (len(settings), 1))
    reduction[:, -1] = -500  # a bloo that is far worse does not flatten the curves
    arrays = {
        "shrinkage": grid,
        "reduction_percent": reduction,
        "reduction_low": reduction - 1,
        "reduction_high": reduction + 1,
    }
    panels = panels_of(
        lab.draw({"lab": "heterogeneity", "rows": [row.flat() for row in rows]}, arrays)
    )

    titles = [panel.title for panel in panels]
    assert titles[:2] == ["easy, m = 2", "easy, m = 4"]
    assert len(set(titles)) == len(settings)
    assert "\x1b" not in "".join(titles)
    first, second = panels[:2]
    assert {"the same λ for all", "least distance", "js"} < first.lines.keys()
    assert first.lines["the same λ for all"].value.tolist() == reduction[0].tolist()
    assert first.lines["js"][["x", "value"]].to_numpy().tolist() == [[0.4, 4]]
    assert first.note == "value 0.4, v 0.07, least at 0.50 (0.40 to 0.60)"
    assert first.vertical == second.vertical
    assert first.vertical["domain"][0] > -100


def test_what_is_not_known_is_left_out(tmp_path):
    pool = samples(rewards=np.ones((6, 20)))
    plan = BatchPlan(30, 3, (2, 4))
    for name, result in (("mse", mse.mse(pool, plan, ("rloo", "js"))), ("value", values_of(pool))):
        path = results.save(tmp_path, name, result, {})
        picture = lab.picture(path)
        assert picture == tmp_path / f"{name}.png" and picture.read_bytes().startswith(b"\x89PNG")


def test_a_table_has_a_line_for_each_setting_and_a_column_for_each_quantity():
    gain = results.Estimate(12.34, 11.11, 13.57)
    rows = results.rows_of({"gain": gain, "n": 3.0}, m=2, estimator="js")
    rows += results.rows_of({"gain": -1234.6, "x": np.nan}, m=2, estimator="dr_grpo")
    gradients = {"js": "unbiased", "dr_grpo": "biased"}
    found = lab.table({"rows": [row.flat() for row in rows], "gradients": gradients})
    assert found == [
        {"m": "2", "estimator": "js", "gradient": "unbiased", "gain": "12.3 (11.1 to 13.6)"}
        | {"n": "3", "x": "-"},
        {"m": "2", "estimator": "dr_grpo", "gradient": "biased", "gain": "-1,235", "n": "-"}
        | {"x": "-"},
    ]
