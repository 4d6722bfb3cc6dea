"""pass@k: the probability that at least one of k samples is right, from n samples an item."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from openrlhf_js.stats.clusters import Labels
from openrlhf_js.stats.estimate import CONFIDENCE, Estimate, Floats
from openrlhf_js.stats.proportions import clustered_proportion


def pass_at_k(samples: ArrayLike, correct: ArrayLike, k: int) -> Floats:
    """The unbiased estimate of pass@k of each item.

    Of all subsets of k of the n samples, the share that holds one of the c correct ones:

        1 - binom(n - c, k) / binom(n, k) = 1 - prod_(i = n-c+1)^n (i - k) / i

    The product takes no factorial, so nothing overflows, and each of its factors is in [0, 1].
    Source: Chen et al., "Evaluating large language models trained on code" (2021), equation 1. For
    k = 1 it is c / n, so the mean over items is mean@n.

    Args:
        samples: (items,) number n of samples of each item, or one number for all.
        correct: (items,) number c of correct ones.
        k: 1 <= k <= n for every item.

    Returns:
        (items,) in [0, 1].

    Raises:
        ValueError: no item, counts that are not whole or not 0 <= c <= n, or k out of range.
    """
    right = _counts(correct, "correct")
    drawn = np.broadcast_to(_counts(samples, "samples"), right.shape)
    if (wrong := (right < 0) | (right > drawn)).any():
        item = int(wrong.argmax())
        raise ValueError(f"item {item} has {right[item]} correct of {drawn[item]} samples")
    if not 1 <= k <= drawn.min():
        raise ValueError(
            f"pass@{k} needs 1 <= k <= samples; the fewest samples of an item are {drawn.min()}"
        )
    result = np.empty(right.shape)
    for n in np.unique(drawn):
        last = n - np.arange(n)  # n, n - 1, ...: the factor that each further correct one brings
        missed = np.cumprod(np.clip((last - k) / last, 0, 1))
        table = 1 - np.concatenate([[1.0], missed])
        here = drawn == n
        result[here] = table[right[here]]
    return result


def mean_pass_at_k(
    samples: ArrayLike,
    correct: ArrayLike,
    k: int,
    *,
    clusters: Labels | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The mean of `pass_at_k` over items, with the interval of `clustered_proportion`.

    Each item is one draw, whatever its number of samples: the interval says how the mean would
    vary over other items of the same kind, and other samples of the same model. Items that were
    made from one another share a label in `clusters`.

    Raises:
        ValueError: as `pass_at_k`.
    """
    return clustered_proportion(pass_at_k(samples, correct, k), clusters, confidence=confidence)


def _counts(values: ArrayLike, name: str) -> np.ndarray:
    numbers = np.atleast_1d(np.asarray(values))
    if numbers.ndim != 1 or numbers.size == 0:
        raise ValueError(f"{name} must be one number an item, not empty; got {numbers.shape}")
    if not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError(f"{name} must be whole numbers, got {numbers.dtype}")
    return numbers.astype(np.int64)
