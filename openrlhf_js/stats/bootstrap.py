"""Intervals by resampling, for averages of which neither level is one draw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from openrlhf_js.stats.clustered import checked
from openrlhf_js.stats.estimate import CONFIDENCE, Estimate

RESAMPLES = 10_000


def mean_of_means(groups: Sequence[ArrayLike]) -> Estimate:
    """The mean of the groups' means, with a 95 % interval over groups and what is in them.

    Each resample draws as many groups as there are, with replacement, and from each drawn group as
    many of its values; the ends are the 2.5 and the 97.5 percentile of its mean of means. Of few
    groups the interval is too narrow: of G it has about sqrt(1 - 1 / G) of its width.

    Args:
        groups: the values of each group, such as the differences of each cell by seed.
    """
    values = [checked(group) for group in groups]
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(values), size=(RESAMPLES, len(values)))
    means = np.empty(drawn.shape)
    for number, group in enumerate(values):
        places = drawn == number
        shape = (int(places.sum()), len(group))
        means[places] = rng.choice(group, size=shape).mean(axis=1)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(means.mean(axis=1), [tail, 100 - tail])
    value = np.mean([group.mean() for group in values])
    return Estimate(float(value), float(low), float(high))
