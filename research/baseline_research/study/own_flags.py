"""The flags behind --, with which a study trains the user's own model."""

from __future__ import annotations

from collections.abc import Sequence

NEEDED = {  # needed behind -- to train the user's own model, with placeholder values
    "actor.model_name_or_path": "MODEL",
    "data.prompt_dataset": "PROMPTS",
    "eval.dataset": "HELD_OUT",
    "eval.steps": "N",
    "reward.remote_url": "REWARD.py",
    "vllm.num_engines": "1",
}
OTHER_REWARDS = ("reward.model_name_or_path", "train.agent_func_path")


def missing_flags(words: Sequence[str]) -> list[str]:
    """The flags that a study of the user's own model lacks behind --, such as `--eval.steps N`."""
    given = {name for name, value in training_flags(words) if value}
    if not given.isdisjoint(OTHER_REWARDS):
        given.add("reward.remote_url")
    return [f"--{name} {value}" for name, value in NEEDED.items() if name not in given]


def training_flags(words: Sequence[str]) -> list[tuple[str, str]]:
    """Each word of a command line as (flag, value); a flag without `=` has the value "".

    Examples:
        >>> training_flags(["--a", "1", "2", "--b=3"])
        [('a', ''), ('a', '1'), ('a', '2'), ('b', '3')]
    """
    flags = []
    flag = ""
    for word in words:
        value = word
        if word.startswith("--"):
            flag, _, value = word.removeprefix("--").partition("=")
        flags.append((flag, value))
    return flags
