"""Puts the texts of many requests into batches, which one thread scores."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

# Indices of the texts with their scores, part by part; one that is not finite is no number.
Scorer = Callable[[Sequence[str]], Iterable[tuple[list[int], list[float]]]]


class Full(Exception):
    """So many texts wait already that these cannot."""


class ScoringFailed(Exception):
    """The model raised on a batch; its message is the model's."""


class Part(NamedTuple):
    """What the model has done: how many texts, in how many seconds, and whether it failed."""

    texts: int
    seconds: float
    failed: bool


class _Job:
    """The texts of one request."""

    def __init__(self, texts: Sequence[str], loop: asyncio.AbstractEventLoop):
        self.texts = texts
        self.loop = loop
        self.answer: asyncio.Future[list[float]] = loop.create_future()
        self.scores = [0.0] * len(texts)  # none is read before all are written
        self.taken = 0  # texts that went into batches
        self.left = len(texts)  # texts without a score

    def settle(self, error: Exception | None) -> None:
        if self.answer.done():  # given up meanwhile
            return
        if error is None:
            self.answer.set_result(self.scores)
        else:
            self.answer.set_exception(error)


class Batcher:
    """Scores texts of concurrent requests together, first come, first served.

    What comes while the model is at work goes together. A batch starts when it is full, or
    `max_wait_seconds` after the model is free and there is a text.

    Args:
        score: runs in a thread of the batcher's own, the only one.
        batch_size: the most texts that are given to `score` together.
        max_wait_seconds: of a model that is free, for more texts than one to come.
        queue_size: the most texts that may wait.
        tell: told in that thread of every part that `score` gives.
    """

    def __init__(
        self,
        score: Scorer,
        batch_size: int = 64,
        max_wait_seconds: float = 0.003,
        queue_size: int = 8192,
        tell: Callable[[Part], None] = lambda part: None,
    ):
        self._score = score
        self._batch_size = batch_size
        self._max_wait_seconds = max_wait_seconds
        self.queue_size = queue_size
        self._tell = tell
        self._jobs: deque[_Job] = deque()
        self.waiting = 0  # texts in `_jobs` that no batch has taken
        self._closed = False
        self._changed = threading.Condition()  # held only for moments, also by the event loop
        self._thread = threading.Thread(target=self._run, name="reward-model", daemon=True)
        self._thread.start()

    async def score(self, texts: Sequence[str]) -> list[float]:
        """The scores of the texts, in their order. If it is cancelled, what waits is dropped.

        Raises:
            Full: there is no room for them in the queue.
            ScoringFailed: the model raised on one of their batches.
        """
        if not texts:
            return []
        job = _Job(texts, asyncio.get_running_loop())
        with self._changed:
            # however long, a request alone has room: its size is limited elsewhere
            if self._closed or (self.waiting and self.waiting + len(texts) > self.queue_size):
                raise Full(f"{self.waiting} texts wait; there is room for {self.queue_size}")
            self._jobs.append(job)
            self.waiting += len(texts)
            if self.waiting == len(texts) or self.waiting >= self._batch_size:
                self._changed.notify()
        try:
            return await job.answer
        finally:
            self._drop(job)

    def close(self) -> None:
        """Ends the thread after the batch it is at; what waits is never answered."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _drop(self, job: _Job) -> None:
        with self._changed:
            if job.taken < len(job.texts):
                self._jobs.remove(job)
                self.waiting -= len(job.texts) - job.taken
                job.taken = len(job.texts)

    def _run(self) -> None:
        while (batch := self._take()) is not None:
            done: list[tuple[_Job, Exception | None]] = []
            began = time.perf_counter()
            places = [(job, index) for job, start, stop in batch for index in range(start, stop)]
            unscored = set(range(len(places)))
            try:
                texts = [job.texts[index] for job, index in places]
                for indices, scores in self._score(texts):
                    for number, score in zip(indices, scores, strict=True):
                        job, index = places[number]
                        job.scores[index] = score
                        job.left -= 1
                        if not job.left:
                            done.append((job, None))
                    unscored.difference_update(indices)
                    began = self._report(done, len(indices), began)
                if unscored:
                    raise RuntimeError(f"{len(unscored)} of {len(places)} texts got no score")
            except Exception as error:  # whatever the model does, the thread goes on
                failure = ScoringFailed(f"{type(error).__name__}: {error}")
                done = [(job, failure) for job in dict.fromkeys(places[i][0] for i in unscored)]
                self._report(done, len(unscored), began, failed=True)

    def _report(
        self,
        done: list[tuple[_Job, Exception | None]],
        texts: int,
        began: float,
        failed: bool = False,
    ) -> float:
        """Settles jobs in their event loops; returns the time now."""
        now = time.perf_counter()
        self._tell(Part(texts, now - began, failed))
        for loop in {job.loop for job, _ in done}:
            settled = [each for each in done if each[0].loop is loop]
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, settled)
        done.clear()
        return now

    def _take(self) -> list[tuple[_Job, int, int]] | None:
        """The next texts, as slices of jobs; None once the batcher is closed."""
        with self._changed:
            while not self._jobs and not self._closed:
                self._changed.wait()
            deadline = time.monotonic() + self._max_wait_seconds
            while self.waiting < self._batch_size and not self._closed:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            if self._closed:
                return None
            batch: list[tuple[_Job, int, int]] = []
            room = self._batch_size
            while self._jobs and room:
                job = self._jobs[0]
                start = job.taken
                job.taken = min(len(job.texts), start + room)
                batch.append((job, start, job.taken))
                room -= job.taken - start
                if job.taken == len(job.texts):
                    self._jobs.popleft()
            self.waiting -= self._batch_size - room
            return batch


def _settle(done: list[tuple[_Job, Exception | None]]) -> None:
    for job, error in done:
        job.settle(error)
