"""How near gradients are to the true ones on chains of thought, by direction, split and estimator.

python research/studies/chain_gradients.py                # tables and picture of the kept figures
python research/studies/chain_gradients.py OUT [TASK ...]       # measures; resumes

Few prompts with many responses, of the model before training, or after some steps of it with RLOO
(--after): estimators at the same m, beside the best constant baseline of each prompt. Prints
tables, and writes OUT/chain_gradients.csv.xz.
"""

import argparse
import csv
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gradients

from baseline_research.lab.settings import LIMIT
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


def print_tables(rows: Sequence[Mapping[str, Any]]) -> None:
    """Percent below rloo at the same m."""
    print_pools(rows)
    print_table(rows, NORMALIZED, ESTIMATORS)
    print_table(rows, "reduction_at_best_length_percent", ESTIMATORS)
    print_table(rows, "reduction_percent", ESTIMATORS)


def print_pools(rows: Sequence[Mapping[str, Any]]) -> None:
    """The mean reward, and rho: squared score lengths of right responses over those of wrong ones,
    of their medians, and of the weights that `js_grad` is given."""
    ratios = ("squared_norms", "squared_norm_medians", "weights")
    names = ("mean_reward", *(f"{name}_right_over_wrong" for name in ratios))
    print(
        "\n| task, prompts | mean reward | rho | of the medians | of the weights |\n"
        "|---|---:|---:|---:|---:|"
    )
    pools: dict[str, dict[str, str]] = {}
    for row in rows:
        if row["quantity"] in names and row["value"] is not None:
            pool = pools.setdefault(title_of(row), {})
            pool[row["quantity"]] = f"{row['value']:.2f}"
    for pool, values in pools.items():
        print(f"| {pool} | {' | '.join(values.get(name, '') for name in names)} |")


def print_table(
    rows: Sequence[Mapping[str, Any]], quantity: str, estimators: tuple[str, ...]
) -> None:
    """One quantity by task, mix and size: a column for each estimator."""
    print(f"\n{quantity}\n\n| task, prompts | n x m | {' | '.join(estimators)} |")
    print(f"|---|---|{'---:|' * len(estimators)}")
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        if row["quantity"] == quantity:
            setting = title_of(row), f"{row['n']} x {row['m']}"
            shown = "" if row["value"] is None else str(round(row["value"]))
            cells.setdefault(setting, {})[row["estimator"]] = shown
    for setting, values in cells.items():
        columns = [values.get(name, "") for name in estimators]
        print(f"| {' | '.join((*setting, *columns))} |")


def title_of(row: Mapping[str, Any]) -> str:
    """The pool of a row."""
    title = f"{row['task']}, {row['prompts_are']}"
    return title if int(row["steps"]) == 0 else f"{title}, after {row['steps']} steps"


def picture_of_lengths(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws `js_grad` by the length of the chain: a panel a family, prompts as drawn."""
    points = []
    panels = {}
    for row in rows:
        family, _, tokens = row["task"].rpartition("_")
        names = ("prompts_are", "steps", "quantity", "estimator")
        shown = ("natural", "0", NORMALIZED, "js_grad")
        if tuple(row[name] for name in names) == shown and int(row["m"]) in IN_PICTURE:
            point = {name: float(row[name]) for name in ("value", "low", "high")}
            line = f"{row['m']} responses"
            points.append({"family": family, "tokens": int(tokens), "line": line, **point})
            panels[family] = Panel(family, "% below RLOO", intervals="bars", reference=0)
    in_order = {family: panels[family] for family in FAMILIES if family in panels}
    drawings = draw(points, in_order, LENGTHS, line="line", panel="family")
    style.save_png(figures.picture(drawings, [PANEL_WIDTH] * len(drawings)), path)


def read_kept() -> list[dict[str, Any]]:
    """The rows of the kept figures."""
    with lzma.open(KEPT, "rt", encoding="utf-8") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    for row in rows:
        row["value"] = float(row["value"]) if row["value"] else None
    return rows


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
        kept = read_kept()
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
    rows = []
    for task in arguments.tasks:
        for mix in arguments.mixes:
            rows += measure_task(arguments.out, task, mix, settings, after=arguments.after)
            gradients.write(rows, arguments.out / "chain_gradients.csv.xz")
    print_tables(rows)


if __name__ == "__main__":
    main()
