"""Values: by hand, against the slow oracle, and estimators that reduce to one another."""

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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("no_baseline", [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]),
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
    ],
)
def test_baselines_by_hand(name, expected):
    greedy = torch.tensor([0.2, 0.4, 0.6], dtype=torch.float64)
    close(baseline(name, REWARDS, greedy_rewards=greedy, shrinkage=0.4), expected)


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
