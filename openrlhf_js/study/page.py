"""The page, the pictures and the rows of a study."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from openrlhf_js.common.files import atomic_write
from openrlhf_js.report import plot, style
from openrlhf_js.report.pages import render
from openrlhf_js.report.plot import Axis, Panel
from openrlhf_js.study.analysis import CAUSES, TESTED, Findings

PAGE, ROWS, REGRET = "study.html", "rows.csv", "regret.png"
POINTS_OF = {"pass1": 100, "reward": 100, "any_rate": 100}  # shown as points of a hundred
STEPS = Axis("step", "training step")
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
        curves=plot.page(
            plot.draw(findings.curves.to_dict("records"), panels, STEPS, panel="cell")
        ),
        rates=rates_chart(findings),
        script=plot.script(),
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
    axis = Axis("learning_rate", "learning rate", "log2")
    return plot.page(plot.draw(rows.to_dict("records"), panels, axis, panel="cell"))


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


def regret_picture(findings: Findings) -> alt.LayerChart:
    """A dot for each cell, a bar for the mean and a ring for the worst, by estimator."""
    estimators = by_regret(findings)
    names = [name for name, _ in estimators]
    rows = [
        {"estimator": name, "regret": value, "jitter": jitter}
        for name, cells in estimators
        for value, jitter in zip(cells.value, np.linspace(-1, 1, len(cells)), strict=True)
    ]
    looks = style.series_looks(names).values()
    colours = alt.Scale(domain=names, range=[look.colour for look in looks])
    xlabel = "points of pass@1 below the cell's best estimator"
    regrets = alt.Chart(alt.InlineData(values=rows)).encode(
        y=alt.Y("estimator:N", sort=None, title=None),
        color=alt.Color("estimator:N", scale=colours, legend=None),
    )
    cells = regrets.mark_point(filled=True, size=30, opacity=0.35).encode(
        x=alt.X("regret:Q", title=xlabel),
        yOffset=alt.YOffset("jitter:Q", scale=alt.Scale(domain=[-2.5, 2.5])),
    )
    means = regrets.mark_tick(thickness=3, size=28).encode(x=alt.X("mean(regret):Q", title=xlabel))
    worst = regrets.mark_point(size=160, strokeWidth=2, opacity=1).encode(
        x=alt.X("max(regret):Q", title=xlabel)
    )
    note = "a dot: one cell of the study; bar: mean; ring: worst cell"
    return alt.layer(cells, means, worst).properties(
        width=600, height=alt.Step(42), title=alt.Title("Regret", subtitle=note)
    )


def picture(findings: Findings, reference: str, title: str) -> alt.ConcatChart:
    """Learning curves by cell, and the differences of pass@1 to the reference."""
    curves = {cell: Panel(cell, "training reward") for cell in cells_of(findings)}
    apart = Panel(
        "Difference of pass@1",
        f"points over {reference}, 95 % by seed",
        reference=0,
        intervals="bars",
        axis=Axis("mix", "prompts", "categories"),
    )
    rows = findings.differences.query("quantity == 'pass1'").assign(cell=apart.title)
    rows[["value", "low", "high"]] *= 100
    drawings = plot.draw(
        findings.curves.to_dict("records") + rows.to_dict("records"),
        {**curves, apart.title: apart},
        STEPS,
        panel="cell",
    )
    return plot.picture(drawings, title=title)
