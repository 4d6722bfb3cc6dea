"""How far small-batch gradients are from the precise one, for every baseline.

The policy gradient of a batch of n prompts with m responses each, with baseline b, is

    g = 1/(n m) sum_ij (r_i^j - b_i^j) grad log pi(y_i^j | x_i)          (the paper's eq. grad)

and ||g - G||^2 = ||g||^2 - 2 <g, G> + ||G||^2: two numbers of each batch and baseline are kept,
and with them also those of baselines whose advantages are multiples of another one's. Beside the
model there are two vectors of its size: G, and the sum that becomes g.

With a projection, each response's gradient is computed once, alone, and kept as K numbers; all
batches and baselines are then sums of these, and no pass is made for a further one.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from openrlhf_js import __version__
from openrlhf_js.lab import precise_gradient as precision
from openrlhf_js.lab.policy_gradient import ScoreSum, Terms, dot
from openrlhf_js.lab.precise_gradient import Reference, pool_terms
from openrlhf_js.lab.results import plain
from openrlhf_js.lab.small_batches import (
    SCALED,
    Design,
    Plan,
    batch_weights,
    check_names,
    draw,
)
from openrlhf_js.lab.store import Samples
from openrlhf_js.uncertainty.estimate import Floats
from openrlhf_js.whole_file import whole_file

SAVE_SECONDS = 5.0  # between two saves of the batches' numbers

Tell = Callable[[int, int], None]
"""Told how many responses of how many have been passed through the model in this call."""


class Measured(NamedTuple):
    """What batches and their baselines came to. Axes: names, numbers of responses, B batches.

    Attributes:
        names: of the baselines.
        responses: m.
        squared_norms: ||g||^2.
        products: <g, G>.
        reference: G's squared norm, its error, and the signal ||grad J||^2.
        projection_errors: relative errors of squared norms that were computed exactly too; empty
            where there is no projection.
    """

    names: tuple[str, ...]
    responses: tuple[int, ...]
    squared_norms: Floats
    products: Floats
    reference: Reference
    projection_errors: tuple[float, ...] = ()

    @property
    def plain(self) -> Floats:
        """||g - G||^2, as the paper has it; G's own error is part of it."""
        return self.squared_norms - 2 * self.products + self.reference.squared_norm

    @property
    def distances(self) -> Floats:
        """Unbiased estimates of E ||g - grad J||^2, see `precise_gradient.Reference`."""
        return self.plain - self.reference.error


class Pair(NamedTuple):
    """Two numbers that make a distance."""

    squared_norm: float
    product: float


class Task(NamedTuple):
    """One gradient to compute.

    Attributes:
        key: names it in the file of what is done.
        terms: its responses.
    """

    key: str
    terms: Terms


def measure(
    scores: ScoreSum,
    samples: Samples,
    plan: Plan,
    names: tuple[str, ...],
    out: Path,
    tell: Tell = lambda done, total: None,
) -> Measured:
    """Computes the precise gradient and the small batches' numbers, or what is missing of them.

    Args:
        scores: of the model that the samples are from.
        samples: the pool.
        plan: the batches.
        names: baselines to compare.
        out: what is computed is kept under `out/gradients`, by what it depends on.
        tell: see `Tell`.

    Raises:
        ValueError: the pool does not suffice, or a baseline cannot be compared.
    """
    check_names(names, samples)
    design = draw(len(samples.rewards), samples.rewards.shape[1], plan)
    folder = work_folder(out, samples, plan, scores)
    parts = precision.halves(samples, design.half)
    record = Record(folder / "batches.json")
    tasks = [task for task in _tasks(samples, design, plan, names) if task.key not in record.pairs]
    left = precision.left_to_do(parts, folder) + sum(len(task.terms.responses) for task in tasks)
    count = Count(left, tell)
    precise = precision.precise_gradient(scores, parts, folder, count.add)
    try:
        for task in tasks:
            scores.clear()
            scores.add(task.terms)
            total = scores.total
            record.add(task.key, Pair(dot(total, total), dot(total, precise.vector)))
            count.add(len(task.terms.responses))
    finally:
        record.save()
    return assembled(record.pairs, plan, names, precise.reference)


