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

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from value_distributions import BETAS, DISTRIBUTIONS, draw_groups

from openrlhf_js.estimators.coefficients import corrected_coefficient
from openrlhf_js.estimators.group_stats import GroupStatistics, group_statistics
from openrlhf_js.lab.values import Values

PROMPTS = (4, 8, 16, 32, 64, 512)
RESPONSES = (2, 4, 8, 16)


@dataclass(frozen=True)
class Cell:
    """Reductions of the mean squared error against RLOO, in percent, with standard errors."""

    values: Values
    n: int
    m: int
    js: float
    js_error: float
    plus: float
    plus_error: float
    best: float


def others_statistics(
    values: Values, n: int, m: int, rounds: int, generator: np.random.Generator
) -> GroupStatistics:
    """Return the statistics of one held-out prompt per batch; every field is (rounds,)."""
    mean, variance = draw_groups(values, (rounds, n - 1), m, generator)
    return _statistics(torch.from_numpy(mean), torch.from_numpy(variance), m)


def _statistics(mean: torch.Tensor, variance: torch.Tensor, m: int) -> GroupStatistics:
    rounds, p = mean.shape
    batch_mean = mean.mean(1)
    between = (mean - batch_mean[:, None]).square().mean(1)
    sigma2 = variance.mean(1)
    v = sigma2 / m
    none = torch.zeros(rounds, dtype=mean.dtype)
    return GroupStatistics(
        prompt_mean=none,
        loo_prompt_mean=none,
        loo_batch_mean=batch_mean,
        within_variance=v,
        between_variance=between,
        shrinkage=p / (p + 1) * torch.nan_to_num(v / (v + between)),
        reward_variance=none,
        other_reward_variance=sigma2,
        valid_responses=none + m,
        other_prompts=none + p,
    )


