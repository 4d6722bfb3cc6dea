"""Sends many requests to an endpoint at a time, and hands over each reply as it comes.

An error, Ctrl-C or SIGTERM ends a run: it sends no more requests, but waits for the replies under
way, which may be paid for, as long as one may take. A second signal ends the wait at once.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from answer_graders.programs.console import say
from paired_eval.sampling.endpoint import Endpoint, NoReply

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Job = TypeVar("Job")
Result = TypeVar("Result")


def run_all(
    endpoint: Endpoint,
    jobs: Iterable[Job],
    work: Callable[[Job], Awaitable[Result]],
    on_results: Callable[[list[tuple[Job, Result | NoReply]]], None],
    concurrency: int,
) -> None:
    """Runs `work` on every job, `concurrency` at a time, and hands over results as they come.

    A worker takes its next job from `jobs` once its last result was handed over. `on_results` runs
    in a thread, one call at a time, with all results since its last call. If `work` raises NoReply,
    that is the job's result. Any other error, or a signal (KeyboardInterrupt), ends the run and is
    raised once the replies under way have been handed over.
    """
    reason = asyncio.run(_Run(endpoint, iter(jobs), work, on_results).everything(concurrency))
    if reason is not None:
        raise reason


@dataclass
class _Run(Generic[Job, Result]):
    """The workers of one call of `run_all`, and their shared state."""

    endpoint: Endpoint
    jobs: Iterator[Job]
    work: Callable[[Job], Awaitable[Result]]
    on_results: Callable[[list[tuple[Job, Result | NoReply]]], None]
    results: list[tuple[Job, Result | NoReply]] = field(default_factory=list)  # not handed over yet
    handed_over: int = 0  # results
    reason: BaseException | None = None  # why the run stops
    workers: list[asyncio.Task[None]] = field(default_factory=list)

    async def everything(self, concurrency: int) -> BaseException | None:
        """Does all jobs; returns the error that stopped the run, or None."""
        self.handing_over = asyncio.Lock()
        self.ended = asyncio.Event()  # all is done, or the run stops
        async with self.endpoint:
            with _signals_call(self.interrupt):
                self.workers = [asyncio.create_task(self.worker()) for _ in range(concurrency)]
                finished = asyncio.gather(*self.workers, return_exceptions=True)
                finished.add_done_callback(lambda _: self.ended.set())
                await self.ended.wait()
                if not finished.done():
                    await self.last_replies()
                await finished
                await self.hand_over_last()
        return self.reason

    async def worker(self) -> None:
        """Does one job after another, until none is left or the run stops."""
        try:
            for job in self.jobs:
                result: Result | NoReply
                try:
                    result = await self.work(job)
                except NoReply as error:
                    result = error
                self.results.append((job, result))
                await asyncio.shield(self.hand_over(self.handed_over + len(self.results)))
                if self.reason is not None:
                    return
        except Exception as error:
            self.stop(error)

    async def hand_over(self, number: int) -> None:
        """Hands over all results so far, unless the one with this number has been."""
        async with self.handing_over:
            if number > self.handed_over:
                results = self.results
                self.results = []
                self.handed_over += len(results)
                await asyncio.to_thread(self.on_results, results)

    async def hand_over_last(self) -> None:
        try:
            await self.hand_over(self.handed_over + len(self.results))
        except Exception as error:
            self.stop(error)

    def stop(self, reason: BaseException) -> None:
        """Stops new jobs; the first reason is kept."""
        if self.reason is None:
            self.reason = reason
        self.ended.set()

    def interrupt(self) -> None:
        """Stops; the second time, without waiting for replies."""
        if self.reason is not None:
            self.cancel()
        self.stop(KeyboardInterrupt())

    def cancel(self) -> None:
        for worker in self.workers:
            worker.cancel()

    async def last_replies(self) -> None:
        """Waits for the replies under way, and cancels those that take too long."""
        under_way = sum(not worker.done() for worker in self.workers)
        if under_way:
            longest = self.endpoint.timeout_seconds
            say(
                f"stopping: waiting up to {longest:g} s for {under_way} replies under "
                "way, which may be paid for (Ctrl-C ends this at once)",
                error=True,
            )
            await asyncio.wait(self.workers, timeout=longest)
        self.cancel()


@contextmanager
def _signals_call(handle: Callable[[], None]) -> Iterator[None]:
    """Signals that would raise KeyboardInterrupt call `handle` instead."""
    loop = asyncio.get_running_loop()
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
    taken = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in taken:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(handle))
    try:
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)
