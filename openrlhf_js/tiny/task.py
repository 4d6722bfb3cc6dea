"""The task: put a few digits in order, `sort(7294)=` -> `2479`.

Small enough to be learned in seconds, and graded exactly. Prompts of 2 to 5 digits differ in
difficulty by themselves: a response is right only if every digit is. Training and held-out prompts
never overlap.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

DIGITS = "0123456789"
LENGTHS = (2, 3, 4, 5)  # digits per prompt
CHARACTERS = "sort()=" + DIGITS  # everything that prompts and answers are written with
END = "<eos>"
MAX_NEW_TOKENS = max(LENGTHS) + 1  # one per digit, and the end
MAX_LENGTH = len("sort()=") + max(LENGTHS) + MAX_NEW_TOKENS  # tokens of prompt and response


class Split(NamedTuple):
    """The digits of every training prompt, by length, and of the held-out prompts."""

    train: dict[int, list[str]]
    held_out: list[str]


def prompt(digits: str) -> str:
    """The prompt that asks for these digits in order."""
    return f"sort({digits})="


def answer(digits: str) -> str:
    """The digits in order."""
    return "".join(sorted(digits))


def split(seed: int, held_out_per_length: int = 50) -> Split:
    """Divides all prompts in two, so that none is in both.

    Args:
        seed: of the shuffle that decides which prompts are held out.
        held_out_per_length: held-out prompts of each length, at most half of the shortest, 50.

    Raises:
        ValueError: too many held-out prompts.
    """
    most = 10 ** min(LENGTHS) // 2
    if not 1 <= held_out_per_length <= most:
        raise ValueError(f"held_out_per_length is {held_out_per_length}; give 1 to {most}")
    rng = random.Random(seed)
    train, held_out = {}, []
    for length in LENGTHS:
        every = [f"{number:0{length}d}" for number in range(10**length)]
        rng.shuffle(every)
        held_out += every[:held_out_per_length]
        train[length] = every[held_out_per_length:]
    return Split(train, held_out)


def draw(train: dict[int, list[str]], count: int, rng: random.Random) -> list[str]:
    """The digits of `count` training prompts, every length equally likely."""
    return [rng.choice(train[rng.choice(LENGTHS)]) for _ in range(count)]


def careless_answer(digits: str, slip: float, rng: random.Random) -> str:
    """What somebody writes who gets each digit wrong with probability `slip`."""
    return "".join(
        rng.choice(DIGITS.replace(right, "")) if rng.random() < slip else right
        for right in answer(digits)
    )


def score(response: str, label: str) -> float:
    """1.0 if the response is the label and then ends, else 0.0. Nothing in it is evaluated."""
    return float(response == label + END)


def score_query(query: str, prompt: str, label: str) -> float:
    """Grades a prompt and its response in one string, which is what OpenRLHF hands to a grader.

    Raises:
        ValueError: the query does not begin with the prompt: another tokenizer wrote it.
    """
    if not query.startswith(prompt):
        raise ValueError(f"the query {query!r} does not begin with its prompt {prompt!r}")
    return score(query[len(prompt) :], label)


def write_prompts(path: Path, many_digits: Iterable[str], source: str) -> None:
    """Writes prompts as OpenRLHF reads them: JSON lines with input, label and datasource."""
    rows = (
        {"input": prompt(digits), "label": answer(digits), "datasource": source}
        for digits in many_digits
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
