"""What an inline run asks of the order of its problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from openrlhf_js.tiny.tasks import Problem


class ProblemBatch(NamedTuple):
    """Problems of one step."""

    problems: Sequence[Problem]
    weights: Tensor  # (n,) of their advantages


class OrderFigures(NamedTuple):
    """Of a run's batches; None where prompts are not chosen."""

    effective_prompts: float | None = None
    oldest: int | None = None


class ProblemOrder(Protocol):
    """What an inline run asks of the order of its problems."""

    problems: Sequence[Problem]
    """All of them."""
    filters: bool
    """Whether groups of equal rewards are dropped, and others sampled in their place."""

    def figures(self) -> OrderFigures:
        """What was measured of the batches so far."""

    def batch(self, step: int, size: int) -> ProblemBatch:
        """So many more problems of a step."""

    def learn(self, step: int, problems: Sequence[Problem], rewards: Tensor) -> None:
        """Learns from rewards (n, m) of a step."""
