"""How far small-batch gradients are from a precise one, for every baseline.

The policy gradient of a batch of n prompts with m responses each, with baseline b, is

    g = 1/(n m) sum_ij (r_i^j - b_i^j) grad log pi(y_i^j | x_i)          (the paper's eq. grad)

and ||g - G||^2 = ||g||^2 - 2 <g, G> + ||G||^2: two numbers of each batch and baseline are kept.
Beside the model there are two vectors of its size: G, and the sum that becomes g.

No response of the pool is in both G and a batch. G = (G_1 + G_2) / 2 is the mean of two halves that
are independent and unbiased for the gradient of the pool's prompts, grad J, so that

    E ||G_1 - G_2||^2 / 4 = E ||G - grad J||^2        E <G_1, G_2> = ||grad J||^2

and the error of G is subtracted: E (||g - G||^2 - ||G_1 - G_2||^2 / 4) = E ||g - grad J||^2. Axes:
N prompts and M responses of the pool; B batches of n prompts and m responses.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from openrlhf_js import __version__
from openrlhf_js.common.console import progress
from openrlhf_js.common.files import atomic_write
from openrlhf_js.common.store import Store
from openrlhf_js.estimators import Estimate, Past, baseline, estimate, find_estimator, make_batch
from openrlhf_js.lab import policy_gradient as pg
from openrlhf_js.lab import results
from openrlhf_js.lab.mse import check, left_out
from openrlhf_js.lab.pool import Samples
from openrlhf_js.lab.results import REFERENCE, LabResult
from openrlhf_js.stats import clustered_mean
from openrlhf_js.stats.estimate import Floats

Ints = NDArray[np.int64]

MIDDLE = "js_fixed 0.5"  # halfway between rloo and bloo: the third point of a sweep's parabolas
SAVE_SECONDS = 60.0  # between two saves of a half that is not done


@dataclass(frozen=True)
class BatchPlan:
    """What small batches to compare: how many, prompts in each, every m, and the seed."""

    batches: int = 20
    prompts: int = 64
    responses: tuple[int, ...] = (2, 4, 8)
    seed: int = 0


class SmallBatches:
    """Which of a pool's responses make the precise gradient, and which the small batches.

    Every batch has prompts of its own draw, as a step of training has. No response is in two of
    them, so batches are independent draws for these N prompts.

    Attributes:
        half: responses a prompt in each half of the precise gradient: columns 0 to half - 1 of the
            pool are the first, half to 2 half - 1 the second.
        prompts: (B, n) the prompts of each batch, all different.
        columns: (B, n, m) their responses, for the largest m; a smaller one takes the first.

    Raises:
        ValueError: the pool is too small.
    """

    def __init__(self, pool: Samples, plan: BatchPlan):
        self.pool, self.plan = pool, plan
        (prompts, responses), n, largest = pool.rewards.shape, plan.prompts, max(plan.responses)
        for m in plan.responses:
            check(pool.rewards, n, m)
        rng = np.random.default_rng(plan.seed)
        self.prompts = np.stack(
            [rng.choice(prompts, n, replace=False) for _ in range(plan.batches)]
        )
        # Each use of a prompt takes its next responses.
        used, first = np.zeros(prompts, dtype=np.int64), np.empty_like(self.prompts)
        for batch, chosen in enumerate(self.prompts):
            first[batch] = used[chosen] * largest
            used[chosen] += 1
        reserve = int(used.max()) * largest
        self.half = (responses - reserve) // 2
        needed = max(reserve + 4, math.ceil(1.5 * reserve))  # a third for the precise gradient
        if needed > responses:
            raise ValueError(
                f"{plan.batches} batches of {n} of {prompts} prompts, m = {largest}, need {needed} "
                f"responses to a prompt, and there are {responses}: sample more, or lower --batches"
            )
        self.columns = 2 * self.half + first[:, :, None] + np.arange(largest)

    def rewards(self, batch: int, m: int) -> Floats:
        """(n, m) rewards of a batch."""
        rows = self.prompts[batch][:, None]
        return self.pool.rewards[rows, self.columns[batch, :, :m]]

    def baseline(self, batch: int, m: int, name: str) -> Floats:
        """(n, m) baselines of a batch, by an estimator or MIDDLE."""
        return self._estimate(batch, m, name).baseline.numpy()

    def _estimate(self, batch: int, m: int, name: str) -> Estimate:
        """What an estimator makes of a batch; of the past, it sees m rewards of each prompt."""
        chosen = self.prompts[batch]
        past = None
        if self.pool.past is not None:
            past = Past(torch.from_numpy(self.pool.past[chosen, :m].mean(1)))
        given = make_batch(
            torch.from_numpy(self.rewards(batch, m)),
            greedy_rewards=torch.from_numpy(self.pool.greedy_rewards[chosen]),
            shrinkage=0.5,  # of MIDDLE
            past=past,
        )
        return estimate(find_estimator("js_fixed" if name == MIDDLE else name), given)

    def terms(self, batch: int, m: int, name: str) -> pg.ScoreTerms:
        """The sum that is the batch's gradient: each response counts (r - b) / (n m)."""
        weights = (self.rewards(batch, m) - self.baseline(batch, m, name)) / (self.plan.prompts * m)
        columns = self.columns[batch, :, :m]
        return pool_terms(self.pool, self.prompts[batch], columns, weights)

    def shrinkage(self, m: int, name: str) -> Floats:
        """(B,) mean coefficient of each batch; NaN for an estimator that has none."""
        coefficients = []
        for batch in range(self.plan.batches):
            shrinkage = self._estimate(batch, m, name).shrinkage
            coefficients.append(np.nan if shrinkage is None else shrinkage.coefficient.mean())
        return np.array(coefficients, dtype=np.float64)

    def covered(self) -> str:
        """What intervals over batches are for."""
        return (
            f"{self.plan.batches} batches of {self.plan.prompts} of {len(self.pool.rewards)} "
            "prompts; 95 % intervals, for further batches of the same prompts"
        )

    def halves(self) -> list[pg.ScoreTerms]:
        """The two halves of the precise gradient, each with rloo, whose gradient is unbiased."""
        every, half = np.arange(len(self.pool.prompts)), self.half
        found = []
        for columns in (np.arange(half), np.arange(half, 2 * half)):
            rewards = torch.from_numpy(self.pool.rewards[:, columns])
            weights = ((rewards - baseline("rloo", rewards)) / rewards.numel()).numpy()
            placed = np.tile(columns, (len(every), 1))
            found.append(pool_terms(self.pool, every, placed, weights))
        return found


