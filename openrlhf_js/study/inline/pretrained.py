"""A pretrained model at the start of a study: it imitates right answers for some steps.

As it comes, it answers small questions in sentences, and no such answer is exact. A few steps of
imitation teach the form, and hardly more.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from openrlhf_js.study.inline.rollout import right_responses, valid_tokens
from openrlhf_js.tiny.policy import load
from openrlhf_js.tiny.tasks import Problem, TinyTask, draw

BATCH_SIZE = 12
LEARNING_RATE = 5e-5


def warm_start(
    folder: Path,
    task: TinyTask,
    train: list[list[Any]],
    *,
    model_folder: Path,
    dtype: torch.dtype,
    device: str,
    seed: int,
    on_step: Callable[[int, float], None],
) -> None:
    """Makes a Hugging Face folder with the model after it has imitated right responses.

    Passes compute in `dtype`; weights and gradients are float32.
    """
    policy = load(model_folder, chat=True, dtype=dtype, device=device)
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(
        policy.model.parameters(), lr=LEARNING_RATE, weight_decay=0, fused=True
    )
    for step in range(1, task.warm_start_steps + 1):
        items = draw(train, BATCH_SIZE, rng)
        problems = [Problem(task.prompt(item), task.label(item)) for item in items]
        responses = right_responses(policy, task, problems)
        valid = valid_tokens(policy, responses)
        log_probs = policy.log_probs(
            policy.prompts([problem.prompt for problem in problems]), responses
        )
        loss = -(log_probs * valid).sum() / valid.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
        on_step(step, loss.item())
    # In float32: weights that bfloat16 holds exactly take many steps of 1e-5 to move in its passes.
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
