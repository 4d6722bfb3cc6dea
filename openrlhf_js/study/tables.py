"""The tables of a study, on the screen and on its page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from openrlhf_js.common import console
from openrlhf_js.report import style
from openrlhf_js.study.analysis import Findings, StudyRow
from openrlhf_js.study.values import CAUSES, OUTCOMES

MIXES_IN_WORDS = {"alike": "where alike", "natural": "as drawn", "mixed": "in the mix"}
MIXES_EXPLAINED = {
    "alike": "the middle third of the training prompts by pass rate before training",
    "natural": "prompts as the task draws them",
    "mixed": "in each batch, a third of the prompts as drawn, a third that are solved already, and "
    "a third that cannot be solved",
}
UNDECIDED = (
    "undecided: p is 0.05 or more, or an interval without a p holds 0, so there may be a gain, a "
    "loss or neither; detects: the smallest true difference that would be found with a probability "
    "of 80 %"
)
NO_DIFFERENCE = "No difference has an interval yet: it takes two seeds of two estimators."

Table: TypeAlias = list[dict[str, str]]


def print_tables(findings: Findings) -> None:
    """Prints how each estimator did, cell by cell."""
    for cell in findings.cells:
        console.table(results_table(findings, cell, quantities=["pass1"]), title=cell)
    if not findings.differences:
        console.say(f"{findings.result} in percent. {NO_DIFFERENCE}")
        return
    console.say(
        f"{findings.result} in percent; ±: a 95 % interval; - {findings.reference}: in points, "
        f"paired by seed, p after Holm's correction;\n{UNDECIDED}"
    )


def verdicts(findings: Findings) -> dict[str, str]:
    """By estimator, its difference to the reference in each mix, in words and points."""
    sentences: dict[str, list[str]] = {}
    for average in findings.averages_by_mix:
        figures = style.interval(average.value, average.low, average.high, form="+.1f")
        if not findings.is_own:
            figures += f" {MIXES_IN_WORDS[average.mix]}"
        if average.low <= 0 <= average.high:
            figures += f", undecided (detects {average.detectable:.1f})"
        sentences.setdefault(average.estimator, []).append(figures)
    return {estimator: "; ".join(parts) for estimator, parts in sentences.items()}


def mixes(findings: Findings) -> dict[str, str]:
    """What each mix of prompts is, by its name in titles and in verdicts."""
    if findings.is_own:
        return {}
    shown = dict.fromkeys(row.mix for row in findings.means)
    return {f"{mix} ({MIXES_IN_WORDS[mix]})": MIXES_EXPLAINED[mix] for mix in shown}


def results_table(findings: Findings, cell: str, quantities: Sequence[str] = OUTCOMES) -> Table:
    """How well each estimator trained, and its paired differences to the reference."""
    labels = {"pass1": findings.result, "reward": "training reward"}
    differences = _by_estimator(findings.differences, cell)
    table = []
    for estimator, means in _by_estimator(findings.means, cell).items():
        columns = {"estimator": estimator, "learning rate": means["reward"].learning_rate}
        for quantity in quantities:
            label = labels[quantity]
            columns[label] = _with_interval(means.get(quantity))
            if findings.differences:
                difference = differences.get(estimator, {}).get(quantity)
                columns[f"{label} - {findings.reference}"] = _tested(difference)
        table.append(columns)
    return table


def cause_table(findings: Findings, cell: str) -> Table:
    """Why: what was measured of each estimator's baseline and gradient, with p-values."""
    differences = _by_estimator(findings.differences, cell)
    means_by_estimator = _by_estimator(findings.means, cell)
    measured = {quantity for means in means_by_estimator.values() for quantity in means}
    table = []
    for estimator, means in means_by_estimator.items():
        columns = {"estimator": estimator}
        for quantity, label in CAUSES.items():
            if quantity not in measured:
                continue
            columns[label] = _with_interval(means.get(quantity))
            difference = differences.get(estimator, {}).get(quantity)
            if difference is not None:
                columns[label] += f", p {difference.p_holm:.2g}"
        table.append(columns)
    return table


def _tested(difference: StudyRow | None) -> str:
    """A difference with its test, and what that could have found where it is undecided."""
    if difference is None:
        return ""
    assert difference.p_holm is not None and difference.detectable is not None, "each has both"
    text = f"{_with_interval(difference, sign='+')}, p {difference.p_holm:.2g}"
    if difference.p_holm < 0.05:
        return text
    return f"{text}, undecided (detects {_number(difference, difference.detectable)})"


def _with_interval(row: StudyRow | None, sign: str = "") -> str:
    """A value with half of its interval's width: `61.2 ± 1.3`; empty where there is none."""
    if row is None:
        return ""
    value = _number(row, row.value, sign)
    if not math.isfinite(row.high):
        return value
    return f"{value} ± {_number(row, (row.high - row.low) / 2)}"


def _number(row: StudyRow, number: float, sign: str = "") -> str:
    """A number in the units of the row's quantity."""
    if row.quantity in OUTCOMES:
        return f"{100 * number:{sign}.1f}"
    return f"{number:{sign}.3g}"


def _by_estimator(rows: Sequence[StudyRow], cell: str) -> dict[str, dict[str, StudyRow]]:
    """The rows of a cell by estimator, and of each by quantity."""
    by_estimator: dict[str, dict[str, StudyRow]] = {}
    for row in rows:
        if row.cell == cell:
            by_estimator.setdefault(row.estimator, {})[row.quantity] = row
    return by_estimator
