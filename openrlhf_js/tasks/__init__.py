"""Verifiable tasks: one file each, with its prompt, its problems, its grader and its record."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from openrlhf_js import needs

needs("graders", "math_verify", "pydantic")

from openrlhf_js.tasks.catalogue import GRADED, TASKS, task_of
from openrlhf_js.tasks.record import STATUSES, Item, Message, Score, Status, Task

__all__ = [
    "GRADED",
    "GRADERS",
    "STATUSES",
    "TASKS",
    "Item",
    "Message",
    "Score",
    "Status",
    "Task",
    "task_of",
]

# The files for --reward.remote_url; in the repository they lie in reward_models/.
GRADERS = Path(str(resources.files(__name__) / "graders"))
