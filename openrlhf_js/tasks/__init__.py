"""Verifiable tasks: each is one module with its prompt, its data and its grader."""

from __future__ import annotations

import importlib

from openrlhf_js.tasks.base import STATUSES, Item, Message, Score, Status, Task

__all__ = ["STATUSES", "TASKS", "Item", "Message", "Score", "Status", "Task", "task_of"]

TASKS: dict[str, Task] = {}
for _name in ("math", "gsm8k", "geometry3k", "countdown", "knights_knaves", "maze"):
    try:  # TEMPORARY, while the modules are being written: becomes a plain table
        TASKS[_name] = importlib.import_module(f"openrlhf_js.tasks.{_name}")  # type: ignore
    except Exception:
        pass


def task_of(datasource: str) -> Task:
    """The task that grades a row of this datasource: `math` for `math/math500` and for `math`.

    The part before the first slash names the task; the rest groups OpenRLHF's evaluation metrics.

    Raises:
        ValueError: no task has that name.
    """
    name = datasource.partition("/")[0]
    if name not in TASKS:
        raise ValueError(
            f"no task grades the datasource {datasource!r}; it must be one of {', '.join(TASKS)}, "
            "or begin with one of them and a slash"
        )
    return TASKS[name]
