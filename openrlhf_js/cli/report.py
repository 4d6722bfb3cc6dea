"""`openrlhf-js report`: one page about training runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from openrlhf_js.common.console import say, table
from openrlhf_js.common.settings import Field, Settings, program

PROG = "openrlhf-js report"


class ReportSettings(Settings):
    """Draw training runs, also while they go on: one interactive page that opens offline.

    Each RUN is FOLDER, NAME=FOLDER or NAME=FOLDER,FOLDER,... (seeds). A FOLDER has TensorBoard
    event files in it or below it: what --logger.tensorboard_dir named, or a quickstart's; with
    several runs and no NAME, each is named after its own folder. Intervals are over the seeds of a
    name. Differences are from the first run, between runs of the same --train.seed.

    examples:
      openrlhf-js report runs/quickstart-20260101-120000
      openrlhf-js report rloo=logs/rloo js=logs/js --out compared
      openrlhf-js report rloo=logs/rloo_0,logs/rloo_1 js=logs/js_0,logs/js_1
      openrlhf-js report logs/js --lab results/lab --out js.html
      openrlhf-js report --eval eval/step20 eval/step40 arena/scores.json
      openrlhf-js report --eval eval/rloo eval/js      # models without steps: paired differences
    """

    runs: Annotated[Positional[list[str]], arg(metavar="RUN ...")] = Field(
        [], description="FOLDER, NAME=FOLDER or NAME=FOLDER,FOLDER,..."
    )
    out: Path = Field(Path("report"), description="folder for report.html, or a file: NAME.html")
    lab: list[Path] = Field([], description="folders with results of openrlhf-js lab")
    eval: list[Path] = Field(
        [], description="of models: folders of eval passk, files of eval arena score --json"
    )
    smooth: int | None = Field(
        None, ge=1, description="logged values in a running average; a share of long runs if unset"
    )


def main(argv: Sequence[str]) -> int:
    """Writes the report and returns the exit status."""
    return program(PROG, ReportSettings, work, argv)


def work(settings: ReportSettings) -> None:
    """Reads the runs, writes the page, and prints the final figures."""
    if not (settings.runs or settings.lab or settings.eval):
        raise ValueError("name a RUN, a --lab FOLDER, or an --eval PATH")
    from openrlhf_js.report import pages
    from openrlhf_js.report.panels import CURVES, TIMINGS, final_figures
    from openrlhf_js.report.runs import find_conditions

    conditions = find_conditions(settings.runs)
    page = pages.write(
        conditions,
        labs=settings.lab,
        out=settings.out,
        smooth=settings.smooth,
        evaluated=settings.eval,
    )
    table(final_figures(conditions, CURVES + TIMINGS))
    for condition in conditions:
        for logged_run in condition.runs:
            say(f"{condition.name}: {logged_run.status(time.time())}")
    say(f"page: {page}")
