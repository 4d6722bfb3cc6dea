"""Distances of small-batch gradients against brute force: every response's gradient is stored."""

from __future__ import annotations

import gc
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from openrlhf_js.estimators import baseline
from openrlhf_js.lab.gradient import Measured, measure
from openrlhf_js.lab.policy_gradient import ScoreSum
from openrlhf_js.lab.projected_gradient import measure_projected
from openrlhf_js.lab.projection import Sketch
from openrlhf_js.lab.small_batches import Plan, draw

sys.path.insert(0, str(Path(__file__).parent))
from gradient_pools import pool, score_gradients, small_model

NAMES = ("rloo", "js", "js_plus", "bloo", "dr_grpo", "reinforce++", "js1", "remax", "reinforce")
PLAN = Plan(batches=3, prompts=4, responses=(2, 3), seed=5)
SAMPLES = pool()


@pytest.fixture(scope="module")
def own() -> np.ndarray:
    return score_gradients(small_model(), SAMPLES)


def rloo_gradient(own: np.ndarray, columns: range) -> np.ndarray:
    """The gradient of the whole pool by a loop, with each reward's own leave-one-out mean."""
    total = np.zeros(own.shape[2])
    for i in range(len(own)):
        for j in columns:
            others = [SAMPLES.rewards[i, k] for k in columns if k != j]
            total += (SAMPLES.rewards[i, j] - np.mean(others)) * own[i, j]
    return total / (len(own) * len(columns))


def brute_force(own: np.ndarray) -> tuple[dict[tuple[str, int, int], np.ndarray], np.ndarray]:
    """Gradients by name, m and batch; and the two halves of the precise one."""
    design = draw(6, 30, PLAN)
    found = {}
    for batch in range(PLAN.batches):
        rows = design.prompts[batch][:, None]
        for m in PLAN.responses:
            columns = design.columns[batch, :, :m]
            rewards = SAMPLES.rewards[rows, columns]
            for name in NAMES:
                of = torch.from_numpy(SAMPLES.greedy_rewards[design.prompts[batch]])
                b = baseline(name, torch.from_numpy(rewards), greedy_rewards=of).numpy()
                weights = (rewards - b) / rewards.size
                found[name, m, batch] = np.einsum("ij,ijp->p", weights, own[rows, columns])
    half = design.half
    return found, np.stack(
        [rloo_gradient(own, range(half)), rloo_gradient(own, range(half, 2 * half))]
    )


def measured(tmp_path: Path, names: tuple[str, ...] = NAMES, **settings) -> Measured:
    return measure(ScoreSum(small_model(), **settings), SAMPLES, PLAN, names, tmp_path)


def test_it_matches_brute_force(tmp_path, own):
    found, (right, halves) = measured(tmp_path), brute_force(own)
    G = halves.mean(0)
    for a, name in enumerate(NAMES):
        for c, m in enumerate(PLAN.responses):
            for batch in range(PLAN.batches):
                g = right[name, m, batch]
                plain = ((g - G) ** 2).sum()
                assert found.plain[a, c, batch] == pytest.approx(plain, rel=1e-5)
                assert found.squared_norms[a, c, batch] == pytest.approx(g @ g, rel=1e-5)
                # Without G's own error: independent halves, each with its own error.
                unbiased = (g - halves[0]) @ (g - halves[1])
                assert found.distances[a, c, batch] == pytest.approx(unbiased, rel=1e-5)
    assert found.reference.squared_norm == pytest.approx(G @ G, rel=1e-5)
    assert found.reference.error == pytest.approx(((halves[0] - halves[1]) ** 2).sum() / 4, 1e-5)
    assert found.reference.signal == pytest.approx(halves[0] @ halves[1], rel=1e-5)


def test_the_size_of_micro_batches_does_not_matter(tmp_path):
    one = measured(tmp_path / "one", ("rloo", "js"), max_tokens=1)
    many = measured(tmp_path / "many", ("rloo", "js"), max_tokens=999, checkpointing=True)
    np.testing.assert_allclose(one.distances, many.distances, rtol=1e-5)


