"""Draws the pictures of docs/results.md from the stored records, and prints its tables.

.venv/bin/python research/studies/pictures.py [FOLDER]      # default docs/images
"""

import lzma
import sys
from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd
from results import IN_WORDS, analysed, averages, comparable
from scipy.stats import gmean

from baseline_research.study.analysis import share_to_reach
from baseline_research.study.values import read_runs
from paired_eval.pages import figures, style
from paired_eval.pages.forest import Forest, ForestRow
from paired_eval.stats import paired_difference

HERE = Path(__file__).parent
GRADIENTS = HERE / "gradients.csv.xz"
IMAGES = HERE.parents[1] / "docs/images"
SHOWN = ["js_grad", "js", "no_baseline", "bloo", "weighted_rloo", "ebpo", "opo"]
BY_RATE = ("smollm2_js_grad", "js_grad_grid", "js_grad_held_out")
CURVES = ("smollm2_js_grad", "js_grad", "js_grad_stack", "js_grad_again")  # these have mean curves
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


def gradients() -> pd.DataFrame:
    """The results of `gradients.py`: one row per setting, estimator, n, m and quantity."""
    with lzma.open(GRADIENTS, "rt") as file:
        rows = pd.read_csv(file)
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
    print("\n| task | right over wrong | m | expected | measured |\n|---|---:|---:|---:|---:|")
    for setting, group in rows[rows.prompts_are == "alike"].groupby("setting", sort=False):
        said = group[group.m.isna()].set_index("quantity").value
        measured = group[(group.estimator == "js_grad") & (group.quantity == REDUCTION)]
        for row in measured[measured.n == 64].itertuples():
            ratio = said["squared_norms_right_over_wrong"]
            number = expected(said["mean_reward"], ratio, row.m)
            print(f"| {setting} | {ratio:.2f} | {row.m:.0f} | {number:.0f} | {row.value:.0f} |")


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
    print(f"| setting | m | `js_grad` | low | high | {' | '.join(f'`{n}`' for n in others)} |")
    print(f"|---|{'---:|' * (len(others) + 4)}")
    for (setting, m), group in rows.groupby(["setting", "m"], sort=False):
        found = {row.estimator: row for row in group.itertuples()}
        ours = found["js_grad"]
        numbers = [ours.value, ours.low, ours.high, *(found[name].value for name in others)]
        print(f"| {setting} | {m:.0f} | {' | '.join(f'{number:.0f}' for number in numbers)} |")


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
    print(f"\n| {' | '.join(columns)} |\n|---|---|{'---:|' * (len(columns) - 2)}")
    for name, title in SETTINGS.items():
        runs = read_runs(HERE / f"{name}.jsonl.xz")
        table = averages(runs)
        for row in table[table.estimator != "rloo"].itertuples():
            of_size = comparable(runs)[row.responses]
            rates = len({run["learning_rate"] for run in of_size})
            seeds = len({run["seed"] for run in of_size})
            setting = f"{title}, {IN_WORDS[row.mix]} | {row.estimator}"
            gain = f"{row.value:+.1f} | {row.low:.1f} | {row.high:.1f}"
            print(f"| {setting} | {row.responses} | {row.cells} | {rates} | {seeds} | {gain} |")


def print_tasks() -> None:
    """Prints what js_grad gained on every task of the grid and on the held-out tasks."""
    columns = ("task", "mix", "responses", "over", "low", "high")
    print(f"\n| {' | '.join(columns)} |\n|---|---|{'---:|' * (len(columns) - 2)}")
    for name in ("js_grad_grid", "js_grad_held_out"):
        by_size = comparable(read_runs(HERE / f"{name}.jsonl.xz"))
        for responses, runs in by_size.items():
            for row in analysed(runs).differences:
                if (row.estimator, row.quantity) == ("js_grad", "pass1"):
                    points = (f"{100 * number:.1f}" for number in (row.value, row.low, row.high))
                    setting = f"{row.task} | {IN_WORDS[row.mix]} | {responses}"
                    print(f"| {setting} | {' | '.join(points)} |")


def print_rates() -> None:
    """js_grad beside rloo at every learning rate, paired by seed; pass@1 in percent."""
    columns = ("task", "mix", "responses", "rate", "seeds", "rloo", "js_grad", "over")
    columns += ("low", "high", "entropy of rloo", "of js_grad")
    print(f"\n| {' | '.join(columns)} |\n|---|---|{'---:|' * (len(columns) - 2)}")
    for name in BY_RATE:
        runs = pd.DataFrame(read_runs(HERE / f"{name}.jsonl.xz"))
        for cell, group in runs.groupby(["task", "mix", "responses", "learning_rate"]):
            by_seed = group.pivot(index="seed", columns="estimator", values=["pass1", "entropy"])
            pairs = by_seed.dropna()
            passed = 100 * pairs.pass1
            gain = paired_difference(passed.js_grad.to_numpy(), passed.rloo.to_numpy()).estimate
            numbers = [passed.rloo.mean(), passed.js_grad.mean(), *gain]
            entropies = [pairs.entropy.rloo.mean(), pairs.entropy.js_grad.mean()]
            texts = [*map(str, cell), str(len(pairs))]
            texts += [f"{number:.1f}" for number in numbers]
            texts += [f"{number:.2f}" for number in entropies]
            print(f"| {' | '.join(texts)} |")


def print_samples() -> None:
    """The share of the samples after which js_grad, and RLOO itself, reach RLOO's final reward.

    At the same learning rate.
    """
    print("\n| setting | responses | rate | seeds | js_grad % | rloo % |")
    print(f"|---|{'---:|' * 5}")
    for name in CURVES:
        title = SETTINGS[name]
        runs = pd.DataFrame(read_runs(HERE / f"{name}.jsonl.xz"))
        cells = ["task", "mix", "responses", "learning_rate"]
        for (task, mix, responses, rate), cell in runs.groupby(cells):
            curves = {
                estimator: {run.seed: run.curve for run in group.itertuples()}
                for estimator, group in cell.groupby("estimator")
            }
            seeds = sorted(set(curves["rloo"]) & set(curves["js_grad"]))
            ours, theirs = (
                np.mean([curves[name][seed] for seed in seeds], 0) for name in ("js_grad", "rloo")
            )
            shares = []
            for curve in (ours, theirs):
                share = share_to_reach(curve, end=theirs)
                shares.append("never" if share is None else f"{100 * share:.0f}")
            setting = f"{title}: {task}, {IN_WORDS[mix]}"
            print(f"| {setting} | {responses} | {rate:g} | {len(seeds)} | {' | '.join(shares)} |")


def print_variances() -> None:
    """How far the gradient's variance over training is below RLOO's, in percent.

    The geometric mean over tasks, learning rates and seeds of the grid.
    """
    names = ("js", "js_grad")
    print("\n| mix | responses | js | js_grad |\n|---|---:|---:|---:|")
    runs = pd.DataFrame(read_runs(HERE / "js_grad_grid.jsonl.xz"))
    for (mix, responses), group in runs.groupby(["mix", "responses"]):
        pairs = group.pivot(
            index=["task", "learning_rate", "seed"],
            columns="estimator",
            values="gradient_variance",
        )
        below = [100 - 100 * gmean(pairs[name] / pairs.rloo, nan_policy="omit") for name in names]
        print(f"| {IN_WORDS[mix]} | {responses} | {below[0]:.0f} | {below[1]:.0f} |")


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
    folder = Path(sys.argv[1]) if sys.argv[1:] else IMAGES
    rows = gradients()
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
