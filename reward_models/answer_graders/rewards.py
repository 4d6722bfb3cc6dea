"""The graders as OpenRLHF calls them: queries, prompts and labels in, rewards and logs out.

A query is a prompt and its response in one string; the grader must not see the prompt.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from answer_graders.answers import without_end_marks
from answer_graders.record import STATUSES, Score, Task
from answer_graders.tasks import task_of
from answer_graders.thinking import with_opened_thinking

Strings = Sequence[str]
RewardFunction = Callable[[Strings, Strings, Strings], dict[str, Any]]
T = TypeVar("T")

BY_DATASOURCE = "by_datasource"  # the TASK of a reward file that grades mixed data

_THREADS = 32  # answers that hang then wait in parallel
_LEAST_TAIL = 16  # characters without white space; a shorter tail could match by accident


def reward_function(task: str) -> RewardFunction:
    """The `reward_func` of one task, for a file that `--reward.remote_url` names.

    Each tensor holds one number per response: `rewards` and `scores` (1 for a correct answer, less
    for others), and in `extra_logs` `accuracy`, `status/<status>` and `grading_seconds`. ValueError
    for a malformed label, and for a query whose response cannot be told from the prompt.
    """
    chosen = task_of(task)

    def reward_func(queries: Strings, prompts: Strings, labels: Strings) -> dict[str, Any]:
        return _graded([chosen] * len(labels), queries, prompts, labels)

    return reward_func


def reward_by_datasource(
    queries: Strings, prompts: Strings, labels: Strings, datasources: Strings | None = None
) -> dict[str, Any]:
    """The `reward_func` of mixed data: each response is graded by the task of its own datasource.

    openrlhf_js passes the datasources to a reward function with a parameter of this name.
    ValueError if one is missing or unknown. The logs also hold `accuracy/<task>`, which is NaN for
    responses of other tasks.
    """
    if datasources is None or not all(datasources):
        raise ValueError(
            "a row has no datasource: train mixed data with `openrlhf-js train`, give a reward "
            "function of your own the parameter `datasources` to hand on, or point "
            "--reward.remote_url at one task's file"
        )
    import torch  # slow to load, and not needed to check labels

    tasks = [task_of(datasource) for datasource in datasources]
    result = _graded(tasks, queries, prompts, labels)
    accuracy = result["extra_logs"]["accuracy"]
    for name in {task.name for task in tasks}:
        is_of_task = torch.tensor([name == task.name for task in tasks])
        result["extra_logs"][f"accuracy/{name}"] = accuracy.where(is_of_task, torch.nan)
    return result


def check_row_label(task: str, label: Any, datasource: Any) -> None:
    """ValueError unless a reward file with this TASK can grade against the row's label."""
    row_task(None if task == BY_DATASOURCE else task, datasource).check_label(label)


def row_task(task: str | None, datasource: Any) -> Task:
    """The task that grades a row: the one named for all rows, or else its datasource's.

    ValueError if it is unknown.
    """
    if task is not None:
        return task_of(task)
    if not isinstance(datasource, str):
        raise ValueError(f"its datasource must name a task, got {datasource!r:.80}")
    return task_of(datasource)


def grade(task: Task, response: str, label: Any, prompt: str = "") -> Score:
    """The score of a response, with the thought that its prompt opens; ValueError for a label
    that the task cannot grade against."""
    return task.score(with_opened_thinking(prompt, response), task.check_label(label))


def in_threads(function: Callable[..., T], *arguments: Sequence[Any]) -> list[T]:
    """As `list(map(function, *arguments))`, many calls at a time."""
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(function, *arguments))


def _graded(
    tasks: Sequence[Task], queries: Strings, prompts: Strings, labels: Strings
) -> dict[str, Any]:
    """The rewards and logs of responses, each graded by its own task."""
    if not len(tasks) == len(queries) == len(prompts) == len(labels):
        raise ValueError(
            f"{len(queries)} queries, {len(prompts)} prompts and {len(labels)} labels: they must "
            "be equally many"
        )
    import torch

    graded = in_threads(_grade, tasks, queries, prompts, labels)
    scores = [score for score, _ in graded]
    rewards = torch.tensor([score.value for score in scores])
    logs = {"grading_seconds": torch.tensor([seconds for _, seconds in graded])}
    for status in STATUSES:
        has_status = [score.status == status for score in scores]
        logs[f"status/{status}"] = torch.tensor(has_status, dtype=torch.float32)
    logs["accuracy"] = logs["status/correct"]
    return {"rewards": rewards, "scores": rewards, "extra_logs": logs}


def _grade(task: Task, query: str, prompt: str, label: str) -> tuple[Score, float]:
    """The score of a response, and the seconds that it took."""
    began = time.perf_counter()
    score = grade(task, response_of(query, prompt), label, prompt)
    return score, time.perf_counter() - began


def response_of(query: str, prompt: str) -> str:
    """The response in a query, without the tokens that end it; never a part of the prompt.

    Decoding may change white space, turn an image into many tokens, and cut a long prompt on the
    left. Then the response begins after the unchanged end of the prompt; ValueError if not found.
    """
    start = len(prompt) if query.startswith(prompt) else _end_of_prompt(query, prompt)
    return without_end_marks(query, start)


def _end_of_prompt(query: str, prompt: str) -> int:
    """The position of the first word after a prompt that decoding has changed."""
    places = [place for place, character in enumerate(query) if not character.isspace()]
    text = "".join([query[place] for place in places])
    asked = "".join(prompt.split())
    places.append(len(query))
    if text.startswith(asked):
        return places[len(asked)]

    def missing(length: int) -> bool:
        return asked[-length:] not in text

    longest = bisect_left(range(1, len(asked) + 1), True, key=missing)
    tail = asked[len(asked) - longest :]
    # The count: if the prompt's end was changed, an equal text further up could match instead.
    if len(tail) < _LEAST_TAIL or text.count(tail) < asked.count(tail):
        raise ValueError(
            f"the query does not hold the end of its prompt, {prompt[-80:]!r}: the tokenizer does "
            "not give back what it was given, and the response cannot be told from the prompt"
        )
    after = text[::-1].find(tail[::-1])  # rfind could take quadratic time
    return places[len(text) - after]
