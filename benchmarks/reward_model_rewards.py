"""How much closer to the value of a prompt than RLOO's are other baselines on real-valued rewards?

Rewards as a reward model gives them, with known values: reward = value of the prompt + its standard
deviation x noise. Values and noise are Gaussian, have heavy tails (Student's t with 3 degrees of
freedom) or are skewed (a centred exponential), all with variance 1; the values are then scaled to
the variance s2. The standard deviation of the noise is the same for all prompts, or log-normal with
a coefficient of variation of about 1 and mean square 1.

A cell is the reduction of the mean squared error against RLOO on the same batches in percent, with
its 95 % interval over batches, and the share of batches in which the error is smaller. `best` is
js_fixed with the constant coefficient that has the least error on average, which no data can tell.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
import torch

from openrlhf_js.estimators import baseline
from openrlhf_js.stats import Estimate, ratio_of_means

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

SHAPES: dict[str, Draw] = {
    "Gaussian": lambda g, shape: g.standard_normal(shape),
    "Student t(3)": lambda g, shape: g.standard_t(3, shape) / 3**0.5,
    "skewed": lambda g, shape: g.standard_exponential(shape) - 1,
}
SPREADS: dict[str, Draw] = {
    "the same": lambda g, shape: np.ones(shape),
    "by prompt": lambda g, shape: np.exp(0.8 * g.standard_normal(shape) - 0.64),
}
VALUE_VARIANCES = (0.25, 1.0, 4.0)
RESPONSES = (2, 4, 8)
COLUMNS = ("bloo", "js", "js_plus", "best")


class Kind(NamedTuple):
    """A kind of rewards: the shape of values and noise, and how the noise differs by prompt."""

    shape: str
    spread: str
    s2: float

    def batch(self, g: np.random.Generator, n: int, m: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Values (n, 1) and rewards (n, m)."""
        draw = SHAPES[self.shape]
        values = self.s2**0.5 * draw(g, (n, 1))
        rewards = values + SPREADS[self.spread](g, (n, 1)) * draw(g, (n, m))
        return torch.from_numpy(values), torch.from_numpy(rewards)

    def best(self, n: int, m: int) -> float:
        """The coefficient with the least mean error: v2 / (v2 + error of the batch mean)."""
        v2, p = 1 / (m - 1), n - 1
        return v2 / (v2 + self.s2 * (1 + 1 / p) + 1 / m / p)


def errors(kind: Kind, n: int, m: int, rounds: int, seed: int) -> dict[str, np.ndarray]:
    """Mean squared distance to the values of each batch, (rounds,), by baseline."""
    g = np.random.default_rng([seed, n, m])
    found: dict[str, list[float]] = {name: [] for name in ("rloo", *COLUMNS)}
    for _ in range(rounds):
        values, rewards = kind.batch(g, n, m)
        for name, batches in found.items():
            estimator, weight = ("js_fixed", kind.best(n, m)) if name == "best" else (name, None)
            b = baseline(estimator, rewards, shrinkage=weight)
            batches.append((b - values).square().mean().item())
    return {name: np.array(batches) for name, batches in found.items()}


def reduction(of: np.ndarray, rloo: np.ndarray) -> Estimate:
    """In percent of RLOO's error; negative where it is larger."""
    share = ratio_of_means(of, rloo)
    return Estimate(*(100 * (1 - x) for x in (share.value, share.high, share.low)))


def rows(n: int, rounds: int, seed: int) -> Iterator[tuple[Kind, int, dict[str, str]]]:
    """One row for each kind of rewards and number of responses."""
    for kind in map(Kind._make, product(SHAPES, SPREADS, VALUE_VARIANCES)):
        print(f"{kind.shape}, {kind.spread}, s2 = {kind.s2:g}", file=sys.stderr, flush=True)
        for m in RESPONSES:
            found = errors(kind, n, m, rounds, seed)
            cells = {}
            for name in COLUMNS:
                less = reduction(found[name], found["rloo"])
                wins = np.mean(found[name] < found["rloo"])
                cells[name] = f"{less.value:.1f} ± {less.half_width:.1f} ({100 * wins:.0f} %)"
            yield kind, m, cells


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--prompts", type=int, default=64, help="n of a batch (default: 64)")
    parser.add_argument("--rounds", type=int, default=500, help="batches per cell (default: 500)")
    arguments = parser.parse_args()
    if arguments.prompts < 2 or arguments.rounds < 2:
        parser.error("--prompts and --rounds must be 2 or more")
    torch.set_num_threads(1)
    print(f"n = {arguments.prompts} prompts, {arguments.rounds} batches, seed {arguments.seed}\n")
    print("| values and noise | std of the noise | s2 | m |", " | ".join(COLUMNS), "|")
    print("|---|---|---:|---:" + "|---:" * len(COLUMNS) + "|")
    for kind, m, cells in rows(arguments.prompts, arguments.rounds, arguments.seed):
        place = f"{kind.shape} | {kind.spread} | {kind.s2:g} | {m}"
        print(f"| {place} |", " | ".join(cells.values()), "|", flush=True)


if __name__ == "__main__":
    main()
