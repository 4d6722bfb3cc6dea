"""All tasks by name."""

from __future__ import annotations

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
from openrlhf_js.tasks.record import BenchmarkRecord, Task

# In the order of `data build --help`.
GRADED: dict[str, Task] = {
    task.name: task
    for task in (
        math.TASK,
        gsm8k.TASK,
        geometry3k.TASK,
        knights_knaves.TASK,
        countdown.TASK,
        maze.TASK,
        reasoning_gym.TASK,
        sort.TASK,
    )
}

# Those that `data build` makes files of.
TASKS: dict[str, Task] = {name: task for name, task in GRADED.items() if task.problems}


def task_of(datasource: str) -> Task:
    """The task named before the first slash: `math` for `math/math500`; ValueError if unknown."""
    name = datasource.partition("/")[0]
    if name not in GRADED:
        known = f"it must be one of {', '.join(GRADED)}, or begin with one of them and a slash"
        raise ValueError(f"no task grades the datasource {datasource!r}; {known}")
    return GRADED[name]


def benchmarks() -> dict[str, tuple[Task, BenchmarkRecord]]:
    """All benchmarks by name, each with its task."""
    return {
        name: (task, benchmark)
        for task in TASKS.values()
        for name, benchmark in task.benchmarks.items()
    }
