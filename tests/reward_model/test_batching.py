"""Batches of concurrent requests, with a stand-in for the model that says what it was given."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence

import pytest

from openrlhf_js.reward_model.batching import Batcher, Full, Part, ScoringFailed


class Scorer:
    """The score of a text is its number. Works while it is `open`, and keeps what it was given."""

    def __init__(self, part: int = 1000):
        self.open = threading.Event()
        self.open.set()
        self.busy = threading.Event()
        self.batches: list[list[str]] = []
        self.part = part

    def __call__(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[float]]]:
        self.batches.append(list(texts))
        self.busy.set()
        self.open.wait()
        order = range(len(texts) - 1, -1, -1)  # another order than they came in
        for start in range(0, len(texts), self.part):
            indices = list(order[start : start + self.part])
            if any(texts[index] == "broken" for index in indices):
                raise RuntimeError("out of memory")
            yield indices, [float(texts[index]) for index in indices]


def run(test, scorer: Scorer, **settings):
    """Runs `test(batcher)` in an event loop, and ends the batcher."""

    async def body():
        batcher = Batcher(scorer, **settings)
        try:
            return await asyncio.wait_for(test(batcher), 30)
        finally:
            scorer.open.set()
            batcher.close()

    return asyncio.run(body())


async def hold(batcher: Batcher, scorer: Scorer) -> asyncio.Task:
    """A request that keeps the model busy until the scorer is opened."""
    scorer.open.clear()
    scorer.busy.clear()
    task = asyncio.ensure_future(batcher.score(["0"]))
    await asyncio.to_thread(scorer.busy.wait)
    return task


def test_each_request_gets_its_own_scores_in_order() -> None:
    scorer = Scorer(part=3)

    async def test(batcher: Batcher) -> list[list[float]]:
        requests = [[str(10 * i + j) for j in range(i % 5)] for i in range(40)]
        return await asyncio.gather(*map(batcher.score, requests))

    scores = run(test, scorer, batch_size=7)
    assert scores == [[10.0 * i + j for j in range(i % 5)] for i in range(40)]
    assert all(len(batch) <= 7 for batch in scorer.batches)


def test_what_comes_while_the_model_works_goes_together() -> None:
    scorer = Scorer()

    async def test(batcher: Batcher) -> None:
        first = await hold(batcher, scorer)
        others = [asyncio.ensure_future(batcher.score([str(i)])) for i in range(10)]
        await asyncio.sleep(0)
        assert batcher.waiting == 10
        scorer.open.set()
        await asyncio.gather(first, *others)

    run(test, scorer, max_wait_seconds=0)
    assert scorer.batches == [["0"], [str(i) for i in range(10)]]


def test_a_full_batch_does_not_wait() -> None:
    scorer = Scorer()

    async def test(batcher: Batcher) -> None:
        await asyncio.gather(*(batcher.score([str(i)]) for i in range(4)))

    run(test, scorer, batch_size=4, max_wait_seconds=3600)
    assert [len(batch) for batch in scorer.batches] == [4]


def test_a_first_text_waits_for_others() -> None:
    scorer = Scorer()

    async def test(batcher: Batcher) -> None:
        first = asyncio.ensure_future(batcher.score(["1"]))
        await asyncio.sleep(0.01)
        await asyncio.gather(first, batcher.score(["2"]))

    run(test, scorer, max_wait_seconds=1)
    assert scorer.batches == [["1", "2"]]


def test_a_full_queue_refuses() -> None:
    scorer = Scorer()

    async def test(batcher: Batcher) -> None:
        first = await hold(batcher, scorer)
        second = asyncio.ensure_future(batcher.score(["1", "2", "3"]))
        await asyncio.sleep(0)
        with pytest.raises(Full, match="3 texts wait"):
            await batcher.score(["4", "5"])
        third = asyncio.ensure_future(batcher.score(["4"]))
        await asyncio.sleep(0)
        scorer.open.set()
        assert await asyncio.gather(first, second, third) == [[0], [1, 2, 3], [4]]
        assert await batcher.score([str(i) for i in range(9)])  # alone, it has room

    run(test, scorer, queue_size=4)


def test_a_cancelled_request_is_dropped() -> None:
    scorer = Scorer()

    async def test(batcher: Batcher) -> None:
        first = await hold(batcher, scorer)
        gone = asyncio.ensure_future(batcher.score(["1", "2"]))
        kept = asyncio.ensure_future(batcher.score(["3"]))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        assert batcher.waiting == 1
        scorer.open.set()
        assert await asyncio.gather(first, kept) == [[0], [3]]

    run(test, scorer)
    assert scorer.batches == [["0"], ["3"]]


def test_all_that_waited_may_be_cancelled_before_the_batch_starts() -> None:
    scorer = Scorer()

    async def test(batcher: Batcher) -> list[float]:
        gone = asyncio.ensure_future(batcher.score(["1"]))
        await asyncio.sleep(0.05)
        gone.cancel()
        await asyncio.wait([gone])
        return await batcher.score(["2", "3"])

    assert run(test, scorer, batch_size=2, max_wait_seconds=0.3) == [2.0, 3.0]


def test_a_failure_is_that_of_its_own_texts() -> None:
    scorer, parts = Scorer(part=1), []

    async def test(batcher: Batcher) -> list:
        first = await hold(batcher, scorer)
        tasks = [asyncio.ensure_future(batcher.score([t])) for t in ("1", "broken", "3")]
        await asyncio.sleep(0)
        scorer.open.set()
        found = await asyncio.gather(first, *tasks, return_exceptions=True)
        return [*found, await batcher.score(["4"])]

    first, one, broken, three, four = run(test, scorer, tell=parts.append)
    assert (first, three, four) == ([0.0], [3.0], [4.0])  # 3 was scored before the failure
    for error in (one, broken):
        assert isinstance(error, ScoringFailed) and "out of memory" in str(error)
    assert [(part.texts, part.failed) for part in parts] == [
        (1, False),
        (1, False),
        (2, True),
        (1, False),
    ]
    assert all(isinstance(part, Part) and part.seconds >= 0 for part in parts)


def test_a_long_request_that_fails_leaves_the_queue() -> None:
    scorer = Scorer()

    async def test(batcher: Batcher) -> None:
        first = await hold(batcher, scorer)
        long = asyncio.ensure_future(batcher.score(["broken", *map(str, range(9))]))
        await asyncio.sleep(0)
        scorer.open.set()
        await first
        with pytest.raises(ScoringFailed):
            await long
        await asyncio.sleep(0)
        assert batcher.waiting == 0

    run(test, scorer, batch_size=2)


def test_a_scorer_that_leaves_texts_out() -> None:
    class Forgetful(Scorer):
        def __call__(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[float]]]:
            yield [0], [1.0]

    async def test(batcher: Batcher) -> None:
        with pytest.raises(ScoringFailed, match="1 of 2 texts got no score"):
            await batcher.score(["1", "2"])

    run(test, Forgetful())


def test_a_closed_batcher_refuses() -> None:
    async def test() -> None:
        batcher = Batcher(Scorer())
        batcher.close()
        with pytest.raises(Full):
            await batcher.score(["1"])

    asyncio.run(test())
