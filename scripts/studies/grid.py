"""A grid of tasks, mixes and sizes: its records, and averages as tables and as a picture."""

import json
import lzma
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from openrlhf_js.common.files import atomic_write
from openrlhf_js.estimators import ESTIMATORS
from openrlhf_js.report import forest, style
from openrlhf_js.study import analysis
from openrlhf_js.study.values import RunRecord, chosen_runs, grouped, measured_values

SIGNIFICANT = 0.05
IN_POINTS = ["less_rloo", "low", "high", "detects"]
MIXES = {mix: [mix] for mix in ("alike", "natural", "mixed")}
GROUPS = MIXES | {"not mixed": ["alike", "natural"], "all": ["alike", "natural", "mixed"]}


def keep(folders: Sequence[Path], records: Path) -> None:
    """Packs the records of these folders, which share all settings but the sizes of batches."""
    lines: list[str] = []
    for folder in folders:
        settings, *runs = (folder / "runs-inline.jsonl").read_text().splitlines(keepends=True)
        if lines and settings != lines[0]:
            raise SystemExit(f"{folder} has other settings than {folders[0]}")
        lines += runs if lines else [settings, *runs]
    with atomic_write(records) as file:
        file.write(lzma.compress("".join(lines).encode()))


def read(records: Path) -> list[RunRecord]:
    """The runs of a file of records, without its first line."""
    with lzma.open(records, "rt") as file:
        return [json.loads(line) for line in file][1:]


def show(title: str, rows: pd.DataFrame) -> None:
    """Prints a table in Markdown, names of estimators as code."""
    heads = [f"`{head}`" if head in ESTIMATORS else str(head) for head in rows]
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows.astype(str).to_numpy().tolist()]
    print(f"\n{title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))


def wide(rows: pd.DataFrame, index: Sequence[str], names: Sequence[str]) -> pd.DataFrame:
    """The column `text`, with a column for each estimator; the first of the index once a block."""
    table = rows.pivot_table("text", index, "estimator", "first", sort=False).fillna("")
    table = table[[name for name in names if name in table]].reset_index()
    return table.assign(**{index[0]: table[index[0]].mask(table[index[0]].duplicated(), "")})


def averages(
    runs: Sequence[RunRecord], reference: str, responses: Sequence[int] = (2, 4, 8)
) -> pd.DataFrame:
    """The differences of pass@1 to the reference, averaged over cells: m, mix, estimator, points.

    Each seed at the learning rate that is best on the other seeds. Intervals are over cells and
    seeds, as if the cells of one task were independent; a group with one cell is left out.
    """
    values = measured_values(runs, chosen_runs(runs), reference)
    values = [value for value in values if value.chosen and value.quantity == "pass1"]
    records = []
    for m in responses:
        for mix, mixes in GROUPS.items():
            shown = [
                value for value in values if value.cell.mix in mixes and value.cell.responses == m
            ]
            comparisons = analysis.Comparisons(shown, reference, by_rate=False)
            for average in analysis.averages(comparisons):
                records.append({"m": m, **average._replace(mix=mix)._asdict()})
    rows = pd.DataFrame(records, columns=["m", *analysis.Average._fields])
    rows = rows.rename(columns={"value": "points"})
    return rows.assign(text=rows.points.map("{:+.1f}".format))


def with_size(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, with the size of their batch: `16 x 2`."""
    return rows.assign(size=[f"{n} x {m}" for n, m in rows[["prompts", "responses"]].to_numpy()])


def size_of(run: RunRecord) -> str:
    """The size of a run's batch."""
    return f"{run['prompts']} x {run['responses']}"


def averages_by_size(runs: Sequence[RunRecord], reference: str) -> pd.DataFrame:
    """The averages over the cells of each size of batch that the reference was run with."""
    by_size = []
    for size, of_size in grouped(runs, size_of).items():
        if any(run["estimator"] == reference for run in of_size):
            responses = of_size[0]["responses"]
            by_size.append(averages(of_size, reference, [responses]).assign(size=size))
    return pd.concat(by_size, ignore_index=True)


def cell_table(differences: Sequence[analysis.StudyRow]) -> pd.DataFrame:
    """The differences of pass@1 to rloo, cell by cell, in points."""
    cells = pd.DataFrame(differences).query("quantity == 'pass1'")
    cells = cells.rename(
        columns={"value": "less_rloo", "detectable": "detects", "p_holm": "p_holm_less_rloo"}
    )
    cells[IN_POINTS] *= 100
    columns = ["task", "mix", "prompts", "responses", "estimator", "learning_rate", "seeds"]
    return cells[[*columns, *IN_POINTS, "p", "p_holm_less_rloo"]]


def show_significant(cells: pd.DataFrame) -> None:
    """Prints in how many cells each estimator is significantly above or below rloo."""
    significant = cells[cells.p_holm_less_rloo < SIGNIFICANT]
    groups = {
        "cells": cells,
        "above": significant.query("less_rloo > 0"),
        "below": significant.query("less_rloo < 0"),
    }
    by = ["size", "estimator"]
    counts = pd.DataFrame(
        {name: with_size(rows).groupby(by).estimator.count() for name, rows in groups.items()}
    )
    counts = counts.fillna(0).astype(int)
    print(f"\nSignificant after Holm\n\n{counts}\n\n{counts.groupby('estimator').sum()}")
    print(f"\n{significant.to_string(index=False)}")


def show_errors(means: Sequence[analysis.StudyRow], names: Sequence[str]) -> None:
    """Prints the error of each baseline as a share of rloo's, averaged over tasks."""
    rows = with_size(pd.DataFrame(means).query("quantity == 'baseline_error'"))
    shares = rows.groupby(["size", "mix", "estimator"], sort=False).value.mean().reset_index()
    shares["text"] = shares.value.map("{:.2f}".format).replace("nan", "")
    title = "Error of the baseline, as a share of rloo's"
    show(title, wide(shares, ["size", "mix"], names))
    below = rows.assign(below=rows.value < 1).groupby("estimator").below.agg(["sum", "size"])
    print(f"\nBelow rloo's, of how many cells\n\n{below}")


def forest_of(rows: pd.DataFrame, m: int, names: Sequence[str], note: str) -> forest.Forest:
    """The averages over rloo at m responses by mix and estimator, the first name at the top."""
    at_m = rows[rows.m == m]
    forest_rows = [
        forest.ForestRow(row.mix, row.estimator, row.points, row.low, row.high)
        for mix in MIXES
        for name in names
        for row in at_m.query("mix == @mix and estimator == @name").itertuples()
    ]
    return forest.Forest(
        title=f"{m} responses to a prompt",
        note=note,
        xlabel="points of pass@1 over rloo",
        rows=forest_rows,
        looks=style.series_looks(names),
        form="+.1f",
        reference=0,
    )
