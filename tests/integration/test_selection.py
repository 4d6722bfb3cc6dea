"""Prompts that are chosen, on the real stack: which ones, their weights, and a resumed run."""

import json
import shutil

import deaths
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

PARITY = """
import torch

def reward_func(queries, prompts, labels):
    sums = [sum(map(ord, query)) for query in queries]
    rewards = torch.tensor([float(number % 2) for number in sums])
    return {"rewards": rewards, "scores": rewards, "extra_logs": {}}
"""


def test_a_resumed_run_chooses_the_same_of_prompts_that_are_in_the_file_twice(
    start, prompts, tmp_path
):
    """Both are colocated; the second ends when its engine dies while it gets weights."""
    twice = tmp_path / "twice.jsonl"
    twice.write_text(prompts.read_text() * 2)
    # with a constant learning rate, steps do not depend on how many will follow
    flags = (*FLAGS, "--data.prompt_dataset", str(twice), "--actor.lr_scheduler", "constant")
    flags = (*flags, "--train.colocate_all")
    first = start(*flags).finish()
    assert first.status == 0, first.output[-3000:]
    uninterrupted = first.batches()
    assert len(uninterrupted) == 5
    _check_choices(uninterrupted, twice)
    logged = first.scalars()
    assert logged["train/js/effective_prompts"][0] == pytest.approx(24)  # and not 48
    assert logged["train/js/effective_prompts"][-1] < 24
    assert logged["train/js/oldest_prompt"][0] == 1

    _forget_after_step_2(first.folder)
    running = start(*flags, "--ckpt.load_enable", "--js.max_steps", "1000")
    running.until_batches(5)
    second = deaths.ends_when_killed(running, "sending weights", "engine")
    for batch, expected in zip(second.batches(), uninterrupted, strict=False):
        for name, values in expected.items():
            np.testing.assert_array_equal(batch[name], values)


def test_two_ranks_choose_until_one_dies_while_the_other_waits(start, prompts):
    flags = (*FLAGS, "--actor.num_gpus_per_node", "2", "--js.max_steps", "1000")
    running = start(*flags)
    running.until_batches(2)
    ended = deaths.ends_when_killed(running, "generating", "rank")
    _check_choices(ended.batches(), prompts)


def _forget_after_step_2(folder):
    shutil.rmtree(folder / "checkpoints" / "_actor" / "global_step4")
    (folder / "checkpoints" / "_actor" / "latest").write_text("global_step2")
    for batch in sorted((folder / "batches").glob("*"))[2:]:
        batch.unlink()


def test_the_asynchronous_trainer_chooses_by_all_rewards_it_has_sampled(start, prompts):
    flags = (*FLAGS, "--train.async_enable", "--ds.zero_stage", "1")
    first = start(*flags, grader=PARITY).finish()
    assert first.status == 0, first.output[-3000:]
    _check_choices(first.batches(), prompts)
    assert len(first.batches()) == 5
    logged = first.scalars()
    assert logged["train/js/effective_prompts"][-1] < 24
    rated = [values for tag, values in logged.items() if "js/rated_responses_" in tag]
    assert sum(map(sum, rated)) == 4 * 8 * 4  # nothing was known before the first step

    _forget_after_step_2(first.folder)
    second = start(*flags, "--ckpt.load_enable", grader=PARITY).finish()
    assert second.status == 0, second.output[-3000:]
    assert len(second.batches()) == 5
    _check_choices(second.batches(), prompts)  # its responses may be of a newer policy


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
    assert (weights - 1).abs().max() > 0.01  # the last step does not weight all alike
