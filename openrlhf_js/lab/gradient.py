"""How far small-batch gradients are from a precise one, by baseline: the program `lab gradient`.

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
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from openrlhf_js import __version__
from openrlhf_js.common.console import progress
from openrlhf_js.common.files import atomic_write
from openrlhf_js.common.store import Key, Record, Store
from openrlhf_js.estimators.own import label_of
from openrlhf_js.lab import policy_gradient as pg
from openrlhf_js.lab.batches import BatchPlan, SmallBatches
from openrlhf_js.lab.results import REFERENCE, LabResult, gradients_of, reduction, rows_of
from openrlhf_js.stats import clustered_mean
from openrlhf_js.stats.estimate import Floats

SAVE_SECONDS = 60.0  # between two saves of a half that is not done


class Distances(NamedTuple):
    """What batches and their baselines came to. Axes: names, numbers of responses, B batches."""

    names: tuple[str, ...]
    squared_norms: Floats
    """||g||^2"""
    products: Floats
    """<g, G>"""
    squared_norm: float
    """||G||^2"""
    error: float
    """||G_1 - G_2||^2 / 4"""
    signal: float
    """<G_1, G_2>, which noise may make negative."""

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
        at_m = self.unbiased[:, place]
        reference = at_m[self.names.index(REFERENCE)].mean()
        if not reference > 0:
            raise ValueError(
                f"the mean distance of {REFERENCE} to the precise gradient is {reference:.2g}: "
                "each prompt's rewards are all equal, or it is too noisy: sample more responses"
            )
        return at_m[self.names.index(name)]


def measure(
    scores: pg.ScoreSum,
    batches: SmallBatches,
    names: Sequence[str],
    out: Path,
    title: str = "gradients",
) -> Distances:
    """Computes what `out/gradients` lacks of the precise gradient and the batches' numbers."""
    names = tuple(dict.fromkeys(names))
    labels = {name: label_of(name) for name in names}  # once: a user's file may change
    plan = batches.plan
    identity = _identity(batches, scores)
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    folder = out / "gradients" / digest[:12]
    with Store(folder / "batches.jsonl", identity, ("batch", "m", "estimator")) as store:
        missing = {}
        for batch, m, name in product(range(plan.batches), plan.responses, names):
            if (batch, m, labels[name]) not in store:
                missing[batch, m, name] = batches.terms(batch, m, name)
        halves = batches.halves()
        responses = sum(len(terms) for terms in chain(halves, missing.values()))
        with progress(title, responses, "responses") as bar:
            precise = _precise(scores, halves, folder, bar.advance)
            for (batch, m, name), terms in missing.items():
                scores.clear()
                scores.add(terms)
                record = {
                    "batch": batch,
                    "m": m,
                    "estimator": labels[name],
                    "squared_norm": pg.dot(scores.total, scores.total),
                    "product": pg.dot(scores.total, precise.vector),
                }
                store.append([record])
                bar.advance(len(terms))
        return _distances(labels, plan, store.records, precise)


def _distances(
    labels: Mapping[str, str], plan: BatchPlan, records: Mapping[Key, Record], precise: Precise
) -> Distances:
    """The numbers of all batches, which are in the records by batch, m and the name's label."""
    names = tuple(labels)
    shape = len(names), len(plan.responses), plan.batches
    squared_norms = np.empty(shape)
    products = np.empty(shape)
    for place in np.ndindex(shape):
        name, m, batch = place
        record = records[batch, plan.responses[m], labels[names[name]]]
        squared_norms[place] = record["squared_norm"]
        products[place] = record["product"]
    return Distances(
        names=names,
        squared_norms=squared_norms,
        products=products,
        squared_norm=precise.squared_norm,
        error=precise.error,
        signal=precise.signal,
    )


def _identity(batches: SmallBatches, scores: pg.ScoreSum) -> dict[str, Any]:
    """All that the numbers depend on: also our version, since baselines may change with it."""
    pool = batches.pool
    samples = hashlib.sha256(pool.rewards.tobytes())
    samples.update(pool.greedy_rewards.tobytes())
    if pool.past is not None:
        samples.update(pool.past.tobytes())
    for prompt, responses in zip(pool.prompts, pool.response_tokens, strict=True):
        for tokens in chain([prompt.tokens], responses):
            samples.update(np.asarray(tokens, dtype="<i4").tobytes())
            samples.update(b"\xff\xff\xff\xff")  # no token
    return {
        "openrlhf_js": __version__,
        "model_sha256": pool.settings["model_sha256"],
        "samples_sha256": samples.hexdigest(),
        **asdict(batches.plan),
        "temperature": scores.temperature,
        "dtype": str(scores.parameters[0].dtype),
    }


