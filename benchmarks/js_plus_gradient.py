"""Does js_plus lower the variance of the policy gradient, against js and against rloo?

Tiny models on the quickstart's tasks, warm-started and then trained by plain REINFORCE with rloo
(`tiny_policies.py`), early (after the warm start), in the middle and late. A seed is a warm start,
a training, a pool of responses and batches of its own; intervals are over seeds (Student's t).

A pool has N prompts, drawn as training draws them, with M responses each. The score gradient
s = grad log pi(y | x) of every response is computed once and projected to K numbers by a random
sketch, which leaves squared norms unbiased. Small batches are drawn from the pool without
replacement; the gradient of a batch is a sum of what is there already. All baselines see the same
batches. The squared distance of a gradient g without bias to the true one, over all prompts, is

    E ||g - grad J||^2 = E ||g||^2 - ||grad J||^2

and ||grad J||^2 is the mean of <g_i, g_k> over pairs of different prompts, g_i being the gradient
that all responses to prompt i give with rloo: unbiased, because they share nothing. The same
command resumes; after a change of the code give another folder.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from math import nan
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from markdown_table import print_table, shown
from numpy.typing import NDArray
from tiny_policies import engine_of, sample, train, training_items

from openrlhf_js.common.console import progress
from openrlhf_js.common.settings import Field, Settings, parse, run
from openrlhf_js.common.store import Store
from openrlhf_js.estimators import baseline
from openrlhf_js.lab.mse import best_coefficient
from openrlhf_js.lab.policy_gradient import ScoreSum, Vector, terms
from openrlhf_js.sampling.engines import key
from openrlhf_js.stats import Estimate, clustered_mean
from openrlhf_js.stats.estimate import Floats
from openrlhf_js.tiny.model import make_tokenizer
from openrlhf_js.tiny.supervise import prepare_libraries
from openrlhf_js.tiny.tasks import TASKS, draw

COMPARED = ("rloo", "bloo", "js", "js_plus")
BEST = "best constant"  # the lambda in [0, 1] at which this very pool's batches are nearest
RULES = ("js", "js_plus")
PAIRS = (("js_plus", "rloo"), ("js_plus", "js"))
Place = tuple[str, int, int, int]  # task, step, n, m
Table = dict[Place, dict[tuple[str, str], Estimate]]  # by place, then by quantity and rule
STUDIED, STEPS = ("sort", "countdown"), (0, 25, 100)  # tasks; steps of training, at each policy
PROMPTS_IN_BATCH, RESPONSES = (16, 64), (2, 4, 8)
POOL = 128, 32  # prompts, responses to each
BATCHES = 300  # of 64 prompts; of 16, four times as many
DIMENSIONS, WORKERS = 4096, 2  # of the sketch; processes


class JsPlusGradientSettings(Settings):
    """Does js_plus lower the variance of the policy gradient?"""

    out: Path = Field(Path("runs/js-plus-gradient"), description="folder of models and results")
    seeds: tuple[int, ...] = Field((0, 1, 2, 3, 4), min_length=2)


class ScorePool(NamedTuple):
    """Responses of a policy: rewards (N, M) and projected score gradients (N, M, K)."""

    rewards: Floats
    scores: NDArray[np.float32]


def sketched(vector: Vector, dimensions: int, places: Sequence[torch.Tensor]) -> torch.Tensor:
    """(K,) the count sketch of a vector: each number is added to a random bucket, signed."""
    sums = torch.zeros(2 * dimensions)
    for own, part in zip(places, vector, strict=True):
        sums.index_add_(0, own, part.flatten())
    return sums[:dimensions] - sums[dimensions:]


def make_pool(policy: Path, name: str, seed: int, step: int) -> ScorePool:
    """A pool of the trained policy in a folder, its prompts drawn as training draws them."""
    task, (prompts, responses), k = TASKS[name], POOL, DIMENSIONS
    tokenizer = make_tokenizer(task)
    engine = engine_of(task, policy, tokenizer)
    items = draw(training_items(task, seed), prompts, random.Random(f"pool/{seed}/{step}"))
    drawn = sample(engine, tokenizer, task, items, responses, key(seed, 1, step))
    scores, found = ScoreSum(engine.model), np.empty((len(drawn.responses), k), dtype=np.float32)
    # A sketch must not know the model's weights, which came out of a generator with the same seed.
    generator = torch.Generator().manual_seed(key(seed, 2, step))
    places = [
        torch.randint(2 * k, (part.numel(),), generator=generator, dtype=torch.int32)
        for part in scores.total
    ]
    for row, response in enumerate(drawn.responses):
        scores.clear()
        scores.add(terms([response], np.ones(1)))
        found[row] = sketched(scores.total, k, places).numpy()
    return ScorePool(drawn.rewards, found.reshape(*drawn.rewards.shape, k))


def compare(pool: ScorePool, n: int, m: int, batches: int, seed: int) -> dict[str, Any]:
    """Every baseline on `batches` batches of n prompts and m responses.

    By baseline, `distances` are E ||g - grad J||^2 and `errors` E (b - mu)^2; `best` is the
    constant lambda that would have been best for the gradient.
    """
    rng = np.random.default_rng([seed, n, m])
    flat, responses = pool.scores.reshape(pool.rewards.size, -1), pool.rewards.shape[1]
    norms, errors = np.zeros(len(COMPARED)), np.zeros(len(COMPARED))
    product = 0.0  # of rloo's gradient and bloo's
    for _ in range(batches):
        chosen = rng.choice(len(pool.rewards), n, replace=False)
        order = rng.random((n, responses)).argsort(1)
        shuffled = np.take_along_axis(pool.rewards[chosen], order, 1)
        rewards, rest = shuffled[:, :m], shuffled[:, m:]
        given = torch.from_numpy(np.ascontiguousarray(rewards))
        found = torch.stack([baseline(name, given) for name in COMPARED]).numpy()
        vectors = flat[(chosen[:, None] * responses + order[:, :m]).ravel()]
        weights = ((rewards - found) / rewards.size).reshape(len(COMPARED), -1)
        gradients = (weights.astype(np.float32) @ vectors).astype(np.float64)
        norms += np.square(gradients).sum(1)
        product += float(gradients[0] @ gradients[1])
        noise = (rest.var(1, ddof=1) / rest.shape[1]).mean()
        errors += np.square(found - rest.mean(1)[:, None]).mean((1, 2)) - noise
    norms, errors, product = norms / batches, errors / batches, product / batches
    best = best_coefficient(norms[0], norms[1], product)
    least = (1 - best) ** 2 * norms[0] + best**2 * norms[1] + 2 * best * (1 - best) * product
    distances = (np.array([*norms, least]) - signal_of(pool)).tolist()
    return {
        "n": n,
        "m": m,
        "distances": dict(zip((*COMPARED, BEST), distances, strict=True)),
        "errors": dict(zip(COMPARED, errors.tolist(), strict=True)),
        "best": best,
    }


def signal_of(pool: ScorePool) -> float:
    """||grad J||^2 without bias, see above; noise may make it negative."""
    rewards = torch.from_numpy(pool.rewards)
    advantages = (rewards - baseline("rloo", rewards)).numpy() / rewards.shape[1]
    own = np.einsum("nm,nmk->nk", advantages.astype(np.float32), pool.scores).astype(np.float64)
    pairs = np.square(own.sum(0)).sum() - np.square(own).sum()
    return float(pairs / (len(own) * (len(own) - 1)))


def measure(out: Path, place: tuple[str, int]) -> list[dict[str, Any]]:
    """Trains a policy on a task with a seed, and measures: a record for each of the steps."""
    task, seed = place
    folder = out / f"{task}-{'.'.join(map(str, STEPS))}-seed{seed}"
    train(task, seed, STEPS, folder)
    records = []
    for step in STEPS:
        pool = make_pool(folder / f"step-{step}", task, seed, step)
        cells = []
        for n, m in product(PROMPTS_IN_BATCH, RESPONSES):
            batches = BATCHES * max(PROMPTS_IN_BATCH) // n
            cells.append(compare(pool, n, m, batches, seed))
        found = {"mean_reward": float(pool.rewards.mean()), "cells": cells}
        records.append({"task": task, "seed": seed, "step": step, **found})
    return records


def reductions(cells: Sequence[Any], field: str, name: str) -> Floats:
    """(seeds,) how much lower than rloo's a distance or error is, in percent."""
    of_rloo = np.array([cell[field]["rloo"] for cell in cells])
    if of_rloo.min() <= 0:
        raise ValueError("rloo's mean error is not above 0: give a larger pool")
    return 100 * (1 - np.array([cell[field][name] for cell in cells]) / of_rloo)


