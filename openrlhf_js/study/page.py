"""The page, the pictures and the rows of a study."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from openrlhf_js import __version__
from openrlhf_js.common.files import atomic_write
from openrlhf_js.report import style
from openrlhf_js.report.chart import chart, script
from openrlhf_js.report.pages import render
from openrlhf_js.report.plot import Panel, plot
from openrlhf_js.stats import clustered_mean
from openrlhf_js.study.analysis import CAUSES, TESTED, Cell, Findings, Record, Row, in_words

PAGE, ROWS, REGRET = "study.html", "rows.csv", "regret.png"
POINTS_OF = {"pass1": 100, "reward": 100, "any_rate": 100}  # shown as points of a hundred
CURVE = "training reward"


def write(folder: Path, records: Sequence[Record], findings: Findings, reference: str) -> Path:
    """Writes page, pictures and rows; returns the page."""
    curves = learning_curves(records, findings)
    panels = {each.name: Panel(each.name, CURVE) for each in cells_of(findings)}
    pages = {each: table_of(findings, each, reference) for each in cells_of(findings)}
    text = render(
        "study.html",
        title=f"Study: {', '.join(dict.fromkeys(row['estimator'] for row in findings.rows))}",
        written=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=__version__,
        runs=len(records),
        reference=reference,
        regret=regret_table(findings) if len(panels) > 1 else [],
        cells={cell.name: rows for cell, rows in pages.items()},
        curves=chart(curves, panels, x="step", xlabel="training step", panel="cell"),
        rates=rates_chart(findings),
        script=script(),
    )
    with atomic_write(folder / PAGE) as file:
        file.write(text.encode())
    save_rows(folder / ROWS, findings)
    if len(panels) > 1 and findings.regret:
        style.save_png(regret_picture(findings.regret), folder / REGRET)
    return folder / PAGE


def cells_of(findings: Findings) -> list[Cell]:
    """The cells, in the order of the study."""
    return list(dict.fromkeys(row["cell"] for row in findings.rows))


def save_rows(path: Path, findings: Findings) -> None:
    """Every mean and every difference, one row each."""
    kinds = {
        "mean": findings.rows,
        "difference": findings.differences,
        "difference at that rate": findings.at_each_rate,
    }
    rows = [
        {"kind": kind, **row["cell"]._asdict(), **{k: v for k, v in row.items() if k != "cell"}}
        for kind, found in kinds.items()
        for row in found
    ]
    with atomic_write(path) as file:
        pd.DataFrame(rows).to_csv(file, index=False, float_format="%.5g")


def learning_curves(records: Sequence[Record], findings: Findings) -> list[Row]:
    """Mean training reward with its interval over seeds, of each estimator at its best rate."""
    found: dict[tuple[Cell, str], list[Record]] = {}
    for each in records:
        key = Cell(*(each[name] for name in Cell._fields)), each["estimator"]
        if each["learning_rate"] == findings.best[key]:
            found.setdefault(key, []).append(each)
    rows = []
    for (cell, name), own in found.items():
        for point, values in enumerate(zip(*(each["curve"] for each in own), strict=True)):
            step = own[0]["steps"] * (point + 0.5) / len(own[0]["curve"])
            estimate = clustered_mean(values).plain()
            rows.append({"cell": cell.name, "estimator": name, "step": step, **estimate})
    return rows


def rates_chart(findings: Findings) -> str:
    """pass@1 by learning rate, nothing where there is one alone."""
    rows = [row for row in findings.rows if row["quantity"] == "pass1"]
    if len({row["learning_rate"] for row in rows}) <= 1:
        return ""
    panels = {each.name: Panel(each.name, "pass@1") for each in cells_of(findings)}
    tidy = [{**row, "cell": row["cell"].name} for row in rows]
    name = "learning rate"
    return chart(tidy, panels, x="learning_rate", xlabel=name, panel="cell", scale="log2")


def shown(row: Row | None, sign: str = "") -> str:
    """A value with half of its interval's width: `61.2 ± 1.3`."""
    if row is None:
        return ""
    factor = POINTS_OF.get(row["quantity"], 1)
    digits = ".1f" if factor == 100 or row["quantity"] == "steps_to_target" else ".3g"
    value = f"{factor * row['value']:{sign}{digits}}"
    if row["high"] is None:
        return value
    return f"{value} ± {factor * (row['high'] - row['low']) / 2:{digits}}"


