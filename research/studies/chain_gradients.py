"""How near gradients are to the true ones on chains of thought, by direction, split and estimator.

python research/studies/chain_gradients.py                # tables and picture of the kept figures
python research/studies/chain_gradients.py OUT [TASK ...]       # measures; resumes

Two pools for each task and mix, of the model before training, or after some steps of it with RLOO
(--after). One has few prompts with many responses: estimators at the same m, beside the best
constant baseline of each prompt. One has many prompts with few responses: batches of 128 responses,
split in every way, judged by the distance to the gradient of all prompts, since another split also
draws other prompts. (128 of 512 are drawn without replacement, which takes a quarter of the noise
of this draw away, 16 of 512 a thirtieth.) The factor that fits best is taken out of every gradient:
Adam ignores its length. Prints tables, and writes OUT/chain_gradients.csv.xz. The kept figures are
of the first pool: three tasks as drawn, before training and after 30 steps, and two in the mix.
"""

import argparse
import csv
import lzma
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from baseline_research.lab.batches import BatchPlan
from baseline_research.lab.gradient import Measured, measure, truths_of
from baseline_research.lab.sampling import sampled
from baseline_research.lab.score_pool import open_score_pool
from baseline_research.lab.settings import LIMIT, GradientSettings
from baseline_research.plot import Axis, Panel, draw
from baseline_research.study.design import InlineStudy, Run
from baseline_research.tiny.tasks import TASKS
from openrlhf_js.estimators import find_estimator
from paired_eval.pages import figures, style

HERE = Path(__file__).parent
IMAGES = HERE.parents[1] / "docs/images"
KEPT = HERE / "chain_gradients.csv.xz"
gradients = runpy.run_path(str(HERE / "gradients.py"))
CHAINS = ("walk_60", "swaps_60", "product_60")
FAMILIES = ("walk", "swaps", "product")
PANEL_WIDTH = 250  # pixels
MIXES = ("natural", "mixed")
ESTIMATORS = ("js", "js_grad", "bloo", "no_baseline", "weighted_rloo", "opo", "ebpo", LIMIT)
SAME_M = (2, 4, 8, 16)
IN_PICTURE = (2, 8)  # responses to a prompt
NORMALIZED = "reduction_normalized_percent"
LENGTHS = Axis("tokens", "tokens of a response, at most", "log2")
BUDGET = 128
SPLITS = (1, 2, 4, 8, 16)  # responses to a prompt
REFERENCE = ("rloo", 8)
BELOW_REFERENCE = "below_reference_split_at_best_length_percent"
SPLIT_PROMPTS = 512
SPLIT_RESPONSES = 32
SPLIT_ESTIMATORS = ("rloo", "js_grad", "no_baseline", "bloo", "js", "weighted_rloo")
SPLIT_BATCHES = 400
STEPS = 10  # batches in a stream, the second half of which judges estimators with memory


def measure_task(
    out: Path, task: str, mix: str, settings: InlineStudy, *, after: int, splits: bool
) -> list[dict[str, Any]]:
    """The rows of one task and mix; with `splits`, also those of the second pool."""
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
    start = gradients["trained"](prompts.parent, run, settings, (after,))[after]
    if not prompts.is_file():
        gradients["write_prompts"](prompts, task, mix, settings, SPLIT_PROMPTS)
    sample = gradients["sample_words"](start, prompts, task)
    rows = gradients["measure"](
        prompts.parent / "same_m", sample, (16,), SAME_M, baselines=ESTIMATORS
    )
    if splits:
        rows += split_rows(start, prompts, prompts.parent / "splits", TASKS[task].max_new_tokens)
    return [{"task": task, "prompts_are": mix, "steps": after, **row} for row in rows]


def split_rows(start: Path, prompts: Path, out: Path, max_new_tokens: int) -> list[dict[str, Any]]:
    """How far each split's distance at the best length is below that of REFERENCE, in percent."""
    settings = GradientSettings(
        out=out,
        model=(str(start),),
        prompts=(prompts,),
        reward=gradients["REWARDS"],
        prompts_count=SPLIT_PROMPTS,
        responses=SPLIT_RESPONSES,
        max_new_tokens=max_new_tokens,
    )
    pool = open_score_pool(settings, sampled(settings))
    signals = np.array([truth.signals.mean() for truth in truths_of(pool)])
    left = {}
    for responses in SPLITS:
        plan = BatchPlan(
            batches=SPLIT_BATCHES,
            prompts=BUDGET // responses,
            responses=(responses,),
            steps=STEPS,
        )
        names = [
            name
            for name in SPLIT_ESTIMATORS
            if not find_estimator(name).lacks(plan.prompts, responses)
        ]
        measured = measure(pool, plan, names, title=f"{plan.prompts} x {responses}")
        for name in names:
            left[name, responses] = left_at_best_length(measured, signals, name)
    return [
        {
            "n": BUDGET // responses,
            "m": responses,
            "estimator": name,
            "quantity": BELOW_REFERENCE,
            "value": 100 * (1 - distance / left[REFERENCE]),
        }
        for (name, responses), distance in left.items()
    ]


def left_at_best_length(measured: Measured, signals: np.ndarray, name: str) -> float:
    """min over c of the mean ||c g - T||^2 over the batches, with T of all prompts.

    `signals` (2,) is ||T||^2 by half. An estimator with memory is judged in the second half of each
    stream, the others in all batches.
    """
    where = 0, measured.names.index(name)
    squared_norms = measured.squared_norms[where]
    signal = signals[measured.draws.halves]
    products = (squared_norms + signal - measured.distances_to_all[where]) / 2
    if find_estimator(name).remembers:
        judged = measured.draws.steps >= STEPS / 2
        squared_norms, products, signal = (
            values[judged] for values in (squared_norms, products, signal)
        )
    factor = products.sum() / squared_norms.sum()
    return float((factor**2 * squared_norms - 2 * factor * products + signal).mean())


def print_tables(rows: Sequence[Mapping[str, Any]]) -> None:
    """At the same m, below rloo there; and by split, below REFERENCE."""
    print_pools(rows)
    print_table(rows, NORMALIZED, ESTIMATORS)
    print_table(rows, "reduction_at_best_length_percent", ESTIMATORS)
    print_table(rows, "reduction_percent", ESTIMATORS)
    if any(row["quantity"] == BELOW_REFERENCE for row in rows):
        print_table(rows, BELOW_REFERENCE, SPLIT_ESTIMATORS)


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
    parser.add_argument("--same_m", action="store_true", help="leave out the comparison of splits")
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
            rows += measure_task(
                arguments.out,
                task,
                mix,
                settings,
                after=arguments.after,
                splits=not arguments.same_m,
            )
            gradients["write"](rows, arguments.out / "chain_gradients.csv.xz")
    print_tables(rows)


if __name__ == "__main__":
    main()
