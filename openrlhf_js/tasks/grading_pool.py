"""Grade in worker processes that can be killed: every answer has a time and a memory limit.

Each calling thread waits for its own answer; the pool has no threads, and starts no process before
the first answer. `grading_worker` says which processes there are. They are not `multiprocessing`'s,
which would run the caller's main program again and cannot be had in a daemonic process.

An answer holds one of a few slots, as many as there are cores. One that turns out to be slow gives
up its slot, so that others are graded beside it, and its process gets a low priority: some answers
that hang cost the others little.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import threading
import time
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from concurrent.futures import Future

from openrlhf_js.tasks.base import Score, scored
from openrlhf_js.tasks.grading_processes import CannotLoad, Template, TimedOut, Worker
from openrlhf_js.tasks.grading_slots import Place, Slots
from openrlhf_js.tasks.grading_worker import pack

MOST_WORKERS = 16
SLOW_ANSWERS = 32  # so many may run beside the slots; further ones keep theirs
CACHED_SCORES = 1 << 15


def grade(function: str, answer: str, label: str) -> Score:
    """The score of an answer, by the process's own pool: see `GradingPool.grade`."""
    return _POOL.grade(function, answer, label)


class GradingPool:
    """Worker processes that grade for any number of threads.

    Of the threads that call `grade` at a time, up to `concurrency` find their answers under way and
    the others wait. A batch should be graded by that many threads, lest all of them sit with
    answers that hang.

    Args:
        workers: how many answers are graded at a time at full speed; by default one for each core,
            and no more than 16.
        timeout_seconds: the wall-clock limit of an answer, from when a worker takes it.
        memory_bytes: the memory limit of a worker, above what it has before its first answer.
    """

    def __init__(
        self,
        workers: int | None = None,
        timeout_seconds: float = 5.0,
        memory_bytes: int = 1 << 30,
    ):
        self.workers = workers or min(len(os.sched_getaffinity(0)), MOST_WORKERS)
        self.concurrency = self.workers + SLOW_ANSWERS
        self.timeout_seconds = timeout_seconds
        self.memory_bytes = memory_bytes
        self._scores: OrderedDict[bytes, Score] = OrderedDict()
        self._closed = False
        self._begin()
        _POOLS.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()  # of scores, running and idle
        self._running: dict[bytes, Future[Score]] = {}
        self._idle: dict[str, list[Worker]] = defaultdict(list)  # by function
        self._slots = Slots(self.workers)
        self._slow = threading.Semaphore(SLOW_ANSWERS)
        self._template_lock = threading.Lock()
        self._template: Template | None = None

    def grade(self, function: str, answer: str, label: str) -> Score:
        """The score of an answer; equal calls are graded once, and remembered.

        A `timeout` or `error` costs this answer alone. The function may not write files or start
        processes.

        Args:
            function: `"package.module:name"` of a plain function (answer, label) -> (status,
                detail). If its module has a function `warm_up`, it is called once before any
                answer: for imports that are too heavy for the module itself.
            answer: what the response gives as its answer.
            label: the gold answer.

        Raises:
            RuntimeError: the function cannot be loaded, or the pool is closed.
        """
        request = pack(function, answer, label)
        key = hashlib.sha256(request).digest()
        with self._lock:
            if key in self._scores:
                self._scores.move_to_end(key)
                return self._scores[key]
            twin = self._running.get(key)
            if twin is None:
                mine = self._running[key] = Future()
        if twin is not None:
            return twin.result()
        try:
            score, lasting = self._grade(function, request)
            with self._lock:
                if lasting:
                    self._scores[key] = score
                if len(self._scores) > CACHED_SCORES:
                    self._scores.popitem(last=False)
            mine.set_result(score)
            return score
        except BaseException as error:
            interrupted = RuntimeError("grading was interrupted")
            mine.set_exception(error if isinstance(error, Exception) else interrupted)
            raise
        finally:
            with self._lock:
                del self._running[key]

    def _grade(self, function: str, request: bytes) -> tuple[Score, bool]:
        """The score, and whether it would be the same another time."""
        left_seconds = self.timeout_seconds
        with Place(self._slots, self._slow) as place:
            for fresh in (False, True):
                with self._worker(function, fresh) as worker:
                    began = time.monotonic()
                    try:
                        return worker.ask(request, left_seconds, place.give_up_the_slot), True
                    except TimedOut as end:
                        detail = f"grading took over {self.timeout_seconds:g} s"
                        return scored("timeout", detail), not end.starved
                    except (EOFError, ConnectionError):  # the answer's doing, or somebody's
                        left_seconds -= time.monotonic() - began
        return scored("error", "the grading process died"), False

    @contextlib.contextmanager
    def _worker(self, function: str, fresh: bool) -> Iterator[Worker]:
        """A worker for one answer; it stays for others if it is as good as new."""
        with self._lock:
            idle = self._idle[function]
            worker = idle.pop() if idle and not fresh else None
        worker = worker or self._fork(function)
        try:
            yield worker
        finally:
            if worker.reusable:
                with self._lock:
                    self._idle[function].append(worker)
            else:
                worker.end()

    def _fork(self, function: str) -> Worker:
        with self._template_lock:
            while True:
                if self._closed:
                    raise RuntimeError("the grading pool is closed")
                is_new = self._template is None
                template = self._template or Template(self.timeout_seconds, self.memory_bytes)
                self._template = template
                try:
                    return template.fork(function)
                except CannotLoad:
                    raise
                except BaseException as error:  # were it kept, a late reply could be misread
                    self._template = None
                    last_words = template.end()
                    if not isinstance(error, EOFError | ConnectionError | TimeoutError):
                        raise
                    if is_new:  # else somebody has killed it: try with another
                        raise RuntimeError(
                            f"the grading process did not start ({error!r}): {last_words}"
                        ) from error

    def close(self) -> None:
        """Ends all processes of the pool, which grades no more."""
        with self._template_lock:
            self._closed = True
            if self._template:
                self._template.end()
                self._template = None
        with self._lock:
            for worker in (worker for idle in self._idle.values() for worker in idle):
                worker.end()
            self._idle.clear()

    def __enter__(self) -> GradingPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _forget(self) -> None:
        """In a fork of the process: lets go of what is the parent's."""
        for worker in (worker for idle in self._idle.values() for worker in idle):
            worker.forget()
        if self._template:
            self._template.forget()
        self._begin()


def _forget_the_parents() -> None:
    for pool in list(_POOLS):
        pool._forget()


_POOLS: weakref.WeakSet[GradingPool] = weakref.WeakSet()
_POOL = GradingPool()
atexit.register(_POOL.close)
os.register_at_fork(after_in_child=_forget_the_parents)
