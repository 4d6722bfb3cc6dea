"""Curves over the shrinkage against gradients that are computed at every point; groups and mix."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baseline_research.lab import gradient
from baseline_research.lab.batches import BatchPlan, at, best, parabolas
from baseline_research.lab.gradient import MIDDLE, measure
from baseline_research.lab.heterogeneity import (
    ALL,
    GRID,
    MIX,
    SWEPT,
    held_out,
    heterogeneity,
    minimiser,
    sets,
    sweep,
)
from baseline_research.lab.score_pool import score_pool
from baseline_research.lab.scores import ScoreSketcher
from openrlhf_js.estimators import LiveEstimator

PLAN = BatchPlan(batches=6, prompts=3, responses=(2, 3), steps=1, seed=2)


def measured_of(kit, tmp_path, samples, names=SWEPT):
    pool = score_pool(ScoreSketcher(kit.small_model(), numbers=1 << 13), samples, tmp_path)
    return measure(pool, PLAN, names)


def test_the_curve_is_that_of_every_shrinkage(kit, tmp_path, samples, monkeypatch):
    measured = measured_of(kit, tmp_path, samples)
    curves = parabolas(*(measured.of(3, name) for name in SWEPT[:3]))
    monkeypatch.setattr(gradient, "_live", lambda name: LiveEstimator("js_fixed", shrinkage=0.3))
    expected = measured_of(kit, tmp_path, samples, ["rloo"]).distances[1, 0]
    assert at(curves, 0.3) == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_the_interval_of_the_minimum_is_about_it_and_within_its_range(kit, tmp_path, samples):
    measured = measured_of(kit, tmp_path, samples)
    generator = np.random.default_rng(0)
    curves = kit.parabolas(0.4 + 0.1 * generator.normal(size=6), generator.gamma(4, 1, 6))
    estimate = minimiser(measured, curves)
    assert estimate.value == best(curves)
    assert 0 <= estimate.low < estimate.value < estimate.high <= 1
    flat = minimiser(measured, np.array([[1.0, 0.0, 0.0]] * 6))
    assert (flat.low, flat.high) == (0, 1)


def test_the_minimum_is_judged_on_responses_it_was_not_chosen_for(kit):
    curves = kit.parabolas([0.2, 0.6, 0.7], [1.0, 1.0, 1.0])
    found = held_out(curves, np.array([0, 1, 1]))
    expected = [at(curve, x) for curve, x in zip(curves, [0.65, 0.2, 0.2], strict=True)]
    assert found == pytest.approx(expected)
    assert found.mean() > at(curves, best(curves)).mean()


def values(result, **settings):
    """The values of the rows with these settings, by their quantity."""
    by_quantity = {}
    for row in result.rows:
        if settings.items() <= row.settings.items():
            by_quantity[row.quantity] = row.value
    return by_quantity


def test_a_sweep_marks_where_the_estimators_are(kit, tmp_path):
    measured = measured_of(kit, tmp_path, kit.pool(prompts=6, responses=40, seed=3))
    for m in PLAN.responses:
        swept = sweep(measured, m)
        rloo = measured.of(m, "rloo")
        parabola = parabolas(rloo, measured.of(m, MIDDLE), measured.of(m, "bloo"))
        assert list(swept.points) == ["least distance", "bloo", "js"]
        assert swept.points["least distance"]["shrinkage"].value == best(parabola)
        js = swept.points["js"]
        assert js["reduction_percent"] == measured.over.reduction(measured.of(m, "js"), rloo)
        assert 0 < js["shrinkage"].value < 1
        halfway = measured.over.reduction(at(parabola, 0.5), rloo)
        assert swept.curve.shape == (len(GRID), 3)
        assert swept.curve[0] == pytest.approx([0, 0, 0])
        assert swept.curve[20] == pytest.approx(list(halfway), abs=1e-9)


@given(st.lists(st.sampled_from("abc"), min_size=9, max_size=40))
def test_sets_hold_their_own_group_and_the_mix_all(groups):
    counts = {name: groups.count(name) for name in set(groups)}
    rows_of_sets = sets(groups)
    if len(counts) < 2:
        assert {name: rows.tolist() for name, rows in rows_of_sets.items()} == {
            ALL: [*range(len(groups))]
        }
        return
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
    samples = kit.pool(prompts=12, responses=30)
    groups = ["easy", "hard"] * 6
    prompts = [p._replace(group=g) for p, g in zip(samples.prompts, groups, strict=True)]
    samples = samples._replace(prompts=prompts)
    pool = score_pool(ScoreSketcher(kit.small_model()), samples, tmp_path)
    measured = {}
    for name, rows in sets(groups).items():
        measured[name] = measure(pool.at(rows), PLAN, SWEPT)
    result = heterogeneity(measured, PLAN)
    rewards = samples.rewards[1::2]
    variance = rewards.var(1, ddof=1).mean()
    spread = rewards.mean(1).var(ddof=1) - variance / 30
    moments = values(result, prompts="hard", m=3, point="all rewards")
    assert moments["value"] == pytest.approx(rewards.mean())
    assert moments["v"] == pytest.approx(variance / 2)
    assert moments["s"] == pytest.approx(max(0, spread))
    hard = measured["hard"]
    expected = hard.over.reduction(hard.of(3, "js"), hard.of(3, "rloo"))
    js = values(result, prompts="hard", m=3, point="js")
    assert js["reduction_percent"] == pytest.approx(expected.value, rel=1e-3)
    assert result.arrays["sets"].tolist() == ["easy", "hard", "mix"]
    assert result.arrays["reduction_percent"].shape == (3, 2, len(GRID))
    assert values(result, prompts="mix", m=3, point="js")["shrinkage"] > 0
