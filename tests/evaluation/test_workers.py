"""Workers that share what there is to do."""

from __future__ import annotations

import asyncio

import pytest

from openrlhf_js.evaluation.workers import side_by_side


def test_they_share_what_there_is_to_do():
    left, done, most, now = iter(range(10)), [], 0, 0

    async def work():
        nonlocal most, now
        for number in left:
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1
            done.append(number)

    asyncio.run(side_by_side(work, 3))
    assert sorted(done) == list(range(10))
    assert most == 3


def test_a_failure_ends_the_others():
    turns, ended = iter(range(3)), []

    async def work():
        number = next(turns)
        try:
            if number == 1:
                raise ValueError("broken")
            await asyncio.sleep(60)
        finally:
            ended.append(number)

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(side_by_side(work, 3))
    assert sorted(ended) == [0, 1, 2]
