"""The tables of a study, on the screen and on its page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from answer_graders.programs import console
from baseline_research.study.analysis import Average, Findings, StudyRow
from baseline_research.study.budget import Tried
from baseline_research.study.runs import OWN
from baseline_research.study.values import CAUSES, OUTCOMES
from paired_eval.pages.text import with_interval

MIXES_IN_WORDS = {"alike": "where alike", "natural": "as drawn", "mixed": "in the mix"}
MIXES_EXPLAINED = {
    "alike": "the middle third of the training prompts by pass rate before training",
    "natural": "prompts as the task draws them",
    "mixed": "in each batch, a third of the prompts as drawn, a third that are solved already, and "
    "a third that cannot be solved",
}
UNDECIDED = (
    "undecided: p is 0.05 or more, corrected for all comparisons, so there may be a gain, a loss "
    "or neither; detects: the smallest true difference that would be found with a probability of "
    "80 %"
)
CUT = (
    "an interval that would leave the range of a reward from 0 to 1 is cut there, and in (from to)"
)
NO_DIFFERENCE = "No difference has an interval yet: it takes two seeds of two estimators."
NO_INTERVAL = "no interval"
EQUAL_SEEDS = "equal in all seeds"

Table: TypeAlias = list[dict[str, str]]


def print_tables(findings: Findings) -> None:
    """Prints how each estimator did, cell by cell."""
    for cell in findings.cells:
        console.table(results_table(findings, cell, quantities=["pass1"]), title=cell)
    console.say(interval_note(findings))
    if not findings.differences:
        console.say(NO_DIFFERENCE)
        return
    console.say(
        f"differences are paired by seed, p is corrected for their number (Holm);\n{UNDECIDED}\n"
        f"{conclusion(findings)}"
    )


def interval_note(findings: Findings) -> str:
    """The note on what the tables' intervals and p-values mean."""
    note = "±: half of a 95 % interval over seeds"
    return f"{note}; {CUT}" if findings.rewards_in_unit else note


def conclusion(findings: Findings) -> str:
    """One sentence: which estimators are better or worse than the reference, and where."""
    mixes = {average.mix for average in findings.averages_by_mix}
    by_outcome: dict[str, list[str]] = {"better": [], "worse": [], "undecided": []}
    for average in findings.averages_by_mix:
        where = f" ({MIXES_IN_WORDS[average.mix]})" if len(mixes) > 1 else ""
        by_outcome[_outcome(average)].append(f"{average.estimator}{where}")
    clauses = []
    for outcome, names in by_outcome.items():
        listed = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
        verb = "are" if len(names) > 1 else "is"
        clause = f"{listed} {verb} {outcome} than {findings.reference}"
        if outcome == "undecided":
            clause = f"for {listed} it is undecided"
        if names:
            clauses.append(clause)
    return f"By {findings.result}, {'; '.join(clauses)}." if clauses else ""


def _outcome(average: Average) -> str:
    """Whether the estimator is better or worse than the reference, or undecided."""
    if not _has_interval(average) or average.p_holm >= 0.05:
        return "undecided"
    return "better" if average.value > 0 else "worse"


def verdicts(findings: Findings) -> dict[str, str]:
    """Each estimator's difference to the reference in each mix, as text."""
    sentences: dict[str, list[str]] = {}
    for average in findings.averages_by_mix:
        figures = with_interval(average.value, average.low, average.high, form_of(findings))
        if not _has_interval(average):
            figures += f" ({NO_INTERVAL}: {EQUAL_SEEDS})"
        if not findings.is_own:
            figures += f" {MIXES_IN_WORDS[average.mix]}"
        if _has_interval(average) and average.p_holm >= 0.05:
            greatest = 1 if findings.is_own else 100
            detectable = f"{average.detectable:{form_of(findings).removeprefix('+')}}"
            figures += _undecided(
                is_possible=not findings.rewards_in_unit or average.detectable <= greatest,
                detectable=detectable,
            )
        sentences.setdefault(average.estimator, []).append(figures)
    return {estimator: "; ".join(parts) for estimator, parts in sentences.items()}


def form_of(findings: Findings) -> str:
    """The format of a difference of results: points for a share, a score as it is."""
    return "+.3g" if findings.is_own else "+.1f"


def mixes(findings: Findings) -> dict[str, str]:
    """What each mix of prompts is, by its names in titles and in verdicts."""
    if findings.is_own:
        return {}
    shown = dict.fromkeys(row.mix for row in findings.means)
    return {f"{mix} ({MIXES_IN_WORDS[mix]})": MIXES_EXPLAINED[mix] for mix in shown}


