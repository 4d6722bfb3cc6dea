"""What a person sees while the quickstart runs: stages, progress, time left.

A terminal shows all stages at once; anything else (a pipe, CI) gets plain lines.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

PLAIN_LINE_SECONDS = 5.0  # at least, between two plain lines of one stage
BAR_WIDTH = 24


def clock(seconds: float) -> str:
    """Minutes and seconds, as 1:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


@dataclass
class Stage:
    """One line of the screen."""

    name: str
    note: str = "waiting"
    done: int = 0
    total: int = 0  # steps; 0 where they cannot be counted
    started: float | None = None
    ended: float | None = None
    first_step: float | None = None
    failed: bool = False
    spinner: Spinner = field(default_factory=lambda: Spinner("dots"))

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        if self.started is None:
            return 0.0
        return (self.ended or time.monotonic()) - self.started

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the steps since the first; None where there is no telling."""
        if self.ended or self.first_step is None or not 2 <= self.done < self.total:
            return None
        pace = (time.monotonic() - self.first_step) / (self.done - 1)
        return pace * (self.total - self.done)


class Screen:
    """Shows all stages at once on a terminal, and one line after the other elsewhere.

    Args:
        title: stands above the stages.
        stages: their names, in order.
        console: where to write.
    """

    def __init__(self, title: str, stages: list[str], console: Console):
        self.title, self.console = title, console
        self.stages = {name: Stage(name) for name in stages}
        self._start = time.monotonic()
        self._last_line = 0.0
        self._live = (
            Live(self, console=console, refresh_per_second=8) if console.is_terminal else None
        )

    def __enter__(self) -> Screen:
        if self._live:
            self._live.start()
        else:
            self.console.print(self.title, markup=False, highlight=False)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    @property
    def seconds(self) -> dict[str, float]:
        """How long each stage took, rounded to a tenth."""
        return {stage.name: round(stage.seconds, 1) for stage in self.stages.values()}

    @contextmanager
    def stage(self, name: str, note: str = "", total: int = 0) -> Iterator[Stage]:
        """Shows a stage as running while the block lasts."""
        stage = self.stages[name]
        stage.started, stage.note, stage.total = time.monotonic(), note, total
        self._line(stage, force=True)
        try:
            yield stage
        except BaseException:
            stage.failed = True
            raise
        finally:
            stage.ended = time.monotonic()
        self._line(stage, force=True)

    def step(self, stage: Stage, done: int, note: str) -> None:
        """Says how far a stage has come."""
        if done and stage.first_step is None:
            stage.first_step = time.monotonic()
        stage.done, stage.note = done, note
        self._line(stage)

    def say(self, stage: Stage, note: str) -> None:
        """Says something about a stage at once."""
        stage.note = note
        self._line(stage, force=True)

    def _line(self, stage: Stage, force: bool = False) -> None:
        now = time.monotonic()
        if self._live or not (force or now - self._last_line >= PLAIN_LINE_SECONDS):
            return
        self._last_line = now
        mark = "done: " if stage.ended else ""
        progress = f"step {stage.done} of {stage.total}" if stage.total and stage.done else ""
        parts = [part for part in (progress, stage.note, self._left(stage)) if part]
        line = f"[{clock(now - self._start)}] {mark}{stage.name}: {', '.join(parts)}"
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    @staticmethod
    def _left(stage: Stage) -> str:
        left = stage.seconds_left
        return "" if left is None else f"about {clock(left)} left"

    def __rich__(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for stage in self.stages.values():
            table.add_row(*self._row(stage))
        whole = Table.grid()
        whole.add_row(Text(f"{self.title}   {clock(time.monotonic() - self._start)}", "bold"))
        whole.add_row(table)
        return whole

    def _row(self, stage: Stage) -> list[Text | Spinner | ProgressBar]:
        if stage.started is None:
            return [Text("·", "dim"), Text(stage.name, "dim"), Text(""), Text(""), Text("")]
        name, took = Text(stage.name), Text(clock(stage.seconds))
        if stage.ended:
            mark = Text("✗", "red") if stage.failed else Text("✓", "green")
            return [mark, name, took, Text(""), Text(stage.note)]
        if not stage.total:
            return [stage.spinner, name, took, Text(""), Text(stage.note)]
        bar = ProgressBar(total=stage.total, completed=stage.done, width=BAR_WIDTH)
        parts = [f"{stage.done} of {stage.total}", stage.note, self._left(stage)]
        note = Text(", ".join(part for part in parts if part))
        return [stage.spinner, name, took, bar, note]
