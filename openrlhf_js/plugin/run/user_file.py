"""A Python file of the user's, tried before a run: a grader, or an agent."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import NamedTuple

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
