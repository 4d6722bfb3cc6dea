"""Tiny policies for experiments: warm-started, and on their way through a plain training.

The training is REINFORCE with the baseline `rloo` on the quickstart's settings, in this process: no
Ray, no DeepSpeed, no vLLM. Its gradient is the one that the variance lab measures.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from openrlhf_js.estimators import advantage
from openrlhf_js.lab.policy_gradient import ScoreSum, TokenSequence, terms
from openrlhf_js.sampling.engines import Policy, Transformers, key
from openrlhf_js.stats.estimate import Floats
from openrlhf_js.tiny.model import imitate, make_model, make_tokenizer, save
from openrlhf_js.tiny.tasks import TASKS, TinyTask, draw

# as the quickstart's stack
PROMPTS = 64
RESPONSES = 4
LEARNING_RATE = 3e-4
HELD_OUT = 200
# as OpenRLHF's
BETAS = (0.9, 0.95)  # of AdamW
MAX_NORM = 1.0  # of the gradient


class ScoredResponses(NamedTuple):
    """m responses to each of n prompts, prompt by prompt, and their rewards (n, m)."""

    responses: list[TokenSequence]
    rewards: Floats


def warm_start(task: TinyTask, seed: int, folder: Path, on_step: Callable[[int], None]) -> None:
    """Leaves a model that has imitated careless demonstrations, unless the folder has one."""
    if (folder / "tokenizer_config.json").is_file():  # written last
        return
    tokenizer = make_tokenizer(task)
    model = make_model(tokenizer, seed)
    imitate(
        model,
        tokenizer,
        task,
        training_items(task, seed),
        seed=seed,
        on_step=lambda step, loss: on_step(step),
    )
    save(model, tokenizer, folder)


def training_items(task: TinyTask, seed: int) -> list[list[Any]]:
    """The items that a policy of this seed learns from, by kind."""
    return task.split(seed, HELD_OUT).train


def engine_of(task: TinyTask, folder: Path, tokenizer: PreTrainedTokenizerFast) -> Transformers:
    """What samples from the policy in a folder, on the CPU; its `model` may be trained."""
    policy = Policy(
        folder,
        "cpu",
        "float32",
        temperature=1.0,
        top_p=1.0,
        ends=(tokenizer.eos_token_id,),
        max_new_tokens=task.max_new_tokens,
        longest_prompt=task.max_prompt_tokens,
    )
    return Transformers(policy)


def sample(
    engine: Transformers,
    tokenizer: PreTrainedTokenizerFast,
    task: TinyTask,
    items: Sequence[Any],
    m: int,
    seed: int,
) -> ScoredResponses:
    """m graded responses to each item's prompt, all in one batch."""
    repeated_items = [item for item in items for _ in range(m)]
    prompts = [tokenizer.encode(task.prompt(item)) for item in repeated_items]
    keys = [key(seed, *divmod(row, m)) for row in range(len(repeated_items))]
    responses = engine.sample(prompts, keys)
    texts = tokenizer.batch_decode(responses)
    rewards = [
        task.score(text, task.label(item)).value
        for text, item in zip(texts, repeated_items, strict=True)
    ]
    return ScoredResponses(
        responses=[
            TokenSequence(prompt, response)
            for prompt, response in zip(prompts, responses, strict=True)
        ],
        rewards=np.array(rewards).reshape(len(items), m),
    )


def train(name: str, seed: int, steps: Sequence[int], folder: Path) -> None:
    """Warm-starts and trains a policy on a task; the folder appears once it is complete.

    It gets `step-K/`, the policy after K steps of training.
    """
    if folder.is_dir():
        return
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a stopped run
    task = TASKS[name]
    warm_start(task, seed, unfinished / "start", lambda step: None)
    tokenizer = make_tokenizer(task)
    engine = engine_of(task, unfinished / "start", tokenizer)
    scores = ScoreSum(engine.model)
    optimizer = torch.optim.AdamW(
        scores.parameters, lr=LEARNING_RATE, betas=BETAS, weight_decay=0.0
    )
    items = training_items(task, seed)
    generator = random.Random(f"train/{seed}")
    for step in range(max(steps) + 1):
        if step in steps:
            engine.model.save_pretrained(unfinished / f"step-{step}")
        if step < max(steps):
            drawn = sample(
                engine,
                tokenizer,
                task,
                items=draw(items, PROMPTS, generator),
                m=RESPONSES,
                seed=key(seed, 0, step),
            )
            learn(scores, optimizer, drawn)
    unfinished.rename(folder)


def learn(scores: ScoreSum, optimizer: torch.optim.Optimizer, drawn: ScoredResponses) -> None:
    """One step of gradient ascent."""
    rewards = torch.from_numpy(drawn.rewards)
    weights = advantage("rloo", rewards).numpy() / rewards.numel()
    scores.clear()
    scores.add(terms(drawn.responses, weights.ravel()))
    for parameter, total in zip(scores.parameters, scores.total, strict=True):
        parameter.grad = -total
    torch.nn.utils.clip_grad_norm_(scores.parameters, MAX_NORM)
    optimizer.step()
    optimizer.zero_grad()
