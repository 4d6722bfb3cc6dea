"""Verifiable tasks: one file per task, with its prompt, problems, grader and record."""

from __future__ import annotations

from importlib import import_module, resources
from pathlib import Path

from answer_graders.record import STATUSES, BenchmarkRecord, Item, Message, Score, Status, Task

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
    "task_of",
]

# The modules of the tasks, each named after its task.
NAMES = (
    "math",
    "gsm8k",
    "geometry3k",
    "knights_knaves",
    "countdown",
    "maze",
    "questions",
    "reasoning_gym",
)

TASKS: dict[str, Task] = {name: import_module(f"{__name__}.{name}").TASK for name in NAMES}

# The files for --reward.remote_url; in the repository they are in reward_models/.
GRADERS = Path(str(resources.files("answer_graders") / "reward_files"))


def task_of(datasource: str) -> Task:
    """The task named before the first slash: `math` for `math/math500`; ValueError if unknown."""
    name = datasource.partition("/")[0]
    if name not in TASKS:
        known = f"it must be one of {', '.join(TASKS)}, or begin with one of them and a slash"
        raise ValueError(f"no task grades the datasource {datasource!r}; {known}")
    return TASKS[name]


def benchmarks() -> dict[str, tuple[Task, BenchmarkRecord]]:
    """All benchmarks by name, each with its task."""
    return {
        name: (task, benchmark)
        for task in TASKS.values()
        for name, benchmark in task.benchmarks.items()
    }
