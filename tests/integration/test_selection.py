"""Prompts that are chosen, on the real stack: which ones, their weights, and a resumed run."""

import json
import shutil

import numpy as np
import pytest
import torch

from openrlhf_js import estimators
from openrlhf_js.estimators.memory import key_of
from openrlhf_js.estimators.selection import PromptSelector

pytestmark = pytest.mark.integration

FLAGS = (
    *("--advantage_estimator", "js_plus", "--js.prompt_selection", "weighted"),
    *("--train.num_episodes", "1000", "--js.max_steps", "5", "--train.seed", "7"),
    *("--ckpt.save_steps", "2", "--ckpt.max_num", "9"),
)


def test_chosen_prompts_are_weighted_and_a_resumed_run_chooses_the_same(start, prompts):
    first = start(*FLAGS).finish()
    assert first.status == 0, first.output[-3000:]
    uninterrupted = first.batches()
    assert len(uninterrupted) == 5
    _check_choices(uninterrupted, prompts)
    logged = first.scalars()
    assert logged["train/js/effective_prompts"][0] == pytest.approx(24)
    assert logged["train/js/effective_prompts"][-1] < 24
    assert logged["train/js/oldest_prompt"][0] == 1

    shutil.rmtree(first.folder / "checkpoints" / "_actor" / "global_step4")
    (first.folder / "checkpoints" / "_actor" / "latest").write_text("global_step2")
    for batch in sorted((first.folder / "batches").glob("*"))[2:]:
        batch.unlink()
    second = start(*FLAGS, "--ckpt.load_enable").finish()
    assert second.status == 0, second.output[-3000:]
    batches = second.batches()
    assert len(batches) == 5
    for batch, expected in zip(batches, uninterrupted, strict=True):
        for name, values in expected.items():
            np.testing.assert_array_equal(batch[name], values)


def _check_choices(batches, prompts):
    """The prompts are those that a selector of the same rewards chooses; so are the weights."""
    rows = [json.loads(line) for line in prompts.read_text().splitlines()]
    texts = [row["input"] for row in rows]
    keys = torch.tensor([key_of(row["input"], row["label"], "default") for row in rows])
    selector = PromptSelector(keys, batch_size=8, seed=7)
    for step, batch in enumerate(batches):
        chosen = selector.choose(step)
        assert batch["prompts"][:, 0].tolist() == [texts[row] for row in chosen]
        rewards = torch.tensor(batch["rewards"])
        weights = selector.weights(keys[chosen], step)
        expected = estimators.advantage("js_plus", rewards) * weights[:, None]
        np.testing.assert_allclose(batch["advantages"], expected.numpy(), atol=1e-5)
        selector.learn(keys[chosen], rewards, step)
    assert (weights - 1).abs().max() > 0.2


def test_one_episode_leaves_nothing_to_choose_by(start):
    ended = start("--advantage_estimator", "js", "--js.prompt_selection", "informative").finish()
    assert ended.status == 0, ended.output[-3000:]
    assert "--js.prompt_selection informative changes nothing" in ended.output
    ended.check_advantages()
