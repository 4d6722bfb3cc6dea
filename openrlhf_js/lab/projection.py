"""Random projection of gradients to K numbers, which keeps their distances.

A count sketch (Charikar, Chen and Farach-Colton 2002): each parameter p has a random bucket h(p)
of K and a random sign s(p), and

    (S g)_k = sum_{p: h(p) = k} s(p) g_p.

It is linear, E ||S g||^2 = ||g||^2, and

    Var ||S g||^2 = 2/K (||g||^4 - sum_p g_p^4),

so that a squared distance is right to a relative error of sqrt(2/K): 2.2 % for K = 4096. Two
distances in the same sketch share most of it where the gradients are alike, as those of two
baselines on one batch are. There is no K x P matrix: buckets and signs are one int32 a parameter,
a vector of the model's size.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from openrlhf_js.lab.policy_gradient import Vector


def check_dimensions(dimensions: int) -> None:
    """Raises ValueError unless so many dimensions can be projected to."""
    if not 2 <= dimensions < 2**30:
        raise ValueError(
            f"a projection needs 2 dimensions or more, below 2^30; got {dimensions}. 4096 are "
            "exact to 2 %"
        )


class Sketch:
    """The projection; the same for the same seed, on every device.

    Args:
        like: a vector of the shapes that will be given.
        dimensions: K.
        seed: of buckets and signs.
        kept: buckets stay in memory; otherwise they are drawn anew with every vector.

    Raises:
        ValueError: see `check_dimensions`.
    """

    def __init__(self, like: Vector, dimensions: int, seed: int, kept: bool = True):
        check_dimensions(dimensions)
        self.dimensions = dimensions
        self._seed = seed
        self._kept = list(self._places(like)) if kept else None

    def __call__(self, vector: Vector) -> Tensor:
        """(K,) S g, in the vector's dtype and on its device."""
        sums = torch.zeros(2 * self.dimensions, dtype=vector[0].dtype, device=vector[0].device)
        for places, part in zip(self._kept or self._places(vector), vector, strict=True):
            sums.index_add_(0, places, part.flatten())
        return sums[: self.dimensions] - sums[self.dimensions :]

    def _places(self, like: Vector) -> Iterator[Tensor]:
        """The bucket of every number; bucket k with the sign - is k + K."""
        generator = torch.Generator().manual_seed(self._seed)
        for part in like:
            places = torch.randint(
                2 * self.dimensions, (part.numel(),), generator=generator, dtype=torch.int32
            )
            yield places.to(part.device)