def pool_terms(pool: Samples, prompts: Ints, columns: Ints, weights: Floats) -> pg.ScoreTerms:
    """Responses by prompt (n,) and column (n, m) of the pool, with their weights (n, m)."""
    responses = [
        pg.Response(pool.prompt_tokens[prompt], pool.response_tokens[prompt][column])
        for prompt, chosen in zip(prompts.tolist(), columns.tolist(), strict=True)
        for column in chosen
    ]
    return pg.terms(responses, weights.ravel())


def check_names(names: Sequence[str], pool: Samples) -> None:
    """Raises ValueError for baselines that cannot be compared on this pool."""
    lacking = left_out(2, past=pool.past is not None)
    lacking |= {
        "grpo": "has another true gradient; take dr_grpo, which is grpo without its division",
        "js_fixed": "has a coefficient to choose: lab sweep shows them all",
    }
    for name in names:
        find_estimator(name)
        if name in lacking:
            raise ValueError(f"{name} {lacking[name]}")


class Distances(NamedTuple):
    """What batches and their baselines came to. Axes: names, numbers of responses, B batches."""

    names: tuple[str, ...]
    squared_norms: Floats  # ||g||^2
    products: Floats  # <g, G>
    squared_norm: float  # ||G||^2
    error: float  # ||G_1 - G_2||^2 / 4
    signal: float  # <G_1, G_2>, which noise may make negative

    @property
    def plain(self) -> Floats:
        """||g - G||^2, as the paper has it; G's own error is part of it."""
        return self.squared_norms - 2 * self.products + self.squared_norm

    @property
    def unbiased(self) -> Floats:
        """Unbiased estimates of E ||g - grad J||^2, see above."""
        return self.plain - self.error

    def of(self, name: str, place: int) -> Floats:
        """(B,) unbiased distances of a baseline at one m; ValueError unless rloo's are positive."""
        reference = self.unbiased[self.names.index(REFERENCE), place].mean()
        if not reference > 0:
            raise ValueError(
                f"the mean distance of {REFERENCE} to the precise gradient is {reference:.2g}: "
                "each prompt's rewards are all equal, or it is too noisy: sample more responses"
            )
        return self.unbiased[self.names.index(name), place]


def measure(
    scores: pg.ScoreSum,
    batches: SmallBatches,
    names: Sequence[str],
    out: Path,
    what: str = "gradients",
) -> Distances:
    """Computes what `out/gradients` lacks of the precise gradient and the batches' numbers."""
    names, plan = tuple(dict.fromkeys(names)), batches.plan
    settings = _identity(batches, scores)
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    folder = out / "gradients" / digest[:12]
    every = range(plan.batches)
    keys = list(product(every, plan.responses, names))
    with Store(folder / "batches.jsonl", settings, ("batch", "m", "estimator")) as store:
        tasks = {key: batches.terms(*key) for key in keys if key not in store}
        halves = batches.halves()
        total = sum(len(each) for each in (*halves, *tasks.values()))
        with progress(what, total, "responses") as bar:
            vector, known = _precise(scores, halves, folder, bar.advance)
            for key, each in tasks.items():
                scores.clear()
                scores.add(each)
                numbers = {"squared_norm": pg.dot(scores.total, scores.total)}
                numbers["product"] = pg.dot(scores.total, vector)
                store.append([dict(zip(store.key_fields, key, strict=True), **numbers)])
                bar.advance(len(each))
        records = [store.records[b, m, a] for a, m, b in product(names, plan.responses, every)]
    shape = len(names), len(plan.responses), plan.batches
    norms, products = (
        np.array([record[number] for record in records]).reshape(shape)
        for number in ("squared_norm", "product")
    )
    return Distances(names, norms, products, **known)


