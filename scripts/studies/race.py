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
from typing import NamedTuple

import numpy as np

from openrlhf_js.report import figures, plot, style
from openrlhf_js.report.plot import Axis, Panel
from openrlhf_js.stats import paired_difference
from openrlhf_js.study.analysis import Findings, StudyRow, analyse
from openrlhf_js.study.design import Cell, cell_of
from openrlhf_js.study.values import RunRecord, chosen_runs, grouped

HERE = Path(__file__).parent
MANY_PROMPTS = "race_1024"
STORES = ("race", MANY_PROMPTS, "race_small")  # the last one has 8 groups in a step
DOCS = HERE.parents[1] / "docs"
BEGIN = "<!-- written by scripts/studies/race.py -->\n"
END = "<!-- end -->\n"
REFERENCE = "rloo"
CONTENDERS = (  # of every cell with several responses to a prompt
    *("js_memory+informative", "js_memory", "js_plus+informative", "js_plus"),
    *("rloo+informative", "rloo+spo", "rloo+greso", "rloo+dynamic", "rloo"),
)
ONE_RESPONSE_CONTENDERS = (
    *("js_memory+informative", "js_memory", "bloo+informative", "bloo"),
    *("spo+spo", "spo+informative", "spo"),
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


def contenders(cell: Cell) -> Sequence[str]:
    """The settings that every seed of a cell must have."""
    return CONTENDERS if cell.responses > 1 else ONE_RESPONSE_CONTENDERS


def whole_seeds(cell: Cell, runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs of a cell on seeds that all its settings have; none where a contender lacks."""
    if not set(contenders(cell)) <= {run["estimator"] for run in runs}:
        return []
    settings = grouped(runs, lambda run: (run["estimator"], run["learning_rate"]))
    seeds = set.intersection(*({run["seed"] for run in group} for group in settings.values()))
    if len(seeds) < LEAST_SEEDS:
        return []
    return [run for run in runs if run["seed"] in seeds]


def cells(store: str) -> dict[Cell, list[RunRecord]]:
    """The runs of a store's cells that have been run."""
    by_cell = {}
    for cell, runs in grouped(read(store), cell_of).items():
        kept = whole_seeds(cell, runs)
        if kept:
            by_cell[cell] = kept
    return by_cell


class Race(NamedTuple):
    """One cell's runs, and what they show together with those of the other cells of a store."""

    title: str
    cell: Cell
    runs: list[RunRecord]
    findings: Findings


def races(store: str) -> list[Race]:
    """The cells of a store with several responses to a prompt."""
    by_cell = {cell: runs for cell, runs in cells(store).items() if cell.responses > 1}
    findings = analyse([run for runs in by_cell.values() for run in runs], REFERENCE)
    tasks = list(dict.fromkeys(cell.task for cell in by_cell))
    store_races = []
    for cell in sorted(by_cell, key=lambda cell: (cell.responses, tasks.index(cell.task))):
        runs = by_cell[cell]
        title = f"{cell.task}, {cell.mix}, m = {cell.responses}"
        if store == MANY_PROMPTS:
            title += ", 1,024 prompts"
        store_races.append(Race(title, cell, runs, findings))
    return store_races


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


def final_row(rows: Sequence[StudyRow], cell: Cell, estimator: str) -> StudyRow | None:
    """The row of pass@1 of an estimator in a cell."""
    for row in rows:
        if (row.cell, row.estimator, row.quantity) == (cell.title, estimator, "pass1"):
            return row
    return None


def results(shown: Sequence[Race]) -> str:
    """pass@1 in percent, a column a race; bold the highest, a mark where it differs from rloo."""
    labels = dict.fromkeys(CONTENDERS)
    for race in shown:
        labels |= dict.fromkeys(run["estimator"] for run in race.runs)
    columns = [_column(race, list(labels)) for race in shown]
    seeds = [str(len({run["seed"] for run in race.runs})) for race in shown]
    names = [f"`{label}`" for label in labels]
    rows = [*zip(names, *columns, strict=True), ["paired seeds", *seeds]]
    return table(["", *(race.title for race in shown)], rows)


def _column(race: Race, labels: Sequence[str]) -> list[str]:
    means = {label: final_row(race.findings.means, race.cell, label) for label in labels}
    highest = max(row.value for row in means.values() if row is not None)
    texts = []
    for label, mean in means.items():
        if mean is None:
            texts.append("")
            continue
        text = f"{100 * mean.value:.1f}"
        if mean.value == highest:
            text = f"**{text}**"
        gap = final_row(race.findings.differences, race.cell, label)
        if gap is not None and gap.p_holm is not None and gap.p_holm < 0.05:
            text += " ▲" if gap.value > 0 else " ▼"
        texts.append(text)
    return texts


def gap(runs: Sequence[RunRecord], label: str, other: str) -> list[str]:
    """Points of pass@1 of a setting over another, and the ends of the interval, paired by seed."""
    if label == other:
        return ["", "", ""]
    finals = {(run["estimator"], run["seed"]): 100 * run["pass1"] for run in chosen_runs(runs)}
    seeds = sorted({run["seed"] for run in runs})
    difference = paired_difference(
        [finals[label, seed] for seed in seeds], [finals[other, seed] for seed in seeds]
    )
    return [f"{end:+.1f}" for end in (difference.value, difference.low, difference.high)]


def differences(runs: Sequence[RunRecord]) -> str:
    """pass@1 in one race less rloo's, and what it took."""
    chosen = grouped(chosen_runs(runs), lambda run: run["estimator"])
    target = fmean(run["pass1"] for run in chosen[REFERENCE])
    rows = []
    for label in CONTENDERS:
        label_runs = chosen[label]
        updates = fmean(run["updates"] or run["steps"] for run in label_runs)
        equal = fmean(run["dead"] for run in label_runs)
        share = share_to(target, label_runs)
        numbers = gap(runs, label, REFERENCE)
        rows.append([f"`{label}`", *numbers, share, f"{equal:.0%}", f"{updates:.0f}"])
    header = ["", "points over `rloo`", "from", "to", "responses", "equal groups", "updates"]
    return table(header, rows)


def one_response(runs: Sequence[RunRecord]) -> str:
    """pass@1 of a race with one response to a prompt, less bloo's and less SPO's."""
    chosen = grouped(chosen_runs(runs), lambda run: run["estimator"])
    rows = []
    for label in ONE_RESPONSE_CONTENDERS:
        pass1 = fmean(100 * run["pass1"] for run in chosen[label])
        numbers = [*gap(runs, label, "bloo"), *gap(runs, label, "spo+spo")]
        rows.append([f"`{label}`", f"{pass1:.1f}", *numbers])
    header = ["", "pass@1"]
    for reference in ("bloo", "spo+spo"):
        header += [f"points over `{reference}`", "from", "to"]
    return table(header, rows)


def choices(shown: Sequence[Race]) -> str:
    """What `informative` adds to the same estimators with uniform prompts."""
    estimators = ("js_memory", "js_plus", "rloo")
    rows = []
    for race in shown:
        row = [race.title]
        for estimator in estimators:
            row += gap(race.runs, f"{estimator}+informative", estimator)
        rows.append(row)
    header = [""]
    for estimator in estimators:
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


def picture(shown: Sequence[Race]) -> None:
    """Mean pass@1 over sampled responses, a panel a cell; the tables have the intervals."""
    rows = []
    for race in shown:
        for label, runs in grouped(chosen_runs(race.runs), lambda run: run["estimator"]).items():
            curves = np.array([curve(run) for run in runs])
            budget = race.cell.prompts * race.cell.responses * runs[0]["steps"]
            for point in range(POINTS):
                values = curves[:, point]
                if label in PICTURED and not np.isnan(values).any():
                    row = {
                        "cell": race.title,
                        "estimator": label,
                        "responses": (point + 1) * budget / POINTS,
                        "value": 100 * values.mean(),
                    }
                    rows.append(row)
    panels = {race.title: Panel(race.title, "held-out pass@1, percent") for race in shown}
    axis = Axis("responses", "sampled responses, those that were thrown away too")
    drawings = plot.draw(rows, panels, axis, panel="cell", looks=style.series_looks(PICTURED))
    style.save_both(figures.picture(drawings), DOCS / "images/selection.png")


def main() -> None:
    if sys.argv[1:]:
        pack(Path(sys.argv[1]))
    few_prompts = races("race")
    two_responses = [race for race in few_prompts if race.cell.responses == 2]
    others = [race for race in few_prompts if race.cell.responses > 2] + races(MANY_PROMPTS)
    sections = [
        results([race for race in two_responses if race.cell.mix == "mixed"]),
        "Prompts as drawn:\n",
        results([race for race in two_responses if race.cell.mix == "natural"]),
        "The first column of the first table, in points and %:\n",
        differences(two_responses[0].runs),
        "What `informative` adds to the same estimator with uniform prompts, in points:\n",
        choices(two_responses + others),
        "More responses to a prompt, and more prompts:\n",
        results(others),
    ]
    for cell, runs in cells("race").items():
        if cell.responses == 1:
            title = f"One response to a prompt, {cell.task}, {cell.mix}"
            sections += [f"{title}:\n", one_response(runs)]
    text = "\n".join([*sections, small_batches()])
    print(text)
    page = DOCS / "selection.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    picture([race for race in two_responses if race.cell.task != UNLEARNT])


if __name__ == "__main__":
    main()
