"""How much closer to the value of a prompt than RLOO are other baselines on real-valued rewards?

Rewards are value + standard deviation x noise; both are Gaussian, heavy-tailed (Student's t with 3
degrees of freedom) or skewed (exponential), of variance 1, the values then scaled to s2. A cell is
the reduction of the error against RLOO in percent with its 95 % interval over batches, and the
share of batches where it is smaller. `best` is the best constant coefficient, which no data tell.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from markdown_table import print_table
from value_distributions import LOGNORMAL, NORMAL, SAME, STUDENT

from openrlhf_js.estimators import baseline
from openrlhf_js.lab.simulate import Draw
from openrlhf_js.stats import ratio_of_means

SKEWED: Draw = lambda g, shape: g.standard_exponential(shape) - 1  # noqa: E731

SHAPES: dict[str, Draw] = {"Gaussian": NORMAL, "Student t(3)": STUDENT, "skewed": SKEWED}
SPREADS: dict[str, Draw] = {"the same": SAME, "by prompt": LOGNORMAL}
VALUE_VARIANCES = (0.25, 1.0, 4.0)
RESPONSES = (2, 4, 8)
COLUMNS = ("bloo", "js", "js_plus", "best")
PROMPTS, ROUNDS, SEED = 64, 500, 0  # prompts of a batch, batches of a cell


def batch_errors(
    g: np.random.Generator, shape: str, spread: str, s2: float, m: int
) -> dict[str, float]:
    """Mean squared distance of each baseline to the values, in one batch."""
    values = s2**0.5 * SHAPES[shape](g, (PROMPTS, 1))
    noise = SPREADS[spread](g, (PROMPTS, 1)) * SHAPES[shape](g, (PROMPTS, m))
    v, rewards = torch.from_numpy(values), torch.from_numpy(values + noise)
    v2, p = 1 / (m - 1), PROMPTS - 1
    best = v2 / (v2 + s2 * (1 + 1 / p) + 1 / m / p)  # v2 / (v2 + error of the batch mean)
    errors = {}
    for name in ("rloo", *COLUMNS):
        estimator, shrinkage = ("js_fixed", best) if name == "best" else (name, None)
        b = baseline(estimator, rewards, shrinkage=shrinkage)
        errors[name] = (b - v).square().mean().item()
    return errors


def row(shape: str, spread: str, s2: float, m: int) -> list[object]:
    g = np.random.default_rng([SEED, PROMPTS, m])
    batches = [batch_errors(g, shape, spread, s2, m) for _ in range(ROUNDS)]
    errors = {name: np.array([each[name] for each in batches]) for name in batches[0]}
    cells: list[object] = [shape, spread, f"{s2:g}", m]
    for name in COLUMNS:
        ratio = ratio_of_means(errors[name], errors["rloo"])
        wins = (errors[name] < errors["rloo"]).mean()
        less, half = 100 * (1 - ratio.value), 50 * (ratio.high - ratio.low)
        cells.append(f"{less:.1f} ± {half:.1f} ({100 * wins:.0f} %)")
    return cells


def main() -> None:
    torch.set_num_threads(1)
    print(f"n = {PROMPTS} prompts, {ROUNDS} batches, seed {SEED}\n")
    every = product(SHAPES, SPREADS, VALUE_VARIANCES, RESPONSES)
    columns = ["values and noise", "std of the noise", "s2", "m", *COLUMNS]
    print_table(columns, (row(*setting) for setting in every))


if __name__ == "__main__":
    main()
