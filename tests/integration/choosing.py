"""What a run that chooses prompts must have chosen, and how to take it back to an earlier step."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from openrlhf_js import estimators
from openrlhf_js.estimators.memory import key_of
from openrlhf_js.plugin.selection import PromptSelector

SEED = 7
FLAGS = (
    *("--js.prompt_selection", "informative", "--train.seed", str(SEED)),
    *("--train.num_episodes", "1000", "--ckpt.save_steps", "2", "--ckpt.max_num", "9"),
)


class Prompt(NamedTuple):
    """A row of the prompts' file, as the run knows it."""

    text: str
    label: Any
    datasource: str = "default"


def known(row: dict[str, Any]) -> Prompt:
    """What a run knows a row by: a whole number by its text, and few labels by their datasource."""
    label = row["label"]
    datasource = "default" if type(label) in (str, int) else ""  # others cannot carry it
    return Prompt(row["input"], str(label) if isinstance(label, int) else label, datasource)


def check_choices(batches: list[dict[str, np.ndarray]], prompts: list[Prompt]) -> None:
    """The prompts are those that a selector of the same rewards chooses."""
    keys = torch.tensor([key_of(*prompt) for prompt in prompts])
    selector = PromptSelector(keys, batch_size=len(batches[0]["rewards"]), seed=SEED)
    for batch in batches:
        chosen = selector.choose()
        assert batch["prompts"][:, 0].tolist() == [prompts[row].text for row in chosen]
        rewards = torch.tensor(batch["rewards"])
        greedy = torch.tensor(batch["greedy_rewards"])
        advantages = estimators.advantage(
            str(batch["estimator"]), rewards, greedy_rewards=greedy if len(greedy) else None
        )
        np.testing.assert_allclose(batch["advantages"], advantages.numpy(), atol=1e-5)
        selector.learn(keys[chosen], rewards, torch.ones_like(rewards, dtype=torch.bool))
    probabilities = selector.probabilities()
    assert probabilities.max() > 1.2 * probabilities.min()  # the prompts have come to differ
    assert max(np.abs(batch["advantages"]).max() for batch in batches) > 0.01


def forget_after_step_2(folder: Path) -> None:
    """Leaves a run's checkpoint of step 2, and its batches until then."""
    checkpoints = folder / "checkpoints" / "_actor"
    for checkpoint in checkpoints.glob("global_step*"):
        if checkpoint.name != "global_step2":
            shutil.rmtree(checkpoint)
    (checkpoints / "latest").write_text("global_step2")
    for batch in sorted((folder / "batches").glob("*"))[2:]:
        batch.unlink()
