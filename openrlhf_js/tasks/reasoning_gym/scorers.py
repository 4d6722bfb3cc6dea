"""Reasoning Gym's scorers, for a worker process: the library's own, but for those named here.

Some of them run an answer as Python (`eval`, or sympy's `parse_expr`), and some give the full score
to answers that are wrong. `benchmarks/reasoning_gym_scorers.py` tries all of them.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import json
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from reasoning_gym.factory import DATASETS, create_dataset

from openrlhf_js.tasks import countdown
from openrlhf_js.tasks.record import Score

Entry = Mapping[str, Any]
Scorer = Callable[[str, Entry], float]

CHUNK = 500  # items of one seed: item n of a data set is made from seed + n
SEED_BITS = 31
NO_ANSWER = "?"  # which is right for no question
ANSWER_KEYS = {  # of the metadata, where an item has no answer of its own
    "graph_color": "possible_answer",
    "rubiks_cube": "example_correct_answer",
}
TUPLES = ("arc_agi", "rearc")  # compare the metadata's rows with tuples, which JSON makes lists
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)

# Nothing but numbers, one-letter variables, functions and operators: no name that sympy could look
# an attribute up on, call with text, or import.
_FORMULA = re.compile(
    r"(?:[0-9]+(?:\.[0-9]+)?|\*\*|[-+*/()\s]|(?<![A-Za-z])[A-Za-z](?![A-Za-z_])"
    r"|(?<![A-Za-z])(?:a?(?:sin|cos|tan)h?|exp|log|ln|sqrt|pi)(?![A-Za-z_0-9]))+"
)
MAX_FORMULA_CHARACTERS = 2_000
MOST_FOR_PART = 0.8  # for a wrong answer of `spell_backward`, as the library means it


def names() -> list[str]:
    """All data sets of the library."""
    return sorted(DATASETS)


def entries(name: str, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Items of a data set without end: dataset, question, answer and metadata."""
    while True:
        data = create_dataset(name, seed=rng.getrandbits(SEED_BITS), size=CHUNK)
        for number in range(CHUNK):
            with contextlib.redirect_stdout(io.StringIO()):  # some print
                entry = data[number]
            made = {"dataset": name, "question": entry["question"], "metadata": entry["metadata"]}
            yield {**made, "answer": _right_answer(name, entry)}


def _right_answer(name: str, entry: Entry) -> str:
    """An item's own answer as text, "" where it has none."""
    answer = entry["answer"]
    if answer is None and name in ANSWER_KEYS:
        answer = entry["metadata"][ANSWER_KEYS[name]]
    if answer is None:
        return ""
    return answer.strip() if isinstance(answer, str) else json.dumps(answer)


def is_sound(label: str) -> bool:
    """Whether the answer of a label scores 1, and another one does not."""
    answer = json.loads(label)["answer"]
    right = grade(answer, label).status == "correct"
    return right and grade(NO_ANSWER, label).status != "correct"


def grade(answer: str, label: str) -> Score:
    """The score of an answer against a label of the task."""
    entry = json.loads(label)
    name = entry["dataset"]
    try:
        value = float(REPLACED.get(name, library)(answer, entry))
    except _UNREADABLE as error:
        return Score(0.0, "malformed", f"{name}: {type(error).__name__}")
    value = min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0
    return Score(value, "correct" if value == 1 else "wrong", f"{name}: {value:.3g}")


@functools.cache
def _dataset(name: str) -> Any:
    return create_dataset(name, seed=0, size=1)


def library(answer: str, entry: Entry) -> float:
    """The library's own score."""
    name = entry["dataset"]
    metadata = entry["metadata"]
    if name in TUPLES:
        metadata = _with_tuples(metadata)
    return _dataset(name).score_answer(answer, {**entry, "metadata": metadata})


def _with_tuples(stored: Any) -> Any:
    if isinstance(stored, dict):
        return {key: _with_tuples(inner) for key, inner in stored.items()}
    return tuple(map(_with_tuples, stored)) if isinstance(stored, list) else stored


def _exact_or_literal(answer: str, entry: Entry) -> float:
    """The library's score of a right answer, or of a Python literal; any other it would run."""
    if answer in entry["metadata"].get("valid_answers", [entry["answer"]]):
        return 1.0
    try:
        ast.literal_eval(answer)
    except (*_UNREADABLE, SyntaxError):
        return 0.0
    return library(answer, entry)


def _formula(answer: str, entry: Entry) -> float:
    """The library's score of an answer that holds a formula and nothing else."""
    if len(answer) > MAX_FORMULA_CHARACTERS or not _FORMULA.fullmatch(answer):
        return 0.0
    return library(answer, entry)


def _expression(answer: str, entry: Entry) -> float:
    """Our own grade of an expression that takes all the numbers: see `tasks.countdown`."""
    metadata = entry["metadata"]
    problem = {"numbers": metadata["numbers"], "target": metadata.get("target", 24)}
    label = json.dumps({**problem, "use_all": True})
    return countdown.score(f"<answer>{answer}</answer>", label).value


def _same_word(answer: str, entry: Entry) -> float:
    """1 for the same word, in any case."""
    return float(answer.lower() == entry["answer"].lower())


def _probability(answer: str, entry: Entry) -> float:
    """1 within 0.0001; the library's scorer takes a first digit for the whole number."""
    difference = abs(Fraction(answer) - Fraction(entry["answer"]))
    return float(difference <= Fraction(1, 10_000))


def _finite(answer: str, entry: Entry) -> float:
    """The library's score, but for "nan", which is at no distance from any number."""
    return 0.0 if "nan" in answer.lower() else library(answer, entry)


def _same_word_or_part(answer: str, entry: Entry) -> float:
    """The library's score, whose parts for other words may add up to 1."""
    if _same_word(answer, entry):
        return 1.0
    return min(library(answer, entry), MOST_FOR_PART)


REPLACED: dict[str, Scorer] = {
    # eval(answer)
    "binary_matrix": _exact_or_literal,
    "n_queens": _exact_or_literal,
    "spiral_matrix": _exact_or_literal,
    "string_insertion": _exact_or_literal,
    # sympy's parse_expr(answer)
    "countdown": _expression,
    "puzzle24": _expression,
    "intermediate_integration": _formula,
    "polynomial_multiplication": _formula,
    "simple_integration": _formula,
    # the full score for a wrong answer
    "coin_flip": _probability,
    "complex_arithmetic": _finite,
    "game_of_life_halting": _same_word,
    "spell_backward": _same_word_or_part,
}
