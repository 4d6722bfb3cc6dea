"""What a small run with a reward model begins with: preferences, prompts, and a careless policy."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from openrlhf_js.tiny import preferences
from openrlhf_js.tiny.model import make_model, make_tokenizer, save
from openrlhf_js.tiny.preferences import HELD_OUT_PROMPTS, TASK
from openrlhf_js.tiny.quickstart import write_prompts
from openrlhf_js.tiny.tasks import draw
from openrlhf_js.tiny.warm_start import imitate

POLICY = "policy"


def prepare(
    folder: Path,
    *,
    seed: int = 0,
    train: int = 64_000,
    held_out: int = 4_000,
    prompts: int = 6_400,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Writes all that reward training, its evaluation and reinforcement learning need.

    The folder gets `train.jsonl` and `held_out.jsonl`, pairs with the columns prompt, chosen and
    rejected; `prompts.jsonl` and `prompts_held_out.jsonl`, with input, label and datasource; and
    `policy/`, which has imitated careless responses: the start of policy and reward model alike.

    Args:
        folder: made if it is not there.
        seed: of everything.
        train: pairs to train the reward model on.
        held_out: pairs to measure it on; their prompts are not in `train.jsonl`.
        prompts: to train the policy on, some of them several times.
        on_step: called after each step of the imitation with its number, from 1, and its loss.
    """
    preferences.write(folder, seed=seed, train=train, held_out=held_out)
    split = TASK.split(seed, HELD_OUT_PROMPTS)
    drawn = draw(split.train, prompts, random.Random(f"prompts/{seed}"))
    write_prompts(folder / "prompts.jsonl", TASK, drawn, "train")
    write_prompts(folder / "prompts_held_out.jsonl", TASK, split.held_out, "held_out")
    tokenizer = make_tokenizer(TASK)
    policy = make_model(tokenizer, seed)
    imitate(policy, tokenizer, TASK, split.train, seed=seed, on_step=on_step)
    save(policy, tokenizer, folder / POLICY)