def summarise(records: Sequence[Mapping[str, Any]]) -> Table:
    """What the seeds say together, in percent."""
    by_place: dict[Place, list[Any]] = {}
    for each in records:
        for cell in each["cells"]:
            place = each["task"], each["step"], cell["n"], cell["m"]
            by_place.setdefault(place, []).append(cell)
    table: Table = {}
    for place, cells in by_place.items():
        saved = {name: reductions(cells, "distances", name) for name in (*COMPARED, BEST)}
        found = table[place] = {}
        for name in RULES:
            found["distance", name] = clustered_mean(saved[name])
            found["error", name] = clustered_mean(reductions(cells, "errors", name))
        for a, b in PAIRS:
            found["gap", f"{a} against {b}"] = clustered_mean(saved[a] - saved[b])
        found["distance", BEST] = Estimate(float(saved[BEST].mean()), nan, nan)
    return table


def verdict(table: Table, pair: str) -> str:
    """In how many settings the first is nearer to the truth, and where it is farther."""
    gaps = {place: found["gap", pair] for place, found in table.items()}
    lower = sum(gap.low > 0 for gap in gaps.values())
    higher = {place: gap for place, gap in gaps.items() if gap.high < 0}
    mean = fmean(gap.value for gap in gaps.values())
    places = "; ".join(
        f"{task}, step {step}, n = {n}, m = {m} ({shown(*gap)})"
        for (task, step, n, m), gap in higher.items()
    )
    return (
        f"- {pair}: the gradient's variance is lower in {lower} of {len(gaps)} settings, higher "
        f"in {len(higher)}, and in {len(gaps) - lower - len(higher)} the seeds cannot tell; on "
        f"average {'lower' if mean >= 0 else 'higher'} by {abs(mean):.1f} points of rloo's."
        + (f" Higher: {places}." if higher else "")
    )