def _tasks(samples: Samples, design: Design, plan: Plan, names: tuple[str, ...]) -> Iterator[Task]:
    for batch in range(plan.batches):
        for m in plan.responses:
            for name in computed(names):
                yield Task(key(batch, m, name), batch_terms(samples, design, batch, m, name))


def computed(names: tuple[str, ...]) -> tuple[str, ...]:
    """The baselines whose gradients have to be computed for these names."""
    return tuple(dict.fromkeys(SCALED.get(name, name) for name in names))


def batch_terms(samples: Samples, design: Design, batch: int, m: int, name: str) -> Terms:
    """What is summed for one small batch with one baseline."""
    weights = batch_weights(samples, design, batch, m, name)
    columns = design.columns[batch, :, :m]
    return pool_terms(samples, design.prompts[batch], columns, weights)


def assembled(
    pairs: dict[str, Pair],
    plan: Plan,
    names: tuple[str, ...],
    reference: Reference,
    projection_errors: tuple[float, ...] = (),
) -> Measured:
    """The numbers of all batches as arrays, those of scaled baselines too."""
    shape = len(names), len(plan.responses), plan.batches
    norms, products = np.empty(shape), np.empty(shape)
    for a, name in enumerate(names):
        for c, m in enumerate(plan.responses):
            scale = (m - 1) / m if name in SCALED else 1.0
            for batch in range(plan.batches):
                pair = pairs[key(batch, m, SCALED.get(name, name))]
                norms[a, c, batch] = scale**2 * pair.squared_norm
                products[a, c, batch] = scale * pair.product
    return Measured(names, plan.responses, norms, products, reference, projection_errors)


def key(batch: int, m: int, name: str) -> str:
    """Names one gradient."""
    return f"{batch}/{m}/{name}"


class Record:
    """The file of what is done; saved now and then, and by `save`."""

    def __init__(self, path: Path):
        self._path = path
        self._saved = time.monotonic()
        self.pairs: dict[str, Pair] = {}
        if path.exists():
            self.pairs = {k: Pair(*pair) for k, pair in json.loads(path.read_bytes()).items()}

    def add(self, name: str, pair: Pair) -> None:
        """Keeps the numbers of one gradient."""
        self.pairs[name] = pair
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Writes the file."""
        with whole_file(self._path) as file:
            file.write(json.dumps(self.pairs).encode())
        self._saved = time.monotonic()


class Count:
    """Adds up what is done and tells it."""

    def __init__(self, total: int, tell: Tell):
        self._done, self._total, self._tell = 0, total, tell

    def add(self, more: int) -> None:
        """So many more."""
        self._done += more
        self._tell(self._done, self._total)


def work_folder(out: Path, samples: Samples, plan: Plan, scores: ScoreSum) -> Path:
    """Makes the folder under `out/gradients` for all that the numbers depend on.

    What it is named by stands in its `settings.json`: the model, the responses themselves, the
    plan, the temperature, the precision, and our version, since baselines may change with it.
    """
    tokens = hashlib.sha256(samples.rewards.tobytes())
    if samples.greedy_rewards is not None:
        tokens.update(samples.greedy_rewards.tobytes())
    for prompt, group in zip(samples.prompt_tokens, samples.response_tokens, strict=True):
        for each in (prompt, *group):
            tokens.update(np.asarray(each, dtype="<i4").tobytes() + b"\xff\xff\xff\xff")
    settings: dict[str, Any] = {
        "openrlhf_js": __version__,
        "model_sha256": samples.settings["model_sha256"],
        "samples_sha256": tokens.hexdigest(),
        **plan.__dict__,
        "temperature": scores.temperature,
        "dtype": str(scores.parameters[0].dtype),
    }
    text = json.dumps(plain(settings), indent=2, sort_keys=True)
    folder = out / "gradients" / hashlib.sha256(text.encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / "settings.json") as file:
        file.write(f"{text}\n".encode())
    return folder
