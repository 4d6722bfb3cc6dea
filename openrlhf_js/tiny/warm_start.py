"""The warm start: imitate careless demonstrations, so that reinforcement has work left to do.

Each demonstrated digit, move or operator is wrong with probability `slip`. Imitation gives a policy
whose most likely answer is right but which often slips; reinforcement learning makes the right
answer more likely. This loop is not OpenRLHF's SFT program, whose start-up alone takes as long.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from openrlhf_js.tiny.tasks import END, TinyTask, draw

LEARNING_RATE = 2e-3
WARM_UP_STEPS = 10
IGNORED = -100  # cross_entropy's mark for "no loss here"


def imitate(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    task: TinyTask,
    train: list[list[Any]],
    *,
    seed: int,
    batch_size: int = 64,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Trains a float32 model in place on demonstrations for the training items (by kind).

    `on_step` is called after each step with its number, from 1, and its loss in nats per token.
    """
    rng, steps = random.Random(seed), task.warm_start_steps
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min(1.0, (done + 1) / WARM_UP_STEPS) * (1 - done / (steps + 1))
    )
    model.train()
    for step in range(1, steps + 1):
        tokens, targets = _demonstrations(tokenizer, task, draw(train, batch_size, rng), rng)
        logits = model(tokens, use_cache=False).logits
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        on_step(step, loss.item())


def _demonstrations(
    tokenizer: PreTrainedTokenizerFast, task: TinyTask, items: Sequence[Any], rng: random.Random
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (b, T), padded on the right, and the next token at each place of a response (b, T)."""
    shape = len(items), task.max_tokens
    tokens = torch.full(shape, tokenizer.pad_token_id)
    targets = torch.full(shape, IGNORED)
    slips = tokenizer.convert_tokens_to_ids(list(task.slips))
    for row, item in enumerate(items):
        asked = tokenizer.encode(task.prompt(item))
        response = tokenizer.encode(task.right_response(task.label(item)) + END)
        for i, right in enumerate(response):
            if right in slips and rng.random() < task.slip:
                response[i] = rng.choice([other for other in slips if other != right])
        end = len(asked) + len(response)
        tokens[row, :end] = torch.tensor(asked + response)
        targets[row, len(asked) - 1 : end - 1] = torch.tensor(response)
    return tokens, targets
