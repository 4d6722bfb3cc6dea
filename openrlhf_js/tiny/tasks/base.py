"""What a task of the quickstart is: problems, a short way to write them, and their grader."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from openrlhf_js.tasks.base import Score

END = "<eos>"  # the token that ends a response


class Split(NamedTuple):
    """The items to train on, by kind, and the held-out ones. No problem is in both."""

    train: list[list[Any]]
    held_out: list[Any]


@dataclass(frozen=True)
class TinyTask:
    """A task, made small enough for a model of 0.65M parameters to learn on two CPU cores.

    Attributes:
        tokens: what prompts and responses are written with; a model learns one vector for each.
        slips: tokens that a careless demonstration takes for one another.
        slip: the chance that one of them is wrong.
        warm_start_steps: of imitation, enough for the right answer to become the likeliest one.
        max_prompt_tokens: of the longest prompt.
        max_new_tokens: of the longest right response, with its end.
        grader: the file in `reward_models/` that grades training.
        split: the items, from a seed and the number of held-out ones.
        prompt: asks for an item's answer.
        label: what the grader is given of an item.
        right_response: a response that scores 1, from a label.
        score: grades a response against a label.
    """

    tokens: tuple[str, ...]
    slips: tuple[str, ...]
    slip: float
    warm_start_steps: int
    max_prompt_tokens: int
    max_new_tokens: int
    grader: str
    split: Callable[[int, int], Split]
    prompt: Callable[[Any], str]
    label: Callable[[Any], str]
    right_response: Callable[[str], str]
    score: Callable[[str, str], Score]

    @property
    def max_tokens(self) -> int:
        """Of a prompt and its response."""
        return self.max_prompt_tokens + self.max_new_tokens


def draw(train: list[list[Any]], count: int, rng: random.Random) -> list[Any]:
    """`count` of the training items, every kind equally likely."""
    return [rng.choice(rng.choice(train)) for _ in range(count)]
