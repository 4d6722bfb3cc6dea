"""Reward functions that grade sampled responses: a user's file, or the tasks' graders."""

from __future__ import annotations

import hashlib
import runpy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from answer_graders.labels import call_grader
from answer_graders.rewards import RewardFunction, reward_by_datasource
from openrlhf_js import __version__
from openrlhf_js.estimators.own import error_in_file
from paired_eval.stats.estimate import Floats


class RewardFailed(RuntimeError):
    """A response without a usable reward."""


@dataclass(frozen=True)
class Grader:
    """A reward function `reward_func(queries, prompts, labels)` with a name and a fingerprint.

    A query is one string, a prompt followed by its response.
    """

    function: RewardFunction
    name: str
    """For people."""
    sha256: str
    """Of what decides the rewards: a file, or the version of the package."""

    def grade(
        self,
        queries: Sequence[str],
        prompts: Sequence[str],
        labels: Sequence[str],
        datasources: Sequence[str],
    ) -> Floats:
        """The reward of each query. Raises RewardFailed unless each is one finite number."""
        try:
            rewards: Any = call_grader(self.function, queries, prompts, labels, datasources)
            if isinstance(rewards, dict):
                rewards = rewards["rewards"]
            rewards = torch.as_tensor(rewards, dtype=torch.float64)
            rewards = rewards.detach().cpu().flatten().numpy()
            if rewards.shape != (len(queries),) or not np.isfinite(rewards).all():
                raise ValueError(f"one finite number for each of {len(queries)} queries: {rewards}")
        except (Exception, SystemExit) as error:  # whatever a user's own file raises
            raise RewardFailed(
                f"{self.name}: {type(error).__name__}: {error}\n"
                f"among responses to {prompts[0]!r:.200}"
            ) from error
        return rewards


def file_grader(path: Path) -> Grader:
    """The `reward_func` of a Python file."""
    try:
        names = runpy.run_path(str(path))
    except (Exception, SystemExit) as error:
        raise ValueError(f"--reward {path}: {error_in_file(error, path)}") from error
    if "reward_func" not in names:
        raise ValueError(f"--reward {path} gives no reward_func(queries, prompts, labels)")
    return Grader(
        names["reward_func"],
        name=str(path),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )


TASKS_GRADER = Grader(
    reward_by_datasource,
    name="the tasks of the rows, without --reward",
    sha256=hashlib.sha256(f"None {__version__}".encode()).hexdigest(),
)
