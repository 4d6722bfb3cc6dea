"""Claim: on real-valued rewards `js` and `js_grad` are closer to a prompt's value than RLOO.

    python research/benchmarks/reward_model_rewards.py          # a minute and a half

Rewards are value + standard deviation x noise. Values and noise are both Gaussian, heavy-tailed
(Student's t with 3 degrees of freedom) or skewed (exponential), of variance 1; values are then
scaled to s2. A cell is the reduction of the error against RLOO in percent with its 95 % interval
over batches, and the share of batches with a smaller error. `best` is the best constant
coefficient, which cannot be known from data.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product

import numpy as np
import torch

from baseline_research.markdown_table import print_table
from openrlhf_js.estimators import baseline
from paired_eval.stats import ratio_of_means

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

SHAPES: dict[str, Draw] = {  # with mean 0 and variance 1
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
COMPARED = ("bloo", "js", "js_grad", "best")
PROMPTS = 64  # per batch
BATCHES = 500  # per cell
SEED = 0


def best_shrinkage(s2: float, m: int) -> float:
    """v2 / (v2 + error of the batch mean), for values of variance s2 and noise of variance 1."""
    v2 = 1 / (m - 1)
    other_prompts = PROMPTS - 1
    error_of_batch_mean = s2 * (1 + 1 / other_prompts) + 1 / m / other_prompts
    return v2 / (v2 + error_of_batch_mean)


def batch_errors(
    generator: np.random.Generator, shape: str, spread: str, s2: float, m: int
) -> dict[str, float]:
    """Mean squared distance of each baseline to the values, in one batch."""
    values = s2**0.5 * SHAPES[shape](generator, (PROMPTS, 1))
    deviations = SPREADS[spread](generator, (PROMPTS, 1))
    noise = deviations * SHAPES[shape](generator, (PROMPTS, m))
    rewards = torch.from_numpy(values + noise)
    baselines = {
        "rloo": baseline("rloo", rewards),
        "bloo": baseline("bloo", rewards),
        "js": baseline("js", rewards),
        "js_grad": baseline("js_grad", rewards),
        "best": baseline("js_fixed", rewards, shrinkage=best_shrinkage(s2, m)),
    }
    return {
        name: (values_guessed - torch.from_numpy(values)).square().mean().item()
        for name, values_guessed in baselines.items()
    }


def row(shape: str, spread: str, s2: float, m: int) -> list[object]:
    """A row of the table: its setting, and a cell for each compared baseline."""
    generator = np.random.default_rng([SEED, PROMPTS, m])
    batches = [batch_errors(generator, shape, spread, s2, m) for _ in range(BATCHES)]
    errors = {name: np.array([batch[name] for batch in batches]) for name in batches[0]}
    cells: list[object] = [shape, spread, f"{s2:g}", m]
    for name in COMPARED:
        ratio = ratio_of_means(errors[name], errors["rloo"])
        reduction_percent = 100 * (1 - ratio.value)
        half_width_percent = 50 * (ratio.high - ratio.low)
        smaller_percent = 100 * (errors[name] < errors["rloo"]).mean()
        cells.append(
            f"{reduction_percent:.1f} ± {half_width_percent:.1f} ({smaller_percent:.0f} %)"
        )
    return cells


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    torch.set_num_threads(1)
    print(f"n = {PROMPTS} prompts, {BATCHES} batches, seed {SEED}\n")
    cells = product(SHAPES, SPREADS, VALUE_VARIANCES, RESPONSES)
    print_table(
        columns=["values and noise", "std of the noise", "s2", "m", *COMPARED],
        rows=(row(shape, spread, s2, m) for shape, spread, s2, m in cells),
    )


if __name__ == "__main__":
    main()
