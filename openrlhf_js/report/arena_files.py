"""What an arena found, as files: JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from openrlhf_js.evaluation.arena.board_line import Line
from openrlhf_js.evaluation.arena.leaderboard import Board
from openrlhf_js.report import arena

FORMULA = ("=", "+", "-", "@")  # what begins one in spreadsheets


def as_json(lines: Sequence[Line]) -> str:
    """A list with an object for each line."""
    return json.dumps([line.plain() for line in lines], indent=1, allow_nan=False) + "\n"


def as_csv(lines: Sequence[Line]) -> str:
    """All fields of all lines; several entries of one are joined by "; ".

    A text that a spreadsheet would take for a formula gets a ' before it, as spreadsheets mark
    texts themselves: a model's name is anybody's.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Line._fields)
    for line in lines:
        writer.writerow(_cell(value) for value in line)
    return text.getvalue()


def as_markdown(boards: Sequence[Board], more: Sequence[str] = ()) -> str:
    """A heading, a table and the words of each board, then whatever else is to be said."""
    parts = []
    for board, said in zip(boards, arena.in_words(boards), strict=True):
        rows = [arena.columns(board), *(arena.row(line) for line in board.lines)]
        shown = ["| " + " | ".join(map(_escaped, each)) + " |" for each in rows]
        rule = "|---|" + "---:|" * (len(rows[0]) - 1)
        parts.append(
            f"## {_escaped(arena.title(board))}\n\n" + "\n".join([shown[0], rule, *shown[1:]])
        )
        parts += map(_escaped, said)
    return "\n\n".join([*parts, *map(_escaped, more), arena.KEY]) + "\n"


def _escaped(text: str) -> str:
    """Any text as Markdown that shows it: one line, no table, no HTML, no links."""
    flat = " ".join(text.split())
    for mark in "\\|`*_[]<>#":
        flat = flat.replace(mark, f"\\{mark}")
    return flat


def _cell(value: Any) -> Any:
    text = "; ".join(value) if isinstance(value, tuple) else value
    return f"'{text}" if isinstance(text, str) and text.startswith(FORMULA) else text
