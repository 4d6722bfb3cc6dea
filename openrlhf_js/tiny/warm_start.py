"""The warm start: learn from careless demonstrations, so that reinforcement has work left to do.

Each demonstrated digit, move or operator is wrong with probability `slip`. Imitating that gives a
policy which knows what to do but often slips: the right answer is its likeliest one, and
reinforcement learning has only to make it likelier. A model that had merely not learned enough yet
would be a slow start.

This is a loop of its own, not OpenRLHF's SFT program, because that one's start-up alone (processes,
DeepSpeed) costs as much time as the whole of this.
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
    """Trains the model in place on demonstrations for training prompts.

    Args:
        model: in float32.
        tokenizer: the model's.
        task: says how to ask and to answer, how often to slip, and for how many steps.
        train: the training items, by kind.
        seed: of the demonstrations.
        batch_size: demonstrations per step.
        on_step: called after each step with its number, from 1, and its loss in nats per token.
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
        right = tokenizer.encode(task.right_response(task.label(item)) + END)
        said = [
            _careless(token, slips, task.slip, rng) if token in slips else token for token in right
        ]
        end = len(asked) + len(said)
        tokens[row, :end] = torch.tensor(asked + said)
        targets[row, len(asked) - 1 : end - 1] = torch.tensor(said)
    return tokens, targets


def _careless(right: int, slips: list[int], slip: float, rng: random.Random) -> int:
    """Another of the tokens in the right one's place, with probability `slip`."""
    return rng.choice([each for each in slips if each != right]) if rng.random() < slip else right
