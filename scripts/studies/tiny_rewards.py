"""Rewards of the tiny tasks, for `gradients.py`: a row's datasource is its task."""

from openrlhf_js.tiny.tasks import TASKS


def reward_func(
    queries: list[str], prompts: list[str], labels: list[str], datasources: list[str]
) -> list[float]:
    """The rewards of responses; a query is a prompt with its response."""
    rewards = []
    for query, prompt, label, task in zip(queries, prompts, labels, datasources, strict=True):
        rewards.append(TASKS[task].reward(query.removeprefix(prompt), label))
    return rewards
