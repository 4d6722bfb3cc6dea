"""Rewards for `gradients.py`: a row's datasource is its task."""

import re

from baseline_research.tiny.tasks import TASKS

STORIES = "stories"


def reward_func(
    queries: list[str], prompts: list[str], labels: list[str], datasources: list[str]
) -> list[float]:
    """The rewards of responses; a query is a prompt with its response."""
    rewards = []
    for query, prompt, label, task in zip(queries, prompts, labels, datasources, strict=True):
        response = query.removeprefix(prompt)
        reward = mentions if task == STORIES else TASKS[task].reward
        rewards.append(reward(response, label))
    return rewards


def mentions(story: str, word: str) -> float:
    """1 if the story has the word, or its plural with an s."""
    return float(bool(re.search(rf"\b{word}s?\b", story.lower())))
