"""How well `--js.prompt_selection` had predicted the pass rates of what it chose."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

import pandas as pd

from openrlhf_js.report.plot import Axis, Panel, Row
from openrlhf_js.report.runs import Condition, LoggedRun
from openrlhf_js.stats import clustered_mean

TITLE = "Calibration of predicted pass rates"
RESPONSES = re.compile(r"train/js/rated_responses_([0-9]+)")


class Bin(NamedTuple):
    """The responses of one run to prompts whose predicted pass rates are alike."""

    number: int
    predicted: float  # mean
    observed: float
    responses: int


def bins(run: LoggedRun) -> Iterator[Bin]:
    """What a run has predicted and seen in all its steps, from the lowest predictions on."""
    for tag in run.logged.tags:
        match = RESPONSES.fullmatch(tag)
        if match is None:
            continue
        number = int(match[1])
        responses = run.logged[tag]
        predicted = run.logged[f"train/js/predicted_rate_{number}"]
        observed = run.logged[f"train/js/observed_rate_{number}"]
        yield Bin(
            number=number,
            predicted=_mean(predicted, responses),
            observed=_mean(observed, responses),
            responses=int(responses.sum()),
        )


def _mean(values: pd.Series, responses: pd.Series) -> float:
    """The mean over all responses of what was logged of each step's."""
    return float((values * responses).sum() / responses.sum())


def calibration(conditions: Sequence[Condition]) -> list[tuple[Panel, list[Row]]]:
    """The panel and its rows, one for each bin and condition; none where nothing was logged."""
    rows: list[Row] = []
    responses = 0
    for condition in conditions:
        by_number: dict[int, list[Bin]] = {}
        for run in condition.runs:
            for logged in bins(run):
                by_number.setdefault(logged.number, []).append(logged)
                responses += logged.responses
        for seeds in by_number.values():
            estimate = clustered_mean([seed.observed - seed.predicted for seed in seeds])
            row = {
                "quantity": TITLE,
                "run": condition.name,
                "predicted": round(fmean(seed.predicted for seed in seeds), 3),
                "responses": sum(seed.responses for seed in seeds),
                **estimate._asdict(),
            }
            rows.append(row)
    if not rows:
        return []
    panel = Panel(
        title=TITLE,
        ylabel="observed less predicted pass rate",
        note=f"all steps, {responses:,} responses; above 0 where prompts are easier than predicted",
        reference=0.0,
        intervals="bars",
        axis=Axis("predicted", "predicted pass rate"),
    )
    return [(panel, rows)]
