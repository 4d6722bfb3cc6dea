"""Draws the pictures of docs/results.md from the stored records, and prints its tables.

.venv/bin/python research/studies/pictures.py [FOLDER]      # default docs/images
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import altair as alt
import gradients
import pandas as pd
from results import IN_WORDS, analysed, averages, comparable
from scipy.stats import gmean

from baseline_research.markdown_table import print_table
from baseline_research.study.analysis import Findings, analyse
from baseline_research.study.tables import by_estimator
from baseline_research.study.values import RunRecord, grouped, read_runs
from paired_eval.pages import figures, style
from paired_eval.pages.forest import Forest, ForestRow

HERE = Path(__file__).parent
GRADIENTS = HERE / "gradients.csv.xz"
IMAGES = HERE.parents[1] / "docs/images"
SHOWN = ["js_grad", "js", "no_baseline", "bloo", "weighted_rloo", "ebpo", "opo"]
BY_RATE = ("smollm2_js_grad", "js_grad_grid", "js_grad_held_out")
CURVES = ("smollm2_js_grad", "js_grad", "js_grad_stack", "js_grad_again")  # these have mean curves
PAIR = ("rloo", "js_grad")
REDUCTION = "reduction_percent"
IN_DIRECTION = "reduction_at_best_length_percent"
SETTINGS = {  # of the forest plot: a file of records, and the name for its runs
    "smollm2_js_grad": "SmolLM2",
    "smollm2_long": "SmolLM2, 150 steps",
    "smollm2_words": "SmolLM2, word problems",
    "js_grad": "sort, larger model",
    "js_grad_stack": "sort, on the stack",
    "js_grad_grid": "four small tasks",
    "js_grad_held_out": "two held-out short tasks",
    "js_grad_again": "prompts that come again",
    "js_grad_one": "one response, come again",
}


def kept_gradients() -> pd.DataFrame:
    """The kept results of `gradients.py`."""
    rows = gradients.read(GRADIENTS)
    rows["setting"] = [_setting(row) for row in rows.itertuples()]
    return rows


def expected(pass_rate: float, ratio: float, responses: int) -> float:
    """The reduction with the best constant, in percent, if all prompts are alike.

    `ratio` is the mean squared length of right responses' score gradients over that of wrong ones.
    """
    right = pass_rate * ratio
    wrong = 1 - pass_rate
    noise = pass_rate * (1 - pass_rate) / (responses - 1)  # of RLOO's mean
    of_rloo = right * (wrong**2 + noise) + wrong * (pass_rate**2 + noise)
    of_best = right * wrong / (right + wrong)
    return 100 * (1 - of_best / of_rloo)


def print_expected(rows: pd.DataFrame) -> None:
    """The prediction of the two-length model, beside js_grad in batches of 64 prompts."""
    found = []
    for setting, group in rows[rows.prompts_are == "alike"].groupby("setting", sort=False):
        said = group[group.m.isna()].set_index("quantity").value
        measured = group[(group.estimator == "js_grad") & (group.quantity == REDUCTION)]
        for row in measured[measured.n == 64].itertuples():
            ratio = said["squared_norms_right_over_wrong"]
            number = expected(said["mean_reward"], ratio, row.m)
            numbers = f"{ratio:.2f}", f"{row.m:.0f}", f"{number:.0f}", f"{row.value:.0f}"
            found.append((setting, *numbers))
    print()
    print_table(("task", "right over wrong", "m", "expected", "measured"), found)


def _setting(row) -> str:
    if row.task == "stories":
        return "SmolLM2, stories"
    text = f"{row.task}, {IN_WORDS[row.prompts_are]}"
    return f"{text}, step {row.steps}" if row.task == "SmolLM2" else text


def heat_map(rows: pd.DataFrame) -> alt.FacetChart:
    """A square for each setting, estimator and m: percent below RLOO's distance."""
    data = [
        {
            "setting": row.setting,
            "m": int(row.m),
            "estimator": row.estimator,
            "value": row.value,
            "shown": max(-100.0, min(100.0, row.value)),
            "text": f"{row.value:.0f}" if row.value > -100 else "<-99",
        }
        for row in rows.itertuples()
    ]
    x = alt.X("m:O", title=None, axis=alt.Axis(labelAngle=0))
    y = alt.Y(
        "setting:N",
        title=None,
        sort=list(dict.fromkeys(rows.setting)),
        axis=alt.Axis(grid=False, domain=False),
    )
    chart = alt.Chart(alt.InlineData(values=data))
    squares = chart.mark_rect().encode(
        x=x,
        y=y,
        color=alt.Color(
            "shown:Q",
            scale=alt.Scale(domain=[-100, 100], scheme="redblue"),
            legend=None,
        ),
    )
    numbers = chart.mark_text(fontSize=11).encode(
        x=x,
        y=y,
        text="text:N",
        color=alt.condition("abs(datum.shown) > 65", alt.value("white"), alt.value("black")),
    )
    column = alt.Column("estimator:N", title=None, sort=SHOWN)
    return (
        alt.layer(squares, numbers)
        .properties(width=alt.Step(24), height=alt.Step(20))
        .facet(column=column)
        .properties(
            spacing=8,
            title=alt.Title(
                "Squared distance of the gradient, % below RLOO's",
                subtitle="batches of 16 prompts; columns: 2, 4, 8 and 16 responses to each",
            ),
        )
    )