def _identity(batches: SmallBatches, scores: pg.ScoreSum) -> dict[str, Any]:
    """All that the numbers depend on: also our version, since baselines may change with it."""
    pool, digest = batches.pool, hashlib.sha256(batches.pool.rewards.tobytes())
    for more in (pool.greedy_rewards, pool.past):
        digest.update(b"" if more is None else more.tobytes())
    for prompt, group in zip(pool.prompt_tokens, pool.response_tokens, strict=True):
        for each in (prompt, *group):
            digest.update(np.asarray(each, dtype="<i4").tobytes() + b"\xff\xff\xff\xff")
    return {
        "openrlhf_js": __version__,
        "model_sha256": pool.settings["model_sha256"],
        "samples_sha256": digest.hexdigest(),
        **asdict(batches.plan),
        "temperature": scores.temperature,
        "dtype": str(scores.parameters[0].dtype),
    }


def _precise(
    scores: pg.ScoreSum,
    halves: Sequence[pg.ScoreTerms],
    folder: Path,
    advance: Callable[[int], None],
) -> tuple[pg.Vector, dict[str, float]]:
    """G and the last three fields of `Distances`; resumes from `half-0.pt` and `half-1.pt`.

    The first half is kept while the second is summed, so there are two vectors beside the model.
    """
    _sum_up(scores, halves[0], folder / "half-0.pt", advance)
    vector = [total.clone() for total in scores.total]
    _sum_up(scores, halves[1], folder / "half-1.pt", advance)
    signal = pg.dot(vector, scores.total)
    squares = pg.dot(vector, vector) + pg.dot(scores.total, scores.total)
    for first, second in zip(vector, scores.total, strict=True):
        first.add_(second).div_(2)
    squared_norm, error = ((squares + sign * 2 * signal) / 4 for sign in (1, -1))
    return vector, {"squared_norm": squared_norm, "error": error, "signal": signal}


def _sum_up(
    scores: pg.ScoreSum, half: pg.ScoreTerms, path: Path, advance: Callable[[int], None]
) -> None:
    """Leaves the half's gradient in `scores.total` and in the file."""
    scores.clear()
    now, saved = 0, time.monotonic()
    if path.exists():  # mapped: there may be no room in memory for a whole vector more
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        now = found["done"]
        for total, part in zip(scores.total, found["vector"], strict=True):
            total.copy_(part)
        advance(now)

    def on_pass(done: int) -> None:
        nonlocal saved, now
        advance(done - now)
        now = done
        if done == len(half) or time.monotonic() - saved > SAVE_SECONDS:
            with atomic_write(path) as file:
                torch.save({"done": done, "vector": scores.total}, file)
            saved = time.monotonic()

    scores.add(half, now, on_pass)


def compare(batches: SmallBatches, found: Distances) -> LabResult:
    """The result of `lab gradient`: distances and reductions of every baseline, paired by batch."""
    rows = []
    for c, m in enumerate(batches.plan.responses):
        reference = found.of(REFERENCE, c)
        for a, name in enumerate(found.names):
            own = found.of(name, c)
            quantities = {
                "distance": clustered_mean(own),
                "plain_distance": found.plain[a, c].mean(),
                "reduction_percent": results.reduction(own, reference),
                "shrinkage": batches.shrinkage(m, name).mean(),
            }
            rows += results.rows_of(quantities, m=m, estimator=name)
    arrays = {"estimators": np.array(found.names), "m": np.array(batches.plan.responses)}
    arrays |= {"squared_norms": found.squared_norms, "products": found.products}
    arrays["distances"] = found.unbiased
    kinds = {name: results.gradient_of(name) for name in found.names}
    said = results.effects("the squared distance to the true gradient", rows)
    finding = f"Against {REFERENCE}, {said} ({batches.covered()})."
    return LabResult(rows, finding, arrays, {"gradients": kinds, **notes_of(batches, found)})


def notes_of(batches: SmallBatches, found: Distances) -> dict[str, Any]:
    """What the JSON says of batches and samples, and how precise the precise gradient is."""
    prompts, plan = len(batches.pool.prompts), batches.plan
    relative = found.error / found.signal if found.signal > 0 else None
    return {
        **{"prompts": prompts, "batch_prompts": plan.prompts, "batches": plan.batches},
        "precise": {"responses": 2 * batches.half * prompts, "relative_error": relative},
        "samples": batches.pool.settings,
    }
