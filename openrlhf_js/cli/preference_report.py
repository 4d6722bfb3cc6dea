"""What a check of preference files has found, as a table and the first problems of each kind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from openrlhf_js.cli.saying import say, visible
from openrlhf_js.reward_model.findings import ALLOWABLE, KINDS, Report


def show(console: Console, report: Report, max_len: int) -> None:
    """Prints a table by file, and one line for each kind of problem with its first examples.

    Args:
        console: where to.
        report: of the check.
        max_len: the most tokens that a side may take.
    """
    table = Table("preferences", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.columns[0].overflow = "fold"
    columns = ("pairs", "tokens,\nmedian", "\n99 %", f"cut to\n{max_len:,}")
    for column in (*columns, "repeated", "reversed"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, tally in report.tallies.items():
        tokens = np.asarray(tally.tokens if len(tally.tokens) else [0])
        table.add_row(
            Text(visible(name)),
            f"{tally.pairs:,}",
            *(f"{round(figure):,}" for figure in np.percentile(tokens, [50, 99])),
            *(_share(tally.counts[kind], tally.pairs) for kind in ("cut", "repeated", "reversed")),
        )
    console.print(table)
    counts = report.counts
    for kind, problems in report.problems.items():
        share = _share(counts[kind], report.pairs)
        say(console, f"{counts[kind]:,} ({share}) x {KINDS[kind].text} [{kind}]:", "bold")
        for problem in problems:
            say(console, f"  {problem}".replace("\n", "\\n"))
        if counts[kind] > len(problems):
            say(console, f"  ... and {counts[kind] - len(problems):,} more")


def refusal(report: Report, kinds: Sequence[str]) -> str:
    """Why these pairs are not trained on, and what to do, in one line."""
    counts = report.counts
    named = ", ".join(
        f"{kind} ({counts[kind]:,}" + (f", more than {KINDS[kind].share:.0%})" if share else ")")
        for kind in kinds
        for share in [KINDS[kind].share]
    )
    hard = [kind for kind in kinds if kind not in ALLOWABLE]
    if hard:
        return f"these pairs cannot be trained on: {named}; correct the lines that are named above"
    cut = ", raise --data.max_len" if "cut" in kinds else ""
    return (
        f"these pairs would teach wrong things: {named}; correct the files{cut}, or train on them "
        f"all the same with --js.allow {' '.join(kinds)}"
    )


def _share(count: int, pairs: int) -> str:
    """A share in percent that is 0 only where the count is."""
    share = 100 * count / max(1, pairs)
    return f"{share:.1f} %" if share >= 0.05 or not count else "< 0.1 %"
