"""Curves over the shrinkage against gradients that are computed at every point of them."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.estimators import baseline
from openrlhf_js.lab.gradient import measure
from openrlhf_js.lab.policy_gradient import ScoreSum
from openrlhf_js.lab.small_batches import Plan, batch_rewards, draw
from openrlhf_js.lab.sweep import (
    ESTIMATED,
    GRID,
    POINTS,
    SWEPT,
    at,
    best,
    curve,
    minimiser,
    parabolas,
    summarise,
    unseen,
)

sys.path.insert(0, str(Path(__file__).parent))
from gradient_pools import pool, score_gradients, small_model

finite = st.floats(-5, 5)


@given(finite, finite, finite, st.floats(0, 1))
def test_three_points_give_the_parabola(a, b, c, shrinkage):
    values = [a + b * x + c * x**2 for x in (0, 0.5, 1)]
    found = parabolas(*map(np.array, values))
    assert found == pytest.approx([a, b, c], abs=1e-9)
    right = a + b * shrinkage + c * shrinkage**2
    assert float(at(found, shrinkage)) == pytest.approx(right, abs=1e-9)


def test_the_curve_is_that_of_the_gradients_themselves(tmp_path):
    samples, plan = pool(), Plan(batches=3, prompts=4, responses=(3,), seed=2)
    found = measure(ScoreSum(small_model()), samples, plan, POINTS, tmp_path)
    curves = parabolas(*found.plain[:, 0])
    own, design = score_gradients(small_model(), samples), draw(6, 30, plan)
    halves = []
    for columns in (slice(0, design.half), slice(design.half, 2 * design.half)):
        rewards = samples.rewards[:, columns]
        weights = (rewards - baseline("rloo", torch.from_numpy(rewards)).numpy()) / rewards.size
        halves.append(np.einsum("ij,ijp->p", weights, own[:, columns]))
    G = (halves[0] + halves[1]) / 2
    for batch, shrinkage in itertools.product(range(3), (0.0, 0.2, 0.7, 1.0)):
        rewards = batch_rewards(samples, design, batch, 3)
        b = baseline("js_fixed", torch.from_numpy(rewards), shrinkage=shrinkage).numpy()
        scores = own[design.prompts[batch][:, None], design.columns[batch]]
        g = np.einsum("ij,ijp->p", (rewards - b) / rewards.size, scores)
        right = ((g - G) ** 2).sum()
        assert at(curves, shrinkage)[batch] == pytest.approx(right, rel=2e-5)


def made(minima: list[float], depths: list[float]) -> np.ndarray:
    """(B, 3) parabolas 1 + c (x - x0)^2 - c x0^2."""
    return np.array([[1.0, -2 * c * x, c] for x, c in zip(minima, depths, strict=True)])


def test_the_minimum_is_that_of_the_mean():
    curves = made([0.2, 0.6], [3.0, 1.0])
    assert best(curves) == pytest.approx((0.2 * 3 + 0.6) / 4)
    grid = [at(curves, x).mean() for x in np.linspace(0, 1, 1001)]
    assert np.linspace(0, 1, 1001)[int(np.argmin(grid))] == pytest.approx(best(curves), abs=1e-3)


@pytest.mark.parametrize(("curves", "where"), [(made([1.5], [1.0]), 1), (made([-2], [1.0]), 0)])
def test_the_minimum_lies_between_rloo_and_bloo(curves, where):
    assert best(curves) == where


def test_a_curve_that_does_not_bend_falls_to_its_end():
    assert best(np.array([[1.0, -0.1, 0.0]])) == 1 and best(np.array([[1.0, 0.1, 0.0]])) == 0


def test_the_interval_of_the_minimum_covers_it():
    rng = np.random.default_rng(0)
    covered, widths = 0, []
    for seed in range(60):
        depths = rng.gamma(4, 1, 20)
        found = minimiser(made(0.4 + 0.1 * rng.normal(size=20), depths), seed)
        covered += found.low <= 0.4 <= found.high
        widths.append(found.high - found.low)
        assert found.low <= found.value <= found.high
    assert covered >= 52 and 0.05 < np.mean(widths) < 0.15


def test_batches_where_the_shrinkage_does_not_matter_say_nothing_of_it():
    telling = made([0.3, 0.5, 0.4], [1.0, 1.0, 1.0])
    flat = np.array([[0.0, 0.0, 0.0]] * 4)
    assert minimiser(np.concatenate([flat, telling]), 1) == minimiser(telling, 1)
    assert minimiser(np.concatenate([flat, telling[:1]]), 1) == (0.3, 0, 1)


def test_the_minimum_is_judged_on_batches_it_was_not_chosen_for():
    curves = made([0.2, 0.6, 0.7], [1.0, 1.0, 1.0])
    others = [0.65, 0.45, 0.4]
    assert unseen(curves) == pytest.approx(
        [at(one, x) for one, x in zip(curves, others, strict=True)]
    )
    assert unseen(curves).mean() > at(curves, best(curves)).mean()


def test_the_curve_starts_at_rloo_and_is_paired():
    curves = made([0.5] * 3, [0.4] * 3) * np.array([[1.0], [2.0], [7.0]])
    found = curve(curves)
    assert found.values[0] == found.low[0] == found.high[0] == 0
    assert found.values == pytest.approx(100 * (0.4 * 0.25 - 0.4 * (GRID - 0.5) ** 2))
    assert found.low == pytest.approx(found.values) and found.high == pytest.approx(found.values)


def test_the_summary_marks_where_the_estimators_stand(tmp_path):
    samples = pool(prompts=6, responses=40, seed=3)
    plan = Plan(batches=4, prompts=5, responses=(2, 3), seed=2)
    found = measure(ScoreSum(small_model()), samples, plan, SWEPT, tmp_path)
    summary, arrays = summarise(samples, plan, found)
    rows = {(row["m"], row["point"]): row for row in summary["rows"]}
    assert set(rows) == {(m, p) for m in (2, 3) for p in ("minimum", "least mse", *ESTIMATED)}
    assert arrays["reduction_percent"].shape == (2, len(GRID))
    for c, m in enumerate((2, 3)):
        parabola = parabolas(*(found.distances[SWEPT.index(name), c] for name in POINTS))
        assert rows[m, "minimum"]["shrinkage"] == best(parabola)
        js, rloo = (found.distances[SWEPT.index(name), c] for name in ("js", "rloo"))
        assert rows[m, "js"]["reduction_percent"] == pytest.approx(
            100 * (1 - js.mean() / rloo.mean())
        )
        assert 0 < rows[m, "js_plus"]["shrinkage"] < 1
    assert summary["finding"].startswith("At m = 2 the distance is least at lambda = ")
    assert "js stands at" in summary["finding"]
