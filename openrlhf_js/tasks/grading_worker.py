"""The child side of `grading_pool`: a template process, and the workers that it forks.

The template imports what grading needs, which takes seconds, and then forks a worker in
milliseconds whenever the parent asks for one. It has one thread, so that forking is safe, and none
of the parent's memory. It alone signals its workers: a process that it has not waited for keeps its
id, so that no other can be hit. When the parent is gone, it kills its workers and ends.

A worker answers one request after the other. What it grades is hostile: it limits its own memory
and time, and can neither write files nor start processes.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from openrlhf_js.tasks.base import STATUSES

Function = Callable[[str, str], tuple[str, str]]

LOW_PRIORITY = 13  # a 23rd of a usual share: hostile answers cost little, slow ones mostly end
LONGEST_MESSAGE = 1 << 16  # bytes, on the way between parent and template
_LONGEST_DETAIL = 500  # characters
_ANSWERS_PER_WORKER = 1000  # then a fresh one, so that what answers leave behind cannot add up
_REAP_SECONDS = 0.1
_GRACE_SECONDS = 1.0  # the parent, if it lives, kills first

_REFUSED = frozenset({"socket.bind", "socket.connect", "subprocess.Popen", "pty.spawn"}) | {
    f"os.{name}"
    for name in (
        *("chmod", "chown", "exec", "fork", "forkpty", "kill", "killpg", "link", "mkdir"),
        *("posix_spawn", "remove", "rename", "rmdir", "symlink", "system", "truncate", "utime"),
    )
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def pack(*values: str | int | bool) -> bytes:
    """One message, in one line; any text comes back the same, halves of characters included."""
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def unpack(message: bytes) -> list:
    """The values that were packed."""
    return json.loads(message.decode("utf-8", "surrogatepass"))


def main(control_fd: int, timeout_seconds: float, memory_bytes: int) -> None:
    """Serves the parent until it is gone: the template's life.

    The parent sends `["fork", function]` and gets `[pid, ""]` with the worker's socket, or
    `[0, reason]`; `["lower", pid]` and `["end", pid]` are not answered.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a parent's habits survive exec
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    control = socket.socket(fileno=control_fd)
    functions: dict[str, Function] = {}
    workers: set[int] = set()
    dying: set[int] = set()
    try:
        while True:
            # not waited for at once: one of low priority, with much memory, takes a while to die
            dying -= {pid for pid in dying if os.waitpid(pid, os.WNOHANG)[0]}
            control.settimeout(_REAP_SECONDS if dying else None)
            try:
                message = control.recv(LONGEST_MESSAGE)
            except TimeoutError:
                continue
            if not message:
                break
            command, subject = unpack(message)
            if command == "fork":
                try:
                    if subject not in functions:
                        functions[subject] = _load(subject)
                except Exception:
                    reason = traceback.format_exc()[-_LONGEST_DETAIL * 4 :]
                    control.sendall(pack(0, reason))
                else:
                    workers.add(_fork(control, functions[subject], timeout_seconds, memory_bytes))
            elif command == "lower":
                os.setpriority(os.PRIO_PROCESS, subject, LOW_PRIORITY)
            elif command == "end":
                workers.remove(subject)
                os.kill(subject, signal.SIGKILL)
                dying.add(subject)
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        for pid in workers | dying:
            os.waitpid(pid, 0)


def _load(function: str) -> Function:
    """The function of that name, with its module made ready by its `warm_up`, if it has one."""
    module_name, _, name = function.partition(":")
    module = importlib.import_module(module_name)
    loaded = getattr(module, name)
    getattr(module, "warm_up", lambda: None)()
    gc.collect()
    gc.freeze()  # else each worker's collector would look through it all, and copy its pages
    return loaded


def _fork(
    control: socket.socket, function: Function, timeout_seconds: float, memory_bytes: int
) -> int:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid = os.fork()
        if pid == 0:
            control.close()
            theirs.close()
            _serve(ours, function, timeout_seconds, memory_bytes)
        socket.send_fds(control, [pack(pid, "")], [theirs.fileno()])
    return pid


def _serve(
    connection: socket.socket, function: Function, timeout_seconds: float, memory_bytes: int
) -> NoReturn:
    """Grades until the parent is gone, or this process is not as fresh as it should be."""
    try:
        usual_bytes = _virtual_bytes()
        _confine(usual_bytes + memory_bytes)
        for count, request in enumerate(connection.makefile("rb"), start=1):
            # Not a handler in Python: only the kernel ends C code that holds the interpreter.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, timeout_seconds + _GRACE_SECONDS)
            _, answer, label = unpack(request)
            status, detail = _call(function, answer, label)
            signal.setitimer(signal.ITIMER_REAL, 0)
            swollen = _virtual_bytes() > usual_bytes + memory_bytes // 4
            last = swollen or count == _ANSWERS_PER_WORKER
            connection.sendall(pack(status, detail, last))
            if last:
                break
    finally:
        os._exit(0)


def _call(function: Function, answer: str, label: str) -> tuple[str, str]:
    try:
        status, detail = function(answer, label)
        if status not in STATUSES or not isinstance(detail, str):
            raise TypeError(f"a grading function returned {status!r}, {detail!r}")
    except BaseException as error:  # whatever an answer brings about is its own loss
        # str(error) could itself fail, or take any time
        reasons = [part for part in error.args if isinstance(part, str)]
        status, detail = "error", ": ".join([type(error).__name__, *reasons])
    return status, " ".join(detail[:_LONGEST_DETAIL].split())


def _confine(memory_bytes: int) -> None:
    """Takes from this process what grading does not need; the memory is what it may have in all."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.dont_write_bytecode = True
    for limited, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),  # does not bind root; the hook does
    ):
        hard = resource.getrlimit(limited)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limited, (most, most))
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _REFUSED or (event == "open" and arguments[2] & _WRITING):
        raise PermissionError(f"grading may not do this: {event}")


def _virtual_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
