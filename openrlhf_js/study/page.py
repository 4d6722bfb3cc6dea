"""The page, the pictures and the rows of a study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import altair as alt
import pandas as pd

from openrlhf_js.common.files import atomic_write
from openrlhf_js.report import figures, plot, style
from openrlhf_js.report.forest import Forest
from openrlhf_js.report.forest import Row as ForestRow
from openrlhf_js.report.pages import render
from openrlhf_js.report.plot import Axis, Panel
from openrlhf_js.study import tables
from openrlhf_js.study.analysis import Average, Findings

PAGE = "study.html"
PICTURE = "compared.png"
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
        verdicts=tables.verdicts(findings),
        interval=_interval_note(findings.averages_by_mix),
        forest=figures.page(_forests(findings)),
        curves=figures.page(_curves(findings)),
        outcomes={cell: tables.outcome_table(findings, cell) for cell in findings.cells},
        differences={cell: tables.difference_table(findings, cell) for cell in findings.cells},
        rates=figures.page(_results_by_rate(findings)),
        regret=tables.regret_table(findings),
        causes={cell: tables.cause_table(findings, cell) for cell in findings.cells},
        script=figures.script(),
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
    style.save_both(picture(findings, title), folder / PICTURE)
    if len(findings.cells) > 1 and findings.regret:
        style.save_both(regret_picture(findings), folder / REGRET)
    return folder / PAGE


def _interval_note(averages: Sequence[Average]) -> str:
    """What intervals of averages are over."""
    cells = max((average.cells for average in averages), default=0)
    if cells > 1:
        return f"95 % intervals over seeds and {cells} cells"
    return "95 % intervals over paired seeds"


def _forests(findings: Findings) -> list[Forest]:
    """The differences to the reference by mix; nothing where nothing is paired."""
    rows = []
    for average in findings.averages_by_mix:
        row = ForestRow(
            heading="" if findings.is_own else tables.MIXES_IN_WORDS[average.mix],
            name=average.estimator,
            value=average.value,
            low=average.low,
            high=average.high,
        )
        rows.append(row)
    if not rows:
        return []
    forest = Forest(
        title=f"Difference of {findings.result} from {findings.reference}",
        note=_interval_note(findings.averages_by_mix),
        xlabel=f"points of {findings.result} over {findings.reference}",
        rows=rows,
        looks=style.series_looks(_estimators(findings)),
        form="+.1f",
        reference=0,
    )
    return [forest]


def _estimators(findings: Findings) -> list[str]:
    return list(dict.fromkeys(row.estimator for row in findings.means))


def _curves(findings: Findings) -> list[plot.Drawing]:
    rows = [point._asdict() for point in findings.curves]
    panels = {cell: Panel(cell, "training reward") for cell in findings.cells}
    looks = style.series_looks(_estimators(findings))
    return plot.draw(rows, panels, STEPS, panel="cell", looks=looks)


def _results_by_rate(findings: Findings) -> list[plot.Drawing]:
    """Nothing where there is one rate alone."""
    rows = [
        row._asdict() | {"learning_rate": float(row.learning_rate)}
        for row in findings.means_at_each_rate
        if row.quantity == "pass1"
    ]
    if len({row["learning_rate"] for row in rows}) <= 1:
        return []
    panels = {cell: Panel(cell, findings.result) for cell in findings.cells}
    return plot.draw(rows, panels, RATES, panel="cell")


def picture(findings: Findings, title: str) -> alt.ConcatChart:
    """The differences by mix, and two learning curves of the first cell with their bands.

    The curves are those of the reference and of the other estimator with the least regret.
    """
    by_regret = [regret.estimator for regret in findings.regret]
    others = [name for name in by_regret or _estimators(findings) if name != findings.reference]
    pictured = [findings.reference, *others[:1]]
    cell = findings.cells[0]
    rows = [point._asdict() for point in findings.curves if point.estimator in pictured]
    note = "mean over seeds, 95 % intervals"
    panels = {cell: Panel(cell, "training reward", note)}
    looks = style.series_looks(_estimators(findings))  # as in the differences beside them
    curves = plot.draw(rows, panels, STEPS, panel="cell", looks=looks)
    return figures.wide_picture([*_forests(findings), *curves], title)


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
    note = "dot: one cell of the study; bar: mean; ring: worst cell"
    return alt.layer(cells, means, worst).properties(
        width=600, height=alt.Step(42), title=alt.Title("Regret", subtitle=note)
    )
