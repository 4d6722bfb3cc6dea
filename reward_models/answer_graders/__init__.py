"""Verifiable rewards: the prompts, problems and graders of tasks. Needs no torch.

Names are imported on first use, so that a program loads only the modules that it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from answer_graders.record import STATUSES, Item, Message, Score, Status, Task
    from answer_graders.rewards import reward_by_datasource, reward_function
    from answer_graders.tasks import GRADERS, TASKS, benchmarks, task_of

__version__ = "0.5.0.dev0"

__all__ = [
    "GRADERS",
    "STATUSES",
    "TASKS",
    "Item",
    "Message",
    "Score",
    "Status",
    "Task",
    "benchmarks",
    "reward_by_datasource",
    "reward_function",
    "task_of",
]
_MODULES = {
    "record": ("STATUSES", "Item", "Message", "Score", "Status", "Task"),
    "rewards": ("reward_by_datasource", "reward_function"),
    "tasks": ("GRADERS", "TASKS", "benchmarks", "task_of"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
