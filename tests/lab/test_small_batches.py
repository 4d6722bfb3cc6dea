"""Who is in which batch, and what each response counts."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.lab.small_batches import (
    MIDDLE,
    Plan,
    batch_baseline,
    batch_rewards,
    batch_weights,
    check_names,
    draw,
    mean_shrinkage,
)

sys.path.insert(0, str(Path(__file__).parent))
from gradient_pools import pool


def test_the_paper_s_pool_gives_twenty_batches_that_share_nothing():
    design = draw(128, 256, Plan())
    assert design.disjoint and design.half >= 256 / 6
    assert design.prompts.shape == (20, 64) and design.columns.shape == (20, 64, 8)


def test_a_small_pool_is_shared_by_the_batches():
    design = draw(128, 32, Plan())
    assert not design.disjoint and design.half == 8


@given(
    st.integers(2, 9),
    st.integers(8, 60),
    st.integers(2, 6),
    st.integers(2, 9),
    st.sets(st.integers(2, 4), min_size=1),
    st.integers(0, 99),
)
def test_no_response_is_used_for_two_purposes(N, M, batches, n, responses, seed):
    n = min(n, N)
    design = draw(N, M, Plan(batches, n, tuple(responses), seed))
    assert design.half >= 2
    assert design.columns.min() >= 2 * design.half and design.columns.max() < M
    used = []
    for prompts, columns in zip(design.prompts, design.columns, strict=True):
        assert len(set(prompts.tolist())) == n and prompts.min() >= 0 and prompts.max() < N
        in_batch = [(i, j) for i, row in zip(prompts, columns, strict=True) for j in row]
        assert len(set(in_batch)) == n * max(responses)
        used += in_batch
    if design.disjoint:
        assert len(set(used)) == len(used)


def test_every_prompt_and_response_of_the_reserve_is_drawn_alike():
    chosen = np.zeros(6)
    for seed in range(400):
        design = draw(6, 12, Plan(2, 3, (2,), seed))
        needed = 2 * np.bincount(design.prompts.ravel()).max()
        assert (design.disjoint, design.half) == (True, (12 - needed) // 2)
        chosen[design.prompts[0]] += 1
    assert chosen / 400 == pytest.approx(np.full(6, 0.5), abs=0.1)

    counts = np.zeros((6, 13))
    for seed in range(400):
        design = draw(6, 13, Plan(9, 3, (4,), seed))
        assert (design.disjoint, design.half) == (False, 3)
        counts[design.prompts[-1][:, None], design.columns[-1]] += 1
    share = counts[:, 6:] / 400
    assert share == pytest.approx(np.full((6, 7), 0.5 * 4 / 7), abs=0.1)


def test_another_seed_draws_other_batches():
    first, again, other = (draw(20, 60, Plan(3, 5, (2,), seed)) for seed in (1, 1, 2))
    assert np.array_equal(first.prompts, again.prompts)
    assert not np.array_equal(first.prompts, other.prompts)


@pytest.mark.parametrize(
    ("pool_size", "plan", "message"),
    [
        ((8, 20), Plan(2, 4, (1, 2)), "2 or more, got"),
        ((8, 20), Plan(2, 4, ()), "2 or more"),
        ((8, 20), Plan(1, 4, (2,)), "2 batches"),
        ((8, 20), Plan(2, 1, (2,)), "2 prompts"),
        ((8, 20), Plan(2, 9, (2,)), "9 prompts cannot be drawn from 8; take smaller batches"),
        ((8, 11), Plan(2, 4, (8,)), "needs 12 responses a prompt or more.*got 11. Sample more"),
    ],
)
def test_a_pool_that_does_not_suffice(pool_size, plan, message):
    with pytest.raises(ValueError, match=message):
        draw(*pool_size, plan)


def test_the_weights_are_advantages_over_the_size_of_the_batch():
    samples = pool(prompts=5, responses=20)
    design = draw(5, 20, Plan(2, 3, (2, 4)))
    rewards = batch_rewards(samples, design, 1, 4)
    for row, i in enumerate(design.prompts[1]):
        for j in range(4):
            assert rewards[row, j] == samples.rewards[i, design.columns[1, row, j]]
    weights = batch_weights(samples, design, 1, 4, "rloo")
    for row in range(3):
        for j in range(4):
            others = [rewards[row, k] for k in range(4) if k != j]
            assert weights[row, j] == pytest.approx((rewards[row, j] - sum(others) / 3) / 12)


def test_the_middle_lies_between_rloo_and_bloo():
    samples = pool(prompts=5, responses=20)
    design = draw(5, 20, Plan(2, 3, (2,)))
    rloo, bloo, middle = (
        batch_baseline(samples, design, 0, 2, name) for name in ("rloo", "bloo", MIDDLE)
    )
    assert middle == pytest.approx((rloo + bloo) / 2)


def test_remax_takes_the_greedy_rewards_of_the_batch_s_prompts():
    samples = pool(prompts=5, responses=20)
    design = draw(5, 20, Plan(2, 3, (2,)))
    found = batch_baseline(samples, design, 0, 2, "remax")
    assert found[:, 1].tolist() == samples.greedy_rewards[design.prompts[0]].tolist()


def test_the_mean_shrinkage_explains_the_baseline():
    samples = pool(prompts=8, responses=40)
    design = draw(8, 40, Plan(3, 8, (2,)))
    for batch, found in enumerate(mean_shrinkage(samples, design, 2, "js")):
        rewards = batch_rewards(samples, design, batch, 2)
        means = rewards.mean(1)
        coefficients = []
        for i in range(8):  # the paper's listing
            others = np.delete(np.arange(8), i)
            v = np.mean([rewards[k].var(ddof=1) / 2 for k in others])
            s = np.mean((means[others] - means[others].mean()) ** 2)
            coefficients.append(7 / 8 * v / (v + s))
        assert found == pytest.approx(np.mean(coefficients))


def test_only_what_shrinks_by_prompt_has_a_shrinkage():
    samples = pool()
    with pytest.raises(ValueError, match="rloo has no shrinkage by prompt; those that have: js"):
        mean_shrinkage(samples, draw(6, 30, Plan(2, 3, (2,))), 2, "rloo")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("rloo", "nonsense"), "unknown estimator 'nonsense'"),
        (("grpo",), "take dr_grpo"),
        (("js_fixed",), "lab sweep"),
        (("remax",), "greedy response"),
        (("rloo", "rloo"), "each baseline once"),
    ],
)
def test_baselines_that_cannot_be_compared(names, message):
    with pytest.raises(ValueError, match=message):
        check_names(names, pool()._replace(greedy_rewards=None))


def test_estimators_that_exist_are_accepted():
    check_names(("rloo", "js", "remax", "reinforce++", MIDDLE), pool())
