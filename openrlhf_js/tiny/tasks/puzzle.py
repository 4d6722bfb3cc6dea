"""Quickstart tasks that are small cases of one in `openrlhf_js.tasks`, answered in `<answer>`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from openrlhf_js.tasks.base import Generated, Item
from openrlhf_js.tiny.tasks.base import Split, TinyTask

OPEN, CLOSE = "<answer> ", " </answer>"


def small_case(
    task: Generated,
    options: Mapping[str, Any],
    training_items: int,
    kind: Callable[[Item], Hashable],
    tokens: tuple[str, ...],
    max_answer_tokens: int,
    **own: Any,
) -> TinyTask:
    """A task with the problems, the splits and the grader of another.

    Args:
        task: the other.
        options: of its `generate`, which make problems that a small model can learn.
        training_items: how many to make.
        kind: tells the kinds of training items apart.
        tokens: of prompts and answers, without the tags.
        max_answer_tokens: between the tags.
        own: what else a `TinyTask` has.
    """

    def split(seed: int, held_out: int) -> Split:
        """Items of both splits; ValueError if there are not so many to hold out."""
        train: dict[Hashable, list[Item]] = {}
        for item in task.generate(training_items, seed, "train", **options):
            train.setdefault(kind(item), []).append(item)
        return Split(list(train.values()), list(task.generate(held_out, seed, "test", **options)))

    return TinyTask(
        tokens=(*tokens, OPEN, CLOSE),
        max_new_tokens=max_answer_tokens + 3,  # the tags and the end
        grader=f"{task.NAME}.py",
        split=split,
        label=task.label,
        right_response=task.right_response,
        score=task.score,
        **own,
    )
