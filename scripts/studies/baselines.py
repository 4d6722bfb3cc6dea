"""What docs/training.md says of baselines.yaml: prints tables, draws pictures, writes all cells."""

import json
import lzma
from pathlib import Path
from statistics import fmean

import pandas as pd

from openrlhf_js.report import figures, forest, style
from openrlhf_js.study import analysis, page
from openrlhf_js.study.values import chosen_runs, measured_values

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
NAMES = ["js_plus", "js", "bloo", "reinforce++", "grpo", "remax", "rloo"]
SHAPE = ["prompts", "responses"]
CELL = ["task", "mix", *SHAPE]
MIXES = {"alike": ["alike"], "as drawn": ["natural"], "mixed": ["mixed"]}
GROUPS = MIXES | {"not mixed": ["alike", "natural"], "all": ["alike", "natural", "mixed"]}
SAFE = 5e-4  # learning rates above it can ruin the start


def show(title: str, rows: pd.DataFrame) -> None:
    """Prints a table in Markdown."""
    heads = [f"`{each}`" if each in NAMES else str(each) for each in rows]
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows.astype(str).to_numpy().tolist()]
    print(f"\n{title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))


def wide(rows: pd.DataFrame, index: list[str]) -> pd.DataFrame:
    """The column `text`, with a column for each estimator; a shape stands in its first row."""
    found = rows.pivot_table("text", index, "estimator", "first", sort=False).fillna("")
    found = found[[name for name in NAMES if name in found]].reset_index()
    return found.assign(shape=found["shape"].mask(found["shape"].duplicated(), ""))


with lzma.open(HERE / "baselines.jsonl.xz", "rt") as file:
    runs = [json.loads(line) for line in file][1:]
runs.sort(key=lambda run: (run["prompts"], run["responses"]))
findings = analysis.analyse(runs, "rloo")
all_means = pd.DataFrame(findings.means)
tests = pd.DataFrame(findings.differences).set_index(["cell", "estimator", "quantity"])
signs = tests.value.where(tests.p_holm < 0.05, 0.0).to_dict()


def mark(row: pd.Series) -> str:
    """Whether it differs from rloo after Holm's correction."""
    sign = signs.get((row.cell, row.estimator, row.quantity), 0.0)
    return "▲" * (sign > 0) + "▼" * (sign < 0)


all_means["shape"] = [f"{n} x {m}" for n, m in all_means[SHAPE].to_numpy()]
finals = tests.query("quantity == 'pass1'")
print(f"{len(runs)} runs, {len(finals)} comparisons, {(finals.p_holm < 0.05).sum()} significant")


def averages(reference: str, highest_rate: float = 1) -> pd.DataFrame:
    """The differences of pass@1 to the reference, averaged over cells, by m and mix."""
    tried = [run for run in runs if run["learning_rate"] <= highest_rate]
    values = measured_values(tried, chosen_runs(tried), reference)
    values = [value for value in values if value.chosen and value.quantity == "pass1"]
    parts = []
    for responses in (2, 4, 8):
        for mix, mixes in GROUPS.items():
            shown = [
                value
                for value in values
                if value.cell.mix in mixes and value.cell.responses == responses
            ]
            comparisons = analysis.Comparisons(shown, reference, by_rate=False)
            part = pd.DataFrame(analysis.averages(comparisons))
            parts.append(part.assign(m=responses, mix=mix))
    rows = pd.concat(parts)
    ends = zip(rows.value, rows.low, rows.high, strict=True)
    rows["text"] = [f"{value:+.1f} ({low:.1f} to {high:.1f})" for value, low, high in ends]
    return rows.assign(shape=rows.m.astype(str))


over_rloo = averages("rloo")
show("pass@1 less rloo's, averaged over cells", wide(over_rloo, ["shape", "mix"]))
show("The same up to the rate 4e-4", wide(averages("rloo", SAFE), ["shape", "mix"]))
for name in ("bloo", "js"):
    show(f"pass@1 less {name}'s", wide(averages(name), ["shape", "mix"]))

pictured = over_rloo[over_rloo["mix"].isin(MIXES)]
forests = []
for m in (2, 4):
    shown = pictured[pictured.m == m]
    rows = [
        forest.ForestRow(row.mix, row.estimator, row.value, row.low, row.high)
        for mix in MIXES
        for name in reversed(NAMES)
        for row in shown.query("mix == @mix and estimator == @name").itertuples()
    ]
    forests.append(
        forest.Forest(
            title=f"{m} responses to a prompt",
            note="js_plus of 0.2; 95 % over cells and seeds",
            xlabel="points of pass@1 over rloo",
            rows=rows,
            looks=style.series_looks(NAMES),
            form="+.1f",
            reference=0,
        )
    )
style.save_both(figures.wide_picture(forests), DOCS / "images/training.png")

best = all_means[all_means.quantity == "pass1"].copy()
print(f"\nSeeds\n\n{best.groupby('shape', sort=False).seeds.agg(['min', 'max'])}")
against = finals.reset_index().drop(columns="quantity")
written = best.merge(against, on=["cell", "estimator"], how="left", suffixes=("", "_less_rloo"))
of_pass1 = ["value", "low", "high"]
of_difference = ["value_less_rloo", "low_less_rloo", "high_less_rloo", "detectable_less_rloo"]
written[of_pass1 + of_difference] *= 100
columns = [*CELL, "estimator", "learning_rate", "seeds", *of_pass1, *of_difference]
written = written[[*columns, "p_less_rloo", "p_holm_less_rloo"]]
written = written.rename(columns={"value": "pass1", "value_less_rloo": "less_rloo"})
written.to_csv(DOCS / "data/training.csv", index=False, float_format="%.4g")

mean_regrets, worst_regrets = [], []
for regret in findings.regret:
    points_by_shape = {}
    for cell, points in regret.points.items():
        points_by_shape.setdefault(f"{cell.prompts} x {cell.responses}", []).append(points)
    name = {"estimator": f"`{regret.estimator}`"}
    means = {shape: f"{fmean(points):.1f}" for shape, points in points_by_shape.items()}
    worst = {shape: f"{max(points):.1f}" for shape, points in points_by_shape.items()}
    mean_regrets.append(name | means | {"all": f"{regret.mean:.1f}"})
    worst_regrets.append(name | worst | {"worst in": regret.worst_cell.title})
shapes = best["shape"].unique()
show("Mean regret", pd.DataFrame(mean_regrets)[["estimator", *shapes, "all"]].fillna(""))
show("Worst regret", pd.DataFrame(worst_regrets)[["estimator", *shapes, "worst in"]].fillna(""))

print("\nRegret up to the rate 4e-4: mean, worst\n")
for regret in analysis.analyse(
    [run for run in runs if run["learning_rate"] <= SAFE], "rloo"
).regret:
    print(f"{regret.estimator:12} {regret.mean:4.1f} {regret.worst:5.1f} {regret.worst_cell.title}")

average = tests.reset_index().query("quantity == 'any_rate'").copy()
average["shape"] = [f"{n} x {m}" for n, m in average[SHAPE].to_numpy()]
average["text"] = average.apply(mark, axis=1)
by = average.groupby(["shape", "mix", "estimator"], sort=False, as_index=False)
average = by.agg({"value": "mean", "text": "".join})
average["text"] = ((100 * average.value).map("{:+.1f} ".format) + average.text).str.strip()
show("Over the rates, less rloo", wide(average, ["shape", "mix"]))

why = all_means
index = ["shape", "mix", "task", "estimator"]
why = why.pivot_table("value", index, "quantity", sort=False)
variance = why.gradient_variance.unstack()
why["variance"] = variance.div(variance.rloo, axis=0).stack(future_stack=True)
means = why.groupby(["shape", "mix", "estimator"], sort=False).mean().reset_index()
for quantity in ("baseline_error", "variance"):
    means["text"] = means[quantity].map("{:.2f}".format).replace("nan", "")
    show(f"Why: {quantity}, as a share of rloo's", wide(means, ["shape", "mix"]))
print(f"\nSignal / noise: {means.gradient_snr.min():.2f} to {means.gradient_snr.max():.2f}")
all_runs = pd.DataFrame(runs)
lost = all_runs.assign(lost=all_runs.pass1 < 0.05, mixed=all_runs.mix == "mixed")
of = lost.groupby(["estimator", "mixed", "learning_rate"]).lost.agg(["sum", "size"])
print(f"\nRuns that end below 5 % of pass@1\n\n{of.query('sum > 0')}")
of = lost.query("lost and not mixed and learning_rate > 5e-4")
print(of.groupby([*SHAPE, "task", "mix", "estimator"]).curve.agg(["size", "first"]))
for end in ("min", "max"):
    tried = all_runs.groupby(CELL).learning_rate.agg(end).rename("tried")
    tried = best.join(tried, on=CELL).tried.map("{:g}".format)
    of = best[best.learning_rate == tried].groupby(["shape", "task", "mix"], sort=False).estimator
    print(f"\nBest at the {end} of the rates tried\n\n{of.agg(', '.join).to_string()}")
steps = why.steps_to_target.unstack()[["rloo", "js_plus"]]
print(f"\nSteps to the target\n\n{steps.groupby(['shape', 'mix'], sort=False).mean().round(1)}")
print("\nSignificantly above or below rloo, of how many cells\n")
tests = tests.reset_index()
tests["above"], tests["below"] = ((tests.p_holm < 0.05) & (s * tests.value > 0) for s in (1, -1))
print(tests.groupby(["quantity", "estimator"])[["above", "below"]].sum().unstack(0).T)
why["m"] = [shape.split()[-1] for shape in why.index.get_level_values("shape")]
for quantity, by in (("spread", ["mix"]), ("dead", ["mix", "m"])):
    print(f"\n{quantity}\n\n{why.groupby(by)[quantity].agg(['min', 'max']).round(2)}")
style.save_both(page.regret_picture(findings), DOCS / "images/regret.png")