class Stopped(Exception):
    pass


@pytest.mark.parametrize("after", [1, 40, 80, 110])
def test_a_measurement_that_was_stopped_goes_on(tmp_path, monkeypatch, after):
    monkeypatch.setattr("openrlhf_js.lab.precise_gradient.SAVE_SECONDS", 0.0)
    whole = measured(tmp_path / "whole", ("rloo", "js", "bloo"))
    counts: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        counts.append((done, total))
        if done >= after:
            raise Stopped

    def go(tell) -> Measured:
        scores = ScoreSum(small_model(), max_tokens=40)
        return measure(scores, SAMPLES, PLAN, ("rloo", "js", "bloo"), tmp_path, tell)

    with pytest.raises(Stopped):
        go(stop)
    done, total = counts[-1]
    assert after <= done < total
    counts.clear()
    resumed = go(lambda *count: counts.append(count))
    np.testing.assert_allclose(resumed.distances, whole.distances, rtol=1e-5)
    assert counts[-1][0] == counts[-1][1]
    # What was stopped is told before it is saved: at most one gradient is computed again.
    assert total - done <= counts[-1][1] <= total - done + 40
    counts.clear()
    again = go(lambda *count: counts.append(count))
    np.testing.assert_array_equal(again.distances, resumed.distances)
    assert not counts


def held() -> int:
    """Numbers in all tensors that are alive, each storage once."""
    found = {}
    for each in gc.get_objects():
        if type(each) in (torch.Tensor, torch.nn.Parameter):
            storage = each.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes() // 4
    return sum(found.values())


@pytest.mark.parametrize("projection", [0, 64])
def test_there_are_two_vectors_beside_the_model(tmp_path, projection):
    gc.collect()
    before, model = held(), small_model()
    size, most = sum(each.numel() for each in model.parameters()), [0]
    calls = itertools.count()

    def tell(done: int, total: int) -> None:
        if next(calls) in (1, 6, 30):  # looking at every object takes its time
            most.append(held() - before)

    scores = ScoreSum(model)
    if projection:
        measure_projected(scores, SAMPLES, PLAN, ("rloo", "js"), tmp_path, projection, tell)
    else:
        measure(scores, SAMPLES, PLAN, ("rloo", "js"), tmp_path, tell)
    vectors = max(most) / size - 1
    assert 1.9 < vectors < 2.5  # and a few tokens, logits and projections


def test_another_baseline_costs_only_itself(tmp_path):
    measured(tmp_path, ("rloo", "js"))
    counts = []
    found = measure(
        ScoreSum(small_model()),
        SAMPLES,
        PLAN,
        ("rloo", "js", "dr_grpo", "bloo"),
        tmp_path,
        lambda *count: counts.append(count),
    )
    assert 0 < counts[-1][1] <= PLAN.batches * PLAN.prompts * sum(PLAN.responses)
    fresh = measured(tmp_path / "fresh", ("rloo", "js", "dr_grpo", "bloo"))
    np.testing.assert_allclose(found.distances, fresh.distances, rtol=1e-5)


def test_other_responses_are_measured_anew(tmp_path):
    first = measured(tmp_path, ("rloo",))
    changed = SAMPLES._replace(rewards=1 - SAMPLES.rewards)
    other = measure(ScoreSum(small_model()), changed, PLAN, ("rloo",), tmp_path)
    # The negative of every gradient: the same distances, in a folder of their own.
    np.testing.assert_allclose(first.distances, other.distances, rtol=1e-5)
    folders = list((tmp_path / "gradients").iterdir())
    assert len(folders) == 2
    assert json.loads((folders[0] / "settings.json").read_text())["batches"] == 3


