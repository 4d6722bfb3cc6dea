"""The console of a program of several stages: all of them on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

PLAIN_LINE_SECONDS = 5.0  # at least, between two plain lines of one stage


def clock(seconds: float) -> str:
    """Minutes and seconds, as 1:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


@dataclass
class Stage:
    """A stage that runs; `note` is what is shown behind it."""

    name: str
    note: str = ""
    done: int = 0
    total: int = 0  # steps; 0 where they cannot be counted


class Screen:
    """Shows the stages of a program, in order; a context manager."""

    def __init__(self, title: str, stages: Sequence[str], console: Console):
        self.title, self.console = title, console
        self.seconds: dict[str, float] = {}
        """How long each finished stage took."""
        self._began, self._last_line = time.monotonic(), 0.0
        self._bars = Progress(
            TextColumn("{task.fields[mark]} {task.description}", markup=False),
            TimeElapsedColumn(),
            BarColumn(24),
            TextColumn("{task.fields[note]}", markup=False),
            TimeRemainingColumn(),
            console=console,
        )
        self._bar = {
            name: self._bars.add_task(name, start=False, mark="·", note="waiting", total=None)
            for name in stages
        }

    def __enter__(self) -> Screen:
        self.console.print(self.title, markup=False, highlight=False, soft_wrap=True)
        if self.console.is_terminal:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._bars.stop()

    @contextmanager
    def stage(self, name: str, note: str = "", total: int = 0) -> Iterator[Stage]:
        """Shows a stage as running while the block lasts."""
        stage, began, mark = Stage(name, note, total=total), time.monotonic(), "✗"
        self._bars.start_task(self._bar[name])
        self._show(stage, "▸", force=True)
        try:
            yield stage
            mark = "✓"
        finally:
            self.seconds[name] = round(time.monotonic() - began, 1)
            self._show(stage, mark, force=True)
            self._bars.stop_task(self._bar[name])

    def step(self, stage: Stage, done: int, note: str) -> None:
        """Shows how many steps of a stage are done."""
        stage.done, stage.note = done, note
        self._show(stage, "▸")

    def say(self, stage: Stage, note: str) -> None:
        """Shows a note of a stage at once."""
        stage.note = note
        self._show(stage, "▸", force=True)

    def _show(self, stage: Stage, mark: str, force: bool = False) -> None:
        steps = f"step {stage.done} of {stage.total}" if stage.total and stage.done else ""
        note = ", ".join(filter(None, (steps, stage.note)))
        total = stage.total or (1 if mark == "✓" else None)
        done = total if mark == "✓" else stage.done
        self._bars.update(self._bar[stage.name], mark=mark, note=note, completed=done, total=total)
        now = time.monotonic()
        if not self.console.is_terminal and (force or now - self._last_line >= PLAIN_LINE_SECONDS):
            self._last_line = now
            line = f"[{clock(now - self._began)}] {mark} {stage.name}: {note}"
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)
