"""Values: by hand, against the slow oracle, and estimators that reduce to one another."""

import math

import pytest
import torch

from openrlhf_js.estimators import ESTIMATORS, advantage, baseline, group_statistics
from openrlhf_js.estimators.baselines.grad import JS_GRAD
from openrlhf_js.estimators.catalogue import RIVALS

REWARDS = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)


def close(result, expected):
    torch.testing.assert_close(
        result, torch.as_tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12
    )


def test_statistics_by_hand():
    stats = group_statistics(REWARDS)
    close(stats.prompt_mean, [0.5, 1.0, 0.0])
    close(stats.loo_prompt_mean, [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    close(stats.loo_batch_mean, [0.5, 0.25, 0.75])
    # Only prompt 0 varies: sum of squares 1/2, over m (m - 1) = 2, over two other prompts.
    close(stats.within_variance, [0.0, 1 / 8, 1 / 8])
    close(stats.between_variance, [1 / 4, 1 / 16, 1 / 16])
    close(stats.shrinkage, [0.0, 2 / 3 * 2 / 3, 2 / 3 * 2 / 3])


# For prompts 1 and 2 of js_plus: sigma^2 = 1/4, v = 1/8, so v2 = 1/4; the unbiased dispersion 1/8
# is all noise, so s2 = 1/8, half of sigma^2, and T = 3/2 s2 + 1/16; d = 3/4, and kappa = 6.
PLUS = (1 / 4) / (1 / 4 + 3 / 16 + 1 / 16 + 9 / 16 / 6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("reinforce", [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]),
        ("rloo", [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]),
        ("bloo", [[0.5, 0.5], [0.25, 0.25], [0.75, 0.75]]),
        ("grpo", [[0.5, 0.5], [1.0, 1.0], [0.0, 0.0]]),
        ("dr_grpo", [[0.5, 0.5], [1.0, 1.0], [0.0, 0.0]]),
        ("reinforce++", [[0.5, 0.5]] * 3),
        ("remax", [[0.2, 0.2], [0.4, 0.4], [0.6, 0.6]]),
        # v = 1/12, s = 1/4: lambda = 1/4.
        ("js1", [[0.5, 0.5], [7 / 8, 7 / 8], [1 / 8, 1 / 8]]),
        ("js", [[0.0, 1.0], [2 / 3, 2 / 3], [1 / 3, 1 / 3]]),
        ("js_fixed", [[0.2, 0.8], [0.7, 0.7], [0.3, 0.3]]),
        ("js_plus", [[0.0, 1.0], [1 - 0.75 * PLUS] * 2, [0.75 * PLUS] * 2]),
    ],
)
def test_baselines_by_hand(name, expected):
    greedy = torch.tensor([0.2, 0.4, 0.6], dtype=torch.float64)
    close(baseline(name, REWARDS, greedy_rewards=greedy, shrinkage=0.4), expected)


def test_scaled_advantages_by_hand():
    one = 0.5 / (0.5 + 1e-8)
    close(advantage("grpo", REWARDS), [[one, -one], [0.0, 0.0], [0.0, 0.0]])
    close(advantage("reinforce++", REWARDS), [[one, -one], [one, one], [-one, -one]])


SIZES = [(2, 2), (3, 5), (33, 3), (1, 3), (5, 1)]
CASES = [
    (name, n, m)
    for name, estimator in ESTIMATORS.items()
    if estimator not in (*RIVALS, JS_GRAD)  # test_rivals.py and test_grad.py work these out
    for n, m in SIZES
    if n >= estimator.least_prompts and m >= estimator.least_responses
]


@pytest.mark.parametrize(("name", "n", "m"), CASES)
def test_agrees_with_the_slow_oracle(name, n, m, slow, batch):
    rewards = batch(n, m)
    greedy = batch(n, 1, seed=1)[:, 0]
    close(
        baseline(name, rewards, greedy_rewards=greedy, shrinkage=0.3),
        slow["baseline"](name, rewards, greedy, 0.3),
    )
    close(
        advantage(name, rewards, greedy_rewards=greedy, shrinkage=0.3),
        slow["advantage"](name, rewards, greedy, 0.3),
    )


def test_fixed_shrinkage_spans_rloo_to_bloo(batch):
    rewards = batch(7, 3)
    assert torch.equal(baseline("js_fixed", rewards, shrinkage=0), baseline("rloo", rewards))
    assert torch.equal(baseline("js_fixed", rewards, shrinkage=1), baseline("bloo", rewards))


def test_dr_grpo_is_rloo_scaled_and_reinforce_plus_plus_grpo_of_one_prompt(batch):
    rewards = batch(4, 5)
    close(advantage("dr_grpo", rewards), advantage("rloo", rewards) * (4 / 5))
    close(advantage("reinforce++", rewards[:1]), advantage("grpo", rewards[:1]))


def test_openrlhf_has_these_means_with_and_without_a_scale(batch):
    rewards = batch(4, 5)
    assert torch.equal(baseline("flash_reinforce", rewards), baseline("reinforce++", rewards))
    assert torch.equal(baseline("reinforce_baseline", rewards), baseline("dr_grpo", rewards))
    assert torch.equal(advantage("flash_reinforce", rewards), rewards - rewards.mean())
    whitened = advantage("reinforce_baseline", rewards)
    assert float(whitened.square().mean()) == pytest.approx(1)


def test_js_plus_nears_the_best_coefficient_with_many_prompts():
    """With values N(0, 1/2) and noise N(0, 1), m = 4: lambda = (1/3) / (1/3 + 1/2)."""
    draw = torch.Generator().manual_seed(0)
    values = torch.randn(50_000, 1, generator=draw) * math.sqrt(0.5)
    rewards = values + torch.randn(50_000, 4, generator=draw)
    plain, plus = (
        baseline(name, rewards)[0, 0] - baseline("rloo", rewards)[0, 0]
        for name in ("js", "js_plus")
    )
    span = (baseline("bloo", rewards) - baseline("rloo", rewards))[0, 0]
    assert plus / span == pytest.approx(0.4, abs=0.01)
    assert plain / span == pytest.approx(0.25, abs=0.01)


def test_js_plus_with_groups_of_different_sizes():
    """Prompt 0, by hand: the others' means are 1 and 1/3, their variances 0 and 1/3."""
    rewards = torch.tensor([[1, 0, 9], [1, 1, 1], [0, 1, 0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False], [True] * 3, [True] * 3])
    # sigma^2 = 1/6 = v2, v = 1/18, s_net = 2/9 - v, guard = v: T = 3/2 * 2/9 + v / 2; kappa = 6.
    expected = 1 / 6 + 3 / 9 + 1 / 36
    first = (1 / 6) / (expected + (2 / 3) ** 2 / 6)
    second = (1 / 6) / (expected + (1 / 3) ** 2 / 6)
    close(
        baseline("js_plus", rewards, mask=mask)[0],
        [first * 2 / 3, (1 - second) + second * 2 / 3, 0.0],
    )


def test_js_plus_hardly_shrinks_a_prompt_that_contradicts_the_batch(batch):
    rewards = torch.cat([batch(15, 8) / 4, torch.zeros(1, 8, dtype=torch.float64)])
    shifts = []
    for distance in (2.0, 20.0, 200.0):
        rewards[-1] = distance + batch(1, 8)[0]
        shift = (baseline("js_plus", rewards) - baseline("rloo", rewards))[-1]
        shifts.append(shift.abs().max())
    assert shifts[0] > 3 * shifts[1] > 20 * shifts[2]


def test_js_plus_does_not_lose_where_a_rare_kind_of_prompt_is_missing():
    """5 % of the values 0.9, the rest 0.02: the others often show no prompt of the rare kind."""
    draw = torch.Generator().manual_seed(0)
    errors = {"rloo": 0.0, "js": 0.0, "js_plus": 0.0}
    for _ in range(300):
        rare = torch.rand(16, 1, generator=draw) < 0.05
        values = torch.where(rare, 0.9, 0.02).double()
        rewards = (torch.rand(16, 8, generator=draw) < values).double()
        for name in errors:
            errors[name] += (baseline(name, rewards) - values).square().mean().item()
    assert errors["js_plus"] < 0.9 * errors["rloo"] < errors["js"]
