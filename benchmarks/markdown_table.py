"""Results as tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan, nan


def print_table(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
    """Prints rows as they come; the first column is text, the others are numbers."""
    print(f"| {' | '.join(map(str, columns))} |\n|---|{'---:|' * (len(columns) - 1)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def shown(value: float, low: float | None = nan, high: float | None = nan, digits: int = 1) -> str:
    """Such as 12.3 (10.1 to 14.5); without the interval where there is none."""
    ends = ["unknown" if x is None or isnan(x) else f"{x:.{digits}f}" for x in (low, high)]
    interval = "" if ends == ["unknown"] * 2 else f" ({' to '.join(ends)})"
    return f"{value:.{digits}f}{interval}"