class Precise(NamedTuple):
    """The precise gradient G; the numbers are those of `Distances`."""

    vector: pg.Vector
    """One number for each parameter of the model."""
    squared_norm: float
    error: float
    signal: float


def _precise(
    scores: pg.ScoreSum,
    halves: tuple[pg.ScoreTerms, pg.ScoreTerms],
    folder: Path,
    advance: Callable[[int], None],
) -> Precise:
    """Sums up both halves; resumes from `half-0.pt` and `half-1.pt`.

    The first half is kept while the second is summed, so there are two vectors beside the model.
    """
    _sum_up(scores, halves[0], folder / "half-0.pt", advance)
    vector = [total.clone() for total in scores.total]
    _sum_up(scores, halves[1], folder / "half-1.pt", advance)
    signal = pg.dot(vector, scores.total)
    squares = pg.dot(vector, vector) + pg.dot(scores.total, scores.total)
    for first, second in zip(vector, scores.total, strict=True):
        first.add_(second).div_(2)
    return Precise(
        vector,
        squared_norm=(squares + 2 * signal) / 4,
        error=(squares - 2 * signal) / 4,
        signal=signal,
    )


def _sum_up(
    scores: pg.ScoreSum, half: pg.ScoreTerms, path: Path, advance: Callable[[int], None]
) -> None:
    """Leaves the half's gradient in `scores.total` and in the file."""
    scores.clear()
    done = 0
    if path.exists():  # mapped: there may be no room in memory for a whole vector more
        saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        done = saved["done"]
        for total, saved_total in zip(scores.total, saved["vector"], strict=True):
            total.copy_(saved_total)
        advance(done)
    saved_at = time.monotonic()

    def on_pass(now_done: int) -> None:
        nonlocal saved_at, done
        advance(now_done - done)
        done = now_done
        if done == len(half) or time.monotonic() - saved_at > SAVE_SECONDS:
            with atomic_write(path) as file:
                torch.save({"done": done, "vector": scores.total}, file)
            saved_at = time.monotonic()

    scores.add(half, done, on_pass)


def compare(batches: SmallBatches, distances: Distances) -> LabResult:
    """The result of `lab gradient`: distances and reductions of every baseline, paired by batch."""
    responses = batches.plan.responses
    rows = []
    for place, m in enumerate(responses):
        reference = distances.of(REFERENCE, place)
        for name_place, name in enumerate(distances.names):
            baseline_distances = distances.of(name, place)
            quantities = {
                "distance": clustered_mean(baseline_distances),
                "plain_distance": distances.plain[name_place, place].mean(),
                "reduction_percent": reduction(baseline_distances, reference),
                "shrinkage": batches.shrinkage(m, name).mean(),
            }
            rows += rows_of(quantities, m=m, estimator=name)
    arrays = {
        "estimators": np.array(distances.names),
        "m": np.array(responses),
        "squared_norms": distances.squared_norms,
        "products": distances.products,
        "distances": distances.unbiased,
    }
    notes = {"gradients": gradients_of(distances.names), **notes_of(batches, distances)}
    return LabResult(rows, caption_of(batches), arrays, notes)


def caption_of(batches: SmallBatches) -> str:
    """What was measured, and what intervals are over."""
    plan = batches.plan
    return (
        f"{plan.batches} batches of {plan.prompts} of {len(batches.pool.prompts)} prompts; "
        "95 % intervals over further batches of the same prompts; reductions against rloo"
    )


def notes_of(batches: SmallBatches, distances: Distances) -> dict[str, Any]:
    """What the JSON says of batches and samples, and how precise the precise gradient is."""
    prompts = len(batches.pool.prompts)
    relative_error = None
    if distances.signal > 0:
        relative_error = distances.error / distances.signal
    return {
        "prompts": prompts,
        "batch_prompts": batches.plan.prompts,
        "batches": batches.plan.batches,
        "precise": {
            "responses": 2 * batches.half * prompts,
            "relative_error": relative_error,
        },
        "samples": batches.pool.settings,
    }
