"""How near gradients are to the true ones on chains of thought, by direction, split and estimator.

python research/studies/chain_gradients.py                # tables and picture of the kept figures
python research/studies/chain_gradients.py OUT [TASK ...]       # measures; resumes

Few prompts with many responses, of the model before training, or after some steps of it with RLOO
(--after): estimators at the same m, beside the best constant baseline of each prompt. Prints
tables, and writes OUT/chain_gradients.csv.xz.
"""

import argparse
from pathlib import Path
from typing import Any

import gradients
import pandas as pd

from baseline_research.lab.settings import LIMIT
from baseline_research.markdown_table import print_table
from baseline_research.plot import Axis, Panel, draw
from baseline_research.study.design import InlineStudy
from baseline_research.study.runs import Run
from paired_eval.pages import figures, style

HERE = Path(__file__).parent
IMAGES = HERE.parents[1] / "docs/images"
KEPT = HERE / "chain_gradients.csv.xz"
CHAINS = ("walk_60", "swaps_60", "product_60")
FAMILIES = ("walk", "swaps", "product")
PANEL_WIDTH = 250  # pixels
MIXES = ("natural", "mixed")
ESTIMATORS = ("js", "js_grad", "bloo", "no_baseline", "weighted_rloo", "opo", "ebpo", LIMIT)
SAME_M = (2, 4, 8, 16)
IN_PICTURE = (2, 8)  # responses to a prompt
NORMALIZED = "reduction_normalized_percent"
LENGTHS = Axis("tokens", "tokens of a response, at most", "log2")
WRITTEN_PROMPTS = 512  # the first of which are sampled


def measure_task(
    out: Path, task: str, mix: str, settings: InlineStudy, *, after: int
) -> list[dict[str, Any]]:
    """The rows of one task and mix."""
    name = f"{task}-{mix}-{after}" if after else f"{task}-{mix}"
    prompts = out / name / "prompts.jsonl"
    run = Run(
        task,
        mix="natural",
        prompts=64,
        responses=2,
        estimator="rloo",
        learning_rate=1e-4,
        seed=0,
    )
    start = gradients.trained(prompts.parent, run, settings, (after,))[after]
    if not prompts.is_file():
        gradients.write_prompts(prompts, task, mix, settings, WRITTEN_PROMPTS)
    sample = gradients.sample_words(start, prompts, task)
    rows = gradients.measure(prompts.parent / "same_m", sample, (16,), SAME_M, baselines=ESTIMATORS)
    return [{"task": task, "prompts_are": mix, "steps": after, **row} for row in rows]


def print_tables(rows: pd.DataFrame) -> None:
    """Percent below rloo at the same m."""
    print_pools(rows)
    for quantity in (NORMALIZED, "reduction_at_best_length_percent", "reduction_percent"):
        print_reductions(rows, quantity)


def print_pools(rows: pd.DataFrame) -> None:
    """The mean reward, and rho: squared score lengths of right responses over those of wrong ones,
    of their medians, and of the weights that `js_grad` is given."""
    ratios = ("squared_norms", "squared_norm_medians", "weights")
    names = ("mean_reward", *(f"{name}_right_over_wrong" for name in ratios))
    found = []
    for pool, own in pools_of(rows[rows.quantity.isin(names)]):
        values = dict(zip(own.quantity, own.value.map("{:.2f}".format), strict=True))
        found.append((pool, *(values.get(name, "") for name in names)))
    print()
    columns = ("task, prompts", "mean reward", "rho", "of the medians", "of the weights")
    print_table(columns, found)


def print_reductions(rows: pd.DataFrame, quantity: str) -> None:
    """One quantity by task, mix and size: a column for each estimator."""
    found = []
    for pool, own in pools_of(rows[rows.quantity == quantity]):
        for (prompts, responses), of_size in own.groupby(["n", "m"]):
            values = dict(zip(of_size.estimator, map(round, of_size.value), strict=True))
            shown = [values.get(name, "") for name in ESTIMATORS]
            found.append((pool, f"{prompts} x {responses}", *shown))
    print(f"\n{quantity}\n")
    print_table(("task, prompts", "n x m", *ESTIMATORS), found, text_columns=2)


def pools_of(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows by pool, with the pool's title."""
    groups = rows.dropna(subset="value").groupby(list(gradients.POOL), sort=False)
    titled = []
    for (task, prompts_are, steps), own in groups:
        title = f"{task}, {prompts_are}"
        titled.append((f"{title}, after {steps} steps" if steps else title, own))
    return titled


def picture_of_lengths(rows: pd.DataFrame, path: Path) -> None:
    """Draws `js_grad` by the length of the chain: a panel a family, prompts as drawn."""
    drawn = rows[(rows.prompts_are == "natural") & (rows.steps == 0) & rows.m.isin(IN_PICTURE)]
    drawn = drawn[(drawn.quantity == NORMALIZED) & (drawn.estimator == "js_grad")]
    points = []
    panels = {}
    for row in drawn.itertuples():
        family, _, tokens = row.task.rpartition("_")
        point = {"value": row.value, "low": row.low, "high": row.high}
        line = f"{row.m} responses"
        points.append({"family": family, "tokens": int(tokens), "line": line, **point})
        panels[family] = Panel(family, "% below RLOO", intervals="bars", reference=0)
    in_order = {family: panels[family] for family in FAMILIES if family in panels}
    drawings = draw(points, in_order, LENGTHS, line="line", panel="family")
    style.save_png(figures.picture(drawings, [PANEL_WIDTH] * len(drawings)), path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?", help="folder of the pools")
    parser.add_argument("tasks", nargs="*", default=CHAINS, metavar="TASK")
    parser.add_argument("--mixes", nargs="+", default=MIXES, help="how prompts are chosen")
    parser.add_argument("--after", type=int, default=0, help="steps of training with RLOO before")
    parser.add_argument("--width", type=int, default=64, help="of the model")
    parser.add_argument("--layers", type=int, default=2, help="of the model")
    parser.add_argument("--images", type=Path, default=IMAGES, help="folder of the picture")
    arguments = parser.parse_args()
    if arguments.out is None:
        kept = gradients.read(KEPT)
        print_tables(kept)
        picture_of_lengths(kept, arguments.images / "results_lengths.png")
        return
    settings = InlineStudy(
        out=arguments.out,
        tasks=list(arguments.tasks),
        mixes=list(arguments.mixes),
        steps=max(60, arguments.after),
        width=arguments.width,
        layers=arguments.layers,
    )
    path = arguments.out / "chain_gradients.csv.xz"
    for task in arguments.tasks:
        for mix in arguments.mixes:
            rows = measure_task(arguments.out, task, mix, settings, after=arguments.after)
            gradients.write(rows, path)
    print_tables(gradients.read(path))


if __name__ == "__main__":
    main()