def results_table(findings: Findings, cell: str, quantities: Sequence[str] = OUTCOMES) -> Table:
    """Each estimator's results, and its paired differences to the reference."""
    differences = by_estimator(findings.differences, cell)
    labels = {"pass1": findings.result, "reward": "training reward"}
    percent = "" if findings.is_own else ", %"
    points = f", {findings.unit}" if findings.unit else ""
    table = []
    for estimator, means in by_estimator(findings.means, cell).items():
        columns = {"estimator": estimator}
        if means["reward"].split:
            columns["prompts x responses"] = means["reward"].split
        columns["learning rate"] = means["reward"].learning_rate
        for quantity in quantities:
            label = labels[quantity]
            columns[f"{label}{percent}"] = _with_interval(means.get(quantity))
            if findings.differences:
                difference = differences.get(estimator, {}).get(quantity)
                head = f"{label}: difference to {findings.reference}{points}"
                columns[head] = _tested(difference, findings.rewards_in_unit)
        for samples in findings.samples:
            if (samples.cell, samples.estimator) == (cell, estimator):
                reached = "never" if samples.share is None else f"{samples.share:.2f}"
                columns[f"share of samples to {findings.reference}'s end"] = reached
        table.append(columns)
    return table


def choice_table(tried: Sequence[Tried]) -> Table:
    """pass@1 of each split at its best learning rate on the choice seeds, in percent."""
    results = {
        (row.estimator, row.split): f"{100 * row.pass1:.1f} at {row.learning_rate:g}"
        for row in tried
    }
    by_responses = sorted(tried, key=lambda row: row.responses)
    splits = dict.fromkeys(row.split for row in by_responses)
    return [
        {"estimator": estimator} | {split: results.get((estimator, split), "") for split in splits}
        for estimator in dict.fromkeys(row.estimator for row in tried)
    ]


def cause_table(findings: Findings, cell: str) -> Table:
    """What explains the results: measures of each baseline and gradient, with p-values."""
    differences = by_estimator(findings.differences, cell)
    means_by_estimator = by_estimator(findings.means, cell)
    measured = {quantity for means in means_by_estimator.values() for quantity in means}
    table = []
    for estimator, means in means_by_estimator.items():
        columns = {"estimator": estimator}
        for quantity, label in CAUSES.items():
            if quantity not in measured:
                continue
            columns[label] = _with_interval(means.get(quantity))
            difference = differences.get(estimator, {}).get(quantity)
            if difference is not None and difference.p_holm is not None:
                columns[label] += f", p {difference.p_holm:.2g}"
        table.append(columns)
    return table


def _tested(difference: StudyRow | None, in_unit: bool) -> str:
    """A difference with its test, and the smallest detectable one if that is undecided."""
    if difference is None:
        return ""
    text = _with_interval(difference, sign="+")
    if difference.p_holm is None or difference.detectable is None:
        return text
    text += f", p {difference.p_holm:.2g}"
    if difference.p_holm < 0.05:
        return text
    return text + _undecided(
        is_possible=not in_unit or difference.detectable <= 1,
        detectable=_number(difference, difference.detectable),
    )


def _undecided(is_possible: bool, detectable: str) -> str:
    """What an undecided test could have detected; rewards in [0, 1] differ by at most 1."""
    if not is_possible:
        return ", undecided (too few seeds to detect any difference)"
    return f", undecided (detects {detectable})"


def _with_interval(row: StudyRow | None, sign: str = "") -> str:
    """A value with half of its interval's width, `61.2 ± 1.3`, or with the ends of a cut interval.

    `50.0 (no interval: one seed)` without an interval; empty without a value.
    """
    if row is None:
        return ""
    value = _number(row, row.value, sign)
    if not _has_interval(row):
        return f"{value} ({NO_INTERVAL}: {'one seed' if row.seeds == 1 else EQUAL_SEEDS})"
    above = row.high - row.value
    below = row.value - row.low
    if not math.isclose(above, below, rel_tol=1e-6):
        return f"{value} ({_number(row, row.low)} to {_number(row, row.high)})"
    return f"{value} ± {_number(row, above)}"


def _has_interval(row: StudyRow | Average) -> bool:
    return math.isfinite(row.high)


def _number(row: StudyRow, number: float, sign: str = "") -> str:
    """A number in the units of the row's quantity: shares in percent, scores as they are."""
    if row.quantity in OUTCOMES and row.task != OWN:
        return f"{100 * number:{sign}.1f}"
    return f"{number:{sign}.3g}"


def by_estimator(rows: Sequence[StudyRow], cell: str) -> dict[str, dict[str, StudyRow]]:
    """The rows of a cell by estimator and quantity."""
    by_estimator: dict[str, dict[str, StudyRow]] = {}
    for row in rows:
        if row.cell == cell:
            by_estimator.setdefault(row.estimator, {})[row.quantity] = row
    return by_estimator
