"""js_plus with a half-life: a run that stops and goes on has the history of one that never did."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from openrlhf_js import estimators

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1000)]

PLUS = (
    *("--algo.advantage.estimator", "js_plus", "--js.half_life", "5"),
    *("--ckpt.save_steps", "3"),
)


def test_the_history_goes_on_where_the_checkpoint_left_it(start):
    first = start(*PLUS).finish(timeout_seconds=500)
    assert first.status == 0, first.output[-3000:]
    scalars = first.scalars()
    assert scalars["train/js/running_prompts"][0] == 0 < scalars["train/js/running_prompts"][2]

    resumed = ("--ckpt.load_enable", "--train.num_episodes", "2")
    second = start(*PLUS, *resumed).finish(timeout_seconds=500)
    assert second.status == 0, second.output[-3000:]
    batches = second.batches()  # of both runs
    assert len(batches) == 6
    history = estimators.start_history(5)
    for batch in batches:
        rewards = torch.tensor(batch["rewards"])
        expected = estimators.advantage("js_plus", rewards, history=history)
        np.testing.assert_allclose(batch["advantages"], expected.numpy(), atol=1e-5)
        history = estimators.update_history(history, rewards)
    afresh = estimators.advantage("js_plus", torch.tensor(batches[3]["rewards"]))
    assert np.abs(batches[3]["advantages"] - afresh.numpy()).max() > 1e-3
