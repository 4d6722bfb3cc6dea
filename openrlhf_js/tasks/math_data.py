"""The data sets of mathematics, each in its own layout, and how its rows become items."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from openrlhf_js.tasks.files import Row
from openrlhf_js.tasks.problems import text

_DOLLAR = re.compile(r"(?<!\\)\$")
# The instructions around each problem of the raw DAPO data: a paragraph before it and one after it.
_DAPO_WRAPPED = re.compile(r'[^\n]*\$Answer[^\n]*\n\n(.*)\n\n[^\n]*"Answer:"[^\n]*', re.DOTALL)


class Layout(NamedTuple):
    """Where a data set is and how its rows become items.

    Attributes:
        hub_id: on the hub; None if it has no place there.
        config: the hub's configuration, if it has several.
        splits: our split -> the data set's; a split that is not here does not exist.
        columns: what is read of a row.
        item: a row -> "problem", "answer" and, where there are, "unit" and "tolerance".
        problems: how many different ones to expect, if that is known; 17,917 is the paper's count.
    """

    hub_id: str | None
    config: str | None
    splits: Mapping[str, str]
    columns: tuple[str, ...]
    item: Callable[[Row], dict[str, Any]]
    problems: int | None


def _dapo_raw(row: Row) -> dict[str, Any]:
    try:
        (message,) = row["prompt"]
        content, answer = message["content"].strip(), row["reward_model"]["ground_truth"]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError("must have one message in prompt, and reward_model.ground_truth") from None
    wrapped = _DAPO_WRAPPED.fullmatch(content)
    problem = wrapped[1] if wrapped else content
    if "$Answer" in problem or '"Answer:"' in problem:
        raise ValueError(f"cannot take DAPO's instructions off the prompt {content!r:.120}")
    taken = {"problem": problem, "answer": answer}
    return {column: text(taken, column) for column in taken}


def _amc23(row: Row) -> dict[str, Any]:
    if isinstance(row["answer"], int | float):
        row = {**row, "answer": str(row["answer"])}
    answer = text(row, "answer").removesuffix(".0")
    return {"problem": text(row, "question"), "answer": answer}


def _olympiad(row: Row) -> dict[str, Any]:
    golds = row["final_answer"]
    if not isinstance(golds, list) or not all(isinstance(gold, str) for gold in golds):
        raise ValueError(f"final_answer must be a list of texts, not {golds!r:.80}")
    golds = [_DOLLAR.sub("", gold).strip() for gold in golds]
    if row["is_multiple_answer"]:
        golds = [part for gold in golds for part in _parts(gold)]
    extra = {"unit": row["unit"], "tolerance": row["error"]}
    return {
        "problem": text(row, "question"),
        "answer": golds[0] if len(golds) == 1 else golds,
        **{name: _DOLLAR.sub("", str(value)).strip() for name, value in extra.items() if value},
    }


def _parts(gold: str) -> list[str]:
    """What commas outside all brackets separate: `(1, 2), 3` has two parts."""
    parts, depth, start = [], 0, 0
    for i, character in enumerate(gold):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(gold[start:i].strip())
            start = i + 1
    return [*parts, gold[start:].strip()]


def _columns(problem: str, answer: str) -> Callable[[Row], dict[str, Any]]:
    return lambda row: {"problem": text(row, problem), "answer": text(row, answer)}


_OLYMPIAD_COLUMNS = ("question", "final_answer", "is_multiple_answer", "unit", "error")
_TRAIN, _TEST = {"train": "train"}, {"test": "test"}

# fmt: off
DATASETS: dict[str, Layout] = {
    "dapo": Layout("open-r1/DAPO-Math-17k-Processed", "all", _TRAIN,
                   ("prompt", "solution"), _columns("prompt", "solution"), 17_917),
    "dapo_raw": Layout("BytedTsinghua-SIA/DAPO-Math-17k", None, _TRAIN,
                       ("prompt", "reward_model"), _dapo_raw, 17_917),
    "math500": Layout("HuggingFaceH4/MATH-500", None, _TEST,
                      ("problem", "answer"), _columns("problem", "answer"), 500),
    "amc23": Layout("math-ai/amc23", None, _TEST, ("question", "answer"), _amc23, 40),
    "olympiadbench": Layout("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", {"test": "train"},
                            _OLYMPIAD_COLUMNS, _olympiad, None),
    "plain": Layout(None, None, {**_TRAIN, **_TEST},
                    ("problem", "answer"), _columns("problem", "answer"), None),
}
# fmt: on
