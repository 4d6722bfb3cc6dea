"""The warm start: learn from careless demonstrations, so that reinforcement has work left to do.

Each demonstrated digit is wrong with probability `slip`. Imitating that gives a policy which knows
how to sort but often slips: the right answer is its likeliest one, and reinforcement learning has
only to make it likelier. A model that had merely not learned enough yet would be a slow start.

This is a loop of its own, not OpenRLHF's SFT program, because that one's start-up alone (processes,
DeepSpeed) costs as much time as the whole of this.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from openrlhf_js.tiny import task

LEARNING_RATE = 2e-3
WARM_UP_STEPS = 10
IGNORED = -100  # cross_entropy's mark for "no loss here"


def imitate(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    train: dict[int, list[str]],
    *,
    slip: float,
    steps: int,
    seed: int,
    batch_size: int = 64,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Trains the model in place on demonstrations for training prompts.

    Args:
        model: in float32.
        tokenizer: the model's.
        train: the digits of the training prompts, by length.
        slip: the probability that a demonstrated digit is wrong.
        steps: of AdamW, each on fresh demonstrations.
        seed: of the demonstrations.
        batch_size: demonstrations per step.
        on_step: called after each step with its number, from 1, and its loss in nats per token.
    """
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min(1.0, (done + 1) / WARM_UP_STEPS) * (1 - done / (steps + 1))
    )
    model.train()
    for step in range(1, steps + 1):
        tokens, targets = _demonstrations(tokenizer, task.draw(train, batch_size, rng), slip, rng)
        logits = model(tokens, use_cache=False).logits
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        on_step(step, loss.item())


def _demonstrations(
    tokenizer: PreTrainedTokenizerFast, many_digits: list[str], slip: float, rng: random.Random
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (b, T), padded on the right, and the next token at each place of a response (b, T)."""
    shape = len(many_digits), task.MAX_LENGTH
    tokens = torch.full(shape, tokenizer.pad_token_id)
    targets = torch.full(shape, IGNORED)
    for row, digits in enumerate(many_digits):
        asked = tokenizer.encode(task.prompt(digits))
        said = tokenizer.encode(task.careless_answer(digits, slip, rng) + task.END)
        end = len(asked) + len(said)
        tokens[row, :end] = torch.tensor(asked + said)
        targets[row, len(asked) - 1 : end - 1] = torch.tensor(said)
    return tokens, targets
