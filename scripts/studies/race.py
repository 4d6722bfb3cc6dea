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
ONE_RESPONSE_REFERENCE = "bloo"
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


class Race(NamedTuple):
    """One cell's runs, and what they show together with the runs of like cells."""

    title: str
    cell: Cell
    runs: list[RunRecord]
    findings: Findings


def races(store: str) -> list[Race]:
    """The races of a store that have been run; those of one reference are analysed together."""
    by_cell = {
        cell: whole_seeds(cell, runs) for cell, runs in grouped(read(store), cell_of).items()
    }
    by_cell = {cell: runs for cell, runs in by_cell.items() if runs}
    by_reference = {
        ONE_RESPONSE_REFERENCE: [cell for cell in by_cell if cell.responses == 1],
        REFERENCE: [cell for cell in by_cell if cell.responses > 1],
    }
    run_races = []
    for reference, cells in by_reference.items():
        if not cells:
            continue
        findings = analyse([run for cell in cells for run in by_cell[cell]], reference)
        for cell in cells:
            title = f"{cell.task}, {cell.mix}, m = {cell.responses}"
            if store == MANY_PROMPTS:
                title += ", 1,024 prompts"
            run_races.append(Race(title, cell, by_cell[cell], findings))
    return run_races


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


def differences(race: Race) -> str:
    """pass@1 in one race, what it is above the reference's, and what it took."""
    reference = REFERENCE if race.cell.responses > 1 else ONE_RESPONSE_REFERENCE
    chosen = grouped(chosen_runs(race.runs), lambda run: run["estimator"])
    target = fmean(run["pass1"] for run in chosen[reference])
    rows = []
    for label in contenders(race.cell):
        gap = final_row(race.findings.differences, race.cell, label)
        numbers = ["", "", ""]
        if gap is not None:
            numbers = [f"{100 * value:+.1f}" for value in (gap.value, gap.low, gap.high)]
        label_runs = chosen[label]
        pass1 = fmean(100 * run["pass1"] for run in label_runs)
        updates = fmean(run["updates"] or run["steps"] for run in label_runs)
        equal = fmean(run["dead"] for run in label_runs)
        texts = [f"{pass1:.1f}", *numbers]
        if race.cell.responses > 1:
            texts += [share_to(target, label_runs), f"{equal:.0%}", f"{updates:.0f}"]
        rows.append([f"`{label}`", *texts])
    header = ["", "pass@1", f"points over `{reference}`", "from", "to"]
    if race.cell.responses > 1:
        header += ["responses", "equal groups", "updates"]
    return table(header, rows)


def choices(shown: Sequence[Race]) -> str:
    """What `informative` adds to the same estimators with uniform prompts, paired by seed."""
    rows = []
    for race in shown:
        finals = {(run["estimator"], run["seed"]): run["pass1"] for run in chosen_runs(race.runs)}
        seeds = sorted({run["seed"] for run in race.runs})
        texts = []
        for estimator in ("js_memory", "js_plus", "rloo"):
            chosen = [100 * finals[f"{estimator}+informative", seed] for seed in seeds]
            uniform = [100 * finals[estimator, seed] for seed in seeds]
            gap = paired_difference(chosen, uniform)
            texts += [f"{value:+.1f}" for value in (gap.value, gap.low, gap.high)]
        rows.append([race.title, *texts])
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
    few = races("race")
    two_responses = [race for race in few if race.cell.responses == 2]
    one_response = [race for race in few if race.cell.responses == 1]
    others = [race for race in few if race.cell.responses > 2] + races(MANY_PROMPTS)
    sections = [
        results(two_responses),
        "The first column, in points and %:\n",
        differences(two_responses[0]),
        "What `informative` adds to the same estimator with uniform prompts, in points:\n",
        choices(two_responses + others),
        "More responses to a prompt, and more prompts:\n",
        results(others),
    ]
    for race in one_response:
        sections += [f"One response to a prompt ({race.title}):\n", differences(race)]
    text = "\n".join([*sections, small_batches()])
    print(text)
    page = DOCS / "selection.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    picture([race for race in two_responses if race.cell.task != UNLEARNT])


if __name__ == "__main__":
    main()