def print_tables(table: Table) -> None:
    """Verdicts, and how much lower than rloo's distance and error are, in percent."""
    print(*(verdict(table, f"{a} against {b}") for a, b in PAIRS), sep="\n")
    more = [("gap", "js_plus against js"), ("distance", BEST)]
    for quantity in ("distance", "error"):
        columns = [(quantity, rule) for rule in RULES] + more * (quantity == "distance")
        rows = (
            [*place, *(shown(*found[each]) for each in columns)] for place, found in table.items()
        )
        print()
        print_table([f"{quantity}: task", "step", "n", "m", *(rule for _, rule in columns)], rows)


def work(settings: JsPlusGradientSettings) -> None:
    """Trains and measures what is missing, and prints the tables."""
    settings.out.mkdir(parents=True, exist_ok=True)
    size = {"pool": POOL, "batches": BATCHES, "dimensions": DIMENSIONS}
    with (
        Store(settings.out / "measured.jsonl", size, ("task", "seed", "step")) as store,
        get_context("spawn").Pool(WORKERS, prepare_libraries) as pool,
    ):
        every = list(product(STUDIED, settings.seeds, STEPS))
        missing = dict.fromkeys(each[:2] for each in every if each not in store)
        with progress("training and measuring", len(missing), "policies") as bar:
            for found in pool.imap_unordered(partial(measure, settings.out), missing):
                store.append(found)
                bar.advance()
        records = [store.records[each] for each in every]
    print_tables(summarise(records))
    print("\nMean rewards:")
    for task, step in product(STUDIED, STEPS):
        own = [r["mean_reward"] for r in records if (r["task"], r["step"]) == (task, step)]
        print(f"- {task}, step {step}: {fmean(own):.2f}")


if __name__ == "__main__":
    prog = "benchmarks/js_plus_gradient.py"
    given = parse(JsPlusGradientSettings, prog, sys.argv[1:])
    sys.exit(run(prog, lambda: work(given), resumes=True))
