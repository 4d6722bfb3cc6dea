"""Checks the source of rewards (file, agent, servers, reward model in the run) and the labels."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from answer_graders.programs.console import progress
from openrlhf_js.trainers.openrlhf.checks.prompts import DataSet
from openrlhf_js.trainers.openrlhf.data_files import DATASOURCE, first_rows
from openrlhf_js.trainers.openrlhf.flags import Flat
from openrlhf_js.trainers.openrlhf.graders import AGENT, REWARD_FUNCTION, TRIED, Trial

# The current folder is left out until everything is imported: a user's file there may have the
# name of a standard module.
LOAD = """
import sys
sys.path[:] = filter(None, sys.path)
from openrlhf_js.trainers.openrlhf.graders import main
main()
"""


class UserFile(NamedTuple):
    """A user's Python file: why upstream cannot use it, and the task that it grades."""

    problem: str | None
    task: str = ""  # its TASK, if it has one


Finish = Callable[[Trial | None], UserFile]


@contextmanager
def loading(path: str, name: str, device: str, limit_seconds: float) -> Iterator[Finish]:
    """Loads a user's Python file in a process of its own, in the background.

    Yields a function that waits for it and returns whether the file has the `name` that upstream
    looks for. Given a trial, it also calls the reward function. The file has no other effect on
    this process.
    """
    if not path.endswith(".py") or not os.path.isfile(path):
        missing = "does not exist" if path.endswith(".py") else "is not a Python file (.py)"
        yield lambda _: UserFile(missing)
        return
    command = [sys.executable, "-c", LOAD, path, name, device]
    limit = f"{limit_seconds:g} s (--js.reward_timeout_seconds)"
    # no pipes for output: processes that the file starts may keep them open
    with tempfile.TemporaryFile() as reports, tempfile.TemporaryFile() as errors:
        channels: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": reports, "stderr": errors}
        with subprocess.Popen(command, **channels) as process:

            def finish(trial: Trial | None) -> UserFile:
                is_late = False
                try:
                    process.communicate(pickle.dumps(trial), timeout=limit_seconds)
                except subprocess.TimeoutExpired:
                    is_late = True
                reports.seek(0)
                said = [json.loads(line) for line in reports.read().splitlines()]
                if len(said) < (1 if trial is None else 2):
                    errors.seek(0)
                    said.append({"problem": _unfinished(said, errors.read(), is_late, limit)})
                return UserFile(
                    problem=next(filter(None, (line["problem"] for line in said)), None),
                    task=said[0].get("task", ""),
                )

            try:
                yield finish
            finally:
                process.kill()


def _unfinished(said: Sequence[Any], errors: bytes, is_late: bool, limit: str) -> str:
    """Why the process that loads a file did not report everything it should."""
    last_words = errors.decode(errors="replace").strip().rpartition("\n")[2]
    if not said:
        cause = last_words or "it exits Python"
        return f"its import took more than {limit}" if is_late else f"cannot be loaded: {cause}"
    cause = (
        f"takes more than {limit}" if is_late else f"exits Python ({last_words or 'in silence'})"
    )
    return f"{TRIED} {cause}"


def grader_file(agent: str | None, addresses: Sequence[str]) -> tuple[str, str] | None:
    """The file of a run's agent, or its reward file in place of addresses, and the name that
    upstream looks for in it; None without such a file."""
    if agent:
        return agent, AGENT
    if addresses and addresses[0].endswith(".py"):
        return addresses[0], REWARD_FUNCTION
    return None


@contextmanager
def grader_loading(flat: Flat) -> Iterator[Callable[[Trial | None], UserFile | None]]:
    """`loading` of the run's agent or reward file; what it yields returns None without one."""
    addresses = (flat["reward.remote_url"] or "").split(",")
    file = grader_file(flat["train.agent_func_path"], addresses)
    if file is None:
        yield lambda _: None
        return
    with loading(*file, flat["js.device"], flat["js.reward_timeout_seconds"]) as finish:
        yield finish


def reward_problems(flat: Flat, grader: UserFile | None) -> Iterator[str]:
    agent = flat["train.agent_func_path"]
    url = flat["reward.remote_url"]
    flag = "train.agent_func_path" if agent else "reward.remote_url"
    if flat[flag] and flat["reward.normalize_enable"] and flat["algo.advantage.estimator"] != "gae":
        yield (
            f"--reward.normalize_enable normalises a reward model in Ray, and --{flag} gives the "
            "rewards: leave it out here (a server normalises with `openrlhf-js rm serve`)"
        )
    if url and grader is None:
        from openrlhf_js.trainers.openrlhf.rewards import address_problems

        addresses = [address.strip() for address in url.split(",")]
        yield from address_problems(addresses, may_start_later=flat["ckpt.load_enable"])
    elif grader:
        if grader.problem:
            yield f"--{flag} {agent or url.split(',')[0]}: {grader.problem}"
    elif not flat["reward.model_name_or_path"]:
        yield (
            "nothing gives rewards: give --reward.remote_url (a .py file or an address), "
            "--reward.model_name_or_path or --train.agent_func_path"
        )
    elif flat["algo.advantage.estimator"] == "remax":
        yield (
            "remax needs rewards with the responses, and a reward model in Ray gives them later: "
            "serve it (`openrlhf-js rm serve`) and give --reward.remote_url"
        )


def is_our_task(name: str) -> bool:
    """Whether the TASK of a reward file is one of ours; users may have a TASK of their own."""
    if not name:  # the tasks are slow to load
        return False
    try:
        from answer_graders.rewards import BY_DATASOURCE
        from answer_graders.tasks import TASKS
    except ModuleNotFoundError:  # without the extra, no file grades with our tasks
        return False
    return name == BY_DATASOURCE or name.partition("/")[0] in TASKS


def label_problems(data_sets: Sequence[DataSet], flat: Flat, task_name: str) -> Iterator[str]:
    """Labels in local files that the run's grader would refuse hours later."""
    key = flat["data.label_key"]
    if key is None:
        yield f"--data.label_key is missing: {task_name} grades against the label of a row"
        return
    for flag, name, rows in data_sets:
        if rows is not None:
            used = first_rows(rows, flat["data.max_samples"], (key, DATASOURCE))
            for problem in _refused_labels(used, key, task_name):
                yield f"--{flag} {name}: {problem}"


def _refused_labels(rows: Sequence[Any], key: str, task_name: str) -> list[str]:
    """The first label that is refused, and how many are."""
    from answer_graders.rewards import check_row_label

    first = ""
    refused = 0
    with progress("checking labels", len(rows)) as bar:
        for number, row in enumerate(rows, 1):
            try:
                check_row_label(task_name, row[key], row.get(DATASOURCE))
            except ModuleNotFoundError as error:  # its message names the extra
                return [str(error)]
            except ValueError as error:
                first = first or f"row {number}: {error}"
                refused += 1
            bar.advance()
    return [f"{first} ({refused:,} of {len(rows):,} labels are refused)"] if refused else []
