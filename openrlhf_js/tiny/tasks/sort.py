"""Sort: put 2 to 5 digits in order, `sort(7294)=` -> `2479`.

Prompts of several lengths differ in difficulty by themselves: a response is right only if every
digit is. The grader is as exact as can be: nothing but the digits, and then the end.
"""

from __future__ import annotations

import random

from openrlhf_js.tasks.base import Score, scored
from openrlhf_js.tiny.tasks.base import END, Split, TinyTask

DIGITS = "0123456789"
LENGTHS = (2, 3, 4, 5)  # digits per prompt


def prompt(digits: str) -> str:
    """The prompt that asks for these digits in order."""
    return f"sort({digits})="


def label(digits: str) -> str:
    """The digits in order."""
    return "".join(sorted(digits))


def split(seed: int, held_out: int) -> Split:
    """Divides all prompts in two, so that none is in both.

    Args:
        seed: of the shuffle that decides which prompts are held out.
        held_out: how many are, equally many of each length.

    Raises:
        ValueError: too few, or too many for the shortest length to keep half of its prompts.
    """
    most = len(LENGTHS) * 10 ** min(LENGTHS) // 2
    if not len(LENGTHS) <= held_out <= most:
        raise ValueError(f"held_out is {held_out}; give {len(LENGTHS)} to {most}")
    rng = random.Random(seed)
    of_each = held_out // len(LENGTHS)
    train: list[list[str]] = []
    apart: list[str] = []
    for length in LENGTHS:
        every = [f"{number:0{length}d}" for number in range(10**length)]
        rng.shuffle(every)
        apart += every[:of_each]
        train.append(every[of_each:])
    return Split(train, apart)


def score(response: str, label: str) -> Score:
    """Right if the response is the label and then ends."""
    right = response == label + END
    return scored("correct" if right else "wrong", f"{response!r:.40}, expected {label}")


def score_query(query: str, prompt: str, label: str) -> Score:
    """Grades a prompt and its response in one string, which is what OpenRLHF hands to a grader.

    Raises:
        ValueError: the query does not begin with the prompt: another tokenizer wrote it.
    """
    if not query.startswith(prompt):
        raise ValueError(f"the query {query!r} does not begin with its prompt {prompt!r}")
    return score(query[len(prompt) :], label)


TASK = TinyTask(
    tokens=tuple("sort()=" + DIGITS),
    slips=tuple(DIGITS),
    slip=0.3,
    warm_start_steps=200,
    max_prompt_tokens=len("sort()=") + max(LENGTHS),
    max_new_tokens=max(LENGTHS) + 1,
    grader="tiny.py",
    split=split,
    prompt=prompt,
    label=label,
    right_response=str,
    score=score,
)
