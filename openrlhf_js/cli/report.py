"""Draw training runs, also while they go on: one HTML page that opens offline, and PNGs.

Each RUN is a folder with TensorBoard event files in it or below it: what --logger.tensorboard_dir
named, or the folder of a quickstart. Of several runs, the first one is what the others are compared
with.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from openrlhf_js.cli.parser import Parser
from openrlhf_js.cli.saying import complain, say, visible

if TYPE_CHECKING:  # TensorBoard and matplotlib: not for --help
    from openrlhf_js.report.runs import Condition

EXAMPLES = """\
examples:
  openrlhf-js report runs/quickstart-20260101-120000
  openrlhf-js report rloo=logs/rloo js=logs/js --output compared
  openrlhf-js report rloo=logs/rloo_0,logs/rloo_1 js=logs/js_0,logs/js_1     # seeds, by commas
  openrlhf-js report logs/js --lab results/lab               # with the variance lab's results

A folder with several runs in it is several runs, named after their folders; NAME=FOLDER names one.
Intervals are over the seeds of a name; a run that goes on is drawn as far as it has come.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the report.

    Args:
        argv: the arguments, without the program's name; the process's own if None.

    Returns:
        The exit status: 0 done, 1 the report could not be written, 2 bad input, 130 interrupted.
    """
    parser = Parser(prog="openrlhf-js report", description=__doc__, epilog=EXAMPLES)
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="FOLDER, NAME=FOLDER or NAME=FOLDER,FOLDER,..."
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("report"),
        metavar="DIR",
        help="folder for report.html and the PNGs; an earlier report in it is replaced "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--lab",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="results of openrlhf-js lab to show as well; may be given several times",
    )
    parser.add_argument(
        "--smooth",
        type=int,
        metavar="N",
        help="logged values in a running average; 1 for none (default: a share of long runs)",
    )
    args = parser.parse_args(argv)
    if not args.runs and not args.lab:
        parser.error("name a RUN, a --lab FOLDER, or both")
    if args.smooth is not None and args.smooth < 1:
        parser.error(f"--smooth is {args.smooth}; give 1 or more")
    try:
        return _report(args.runs, args.lab, args.output, args.smooth, Console())
    except ValueError as error:
        return complain(error, 2)
    except OSError as error:
        return complain(f"{error.filename or args.output}: {error.strerror}", 1)
    except KeyboardInterrupt:
        return complain("interrupted", 130)


def _report(
    words: Sequence[str], labs: Sequence[Path], output: Path, smooth: int | None, console: Console
) -> int:
    from openrlhf_js.report import lab, page
    from openrlhf_js.report.runs import find_conditions

    conditions = find_conditions(words)
    results = []
    for folder in labs:
        found = lab.lab_results(folder)
        if not found:
            raise ValueError(f"{folder} holds no result of openrlhf-js lab; give its --out.")
        results += found
    with console.status("drawing"):
        written = page.write(conditions, results, output, smooth)

    if conditions:
        _show(conditions, console)
    if written.left_out:
        say(console, f"left out, since not logged, or always 0: {'; '.join(written.left_out)}")
    say(console, f"{len(written.pictures)} pictures in {output}\npage: {written.page}")
    return 0


def _show(conditions: Sequence[Condition], console: Console) -> None:
    """The final figures, and how each run stands."""
    from openrlhf_js.report import page_parts
    from openrlhf_js.report.final_figures import figures

    columns, rows = figures(conditions)
    grid = Table(*(visible(column) for column in columns))
    grid.columns[0].overflow = "fold"
    for row in rows:
        grid.add_row(*(visible(cell) for cell in row))
    console.print(grid, markup=False)
    for condition in conditions:
        for run in condition.runs:
            say(console, f"{condition.name}: {run.status()}")
    for warning in page_parts.warnings(conditions):
        say(console, warning, "yellow")


if __name__ == "__main__":
    sys.exit(main())
