"""What gives rewards: a file, an agent, servers, or a reward model in the run; and its labels."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from openrlhf_js.common.console import progress
from openrlhf_js.plugin.checks.prompts import SPLITS
from openrlhf_js.plugin.data_files import DATASOURCE, first_rows, read_local
from openrlhf_js.plugin.flags import Flat

# Loads a user's file as upstream does, and ends without waiting for threads that it has started.
LOAD = """
import importlib.util, os, sys
from openrlhf_js.plugin.run.device import prepare_device
path, name, device = sys.argv[1:]
prepare_device(device)
spec = importlib.util.spec_from_file_location(name, path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
hasattr(module, name) or sys.exit(f"it defines no {name}")
os.write(2, f"\\nloaded {getattr(module, 'TASK', '')}".encode())
os._exit(0)
"""


class UserFile(NamedTuple):
    """A Python file of the user's: why upstream cannot use it, and the task that it grades."""

    problem: str | None
    task: str = ""  # its TASK, where it has one


def load_file(path: str, name: str, device: str, limit_seconds: float) -> UserFile:
    """Whether a Python file gives upstream the `name` that it looks for.

    The file is imported in a process of its own: what it does there has no other effect here.
    """
    if not path.endswith(".py") or not os.path.isfile(path):
        missing = "does not exist" if path.endswith(".py") else "is not a Python file (.py)"
        return UserFile(missing)
    command = [sys.executable, "-c", LOAD, path, name, device]
    none = subprocess.DEVNULL
    with tempfile.TemporaryFile() as output:  # no pipe: what the file starts may keep it open
        try:
            subprocess.run(command, stdin=none, stdout=none, stderr=output, timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            return UserFile(
                f"its import took over {limit_seconds:g} s (--js.reward_timeout_seconds)"
            )
        output.seek(0)
        last_line = output.read().decode(errors="replace").strip().rpartition("\n")[2]
    status, _, task = last_line.partition(" ")
    if status != "loaded":
        return UserFile(f"cannot be loaded: {last_line or 'it ends Python'}")
    return UserFile(None, task)


def grader_of(
    agent: str | None, addresses: Sequence[str], device: str, limit_seconds: float
) -> UserFile | None:
    """The agent of the run, or the reward file that it has in place of addresses; None for none."""
    if agent:
        return load_file(agent, "AgentExecutor", device, limit_seconds)
    if addresses and addresses[0].endswith(".py"):
        return load_file(addresses[0], "reward_func", device, limit_seconds)
    return None


def reward_problems(flat: Flat, grader: UserFile | None) -> Iterator[str]:
    agent = flat["train.agent_func_path"]
    url = flat["reward.remote_url"]
    remote = bool(url) and grader is None
    if remote and flat["reward.normalize_enable"] and flat["algo.advantage.estimator"] != "gae":
        yield (
            "--reward.normalize_enable normalises a reward model in Ray, and --reward.remote_url "
            "names servers: leave it out here and give it to `openrlhf-js rm serve`"
        )
    if remote:
        from openrlhf_js.plugin.rewards import address_problems

        yield from address_problems([address.strip() for address in url.split(",")])
    elif grader:
        flag = "train.agent_func_path" if agent else "reward.remote_url"
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
    """Whether the TASK of a reward file is one of ours; users have that word for their own, too."""
    try:
        from openrlhf_js.tasks import GRADED
        from openrlhf_js.tasks.rewards import BY_DATASOURCE
    except ModuleNotFoundError:  # without the extra, no file grades with ours
        return False
    return name == BY_DATASOURCE or name.partition("/")[0] in GRADED


def grades_with_our_task(args: argparse.Namespace) -> bool:
    """Whether the reward file or the agent of nested arguments grades with a task of ours."""
    grader = grader_of(
        agent=args.train.agent_func_path,
        addresses=args.reward.remote_url or (),
        device=args.js.device,
        limit_seconds=args.js.reward_timeout_seconds,
    )
    return grader is not None and is_our_task(grader.task)


def label_problems(flat: Flat, task_name: str) -> Iterator[str]:
    """Labels in local files that the grader of the run would refuse hours later."""
    key = flat["data.label_key"]
    if key is None:
        yield f"--data.label_key is missing: {task_name} grades against the label of a row"
        return
    for flag, split in SPLITS.items():
        for name in (flat[flag] or "").split(","):
            rows = read_local(name, flat[split]) if name else None
            if rows is not None:
                used = first_rows(rows, flat["data.max_samples"], (key, DATASOURCE))
                for problem in _refused_labels(used, key, task_name):
                    yield f"--{flag} {name.strip()}: {problem}"


def _refused_labels(rows: Sequence[Any], key: str, task_name: str) -> list[str]:
    """The first label that is refused, and how many are."""
    from openrlhf_js.tasks.rewards import check_row_label

    first = ""
    refused = 0
    with progress("checking labels", len(rows)) as bar:
        for number, row in enumerate(rows, 1):
            try:
                check_row_label(task_name, row[key], row.get(DATASOURCE))
            except ModuleNotFoundError as error:  # it names the extra
                return [str(error)]
            except ValueError as error:
                first = first or f"row {number}: {error}"
                refused += 1
            bar.advance()
    return [f"{first} ({refused:,} of {len(rows):,} labels are refused)"] if refused else []
