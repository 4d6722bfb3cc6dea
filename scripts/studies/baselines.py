"""What docs/paper_baselines.md says: prints tables, draws pictures, writes all cells."""

from pathlib import Path

import pandas as pd
from grid import averages, forest_of, read, show, wide

from openrlhf_js.report import figures, style
from openrlhf_js.study import analysis, page
from openrlhf_js.study.regret import regrets

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
NAMES = ["js_plus", "js", "bloo", "reinforce++", "grpo", "remax", "rloo"]
SHAPE = ["prompts", "responses"]
CELL = ["task", "mix", *SHAPE]
SAFE = 5e-4  # learning rates above it can ruin the start

runs = read(HERE / "baselines.jsonl.xz")
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

over_rloo = averages(runs, "rloo")
show("pass@1 less rloo's, averaged over cells", wide(over_rloo, ["m", "mix"], NAMES))
safe_runs = [run for run in runs if run["learning_rate"] <= SAFE]
up_to_safe = averages(safe_runs, "rloo")
shown = ["m", "mix", "points", "low", "high"]
for title, rows in (("all rates", over_rloo), ("up to the rate 4e-4", up_to_safe)):
    show(f"js_plus, {title}", rows.query("estimator == 'js_plus'")[shown].round(1))
for name in ("bloo", "js"):
    rows = averages(runs, name).query("estimator == 'js_plus'")
    show(f"js_plus less {name}", rows[shown].round(1))
written = over_rloo.drop(columns="text")
written.to_csv(DOCS / "data/paper_averages.csv", index=False, float_format="%.3g")
note = "js_plus of 0.2; 95 % over cells and seeds"
forests = [forest_of(over_rloo, m, NAMES[:-1], note) for m in (2, 4)]
style.save_both(figures.wide_picture(forests), DOCS / "images/paper_baselines.png")

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
written.to_csv(DOCS / "data/paper_cells.csv", index=False, float_format="%.4g")

by_shape = {}
for shape in best["shape"].unique():
    of_shape = [run for run in runs if f"{run['prompts']} x {run['responses']}" == shape]
    by_shape[shape] = regrets(of_shape)
by_shape["all"] = findings.regret
for title, pick in (("Mean regret", "mean"), ("Worst regret", "worst")):
    columns = {
        shape: {row.estimator: f"{getattr(row, pick):.1f}" for row in rows}
        for shape, rows in by_shape.items()
    }
    show(title, pd.DataFrame(columns).fillna("").rename_axis("estimator").reset_index())
for regret in findings.regret:
    print(f"{regret.estimator:12} {regret.worst:5.1f} {regret.worst_cell.title}")
print("\nRegret up to the rate 4e-4: mean, worst\n")
for regret in regrets(safe_runs):
    print(f"{regret.estimator:12} {regret.mean:4.1f} {regret.worst:5.1f} {regret.worst_cell.title}")

average = tests.reset_index().query("quantity == 'any_rate'").copy()
average["shape"] = [f"{n} x {m}" for n, m in average[SHAPE].to_numpy()]
average["text"] = average.apply(mark, axis=1)
by = average.groupby(["shape", "mix", "estimator"], sort=False, as_index=False)
average = by.agg({"value": "mean", "text": "".join})
average["text"] = ((100 * average.value).map("{:+.1f} ".format) + average.text).str.strip()
show("Over the rates, less rloo", wide(average, ["shape", "mix"], NAMES))

why = all_means
index = ["shape", "mix", "task", "estimator"]
why = why.pivot_table("value", index, "quantity", sort=False)
variance = why.gradient_variance.unstack()
why["variance"] = variance.div(variance.rloo, axis=0).stack(future_stack=True)
means = why.groupby(["shape", "mix", "estimator"], sort=False).mean().reset_index()
for quantity in ("baseline_error", "variance"):
    means["text"] = means[quantity].map("{:.2f}".format).replace("nan", "")
    show(f"Why: {quantity}, as a share of rloo's", wide(means, ["shape", "mix"], NAMES))
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
style.save_both(page.regret_picture(findings), DOCS / "images/paper_regret.png")
