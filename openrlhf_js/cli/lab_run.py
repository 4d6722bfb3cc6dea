"""How the lab's programs end: with their files, table and finding, or with one error."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from openrlhf_js.cli.ending import ended, first_line
from openrlhf_js.cli.saying import say, visible

UNSAVED = ("parser", "program")  # what a parser adds to the flags


def guarded(program: str, work: Callable[[], None], resumes: bool = True) -> int:
    """Runs a program and returns its exit status, with one error on stderr where it fails.

    Args:
        program: what was typed, such as "openrlhf-js lab mse".
        work: the program.
        resumes: whether what was done is kept, and the same command goes on from there.

    Returns:
        0 done; 1 the disk, the memory or the reward function fails; 2 what was given cannot be
        used; 130 stopped by Ctrl-C.
    """
    from torch import OutOfMemoryError

    from openrlhf_js.lab.rewards import RewardFailed

    return ended(
        program,
        work,
        "the same command goes on from here" if resumes else "",
        {
            RewardFailed: lambda error: (
                f"{error}\nWhat was sampled is kept; mend it and give the command again"
            ),
            OutOfMemoryError: lambda error: (
                f"{first_line(error)}\nGive a smaller --batch_size, or --max_tokens for gradients; "
                "what was done is kept"
            ),
        },
    )


def finish(
    args: argparse.Namespace,
    name: str,
    summary: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    console: Console,
    columns: Sequence[str] | None = None,
) -> None:
    """Writes NAME.npz, NAME.json and NAME.png into --out, and prints rows, files and finding.

    Args:
        args: the flags; those that can be written as JSON are.
        name: of the command, such as "mse".
        summary: has `finding` and `rows`.
        arrays: the raw numbers.
        console: where to print.
        columns: the keys of the rows that are printed; all if None.
    """
    from openrlhf_js.lab.results import save
    from openrlhf_js.report.lab import picture

    settings = {key: value for key, value in vars(args).items() if key not in UNSAVED}
    path = save(args.out, name, summary, arrays, settings)
    drawn = picture(path, path.with_suffix(".png"))
    rows = summary["rows"]
    show(console, rows, list(rows[0]) if columns is None else columns)
    for file in (path, path.with_suffix(".npz"), drawn):
        say(console, str(file))
    say(console, "\n" + str(summary["finding"]))


def show(console: Console, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Prints rows as a table, turned on its side where it has fewer rows than columns.

    Args:
        console: no number is broken to fit into its width.
        rows: of a result.
        columns: the keys to show.
    """
    names = [key.replace("_", " ") for key in columns]
    cells = [[_cell(row[key]) for key in columns] for row in rows]
    upright = len(rows) >= len(columns)
    made = Table(box=None, pad_edge=False, show_header=upright)
    widths = []
    if not upright:
        cells = [list(each) for each in zip(names, *cells, strict=True)]
    for place in range(len(cells[0])):
        words = names[place].split() if upright else []
        widths.append(max(len(each) for each in (*words, *(row[place] for row in cells))))
        text = upright and any(isinstance(row[columns[place]], str) for row in rows)
        made.add_column(
            Text(names[place]) if upright else "",
            justify="left" if text or (not upright and place == 0) else "right",
            min_width=widths[-1],
        )
    for row in cells:
        made.add_row(*map(Text, row))
    needed = sum(widths) + 2 * (len(widths) - 1)
    console.print(made, width=max(console.width, needed), crop=False)


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else visible(str(value))
