"""An agent for `--train.agent_func_path` that tells the model of a wrong answer and asks again.

The reward of the whole trajectory is 1 if any try was right. Copy the file to change the task or
the words; docs/train.md says what an agent may do.
"""

from __future__ import annotations

from typing import Any

import torch
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor

from answer_graders.tasks import task_of
from answer_graders.thinking import with_opened_thinking

TASK = "countdown"
TRIES = 2
# What follows the model's <|im_end|> in Qwen's chat template.
AGAIN = "\n<|im_start|>user\nThat is wrong. Try again.<|im_end|>\n<|im_start|>assistant\n"


def second_try(task: str, again: str) -> type[MultiTurnAgentExecutor]:
    """The executor of a task; the model reads `again` after a wrong answer."""

    class Trying(AgentInstanceBase):
        def __init__(self) -> None:
            self.tries = 0

        async def step(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
            self.tries += 1
            label = task_of(task).check_label(states["label"])
            response = with_opened_thinking(states["observation_text"], states["action_text"])
            right = task_of(task).score(response, label).value
            done = right == 1 or self.tries == TRIES
            return {
                "rewards": torch.tensor(right if done else 0.0),  # rewards of turns are summed
                "scores": torch.tensor(right),
                "environment_feedback": "" if done else again,
                "done": done,
                "extra_logs": {"tries": torch.tensor(float(self.tries))},
            }

    class Executor(MultiTurnAgentExecutor):
        def __init__(self) -> None:
            super().__init__(Trying)

    return Executor


AgentExecutor = second_try(TASK, AGAIN)
