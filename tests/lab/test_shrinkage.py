"""Curves over the shrinkage against gradients that are computed at every point; groups and mix."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.estimators import baseline
from openrlhf_js.lab.batches import BatchPlan, SmallBatches
from openrlhf_js.lab.gradient import measure
from openrlhf_js.lab.policy_gradient import ScoreSum
from openrlhf_js.lab.results import reduction
from openrlhf_js.lab.shrinkage import (
    GRID,
    MIX,
    SWEPT,
    at,
    best,
    held_out,
    heterogeneity,
    minimiser,
    parabolas,
    sets,
    sweep,
)


def test_the_curve_is_that_of_the_gradients_themselves(kit, tmp_path, samples, own):
    batches = SmallBatches(samples, BatchPlan(batches=3, prompts=4, responses=(3,), seed=2))
    distances = measure(ScoreSum(kit.small_model()), batches, SWEPT[:3], tmp_path)
    at_none, at_half, at_one = distances.plain[:, 0]
    curves = parabolas(at_none, at_half, at_one)
    halves = []
    for columns in (slice(0, batches.half), slice(batches.half, 2 * batches.half)):
        rewards = samples.rewards[:, columns]
        baselines = baseline("rloo", torch.from_numpy(rewards)).numpy()
        weights = (rewards - baselines) / rewards.size
        halves.append(np.einsum("ij,ijp->p", weights, own[:, columns]))
    G = (halves[0] + halves[1]) / 2
    for batch, shrinkage in itertools.product(range(3), (0.0, 0.2, 0.7, 1.0)):
        rewards = batches.rewards(batch, 3)
        rewards_tensor = torch.from_numpy(rewards)
        baselines = baseline("js_fixed", rewards_tensor, shrinkage=shrinkage).numpy()
        weights = (rewards - baselines) / rewards.size
        scores = own[batches.prompts[batch][:, None], batches.columns[batch]]
        g = np.einsum("ij,ijp->p", weights, scores)
        expected = ((g - G) ** 2).sum()
        assert at(curves, shrinkage)[batch] == pytest.approx(expected, rel=2e-5)


def made(minima, depths):
    """(B, 3) parabolas 1 + c (x - x0)^2 - c x0^2."""
    curves = []
    for x, c in zip(minima, depths, strict=True):
        curves.append([1.0, -2 * c * x, c])
    return np.array(curves)


def test_the_minimum_is_that_of_the_mean_between_rloo_and_bloo():
    curves = made([0.2, 0.6], [3.0, 1.0])
    grid = np.linspace(0, 1, 1001)
    assert best(curves) == pytest.approx((0.2 * 3 + 0.6) / 4)
    means = [at(curves, x).mean() for x in grid]
    least = grid[np.argmin(means)]
    assert least == pytest.approx(best(curves), abs=1e-3)
    assert best(made([1.5], [1.0])) == 1
    assert best(made([-2], [1.0])) == 0
    # A curve that does not bend falls to its end.
    assert best(np.array([[1.0, -0.1, 0.0]])) == 1
    assert best(np.array([[1.0, 0.1, 0.0]])) == 0


def test_the_interval_of_the_minimum_covers_it():
    rng = np.random.default_rng(0)
    covered = 0
    widths = []
    for _ in range(30):
        depths = rng.gamma(4, 1, 20)
        minima = 0.4 + 0.1 * rng.normal(size=20)
        estimate = minimiser(made(minima, depths))
        covered += estimate.low <= 0.4 <= estimate.high
        widths.append(estimate.high - estimate.low)
        assert estimate.low <= estimate.value <= estimate.high
    assert covered >= 25
    assert 0.05 < np.mean(widths) < 0.15


def test_the_minimum_is_judged_on_batches_it_was_not_chosen_for():
    curves = made([0.2, 0.6, 0.7], [1.0, 1.0, 1.0])
    best_for_others = [0.65, 0.45, 0.4]
    expected = [at(curve, x) for curve, x in zip(curves, best_for_others, strict=True)]
    assert held_out(curves) == pytest.approx(expected)
    assert held_out(curves).mean() > at(curves, best(curves)).mean()


def values(result, **settings):
    """The values of the rows with these settings, by their quantity."""
    by_quantity = {}
    for row in result.rows:
        if settings.items() <= row.settings.items():
            by_quantity[row.quantity] = row.value
    return by_quantity


def test_a_sweep_marks_where_the_estimators_are(kit, tmp_path):
    plan = BatchPlan(batches=4, prompts=5, responses=(2, 3), seed=2)
    batches = SmallBatches(kit.pool(prompts=6, responses=40, seed=3), plan)
    distances = measure(ScoreSum(kit.small_model()), batches, SWEPT, tmp_path)
    result = sweep(batches, distances)
    points = ("least distance", "bloo", "js", "js_plus")
    swept = {(row.settings["m"], row.settings["point"]) for row in result.rows}
    assert swept == {*itertools.product((2, 3), points)}
    for place, m in enumerate((2, 3)):
        at_none, at_half, at_one = (distances.of(name, place) for name in SWEPT[:3])
        parabola = parabolas(at_none, at_half, at_one)
        assert values(result, m=m, point="least distance")["shrinkage"] == best(parabola)
        js = values(result, m=m, point="js")
        expected = reduction(distances.of("js", place), at_none)
        assert js["reduction_percent"] == pytest.approx(expected.value)
        assert 0 < values(result, m=m, point="js_plus")["shrinkage"] < 1
        curve = result.arrays["reduction_percent"][place]
        halfway = reduction(at(parabola, 0.5), at_none)
        assert len(curve) == len(GRID)
        assert curve[0] == 0
        assert curve[20] == pytest.approx(halfway.value, abs=1e-9)


@given(st.lists(st.sampled_from("abc"), min_size=9, max_size=40))
def test_sets_hold_their_own_group_and_the_mix_all(groups):
    counts = {name: groups.count(name) for name in set(groups)}
    if len(counts) < 2:
        with pytest.raises(ValueError, match="give two or more"):
            sets(groups)
        return
    rows_of_sets = sets(groups)
    smallest = min(counts.values())
    assert list(rows_of_sets) == [*sorted(counts), MIX]
    for name, rows in rows_of_sets.items():
        groups_of_rows = [groups[i] for i in rows]
        if name != MIX:
            assert groups_of_rows == [name] * smallest
            continue
        counts_in_mix = {groups_of_rows.count(group) for group in counts}
        assert len(counts_in_mix) == 1
        assert len(set(rows)) == len(rows)
        assert smallest - len(counts) < len(rows) <= smallest


def test_each_set_is_measured_by_itself(kit, tmp_path):
    samples = kit.pool(prompts=8, responses=30)
    groups = ["easy", "hard"] * 4
    prompts = [p._replace(group=g) for p, g in zip(samples.prompts, groups, strict=True)]
    samples = samples._replace(prompts=prompts)
    plan = BatchPlan(batches=3, prompts=3, responses=(3,))
    scores = ScoreSum(kit.small_model())
    measured = {}
    groups_of_sets = {}
    for name, rows in sets(groups).items():
        batches = SmallBatches(samples.at(rows), plan)
        measured[name] = (batches, measure(scores, batches, SWEPT, tmp_path))
        groups_of_sets[name] = [prompt.group for prompt in batches.pool.prompts]
    assert groups_of_sets == {
        "easy": ["easy"] * 4,
        "hard": ["hard"] * 4,
        "mix": ["easy"] * 2 + ["hard"] * 2,
    }
    result = heterogeneity(measured)
    rewards = samples.rewards[1::2]
    variance = rewards.var(1, ddof=1).mean()
    spread = rewards.mean(1).var(ddof=1) - variance / 30
    moments = values(result, prompts="hard", point="all rewards")
    assert moments["value"] == pytest.approx(rewards.mean())
    assert moments["v"] == pytest.approx(variance / 2)
    assert moments["s"] == pytest.approx(max(0, spread))
    _, distances = measured["hard"]
    expected = reduction(distances.of("js", 0), distances.of("rloo", 0))
    js = values(result, prompts="hard", point="js")
    assert js["reduction_percent"] == pytest.approx(expected.value, rel=1e-3)
    assert result.arrays["sets"].tolist() == ["easy", "hard", "mix"]
    assert result.arrays["reduction_percent"].shape == (3, 1, len(GRID))
    assert values(result, prompts="mix", m=3, point="js")["shrinkage"] > 0
