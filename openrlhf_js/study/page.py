"""The page, the pictures and the rows of a study."""

from __future__ import annotations

import math
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
from openrlhf_js.study.analysis import CAUSES, TESTED, Findings

PAGE, ROWS, REGRET = "study.html", "rows.csv", "regret.png"
POINTS_OF = {"pass1": 100, "reward": 100, "any_rate": 100}  # shown as points of a hundred
STEPS: Any = {"x": "step", "xlabel": "training step", "panel": "cell"}
Table = list[dict[str, Any]]


def write(folder: Path, findings: Findings, reference: str, title: str) -> Path:
    """Writes page, pictures and rows; returns the page."""
    cells = cells_of(findings)
    panels = {cell: Panel(cell, "training reward") for cell in cells}
    text = render(
        "study.html",
        title=title,
        runs=findings.means.query("quantity == 'reward'").seeds.sum(),
        reference=reference,
        rows=ROWS,
        regret=regret_table(findings),
        cells={cell: table_of(findings, cell, reference) for cell in cells},
        curves=chart(findings.curves.to_dict("records"), panels, **STEPS),
        rates=rates_chart(findings),
        script=script(),
    )
    with atomic_write(folder / PAGE) as file:
        file.write(text.encode())
    kinds = ["mean", "difference", "difference at that rate"]  # the first three findings
    rows = pd.concat(findings[:3], keys=kinds, names=["kind"]).reset_index("kind")
    rows = rows.replace([math.inf, -math.inf], math.nan)  # the ends of one seed's intervals
    with atomic_write(folder / ROWS) as file:
        rows.to_csv(file, index=False, float_format="%.5g")
    if regret_table(findings):
        style.save_png(regret_picture(findings), folder / REGRET)
    return folder / PAGE


def cells_of(findings: Findings) -> list[str]:
    """The cells, in the order of the study."""
    return list(findings.means.cell.unique())


def rates_chart(findings: Findings) -> str:
    """pass@1 by learning rate, nothing where there is one alone."""
    rows = findings.means.query("quantity == 'pass1'")
    if rows.learning_rate.nunique() <= 1:
        return ""
    panels = {cell: Panel(cell, "pass@1") for cell in cells_of(findings)}
    axis: Any = {"x": "learning_rate", "xlabel": "learning rate", "scale": "log2"}
    return chart(rows.to_dict("records"), panels, panel="cell", **axis)


def shown(row: Any, sign: str = "") -> str:
    """A value with half of its interval's width: `61.2 ± 1.3`."""
    if row is None:
        return ""
    factor = POINTS_OF.get(row["quantity"], 1)
    digits = ".1f" if factor == 100 or row["quantity"] == "steps_to_target" else ".3g"
    value = f"{factor * row['value']:{sign}{digits}}"
    if not math.isfinite(row["high"]):
        return value
    return f"{value} ± {factor * (row['high'] - row['low']) / 2:{digits}}"


def table_of(findings: Findings, cell: str, reference: str) -> tuple[Table, Table]:
    """A row for each estimator at its best learning rate: how well it trained, and why."""
    means, against = (
        {(row["estimator"], row["quantity"]): row for row in rows.to_dict("records")}
        for rows in (
            findings.means[findings.means.best & (findings.means.cell == cell)],
            findings.differences[findings.differences.cell == cell],
        )
    )
    outcomes, causes = [], []
    for name in dict.fromkeys(estimator for estimator, _ in means):
        outcome = {"estimator": name}
        outcome["best rate"] = f"{means[name, 'reward']['learning_rate']:g}"
        outcome["pass@1"] = shown(means.get((name, "pass1")))
        for quantity, words in TESTED.items():
            found, own = against.get((name, quantity)), ""
            if found:
                own = f"{shown(found, '+')}, p {found['p_holm']:.2g}"
            elif name == reference:
                own = shown(means.get((name, quantity)))
            outcome[f"{words} - {reference}"] = own
        outcomes.append(outcome)
        why = {"estimator": name}
        for quantity, words in CAUSES.items():
            found = against.get((name, quantity))
            p = f", p {found['p_holm']:.2g}" if found else ""
            why[words] = shown(means.get((name, quantity))) + p
        causes.append(why)
    return outcomes, causes


def by_regret(findings: Findings) -> list[tuple[str, pd.DataFrame]]:
    """Each estimator with its regret in all cells, the lowest mean first."""
    rows = findings.regret.assign(value=100 * findings.regret.value)
    return sorted(rows.groupby("estimator"), key=lambda each: float(each[1].value.mean()))


def regret_table(findings: Findings) -> Table:
    """How far below the best estimator of a cell each one ends; nothing of one cell alone."""
    return [
        {
            "estimator": name,
            "mean regret, points": f"{own.value.mean():.1f}",
            "worst, points": f"{own.value.max():.1f}",
            "where": own.cell[own.value.idxmax()],
            "best in": f"{(own.value == 0).sum()} of {len(own)} cells",
        }
        for name, own in by_regret(findings)
        if findings.regret.cell.nunique() > 1
    ]


def regret_picture(findings: Findings) -> Figure:
    """A dot for each cell, a bar for the mean and a ring for the worst, by estimator."""
    rows = by_regret(findings)
    looks = style.series_styles([name for name, _ in rows])
    with rc_context(style.HOUSE):
        figure = style.figure(1, 1, 7.5, 0.6 + 0.45 * len(rows))
        axes = figure.axes[0]
        for place, (name, own) in enumerate(rows):
            colour, mean = looks[name]["color"], own.value.mean()
            jitter = place + 0.22 * np.linspace(-1, 1, len(own))
            axes.plot(own.value, jitter, "o", color=colour, alpha=0.35, markersize=4, mew=0)
            axes.plot([mean] * 2, [place - 0.32, place + 0.32], color=colour, lw=3)
            axes.plot(own.value.max(), place, "o", mfc="none", color=colour, markersize=10)
        axes.set_yticks(range(len(rows)), looks)
        axes.invert_yaxis()
        axes.set_xlim(left=-0.5)
        note = "a dot: one cell of the study; bar: mean; ring: worst cell"
        style.dress(axes, "Regret", "points of pass@1 below the cell's best estimator", "", note)
    return figure


def picture(findings: Findings, reference: str, title: str) -> Figure:
    """Learning curves by cell, and the differences of pass@1 to the reference."""
    curves = {cell: Panel(cell, "training reward") for cell in cells_of(findings)}
    apart = Panel(
        "Difference of pass@1",
        f"points over {reference}, 95 % by seed",
        reference=0,
        intervals="bars",
        axis=("mix", "prompts", "categories"),
    )
    rows = findings.differences.query("quantity == 'pass1'").assign(cell=apart.title)
    rows[["value", "low", "high"]] *= 100
    return plot(
        findings.curves.to_dict("records") + rows.to_dict("records"),
        {**curves, apart.title: apart},
        columns=len(curves) + 1,
        size=(4.4, 3.4),
        title=title,
        **STEPS,
    )
