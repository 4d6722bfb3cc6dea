"""The page, the pictures and the rows of a study."""

from __future__ import annotations

import math
from pathlib import Path

import altair as alt
import pandas as pd
from markupsafe import Markup

from openrlhf_js.common.files import atomic_write
from openrlhf_js.report import plot, style
from openrlhf_js.report.pages import render
from openrlhf_js.report.plot import Axis, Panel
from openrlhf_js.study.analysis import Findings
from openrlhf_js.study.tables import cause_table, outcome_table, regret_table

PAGE = "study.html"
ROWS = "rows.csv"
REGRET = "regret.png"
STEPS = Axis("step", "training step")
RATES = Axis("learning_rate", "learning rate", "log2")


def write(folder: Path, findings: Findings, title: str) -> Path:
    """Writes page, pictures and rows; returns the page."""
    text = render(
        "study.html",
        title=title,
        runs=sum(row.seeds for row in findings.means_at_each_rate if row.quantity == "reward"),
        reference=findings.reference,
        result=findings.result,
        csv=ROWS,
        regret=regret_table(findings),
        outcomes={cell: outcome_table(findings, cell) for cell in findings.cells},
        causes={cell: cause_table(findings, cell) for cell in findings.cells},
        curves=_curves(findings),
        rates=_results_by_rate(findings),
        script=plot.script(),
    )
    with atomic_write(folder / PAGE) as file:
        file.write(text.encode())
    rows = pd.DataFrame(
        findings.means
        + findings.means_at_each_rate
        + findings.differences
        + findings.differences_at_each_rate
    )
    rows = rows.replace([math.inf, -math.inf], math.nan)  # the ends of one seed's intervals
    with atomic_write(folder / ROWS) as file:
        rows.to_csv(file, index=False, float_format="%.5g")
    if len(findings.cells) > 1 and findings.regret:
        style.save_png(regret_picture(findings), folder / REGRET)
    return folder / PAGE


def _panels(findings: Findings, ylabel: str) -> dict[str, Panel]:
    return {cell: Panel(cell, ylabel) for cell in findings.cells}


def _curves(findings: Findings) -> Markup:
    rows = [point._asdict() for point in findings.curves]
    panels = _panels(findings, "training reward")
    return plot.page(plot.draw(rows, panels, STEPS, panel="cell"))


def _results_by_rate(findings: Findings) -> Markup:
    """Nothing where there is one rate alone."""
    rows = [
        row._asdict() | {"learning_rate": float(row.learning_rate)}
        for row in findings.means_at_each_rate
        if row.quantity == "pass1"
    ]
    if len({row["learning_rate"] for row in rows}) <= 1:
        return Markup()
    return plot.page(plot.draw(rows, _panels(findings, findings.result), RATES, panel="cell"))


def picture(findings: Findings, title: str) -> alt.ConcatChart:
    """The differences of results to the reference, and learning curves by cell."""
    difference = f"Difference of {findings.result}"
    panels = {
        difference: Panel(
            title=difference,
            ylabel=f"points over {findings.reference}, 95 % by seed",
            reference=0,
            intervals="bars",
            joined=False,
            axis=Axis("mix", "prompts", "categories"),
        ),
        **_panels(findings, "training reward"),
    }
    rows = [point._asdict() for point in findings.curves]
    for row in findings.differences:
        if row.quantity == "pass1":
            points = row._replace(
                cell=difference,
                value=100 * row.value,
                low=100 * row.low,
                high=100 * row.high,
            )
            rows.append(points._asdict())
    return plot.picture(plot.draw(rows, panels, STEPS, panel="cell"), title=title)


def regret_picture(findings: Findings) -> alt.LayerChart:
    """A dot for each cell, a bar for the mean and a ring for the worst, by estimator."""
    looks = style.series_looks([regret.estimator for regret in findings.regret])
    rows = []
    for regret in findings.regret:
        for number, points in enumerate(regret.points.values()):
            jitter = 2 * number / max(len(regret.points) - 1, 1) - 1  # from -1 to 1
            row = {"estimator": regret.estimator, "regret": points, "jitter": jitter}
            rows.append(row)
    colours = alt.Scale(domain=list(looks), range=[look.colour for look in looks.values()])
    xlabel = f"points of {findings.result} below the cell's best estimator"
    chart = alt.Chart(alt.InlineData(values=rows)).encode(
        y=alt.Y("estimator:N", sort=None, title=None),
        color=alt.Color("estimator:N", scale=colours, legend=None),
    )
    cells = chart.mark_point(filled=True, size=30, opacity=0.35).encode(
        x=alt.X("regret:Q", title=xlabel),
        yOffset=alt.YOffset("jitter:Q", scale=alt.Scale(domain=[-2.5, 2.5])),
    )
    means = chart.mark_tick(thickness=3, size=28).encode(x=alt.X("mean(regret):Q", title=xlabel))
    worst = chart.mark_point(size=160, strokeWidth=2, opacity=1).encode(
        x=alt.X("max(regret):Q", title=xlabel)
    )
    note = "a dot: one cell of the study; bar: mean; ring: worst cell"
    return alt.layer(cells, means, worst).properties(
        width=600, height=alt.Step(42), title=alt.Title("Regret", subtitle=note)
    )
