"""What docs/training.md says of the study baselines.yaml: prints the tables, draws the picture."""

import json
import lzma
from pathlib import Path

import pandas as pd

from openrlhf_js.report import style
from openrlhf_js.study import analysis, page

HERE = Path(__file__).parent
NAMES = ["rloo", "reinforce++", "grpo", "remax", "bloo", "js", "js_plus"]
SHAPE, WHERE = ["prompts", "responses"], ["task", "mix"]


def show(title: str, rows: pd.DataFrame) -> None:
    """Prints a table in Markdown."""
    heads = [f"`{each}`" if each in NAMES else str(each) for each in rows]
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows.astype(str).to_numpy().tolist()]
    print(f"\n{title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))


def wide(rows: pd.DataFrame, index: list[str]) -> pd.DataFrame:
    """The column `text`, with a column for each estimator."""
    found = rows.pivot_table("text", index, "estimator", "first", sort=False).fillna("")
    return found[[name for name in NAMES if name in found]].reset_index()


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


finals = tests.query("quantity == 'pass1'")
print(f"{len(runs)} runs, {len(finals)} comparisons, {(finals.p_holm < 0.05).sum()} significant")

best = found.means[found.means.best & (found.means.quantity == "pass1")].copy()
top = best.value == best.groupby("cell").value.transform("max")
texts = (100 * best.value).map("{:.1f}".format)
best["text"] = texts.mask(top, "**" + texts + "**") + (" " + best.apply(mark, axis=1)).str.rstrip()
for shape, own in best.groupby(SHAPE):
    seeds = "-".join(map(str, sorted({own.seeds.min(), own.seeds.max()})))
    show("{} x {}, ".format(*shape) + f"{seeds} seeds", wide(own, WHERE))

regrets = []
for name, own in page.by_regret(found):
    row = {"estimator": f"`{name}`"}
    for (n, m), each in own.groupby(SHAPE).value:
        row[f"{n} x {m}"] = f"{each.mean():.1f}, {each.max():.1f}"
    row["worst in"] = own.cell[own.value.idxmax()]
    regrets.append(row | {"best in": f"{(own.value == 0).sum()} of {len(own)}"})
shapes = ["{} x {}".format(*shape) for shape, _ in best.groupby(SHAPE)]
columns = ["estimator", *shapes, "worst in", "best in"]
show("Regret: mean, worst", pd.DataFrame(regrets)[columns].fillna(""))

average = tests.reset_index().query("quantity == 'any_rate'").copy()
average["text"] = average.apply(mark, axis=1)
average = average.groupby([*SHAPE, "mix", "estimator"], sort=False, as_index=False).agg(
    {"value": "mean", "text": "".join}
)
average["text"] = (100 * average.value).map("{:+.1f}".format) + average.text
average.mix = pd.Categorical(average.mix, ["alike", "natural", "mixed"])
show("Over the rates, less rloo", wide(average.sort_values([*SHAPE, "mix"]), [*SHAPE, "mix"]))

why = found.means[found.means.best & (found.means.task == "sort")].copy()
why = why[why.quantity.isin(["baseline_error", "gradient_snr"])]
why["text"] = why.value.map("{:.2f}".format)
show("Why, on sort", wide(why, [*SHAPE, "mix", "quantity"]))
spread = found.means.query("best and task == 'sort' and quantity == 'spread'")
print(f"\nSpread of values, late\n\n{spread.groupby('mix').value.agg(['min', 'max']).round(2)}")
style.save_png(page.regret_picture(found), HERE.parents[1] / "docs/images/regret.png")
