"""How far a long job has come: a bar on a terminal, a line now and then anywhere else."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

FIRST_SECONDS = 2.0  # what is over sooner needs no progress
LINE_SECONDS = 10.0  # between two lines
REDRAW_SECONDS = 0.1
LEAST_SHARE = 0.01  # of the whole, before it says anything about the rest


class Bar:
    """Shows progress while a block lasts, once it has lasted for two seconds.

    Args:
        what: what is being done, such as "building".
        total: how much there is to do, such as 1 where shares of it are told; None where nobody
            knows.
        console: where to show it.
        unit: what is counted.
    """

    def __init__(self, what: str, total: int | None, console: Console, unit: str = "rows"):
        self.what, self.total, self.console, self.unit = what, total, console, unit
        self._start = time.monotonic()
        self._next = self._start + FIRST_SECONDS
        self._live: Progress | None = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def update(self, done: float, rows: int, more: str = "") -> None:
        """Says how far it has come.

        Args:
            done: so much of the total.
            rows: how many of the unit that is, for their number and rate.
            more: what else there is to say, such as ", $1.20".
        """
        now = time.monotonic()
        if now < self._next:
            return
        seconds = now - self._start
        share = done / self.total if self.total else 0.0
        left = _left(seconds * (1 / share - 1)) if share >= LEAST_SHARE else ""
        note = f"{rows:,} {self.unit}, {rows / seconds:,.0f}/s{left}{more}"
        if self.console.is_terminal:
            self._next = now + REDRAW_SECONDS
            self._draw(done, note)
        else:
            self._next = now + LINE_SECONDS
            percent = f"{share:.0%}, " if self.total else ""
            self.console.print(Text(f"{self.what}: {percent}{note}"), soft_wrap=True)

    def _draw(self, done: float, note: str) -> None:
        if self._live is None:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(24),
                TextColumn("{task.fields[note]}"),
            )
            self._live = Progress(*columns, console=self.console, transient=True)
            self._live.add_task(self.what, total=self.total, note=note)
            self._live.start()
        self._live.update(self._live.task_ids[0], completed=done, note=note)


def _left(seconds: float) -> str:
    whole = max(0, round(seconds))
    return f", {whole // 60}:{whole % 60:02d} left"
