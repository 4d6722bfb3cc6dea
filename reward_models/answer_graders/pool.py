"""Grades in worker processes that can be killed: every answer has a time and a memory limit.

Answers may be hostile. So a worker limits its own memory, can neither write files nor start
processes, and is killed when an answer takes too long; only that answer is lost. Each calling
thread waits for its own answer. Workers are plain subprocesses: `multiprocessing`, and pools built
on it, would run the caller's main program again in each.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import multiprocessing.connection
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from answer_graders.record import Score, scored

MOST_WORKERS = 16
ENVIRONMENT = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}  # equal answers get equal scores
_START_SECONDS = 120.0  # for imports, which do not count against an answer
_LONGEST_DETAIL = 500  # characters
_LONGEST_REPLY = 10_000  # bytes
_CHILD = (
    "import sys; sys.path[:] = sys.argv[5:]; from answer_graders.pool import _serve; "
    "_serve(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))"
)
_REFUSED = re.compile(
    r"socket\.(bind|connect|sendto|sendmsg)|subprocess\.Popen|pty\.spawn|os\.(chmod|chown|exec|fork|forkpty|kill"
    r"|killpg|link|mkdir|posix_spawn|remove|rename|rmdir|symlink|system|truncate|utime)"
)


def grade(function: str, answer: str, label: str) -> Score:
    """The score of an answer, from the pool of this process: see `GradingPool.grade`.

    RuntimeError in a worker, which may not start other workers.
    """
    if _is_worker:
        raise RuntimeError(
            "this score hands answers to workers itself: call it in threads, not in a GradingPool"
        )
    return _POOL.grade(function, answer, label)


class GradingPool(contextlib.AbstractContextManager):
    """Worker processes that grade for any number of threads.

    `workers` answers are graded at a time (by default one per core, at most 16), each for at most
    `timeout_seconds`; a worker may take `memory_bytes` more than before its first answer.
    """

    def __init__(
        self, workers: int | None = None, timeout_seconds: float = 5.0, memory_bytes: int = 1 << 30
    ):
        self.workers = workers or min(len(os.sched_getaffinity(0)), MOST_WORKERS)
        self.timeout_seconds = timeout_seconds
        self.memory_bytes = memory_bytes
        self._alive: set[_Worker] = set()
        self._closed = False
        self._begin()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Starts with no workers; in a forked process this lets go of the parent's workers."""
        for worker in self._alive:
            worker.connection.close()
        self._alive = set()
        self._idle: dict[str, list[_Worker]] = {}
        self._lock = threading.Lock()  # for _alive and _idle
        self._slots = threading.Semaphore(self.workers)

    def grade(self, function: str, answer: str, label: str) -> Score:
        """The score from `function`, the `"package.module:name"` of (answer, label) -> `Score`.

        RuntimeError: the function cannot be loaded, or the pool is closed.
        """
        with self._slots, self._worker(function) as worker:
            try:
                request = _pack(answer, label)
                reply = worker.ask(request, self.timeout_seconds)
                value, status, detail, worker.reusable = reply
                return Score(value, status, detail)
            except TimeoutError:
                return scored("timeout", f"grading took over {self.timeout_seconds:g} s")
            except (EOFError, OSError):
                return scored("error", "the grading process died")

    @contextlib.contextmanager
    def _worker(self, function: str) -> Iterator[_Worker]:
        """A worker for one answer; it is kept for later answers if it is still reusable."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the grading pool is closed")
            idle = self._idle.setdefault(function, [])
            while idle and idle[-1].process.poll() is not None:  # killed from outside
                self._alive.remove(idle[-1])
                idle.pop().end()
            if idle:
                worker = idle.pop()
            else:
                worker = _Worker(function, self.timeout_seconds, self.memory_bytes)
            self._alive.add(worker)
        try:
            failure = worker.failure()
            if failure:
                raise RuntimeError(f"cannot load the grading function {function!r}:\n{failure}")
            worker.reusable = False
            yield worker
        finally:
            with self._lock:
                kept = worker.reusable and not self._closed
                if kept:
                    idle.append(worker)
                else:
                    self._alive.discard(worker)
            if not kept:
                worker.end()

    def close(self, *_: object) -> None:
        """Ends all processes and closes the pool; answers still being graded get `error`."""
        with self._lock:
            self._closed = True
            for worker in self._alive:
                worker.process.kill()
            for idle in self._idle.values():
                for worker in idle:
                    worker.end()

    __exit__ = close


class _Worker:
    """The parent's view of a worker process."""

    def __init__(self, function: str, timeout_seconds: float, memory_bytes: int):
        self.reusable = False
        self.connection, theirs = multiprocessing.connection.Pipe()
        arguments = [theirs.fileno(), function, timeout_seconds, memory_bytes]
        path = [os.path.abspath(entry or os.environ.get("PWD", "/")) for entry in sys.path]
        command = [sys.executable, "-c", _CHILD] + [str(argument) for argument in arguments] + path
        with theirs:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=os.environ | ENVIRONMENT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # the terminal's Ctrl-C does not reach it
            )

    def ask(self, request: bytes, seconds: float) -> list[Any]:
        """The next reply; TimeoutError, or EOFError or OSError if the process died."""
        if request:
            self.connection.send_bytes(request)
        if not self.connection.poll(seconds):
            raise TimeoutError
        reply = self.connection.recv_bytes(_LONGEST_REPLY)
        return json.loads(reply.decode("utf-8", "surrogatepass"))

    def failure(self) -> str:
        """Waits until the worker has its imports; returns why it cannot grade, or ""."""
        try:
            return "" if self.reusable else str(self.ask(b"", _START_SECONDS)[0])
        except (EOFError, OSError) as error:
            return f"its process did not start ({error!r})"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()


