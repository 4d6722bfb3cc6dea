"""The tables of a study, on the screen and on its page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from openrlhf_js.common import console
from openrlhf_js.report import style
from openrlhf_js.study.analysis import Average, Findings, StudyRow
from openrlhf_js.study.values import CAUSES, OUTCOMES

IN_POINTS = ("pass1", "reward", "any_rate")  # shown as points of a hundred
SIGNIFICANT = 0.05
MIXES_IN_WORDS = {"alike": "where alike", "natural": "as drawn", "mixed": "in the mix"}

Table: TypeAlias = list[dict[str, str]]


def print_tables(findings: Findings) -> None:
    """Prints how each estimator did, cell by cell."""
    for cell in findings.cells:
        console.table(_screen_table(findings, cell), title=cell)
    console.say(
        f"{findings.result} in points of a hundred; ±: a 95 % interval; "
        f"- {findings.reference}: paired by seed, p after Holm's correction;\n"
        "detects: the smallest true difference that the test would find with a probability of 80 %"
    )


def _screen_table(findings: Findings, cell: str) -> Table:
    """The result of each estimator, and its difference to the reference."""
    result = findings.result
    differences = {row["estimator"]: row for row in difference_table(findings, cell)}
    table = []
    for outcome in outcome_table(findings, cell):
        estimator = outcome["estimator"]
        difference = differences.get(estimator, {})
        columns = {
            "estimator": estimator,
            "learning rate": outcome["learning rate"],
            result: outcome[result],
            f"{result} - {findings.reference}": difference.get(result, ""),
        }
        table.append(columns)
    return table


def verdicts(findings: Findings) -> dict[str, str]:
    """By estimator, its difference to the reference in each mix, in words and points."""
    sentences: dict[str, list[str]] = {}
    for average in findings.averages_by_mix:
        figures = _points(average)
        if not findings.is_own:
            figures += f" {MIXES_IN_WORDS[average.mix]}"
        sentences.setdefault(average.estimator, []).append(figures)
    return {estimator: ", ".join(parts) for estimator, parts in sentences.items()}


def outcome_table(findings: Findings, cell: str) -> Table:
    """How well each estimator trained at its learning rates."""
    table = []
    for estimator, means in _by_estimator(findings.means, cell).items():
        columns = {"estimator": estimator, "learning rate": means["reward"].learning_rate}
        for quantity, label in _outcomes(findings).items():
            columns[label] = _with_interval(means.get(quantity))
        table.append(columns)
    return table


def difference_table(findings: Findings, cell: str) -> Table:
    """The paired differences of the same to the reference, with their tests."""
    table = []
    for estimator, differences in _by_estimator(findings.differences, cell).items():
        columns = {"estimator": estimator}
        for quantity, label in _outcomes(findings).items():
            columns[label] = _tested(differences.get(quantity))
        table.append(columns)
    return table


def _outcomes(findings: Findings) -> dict[str, str]:
    """What is said of how well an estimator trained: quantities and their labels."""
    return {"pass1": findings.result, **OUTCOMES}


def cause_table(findings: Findings, cell: str) -> Table:
    """Why: what was measured of each estimator's baseline and gradient, with p-values."""
    differences = _by_estimator(findings.differences, cell)
    table = []
    for estimator, means in _by_estimator(findings.means, cell).items():
        columns = {"estimator": estimator}
        for quantity, label in CAUSES.items():
            columns[label] = _with_interval(means.get(quantity))
            difference = differences.get(estimator, {}).get(quantity)
            if difference is not None:
                columns[label] += f", p {difference.p_holm:.2g}"
        table.append(columns)
    return table


def regret_table(findings: Findings) -> Table:
    """How far below the winner of a cell each one ends; nothing of one cell alone."""
    if len(findings.cells) == 1:
        return []
    over_reference = f"{findings.result} - {findings.reference}, points"
    averages = {average.estimator: average for average in findings.averages}
    table = []
    for regret in findings.regret:
        columns = {
            "estimator": regret.estimator,
            "mean regret, points": f"{regret.mean:.1f}",
            "worst, points": f"{regret.worst:.1f}",
            "where": regret.worst_cell.title,
            over_reference: "",
        }
        if regret.estimator in averages:
            columns[over_reference] = _points(averages[regret.estimator])
        table.append(columns)
    return table


def _points(average: Average) -> str:
    """An averaged difference with its interval."""
    return style.interval(average.value, average.low, average.high, form="+.1f")


def _tested(difference: StudyRow | None) -> str:
    """A difference with its test, and what that could have found where it found nothing."""
    if difference is None:
        return ""
    text = f"{_with_interval(difference, sign='+')}, p {difference.p_holm:.2g}"
    if difference.p_holm is None or difference.p_holm < SIGNIFICANT:
        return text
    if difference.detectable is None or not math.isfinite(difference.detectable):
        return text
    return f"{text}, detects {_number(difference, difference.detectable)}"


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
    if row.quantity in IN_POINTS:
        return f"{100 * number:{sign}.1f}"
    if row.quantity == "steps_to_target":
        return f"{number:{sign}.1f}"
    return f"{number:{sign}.3g}"


def _by_estimator(rows: Sequence[StudyRow], cell: str) -> dict[str, dict[str, StudyRow]]:
    """The rows of a cell by estimator, and of each by quantity."""
    by_estimator: dict[str, dict[str, StudyRow]] = {}
    for row in rows:
        if row.cell == cell:
            by_estimator.setdefault(row.estimator, {})[row.quantity] = row
    return by_estimator
