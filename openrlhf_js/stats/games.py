"""Games between models, and their sums as the Bradley-Terry fit needs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from openrlhf_js.stats.clusters import Labels, add_up, checked, checked_weights, codes
from openrlhf_js.stats.estimate import Floats


class Block(NamedTuple):
    """All games of one pair of models, summed over games that nothing tells apart.

    A cell is one cluster with one row of covariates; c cells.
    """

    first: int
    second: int
    clusters: NDArray[np.int64]
    """(c,) the cluster of each cell."""
    weights: Floats
    """(c,) sum of the weights of its games."""
    wins: Floats
    """(c,) sum of weight times result for the first model."""
    covariates: Floats
    """(c, K) first minus second."""


class Games(NamedTuple):
    """What `bradley_terry` fits: models, blocks, and the number of clusters."""

    models: tuple[str, ...]
    anchor: int
    blocks: list[Block]
    clusters: int
    covariates: int


def games(
    first: Sequence[str],
    second: Sequence[str],
    results: ArrayLike,
    *,
    anchor: str,
    clusters: Labels | None = None,
    weights: ArrayLike | None = None,
    covariates: ArrayLike | None = None,
) -> Games:
    """Sum the games up for the fit.

    Args:
        first: a model a game.
        second: its opponent.
        results: 1 where the first won, 0 where the second did, 1/2 for a tie; any share between.
        anchor: the model whose strength is 0, such as the baseline of a benchmark.
        clusters: a label a game, such as its question; None: each game by itself.
        weights: a game counts as that many, 0 or more; None: 1.
        covariates: (games, K), of the first model's response minus the second's, such as the
            difference of their lengths; None: none.

    Raises:
        ValueError: not one entry a game, values out of range, a model against itself, an unknown
            anchor, or a model that no chain of games connects with the anchor.
    """
    result = checked(results, "results")
    count = len(result)
    if not len(first) == len(second) == count:
        raise ValueError(f"{count} results for {len(first)} first and {len(second)} second models")
    if result.min() < 0 or result.max() > 1:
        raise ValueError(f"a result lies in [0, 1]; got {result.min():g} to {result.max():g}")
    weight = checked_weights(weights, count)
    style = _covariates(covariates, count)
    cluster, number = codes(clusters, count)
    models = tuple(sorted({*first, *second}))
    if anchor not in models:
        raise ValueError(f"the anchor {anchor!r} has no game; models are {', '.join(models[:10])}")
    place = {name: position for position, name in enumerate(models)}
    one = np.array([place[name] for name in first])
    two = np.array([place[name] for name in second])
    if (same := one == two).any():
        raise ValueError(
            f"game {int(same.argmax())} is {models[one[same.argmax()]]} against itself"
        )
    _check_connected(models, one, two, weight, place[anchor])

    # Every pair in one order, so that both orders of a game fall into one cell.
    turned = one > two
    low, high = np.minimum(one, two), np.maximum(one, two)
    result = np.where(turned, 1 - result, result)
    style = np.where(turned[:, None], -style, style)
    keys = np.column_stack([low, high, cluster, style])
    cells, cell = np.unique(keys, axis=0, return_inverse=True)
    cell_weights = add_up(weight, cell.ravel(), len(cells))
    cell_wins = add_up(weight * result, cell.ravel(), len(cells))
    starts = np.flatnonzero(np.diff(cells[:, :2], axis=0, prepend=-1).any(1))
    blocks = [
        Block(
            first=int(part[0, 0]),
            second=int(part[0, 1]),
            clusters=part[:, 2].astype(np.int64),
            weights=part_weights,
            wins=part_wins,
            covariates=np.ascontiguousarray(part[:, 3:]),
        )
        for part, part_weights, part_wins in zip(
            np.split(cells, starts[1:]),
            np.split(cell_weights, starts[1:]),
            np.split(cell_wins, starts[1:]),
            strict=True,
        )
    ]
    return Games(models, place[anchor], blocks, number, style.shape[1])


def unbounded(all_games: Games) -> tuple[str, ...]:
    """The models whose strength has no finite best value without a ridge.

    Ford, "Solution of a ranking problem from binary comparisons" (1957): strengths are finite if
    and only if every model can be reached from every other along games that were won or tied. A
    model that won all of its games cannot be reached, one that lost all reaches nobody.
    """
    edges = []
    for block in all_games.blocks:
        if block.wins.sum() > 0:
            edges.append((block.first, block.second))
        if (block.weights - block.wins).sum() > 0:
            edges.append((block.second, block.first))
    components = _components(len(all_games.models), np.array(edges), "strong")
    return tuple(
        name
        for name, component in zip(all_games.models, components, strict=True)
        if component != components[all_games.anchor]
    )


def _covariates(covariates: ArrayLike | None, count: int) -> Floats:
    if covariates is None:
        return np.zeros((count, 0))
    style = np.asarray(covariates, dtype=np.float64)
    if style.ndim != 2 or len(style) != count:
        raise ValueError(f"covariates must be ({count} games, K); got shape {style.shape}")
    if not np.isfinite(style).all():
        game = int((~np.isfinite(style).all(1)).argmax())
        raise ValueError(f"covariates must be finite; those of game {game} are {style[game]}")
    return style + 0.0  # -0.0 would be another key than 0.0


def _check_connected(
    models: tuple[str, ...],
    one: NDArray[np.int64],
    two: NDArray[np.int64],
    weight: Floats,
    anchor: int,
) -> None:
    played = weight > 0
    components = _components(len(models), np.column_stack([one[played], two[played]]), "weak")
    alone = [
        name
        for name, component in zip(models, components, strict=True)
        if component != components[anchor]
    ]
    if alone:
        raise ValueError(
            f"no chain of games connects {', '.join(alone[:5])} with the anchor {models[anchor]}: "
            "their strengths cannot be compared. Leave them out, or add games"
        )


def _components(models: int, edges: NDArray[np.int64], connection: str) -> NDArray[np.int32]:
    ends = (np.ones(len(edges)), (edges[:, 0], edges[:, 1]))
    graph = coo_array(ends, shape=(models, models))
    _, components = connected_components(graph, directed=True, connection=connection)
    return components
