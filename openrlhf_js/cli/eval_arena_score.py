"""`openrlhf-js eval arena score`: scores what judges have judged, with honest intervals."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from openrlhf_js.cli.eval_arena_boards import Scored, scored, write_page
from openrlhf_js.cli.eval_arena_score_flags import PROGRAM, parse
from openrlhf_js.cli.eval_run import guarded
from openrlhf_js.cli.saying import say, visible

if TYPE_CHECKING:  # numpy and scipy: not for --help
    from openrlhf_js.evaluation.arena.leaderboard import Board


def main(argv: list[str] | None = None) -> int:
    """Runs the program from its command line.

    Args:
        argv: the arguments, without the program's name; the process's own if None.

    Returns:
        The exit status: 0 done, 1 a file cannot be written, 2 what was given cannot be used, 130
        stopped. Wrong flags exit with 2.
    """
    args = parse(argv)

    def work() -> int:
        errors = Console(stderr=True)
        found = scored(args, errors)
        tell(found, Console())
        _write(args, found, errors)
        return 0

    return guarded(PROGRAM, work, "the same call does it again")


def tell(found: Scored, console: Console) -> None:
    """Prints every leaderboard, and what is to be said of it and of its judges."""
    from openrlhf_js.report import arena

    for board, said in zip(found.boards, arena.in_words(found.boards), strict=True):
        say(console, arena.title(board), "bold")
        console.print(_table(board), markup=False)
        for sentence in said:
            say(console, sentence)
        say(console, "")
    for sentence in found.compared:
        say(console, sentence)


def _table(board: Board) -> Table:
    """What a terminal has room for; a name that is too long for it is folded."""
    from openrlhf_js.report import arena

    table = Table(box=None, pad_edge=False)
    names = arena.columns(board)
    short = arena.SHORT if board.plan.control == "none" else arena.SHORT_CONTROLLED
    places = [names.index(name) for name in short]
    for place in places:
        table.add_column(
            names[place],
            justify="right" if place else "left",
            overflow="fold",
            no_wrap=place > 0,
        )
    for line in board.lines:
        cells = arena.row(line)
        table.add_row(*(visible(cells[place]) for place in places))
    return table


def _write(args: argparse.Namespace, found: Scored, errors: Console) -> None:
    from openrlhf_js.report import arena_files
    from openrlhf_js.whole_file import whole_file

    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(text.encode())

    lines = [line for board in found.boards for line in board.lines]
    if args.json:
        write(args.json, arena_files.as_json(lines))
    if args.csv:
        write(args.csv, arena_files.as_csv(lines))
    if args.markdown:
        write(args.markdown, arena_files.as_markdown(found.boards, found.compared))
    if args.figure:
        from openrlhf_js.report.arena_figure import forest
        from openrlhf_js.report.style import save_png

        args.figure.parent.mkdir(parents=True, exist_ok=True)
        save_png(forest(found.boards), args.figure)
    if args.html:
        for note in write_page(found, args.html, errors):
            say(errors, f"note: {note}")
    for name in ("json", "csv", "markdown", "figure", "html"):
        if path := getattr(args, name):
            say(errors, f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main())
