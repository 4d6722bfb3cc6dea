"""`gradient.measure` with a projection: one pass a response, for all baselines and batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from openrlhf_js.lab import precise_gradient as precision
from openrlhf_js.lab.gradient import (
    Count,
    Measured,
    Pair,
    Tell,
    assembled,
    batch_terms,
    computed,
    key,
    work_folder,
)
from openrlhf_js.lab.policy_gradient import ScoreSum, dot
from openrlhf_js.lab.precise_gradient import Reference, pool_terms
from openrlhf_js.lab.projection import Sketch, check_dimensions
from openrlhf_js.lab.small_batches import (
    Design,
    Ints,
    Plan,
    batch_weights,
    check_names,
    draw,
)
from openrlhf_js.lab.store import Samples
from openrlhf_js.uncertainty.estimate import Floats
from openrlhf_js.whole_file import whole_file

PART = 256  # responses whose projections are saved together
CHECKED = 5  # gradients of small batches that are computed exactly too


def measure_projected(
    scores: ScoreSum,
    samples: Samples,
    plan: Plan,
    names: tuple[str, ...],
    out: Path,
    dimensions: int,
    tell: Tell = lambda done, total: None,
) -> Measured:
    """As `gradient.measure`, from projections of the small batches' responses.

    The precise gradient is computed as there and then projected. A few small batches' gradients
    are computed exactly too, with the first baseline and the smallest m: their squared norms, and
    that of G, tell the projection's error. Beside the model there are the sum and the buckets.

    Args:
        scores: of the model that the samples are from.
        samples: the pool.
        plan: the batches.
        names: baselines to compare.
        out: as in `gradient.measure`.
        dimensions: K.
        tell: see `gradient.Tell`.

    Raises:
        ValueError: the pool does not suffice, a baseline cannot be compared, or too small a K.
    """
    check_names(names, samples)
    check_dimensions(dimensions)
    design = draw(len(samples.rewards), samples.rewards.shape[1], plan)
    folder = work_folder(out, samples, plan, scores)
    kept = folder / f"projected-{dimensions}"
    kept.mkdir(exist_ok=True)
    parts = precision.halves(samples, design.half)
    first = computed(names)[0], min(plan.responses)
    checks = [
        found
        for batch in range(min(CHECKED, plan.batches))
        if (found := batch_terms(samples, design, batch, first[1], first[0])).responses
    ]
    used = _used(design)
    left = precision.left_to_do(parts, folder) + _missing(used, kept)
    count = Count(left + sum(len(each.responses) for each in checks), tell)

    precise = precision.precise_gradient(scores, parts, folder, count.add)
    passing = Sketch(scores.total, dimensions, plan.seed, kept=False)
    aim, reference = _plain(passing(precise.vector)), precise.reference
    del precise  # there is room for two vectors: the sum, and from now on the buckets
    sketch = Sketch(scores.total, dimensions, plan.seed)
    rows = _projections(scores, samples, used, sketch, kept, count)
    errors = [_error(aim, reference.squared_norm)]
    for each in checks:
        scores.clear()
        scores.add(each)
        errors.append(_error(_plain(sketch(scores.total)), dot(scores.total, scores.total)))
        count.add(len(each.responses))
    pairs = _pairs(samples, design, plan, computed(names), used, rows, aim)
    projected = Reference(float(aim @ aim), reference.error, reference.signal)
    return assembled(pairs, plan, names, projected, tuple(errors))


def _used(design: Design) -> Ints:
    """(responses, 2) row and column of every response of a small batch, once, in order."""
    rows = np.broadcast_to(design.prompts[:, :, None], design.columns.shape)
    return np.unique(np.stack([rows, design.columns], -1).reshape(-1, 2), axis=0)


def _missing(used: Ints, folder: Path) -> int:
    starts = range(0, len(used), PART)
    return sum(len(used[s : s + PART]) for s in starts if not _path(folder, s).exists())


def _path(folder: Path, start: int) -> Path:
    return folder / f"{start:06d}.npy"


def _projections(
    scores: ScoreSum, samples: Samples, used: Ints, sketch: Sketch, folder: Path, count: Count
) -> Floats:
    """(responses, K) the projected score gradient of each, float32; from files where they are."""
    found = []
    for start in range(0, len(used), PART):
        path = _path(folder, start)
        if not path.exists():
            part = np.zeros((len(used[start : start + PART]), sketch.dimensions), np.float32)
            for row, (prompt, column) in enumerate(used[start : start + PART]):
                one = np.ones((1, 1))
                scores.clear()
                scores.add(pool_terms(samples, prompt[None], column[None, None], one))
                part[row] = _plain(sketch(scores.total))
                count.add(1)
            with whole_file(path) as file:
                np.save(file, part)
        found.append(np.load(path))
    return np.concatenate(found)


def _pairs(
    samples: Samples,
    design: Design,
    plan: Plan,
    names: tuple[str, ...],
    used: Ints,
    rows: Floats,
    aim: Floats,
) -> dict[str, Pair]:
    """The numbers of every gradient as sums of projections; aim is that of G."""
    place = np.zeros(samples.rewards.shape, dtype=np.int64)
    place[tuple(used.T)] = np.arange(len(used))
    pairs = {}
    for batch, prompts in enumerate(design.prompts):
        vectors = rows[place[prompts[:, None], design.columns[batch]]]  # (n, m, K)
        for m in plan.responses:
            for name in names:
                weights = batch_weights(samples, design, batch, m, name)
                g = np.tensordot(weights, vectors[:, :m], 2)
                pairs[key(batch, m, name)] = Pair(float(g @ g), float(g @ aim))
    return pairs


def _plain(projected: Tensor) -> Floats:
    return projected.to("cpu", torch.float64).numpy()


def _error(projected: Floats, exact: float) -> float:
    """Relative error of a squared norm; 0 where the vector is 0."""
    return float(projected @ projected) / exact - 1 if exact else 0.0
