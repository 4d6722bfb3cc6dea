"""The page, the pictures, the tables and the rows of a study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from openrlhf_js.common.files import atomic_write
from openrlhf_js.report import style
from openrlhf_js.report.chart import chart, script
from openrlhf_js.report.pages import render
from openrlhf_js.report.plot import Panel, plot
from openrlhf_js.study.analysis import CAUSES, OUTCOMES, Findings, Regret, Row

PAGE = "study.html"
ROWS = "rows.csv"
REGRET = "regret.png"
IN_POINTS = ("pass1", "reward", "any_rate")  # shown as points of a hundred
Table = list[dict[str, Any]]


def write(folder: Path, findings: Findings, reference: str, title: str) -> Path:
    """Writes page, pictures and rows; returns the page."""
    tables = {
        cell: (outcome_table(findings, cell, reference), cause_table(findings, cell))
        for cell in cells_of(findings)
    }
    text = render(
        "study.html",
        title=title,
        runs=sum(row.seeds for row in findings.means if row.quantity == "reward"),
        reference=reference,
        rows=ROWS,
        regret=regret_table(findings),
        cells=tables,
        curves=chart(
            [point._asdict() for point in findings.curves],
            _reward_panels(findings),
            x="step",
            xlabel="training step",
            panel="cell",
        ),
        rates=_rates_chart(findings),
        script=script(),
    )
    with atomic_write(folder / PAGE) as file:
        file.write(text.encode())
    rows = pd.DataFrame(findings.means + findings.differences + findings.at_each_rate)
    rows = rows.replace([math.inf, -math.inf], math.nan)  # the ends of one seed's intervals
    with atomic_write(folder / ROWS) as file:
        rows.to_csv(file, index=False, float_format="%.5g")
    if regret_table(findings):
        style.save_png(regret_picture(findings.regret), folder / REGRET)
    return folder / PAGE


def cells_of(findings: Findings) -> list[str]:
    """The titles of the cells, in the order of the study."""
    return list(dict.fromkeys(row.cell for row in findings.means))


def _reward_panels(findings: Findings) -> dict[str, Panel]:
    return {cell: Panel(cell, "training reward") for cell in cells_of(findings)}


def _rates_chart(findings: Findings) -> str:
    """pass@1 by learning rate, nothing where there is one alone."""
    rows = [row for row in findings.means if row.quantity == "pass1"]
    if len({row.learning_rate for row in rows}) <= 1:
        return ""
    return chart(
        [row._asdict() for row in rows],
        {cell: Panel(cell, "pass@1") for cell in cells_of(findings)},
        x="learning_rate",
        xlabel="learning rate",
        scale="log2",
        panel="cell",
    )


def _with_interval(row: Row | None, sign: str = "") -> str:
    """A value with half of its interval's width: `61.2 ± 1.3`; empty where there is none."""
    if row is None:
        return ""
    factor = 100 if row.quantity in IN_POINTS else 1
    digits = ".1f" if factor == 100 or row.quantity == "steps_to_target" else ".3g"
    value = f"{factor * row.value:{sign}{digits}}"
    if not math.isfinite(row.high):
        return value
    return f"{value} ± {factor * (row.high - row.low) / 2:{digits}}"


def _best_means(findings: Findings, cell: str) -> dict[tuple[str, str], Row]:
    """The means at each estimator's best learning rate, by estimator and quantity."""
    return {
        (row.estimator, row.quantity): row
        for row in findings.means
        if row.best and row.cell == cell
    }


def _cell_differences(findings: Findings, cell: str) -> dict[tuple[str, str], Row]:
    """The differences to the reference, by estimator and quantity."""
    return {(row.estimator, row.quantity): row for row in findings.differences if row.cell == cell}


def outcome_table(findings: Findings, cell: str, reference: str) -> Table:
    """How well each estimator trained at its best learning rate; the reference's own values."""
    means = _best_means(findings, cell)
    differences = _cell_differences(findings, cell)
    table = []
    for estimator in dict.fromkeys(estimator for estimator, _ in means):
        columns = {
            "estimator": estimator,
            "best rate": f"{means[estimator, 'reward'].learning_rate:g}",
            "pass@1": _with_interval(means.get((estimator, "pass1"))),
        }
        for quantity, label in OUTCOMES.items():
            difference = differences.get((estimator, quantity))
            text = ""
            if difference is not None:
                text = f"{_with_interval(difference, '+')}, p {difference.p_holm:.2g}"
            elif estimator == reference:
                text = _with_interval(means.get((estimator, quantity)))
            columns[f"{label} - {reference}"] = text
        table.append(columns)
    return table