def print_gradients(rows: pd.DataFrame) -> None:
    """The table of js_grad with its intervals, and of the others."""
    others = [name for name in SHOWN if name != "js_grad"]
    columns = ("setting", "m", "`js_grad`", "low", "high", *(f"`{name}`" for name in others))
    shown = []
    for (setting, m), group in rows.groupby(["setting", "m"], sort=False):
        found = {row.estimator: row for row in group.itertuples()}
        ours = found["js_grad"]
        numbers = [ours.value, ours.low, ours.high, *(found[name].value for name in others)]
        shown.append((setting, *(f"{number:.0f}" for number in (m, *numbers))))
    print_table(columns, shown)


def training() -> list[ForestRow]:
    """js_grad and the best other estimator in every setting, in points of pass@1 over RLOO."""
    rows = []
    for name, title in SETTINGS.items():
        table = averages(read_runs(HERE / f"{name}.jsonl.xz"))
        for (responses, mix), group in table.groupby(["responses", "mix"], sort=False):
            heading = f"{title}, {IN_WORDS[mix]}, {responses}"
            ours = group[group.estimator == "js_grad"]
            rivals = group[group.estimator != "js_grad"].sort_values("value", ascending=False)
            for row in [*ours.itertuples(), *rivals.head(1).itertuples()]:
                rows.append(ForestRow(heading, row.estimator, row.value, row.low, row.high))
    return rows


def print_training() -> None:
    """Prints what every estimator gained in every setting."""
    columns = ("setting", "estimator", "responses", "tasks", "rates", "seeds")
    columns += ("over", "low", "high")
    rows = []
    for name, title in SETTINGS.items():
        runs = read_runs(HERE / f"{name}.jsonl.xz")
        table = averages(runs)
        for row in table[table.estimator != "rloo"].itertuples():
            of_size = comparable(runs)[row.responses]
            rates = len({run["learning_rate"] for run in of_size})
            seeds = len({run["seed"] for run in of_size})
            counts = row.responses, row.cells, rates, seeds
            gain = f"{row.value:+.1f}", f"{row.low:.1f}", f"{row.high:.1f}"
            rows.append((f"{title}, {IN_WORDS[row.mix]}", row.estimator, *counts, *gain))
    print()
    print_table(columns, rows, text_columns=2)


def print_tasks() -> None:
    """Prints what js_grad gained on every task of the grid and on the held-out tasks."""
    rows = []
    for name in ("js_grad_grid", "js_grad_held_out"):
        by_size = comparable(read_runs(HERE / f"{name}.jsonl.xz"))
        for responses, runs in by_size.items():
            for row in analysed(runs).differences:
                if (row.estimator, row.quantity) == ("js_grad", "pass1"):
                    points = (f"{100 * number:.1f}" for number in (row.value, row.low, row.high))
                    rows.append((row.task, IN_WORDS[row.mix], responses, *points))
    print()
    print_table(("task", "mix", "responses", "over", "low", "high"), rows, text_columns=2)


