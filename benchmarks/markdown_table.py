"""Results as tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan, nan


def print_table(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
    """Prints rows as they come; the first column is text, the others are numbers."""
    alignments = ["---", *["---:"] * (len(columns) - 1)]
    print(f"| {' | '.join(map(str, columns))} |")
    print(f"|{'|'.join(alignments)}|")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def shown(
    value: float,
    low: float | None = nan,
    high: float | None = nan,
    digits: int = 1,
) -> str:
    """Such as 12.3 (10.1 to 14.5); without the interval where there is none."""
    ends = [_end(low, digits), _end(high, digits)]
    if ends == ["unknown", "unknown"]:
        return f"{value:.{digits}f}"
    return f"{value:.{digits}f} ({' to '.join(ends)})"


def _end(value: float | None, digits: int) -> str:
    if value is None or isnan(value):
        return "unknown"
    return f"{value:.{digits}f}"
