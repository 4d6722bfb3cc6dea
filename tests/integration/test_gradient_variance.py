"""A real run logs the variance of its gradient."""

from __future__ import annotations

import math

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

NAMES = ("js/gradient_variance", "js/gradient_norm_squared", "js/gradient_snr")


def test_two_ranks_with_whole_prompt_groups_log_the_gradient_variance(start):
    run = start(
        *("--algo.advantage.estimator", "js", "--ds.zero_stage", "2"),
        *("--actor.num_gpus_per_node", "2", "--train.micro_batch_size", "4"),
        *("--js.gradient_variance", "--js.group_micro_batches"),
    ).finish()
    assert run.status == 0, run.output[-3000:]
    run.check_advantages()
    scalars = run.scalars()
    steps = len(scalars["train/actor_grad_norm"])
    variance, norm_squared, snr = (scalars[f"train/{name}"] for name in NAMES)
    assert len(variance) == len(norm_squared) == len(snr) == steps > 0
    assert all(value > 0 and math.isfinite(value) for value in variance)
    for i in range(steps):
        assert snr[i] == pytest.approx(norm_squared[i] / variance[i], rel=1e-5)
        # the two add up to the squared norm of what trained, that is what DeepSpeed would clip by
        whole = scalars["train/actor_grad_norm"][i] ** 2
        assert variance[i] + norm_squared[i] == pytest.approx(whole, rel=1e-4)
