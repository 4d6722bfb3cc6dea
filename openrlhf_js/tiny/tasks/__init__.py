"""The tasks of the quickstart: each is one small file."""

from __future__ import annotations

from openrlhf_js.tiny.tasks import countdown, maze, sort
from openrlhf_js.tiny.tasks.base import END, Split, TinyTask, draw

__all__ = ["END", "TASKS", "Split", "TinyTask", "draw"]

TASKS: dict[str, TinyTask] = {"sort": sort.TASK, "countdown": countdown.TASK, "maze": maze.TASK}
