"""What makes rows of a data set problems: each has a text and one gold answer, and comes once."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator

from openrlhf_js.tasks.base import Item
from openrlhf_js.tasks.files import Row


def distinct(
    rows: Iterable[Row],
    name: str,
    item: Callable[[Row], Item],
    problem: Callable[[Item], str],
    gold: Callable[[Item], str],
    expected: int | None = None,
) -> Iterator[Item]:
    """The items made of the rows, each problem once, in the order of their first rows.

    Problems are the same if their text is, whatever its white space and Unicode form. One whose
    rows give different gold answers is left out: nobody can say which of them is right. A warning
    says how many those are, and how many problems there are where another number was `expected`.
    All of that is known only at the end: the different items are in memory before the first comes.

    Raises:
        ValueError: a row that `item` or `gold` refuses, with its number from 1.
    """
    kept: dict[str, tuple[Item, str]] = {}
    contested = set()
    number = 0
    for number, row in enumerate(rows, 1):
        try:
            made = item(row)
            answer = gold(made)
        except ValueError as error:
            raise ValueError(f"{name}, row {number}: {error}") from None
        key = canonical(problem(made))
        if kept.setdefault(key, (made, answer))[1] != answer:
            contested.add(key)
    count = len(kept) - len(contested)
    if contested or expected not in (None, count):
        wanted = "" if expected is None else f"; {expected:,} are expected"
        left_out = f"; {len(contested):,} more were left out, having several different answers"
        warnings.warn(
            f"{name}: {count:,} distinct problems in {number:,} rows{wanted}"
            + (left_out if contested else ""),
            stacklevel=2,
        )
    yield from (made for key, (made, _) in kept.items() if key not in contested)


def canonical(problem: str) -> str:
    """A problem's text in the one form that white space and Unicode forms do not change."""
    return " ".join(unicodedata.normalize("NFC", problem).split())


def text(row: Row, column: str) -> str:
    """The column's text without space around it; ValueError if it is none, empty or not UTF-8."""
    value = row[column]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{column!r} must be text that is not empty, not {value!r:.80}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        lone = value[error.start]
        raise ValueError(f"{column!r} holds {lone!r}, half a character: no UTF-8 text") from None
    return value.strip()
