"""How much closer to the value function than RLOO's are the baselines of `js` and `js_plus`?

The mean squared distance of a baseline to the prompts' values, below RLOO's in percent, over 16
distributions of prompts and over adversarial ones. Beside them: `js_plus` of version 0.2, and the
best constant coefficient of each distribution, which no data tell.

    python benchmarks/js_plus_grid.py       # 2,500 cells
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from markdown_table import print_table
from torch import Tensor
from value_distributions import ADVERSARIES, DISTRIBUTIONS, SILENT, Prompts

from openrlhf_js.common.console import progress
from openrlhf_js.estimators import Batch
from openrlhf_js.estimators.baselines.shrinkage import corrected_shrinkage, paper_shrinkage
from openrlhf_js.estimators.group_stats import ratio
from openrlhf_js.estimators.record import Shrinkage

PROMPTS, RESPONSES = (4, 8, 16, 32, 64, 128, 512), (2, 4, 8, 16)
SHOWN = (16, 64)  # prompts of the tables by distribution
PRECISE = 10  # so many times more batches for the worst cells


def earlier_shrinkage(batch: Batch) -> Shrinkage:
    """js_plus of version 0.2: a coefficient of the other prompts alone, and another guard."""
    statistics = batch.statistics
    others = statistics.other_prompts
    v = statistics.within_variance
    sigma2 = statistics.other_reward_variance
    dispersion = statistics.between_variance * others / (others - 1).clamp(min=1)
    s2 = (dispersion - v).clamp(min=0) + sigma2 * 1.2 / (1.2 + (others - 1).sqrt())
    v2 = sigma2 / (statistics.valid_responses - 1)
    coefficient = ratio(v2, v2 + s2 * (1 + 1 / others) + v / others)
    return Shrinkage(coefficient[:, None], statistics.loo_batch_mean)


RULES: dict[str, Callable[[Batch], Shrinkage]] = {
    "js": paper_shrinkage,
    "0.2": earlier_shrinkage,
    "js_plus": corrected_shrinkage,
}


class GridCell(NamedTuple):
    """Percent that each rule's error is below RLOO's."""

    title: str
    n: int
    m: int
    savings: dict[str, float]
    errors: dict[str, float]
    """Standard errors."""


def measure(prompts: Prompts, n: int, m: int, size: int, seed: int = 0) -> GridCell:
    """A cell, from batches that have about so many prompts in all."""
    generator = np.random.default_rng([seed, n, m])
    rounds = size // n
    values = prompts.values(generator, (rounds, n))
    rewards = prompts.rewards(generator, values, m)
    squares = torch.vmap(squared_errors)(torch.from_numpy(rewards), torch.from_numpy(values))
    rloo, bloo, *rules = squares.T.numpy()
    savings, errors = {}, {}
    for name, square in zip(RULES, rules, strict=True):
        share = square.sum() / rloo.sum()
        savings[name] = 100 * (1 - share)
        errors[name] = 100 * (square - share * rloo).std() / rloo.mean() / rounds**0.5
    savings["best"] = 100 * rloo.sum() / (rloo + bloo).sum()
    return GridCell(prompts.title, n, m, savings, errors)


def squared_errors(rewards: Tensor, values: Tensor) -> Tensor:
    """(2 + rules,) of one batch: mean squared distances to the values of RLOO, BLOO and RULES."""
    batch = Batch(rewards=rewards, mask=torch.ones_like(rewards, dtype=torch.bool))
    statistics = batch.statistics
    baselines = [statistics.loo_prompt_mean, statistics.loo_batch_mean[:, None]]
    baselines += [shrink(batch).baseline(batch) for shrink in RULES.values()]
    return torch.stack([(b - values[:, None]).square().mean() for b in baselines])


def measure_all(distributions: Sequence[Prompts], size: int, title: str) -> list[GridCell]:
    cells = []
    with progress(title, len(distributions), "distributions") as bar:
        for prompts in distributions:
            cells += [measure(prompts, n, m, size) for m in RESPONSES for n in PROMPTS]
            bar.advance()
    return cells


def print_means(cells: Sequence[GridCell]) -> None:
    """The mean over all distributions, for each number of prompts and responses."""
    rows = []
    for m, name in product(RESPONSES, (*RULES, "best")):
        title = {"0.2": "`js_plus` of 0.2", "best": "best constant"}.get(name, f"`{name}`")
        row: list[object] = [f"m = {m}, {title}"]
        for n in PROMPTS:
            row.append(f"{_mean(cells, n, m, name):.1f}")
        rows.append(row)
    print_table(["mean of 16 distributions", *(f"n = {n}" for n in PROMPTS)], rows)
    short = {}
    for n, m in product(PROMPTS, RESPONSES):
        better = max(_mean(cells, n, m, "js"), _mean(cells, n, m, "0.2"))
        short[n, m] = better - _mean(cells, n, m, "js_plus")
    missed = [f"{gap:.1f} (n = {n}, m = {m})" for (n, m), gap in short.items() if gap > 0]
    print(
        f"\n{len(short) - len(missed)} of {len(short)} means at least the better of `js` and 0.2; "
        f"short: {', '.join(missed) or 'none'}.\n"
    )


def _mean(cells: Sequence[GridCell], n: int, m: int, name: str) -> float:
    return float(np.mean([c.savings[name] for c in cells if (c.n, c.m) == (n, m)]))


def print_distributions(cells: Sequence[GridCell]) -> None:
    """js, js_plus of 0.2, js_plus and the best constant for a few numbers of prompts."""
    by_place = {(c.title, c.n, c.m): c.savings for c in cells}
    for n in SHOWN:
        rows = []
        for title in dict.fromkeys(c.title for c in cells):
            row: list[object] = [title]
            for m in RESPONSES:
                savings = by_place[title, n, m]
                js, earlier, plus, best = (f"{savings[name]:.0f}" for name in (*RULES, "best"))
                row.append(f"{js} / {earlier} / **{plus}** ({best})")
            rows.append(row)
        print_table([f"n = {n}: values", *(f"m = {m}" for m in RESPONSES)], rows)
        print()


def print_worst(
    title: str, distributions: Sequence[Prompts], cells: Sequence[GridCell], size: int
) -> None:
    """Where each rule loses most from n = 8 on, measured again."""
    asked = [c for c in cells if c.n >= 8]
    by_title = {prompts.title: prompts for prompts in distributions}
    print(f"\n**{title}**, {len(asked)} cells with n >= 8:\n")
    for name in RULES:
        below = sum(c.savings[name] < -2 for c in asked)
        worst = sorted(asked, key=lambda c: c.savings[name])[:3]
        again = [measure(by_title[c.title], c.n, c.m, size * PRECISE, seed=1) for c in worst]
        again.sort(key=lambda c: c.savings[name])
        words = []
        for c in again:
            figure = f"{c.savings[name]:.1f} ± {1.96 * c.errors[name]:.1f}"
            words.append(f"{figure} ({c.title}; n = {c.n}, m = {c.m})")
        print(f"- {name}: more than 2 % above RLOO's error in {below}; worst {', '.join(words)}")


def main() -> None:
    torch.set_num_threads(1)
    usual = measure_all(DISTRIBUTIONS, 40_000, "distributions")
    print_means(usual)
    print_distributions(usual)
    print_worst("The 16 distributions", DISTRIBUTIONS, usual, 40_000)
    hostile = measure_all(ADVERSARIES, 10_000, "adversaries")
    print_worst("Adversaries", ADVERSARIES, hostile, 10_000)
    silent = measure_all(SILENT, 20_000, "values of 0")
    print_worst("Values of exactly 0, and a rare kind", SILENT, silent, 20_000)


if __name__ == "__main__":
    main()
