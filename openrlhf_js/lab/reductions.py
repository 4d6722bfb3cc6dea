"""How much lower one mean error is than another: the number with its interval, and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from openrlhf_js.uncertainty import Estimate, clustered_mean, ratio_of_means
from openrlhf_js.uncertainty.estimate import Floats


def reduction(ours: Floats, theirs: Floats) -> Estimate | None:
    """How much lower the mean of ours is, in percent of the mean of theirs; paired by row.

    Rows from which the error of what they are compared to was taken off may be below 0, and are no
    weights for `ratio_of_means`. Then, with R = sum a / sum b, the interval is that of the mean of
    a - R b in units of the mean of b: the delta method. It has no ends where the mean of theirs
    may itself be 0.

    Args:
        ours: (rows,) errors of a baseline.
        theirs: (rows,) errors of the reference.

    Returns:
        None if the mean of theirs is not above 0.
    """
    mean = float(theirs.mean())
    if not mean > 0:
        return None
    if theirs.min() >= 0:
        share = ratio_of_means(ours, theirs)
        return Estimate(*(100 * (1 - end) for end in (share.value, share.high, share.low)))
    ratio = float(ours.mean()) / mean
    half = math.inf
    if clustered_mean(theirs).low > 0:
        half = clustered_mean(ours - ratio * theirs).half_width / mean
    return Estimate(100 * (1 - ratio), 100 * (1 - ratio - half), 100 * (1 - ratio + half))


def percent(of: Estimate, draws: str = "batches") -> str:
    """A reduction in words, which says so if it drowns in noise.

    Args:
        of: in percent.
        draws: what the interval is over.
    """
    low, high = (f"{end:.1f}" if math.isfinite(end) else "unknown" for end in of[1:])
    meaning = f": no difference that these {draws} show"
    if of.low > 0 or of.high < 0:
        meaning = ": raised" if of.high < 0 else ""
    return f"{of.value:.1f} % ({low} to {high}{meaning})"


def listed(parts: Sequence[str]) -> str:
    """Parts of a sentence, with commas and "and"."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last
