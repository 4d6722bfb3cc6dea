"""The Reasoning Gym library, which a worker process imports before it grades."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

from reasoning_gym.factory import DATASETS, create_dataset

from answer_graders.record import Score

CHUNK = 500  # items per seed: item n of a data set is generated from seed + n
SEED_BITS = 31
NO_ANSWER = "?"  # right for no question
ANSWER_KEYS = {  # of the metadata, for items without an answer of their own
    "graph_color": "possible_answer",
    "rubiks_cube": "example_correct_answer",
}
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
WORD = re.compile(r"[^\s,;]+")
TUPLES = ("arc_agi", "rearc")  # compare metadata with tuples, which JSON turns into lists


def names() -> list[str]:
    """All data sets of the library."""
    return sorted(DATASETS)


def entries(name: str, rng: random.Random) -> Iterator[dict[str, Any]]:
    """An endless stream of items of a data set: dataset, question, answer and metadata."""
    while True:
        data = create_dataset(name, seed=rng.getrandbits(SEED_BITS), size=CHUNK)
        for number in range(CHUNK):
            with contextlib.redirect_stdout(io.StringIO()):  # some data sets print
                entry = data[number]
            made = {"dataset": name, "question": entry["question"], "metadata": entry["metadata"]}
            yield {**made, "answer": _right_answer(name, entry)}


def _right_answer(name: str, entry: Mapping[str, Any]) -> str:
    """An item's own answer as text, or "" if it has none."""
    answer = entry["answer"]
    if answer is None and name in ANSWER_KEYS:
        answer = entry["metadata"][ANSWER_KEYS[name]]
    if answer is None:
        return ""
    return answer.strip() if isinstance(answer, str) else json.dumps(answer)


def is_sound(label: str) -> bool:
    """Whether the answer of a label scores 1, and `NO_ANSWER` does not."""
    answer = json.loads(label)["answer"]
    right = score(answer, label).status == "correct"
    return right and score(NO_ANSWER, label).status != "correct"


def score(answer: str, label: str) -> Score:
    """The library's score of an answer; 0 if the answer is right and holds more than it needs.

    Some scorers read the beginning of an answer and skip the rest: "5 days or 6 days".
    """
    entry = json.loads(label)
    name = entry["dataset"]
    try:
        value = _value(answer, label)
    except UNREADABLE as error:
        return Score(0.0, "malformed", f"{name}: {type(error).__name__}")
    if value == 1 and answer.strip() != entry["answer"].strip() and _has_more(answer, label):
        return Score(0.0, "malformed", f"{name}: it holds more than an answer")
    return Score(value, "correct" if value == 1 else "wrong", f"{name}: {value:.3g}")


def _value(answer: str, label: str) -> float:
    entry = json.loads(label)
    if entry["dataset"] in TUPLES:
        entry["metadata"] = _with_tuples(entry["metadata"])
    value = float(_dataset(entry["dataset"]).score_answer(answer, entry))
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0


def _has_more(answer: str, label: str) -> bool:
    """Whether a right answer stays right without its first word, or without its last one."""
    words = list(WORD.finditer(answer))
    if len(words) < 2:
        return False
    for shorter in (answer[words[1].start() :], answer[: words[-2].end()]):
        with contextlib.suppress(*UNREADABLE):
            if _value(shorter, label) == 1:
                return True
    return False


@functools.cache
def _dataset(name: str) -> Any:
    return create_dataset(name, seed=0, size=1)


def _with_tuples(stored: Any) -> Any:
    if isinstance(stored, dict):
        return {key: _with_tuples(inner) for key, inner in stored.items()}
    return tuple(map(_with_tuples, stored)) if isinstance(stored, list) else stored
