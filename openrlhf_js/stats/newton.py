"""Newton's method for many weighted Bradley-Terry fits at once.

The fits differ in how often each cluster counts, and in nothing else. Axes: B fits, P = models + K
parameters (strengths, then coefficients), C clusters, c cells of one block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from openrlhf_js.stats.estimate import Floats
from openrlhf_js.stats.games import Block, Games

STEPS = 100
FITS_AT_ONCE_NUMBERS = 50_000  # probabilities of one block held at a time: they fit a cache
ROUNDING = 1e-12
TOLERANCE = 1e-4
"""A step below it leaves an error of about its square: the steps converge quadratically."""


class Curve(NamedTuple):
    """The penalised log-likelihood, turned over, with its derivatives."""

    loss: Floats
    """(B,)"""
    gradient: Floats
    """(B, P)"""
    curvature: Floats
    """(B, P, P)"""


class Design:
    """What is the same in every fit."""

    def __init__(self, games: Games, ridge: float) -> None:
        self.ridge = ridge
        self.blocks = games.blocks
        self.models = len(games.models)
        self.parameters = self.models + games.covariates
        self.free = np.delete(np.arange(self.parameters), games.anchor)
        self.upper = np.triu_indices(games.covariates)
        self.columns = [self._columns(block) for block in games.blocks]
        self.wins = np.zeros((games.clusters, self.parameters))
        for block in games.blocks:
            np.add.at(self.wins[:, block.first], block.clusters, block.wins)
            np.add.at(self.wins[:, block.second], block.clusters, -block.wins)
            np.add.at(
                self.wins[:, self.models :], block.clusters, block.wins[:, None] * block.covariates
            )

    def _columns(self, block: Block) -> Floats:
        """(c, 1 + K + K (K + 1) / 2): 1, the covariates, and their products."""
        x = block.covariates
        products = x[:, self.upper[0]] * x[:, self.upper[1]]
        return np.column_stack([np.ones(len(x)), x, products])

    def block_weights(self, counts: Floats) -> list[Floats]:
        """For each block (B, c); without covariates all its cells are one."""
        if self.parameters == self.models:
            return [(counts[:, b.clusters] @ b.weights)[:, None] for b in self.blocks]
        return [counts[:, block.clusters] * block.weights for block in self.blocks]

    def curve(self, at: Floats, weights: list[Floats], wins: Floats) -> Curve:
        """The loss and its derivatives at parameters (B, P).

        With x the columns 1 and covariates of a cell, w its weight, s its wins:

            loss = sum w log(1 + e^eta) - s eta + ridge |p|^2 / 2        eta = p_i - p_j + beta x
            gradient = sum (w p - s) x         curvature = sum w p (1 - p) x x'

        Args:
            at: (B, P).
            weights: of `block_weights`.
            wins: (B, P) sums of wins times x, the same at all parameters.
        """
        k = self.parameters - self.models
        loss = self.ridge / 2 * np.square(at).sum(1) - (wins * at).sum(1)
        gradient = self.ridge * at - wins
        curvature = np.zeros((len(at), self.parameters, self.parameters))
        diagonal = np.arange(self.parameters)
        curvature[:, diagonal, diagonal] = self.ridge
        rest = slice(self.models, None)
        for block, weight, columns in zip(self.blocks, weights, self.columns, strict=True):
            i, j = block.first, block.second
            eta = (at[:, i] - at[:, j])[:, None]
            if k:
                eta = eta + at[:, rest] @ block.covariates.T
            small = np.exp(-np.abs(eta))
            loss += np.einsum("bc,bc->b", weight, np.log1p(small) + np.maximum(eta, 0))
            share = 1 / (1 + small)
            expected = weight * np.where(eta >= 0, share, small * share)
            first_moments = expected @ columns[: expected.shape[1], : 1 + k]
            moments = (weight * small * np.square(share)) @ columns[: expected.shape[1]]
            gradient[:, i] += first_moments[:, 0]
            gradient[:, j] -= first_moments[:, 0]
            gradient[:, rest] += first_moments[:, 1:]
            for a, b, sign in ((i, i, 1), (j, j, 1), (i, j, -1), (j, i, -1)):
                curvature[:, a, b] += sign * moments[:, 0]
            if k:
                mixed = moments[:, 1 : 1 + k]
                curvature[:, i, rest] += mixed
                curvature[:, j, rest] -= mixed
                curvature[:, self.models + self.upper[0], self.models + self.upper[1]] += moments[
                    :, 1 + k :
                ]
        if k:
            # Only one triangle was summed.
            curvature[:, rest, : self.models] = curvature[:, : self.models, rest].swapaxes(1, 2)
            corner = curvature[:, rest, rest]
            upper = np.triu(corner, 1)
            curvature[:, rest, rest] = np.triu(corner) + upper.swapaxes(1, 2)
        return Curve(loss, gradient, curvature)

    def fit(self, counts: Floats, start: Floats) -> Floats:
        """Return the best parameters (B, P) when each cluster counts `counts` (B, C) times.

        Newton's step, halved for as long as it does not lower the loss. The loss is convex, and
        strictly so with a ridge, so there is one minimum and this finds it.

        Args:
            counts: (B, C).
            start: (P,) where to begin; the anchor's strength is 0 and stays so.

        Raises:
            RuntimeError: no convergence in STEPS steps, which cannot happen with a ridge.
        """
        widest = max(len(block.weights) for block in self.blocks)
        at_once = max(1, FITS_AT_ONCE_NUMBERS // widest)
        parts = [
            self._fit_part(counts[begin : begin + at_once], start)
            for begin in range(0, len(counts), at_once)
        ]
        return np.concatenate(parts)

    def _fit_part(self, counts: Floats, start: Floats) -> Floats:
        weights, wins = self.block_weights(counts), counts @ self.wins
        at = np.tile(start, (len(counts), 1))
        here = self.curve(at, weights, wins)
        scale = np.ones(len(counts))
        for _ in range(STEPS):
            step = np.zeros_like(at)
            curvature = here.curvature[:, self.free[:, None], self.free]
            gradient = here.gradient[:, self.free, None]
            step[:, self.free] = -np.linalg.solve(curvature, gradient)[..., 0]
            if np.abs(step).max() < TOLERANCE:
                return at + step
            step *= scale[:, None]
            there = self.curve(at + step, weights, wins)
            # The loss is a difference of large sums: below their rounding there is no better.
            rounding = ROUNDING * (np.abs(here.loss) + np.abs(wins * at).sum(1))
            better = there.loss <= here.loss + rounding
            at = np.where(better[:, None], at + step, at)
            here = Curve(
                *(
                    np.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)
                    for new, old in zip(there, here, strict=True)
                )
            )
            scale = np.where(better, np.minimum(2 * scale, 1), scale / 2)
        raise RuntimeError(f"the Bradley-Terry fit did not converge in {STEPS} steps")
