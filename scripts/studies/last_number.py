"""Rewards of answers with their working, for `gradients.py`: the last number is the answer."""

import re

NUMBER = re.compile(r"\d+")


def reward_func(queries: list[str], prompts: list[str], labels: list[str]) -> list[float]:
    """1 where the last number of a response is the label."""
    rewards = []
    for query, prompt, label in zip(queries, prompts, labels, strict=True):
        numbers = NUMBER.findall(query.removeprefix(prompt))
        rewards.append(float(bool(numbers) and numbers[-1] == label))
    return rewards
