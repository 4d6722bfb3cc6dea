"""How much is asked of an endpoint at a time, and how long to wait before asking again."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timezone
from email.utils import parsedate_to_datetime

FIRST_WAIT_SECONDS = 0.5  # doubles with every attempt, up to:
LONGEST_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Limits:
    """What a `Chat` keeps to, over all its endpoints together.

    Attributes:
        concurrency: requests at the same time.
        requests_per_minute, tokens_per_minute: None is without a limit. Tokens are those of
            prompts and replies together.
        timeout_seconds: for one request, from its start to the end of its reply.
        attempts: how often a request is sent before it counts as failed.
    """

    concurrency: int = 64
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    timeout_seconds: float = 300.0
    attempts: int = 6

    def __post_init__(self) -> None:
        for name in ("concurrency", "attempts"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} is {value!r}; give a whole number of 1 or more")
        for name in ("requests_per_minute", "tokens_per_minute", "timeout_seconds"):
            value = getattr(self, name)
            if value is None and name != "timeout_seconds":
                continue
            if type(value) not in (int, float) or not 0 < value < math.inf:
                raise ValueError(f"{name} is {value!r}; give a number above 0")


class Pace:
    """Spreads amounts evenly over time, in the order of the calls.

    A whole minute's amount is never let go at once: what an endpoint counts by the second would
    refuse most of it.

    Args:
        per_minute: None is without a limit.
    """

    def __init__(self, per_minute: float | None):
        self._seconds_each = 60 / per_minute if per_minute else 0.0
        self._free = 0.0  # when the next amount may go

    async def take(self, amount: float) -> None:
        """Waits until the amount may go."""
        now = time.monotonic()
        start = max(now, self._free)
        self._free = start + amount * self._seconds_each
        if start > now:
            await asyncio.sleep(start - now)

    def add(self, amount: float) -> None:
        """Counts what `take` did not foresee; below 0 is what it counted too much."""
        self._free = max(self._free, time.monotonic()) + amount * self._seconds_each


def back_off_seconds(attempt: int, chance: float) -> float:
    """How long to wait before an attempt: twice as long each time, and never in step with others.

    Args:
        attempt: 1 is the first that comes again.
        chance: a random number of [0, 1).
    """
    longest = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(attempt - 1, 30))
    return longest * (0.5 + chance / 2)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """What an answer's headers say to wait; None where they say nothing that can be read.

    Both forms of `Retry-After` are read, seconds and a date, and `retry-after-ms`.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # the latter of a year without end
        return None
    if when.tzinfo is None:  # the date's "-0000"
        when = when.replace(tzinfo=timezone.utc)
    return max(0.0, when.timestamp() - time.time())


def _number(text: str | None) -> float | None:
    """A finite number of 0 or more, or None."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None
