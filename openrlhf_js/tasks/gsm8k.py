"""GSM8K: grade-school word problems whose answer is one number, after `####` in the data set."""

from __future__ import annotations

import re
from collections.abc import Iterator

from openrlhf_js.tasks import hub
from openrlhf_js.tasks.answers import last_boxed, last_hashes
from openrlhf_js.tasks.base import Item, Message, Score
from openrlhf_js.tasks.equivalence import grader
from openrlhf_js.tasks.math import prompt_for, right_response, wrong_response

__all__ = ["NAME", "label", "load", "prompt", "right_response", "score", "wrong_response"]

NAME = "gsm8k"
HUB_ID = "openai/gsm8k"
SPLITS = ("train", "test")

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


def load(split: str, source: str = HUB_ID) -> Iterator[Item]:
    """The items of the data set's own split, each question once: `question` and `answer`.

    `answer` is the worked solution of the data set, which ends in `#### ` and the number.

    Args:
        split: `train` or `test`.
        source: a hub id, file or folder with columns `question` and `answer`, as `hub.rows` takes
            them.
    """
    if split not in SPLITS:
        raise ValueError(f"GSM8K has the splits {' and '.join(SPLITS)}, not {split!r}")
    rows = hub.rows(source, split, ("question", "answer"), config="main")
    return hub.distinct(rows, source, _item, lambda item: item["question"], label)


def _item(row: hub.Row) -> Item:
    return {"question": hub.text(row, "question"), "answer": hub.text(row, "answer")}


def prompt(item: Item) -> list[Message]:
    """Messages that ask for the answer in a box, as in the other mathematics of the paper."""
    return prompt_for(item["question"])


def label(item: Item) -> str:
    """The number after the last `####`, without thousands commas."""
    gold = (last_hashes(item["answer"]) or "").replace(",", "")
    if not _NUMBER.fullmatch(gold):
        raise ValueError(
            f"the answer must end in '#### ' and a number, not in {item['answer'][-40:]!r} "
            f"(question {item['question']!r:.80})"
        )
    return gold


def score(response: str, label: str) -> Score:
    """Grades the last box; where there is none, what follows the last `####`.

    The prompt asks for the box, so it counts even before a `####`, which may be a Markdown heading.
    """
    boxed = last_boxed(response)
    return grader.grade(last_hashes(response) if boxed is None else boxed, label)
