"""The cells of a study as a heat map: heat_map.py CELLS.csv PICTURE.png."""

import sys
from pathlib import Path

import altair as alt
import pandas as pd

from openrlhf_js.report import style

WORST = 15  # points, where the colours end
CELL_PIXELS = 34
SIGNIFICANT = 0.05
ORDER = ["js_plus", "js", "grpo", "bloo", "reinforce++", "remax"]  # then others


def heat_map(cells: pd.DataFrame) -> alt.VConcatChart:
    """Points of pass@1 over rloo: a row for each task and shape, a panel for each mix."""
    tasks = pd.Categorical(cells["task"], categories=cells["task"].unique())
    cells = cells.assign(task_order=tasks.codes)
    cells = cells.sort_values(["prompts", "responses", "task_order"])
    mixes = cells["mix"].unique()
    panels = [_panel(mix, cells[cells["mix"] == mix], mix == mixes[-1]) for mix in mixes]
    note = f"points of pass@1 over rloo; *: significant after Holm; colours end at ±{WORST}"
    return alt.vconcat(*panels, spacing=6, title=alt.Title("Cell by cell", subtitle=note))


def _panel(mix: str, rows: pd.DataFrame, labelled: bool) -> alt.LayerChart:
    rows = rows.assign(
        shape=[f"{n} x {m}" for n, m in rows[["prompts", "responses"]].to_numpy()],
        text=rows.less_rloo.map("{:+.0f}".format).replace({"-0": "0", "+0": "0"})
        + (rows.p_holm_less_rloo < SIGNIFICANT).map({True: "*", False: ""}),
        dark=rows.less_rloo.abs() > 0.6 * WORST,
    )
    rows["column"] = rows["task"] + " " + rows["shape"]
    columns = alt.Axis(labelAngle=-45, labels=labelled, domain=False)
    values = alt.InlineData(values=rows.to_dict("records"))
    chart = alt.Chart(values).encode(
        x=alt.X("column:N", sort=None, title=None, axis=columns),
        y=alt.Y("estimator:N", sort=ORDER, title=None, axis=alt.Axis(grid=False)),
    )
    colours = alt.Scale(scheme="purpleorange", domain=[WORST, -WORST], clamp=True)
    squares = chart.mark_rect(stroke="white").encode(
        color=alt.Color("less_rloo:Q", scale=colours, legend=None)
    )
    texts = chart.mark_text(fontSize=12).encode(
        text="text:N",
        color=alt.condition("datum.dark", alt.value("white"), alt.value(style.INK)),
    )
    return alt.layer(squares, texts).properties(
        title=f"prompts: {mix}", width=alt.Step(CELL_PIXELS), height=alt.Step(26)
    )


def main() -> None:
    source, picture = map(Path, sys.argv[1:])
    cells = pd.read_csv(source).dropna(subset=["less_rloo"])
    print(f"{len(cells)} differences -> {style.save_png(heat_map(cells), picture)}")


if __name__ == "__main__":
    main()
