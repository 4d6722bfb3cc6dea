"""What docs/training.md says of the study baselines.yaml: prints the tables, draws the picture."""

import json
import lzma
from pathlib import Path

import pandas as pd

from openrlhf_js.report import style
from openrlhf_js.study import analysis, page

HERE = Path(__file__).parent
NAMES = ["rloo", "reinforce++", "grpo", "remax", "bloo", "js", "js_plus"]
SHAPE = ["prompts", "responses"]


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
found = analysis.analyse(runs, "rloo")
tests = found.differences.set_index(["cell", "estimator", "quantity"])
signs = tests.value.where(tests.p_holm < 0.05, 0.0).to_dict()


def mark(row: pd.Series) -> str:
    """Whether it differs from rloo after Holm's correction."""
    sign = signs.get((row.cell, row.estimator, row.quantity), 0.0)
    return "▲" * (sign > 0) + "▼" * (sign < 0)


for each in (found.means, found.regret):
    each["shape"] = [f"{n} x {m}" for n, m in each[SHAPE].to_numpy()]
finals = tests.query("quantity == 'pass1'")
print(f"{len(runs)} runs, {len(finals)} comparisons, {(finals.p_holm < 0.05).sum()} significant")

best = found.means[found.means.best & (found.means.quantity == "pass1")].copy()
print(f"\nSeeds\n\n{best.groupby('shape', sort=False).seeds.agg(['min', 'max'])}")
top = best.value == best.groupby("cell").value.transform("max")
texts = (100 * best.value).map("{:.1f}".format)
best["text"] = texts.mask(top, "**" + texts + "**") + (" " + best.apply(mark, axis=1)).str.rstrip()
show("pass@1", wide(best, ["shape", "task", "mix"]))

regrets = []
for name, own in page.by_regret(found):
    row = {"estimator": f"`{name}`"}
    for shape, each in own.groupby("shape", sort=False).value:
        row[shape] = f"{each.mean():.1f}, {each.max():.1f}"
    row["worst in"] = own.cell[own.value.idxmax()]
    regrets.append(row | {"best in": f"{(own.value == 0).sum()} of {len(own)}"})
columns = ["estimator", *best["shape"].unique(), "worst in", "best in"]
show("Regret: mean, worst", pd.DataFrame(regrets)[columns].fillna(""))

average = tests.reset_index().query("quantity == 'any_rate'").copy()
average["shape"] = [f"{n} x {m}" for n, m in average[SHAPE].to_numpy()]
average["text"] = average.apply(mark, axis=1)
by = average.groupby(["shape", "mix", "estimator"], sort=False, as_index=False)
average = by.agg({"value": "mean", "text": "".join})
average["text"] = ((100 * average.value).map("{:+.1f} ".format) + average.text).str.strip()
show("Over the rates, less rloo", wide(average, ["shape", "mix"]))

sort = found.means.query("best and task == 'sort'")
ratios, signals = (sort[sort.quantity == each] for each in ("baseline_error", "gradient_snr"))
why = ratios.merge(signals, on=["shape", "mix", "estimator"])
why["text"] = why.value_x.map("{:.2f}, ".format) + why.value_y.map("{:.2f}".format)
show("Why, on sort: error of the baseline, signal / noise", wide(why, ["shape", "mix"]))
steps = found.means.query("best and quantity == 'steps_to_target'")
steps = steps.pivot_table("value", ["shape", "mix"], "estimator", sort=False)[["rloo", "js_plus"]]
print(f"\nSteps to the target, means over the tasks that have one\n\n{steps.round(1)}")
print("\nDifferences of each quantity to rloo, and how many are significant\n")
for quantity, own in tests.groupby("quantity"):
    print(f"{quantity:18} {len(own):4} {(own.p_holm < 0.05).sum():4}")
for quantity, by in (("spread", ["mix"]), ("dead", ["mix", "responses"])):
    own = sort[sort.quantity == quantity].groupby(by).value.agg(["min", "max"]).round(2)
    print(f"\nSort, {quantity}\n\n{own}")
style.save_png(page.regret_picture(found), HERE.parents[1] / "docs/images/regret.png")
