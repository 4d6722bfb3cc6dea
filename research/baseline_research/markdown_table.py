"""Results as tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def print_table(
    columns: Sequence[object], rows: Iterable[Sequence[object]], *, text_columns: int = 1
) -> None:
    """Prints rows as they arrive; the first columns are text, the others are numbers."""
    alignments = ["---"] * text_columns + ["---:"] * (len(columns) - text_columns)
    print(f"| {' | '.join(map(str, columns))} |")
    print(f"|{'|'.join(alignments)}|")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)
