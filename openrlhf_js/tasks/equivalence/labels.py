"""Gold answers of mathematics: what a label says, checked once and kept."""

from __future__ import annotations

import json
import unicodedata
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from openrlhf_js.tasks.equivalence.members import members
from openrlhf_js.tasks.equivalence.readings import readings
from openrlhf_js.tasks.equivalence.text import normal
from openrlhf_js.tasks.equivalence.tokens import NotRead, decimal, tokens
from openrlhf_js.tasks.equivalence.tree import Tree
from openrlhf_js.tasks.equivalence.values import rational

MAX_CHARS = 2_000
_KEYS = {"answer", "unit", "tolerance"}


class Gold(NamedTuple):
    """A gold answer.

    Attributes:
        texts: each answer in canonical spelling.
        trees: the readings of each; none for a text that only math-verify may read.
        tolerances: the greatest difference that each allows, or None.
        value: the one number that the answer is, if it is a plain rational one.
    """

    texts: tuple[str, ...]
    trees: tuple[tuple[Tree, ...], ...]
    tolerances: tuple[Fraction | None, ...]
    value: Fraction | None


@lru_cache(maxsize=1 << 15)
def gold(label: str) -> Gold:
    """What a label says.

    Args:
        label: the answer as plain text or LaTeX, or a JSON object with `answer` (a text, or a list
            of texts that are all needed, in any order), and perhaps `unit` and `tolerance` (a
            decimal number, or one for each answer with commas between; an empty one allows no
            difference).

    Raises:
        ValueError: if it says no answer.
    """
    answers, unit, tolerance = _fields(label)
    texts = tuple(normal(_checked(answer)) for answer in answers)
    if not all(texts):
        raise ValueError(f"label {_shown(label)} has an empty answer: give the gold answer as text")
    trees = tuple(_trees(text, unit) for text in texts)
    if len(trees) > 1 and all(trees):  # an item may itself be a list: "-1,7"
        single = [
            (text, member)
            for text, found in zip(texts, trees, strict=True)
            for member in members(found[0])
        ]
        texts, trees = tuple(text for text, _ in single), tuple((tree,) for _, tree in single)
    elif tolerance and len(trees) == 1 and trees[0]:
        flat = members(trees[0][0])
        texts, trees = texts * len(flat), tuple((tree,) for tree in flat)
    number = len(trees) == 1 and trees[0] and trees[0][0].kind in ("num", "neg") and not tolerance
    value = rational(trees[0][0]) if number else None
    return Gold(texts, trees, _tolerances(tolerance, len(texts)), value)


def check_label(label: str) -> None:
    """Does nothing for a label that answers can be graded against.

    Raises:
        ValueError: if the label is empty or longer than 2,000 characters, has characters that no
            text has, has unbalanced braces, or is a JSON object of another shape.
    """
    gold(label)


def _fields(label: Any) -> tuple[list[str], str, str]:
    if not isinstance(label, str) or not label.strip():
        raise ValueError(
            f"label is {_shown(label)}: give the gold answer as text that is not empty"
        )
    try:
        parsed = json.loads(label) if label.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        parsed = None
        if label.lstrip().startswith('{"'):
            raise ValueError(f"label {_shown(label)} looks like JSON but is none") from None
    if not isinstance(parsed, dict):
        return [label], "", ""
    if set(parsed) - _KEYS or "answer" not in parsed:
        raise ValueError(
            f"label {_shown(label)} has keys {sorted(parsed)}: allowed are {sorted(_KEYS)}"
        )
    answers = parsed["answer"] if isinstance(parsed["answer"], list) else [parsed["answer"]]
    unit, tolerance = parsed.get("unit") or "", parsed.get("tolerance") or ""
    if not answers or not all(isinstance(text, str) for text in (*answers, unit, tolerance)):
        raise ValueError(
            f"label {_shown(label)}: answer is a text or a list of texts, the others are texts"
        )
    return answers, unit, tolerance


def _checked(answer: str) -> str:
    if len(answer) > MAX_CHARS:
        raise ValueError(f"gold answer of {len(answer)} characters: at most {MAX_CHARS} are graded")
    depth = 0
    escaped = False
    for char in answer:
        if unicodedata.category(char) in ("Cc", "Cs") and not char.isspace():
            raise ValueError(f"gold answer {_shown(answer)} holds {char!a}, which no text has")
        depth += 0 if escaped else (char == "{") - (char == "}")
        escaped = char == "\\" and not escaped
        if depth < 0:
            break
    if depth:
        raise ValueError(f"gold answer {_shown(answer)} has braces that do not match")
    return answer


def _trees(text: str, unit: str) -> tuple[Tree, ...]:
    try:
        found = readings(text)
    except NotRead:
        return ()
    unit = normal(unit) if unit else ""
    if not unit:
        return tuple(found)
    try:
        measured = readings(f"1 {unit}")[0]
    except NotRead:
        return tuple(found)
    return tuple(_with_unit(tree, measured) for tree in found)


def _with_unit(tree: Tree, measured: Tree) -> Tree:
    """The tree in a unit, which is given as a tree of kind `measure`, `deg` or `pct`."""
    if tree.kind == "list":
        return Tree("list", tuple(_with_unit(item, measured) for item in tree.args))
    if tree.kind in ("measure", "deg", "pct", "text", "group", "rel"):
        return tree
    if measured.kind == "measure":
        return Tree("measure", ((tree, measured.args[0][1]),))
    return Tree(measured.kind, (tree,)) if measured.kind in ("deg", "pct") else tree


def _tolerances(text: str, count: int) -> tuple[Fraction | None, ...]:
    parts = [part.strip() for part in text.split(",")]
    try:
        values = [_tolerance(part) for part in parts]
    except NotRead as problem:
        raise ValueError(
            f"tolerance {_shown(text)}: give a decimal number such as 1e-2"
        ) from problem
    if len(values) == 1:
        return tuple(values * count)
    if len(values) == count:
        return tuple(values)
    given = [value for value in values if value is not None]
    if count == 1 and len(given) == 1:
        return tuple(given)
    raise ValueError(
        f"tolerance {_shown(text)} is for {len(values)} answers, and there are {count}"
    )


def _tolerance(part: str) -> Fraction | None:
    if not part:
        return None
    found = tokens(part)
    if len(found) != 2 or found[0].kind != "number":
        raise NotRead(part)
    return decimal(found[0].text)


def _shown(label: object) -> str:
    text = ascii(label)
    return text if len(text) <= 80 else text[:77] + "..."
