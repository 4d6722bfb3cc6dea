"""The tables of `openrlhf-js eval passk` on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from openrlhf_js.cli.saying import say, visible
from openrlhf_js.evaluation.passk.table import Table as Rows

GAP = 2  # between columns


def show(console: Console, tables: Iterable[Rows], notes: Sequence[str]) -> None:
    """Prints tables and sentences; a table that is too wide is turned on its side if that helps."""
    for columns, rows in tables:
        grid = [tuple(map(visible, row)) for row in (columns, *rows)]
        turned = [tuple(row[place] for row in grid) for place in range(len(columns))]
        upright = _width(grid) <= max(console.width, _width(turned))
        _print(console, grid if upright else turned)
        console.print()
    for note in notes:
        say(console, note)


def _print(console: Console, grid: Sequence[Sequence[str]]) -> None:
    """Prints rows, the first one and the first column being names; no number is broken."""
    made = Table(box=None, pad_edge=False)
    for place, least in enumerate(_widths(grid)):
        name = Text(grid[0][place])
        made.add_column(name, justify="right" if place else "left", min_width=least)
    for row in grid[1:]:
        made.add_row(*map(Text, row))
    console.print(made, width=max(console.width, _width(grid)), crop=False)


def _widths(grid: Sequence[Sequence[str]]) -> list[int]:
    """Of each column: its widest cell, or the longest word of its name, which may be broken."""
    names, *rows = grid
    return [
        max(len(each) for each in (*name.split(), *(row[place] for row in rows)))
        for place, name in enumerate(names)
    ]


def _width(grid: Sequence[Sequence[str]]) -> int:
    widths = _widths(grid)
    return sum(widths) + GAP * (len(widths) - 1)
