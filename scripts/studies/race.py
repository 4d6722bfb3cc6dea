"""The race of docs/selection.md: writes its tables into that page, and draws its picture.

.venv/bin/python scripts/studies/race.py [runs]

With the folder in which race.sh left its runs, these take the place of race*.jsonl.xz.
"""

import json
import lzma
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from openrlhf_js.report import figures, plot, style
from openrlhf_js.report.plot import Axis, Panel
from openrlhf_js.stats import paired_difference
from openrlhf_js.study.analysis import Findings, StudyRow, analyse
from openrlhf_js.study.design import Cell, cell_of
from openrlhf_js.study.values import RunRecord, chosen_runs, grouped

HERE = Path(__file__).parent
STORES = ("race", "race_small")  # of 32 prompts in a step, and of 8
DOCS = HERE.parents[1] / "docs"
BEGIN = "<!-- written by scripts/studies/race.py -->\n"
END = "<!-- end -->\n"
REFERENCE = "rloo"
CONTENDERS = (  # of every cell
    *("js_memory+informative", "js_memory", "js_plus+informative", "js_plus"),
    *("rloo+informative", "rloo+spo", "rloo+greso", "rloo+dynamic", "rloo"),
)
PICTURED = (
    *("rloo", "rloo+dynamic", "rloo+greso", "rloo+spo"),
    *("rloo+informative", "js_memory", "js_memory+informative"),
)
UNLEARNT = "modsum"  # by anything, in the mix: its curves are noise, and not drawn
LEAST_SEEDS = 3
POINTS = 8  # of a curve


def pack(folder: Path) -> None:
    """Takes over what race.sh left."""
    for store in STORES:
        with lzma.open(HERE / f"{store}.jsonl.xz", "wb") as packed:
            packed.write((folder / store / "runs-inline.jsonl").read_bytes())


def read(store: str) -> list[RunRecord]:
    """The runs of a packed store, without its first line."""
    with lzma.open(HERE / f"{store}.jsonl.xz", "rt") as file:
        return [json.loads(line) for line in file][1:]


def whole_seeds(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs of a cell on seeds that all its settings have; none where a contender lacks."""
    if not set(CONTENDERS) <= {run["estimator"] for run in runs}:
        return []
    settings = grouped(runs, lambda run: (run["estimator"], run["learning_rate"]))
    seeds = set.intersection(*({run["seed"] for run in group} for group in settings.values()))
    if len(seeds) < LEAST_SEEDS:
        return []
    return [run for run in runs if run["seed"] in seeds]


def curve(run: RunRecord) -> np.ndarray:
    """(POINTS,) pass@1 of a run at equal distances in sampled responses; NaN before the first."""
    budget = run["prompts"] * run["responses"] * run["steps"]
    points = run["pass1_curve"] or ()  # none of a filter that never had a whole batch
    sampled, pass1 = zip(*points, (budget, run["pass1"]), strict=True)
    wanted = np.arange(1, POINTS + 1) * budget / POINTS
    return np.interp(wanted, sampled, pass1, left=np.nan)


def share_to(target: float, runs: Sequence[RunRecord]) -> str:
    """The share of the budget at which the mean of these runs first reaches a pass@1."""
    means = np.mean([curve(run) for run in runs], 0)  # NaN where a run was not measured yet
    shares = np.arange(1, POINTS + 1) / POINTS
    if np.nanmax(means) < target:
        return "not reached"
    place = int(np.argmax(means >= target))
    if place == 0 or np.isnan(means[place - 1]):
        return f"at most {shares[place]:.0%}"
    crossing = np.interp(target, means[place - 1 : place + 1], shares[place - 1 : place + 1])
    return f"{crossing:.0%}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown; numbers on the right."""
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, rule, *rows))


def row_of(
    rows: Sequence[StudyRow], cell: Cell, estimator: str, quantity: str = "pass1"
) -> StudyRow | None:
    """The row of a cell, an estimator and a quantity."""
    for row in rows:
        if (row.cell, row.estimator, row.quantity) == (cell.title, estimator, quantity):
            return row
    return None


def _title(cell: Cell) -> str:
    return f"{cell.task}, {cell.mix}, m = {cell.responses}"


def results(findings: Findings, cells: Sequence[Cell], labels: Sequence[str]) -> str:
    """pass@1 in percent, a column a cell; bold the highest, a mark where it differs from rloo."""
    columns = []
    for cell in cells:
        means = {label: row_of(findings.means, cell, label) for label in labels}
        highest = max(row.value for row in means.values() if row is not None)
        texts = []
        for label, mean in means.items():
            if mean is None:
                texts.append("")
                continue
            text = f"{100 * mean.value:.1f}"
            if mean.value == highest:
                text = f"**{text}**"
            gap = row_of(findings.differences, cell, label)
            if gap is not None and gap.p_holm is not None and gap.p_holm < 0.05:
                text += " ▲" if gap.value > 0 else " ▼"
            texts.append(text)
        columns.append(texts)
    names = [f"`{label}`" for label in labels]
    return table(["", *map(_title, cells)], list(zip(names, *columns, strict=True)))


