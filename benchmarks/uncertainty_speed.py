"""Time the bootstrap of a style-controlled Bradley-Terry fit against fits made one by one.

A pool of models plays two games a question against one baseline, with four covariates. Three ways
of fitting the same resamples of questions, on one core, all by Newton's method from the fit of all
games, until a step is below 1e-4:

- `bootstrap_fit`: all resamples together, on sums by question and model.
- rows, numpy: one resample after the other, on the rows' design matrix.
- rows, loop: one resample after the other, one row after the other.

The last two are timed on a few resamples, which must come out the same, and extrapolated. Times are
of the processor, summed over threads: run it with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from openrlhf_js.stats.bootstrap import counts
from openrlhf_js.stats.bradley_terry import RIDGE, Bootstrap, bootstrap_fit
from openrlhf_js.stats.games import games

COVARIATES = 4
GOAL_SECONDS = 5
GOAL_RATIO = 50


class Rows:
    """Simulated games, one a row: model number, question, result, weight, covariates."""

    def __init__(self, models: int, questions: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.models = models
        self.questions = questions
        shape = (models, questions, 2)
        model, question, _ = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij")
        self.model, self.question = model.ravel(), question.ravel()
        # Both games of a question show the same two responses.
        style = rng.normal(size=(models, questions, 1, COVARIATES)).repeat(2, axis=2)
        self.style = style.reshape(-1, COVARIATES)
        eta = np.linspace(-2, 1, models)[self.model]
        eta = eta + rng.normal(size=questions)[self.question]
        eta = eta + self.style @ np.array([0.8, 0.2, -0.1, 0.1])
        won = rng.random(len(eta)) < special.expit(eta)
        self.result = np.where(rng.random(len(eta)) < 0.1, 0.5, won)
        self.weight = rng.choice([1.0, 3.0], len(eta))

    def bootstrap(self, rounds: int, seed: int) -> Bootstrap:
        """The fits of the package, from the rows on."""
        summed = games(
            [f"model {number:03}" for number in self.model],
            ["baseline"] * len(self.model),
            self.result,
            anchor="baseline",
            clusters=self.question,
            weights=self.weight,
            covariates=self.style,
        )
        return bootstrap_fit(summed, seed=seed, rounds=rounds)


def by_numpy(rows: Rows, drawn: NDArray[np.float64], start: NDArray[np.float64]) -> NDArray:
    """One resample from the design matrix of the rows."""
    design = np.zeros((len(rows.model), rows.models + COVARIATES))
    design[np.arange(len(rows.model)), rows.model] = 1
    design[:, rows.models :] = rows.style
    weight = rows.weight * drawn[rows.question]
    at, step = start.copy(), np.ones(1)
    while np.abs(step).max() >= 1e-4:
        share = special.expit(design @ at)
        gradient = design.T @ (weight * (share - rows.result)) + RIDGE * at
        curvature = design.T @ (design * (weight * share * (1 - share))[:, None])
        step = -np.linalg.solve(curvature + RIDGE * np.eye(len(at)), gradient)
        at = at + step
    return at


def by_loop(rows: Rows, drawn: NDArray[np.float64], start: NDArray[np.float64]) -> NDArray:
    """One resample, row by row."""
    size = rows.models + COVARIATES
    table = list(
        zip(
            rows.model.tolist(),
            rows.style.tolist(),
            rows.result.tolist(),
            (rows.weight * drawn[rows.question]).tolist(),
            strict=True,
        )
    )
    at, step = start.copy(), np.ones(1)
    while np.abs(step).max() >= 1e-4:
        parameters = at.tolist()
        gradient = [RIDGE * value for value in parameters]
        curvature = [[RIDGE * (i == j) for j in range(size)] for i in range(size)]
        for model, style, result, weight in table:
            entries = [(model, 1.0), *((rows.models + i, x) for i, x in enumerate(style))]
            share = 1 / (1 + math.exp(-sum(parameters[i] * x for i, x in entries)))
            error, bend = weight * (share - result), weight * share * (1 - share)
            for i, x in entries:
                gradient[i] += error * x
                row = curvature[i]
                for j, y in entries:
                    row[j] += bend * x * y
        step = -np.linalg.solve(np.array(curvature), np.array(gradient))
        at = at + step
    return at


def seconds(function: Callable[[], object]) -> tuple[float, object]:
    """Processor time of one call, and what it returned."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def pool_flags(description: str | None) -> argparse.Namespace:
    """The size of a pool, from the command line."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=20, help="default: 20")
    parser.add_argument("--questions", type=int, default=750, help="default: 750")
    parser.add_argument("--rounds", type=int, default=1000, help="resamples, default: 1000")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    return parser.parse_args()


def main() -> None:
    arguments = pool_flags(__doc__)
    rows = Rows(arguments.models, arguments.questions, arguments.seed)

    taken, found = seconds(lambda: rows.bootstrap(arguments.rounds, arguments.seed))
    assert isinstance(found, Bootstrap)
    fits = np.column_stack([found.strengths[:, 1:], found.coefficients])
    start = np.concatenate([found.fit.strengths[1:], found.fit.coefficients])
    drawn = next(counts(arguments.questions, arguments.rounds, arguments.seed))

    print(f"{arguments.models} models x {arguments.questions} questions x 2 games, ", end="")
    print(f"{COVARIATES} covariates, {arguments.rounds} resamples; processor seconds, one core\n")
    print("| how | resamples timed | seconds for all | times as long |")
    print("|---|---:|---:|---:|")
    print(f"| bootstrap_fit | {arguments.rounds} | {taken:.2f} | 1 |")
    ratio = 0.0
    for name, way, repeats in (("rows, numpy", by_numpy, 10), ("rows, loop", by_loop, 2)):
        spent = 0.0
        for number in range(repeats):
            once, one = seconds(lambda way=way, number=number: way(rows, drawn[number], start))
            np.testing.assert_allclose(one, fits[number], atol=1e-6)
            spent += once
        every = spent / repeats * arguments.rounds
        ratio = every / taken
        print(f"| {name} | {repeats} | {every:.0f} | {ratio:.0f} |")
    print(f"\nbootstrap_fit takes {taken:.2f} s (goal: under {GOAL_SECONDS} s); the loop over rows")
    print(f"takes {ratio:.0f} times as long (goal: at least {GOAL_RATIO}).")


if __name__ == "__main__":
    main()
