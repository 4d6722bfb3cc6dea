"""Limits, the pace of requests, and how long to wait."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest

from openrlhf_js.evaluation import rates
from openrlhf_js.evaluation.rates import Limits, Pace, back_off_seconds, retry_after_seconds


@pytest.fixture
def clock(monkeypatch):
    """A clock that only sleeping moves; its hand is `clock[0]`."""
    hand = [1000.0]

    async def sleep(seconds):
        hand[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: hand[0])
    monkeypatch.setattr(rates.asyncio, "sleep", sleep)
    return hand


def test_a_pace_spreads_evenly(clock):
    pace, starts = Pace(per_minute=120), []

    async def take():
        for _ in range(5):
            await pace.take(1)
            starts.append(clock[0] - 1000)

    asyncio.run(take())
    assert starts == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_a_pace_goes_by_amounts_and_forgets_idle_time(clock):
    pace, starts = Pace(per_minute=600), []

    async def take():
        for amount, pause in ((100, 0), (50, 0), (1, 3600), (1, 0)):
            clock[0] += pause
            await pace.take(amount)
            starts.append(clock[0] - 1000)

    asyncio.run(take())
    # 100 tokens take 10 s; after an hour without any, nothing has been saved up
    assert starts == pytest.approx([0.0, 10.0, 3610.0, 3610.1])


def test_what_was_not_foreseen_delays_the_next(clock):
    pace = Pace(per_minute=60)

    async def take():
        await pace.take(1)
        clock[0] += 100
        pace.add(5)
        await pace.take(1)
        assert clock[0] == 1105
        pace.add(-1)
        await pace.take(1)
        assert clock[0] == 1105

    asyncio.run(take())


def test_no_limit_never_waits(clock):
    async def take():
        for _ in range(1000):
            await Pace(None).take(10**9)

    asyncio.run(take())
    assert clock[0] == 1000


def test_back_off_doubles_up_to_a_minute_and_is_never_in_step():
    assert [back_off_seconds(attempt, 0.0) for attempt in (1, 2, 3, 4)] == [0.25, 0.5, 1.0, 2.0]
    assert [back_off_seconds(attempt, 0.5) for attempt in (1, 2, 3, 4)] == [0.375, 0.75, 1.5, 3.0]
    assert 30 <= back_off_seconds(50, 0.3) < 60
    assert 30 <= back_off_seconds(10**6, 0.3) < 60


def test_retry_after_in_all_its_forms():
    assert retry_after_seconds({}) is None
    assert retry_after_seconds({"retry-after": "7"}) == 7
    assert retry_after_seconds({"retry-after": "0.25"}) == 0.25
    assert retry_after_seconds({"retry-after": "1", "retry-after-ms": "1500"}) == 1.5
    for nonsense in ("", "soon", "-3", "nan", "inf", "Mon, 99 Foo 2020"):
        assert retry_after_seconds({"retry-after": nonsense}) is None, nonsense
    for endless in (
        "Mon, 01 Jan 2020 00:00:00 +" + "9" * 20,
        f"Mon, 01 Jan {'9' * 20} 00:00:00 GMT",
    ):
        assert retry_after_seconds({"retry-after": endless}) is None, endless
    later = datetime.now(timezone.utc) + timedelta(seconds=30)
    assert 28 <= retry_after_seconds({"retry-after": format_datetime(later, usegmt=True)}) <= 30
    assert retry_after_seconds({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert retry_after_seconds({"retry-after": "Wed, 21 Oct 2015 07:28:00 -0000"}) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrency", 0),
        ("concurrency", 1.5),
        ("concurrency", True),
        ("attempts", 0),
        ("requests_per_minute", 0),
        ("tokens_per_minute", float("inf")),
        ("tokens_per_minute", "many"),
        ("timeout_seconds", None),
        ("timeout_seconds", float("nan")),
    ],
)
def test_limits_that_are_none(name, value):
    with pytest.raises(ValueError, match=f"^{name} is .*; give a"):
        Limits(**{name: value})


def test_limits_without_rates():
    assert Limits() == Limits(64, None, None, 300, 6)
