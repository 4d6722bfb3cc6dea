"""What a task of the tiny model is made of."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from answer_graders.record import Score
from answer_graders.tasks.sort import SOLVED, UNSOLVABLE


class TinySplit(NamedTuple):
    """The items to train on, by kind, and the held-out ones. No problem is in both."""

    train: list[list[Any]]
    held_out: list[Any]


Split = Callable[[int, int], TinySplit]  # from a seed and the number of held-out items


class Problem(NamedTuple):
    """A prompt, and the label that scores its responses."""

    prompt: str
    label: str


@dataclass(frozen=True, kw_only=True)
class TinyTask:
    """A task, with the tokens and the imitation settings of a tiny model."""

    tokens: tuple[str, ...]  # what prompts and responses are written with
    slips: tuple[str, ...]  # tokens that a careless demonstration confuses
    slip: float  # the probability that it confuses one
    warm_start_steps: int  # of imitation, enough for the right answer to become the most likely
    max_prompt_tokens: int
    max_new_tokens: int  # of the longest right response, with its end
    grader: str  # the file in `reward_models/` that grades training
    split: Split
    prompt: Callable[[Any], str]
    label: Callable[[Any], str]
    right_response: Callable[[str], str]  # one that scores 1
    score: Callable[[str, str], Score]  # of a response and a label
    demonstrate: Callable[[str, random.Random], str] | None = None
    """A careless response to a prompt that is worked out in steps; None: the right response with
    slips."""

    @property
    def max_tokens(self) -> int:
        """The most tokens of a prompt with its response."""
        return self.max_prompt_tokens + self.max_new_tokens

    def problem(self, item: Any) -> Problem:
        """The prompt and the label of an item."""
        return Problem(prompt=self.prompt(item), label=self.label(item))

    def reward(self, response: str, label: str) -> float:
        """The reward of a response."""
        if label in (SOLVED, UNSOLVABLE):
            return float(label == SOLVED)
        return self.score(response, label).value