def print_rates() -> None:
    """js_grad beside rloo at every learning rate, paired by seed; pass@1 in percent."""
    columns = ("task", "mix", "responses", "rate", "seeds", "rloo", "js_grad", "over")
    columns += ("low", "high", "entropy of rloo", "of js_grad")
    rows = []
    for name in BY_RATE:
        for findings in by_rate(read_runs(HERE / f"{name}.jsonl.xz")):
            cell = findings.cells[0]
            means = by_estimator(findings.means, cell)
            over = by_estimator(findings.differences, cell)["js_grad"]["pass1"]
            passed = [means[estimator]["pass1"].value for estimator in PAIR]
            entropies = [means[estimator]["entropy"].value for estimator in PAIR]
            row = [over.task, over.mix, over.responses, over.learning_rate, over.seeds]
            row += [f"{100 * value:.1f}" for value in (*passed, over.value, over.low, over.high)]
            rows.append([*row, *(f"{value:.2f}" for value in entropies)])
    print()
    print_table(columns, rows, text_columns=2)


def print_samples() -> None:
    """The share of the samples after which js_grad, and RLOO itself, reach RLOO's final reward.

    At the same learning rate.
    """
    rows = []
    for name in CURVES:
        for findings in by_rate(read_runs(HERE / f"{name}.jsonl.xz")):
            first = findings.means[0]
            shares = {found.estimator: found.share for found in findings.samples}
            setting = f"{SETTINGS[name]}: {first.task}, {IN_WORDS[first.mix]}"
            row = [setting, first.responses, first.learning_rate, first.seeds]
            for estimator in reversed(PAIR):
                share = shares[estimator]
                row.append("never" if share is None else f"{100 * share:.0f}")
            rows.append(row)
    print()
    print_table(("setting", "responses", "rate", "seeds", "js_grad %", "rloo %"), rows)


def by_rate(runs: Sequence[RunRecord]) -> list[Findings]:
    """The findings of js_grad against rloo, in each cell at each learning rate."""
    pairs = [run for run in runs if run["estimator"] in PAIR]
    names = ("task", "mix", "responses", "learning_rate")
    groups = grouped(pairs, lambda run: tuple(run[name] for name in names))
    return [analyse(group, PAIR[0]) for _, group in sorted(groups.items())]


def print_variances() -> None:
    """How far the gradient's variance over training is below RLOO's, in percent.

    The geometric mean over tasks, learning rates and seeds of the grid.
    """
    names = ("js", "js_grad")
    rows = []
    runs = pd.DataFrame(read_runs(HERE / "js_grad_grid.jsonl.xz"))
    for (mix, responses), group in runs.groupby(["mix", "responses"]):
        pairs = group.pivot(
            index=["task", "learning_rate", "seed"],
            columns="estimator",
            values="gradient_variance",
        )
        below = [100 - 100 * gmean(pairs[name] / pairs.rloo, nan_policy="omit") for name in names]
        rows.append((IN_WORDS[mix], responses, *(f"{value:.0f}" for value in below)))
    print()
    print_table(("mix", "responses", *names), rows)


def forest(rows: list[ForestRow]) -> alt.ConcatChart:
    plot = Forest(
        title="pass@1 after training, points over RLOO",
        note="js_grad and the best of the others measured there; last number: responses a prompt",
        xlabel="points of pass@1 over RLOO (one response: over the mean of the other prompts)",
        rows=rows,
        series=list(dict.fromkeys(row.name for row in rows)),
        form="+.1f",
        reference=0,
    )
    return figures.picture([plot], widths=[360])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", type=Path, nargs="?", default=IMAGES, help="of the pictures")
    folder = parser.parse_args().images
    rows = kept_gradients()
    of_16 = rows[rows.estimator.isin(SHOWN) & (rows.n == 16)]
    reductions = of_16[of_16.quantity == REDUCTION]
    print_gradients(reductions)
    print("\nat the length that fits best:\n")
    print_gradients(of_16[of_16.quantity == IN_DIRECTION])
    print_expected(rows)
    print_training()
    print_tasks()
    print_samples()
    print_rates()
    print_variances()
    style.save_png(heat_map(reductions), folder / "results_gradients.png")
    style.save_png(forest(training()), folder / "results_training.png")


if __name__ == "__main__":
    main()
