"""The console: progress, tables, and text that is never taken for markup."""

from __future__ import annotations

import math
import re
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

FIRST_SECONDS = 2.0  # shorter work shows no progress
LINE_SECONDS = 10.0  # between two lines where there is no terminal
PIPE_WIDTH = 200  # of tables where there is no terminal
GAP = 2  # characters between the columns of a table


class OurConsole(Console):
    """rich's console; `openrlhf_js.cli.main` handles a pipe whose reader has closed it."""

    def on_broken_pipe(self) -> None:
        """Raises the BrokenPipeError; rich by itself would exit with status 1."""
        raise BrokenPipeError


def visible(text: str) -> str:
    """The text with unprintable characters, except newlines, as escapes."""
    return "".join(
        character
        if character == "\n" or character.isprintable()
        else character.encode("unicode_escape").decode()
        for character in text
    )


def say(text: str, *, error: bool = False, style: str = "") -> None:
    """Prints text; on a terminal, lines break between words, so that paths can be copied.

    A line that begins with a space, such as a command, is not broken. An error comes after what was
    printed before it, even if both go to one file.
    """
    if error:
        sys.stdout.flush()
    console = OurConsole(stderr=error)
    if error and progress.on_terminal:  # above its bar
        console = progress.on_terminal
    lines = visible(text).split("\n")
    if console.is_terminal:
        lines = [_broken(line, console.width) for line in lines]
    console.print(Text("\n".join(lines), style), soft_wrap=True)


def _broken(line: str, width: int) -> str:
    """The line with newlines where a terminal would break it, moved between words."""
    if line.startswith(" "):
        return line
    return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)


class progress:
    """A progress bar on a terminal, a line every ten seconds elsewhere; silent for two seconds.

    `work` says what is done, such as "sampling"; `total` is in units, None if unknown.
    """

    on_terminal: ClassVar[OurConsole | None] = None  # where a bar is shown now

    def __init__(self, work: str, total: float | None = None, unit: str = "rows"):
        self.work = work
        self.total = total
        self.unit = unit
        self.done = 0.0
        self._console = OurConsole(stderr=True)
        self._began = time.monotonic()
        self._next_seconds = self._began + FIRST_SECONDS
        self._live = Progress(
            TextColumn("{task.description}"),
            BarColumn(24),
            TextColumn("{task.fields[done]}", markup=False),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self._console,
            transient=True,
        )
        self._task = self._live.add_task(work, total=total, done="", note="")

    def show(self, note: str) -> None:
        """Shows the progress at once, for work whose first unit takes long."""
        self._next_seconds = 0.0
        self.update(self.done, note)

    def advance(self, amount: float = 1, note: str = "") -> None:
        """Adds to what is done."""
        self.update(self.done + amount, note)

    def update(self, done: float, note: str = "") -> None:
        """Sets how much of the total is done; the note is shown with it."""
        self.done = done
        now = time.monotonic()
        if now < self._next_seconds:
            return
        of_total = f" of {self.total:,.0f}" if self.total else ""
        text = f"{done:,.0f}{of_total} {self.unit}"
        if not self._console.is_terminal:
            self._next_seconds = now + LINE_SECONDS
            parts = [f"{self.work}: {text}", note, self._time_left(now)]
            line = visible(", ".join(filter(None, parts)))
            self._console.print(Text(line), soft_wrap=True)
            return
        self._next_seconds = now + 0.1
        self._live.start()  # does nothing once it has
        self._live.update(
            self._task, completed=done, total=self.total, done=text, note=visible(note)
        )
        progress.on_terminal = self._console

    def _time_left(self, now: float) -> str:
        """How long the rest takes, at the mean pace so far; "" if unknown."""
        if not self.total or not 0 < self.done < self.total:
            return ""
        seconds = (now - self._began) * (self.total - self.done) / self.done
        return f"{timedelta(seconds=round(seconds))} left"

    def __enter__(self) -> progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live.live.is_started:
            self._live.stop()
            progress.on_terminal = None


def table(rows: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """Prints rows as a table, numbers to four digits; if too wide, one line for each cell."""
    if not rows:
        return
    console = OurConsole()
    if not console.is_terminal:
        console = OurConsole(width=PIPE_WIDTH)
    names = list(rows[0])
    header = [name.replace("_", " ") for name in names]
    cells = [[cell(row.get(name)) for name in names] for row in rows]
    if title:
        console.print(Text(title, "bold"), soft_wrap=True)
    columns = list(zip(header, *cells, strict=True))
    natural = [max(map(len, column)) for column in columns]
    narrow = [
        max(map(len, [*name.split(), *column])) for name, *column in columns
    ]  # with each name broken between its words
    for widths in (natural, narrow):
        if sum(widths) + GAP * len(widths) <= console.width:
            _print_upright(console, columns, widths)
            return
    blocks = [_on_its_side(header, row) for row in cells]
    console.print(Text("\n".join(blocks)), soft_wrap=True, end="")


def _print_upright(
    console: OurConsole, columns: Sequence[Sequence[str]], widths: Sequence[int]
) -> None:
    """A table of columns, each with its name first; numbers stand on the right."""
    printed = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for (name, *column), width in zip(columns, widths, strict=True):
        is_numeric = all(re.match(r"[-+]*\d|-$", text) for text in column)
        side: Literal["right", "left"] = "right" if is_numeric else "left"
        printed.add_column(Text(name), justify=side, width=width)
    for row in zip(*(column[1:] for column in columns), strict=True):
        printed.add_row(*map(Text, row))
    console.print(printed)


def _on_its_side(header: Sequence[str], row: Sequence[str]) -> str:
    """A line for each cell that is not empty, after its column's name."""
    width = max(map(len, header))
    filled = [(name, text) for name, text in zip(header, row, strict=True) if text not in ("", "-")]
    return "".join(f"{name:{width}}  {text}\n" for name, text in filled)


def cell(value: Any) -> str:
    """A value of a table as text; "-" for None and numbers that are not finite."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else visible(str(value))
