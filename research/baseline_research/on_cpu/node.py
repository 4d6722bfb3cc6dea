"""A Ray node with pretended GPUs."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import tempfile

from baseline_research.on_cpu import processes
from openrlhf_js.trainers.openrlhf.run.device import gpus_needed
from openrlhf_js.trainers.openrlhf.run.leftovers import FOLDER
from openrlhf_js.trainers.openrlhf.run.ray_session import Node


def open_node(args: argparse.Namespace, stack: contextlib.ExitStack) -> Node:
    """A Ray node for this run alone, with as many pretended GPUs as it asks for, and its nursery.

    The node's folder is locked while this process lives, and removed when the stack unwinds.
    """
    import torch

    gpus = gpus_needed(args)

    # Ray puts its sockets in the folder, and a socket's path may have at most 107 characters
    folder = tempfile.mkdtemp(prefix=FOLDER)
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    lock = os.open(os.path.join(folder, "lock"), os.O_CREAT | os.O_WRONLY)
    stack.callback(os.close, lock)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # Ray sets the variable in the worker, too late for a fork
    python, nursery = processes.open_nursery(folder)
    settings = {
        "address": "local",
        "num_gpus": gpus,
        "num_cpus": 2 * gpus + 8,  # slots for actors, most of which wait
        "include_dashboard": False,
        "_temp_dir": folder,
    }
    return Node(python, nursery, settings)
