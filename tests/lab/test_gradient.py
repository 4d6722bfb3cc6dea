"""Distances of small-batch gradients against brute force: every response's gradient is stored."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.estimators import Past, baseline
from openrlhf_js.lab import gradient
from openrlhf_js.lab.batches import BatchPlan, SmallBatches, check_names
from openrlhf_js.lab.gradient import Distances, compare, measure
from openrlhf_js.lab.policy_gradient import ScoreSum

NAMES = ("rloo", "js", "js_plus", "bloo", "dr_grpo", "reinforce++", "js1", "remax", "reinforce")
PLAN = BatchPlan(batches=3, prompts=4, responses=(2, 3), seed=5)


class Sized:
    """As much of a pool as batches are drawn from."""

    def __init__(self, prompts, responses):
        self.rewards = np.zeros((prompts, responses))


def drawn(prompts, responses, *plan):
    return SmallBatches(Sized(prompts, responses), BatchPlan(*plan))


@given(
    st.integers(2, 9),
    st.integers(36, 60),
    st.integers(2, 6),
    st.integers(2, 9),
    st.sets(st.integers(2, 4), min_size=1),
    st.integers(0, 99),
)
def test_no_response_is_used_for_two_purposes(N, M, batches, n, responses, seed):
    n = min(n, N)
    small_batches = drawn(N, M, batches, n, tuple(responses), seed)
    half = small_batches.half
    assert half >= 2
    assert small_batches.columns.min() >= 2 * half
    assert small_batches.columns.max() < M
    used = []
    for prompts, columns in zip(small_batches.prompts, small_batches.columns, strict=True):
        assert len(set(prompts.tolist())) == n
        assert prompts.min() >= 0
        assert prompts.max() < N
        in_batch = []
        for prompt, prompt_columns in zip(prompts, columns, strict=True):
            in_batch += [(prompt, column) for column in prompt_columns]
        assert len(set(in_batch)) == n * max(responses)
        used += in_batch
    assert len(set(used)) == len(used)


@pytest.fixture(scope="module")
def wide(kit):
    return kit.pool(prompts=8, responses=40)


def test_an_earlier_checkpoint_tells_js_memory_of_the_same_prompts(wide):
    shuffled = wide.at([3, 1, 0, 2, 7, 6, 5, 4])
    known = wide.at(range(6)).after(shuffled)
    assert np.array_equal(known.past, wide.rewards[:6])
    batches = SmallBatches(known, BatchPlan(2, 5, (2, 4)))
    rewards = torch.from_numpy(batches.rewards(1, 4))
    prompts = batches.prompts[1]
    past = Past(torch.from_numpy(wide.rewards[prompts, :4].mean(1)))
    expected = baseline("js_memory", rewards, past=past)
    assert np.array_equal(batches.baseline(1, 4, "js_memory"), expected.numpy())
    assert np.isfinite(batches.shrinkage(4, "js_memory")).all()
    with pytest.raises(ValueError, match="--past lacks a prompt: 'prompt 2'"):
        wide.after(wide.at([0, 1]))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("js_memory",), "needs an earlier visit"),
        (("rloo", "nonsense"), "unknown estimator 'nonsense'"),
        (("grpo",), "take dr_grpo"),
        (("js_fixed",), "lab sweep"),
    ],
)
def test_baselines_that_cannot_be_compared(samples, names, message):
    check_names(("rloo", "js", "remax", "reinforce++"), samples)
    with pytest.raises(ValueError, match=message):
        check_names(names, samples)


def rloo_gradient(samples, own, columns):
    """The gradient of the whole pool by a loop, with each reward's own leave-one-out mean."""
    total = np.zeros(own.shape[2])
    for i in range(len(own)):
        for j in columns:
            others = [samples.rewards[i, k] for k in columns if k != j]
            advantage = samples.rewards[i, j] - np.mean(others)
            total += advantage * own[i, j]
    return total / (len(own) * len(columns))


def measured(kit, samples, folder, names=NAMES, **settings):
    scores = ScoreSum(kit.small_model(), **settings)
    return measure(scores, SmallBatches(samples, PLAN), names, folder)


def test_it_matches_brute_force(kit, tmp_path, samples, own):
    distances = measured(kit, samples, tmp_path)
    batches = SmallBatches(samples, PLAN)
    half = batches.half
    first = rloo_gradient(samples, own, range(half))
    second = rloo_gradient(samples, own, range(half, 2 * half))
    G = (first + second) / 2
    assert distances.squared_norm == pytest.approx(G @ G, rel=1e-5)
    assert distances.error == pytest.approx(((first - second) ** 2).sum() / 4, 1e-5)
    assert distances.signal == pytest.approx(first @ second, rel=1e-5)
    for place in np.ndindex(distances.squared_norms.shape):
        name_place, m_place, batch = place
        m = PLAN.responses[m_place]
        chosen = batches.prompts[batch]
        rows = chosen[:, None]
        columns = batches.columns[batch, :, :m]
        rewards = torch.from_numpy(samples.rewards[rows, columns])
        greedy = torch.from_numpy(samples.greedy_rewards[chosen])
        baselines = baseline(NAMES[name_place], rewards, greedy_rewards=greedy)
        weights = ((rewards - baselines) / rewards.numel()).numpy()
        g = np.einsum("ij,ijp->p", weights, own[rows, columns])
        assert distances.plain[place] == pytest.approx(((g - G) ** 2).sum(), rel=1e-5)
        assert distances.squared_norms[place] == pytest.approx(g @ g, rel=1e-5)
        # Without G's own error: independent halves, each with its own error.
        unbiased = (g - first) @ (g - second)
        assert distances.unbiased[place] == pytest.approx(unbiased, rel=1e-5)