def test_another_greedy_response_is_measured_anew(tmp_path):
    first = measured(tmp_path, ("remax",))
    changed = SAMPLES._replace(greedy_rewards=1 - SAMPLES.greedy_rewards)
    other = measure(ScoreSum(small_model()), changed, PLAN, ("remax",), tmp_path)
    assert (first.squared_norms != other.squared_norms).all()


def test_what_only_describes_the_samples_does_not_matter(tmp_path):
    measured(tmp_path, ("rloo",))
    elsewhere = SAMPLES._replace(settings=SAMPLES.settings | {"versions": {"torch": "9"}})
    counts = []
    tell = lambda *count: counts.append(count)  # noqa: E731
    measure(ScoreSum(small_model()), elsewhere, PLAN, ("rloo",), tmp_path, tell)
    assert not counts


def test_a_pool_without_any_difference_has_no_gradient(tmp_path):
    equal = SAMPLES._replace(rewards=np.ones_like(SAMPLES.rewards))
    found = measure(ScoreSum(small_model()), equal, PLAN, ("rloo", "js"), tmp_path)
    assert not found.distances.any() and found.reference == (0, 0, 0)


def test_a_projection_with_more_dimensions_than_parameters_is_nearly_exact(tmp_path):
    exact = measured(tmp_path)
    found = measure_projected(
        ScoreSum(small_model()), SAMPLES, PLAN, NAMES, tmp_path, dimensions=2**18
    )
    np.testing.assert_allclose(found.distances, exact.distances, rtol=0.02)
    assert len(found.projection_errors) == 3  # G, and two batches; the third has no gradient
    assert max(map(abs, found.projection_errors)) < 0.02


def test_a_projection_errs_as_its_theory_says(tmp_path):
    exact = measured(tmp_path, ("rloo", "js"))
    errors = []
    for dimensions in (64, 1024):
        found = measure_projected(
            ScoreSum(small_model()), SAMPLES, PLAN, ("rloo", "js"), tmp_path, dimensions
        )
        errors.append(np.abs(found.plain / exact.plain - 1).mean())
        assert errors[-1] < 3 * np.sqrt(2 / dimensions)


def test_projections_that_are_there_are_not_computed_again(tmp_path):
    def go(counts: list) -> Measured:
        scores = ScoreSum(small_model())
        tell = lambda *count: counts.append(count)  # noqa: E731
        return measure_projected(scores, SAMPLES, PLAN, ("rloo",), tmp_path, 64, tell)

    first, again = [], []
    np.testing.assert_array_equal(go(first).distances, go(again).distances)
    checks = PLAN.batches * PLAN.prompts * 2
    assert first[-1][1] > 6 * 2 * 5 and again[-1][1] <= checks


def test_a_sketch_is_linear_and_keeps_squared_norms_on_average():
    generator = torch.Generator().manual_seed(0)
    a, b = ([torch.randn(40, 5, generator=generator), torch.randn(7)] for _ in range(2))
    norms = []
    for seed in range(400):
        sketch = Sketch(a, 32, seed)
        together = sketch([2 * x - y for x, y in zip(a, b, strict=True)])
        torch.testing.assert_close(together, 2 * sketch(a) - sketch(b), rtol=1e-4, atol=1e-4)
        assert torch.equal(sketch(a), Sketch(a, 32, seed, kept=False)(a))
        norms.append(float(sketch(a).double().square().sum()))
    exact = sum(float(part.double().square().sum()) for part in a)
    fourth = sum(float((part.double() ** 4).sum()) for part in a)
    variance = 2 / 32 * (exact**2 - fourth)
    assert np.mean(norms) == pytest.approx(exact, abs=4 * np.sqrt(variance / 400))
    assert np.var(norms) == pytest.approx(variance, rel=0.35)


def test_a_projection_needs_dimensions():
    with pytest.raises(ValueError, match=r"2 dimensions or more, below 2\^30; got 1\. 4096"):
        Sketch([torch.zeros(3)], 1, 0)
