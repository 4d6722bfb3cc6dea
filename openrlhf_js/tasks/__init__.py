"""Verifiable tasks: each is one module with its prompt, its data and its grader."""

from openrlhf_js.tasks.base import STATUSES, Item, Message, Score, Status, Task

__all__ = ["STATUSES", "Item", "Message", "Score", "Status", "Task"]
