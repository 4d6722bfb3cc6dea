"""What a task of the tiny model is made of."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from answer_graders.record import Score
from answer_graders.rewards import in_threads

END = "<eos>"  # the token that ends a response
SOLVED, UNSOLVABLE = "<solved>", "<unsolvable>"  # labels for which every, or no, response is right


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

    def reward_func(
        self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str]
    ) -> dict[str, Any]:
        """The rewards as a reward file returns them; a query is a prompt with its response."""
        import torch  # slow to import, and not needed to list tasks

        responses = []
        for query, prompt in zip(queries, prompts, strict=True):
            if not query.startswith(prompt):
                raise ValueError(f"the query {query!r} does not begin with its prompt {prompt!r}")
            responses.append(query[len(prompt) :])
        rewards = torch.tensor(in_threads(self.reward, responses, labels))
        return {"rewards": rewards, "scores": rewards, "extra_logs": {}}
