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
that all responses to prompt i give with rloo: unbiased, because they share nothing. The history of
js_plus is of the steps of training before the policy: the first n prompts of each and the first m
of their responses. The same command resumes; after a change of the code give another folder.
"""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import model_validator
from tiny_policies import REWARDS, Drawn, Floats, engine_of, sample, train, training_items

from openrlhf_js.common.console import progress
from openrlhf_js.common.files import write_json
from openrlhf_js.common.settings import Field, Settings, parse, run
from openrlhf_js.common.store import Store
from openrlhf_js.estimators import RunningStatistics, baseline, start_history, update_history
from openrlhf_js.lab.mse import best_coefficient
from openrlhf_js.lab.policy_gradient import ScoreSum, Vector, terms
from openrlhf_js.lab.results import reduction, rows_of
from openrlhf_js.sampling.engines import key
from openrlhf_js.stats import clustered_mean
from openrlhf_js.tiny.model import make_tokenizer
from openrlhf_js.tiny.quickstart import prepare_libraries
from openrlhf_js.tiny.tasks import TASKS, draw

HISTORY = "js_plus, half-life 50"
HALF_LIFE = 50.0
COMPARED = ("rloo", "bloo", "js", "js_plus", HISTORY)
BEST = "best constant"  # the lambda in [0, 1] at which this very pool's batches are nearest
RULES = ("js", "js_plus", HISTORY)
PAIRS = (("js_plus", "rloo"), ("js_plus", "js"), (HISTORY, "js_plus"), (HISTORY, "js"))
PROMPTS_IN_BATCH, RESPONSES = (16, 64), (2, 4, 8)


class StudySettings(Settings):
    """Does js_plus lower the variance of the policy gradient?"""

    out: Path = Field(Path("runs/js-plus-gradient"), description="folder of models and results")
    tasks: tuple[str, ...] = Field(("sort", "countdown"), description=f"of {', '.join(TASKS)}")
    seeds: tuple[int, ...] = Field((0, 1, 2, 3, 4), min_length=2)
    steps: tuple[int, ...] = Field((0, 25, 100), description="of training, at each policy")
    prompts: int = Field(128, ge=64, description="of a pool")
    responses: int = Field(32, ge=10, description="to each prompt of a pool")
    batches: int = Field(300, ge=1, description="of 64 prompts; of 16, four times as many")
    dimensions: int = Field(4096, ge=2, description="of the sketch")
    workers: int = Field(2, ge=1, description="processes")

    @model_validator(mode="after")
    def _known(self) -> StudySettings:
        if unknown := set(self.tasks) - set(TASKS):
            raise ValueError(f"--tasks {min(unknown)}: choose from {', '.join(TASKS)}")
        if min(self.seeds) < 0 or min(self.steps) < 0 or max(self.steps) == 0:
            raise ValueError("--seeds and --steps are 0 or more, and the last step is 1 or more")
        return self

    def folder(self, task: str, seed: int) -> Path:
        """Of one training."""
        return self.out / f"{task}-{'.'.join(map(str, sorted(self.steps)))}-seed{seed}"


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


def make_pool(settings: StudySettings, name: str, seed: int, step: int) -> ScorePool:
    """A pool of a trained policy, its prompts drawn as training draws them."""
    task, k = TASKS[name], settings.dimensions
    tokenizer = make_tokenizer(task)
    engine = engine_of(task, settings.folder(name, seed) / f"step-{step}", tokenizer)
    rng = random.Random(f"pool/{seed}/{step}")
    items = draw(training_items(task, seed), settings.prompts, rng)
    drawn: Drawn = sample(engine, tokenizer, task, items, settings.responses, key(seed, 1, step))
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


def history_of(rewards: Floats) -> RunningStatistics:
    """The running statistics after these steps (steps, n, m) of training."""
    history = start_history(HALF_LIFE)
    for batch in torch.from_numpy(rewards):
        history = update_history(history, batch)
    return history


def compare(
    pool: ScorePool, n: int, m: int, batches: int, seed: int, history: RunningStatistics
) -> dict[str, Any]:
    """Draws batches of n prompts and m responses, and measures all baselines on them.

    Returns:
        distances E ||g - grad J||^2 and errors E (b - mu)^2 by baseline, and the constant lambda
        that would have been best for the gradient.
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
        rules = [baseline(name, given) for name in COMPARED[:-1]]
        found = torch.stack([*rules, baseline("js_plus", given, history=history)]).numpy()
        vectors = flat[(chosen[:, None] * responses + order[:, :m]).ravel()]
        weights = ((rewards - found) / rewards.size).reshape(len(COMPARED), -1)
        gradients = (weights.astype(np.float32) @ vectors).astype(np.float64)
        norms += np.square(gradients).sum(1)
        product += float(gradients[0] @ gradients[1])
        noise = (rest.var(1, ddof=1) / rest.shape[1]).mean()
        errors += np.square(found - rest.mean(1)[:, None]).mean((1, 2)) - noise
    norms, errors, product = norms / batches, errors / batches, product / batches
    if norms[0] == 0:
        raise ValueError(
            f"rloo's gradient is 0 with n = {n}, m = {m}: all rewards of each prompt are equal; "
            "take an earlier policy, or another task"
        )
    truth, best = signal_of(pool), best_coefficient(norms[0], norms[1], product)
    least = (1 - best) ** 2 * norms[0] + best**2 * norms[1] + 2 * best * (1 - best) * product
    nearer = [float(each - truth) for each in (*norms, least)]
    distances = dict(zip((*COMPARED, BEST), nearer, strict=True))
    of_baselines = dict(zip(COMPARED, map(float, errors), strict=True))
    return {"n": n, "m": m, "distances": distances, "errors": of_baselines, "best": best}


