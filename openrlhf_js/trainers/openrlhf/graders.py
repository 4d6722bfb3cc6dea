"""Validates what users' reward functions return, in a run and in the trial call before it.

As a program, this file loads a user's file in a separate process, as upstream does, and calls its
reward function for one row (`checks.rewards.loading` starts it).
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import logging
import math
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from answer_graders.labels import call_grader
from openrlhf_js.estimators.own import error_in_file
from openrlhf_js.trainers.openrlhf.upstream import BadInput, BadReward

logger = logging.getLogger(__name__)

REWARD_FUNCTION = "reward_func"  # the names that upstream looks for in a user's file
AGENT = "AgentExecutor"
TRIED = f"its {REWARD_FUNCTION}, called for a row of the data,"
NOT_A_DICT = 'not a dict such as {"rewards": [1.0]}'


# --- what a reward function returns ------------------------------------------------------------


def as_number(reward: Any) -> float:
    """The one finite number in a grader's reward: a number, or a tensor, array or list of one.

    Raises BadReward for anything else, such as the grader's exception in place of a reward.
    """
    if isinstance(reward, BadReward):
        raise reward
    if isinstance(reward, Exception):
        raise BadReward(f"the grader failed: {type(reward).__name__}: {reward}") from reward
    value = _one_number(reward)
    if value is None or not math.isfinite(value):
        raise BadReward(f"the reward is {reward!r:.200}, not one finite number")
    return value


def _one_number(value: Any) -> float | None:
    """The number that a value is or holds, finite or not; None for anything else."""
    while isinstance(value, list | tuple) and len(value) == 1:
        (value,) = value
    if value is None or isinstance(value, str | bytes | dict | list | tuple):
        return None
    try:
        if isinstance(value, int | float):
            return float(value)
        import torch  # slow to load, and Python's own types do not need it

        (number,) = torch.as_tensor(value, dtype=torch.float64).flatten().tolist()
        return float(number)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


def numeric_logs(logs: Any) -> dict[str, Any]:
    """A grader's `extra_logs` if all are numbers or tensors of one number; {} for None.

    Raises BadInput for any other value: no response of that grader could be logged.
    """
    logs = {} if logs is None else logs
    if not isinstance(logs, dict):
        raise BadInput(f"the grader's extra_logs are {type(logs).__name__}, not a dict of numbers")
    for name, value in logs.items():
        if _one_number(value) is None:
            raise BadInput(
                f"the grader's extra_logs have {name}={value!r:.100}, not a number: only numbers "
                "are logged, so leave it out"
            )
    return logs


def settle(response: dict[str, Any], on_bad_reward: str) -> str | None:
    """Makes the reward and the score of a graded response finite floats, in place.

    With `on_bad_reward` "stop" a bad reward raises BadReward; with "mask" it becomes NaN, which the
    experience maker masks, and the reason is returned. Raises BadInput for logs that are not
    numbers.
    """
    try:
        reward = as_number(response.get("reward"))
        score = response.get("scores")
        score = reward if score is None else as_number(score)
        logs = numeric_logs(response.get("extra_logs"))
    except BadReward as error:
        prompt, label = str(response.get("prompt")), str(response.get("label"))
        message = f"{error} (prompt {prompt[-400:]!r}, label {label[:200]!r})"
        if on_bad_reward == "stop":
            raise BadReward(message) from error
        logger.warning("response masked: %s", message)
        response.update({"reward": math.nan, "scores": None, "extra_logs": {}})
        return message
    response.update({"reward": reward, "scores": score, "extra_logs": logs})
    return None


# --- the trial call before a run ---------------------------------------------------------------


class Trial(NamedTuple):
    """One call of a reward function, with a made-up response to a row of the data."""

    prompt: str
    response: str
    label: Any
    datasource: str
    may_fail: bool
    """Whether an exception or a missing reward is no problem: a run masks them, or the call differs
    from a run's."""


def call_problem(reward_func: Any) -> str | None:
    """Why a run could not call this reward function; None if it could."""
    if not callable(reward_func):
        return f"its {REWARD_FUNCTION} is {type(reward_func).__name__}, not a function"
    signature = inspect.signature(reward_func)
    call: dict[str, Any] = {"datasources": []} if "datasources" in signature.parameters else {}
    try:
        signature.bind([], [], [], **call)
    except TypeError:
        return (
            f"its {REWARD_FUNCTION} takes {signature}, and a run calls it with three lists: "
            f"{REWARD_FUNCTION}(queries, prompts, labels)"
        )
    return None


def answer_problem(reward_func: Callable[..., Any], trial: Trial, file: Path) -> str | None:
    """Why a run could not train on what a reward function returns; None if it could."""
    query = trial.prompt + trial.response
    rows = [query], [trial.prompt], [trial.label]
    try:
        answer = call_grader(reward_func, *rows, [trial.datasource])
    except SystemExit:
        return f"{TRIED} exits Python"
    except Exception as error:
        if trial.may_fail:
            return None
        return f"{TRIED} raises {error_in_file(error, file)} (response {trial.response[:80]!r})"
    if not isinstance(answer, dict):
        return f"{TRIED} returns {type(answer).__name__}, {NOT_A_DICT}"
    reward = answer.get("rewards")
    if "rewards" not in answer:
        return f"{TRIED} returns a dict without rewards, {NOT_A_DICT}"
    is_missing = reward is None or _one_number(reward) is not None
    if trial.may_fail and is_missing:
        return None
    try:
        as_number(reward)
        if answer.get("scores") is not None:
            as_number(answer["scores"])
        numeric_logs(answer.get("extra_logs"))
    except (BadReward, BadInput) as error:
        return f"{TRIED} gives nothing to train on: {error}"
    return None


def load(path: str, name: str) -> Any:
    """Loads a user's file as upstream does; BadInput if that fails or it does not define `name`."""
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SystemExit:
        raise BadInput("cannot be loaded: it exits Python") from None
    except Exception as error:
        raise BadInput(f"cannot be loaded: {error_in_file(error, Path(path))}") from None
    if not hasattr(module, name):
        raise BadInput(f"cannot be loaded: it defines no {name}")
    return module


def main() -> None:
    """Loads the file, reports that, reads the trial, and reports its result, each as a JSON line.

    It ends without waiting for threads that the file has started.
    """
    from openrlhf_js.trainers.openrlhf.run.device import prepare_device

    path, name, device = sys.argv[1:]
    trials = os.fdopen(os.dup(0), "rb")
    reports = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)  # keep the file's own reads and prints off our pipes
    os.dup2(nothing, 1)

    def report(**said: Any) -> None:
        os.write(reports, json.dumps(said).encode() + b"\n")

    prepare_device(device)
    sys.path.insert(1, os.getcwd())  # as in Ray's workers
    try:
        module = load(path, name)
    except BadInput as error:
        report(problem=str(error))
        os._exit(0)
    reward_func = getattr(module, name)
    problem = call_problem(reward_func) if name == REWARD_FUNCTION else None
    report(problem=problem, task=str(getattr(module, "TASK", "")))
    trial: Trial | None = pickle.load(trials)
    if trial is not None and name == REWARD_FUNCTION and problem is None:
        report(problem=answer_problem(reward_func, trial, Path(path)))
    os._exit(0)
