"""Every baseline side by side: its error beside RLOO's, and what a step costs.

    .venv/bin/python research/benchmarks/baselines.py  # the tables of docs/baselines.md, 2 minutes

Error: the mean of (b - value)^2 over that of RLOO's baseline, on the same rewards, in percent. 256
prompts with binary rewards keep their values and repeat in a new order, 64 a step. The first pass
over them is learnt from but not counted, so that memories have seen each prompt once. The policy
does not change: this is the best case for a memory, and says nothing about training.

Time: processor time of a step of 1,024 x 8 rewards on one thread: recall, estimate and learn.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import numpy as np
import torch

from baseline_research.markdown_table import print_table
from openrlhf_js.estimators import ESTIMATORS, LiveEstimator

PROMPTS, BATCH = 256, 64
VALUES = {
    "alike": lambda generator: generator.beta(20, 20, PROMPTS),
    "natural": lambda generator: generator.beta(0.5, 0.5, PROMPTS),
    "mixed": lambda generator: generator.choice([0.02, 0.5, 0.98], PROMPTS),
}
RESPONSES = (2, 8)
REFERENCE = "rloo"
NAMES = [name for name, record in ESTIMATORS.items() if not record.needs_shrinkage]


def squared_errors(kind: str, responses: int, seed: int) -> dict[str, float]:
    """Mean squared errors of all estimators over the second pass of one stream."""
    generator = np.random.default_rng([seed, responses])
    values = torch.from_numpy(VALUES[kind](generator))
    live = {name: LiveEstimator(name) for name in NAMES}
    errors: dict[str, list[float]] = {name: [] for name in NAMES}
    for visit in range(2):
        order = torch.from_numpy(generator.permutation(PROMPTS))
        for number, keys in enumerate(order.split(BATCH)):
            value = values[keys, None]
            draws = torch.from_numpy(generator.random((BATCH, responses + 1)))
            rewards = (draws < value).double()
            for name, estimator in live.items():
                batch = estimator.batch(
                    rewards[:, :responses],
                    greedy_rewards=rewards[:, responses],
                    lengths=torch.ones(BATCH, responses),
                    keys=keys,
                    step=visit * (PROMPTS // BATCH) + number + 1,
                )
                if visit:
                    error = estimator.estimate(batch).baseline - value
                    errors[name].append(float(error.square().mean()))
                estimator.learn(batch)
    return {name: float(np.mean(found)) for name, found in errors.items()}


def error_rows(streams: int) -> dict[str, list[str]]:
    """Each estimator's errors in percent of RLOO's, with standard errors over streams."""
    rows: dict[str, list[str]] = {name: [] for name in NAMES}
    for responses in RESPONSES:
        for kind in VALUES:
            measured = [squared_errors(kind, responses, seed) for seed in range(streams)]
            reference = np.array([errors[REFERENCE] for errors in measured])
            for name in NAMES:
                ratios = np.array([errors[name] for errors in measured]) / reference.mean() * 100
                error = ratios.std(ddof=1) / streams**0.5
                rows[name].append(f"{ratios.mean():.0f} ± {error:.0f}")
    return rows


def milliseconds(name: str, repeats: int) -> float:
    """Median time of a step of 1,024 x 8 rewards."""
    generator = torch.Generator().manual_seed(0)
    rewards = torch.randint(0, 2, (1024, 8), generator=generator).double()
    lengths = torch.randint(1, 2000, (1024, 8), generator=generator)
    keys = torch.randint(2**62, (1024,), generator=generator)
    estimator = LiveEstimator(name)
    seconds = []
    for step in range(1, repeats + 1):
        start = time.process_time()
        batch = estimator.batch(
            rewards, lengths=lengths, greedy_rewards=rewards[:, 0], keys=keys, step=step
        )
        estimator.estimate(batch)
        estimator.learn(batch)
        seconds.append(time.process_time() - start)
    return 1000 * median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=30, help="independent streams of prompts")
    parser.add_argument("--repeats", type=int, default=30, help="timed steps")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    rows = error_rows(settings.streams)
    header = ["baseline", *(f"{kind}, m = {m}" for m in RESPONSES for kind in VALUES)]
    print_table(header, ([f"`{name}`", *cells] for name, cells in rows.items()))
    print()
    times = [[f"`{name}`", f"{milliseconds(name, settings.repeats):.1f}"] for name in NAMES]
    print_table(["baseline", "ms, 1,024 x 8"], times)


if __name__ == "__main__":
    main()