def signal_of(pool: ScorePool) -> float:
    """||grad J||^2 without bias, see above; noise may make it negative."""
    rewards = torch.from_numpy(pool.rewards)
    advantages = (rewards - baseline("rloo", rewards)).numpy() / rewards.shape[1]
    own = np.einsum("nm,nmk->nk", advantages.astype(np.float32), pool.scores).astype(np.float64)
    pairs = np.square(own.sum(0)).sum() - np.square(own).sum()
    return float(pairs / (len(own) * (len(own) - 1)))


def measure(job: tuple[StudySettings, str, int, int]) -> dict[str, Any]:
    """All batch sizes at one policy, as a record."""
    settings, task, seed, step = job
    pool = make_pool(*job)
    seen = np.load(settings.folder(task, seed) / REWARDS)[:step]
    cells = []
    for n in PROMPTS_IN_BATCH:
        batches = settings.batches * max(PROMPTS_IN_BATCH) // n
        for m in RESPONSES:
            cells.append(compare(pool, n, m, batches, seed, history_of(seen[:, :n, :m])))
    reward = float(pool.rewards.mean())
    return {"task": task, "seed": seed, "step": step, "mean_reward": reward, "cells": cells}


def summarise(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tidy rows for each task, step and size of batches, with intervals over seeds, in percent."""
    rows = []
    for task, step in dict.fromkeys((each["task"], each["step"]) for each in records):
        own = [each for each in records if (each["task"], each["step"]) == (task, step)]
        reward = fmean(each["mean_reward"] for each in own)
        for cells in zip(*(each["cells"] for each in own), strict=True):

            def reduced(field: str, name: str, cells: Any = cells) -> Floats:
                pairs = [(cell[field][name], cell[field]["rloo"]) for cell in cells]
                found = [reduction(*np.array(pair)[:, None]).value for pair in pairs]
                if np.isnan(found).any():
                    raise ValueError("rloo's mean error is not above 0: give a larger pool")
                return np.array(found)

            distance = {name: reduced("distances", name) for name in (*COMPARED, BEST)}
            place = {"task": task, "step": step, "n": cells[0]["n"], "m": cells[0]["m"]}
            for name in RULES if step else RULES[:-1]:
                error = clustered_mean(reduced("errors", name))
                quantities = {"distance": clustered_mean(distance[name]), "error": error}
                rows += rows_of(quantities, **place, rule=name)
            for a, b in PAIRS if step else PAIRS[:2]:
                gap = clustered_mean(distance[a] - distance[b])
                rows += rows_of({"gap": gap}, **place, rule=f"{a} against {b}")
            least = {"distance": distance[BEST].mean(), "lambda": fmean(c["best"] for c in cells)}
            rows += rows_of({**least, "mean_reward": reward}, **place, rule=BEST)
    return rows


def verdicts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each pair, in how many settings the first is nearer to the truth, and where farther."""
    found = []
    gaps = [row for row in rows if row["quantity"] == "gap"]
    for pair in dict.fromkeys(row["rule"] for row in gaps):
        own = [row for row in gaps if row["rule"] == pair]
        better, worse = sum(row["low"] > 0 for row in own), [r for r in own if r["high"] < 0]
        mean = fmean(row["value"] for row in own)
        places = "; ".join(
            f"{r['task']}, step {r['step']}, n = {r['n']}, m = {r['m']} ({shown(r)})" for r in worse
        )
        found.append(
            f"{pair}: the gradient's variance is lower in {better} of {len(own)} settings, higher "
            f"in {len(worse)}, and in {len(own) - better - len(worse)} the seeds cannot tell; on "
            f"average {'lower' if mean >= 0 else 'higher'} by {abs(mean):.1f} points of rloo's."
            + (f" Higher: {places}." if worse else "")
        )
    return found


def shown(row: Mapping[str, Any]) -> str:
    """Such as 12.3 (10.1 to 14.5)."""
    ends = "" if row["low"] is None else f" ({row['low']:.1f} to {row['high']:.1f})"
    return f"{row['value']:.1f}{ends}"


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Verdicts, and how much lower than rloo's distance and error are, in percent."""
    lines = [f"- {sentence}" for sentence in verdicts(rows)]
    by_place: dict[tuple[Any, ...], dict[tuple[str, str], str]] = {}
    for row in rows:
        place = row["task"], row["step"], row["n"], row["m"]
        by_place.setdefault(place, {})[row["quantity"], row["rule"]] = shown(row)
    against = "js_plus against js"
    for quantity, more in (("distance", [("gap", against), ("distance", BEST)]), ("error", [])):
        columns = [*((quantity, rule) for rule in RULES), *more]
        names = [rule for _, rule in columns]
        lines += ["", f"| {quantity}: task | step | n | m | {' | '.join(names)} |"]
        lines += [f"|---|---:|---:|---:|{'---:|' * len(columns)}"]
        for place, cells in by_place.items():
            shown_cells = (cells.get(column, "-") for column in columns)
            lines.append(f"| {' | '.join(map(str, (*place, *shown_cells)))} |")
    return "\n".join(lines)


def start_worker() -> None:
    """One thread, and Ctrl-C is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare_libraries()


def work(settings: StudySettings) -> None:
    """Trains and measures what is missing, and prints the tables."""
    settings.out.mkdir(parents=True, exist_ok=True)
    size = settings.model_dump(include={"prompts", "responses", "batches", "dimensions"})
    trainings = [(task, seed) for seed in settings.seeds for task in settings.tasks]
    with (
        Store(settings.out / "measured.jsonl", size, ("task", "seed", "step")) as store,
        get_context("spawn").Pool(settings.workers, start_worker) as pool,
    ):
        jobs = [(t, s, settings.steps, settings.folder(t, s)) for t, s in trainings]
        with progress("training", len(jobs), "trainings") as bar:
            for each in [pool.apply_async(train, job) for job in jobs]:
                each.get()
                bar.advance()
        every = [(task, seed, step) for task, seed in trainings for step in settings.steps]
        missing = [(settings, *each) for each in every if each not in store]
        with progress("measuring", len(missing), "policies") as bar:
            for record in pool.imap_unordered(measure, missing):
                store.append([record])
                bar.advance()
        rows = summarise([store.records[each] for each in sorted(every)])
    write_json(settings.out / "results.json", {"settings": settings.manifest(), "rows": rows})
    print(markdown(rows))


if __name__ == "__main__":
    given = parse(StudySettings, "js_plus_gradient.py", sys.argv[1:])
    sys.exit(run("js_plus_gradient.py", lambda: work(given), resumes=True))