def table_of(
    findings: Findings, cell: Cell, reference: str
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """A row for each estimator at its best learning rate: how well it trained, and why."""
    means = {
        (row["estimator"], row["quantity"]): row
        for row in findings.rows
        if row["cell"] == cell and row["best"]
    }
    against = {
        (row["estimator"], row["quantity"]): row
        for row in findings.differences
        if row["cell"] == cell
    }
    outcomes, causes = [], []
    for name in dict.fromkeys(row["estimator"] for row in findings.rows if row["cell"] == cell):
        outcome = {"estimator": name, "best rate": f"{findings.best[cell, name]:g}"}
        outcome["pass@1"] = shown(means.get((name, "pass1")))
        for quantity, words in TESTED.items():
            found, own = against.get((name, quantity)), ""
            if found:
                own = f"{shown(found, '+')}, p {found['p_holm']:.2g}"
            elif name == reference:
                own = shown(means.get((name, quantity)))
            outcome[f"{words} - {reference}"] = own
        outcomes.append(outcome)
        why = {words: shown(means.get((name, quantity))) for quantity, words in CAUSES.items()}
        causes.append({"estimator": name, **why})
    return outcomes, causes


def regret_table(findings: Findings) -> list[dict[str, Any]]:
    """How far below the best estimator of a cell each one ends, in points of pass@1."""
    return [
        {
            "estimator": row["estimator"],
            "mean regret, points": f"{100 * row['mean']:.1f}",
            "worst, points": f"{100 * row['worst']:.1f}",
            "where": row["worst_cell"],
            "best in": f"{row['best_in']} of {row['cells']} cells",
        }
        for row in findings.regret
    ]


def regret_picture(regret: Sequence[Row]) -> Figure:
    """A dot for each cell, a bar for the mean and a ring for the worst, by estimator."""
    names = [row["estimator"] for row in regret]
    looks = style.series_styles(names)
    with rc_context(style.HOUSE):
        figure = style.figure(1, 1, 7.5, 0.6 + 0.45 * len(regret))
        axes = figure.axes[0]
        for place, row in enumerate(regret):
            values = 100 * np.array(list(row["by_cell"].values()))
            colour = looks[row["estimator"]]["color"]
            jitter = place + 0.22 * np.linspace(-1, 1, len(values))
            axes.plot(values, jitter, "o", color=colour, alpha=0.35, markersize=4, mew=0)
            axes.plot([100 * row["mean"]] * 2, [place - 0.32, place + 0.32], color=colour, lw=3)
            axes.plot(100 * row["worst"], place, "o", mfc="none", color=colour, markersize=10)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlim(left=-0.5)
        note = "a dot: one cell of the study; bar: mean; ring: worst cell"
        style.dress(axes, "Regret", "points of pass@1 below the cell's best estimator", "", note)
    return figure


def picture(records: Sequence[Record], findings: Findings, reference: str, title: str) -> Figure:
    """Learning curves by cell, and the differences of pass@1 to the reference."""
    panels = {each.name: Panel(each.name, CURVE) for each in cells_of(findings)}
    figure = plot(
        learning_curves(records, findings),
        {**panels, "": Panel("", "")},
        x="step",
        xlabel="training step",
        panel="cell",
        columns=len(panels) + 1,
        size=(4.4, 3.4),
        title=title,
    )
    found = [row for row in findings.differences if row["quantity"] == "pass1"]
    looks = style.series_styles(list(dict.fromkeys(row["estimator"] for row in found)))
    with rc_context(style.HOUSE):
        axes = figure.axes[-1]
        axes.clear()
        for place, row in enumerate(found):
            value, low, high = (100 * row[end] for end in ("value", "low", "high"))
            look = looks[row["estimator"]]
            reach = [[value - low], [high - value]]
            mark = {"fmt": look["marker"], "color": look["color"], "capsize": 3}
            axes.errorbar(value, place, None, reach, **mark)
        axes.set_yticks(range(len(found)), [f"{r['estimator']}, {r['cell'].mix}" for r in found])
        axes.set_ylim(max(len(found), 1) - 0.5, -0.5)
        axes.axvline(0, color=style.INK, linewidth=1)
        label = f"points over {reference}, 95 % by seed"
        style.dress(axes, "Difference of pass@1", label, "")
    return figure


def summary(findings: Findings, reference: str) -> list[str]:
    """For each estimator and cell: the paired difference of pass@1."""
    found = [row for row in findings.differences if row["quantity"] == "pass1"]
    return [in_words(row, reference) for row in found]
