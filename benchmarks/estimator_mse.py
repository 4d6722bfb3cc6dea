"""How much closer to the value function than RLOO's are the baselines of `js` and `js_plus`?

Prompts are independent draws of a value distribution, so the held-out prompt is independent of the
n - 1 others, which decide the coefficient. Only the others are drawn; the mean over the held-out
prompt is exact:

    E (b - mu)^2 = (1 - lambda)^2 v2 + lambda^2 (s2 + (others' mean - E mu)^2),     RLOO: v2

Each cell of the table is `js -> js_plus (best)`: the reduction of that error against RLOO in
percent, and what the best constant coefficient of the distribution, which no data can tell,
would reach. Standard errors stand below the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from markdown_table import print_table
from value_distributions import DISTRIBUTIONS, draw_groups, statistics_of

from openrlhf_js.common.console import progress
from openrlhf_js.common.settings import Field, Settings, parse
from openrlhf_js.estimators import GroupStatistics
from openrlhf_js.estimators.baselines.shrinkage import corrected_coefficient
from openrlhf_js.lab.simulate import Values, best_coefficient

PROMPTS = (4, 8, 16, 32, 64, 512)
RESPONSES = (2, 4, 8, 16)
ROUNDS = 20_000  # batches of a cell; fewer at n > 64
BETAS = DISTRIBUTIONS[:2]


class MseSettings(Settings):
    """Squared errors of baselines where the values are known."""

    figure: Path | None = Field(None, description="write a PNG of part of the table there")


class Cell(NamedTuple):
    """Reductions of the mean squared error against RLOO, in percent, with standard errors."""

    values: Values
    n: int
    m: int
    js: float
    js_error: float
    plus: float
    plus_error: float
    best: float


def measure(values: Values, n: int, m: int) -> Cell:
    generator, rounds = np.random.default_rng([0, n, m]), ROUNDS * min(n, 64) // n
    drawn = draw_groups(values, (rounds, n - 1), m, generator)
    # a zero for the held-out prompt, which its own statistics do not know
    padded = (torch.from_numpy(np.pad(each, ((0, 0), (1, 0)))) for each in drawn)
    every = statistics_of(*padded, torch.full((rounds, 1), float(m), dtype=torch.float64))
    stats = GroupStatistics(*(field[:, :1] if field.ndim == 2 else field for field in every))
    distance = values.s2 + (stats.loo_batch_mean - values.mean).square()
    shrinkage = torch.cat([stats.shrinkage, corrected_coefficient(stats)], 1)
    v2 = values.sigma2 / (m - 1)
    found = 100 * (1 - (1 - shrinkage).square() - shrinkage.square() * distance / v2)
    (js, plus), (js_error, plus_error) = found.mean(0), found.std(0) / rounds**0.5
    figures = map(float, (js, js_error, plus, plus_error, 100 * best_coefficient(values, n, m)))
    return Cell(values, n, m, *figures)


def print_cells(cells: list[Cell]) -> None:
    rows = []
    for place in range(0, len(cells), len(PROMPTS)):
        row = cells[place : place + len(PROMPTS)]
        texts = (f"{c.js:.1f} -> {c.plus:.1f} ({c.best:.1f})" for c in row)
        title = row[0].values.title if row[0].m == RESPONSES[0] else ""
        rows.append([title, row[0].m, *texts])
    print_table(["values", "m", *(f"n = {n}" for n in PROMPTS)], rows)
    js, plus = max(c.js_error for c in cells), max(c.plus_error for c in cells)
    large = max(c.plus_error for c in cells if c.n >= 64)
    print(
        f"\nLargest standard error: js {js:.2f}, js_plus {plus:.2f}, from n = 64 on {large:.2f}.\n"
    )


# What is asked; of which cells; by how much a reduction of the error falls short there.
GOALS: dict[str, tuple[Callable[[Cell], bool], Callable[[Cell], float]]] = {
    "n >= 64, m = 2 or 4, Beta(0.5, 0.5) and Beta(2, 2): at least 95 % of the best": (
        lambda c: c.n >= 64 and c.m <= 4 and c.values in BETAS,
        lambda c: 95 - 100 * c.plus / c.best,
    ),
    "n >= 64, m <= 4: never worse than js": (
        lambda c: c.n >= 64 and c.m <= 4,
        lambda c: c.js - c.plus,
    ),
    "n >= 16: never worse than RLOO by more than 1 %": (
        lambda c: c.n >= 16,
        lambda c: -1 - c.plus,
    ),
    "n < 64: at most 2 points worse than the better of js and RLOO": (
        lambda c: c.n < 64,
        lambda c: max(c.js, 0) - 2 - c.plus,
    ),
}


def print_goals(cells: list[Cell]) -> None:
    """Prints for each goal how often it is met, and where it is missed most."""
    for title, (applies, shortfall) in GOALS.items():
        asked = [cell for cell in cells if applies(cell)]
        missed = sorted((c for c in asked if shortfall(c) > 0), key=lambda c: -shortfall(c))
        print(f"- **{title}**: met in {len(asked) - len(missed)} of {len(asked)} cells.")
        for values in dict.fromkeys(cell.values for cell in missed):
            own = [c for c in missed if c.values == values]
            print(
                f"  - {values.title}: missed in {len(own)}, by up to {shortfall(own[0]):.1f} "
                f"(n = {own[0].n}, m = {own[0].m})"
            )


def draw_figure(cells: list[Cell], path: Path) -> None:
    """Draws the reduction over n at m = 4 for three of the distributions."""
    shown = (*BETAS, next(v for v in DISTRIBUTIONS if "0.1 or 0.9" in v.title))
    figure, axes = plt.subplots(1, len(shown), figsize=(10, 3.2), sharey=True)
    for axis, values in zip(axes, shown, strict=True):
        row = [cell for cell in cells if cell.values == values and cell.m == 4]
        axis.plot(PROMPTS, [c.best for c in row], "k:", label="best constant coefficient")
        axis.plot(PROMPTS, [c.plus for c in row], "o-", color="tab:blue", label="js_plus")
        axis.plot(PROMPTS, [c.js for c in row], "s--", color="tab:orange", label="js")
        axis.axhline(0, color="gray", linewidth=0.8)
        axis.set_xscale("log", base=2)
        axis.set_xlabel("prompts n")
        axis.set_title(values.description, fontsize=10)
    axes[0].set_ylabel("error below RLOO's (%), m = 4")
    axes[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    settings = parse(MseSettings, "benchmarks/estimator_mse.py", sys.argv[1:])
    torch.set_num_threads(1)
    cells = []
    with progress("measuring", len(DISTRIBUTIONS), "distributions") as bar:
        for values in DISTRIBUTIONS:
            cells += [measure(values, n, m) for m in RESPONSES for n in PROMPTS]
            bar.advance()
    print_cells(cells)
    print_goals(cells)
    if settings.figure:
        draw_figure(cells, settings.figure)


if __name__ == "__main__":
    main()
