"""What is logged: keys, values by hand, and errors that are right on average."""

import re
from pathlib import Path

import pytest
import torch

from openrlhf_js.estimators import ESTIMATORS, baseline, diagnostics

REWARDS = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)


def test_values_by_hand():
    values = diagnostics("js", REWARDS)
    mean = 2 / 3 * (4 / 9)
    # advantages 1, -1; 1/3, 1/3; -1/3, -1/3, and sigma^2 = 1/6
    mse = (1 + 1 / 9 + 1 / 9) / 3 - 1 / 6
    assert values == pytest.approx(
        {
            "js/shrinkage": mean,
            "js/share_of_equal_groups": 2 / 3,
            "js/masked_responses": 0.0,
            "js/value_error_rloo": 1 / 6,
            "js/value_error": mse,
        }
    )
    assert diagnostics("js", REWARDS.flatten(), groups=[0, 0, 1, 1, 2, 2]) == values
    with pytest.raises(ValueError, match="between 0 and 1"):
        diagnostics("maxrl", -REWARDS)


def test_the_table_of_curves_has_all_that_is_logged():
    page = (Path(__file__).parents[2] / "docs" / "train.md").read_text()
    rows = page.split("| Curve, `js/...` |")[1].split("\n\n")[0].splitlines()[2:]
    listed = [f"js/{name}" for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    options = dict(greedy_rewards=REWARDS[:, 0], shrinkage=0.3, squared_score_norms=REWARDS + 1)
    options["lengths"] = torch.ones_like(REWARDS)
    logged = {key for name in ESTIMATORS for key in diagnostics(name, REWARDS, **options)}
    measured = {"js/gradient_snr", "js/gradient_variance", "js/gradient_norm_squared"}
    assert sorted(listed) == sorted(logged | measured)


def test_shrinkage_is_of_the_live_estimator():
    def shrinkage(name):
        return diagnostics(name, REWARDS, shrinkage=0.7).get("js/shrinkage")

    assert shrinkage("js_fixed") == pytest.approx(0.7)
    assert shrinkage("rloo") is None
    # one response leaves the batch mean alone, one prompt the prompt mean
    assert diagnostics("js", REWARDS[:, :1])["js/shrinkage"] == 1
    assert diagnostics("js", REWARDS[:1])["js/shrinkage"] == 0


def test_masked_responses_are_counted_and_equal_groups_judged_without_them():
    rewards = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    values = diagnostics("js", rewards, mask=mask)
    assert values["js/masked_responses"] == 1
    assert values["js/share_of_equal_groups"] == 0.5


WITH_AN_ERROR = [
    name
    for name, estimator in ESTIMATORS.items()
    if estimator.unbiased or (estimator.error is not None and not estimator.needs_unit_rewards)
]


def test_an_error_that_cannot_be_estimated_is_not_logged():
    assert "js/value_error" not in diagnostics("mc_grpo", REWARDS)
    assert "js/value_error_rloo" in diagnostics("mc_grpo", REWARDS)


@pytest.mark.parametrize("name", WITH_AN_ERROR)
def test_estimated_errors_match_the_true_ones(name):
    """Mean over many batches of the estimate against the measured distance to the values."""
    draw = torch.Generator().manual_seed(1)
    n = 24
    m = 4
    rounds = 60
    truth = 0.0
    estimate = 0.0
    for _ in range(rounds):
        values = torch.randn(n, 1, generator=draw, dtype=torch.float64)
        noise = torch.randn(n, m + 1, generator=draw, dtype=torch.float64)
        rewards = (values + noise)[:, :m]
        greedy = (values + noise)[:, m]
        options = dict(greedy_rewards=greedy, shrinkage=0.3)
        truth += (baseline(name, rewards, **options) - values).square().mean().item()
        estimate += diagnostics(name, rewards, **options)["js/value_error"]
    assert estimate / truth == pytest.approx(1, abs=0.07)
