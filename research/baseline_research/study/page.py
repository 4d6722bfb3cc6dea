"""The page, the picture and the rows of a study."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import altair as alt
import pandas as pd

from answer_graders.programs.files import atomic_write
from baseline_research import plot
from baseline_research.plot import Axis, Panel
from baseline_research.study import tables
from baseline_research.study.analysis import Average, CurvePoint, Findings, StudyRow
from baseline_research.study.budget import Tried
from baseline_research.study.values import grouped
from paired_eval.pages import figures, style
from paired_eval.pages.forest import Forest, ForestRow
from paired_eval.pages.pages import TEMPLATES, render
from paired_eval.pages.text import short_names

PAGE = "study.html"
PICTURE = "compared.png"
ROWS = "rows.csv"
STEPS = Axis("step", "training step")
RATES = Axis("learning_rate", "learning rate", "log2")
SPLITS = Axis("responses", "responses to each prompt", "log2")
CHOSEN_ON = "each split at its best learning rate, on the choice seeds"
OVER_SEEDS = "mean over seeds, 95 % intervals"


def write(folder: Path, findings: Findings, title: str, tried: Sequence[Tried] = ()) -> Path:
    """Writes page, picture and rows; returns the page. `tried` has the splits of a budget."""
    template = (Path(__file__).parent / "templates" / "study.html").read_text()
    text = render(
        TEMPLATES.from_string(template),
        title=title,
        runs=sum(row.seeds for row in findings.means_at_each_rate if row.quantity == "reward"),
        reference=findings.reference,
        result=findings.result,
        unit=findings.unit,
        csv=ROWS,
        conclusion=tables.conclusion(findings),
        intervals=tables.interval_note(findings),
        verdicts=tables.verdicts(findings),
        mixes=tables.mixes(findings),
        undecided=tables.UNDECIDED,
        no_difference=tables.NO_DIFFERENCE,
        interval=_interval_note(findings.averages_by_mix),
        forest=figures.page(_forests(findings)),
        curves=figures.page(curves_of(findings, findings.estimators)),
        results={cell: tables.results_table(findings, cell) for cell in findings.cells},
        rates=figures.page(_results_by_rate(findings)),
        splits=figures.page(results_by_split(findings, tried)),
        choices={
            cell: tables.choice_table(of_cell)
            for cell, of_cell in grouped(tried, lambda row: row.cell).items()
        },
        causes={cell: tables.cause_table(findings, cell) for cell in findings.cells},
    )
    with atomic_write(folder / PAGE) as file:
        file.write(text.encode())
    rows = pd.DataFrame(findings.means + findings.means_at_each_rate + findings.differences)
    rows = rows.replace([math.inf, -math.inf], math.nan)  # one seed's intervals have infinite ends
    with atomic_write(folder / ROWS) as file:
        rows.to_csv(file, index=False, float_format="%.5g")
    style.save_png(picture(findings, title), folder / PICTURE)
    return folder / PAGE


def picture(findings: Findings, title: str) -> alt.ConcatChart:
    """The differences by mix, and two learning curves of the first cell with their bands.

    The curves are the reference's and that of the other estimator that ends highest.
    """
    others = [name for name in findings.estimators if name != findings.reference]
    pictured = [findings.reference, *others[:1]]
    curves = curves_of(findings, pictured)
    forests = _forests(findings)
    widths = [figures.FOREST_WIDTH] * len(forests) + [figures.PANEL_WIDTH]
    return figures.picture([*forests, *curves[:1]], widths, title)


def _interval_note(averages: Sequence[Average]) -> str:
    """Says what the averages' intervals are over."""
    cells = max((average.cells for average in averages), default=0)
    if cells > 1:
        note = f"means of {cells} cells, 95 % intervals over seeds"
    else:
        note = "95 % intervals over paired seeds"
    if any(math.isinf(average.high) for average in averages):
        note += ", none where they are equal"
    return f"{note}{_cut(averages, least=-100, greatest=100)}"


def _cut(rows: Iterable[Average | CurvePoint | StudyRow], least: int, greatest: int) -> str:
    """A note if any interval is cut at the limits of rewards from 0 to 1, else ""."""
    for row in rows:
        if least == row.low < row.value or row.value < row.high == greatest:
            return f", cut at {least} and {greatest}"
    return ""


def _forests(findings: Findings) -> list[Forest]:
    """The differences to the reference by mix; empty if nothing is paired."""
    rows = []
    for average in findings.averages_by_mix:
        row = ForestRow(
            heading="" if findings.is_own else tables.MIXES_IN_WORDS[average.mix],
            name=average.estimator,
            value=average.value,
            low=average.low if math.isfinite(average.low) else None,
            high=average.high if math.isfinite(average.high) else None,
        )
        rows.append(row)
    if not rows:
        return []
    reference = short_names(findings.estimators)[findings.reference]
    over = f"{findings.unit} of " if findings.unit else ""
    forest = Forest(
        title=f"Difference of {findings.result} from {reference}",
        note=_interval_note(findings.averages_by_mix),
        xlabel=f"{over}{findings.result} over {reference}",
        rows=rows,
        series=findings.estimators,
        form=tables.form_of(findings),
        reference=0,
    )
    return [forest]


def curves_of(findings: Findings, estimators: Sequence[str]) -> list[plot.Drawing]:
    """The learning curves of these estimators, cell by cell."""
    points = [point for point in findings.curves if point.estimator in estimators]
    panels = {}
    for cell, of_cell in grouped(points, lambda point: point.cell).items():
        note = f"{OVER_SEEDS}{_cut(of_cell, least=0, greatest=1)}"
        panels[cell] = Panel(cell, "training reward", note)
    rows = [point._asdict() for point in points]
    return plot.draw(rows, panels, STEPS, panel="cell", series=findings.estimators)


def results_by_split(findings: Findings, tried: Sequence[Tried]) -> list[plot.Drawing]:
    """pass@1 by the number of responses to each prompt; empty without a budget."""
    cells = grouped(tried, lambda row: row.cell)
    panels = {cell: Panel(cell, findings.result, CHOSEN_ON) for cell in cells}
    rows = [
        row._asdict() | {"value": row.pass1, "low": math.nan, "high": math.nan} for row in tried
    ]
    return plot.draw(rows, panels, SPLITS, panel="cell", series=findings.estimators)


def _results_by_rate(findings: Findings) -> list[plot.Drawing]:
    """pass@1 by learning rate; empty with a single rate."""
    means = [row for row in findings.means_at_each_rate if row.quantity == "pass1"]
    if len({row.learning_rate for row in means}) <= 1:
        return []
    panels = {}
    for cell, of_cell in grouped(means, lambda row: row.cell).items():
        note = f"{OVER_SEEDS}{_cut(of_cell, least=0, greatest=1)}"
        panels[cell] = Panel(cell, findings.result, note)
    rows = [row._asdict() | {"learning_rate": float(row.learning_rate)} for row in means]
    return plot.draw(rows, panels, RATES, panel="cell", series=findings.estimators)
