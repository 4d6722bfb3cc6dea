"""GSM8K: grade-school word problems whose answer is one number, after `####` in the data set."""

from __future__ import annotations

import re
from collections.abc import Iterator

from openrlhf_js.tasks import hub, math
from openrlhf_js.tasks.answers import last_boxed, last_hashes
from openrlhf_js.tasks.base import Item, Message, Score, as_given
from openrlhf_js.tasks.equivalence import grader
from openrlhf_js.tasks.files import Row
from openrlhf_js.tasks.problems import distinct, text

NAME = "gsm8k"
HUB_ID = "openai/gsm8k"
SPLITS: tuple[str, ...] = ("train", "test")

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


def load(
    split: str, source: str = HUB_ID, *, progress: hub.Progress = hub.unseen
) -> Iterator[Item]:
    """The items of the data set's own split, each question once: `question` and `answer`.

    `answer` is the worked solution of the data set, which ends in `#### ` and the number.

    Args:
        split: `train` or `test`.
        source: a hub id, file or folder with columns `question` and `answer`, as `hub.rows` takes
            them.
        progress: as `hub.rows` calls it.
    """
    if split not in SPLITS:
        raise ValueError(f"GSM8K has the splits {' and '.join(SPLITS)}, not {split!r}")
    rows = hub.rows(source, split, ("question", "answer"), "main", progress)
    return distinct(rows, source, _item, lambda item: item["question"], label)


used = as_given
right_response, wrong_response = math.right_response, math.wrong_response


def _item(row: Row) -> Item:
    return {"question": text(row, "question"), "answer": text(row, "answer")}


def prompt(item: Item) -> list[Message]:
    """Messages that ask for the answer in a box, as in the other mathematics of the paper."""
    return math.prompt_for(item["question"])


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

    Raises:
        ValueError: the label is no number.
    """
    if not _NUMBER.fullmatch(label.replace(",", "")):
        raise ValueError(f"the label must be a number such as 7, not {label!r:.80}")
    boxed = last_boxed(response)
    return grader.grade(last_hashes(response) if boxed is None else boxed, label)
