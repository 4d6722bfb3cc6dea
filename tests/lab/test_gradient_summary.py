"""Reductions, errors of baselines, the table and the sentence, by hand and by loops."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from openrlhf_js.lab.gradient import Measured
from openrlhf_js.lab.gradient_summary import reduction, squared_errors, summarise
from openrlhf_js.lab.precise_gradient import Reference
from openrlhf_js.lab.small_batches import Plan, batch_baseline, draw

sys.path.insert(0, str(Path(__file__).parent))
from gradient_pools import pool

PLAN = Plan(batches=4, prompts=5, responses=(2, 4))
SAMPLES = pool(prompts=8, responses=40)


def test_a_reduction_is_paired_by_batch():
    theirs = np.array([1.0, 2.0, 3.0, 10.0])
    found = reduction(0.8 * theirs, theirs)
    assert found == pytest.approx((20, 20, 20))  # always 20 %, however batches differ
    wide = reduction(np.array([0.5, 2.0, 3.0, 9.0]), theirs)
    assert wide.value == pytest.approx(100 * (1 - 14.5 / 16))
    assert wide.low < wide.value < wide.high


def test_a_reduction_without_a_denominator():
    with pytest.raises(ValueError, match=r"rewards are all equal.*sample more responses"):
        reduction(np.zeros(3), np.zeros(3))
    with pytest.raises(ValueError, match="no more precise than the batches"):
        reduction(np.ones(3), -np.ones(3))


@pytest.mark.parametrize("name", ["rloo", "js_plus"])
def test_the_squared_errors_of_the_baselines(name):
    design = draw(8, 40, PLAN)
    found = squared_errors(SAMPLES, design, PLAN, name)
    assert found.shape == (2, 4)
    for row, m in enumerate(PLAN.responses):
        for batch in range(4):
            b, total = batch_baseline(SAMPLES, design, batch, m, name), 0.0
            for i, prompt in enumerate(design.prompts[batch]):
                apart = SAMPLES.rewards[prompt, : 2 * design.half].tolist()
                value = sum(apart) / len(apart)
                error = sum((r - value) ** 2 for r in apart) / (len(apart) - 1) / len(apart)
                total += sum((b[i, j] - value) ** 2 - error for j in range(m)) / m
            assert found[row, batch] == pytest.approx(total / 5)


def test_the_squared_error_of_rloo_is_its_variance_on_average():
    """E (b - mu)^2 = sigma^2 / (m - 1), without the error of the value that it is compared to."""
    found, right = [], []
    for seed in range(60):
        samples = pool(prompts=8, responses=40, seed=seed)
        plan = Plan(batches=2, prompts=8, responses=(3,), seed=seed)
        found.append(squared_errors(samples, draw(8, 40, plan), plan, "rloo").mean())
        right.append(samples.rewards.var(1, ddof=1).mean() / 2)
    spread = np.std(np.subtract(found, right)) / np.sqrt(60)
    assert np.mean(found) == pytest.approx(np.mean(right), abs=4 * spread)
    assert spread < 0.05 * np.mean(right)


def made(distances: np.ndarray, names: tuple[str, ...], error: float = 0.5) -> Measured:
    """A measurement with these distances."""
    products = np.ones_like(distances)
    norms = distances + error + 2 * products - 3.0
    return Measured(names, PLAN.responses, norms, products, Reference(3.0, error, 2.0))


def test_the_table_and_the_sentence():
    rloo = np.array([[4.0, 6.0, 5.0, 5.0], [2.0, 2.0, 3.0, 1.0]])
    distances = np.stack([rloo, 0.9 * rloo, rloo + [[1], [0.0]] * np.array([1, -1, 1, -1])])
    found = summarise(SAMPLES, PLAN, made(distances, ("rloo", "js", "js_plus")))
    assert [(row["m"], row["estimator"]) for row in found["rows"]] == [
        (m, name) for m in (2, 4) for name in ("rloo", "js", "js_plus")
    ]
    first, js, js_plus = found["rows"][:3]
    assert (first["distance"], first["plain_distance"]) == pytest.approx((5.0, 5.5))
    assert first["reduction_percent"] == first["mse_reduction_percent"] == 0
    assert math.isnan(first["shrinkage"]) and 0 < js["shrinkage"] < 1
    assert js["reduction_percent"] == pytest.approx(10)
    assert js_plus["gradient"] == "unbiased"
    assert found["precise"] == {
        "responses": 2 * draw(8, 40, PLAN).half * 8,
        "squared_norm": 2.0,
        "squared_error": 0.5,
        "relative_error": 0.25,
    }
    assert found["batches"]["of_prompts"] == 8
    assert found["finding"].startswith(
        "js lowers the squared distance of rloo's gradient by 10.0 % (10.0 to 10.0) at m = 2 and "
        "10.0 % (10.0 to 10.0) at m = 4; js_plus lowers"
    )
    assert "no difference that these batches show) at m = 2" in found["finding"]
    assert found["finding"].endswith(
        "(4 batches of 5 of 8 prompts; in brackets 95 % intervals, for further batches of the same "
        "prompts)."
    )
    assert "projection" not in found


def test_the_sentence_says_that_responses_are_shared():
    """The pool is too small for batches without common responses: other ones are not covered."""
    few = pool(prompts=5, responses=9)
    assert not draw(5, 9, PLAN).disjoint
    finding = summarise(few, PLAN, made(np.ones((2, 2, 4)), ("rloo", "bloo")))["finding"]
    assert finding.endswith("for further batches of the same prompts and responses).")


def test_the_error_of_a_projection_is_reported():
    distances = np.ones((2, 2, 4))
    measured = made(distances, ("rloo", "dr_grpo"))._replace(projection_errors=(0.03, -0.04))
    found = summarise(SAMPLES, PLAN, measured)
    assert found["projection"]["root_mean_square"] == pytest.approx(0.025 * math.sqrt(2))
    assert found["finding"].startswith("dr_grpo lowers")
    assert {row["gradient"] for row in found["rows"]} == {"unbiased", "biased"}
