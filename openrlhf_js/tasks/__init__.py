"""Verifiable tasks: each is one module with its prompt, its data and its grader."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from openrlhf_js import needs

needs("graders", "math_verify", "pydantic")

from openrlhf_js.tasks import (
    countdown,
    geometry3k,
    gsm8k,
    knights_knaves,
    math,
    maze,
    reasoning_gym,
    sort,
)
from openrlhf_js.tasks.base import STATUSES, Generated, Item, Loaded, Message, Score, Status, Task

__all__ = ["GRADERS", "STATUSES", "TASKS", "Item", "Message", "Score", "Status", "Task", "task_of"]

# For --reward.remote_url, a file a task; in the repository they lie in reward_models/.
GRADERS = Path(str(resources.files(__name__) / "graders"))

TASKS: dict[str, Generated | Loaded] = {
    math.NAME: math,
    gsm8k.NAME: gsm8k,
    geometry3k.NAME: geometry3k,
    knights_knaves.NAME: knights_knaves,
    countdown.NAME: countdown,
    maze.NAME: maze,
    reasoning_gym.NAME: reasoning_gym,
}

GRADED: dict[str, Task] = {**TASKS, sort.NAME: sort}  # the quickstart makes the problems of sort


def task_of(datasource: str) -> Task:
    """The task named before the first slash: `math` for `math/math500`; ValueError if unknown."""
    name = datasource.partition("/")[0]
    if name not in GRADED:
        known = f"it must be one of {', '.join(GRADED)}, or begin with one of them and a slash"
        raise ValueError(f"no task grades the datasource {datasource!r}; {known}")
    return GRADED[name]