class Stopped(Exception):
    pass


@pytest.fixture
def passed(monkeypatch):
    """Counts responses that go through a model; `limit` stops it there."""
    seen = {"responses": 0, "limit": None}
    backward = ScoreSum._backward

    def counted(self, terms):
        if seen["limit"] is not None and seen["responses"] + len(terms) > seen["limit"]:
            raise Stopped
        seen["responses"] += len(terms)
        backward(self, terms)

    monkeypatch.setattr(ScoreSum, "_backward", counted)
    return seen


@pytest.mark.parametrize("after", [40, 110])
def test_a_measurement_that_was_stopped_resumes(kit, tmp_path, samples, monkeypatch, passed, after):
    monkeypatch.setattr(gradient, "SAVE_SECONDS", 0.0)
    names = ("rloo", "js", "bloo")
    whole = measured(kit, samples, tmp_path / "whole", names)
    total = passed["responses"]
    passed["responses"] = 0
    passed["limit"] = after
    with pytest.raises(Stopped):
        measured(kit, samples, tmp_path / "broken", names, max_tokens=40)
    passed["limit"] = None
    resumed = measured(kit, samples, tmp_path / "broken", names, max_tokens=999)
    np.testing.assert_allclose(resumed.unbiased, whole.unbiased, rtol=1e-5)
    assert total <= passed["responses"] <= total + 12  # at most one small batch again
    passed["responses"] = 0
    again = measured(kit, samples, tmp_path / "broken", names)
    np.testing.assert_array_equal(again.unbiased, resumed.unbiased)
    assert passed["responses"] == 0


def test_another_baseline_costs_only_itself(kit, tmp_path, samples, passed):
    measured(kit, samples, tmp_path, ("rloo", "js"))
    passed["responses"] = 0
    names = ("rloo", "js", "bloo")
    grown = measured(kit, samples, tmp_path, names)
    responses_of_one = PLAN.batches * PLAN.prompts * sum(PLAN.responses)
    assert 0 < passed["responses"] <= responses_of_one
    fresh = measured(kit, samples, tmp_path / "fresh", names)
    np.testing.assert_allclose(grown.unbiased, fresh.unbiased, rtol=1e-5)


def test_other_samples_are_measured_anew_but_not_other_notes(kit, tmp_path, samples, passed):
    first = measured(kit, samples, tmp_path, ("rloo",))
    changed = samples._replace(rewards=1 - samples.rewards)
    other = measured(kit, changed, tmp_path, ("rloo",))
    # The negative of every gradient: the same distances, in a folder of their own.
    np.testing.assert_allclose(first.unbiased, other.unbiased, rtol=1e-5)
    assert len(list((tmp_path / "gradients").iterdir())) == 2
    passed["responses"] = 0
    elsewhere = samples._replace(settings=samples.settings | {"versions": {"torch": "9"}})
    measured(kit, elsewhere, tmp_path, ("rloo",))
    assert passed["responses"] == 0


def made(distances, names, error=0.5):
    """A measurement with these distances."""
    products = np.ones_like(distances)
    squared_norm = 3.0
    return Distances(
        names=names,
        squared_norms=distances + error + 2 * products - squared_norm,
        products=products,
        squared_norm=squared_norm,
        error=error,
        signal=2.0,
    )


def test_rows_and_caption(wide):
    rloo = np.array([[4.0, 6.0, 5.0, 5.0], [2.0, 2.0, 3.0, 1.0]])
    js_plus = rloo.copy()
    js_plus[0] += [1, -1, 1, -1]
    distances = np.stack([rloo, 0.9 * rloo, js_plus])
    batches = SmallBatches(wide, BatchPlan(4, 5, (2, 4)))
    result = compare(batches, made(distances, ("rloo", "js", "js_plus")))
    rows = {}
    for row in result.rows:
        rows[row.settings["m"], row.settings["estimator"], row.quantity] = row.value
    assert rows[2, "rloo", "distance"] == pytest.approx(5.0)
    assert rows[2, "rloo", "plain_distance"] == pytest.approx(5.5)
    assert rows[2, "rloo", "reduction_percent"] == 0
    assert rows[2, "rloo", "shrinkage"] is None
    assert 0 < rows[2, "js", "shrinkage"] < 1
    assert rows[4, "js", "reduction_percent"] == pytest.approx(10)
    assert result.notes["precise"] == {"responses": 2 * batches.half * 8, "relative_error": 0.25}
    assert result.notes["gradients"]["js_plus"] == "unbiased"
    assert result.caption.startswith("4 batches of 5 of 8 prompts; 95 % intervals over further")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (BatchPlan(2, 9, (2,)), "batches of 9 prompts cannot be drawn from 8"),
        (BatchPlan(5, 8, (6,)), "m = 6, need 45 responses to a prompt, and there are 40"),
    ],
)
def test_batches_that_cannot_be_drawn(wide, plan, message):
    with pytest.raises(ValueError, match=message):
        SmallBatches(wide, plan)


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_reference_without_a_distance(wide, value):
    batches = SmallBatches(wide, BatchPlan(4, 5, (2, 4)))
    message = re.escape(f"{value:.2g}") + r": each prompt's rewards are all equal"
    with pytest.raises(ValueError, match=message):
        compare(batches, made(np.full((2, 2, 4), value), ("rloo", "js")))
