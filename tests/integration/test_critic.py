"""A critic of upstream's own estimator trains in our actors, on dynamic batches too."""

from __future__ import annotations

import math
import re

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


def test_a_critic_trains_on_dynamic_batches(start, policy):
    run = start(
        *("--algo.advantage.estimator", "gae", "--ds.zero_stage", "2", "--js.gradient_variance"),
        *("--critic.model_name_or_path", str(policy), "--critic.num_gpus_per_node", "1"),
        *("--train.dynamic_batch_enable", "--train.max_tokens_per_gpu", "64"),
    ).finish()
    assert run.status == 0, run.output[-3000:]
    # our loader reached the process that trains it: upstream's leaves what was in memory there
    assert re.search(r"OurCritic.*mean: tensor\(\[0\.?\].*std tensor\(\[1\.?\]", run.output)
    scalars = run.scalars()
    assert all(map(math.isfinite, scalars["train/critic_loss"]))
    assert all(variance > 0 for variance in scalars["train/js/gradient_variance"])
