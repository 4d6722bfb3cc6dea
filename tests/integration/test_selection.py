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

PARITY = """
import torch

def reward_func(queries, prompts, labels):
    sums = [sum(map(ord, query)) for query in queries]
    rewards = torch.tensor([float(number % 2) for number in sums])
    return {"rewards": rewards, "scores": rewards, "extra_logs": {}}
"""


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

    _forget_after_step_2(first.folder)
    second = start(*FLAGS, "--ckpt.load_enable").finish()
    assert second.status == 0, second.output[-3000:]
    batches = second.batches()
    assert len(batches) == 5
    for batch, expected in zip(batches, uninterrupted, strict=True):
        for name, values in expected.items():
            np.testing.assert_array_equal(batch[name], values)


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
    assert (weights - 1).abs().max() > 0.1


def test_a_colocated_run_whose_prompts_are_in_the_file_twice(start, prompts, tmp_path):
    twice = tmp_path / "twice.jsonl"
    twice.write_text(prompts.read_text() * 2)
    flags = ("--train.colocate_all", "--data.prompt_dataset", str(twice))
    ended = start(*FLAGS, *flags).finish()
    assert ended.status == 0, ended.output[-3000:]
    assert len(ended.batches()) == 5
    _check_choices(ended.batches(), twice)
    assert ended.scalars()["train/js/effective_prompts"][0] == pytest.approx(24)  # and not 48


def test_one_episode_leaves_nothing_to_choose_by(start):
    ended = start("--advantage_estimator", "js", "--js.prompt_selection", "informative").finish()
    assert ended.status == 0, ended.output[-3000:]
    assert "--js.prompt_selection informative changes nothing" in ended.output
    ended.check_advantages()
