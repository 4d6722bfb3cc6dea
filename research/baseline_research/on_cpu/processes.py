"""The processes of a run without a GPU: Ray's workers are forks of one process, the nursery.

A run imports PyTorch, vLLM and DeepSpeed once and then forks itself. The fork, the nursery, forks
again for each worker that Ray asks for. Ray runs this file in place of Python (`py_executable`): it
passes its arguments, environment and standard streams to the nursery, and lives as long as the
fork. Not for a GPU: a process that has touched CUDA must not fork.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import re
import select
import signal
import socket
import sys
from typing import NoReturn

LENGTH_BYTES = 8
OMP_PAUSE_HARD = 2  # of omp.h


def register() -> None:
    """Prepares a vLLM process for CPU if it belongs to one of our CPU runs, else does nothing.

    vLLM calls it in each of its processes (entry point `vllm.general_plugins`).
    """
    if os.environ.get("OPENRLHF_JS_DEVICE") == "cpu":  # `common.environment.DEVICE`
        from baseline_research.on_cpu import stand_ins as cpu

        cpu.install()


def open_nursery(folder: str) -> tuple[list[str], int]:
    """Forks the nursery, which ends with this process and leads a session with all its forks.

    Call it after all imports, and before this process has any threads other than OpenMP's. Returns
    the command that Ray runs in place of Python, and the nursery's process id.
    """
    path = os.path.join(folder, "nursery")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    parent_lives, held = os.pipe()  # closes when this process ends, however it ends
    sys.stdout.flush()
    sys.stderr.flush()
    _end_openmp_threads()
    nursery = os.fork()
    if nursery:
        listener.close()
        os.close(parent_lives)
        return [sys.executable, "-SE", __file__, path], nursery
    os.close(held)
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    awaited: list[socket.socket | int] = [listener, parent_lives]
    while parent_lives not in select.select(awaited, [], [])[0]:
        connection, _ = listener.accept()
        if not os.fork():
            listener.close()
            os.close(parent_lives)
            _become_worker(connection)
        connection.close()
    os._exit(0)


def _end_openmp_threads() -> None:
    """Ends the OpenMP threads that torch has used from this thread; OpenMP starts new ones.

    A fork has none of them, and GNU's OpenMP would wait for them there forever. Other libraries
    with threads (OpenBLAS, Arrow, tokenizers, LLVM's OpenMP) handle a fork themselves.
    """
    with open("/proc/self/maps", encoding="utf-8") as maps:
        copies = set(re.findall(r"/.*/libgomp\b.*", maps.read()))  # wheels bring their own
    for path in copies:
        if ctypes.CDLL(path).omp_pause_resource_all(OMP_PAUSE_HARD):
            raise RuntimeError(f"{path} keeps its threads, without which a fork would hang")


def _become_worker(connection: socket.socket) -> NoReturn:
    """Runs in this process the script that `main` was called with, and never returns."""
    import atexit
    import runpy
    import traceback

    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        length, streams, _, _ = socket.recv_fds(connection, LENGTH_BYTES, 3)
        with connection.makefile("rb") as file:
            request = json.loads(file.read(int.from_bytes(length, "little")))
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        sys.argv = request["arguments"]
        runpy.run_path(sys.argv[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:  # no code of the parent process may run after it
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Asks the nursery for a fork, and ends when the fork does."""
    path, *words = sys.argv[1:]
    arguments = list(itertools.dropwhile(lambda word: word.startswith("-"), words))  # Python's own
    wanted = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
    }
    request = json.dumps(wanted).encode()
    with socket.socket(socket.AF_UNIX) as nursery:
        nursery.connect(path)
        socket.send_fds(nursery, [len(request).to_bytes(LENGTH_BYTES, "little")], [0, 1, 2])
        nursery.sendall(request)
        nursery.recv(1)


if __name__ == "__main__":
    main()
