"""The precise policy gradient of a pool, in two halves that tell how precise it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from openrlhf_js.estimators import baseline
from openrlhf_js.lab.policy_gradient import (
    Response,
    ScoreSum,
    Terms,
    Vector,
    dot,
    squared_distance,
    terms,
)
from openrlhf_js.lab.small_batches import Ints
from openrlhf_js.lab.store import Samples
from openrlhf_js.uncertainty.estimate import Floats
from openrlhf_js.whole_file import whole_file

SAVE_SECONDS = 60.0  # between two saves of a half that is not done


class Reference(NamedTuple):
    """What is known of G = (G_1 + G_2) / 2 without the vector.

    The halves are independent and unbiased for the gradient of the pool's prompts, grad J. So

        E ||G_1 - G_2||^2 / 4 = E ||G - grad J||^2        E <G_1, G_2> = ||grad J||^2

    and for a gradient g of other responses, E (||g - G||^2 - ||G_1 - G_2||^2 / 4) =
    E ||g - grad J||^2.

    Attributes:
        squared_norm: ||G||^2.
        error: ||G_1 - G_2||^2 / 4.
        signal: <G_1, G_2>, which noise may make negative.
    """

    squared_norm: float
    error: float
    signal: float


class Precise(NamedTuple):
    """G, and what is known of it."""

    vector: Vector
    reference: Reference


def halves(samples: Samples, half: int) -> list[Terms]:
    """The two halves, each with the baseline `rloo`, whose gradient is unbiased.

    Args:
        samples: the pool.
        half: responses a prompt in each.
    """
    every = np.arange(len(samples.prompts))
    found = []
    for columns in (np.arange(half), np.arange(half, 2 * half)):
        rewards = torch.from_numpy(samples.rewards[:, columns])
        weights = ((rewards - baseline("rloo", rewards)) / rewards.numel()).numpy()
        found.append(pool_terms(samples, every, np.tile(columns, (len(every), 1)), weights))
    return found


def pool_terms(samples: Samples, prompts: Ints, columns: Ints, weights: Floats) -> Terms:
    """Responses of the pool with their weights.

    Args:
        samples: the pool.
        prompts: (n,) rows of the pool.
        columns: (n, m) columns of the pool.
        weights: (n, m).
    """
    responses = [
        Response(samples.prompt_tokens[prompt], samples.response_tokens[prompt][column])
        for prompt, chosen in zip(prompts.tolist(), columns.tolist(), strict=True)
        for column in chosen
    ]
    return terms(responses, weights.ravel())


def precise_gradient(
    scores: ScoreSum,
    parts: list[Terms],
    folder: Path,
    tell: Callable[[int], None] = lambda more: None,
) -> Precise:
    """The precise gradient; what an earlier call has left in the folder is not computed again.

    The first half is kept while the second is summed, so there are two vectors beside the model.
    Files are `precise.pt`, and before it `half-0.pt` and `half-1.pt`, each of the model's size.

    Args:
        scores: sums up; its sum is used.
        parts: of `halves`.
        folder: exists, and is used for this pool and model alone.
        tell: told how many more responses have been added.
    """
    path = folder / "precise.pt"
    if path.exists():
        found = _load(path)
        device = scores.total[0].device
        return Precise([part.to(device) for part in found.pop("vector")], Reference(**found))
    _sum_up(scores, parts[0], folder / "half-0.pt", tell)
    vector = [total.clone() for total in scores.total]
    _sum_up(scores, parts[1], folder / "half-1.pt", tell)
    error = squared_distance(vector, scores.total) / 4
    signal = dot(vector, scores.total)
    for first, second in zip(vector, scores.total, strict=True):
        first.add_(second).div_(2)
    reference = Reference(dot(vector, vector), error, signal)
    with whole_file(path) as file:
        torch.save({"vector": vector, **reference._asdict()}, file)
    for number in range(2):
        (folder / f"half-{number}.pt").unlink(missing_ok=True)
    return Precise(vector, reference)


def left_to_do(parts: list[Terms], folder: Path) -> int:
    """How many responses `precise_gradient` would add."""
    if (folder / "precise.pt").exists():
        return 0
    return sum(
        len(part.responses) - _done(folder / f"half-{number}.pt")
        for number, part in enumerate(parts)
    )


def _sum_up(scores: ScoreSum, half: Terms, path: Path, tell: Callable[[int], None]) -> None:
    """Leaves the half's gradient in `scores.total` and in the file."""
    scores.clear()
    before = 0
    if path.exists():
        found = _load(path)
        before = found["done"]
        for total, part in zip(scores.total, found["vector"], strict=True):
            total.copy_(part)
    last, saved, now = len(half.responses), time.monotonic(), before

    def on_pass(done: int) -> None:
        nonlocal saved, now
        tell(done - now)
        now = done
        if done == last or time.monotonic() - saved > SAVE_SECONDS:
            with whole_file(path) as file:
                torch.save({"done": done, "vector": scores.total}, file)
            saved = time.monotonic()

    scores.add(half, done=before, on_pass=on_pass)


def _done(path: Path) -> int:
    return int(_load(path)["done"]) if path.exists() else 0


def _load(path: Path) -> dict[str, Any]:
    # From the file as it is needed: a whole vector more would not have room in memory.
    found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return found