def _pack(*values: str | float | bool) -> bytes:
    """One message, which keeps any text unchanged, lone surrogates included."""
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _serve(descriptor: int, function: str, timeout_seconds: float, memory_bytes: int) -> None:
    """The worker's main loop: grades until the parent is gone or memory use has grown too far."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a parent's signal mask survives exec
    global _is_worker
    _is_worker = True
    connection = multiprocessing.connection.Connection(descriptor)
    try:
        module_name, _, name = function.partition(":")
        grader = getattr(importlib.import_module(module_name), name)
    except Exception:
        connection.send_bytes(_pack(traceback.format_exc()[-2000:]))
        return
    usual_bytes = _virtual_bytes()
    _confine(usual_bytes + memory_bytes)
    connection.send_bytes(_pack(""))
    reusable = True
    while reusable:
        request = connection.recv_bytes()  # EOFError once the parent is gone
        score = _graded(grader, request, timeout_seconds)
        reusable = _virtual_bytes() - usual_bytes <= memory_bytes // 4
        detail = " ".join(score.detail[:_LONGEST_DETAIL].split())
        connection.send_bytes(_pack(score.value, score.status, detail, reusable))


def _graded(grader: Callable[[str, str], Score], request: bytes, timeout_seconds: float) -> Score:
    """The score of the answer in a request; an exception becomes an `error` score."""
    # If the parent is gone, the kernel still ends us, even in C code that holds the interpreter.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, timeout_seconds + 1.0)
    try:
        answer, label = json.loads(request.decode("utf-8", "surrogatepass"))
        score = grader(answer, label)
        if not isinstance(score, Score):
            raise TypeError(f"a grader returns a Score, not {type(score).__name__}")
        score = Score(float(score.value), score.status, str(score.detail))
    except BaseException as error:  # whatever an answer raises costs only that answer
        # str(error) could fail, or take very long
        reasons = [reason for reason in error.args if isinstance(reason, str)]
        score = scored("error", ": ".join([type(error).__name__, *reasons]))
    signal.setitimer(signal.ITIMER_REAL, 0)
    return score


def _virtual_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _confine(memory_bytes: int) -> None:
    """Removes the rights that grading does not need; `memory_bytes` limits the whole process."""
    sys.dont_write_bytecode = True
    limits = {resource.RLIMIT_AS: memory_bytes, resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 0}
    for limited, most in limits.items():
        _, hard_limit = resource.getrlimit(limited)
        limit = most if hard_limit == resource.RLIM_INFINITY else min(most, hard_limit)
        resource.setrlimit(limited, (limit, limit))
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
    if _REFUSED.fullmatch(event) or (event == "open" and arguments[2] & writing):
        raise PermissionError(f"grading may not do this: {event}")


_is_worker = False  # whether this process is a worker
_POOL = GradingPool()
