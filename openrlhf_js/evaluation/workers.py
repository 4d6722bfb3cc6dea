"""Several workers at the same time, of which none outlives the others' failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


async def side_by_side(work: Callable[[], Coroutine[Any, Any, None]], count: int) -> None:
    """Runs so many workers, and returns when all have ended.

    Args:
        work: one of them; they share what there is to do.
        count: how many.

    Raises:
        Whatever the first of them raises that fails; the others are cancelled then.
    """
    tasks = [asyncio.create_task(work()) for _ in range(count)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