def check_statistics() -> None:
    """Compare the statistics used here with those of the package on one batch."""
    rewards = torch.rand(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    package = group_statistics(rewards)
    here = _statistics(rewards.mean(1)[None, 1:], rewards.var(1)[None, 1:], 4)
    for field in ("loo_batch_mean", "within_variance", "between_variance", "shrinkage"):
        torch.testing.assert_close(getattr(package, field)[:1], getattr(here, field))
    assert torch.equal(package.other_prompts[:1], here.other_prompts)
    torch.testing.assert_close(corrected_coefficient(package)[:1], corrected_coefficient(here))


def measure(values: Values, n: int, m: int, rounds: int, seed: int) -> Cell:
    generator = np.random.default_rng([seed, n, m])
    v2 = values.sigma2 / (m - 1)
    reductions = []
    chunk = max(1, 2_000_000 // n)
    for start in range(0, rounds, chunk):
        stats = others_statistics(values, n, m, min(chunk, rounds - start), generator)
        distance = values.s2 + (stats.loo_batch_mean - values.mean).square()
        weights = torch.stack([stats.shrinkage, corrected_coefficient(stats)])
        reductions.append(1 - (1 - weights).square() - weights.square() * distance / v2)
    found = 100 * torch.cat(reductions, 1)
    (js, plus), (js_error, plus_error) = found.mean(1).tolist(), found.std(1).tolist()
    distance_best = values.s2 * n / (n - 1) + values.sigma2 / m / (n - 1)
    best = 100 * v2 / (v2 + distance_best)
    root = rounds**0.5
    return Cell(values, n, m, js, js_error / root, plus, plus_error / root, best)


def print_table(cells: list[Cell]) -> None:
    by_place = {(cell.values, cell.n, cell.m): cell for cell in cells}
    print("| values | m | " + " | ".join(f"n = {n}" for n in PROMPTS) + " |")
    print("|---|---:" + "|---:" * len(PROMPTS) + "|")
    for values in DISTRIBUTIONS:
        for m in RESPONSES:
            row = [by_place[values, n, m] for n in PROMPTS]
            texts = (f"{c.js:.1f} -> {c.plus:.1f} ({c.best:.1f})" for c in row)
            title = values.title if m == RESPONSES[0] else ""
            print(f"| {title} | {m} | " + " | ".join(texts) + " |")
    js, plus = max(c.js_error for c in cells), max(c.plus_error for c in cells)
    large = max(c.plus_error for c in cells if c.n >= 64)
    print(
        f"\nLargest standard error: js {js:.2f}, js_plus {plus:.2f}, from n = 64 on {large:.2f}.\n"
    )


# What is asked; of which cells; by how much a reduction of the error falls short there.
GOALS: tuple[tuple[str, Callable[[Cell], bool], Callable[[Cell], float]], ...] = (
    (
        "n >= 64, m = 2 or 4, Beta(0.5, 0.5) and Beta(2, 2): at least 95 % of the best",
        lambda c: c.n >= 64 and c.m <= 4 and c.values in BETAS,
        lambda c: 95 - 100 * c.plus / c.best,
    ),
    (
        "n >= 64, m <= 4: never worse than js",
        lambda c: c.n >= 64 and c.m <= 4,
        lambda c: c.js - c.plus,
    ),
    (
        "n >= 16: never worse than RLOO by more than 1 %",
        lambda c: c.n >= 16,
        lambda c: -1 - c.plus,
    ),
    (
        "n < 64: at most 2 points worse than the better of js and RLOO",
        lambda c: c.n < 64,
        lambda c: max(c.js, 0) - 2 - c.plus,
    ),
)


def print_goals(cells: list[Cell]) -> None:
    """Prints for each goal how often it is met, and where it is missed most."""
    for title, applies, shortfall in GOALS:
        asked = [cell for cell in cells if applies(cell)]
        missed = sorted((c for c in asked if shortfall(c) > 0), key=lambda c: -shortfall(c))
        print(f"- **{title}**: met in {len(asked) - len(missed)} of {len(asked)} cells.")
        for values in dict.fromkeys(cell.values for cell in missed):
            own = [c for c in missed if c.values == values]
            worst = own[0]
            print(
                f"  - {values.title}: missed in {len(own)}, by up to {shortfall(worst):.1f} "
                f"(n = {worst.n}, m = {worst.m})"
            )


def draw_figure(cells: list[Cell], path: Path) -> None:
    """Draw the reduction over n at m = 4 for three of the distributions."""
    shown = (BETAS[0], BETAS[1], next(v for v in DISTRIBUTIONS if "0.1 or 0.9" in v.title))
    figure, axes = plt.subplots(1, len(shown), figsize=(10, 3.2), sharey=True)
    for axis, values in zip(axes, shown, strict=True):
        row = [cell for cell in cells if cell.values == values and cell.m == 4]
        prompts = [cell.n for cell in row]
        axis.plot(prompts, [cell.best for cell in row], "k:", label="best constant coefficient")
        axis.plot(prompts, [cell.plus for cell in row], "o-", color="tab:blue", label="js_plus")
        axis.plot(prompts, [cell.js for cell in row], "s--", color="tab:orange", label="js")
        axis.axhline(0, color="gray", linewidth=0.8)
        axis.set_xscale("log", base=2)
        axis.set_xlabel("prompts n")
        axis.set_title(values.title.removeprefix("Bernoulli, "), fontsize=10)
    axes[0].set_ylabel("error below RLOO's (%), m = 4")
    axes[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument(
        "--rounds",
        type=int,
        default=20_000,
        help="batches per cell; fewer at n >= 64 (default: 20000)",
    )
    parser.add_argument("--figure", type=Path, help="write a PNG of part of the table there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    check_statistics()
    cells = []
    for number, values in enumerate(DISTRIBUTIONS, 1):
        print(f"[{number}/{len(DISTRIBUTIONS)}] {values.title}", file=sys.stderr, flush=True)
        for n in PROMPTS:
            rounds = max(2, arguments.rounds * min(n, 64) // n)
            cells += [measure(values, n, m, rounds, arguments.seed) for m in RESPONSES]
    print_table(cells)
    print_goals(cells)
    if arguments.figure is not None:
        draw_figure(cells, arguments.figure)


if __name__ == "__main__":
    main()
