"""Preferences with a known truth: echo three letters, `hea=` -> `hea`; a near letter counts half.

Every response has a true score, and of two responses to one prompt the first is chosen with the
probability of Bradley and Terry (1952), sigmoid of the difference of their true scores. So it is
known what a perfect reward model reaches, and how good a policy's responses truly become.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from openrlhf_js.tasks.record import Score
from openrlhf_js.tiny.tasks import END, TinySplit, TinyTask, sample_items

LETTERS = "abcdefgh"
ASKED = 3  # letters of a prompt
LONGEST = 4  # letters of a response
SCALE = 1.5  # true scores then predict 85 to 90 % of the labels
HELD_OUT_PROMPTS = 128  # a quarter of all


def true_score(letters: str, response: str) -> float:
    """The true score of a response to these letters, in log-odds; defined for any text.

        scale * (sum over places of 1 - distance / 2 - letters missing or in excess)

    The distance is in the alphabet, from the letter asked for there; other characters are as far
    as the farthest letters. One end of the response is not counted.
    """

    text = response.removesuffix(END)
    nearness = 0.0
    for asked, answered in zip(letters, text, strict=False):
        nearness += 1 - _distance(asked, answered) / 2
    missing_or_excess = abs(len(text) - len(letters))
    return SCALE * (nearness - missing_or_excess)


def _distance(asked: str, answered: str) -> int:
    """How far two letters are from each other in the alphabet."""
    if answered not in LETTERS:
        return len(LETTERS) - 1
    return abs(LETTERS.index(asked) - LETTERS.index(answered))


def split(seed: int, held_out: int) -> TinySplit:
    """All prompts: three quarters to train on, and so many of the others."""
    prompts = ["".join(letters) for letters in product(LETTERS, repeat=ASKED)]
    random.Random(f"split/{seed}").shuffle(prompts)
    return TinySplit(train=[prompts[HELD_OUT_PROMPTS:]], held_out=prompts[:held_out])


def preferences(prompts: list[list[str]], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rows of a preference file, labelled by their true scores; no pair occurs twice.

    `prompts` are letters of prompts, by kind; every kind is equally likely. `subset` is how many
    different letters a prompt has; scores are in log-odds.
    """
    rng = random.Random(f"preferences/{seed}")
    seen: set[tuple[str, frozenset[str]]] = set()
    for letters in sample_items(prompts, count, rng):
        chosen, rejected = _new_pair(letters, rng, seen)
        gap = true_score(letters, chosen) - true_score(letters, rejected)
        if rng.random() >= 1 / (1 + math.exp(-gap)):
            chosen, rejected = rejected, chosen
        different = len(set(letters))
        yield {
            "prompt": TASK.prompt(letters),
            "chosen": chosen + END,
            "rejected": rejected + END,
            "subset": f"{different} different letter{'s' * (different > 1)}",
            "chosen_score": true_score(letters, chosen),
            "rejected_score": true_score(letters, rejected),
        }


def _new_pair(
    letters: str, rng: random.Random, seen: set[tuple[str, frozenset[str]]]
) -> tuple[str, str]:
    """Two different responses that were not a pair before, which `seen` remembers."""
    while True:
        first = _response(letters, rng)
        second = _response(letters, rng)
        pair = (letters, frozenset((first, second)))
        if first != second and pair not in seen:
            seen.add(pair)
            return first, second


def _response(letters: str, rng: random.Random) -> str:
    """A response of any quality, so that a policy finds no kind that was never compared."""
    share_right = rng.random()
    response = []
    for letter in letters:
        is_right = rng.random() < share_right
        response.append(letter if is_right else rng.choice(LETTERS))
    if rng.random() < 0.3:  # too short or too long
        padded = response + rng.choices(LETTERS, k=LONGEST)
        response = padded[: rng.randint(1, LONGEST)]
    return "".join(response)


TASK = TinyTask(  # the policy to begin with echoes, but often slips
    tokens=("=", *LETTERS),
    slips=tuple(LETTERS),
    slip=0.5,
    warm_start_steps=300,
    max_prompt_tokens=ASKED + 1,
    max_new_tokens=LONGEST + 1,
    grader="",
    split=split,
    prompt=lambda letters: f"{letters}=",
    label=str,
    right_response=str,
    score=lambda response, letters: Score(true_score(letters, response), "correct", letters),
)


def write_reward_model(folder: Path, seed: int = 0, task: TinyTask = TASK) -> None:
    """Writes a reward model with random weights, in the layout that OpenRLHF's training saves."""
    import torch
    from safetensors.torch import load_file, save_file

    from openrlhf_js.tiny.model import make_model, make_tokenizer, save

    tokenizer = make_tokenizer(task)
    model = make_model(tokenizer, seed)
    save(model, tokenizer, folder)
    width = model.config.hidden_size
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    tensors["score.weight"] = torch.randn(1, width).to(torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["RewardModel"], "value_head_prefix": "score"}
    config |= {"mean": 0.0, "std": width**0.5}  # of the head's output on normalised values
    (folder / "config.json").write_text(json.dumps(config))