def cause_table(findings: Findings, cell: str) -> Table:
    """Why: what was measured of each estimator's baseline and gradient, with p-values."""
    means = _best_means(findings, cell)
    differences = _cell_differences(findings, cell)
    table = []
    for estimator in dict.fromkeys(estimator for estimator, _ in means):
        columns = {"estimator": estimator}
        for quantity, label in CAUSES.items():
            text = _with_interval(means.get((estimator, quantity)))
            difference = differences.get((estimator, quantity))
            if difference is not None:
                text = f"{text}, p {difference.p_holm:.2g}"
            columns[label] = text
        table.append(columns)
    return table


def difference_table(findings: Findings, reference: str) -> Table:
    """The paired differences of pass@1 with their intervals, in points."""
    return [
        {
            "cell": row.cell,
            "estimator": row.estimator,
            f"pass@1 - {reference}": f"{100 * row.value:+.1f}",
            "low": f"{100 * row.low:+.1f}",
            "high": f"{100 * row.high:+.1f}",
            "paired seeds": row.seeds,
        }
        for row in findings.differences
        if row.quantity == "pass1"
    ]


def regret_table(findings: Findings) -> Table:
    """How far below the best estimator of a cell each one ends; nothing of one cell alone."""
    if len(cells_of(findings)) == 1:
        return []
    return [
        {
            "estimator": regret.estimator,
            "mean regret, points": f"{regret.mean:.1f}",
            "worst, points": f"{regret.worst:.1f}",
            "where": regret.worst_cell.title,
            "best in": f"{regret.cells_won} of {len(regret.points)} cells",
        }
        for regret in findings.regret
    ]


def regret_picture(regrets: Sequence[Regret]) -> Figure:
    """A dot for each cell, a bar for the mean and a ring for the worst, by estimator."""
    looks = style.series_styles([regret.estimator for regret in regrets])
    with rc_context(style.HOUSE):
        figure = style.figure(1, 1, 7.5, 0.6 + 0.45 * len(regrets))
        axes = figure.axes[0]
        for place, regret in enumerate(regrets):
            colour = looks[regret.estimator]["color"]
            heights = place + 0.22 * np.linspace(-1, 1, len(regret.points))
            dots = list(regret.points.values())
            bar = [place - 0.32, place + 0.32]
            axes.plot(dots, heights, "o", color=colour, alpha=0.35, markersize=4, mew=0)
            axes.plot([regret.mean, regret.mean], bar, color=colour, lw=3)
            axes.plot(regret.worst, place, "o", mfc="none", color=colour, markersize=10)
        axes.set_yticks(range(len(regrets)), looks)
        axes.invert_yaxis()
        axes.set_xlim(left=-0.5)
        style.dress(
            axes,
            title="Regret",
            xlabel="points of pass@1 below the cell's best estimator",
            ylabel="",
            note="a dot: one cell of the study; bar: mean; ring: worst cell",
        )
    return figure


def picture(findings: Findings, reference: str, title: str) -> Figure:
    """Learning curves by cell, and the differences of pass@1 to the reference."""
    panels = _reward_panels(findings)
    differences = "Difference of pass@1"
    panels[differences] = Panel(
        differences,
        f"points over {reference}, 95 % by seed",
        reference=0,
        intervals="bars",
        axis=("mix", "prompts", "categories"),
    )
    rows = [point._asdict() for point in findings.curves]
    for row in findings.differences:
        if row.quantity == "pass1":
            points = row._replace(
                cell=differences,
                value=100 * row.value,
                low=100 * row.low,
                high=100 * row.high,
            )
            rows.append(points._asdict())
    return plot(
        rows,
        panels,
        x="step",
        xlabel="training step",
        panel="cell",
        columns=len(panels),
        size=(4.4, 3.4),
        title=title,
    )
