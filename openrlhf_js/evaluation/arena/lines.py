"""The lines of a file as records: what cannot be read is told of with its number, and left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from openrlhf_js.evaluation.arena import schemas
from openrlhf_js.evaluation.arena.appending import HALF

T = TypeVar("T")
Warn = Callable[[str], None]  # gets one clear line per problem: "path, line 12: ..."
Progress = Callable[[int], None]  # told how many of what takes time are done

LARGEST_LINE_BYTES = 64 * 2**20  # longer than any answer or judgment
MOST_SAID = 10  # problems of one file that are told one by one
_BLANK = b"\xef\xbb\xbf \t\r\n"  # a byte order mark, and space


class Twice:
    """The uids that come more than once."""

    def __init__(self, path: Path):
        self.path = path
        self._lines: dict[str, int] = {}
        self._again: dict[str, tuple[int, int]] = {}

    def see(self, uid: str, line: int) -> None:
        """Notes where a uid came."""
        if uid in self._lines:
            self._again[uid] = (self._lines[uid], line)
        self._lines[uid] = line

    def tell(self, warn: Warn, rule: str) -> None:
        """Says how many came again, and which one counts."""
        for uid, (first, second) in list(self._again.items())[:1]:
            warn(
                f"{self.path}, line {second}: the uid {uid!r:.60} was in line {first} already; "
                f"{len(self._again)} such in this file; {rule}"
            )


def records(
    path: Path, read: Callable[[schemas.Row, Warn], T], warn: Warn
) -> Iterator[tuple[int, T]]:
    """The lines' numbers and records; what cannot be read is told of, and left out."""
    said = 0

    def say(text: str) -> None:
        nonlocal said
        said += 1
        if said <= MOST_SAID:
            warn(f"{path}, line {number}: {text}")

    for number, line in _lines(path):
        try:
            record = read(_object(line), say)
        except ValueError as error:
            if line.endswith(b"\n") or len(line) > LARGEST_LINE_BYTES:
                say(f"{error}; the line is left out")
            else:
                say(
                    "the last line is half written; it is left out, and moved into "
                    f"{path.name}{HALF} when a line is added"
                )
            continue
        yield number, record
    if said > MOST_SAID:
        warn(f"{path}: {said - MOST_SAID} more lines have such problems")


def _lines(path: Path) -> Iterable[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers from 1; only a newline ends a line."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LARGEST_LINE_BYTES + 1):
            number += 1
            if line.strip(_BLANK):
                yield number, line
            while len(line) > LARGEST_LINE_BYTES and not line.endswith(b"\n"):
                line = file.readline(LARGEST_LINE_BYTES + 1)  # the rest of it


def _object(line: bytes) -> dict[str, Any]:
    if len(line) > LARGEST_LINE_BYTES:
        raise ValueError(f"longer than {LARGEST_LINE_BYTES // 2**20} MiB")
    try:
        value = json.loads(line.decode("utf-8-sig").rstrip("\r\n"))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text ({error.reason} at byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno})") from None
    except RecursionError:
        raise ValueError("not JSON of a row (nested too deeply)") from None
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object, but {type(value).__name__}")
    return value
