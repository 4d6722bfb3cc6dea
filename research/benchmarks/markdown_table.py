"""Results as tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def print_table(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
    """Prints rows as they arrive; the first column is text, the others are numbers."""
    alignments = ["---", *["---:"] * (len(columns) - 1)]
    print(f"| {' | '.join(map(str, columns))} |")
    print(f"|{'|'.join(alignments)}|")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)
