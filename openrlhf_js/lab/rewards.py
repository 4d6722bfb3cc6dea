"""Reward files as a run's `--reward.remote_url` names them, and what they may not give."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openrlhf_js import __version__
from openrlhf_js.tasks.rewards import RewardFunction, reward_function

SHOWN = 200  # characters of a prompt and of a response


class RewardFailed(RuntimeError):
    """A response has no reward that can be reckoned with."""


class SourcedLabel(str):
    """A label that knows its row's data source, by which mixed data is graded.

    Attributes:
        datasource: the row's.
    """

    datasource: str

    @classmethod
    def of(cls, label: str, datasource: str) -> SourcedLabel:
        """The label, with its data source."""
        made = cls(label)
        made.datasource = datasource
        return made


@dataclass(frozen=True)
class Grader:
    """A reward function, with a name and a fingerprint of what it was made from.

    Attributes:
        function: called as `reward_func(queries, prompts, labels)`, three lists of text, where a
            query is a prompt and its response in one.
        name: a file's path, or a task.
        sha256: of the file's text.
    """

    function: RewardFunction
    name: str
    sha256: str

    def grade(
        self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str]
    ) -> NDArray[np.float64]:
        """The reward of each query, in their order.

        Raises:
            RewardFailed: the function raises, or does not give one finite number for each query.
        """
        if not queries:
            return np.zeros(0)
        lists = list(queries), list(prompts), list(labels)
        try:
            rewards = self._rewards(self.function(*lists))
        except Exception as error:  # whatever a user's own file raises
            raise RewardFailed(self._blamed(error, *lists)) from error
        if rewards.shape != (len(queries),):
            raise RewardFailed(
                f"{self.name}: gave rewards of shape {rewards.shape} for {len(queries)} responses; "
                "reward_func must give one number for each query"
            )
        if not np.isfinite(rewards).all():
            bad = int(np.flatnonzero(~np.isfinite(rewards))[0])
            raise RewardFailed(
                f"{self.name}: the reward is {rewards[bad]}, which must be a finite number"
                + _shown(lists[0][bad], lists[1][bad])
            )
        return rewards

    @staticmethod
    def _rewards(answer: Any) -> NDArray[np.float64]:
        found = answer["rewards"] if isinstance(answer, dict) else answer
        if hasattr(found, "detach"):
            found = found.detach().cpu().numpy()
        values = np.array([np.nan if each is None else each for each in found], dtype=np.float64)
        return values.squeeze(1) if values.ndim == 2 and values.shape[1] == 1 else values

    def _blamed(self, error: Exception, *lists: list[str]) -> str:
        """What was raised, with the first query that raises it by itself, if one does."""
        for one in zip(*lists, strict=True):
            try:
                self.function(*([each] for each in one))
            except Exception as alone:  # whatever a user's own file raises
                return f"{self.name}: {type(alone).__name__}: {alone}" + _shown(one[0], one[1])
        return f"{self.name}: {type(error).__name__}: {error}"


def _shown(query: str, prompt: str) -> str:
    response = query[len(prompt) :] if query.startswith(prompt) else query
    cut = f"{response[:SHOWN]!r}{' ...' if len(response) > SHOWN else ''}"
    return f"\nfor the prompt ending in {prompt[-SHOWN:]!r}\nand the response {cut}"


def file_grader(path: Path) -> Grader:
    """The `reward_func` of a Python file.

    Raises:
        ValueError: it is no file, cannot be imported, or has no `reward_func`.
    """
    if str(path).startswith(("http:", "https:")):  # a path keeps one of the slashes
        raise ValueError(
            f"--reward {path} is an address: the lab takes a Python file with `reward_func`, which "
            "may itself ask a server"
        )
    if path.suffix != ".py" or not path.is_file():
        raise ValueError(f"--reward {path} is no Python file; name one with `reward_func` in it")
    spec = importlib.util.spec_from_file_location("reward_func", path)
    assert spec and spec.loader  # for a path that ends in .py
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a user's own file raises
        raise ValueError(
            f"--reward {path} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, "reward_func", None)
    if not callable(function):
        raise ValueError(
            f"--reward {path} has no reward_func(queries, prompts, labels), which a run's "
            "--reward.remote_url would call"
        )
    return Grader(function, str(path), hashlib.sha256(path.read_bytes()).hexdigest())


def task_grader(task: str) -> Grader:
    """The grader of a task, as `reward_models/<task>.py` has it.

    Raises:
        ValueError: there is no such task.
    """
    version = f"{task} {__version__}"
    return Grader(
        reward_function(task), f"task {task}", hashlib.sha256(version.encode()).hexdigest()
    )
