"""Times and memory of calls that take turns on one device, and the rows that they make."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import torch

UNKNOWN = {"memory_allocated.return_value": math.nan, "max_memory_allocated.return_value": math.nan}
CPU = MagicMock(**UNKNOWN)  # in the place of torch.cuda


class Row(NamedTuple):
    """What was measured and what stands beside it, a number each a repeat; or why neither was."""

    what: str
    unit: str = ""
    measured: Sequence[float] = ()
    beside: Sequence[float] = ()
    left_out: str | None = None

    def cells(self) -> list[str]:
        """The median of either, the ratio's median, lowest and highest, and how many there are."""
        if self.left_out:
            return [f"{self.what}: left out, {self.left_out}", "", "", "", ""]
        ratios = [a / b for a, b in zip(self.measured, self.beside, strict=True)]
        medians = (f"{median(x):.4g} {self.unit}" for x in (self.measured, self.beside))
        spread = f"{median(ratios):.4g} ({min(ratios):.4g} to {max(ratios):.4g})"
        return [self.what, *medians, spread, str(len(ratios))]


class Bench:
    """A device, how often everything is repeated on it, and until when by the monotonic clock."""

    def __init__(self, device: str, repeats: int, end: float = math.inf):
        self.device, self.repeats, self.end = torch.device(device), repeats, end
        self.chip: Any = torch.cuda if self.device.type == "cuda" else CPU

    def allocated(self) -> float:
        """GiB of all tensors on the device; NaN where nothing counts them."""
        return self.chip.memory_allocated(self.device) / 2**30

    def rounds(self, *calls: Callable[[], object]) -> list[list[tuple[float, ...]]]:
        """Of each call, milliseconds and the GiB it added at its peak, over the repeats.

        The calls take turns, after a warm-up of each; TimeoutError when the time is over.
        """
        found: list[list[tuple[float, float]]] = [[] for _ in calls]
        for number in range(len(calls) * (self.repeats + 1)):
            if time.monotonic() >= self.end:
                raise TimeoutError("the minutes are over")
            self.chip.synchronize(self.device)
            self.chip.reset_peak_memory_stats(self.device)
            held, began = self.allocated(), time.perf_counter()
            calls[number % len(calls)]()
            self.chip.synchronize(self.device)
            taken = 1e3 * (time.perf_counter() - began)
            added = self.chip.max_memory_allocated(self.device) / 2**30 - held
            found[number % len(calls)].append((taken, added))
        return [[*zip(*own[1:], strict=True)] for own in found]

    def rows(self, parts: Iterable[tuple[str, Callable[[], Iterator[Row]]]]) -> Iterator[Row]:
        """All parts' rows; a part that fails, or has no time left, is a row that says so."""
        for name, part in parts:
            why = None if time.monotonic() < self.end else "the minutes are over"
            try:
                for row in () if why else part():
                    unknown = "not known here" if any(map(math.isnan, row.measured)) else None
                    yield Row(row.what, left_out=unknown) if unknown else row
            except Exception as error:  # whatever a part does, the others are measured
                why = f"{error!r:.200}".replace("|", "/")
            if why:
                yield Row(name, left_out=why)
            gc.collect()
            self.chip.empty_cache()