def differences(findings: Findings, cell: Cell, runs: Sequence[RunRecord]) -> str:
    """pass@1 less rloo's in one cell, and what it took."""
    chosen = grouped(chosen_runs(runs), lambda run: run["estimator"])
    target = fmean(run["pass1"] for run in chosen[REFERENCE])
    rows = []
    for label in CONTENDERS:
        gap = row_of(findings.differences, cell, label)
        numbers = ["", "", ""]
        if gap is not None:
            numbers = [f"{100 * value:+.1f}" for value in (gap.value, gap.low, gap.high)]
        label_runs = chosen[label]
        updates = fmean(run["updates"] or run["steps"] for run in label_runs)
        equal = fmean(run["dead"] for run in label_runs)
        share = share_to(target, label_runs)
        rows.append([f"`{label}`", *numbers, share, f"{equal:.0%}", f"{updates:.0f}"])
    header = ["", "points over `rloo`", "from", "to", "responses", "equal groups", "updates"]
    return table(header, rows)


def choices(runs_by_cell: dict[Cell, list[RunRecord]]) -> str:
    """What `informative` adds to the same estimators with uniform prompts, paired by seed."""
    rows = []
    for cell, runs in runs_by_cell.items():
        finals = {(run["estimator"], run["seed"]): run["pass1"] for run in chosen_runs(runs)}
        seeds = sorted({run["seed"] for run in runs})
        texts = []
        for estimator in ("js_memory", "js_plus", "rloo"):
            chosen = [100 * finals[f"{estimator}+informative", seed] for seed in seeds]
            uniform = [100 * finals[estimator, seed] for seed in seeds]
            gap = paired_difference(chosen, uniform)
            texts += [f"{value:+.1f}" for value in (gap.value, gap.low, gap.high)]
        rows.append([_title(cell), *texts])
    header = [""]
    for estimator in ("js_memory", "js_plus", "rloo"):
        header += [f"`{estimator}`", "from", "to"]
    return table(header, rows)


def small_batches() -> str:
    """What the filters come to with 8 groups in a step."""
    chosen = grouped(chosen_runs(read("race_small")), lambda run: run["estimator"])
    texts = []
    for label, runs in chosen.items():
        pass1 = fmean(100 * run["pass1"] for run in runs)
        updates = fmean(run["updates"] for run in runs)
        texts.append(f"`{label}` {pass1:.1f} after {updates:.0f} updates")
    return f"With 8 groups in a step in place of 32, at 2e-4 or 4e-4: {', '.join(texts)}.\n"


def picture(runs_by_cell: dict[Cell, list[RunRecord]]) -> None:
    """Mean pass@1 over sampled responses, a panel a cell; the tables have the intervals."""
    rows = []
    for cell, runs in runs_by_cell.items():
        for label, label_runs in grouped(chosen_runs(runs), lambda run: run["estimator"]).items():
            curves = np.array([curve(run) for run in label_runs])
            budget = cell.prompts * cell.responses * label_runs[0]["steps"]
            for point in range(POINTS):
                values = curves[:, point]
                if label in PICTURED and not np.isnan(values).any():
                    row = {
                        "cell": cell.title,
                        "estimator": label,
                        "responses": (point + 1) * budget / POINTS,
                        "value": 100 * values.mean(),
                    }
                    rows.append(row)
    panels = {cell.title: Panel(cell.title, "held-out pass@1, percent") for cell in runs_by_cell}
    axis = Axis("responses", "sampled responses, those that were thrown away too")
    drawings = plot.draw(rows, panels, axis, panel="cell", looks=style.series_looks(PICTURED))
    style.save_both(figures.picture(drawings), DOCS / "images/selection.png")


def main() -> None:
    if sys.argv[1:]:
        pack(Path(sys.argv[1]))
    by_cell = {cell: whole_seeds(runs) for cell, runs in grouped(read("race"), cell_of).items()}
    by_cell = {cell: runs for cell, runs in by_cell.items() if runs}
    findings = analyse([run for runs in by_cell.values() for run in runs], REFERENCE)
    main_cell = next(iter(by_cell))
    labels = dict.fromkeys(CONTENDERS)
    for runs in by_cell.values():
        labels |= dict.fromkeys(run["estimator"] for run in runs)
    counts = [str(len({run["seed"] for run in runs})) for runs in by_cell.values()]
    text = "\n".join(
        [
            results(findings, list(by_cell), list(labels)),
            f"Paired seeds of the columns: {', '.join(counts)}. The first, in points and %:\n",
            differences(findings, main_cell, by_cell[main_cell]),
            "What `informative` adds to the same estimator with uniform prompts, in points:\n",
            choices(by_cell),
            small_batches(),
        ]
    )
    print(text)
    page = DOCS / "selection.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    picture({cell: runs for cell, runs in by_cell.items() if cell.task != UNLEARNT})


if __name__ == "__main__":
    main()
