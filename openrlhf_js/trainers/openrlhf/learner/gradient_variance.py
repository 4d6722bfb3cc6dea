"""The variance of the policy gradient, recorded during training without a second gradient.

For one optimizer step the estimator needs the sum of the squared norms of its micro-batches'
gradients, and the squared norm of their sum. A hook on each parameter accumulates the first, on
each rank and before any reduction: the same place in every ZeRO stage, and the only one where
ZeRO-3 shows a whole gradient. The second is DeepSpeed's own norm, before it clips.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from openrlhf_js.estimators.gradient import GradientMoments, GradientSums
from openrlhf_js.trainers.openrlhf.upstream import UpstreamMismatch

logger = logging.getLogger(__name__)

PIECE_ELEMENTS = 1 << 15  # elements of a CPU gradient that are squared at a time


def squared_norm(gradient: torch.Tensor) -> torch.Tensor:
    """The sum of squares of a gradient of any shape, as a scalar on its device."""
    if gradient.is_cuda:  # reduces as a tree, and reads bfloat16 as float32 without a copy
        return torch.linalg.vector_norm(gradient, dtype=torch.float32).square()
    # On a CPU the float32 norm of ten million elements is wrong in the third digit, and all other
    # ways copy what they read: hence small pieces.
    pieces = (piece.float() for piece in gradient.detach().flatten().split(PIECE_ELEMENTS))
    return torch.tensor(sum(torch.dot(x, x).item() for x in pieces), dtype=torch.float64)


class GradientVariance:
    """Measures every n-th optimizer step of a DeepSpeed engine; other steps cost nothing.

    All ranks measure the same steps and get the same numbers. `sums` holds the last measured step.
    """

    def __init__(self, engine: Any, every: int):
        self.sums: GradientSums | None = None
        self._engine = engine
        self._every = every
        self._trained = [
            (name, p) for name, p in self._engine.module.named_parameters() if p.requires_grad
        ]
        self._measured: list[GradientMoments] = []
        self._hooks: list[Any] = []
        self._seen: set[str] = set()  # parameters with a gradient from this micro-batch

    def metrics(self) -> dict[str, float]:
        """Means over the steps measured since the last call, for the log; {} without any.

        The signal-to-noise ratio is left out where the variance is not positive.
        """
        measured = self._measured
        self._measured = []
        if not measured:
            return {}
        variance = math.fsum(moments.variance for moments in measured) / len(measured)
        mean_square = math.fsum(moments.mean_square for moments in measured) / len(measured)
        scalars = {"js/gradient_variance": variance, "js/gradient_norm_squared": mean_square}
        if variance > 0:
            scalars["js/gradient_snr"] = mean_square / variance
        return scalars

    @contextlib.contextmanager
    def micro_batch(self, responses: int) -> Iterator[None]:
        """Surrounds the backward pass on one micro-batch, and the optimizer step after the last.

        Args:
            responses: the number of responses in the micro-batch.
        """
        steps = self._engine.global_steps
        if not self._hooks and steps % self._every == 0:
            self._begin()
        if self._hooks:
            self._responses += responses
            self._squared_responses += responses**2
            self._seen.clear()
        yield
        if self._hooks and not self._seen:
            raise UpstreamMismatch("--js.gradient_variance: no parameter's hook saw a gradient")
        if self._hooks and self._engine.global_steps > steps:
            self._end()

    def _begin(self) -> None:
        device = self._trained[0][1].device
        self._squares = torch.zeros((), dtype=torch.float64, device=device)
        self._responses = self._squared_responses = 0
        self._hooks = [parameter.register_hook(self._adder(n)) for n, parameter in self._trained]

    def _adder(self, name: str) -> Callable[[torch.Tensor | None], None]:
        def add(gradient: torch.Tensor | None) -> None:
            if gradient is None:  # a function that used the parameter gave it no gradient
                return
            # autograd sums all uses of a parameter in one backward pass before this hook, but a
            # reentrant checkpoint runs a pass of its own, and |a + b|^2 is not |a|^2 + |b|^2
            if name in self._seen:
                raise UpstreamMismatch(
                    f"the gradient of {name} comes in pieces, of which --js.gradient_variance "
                    "cannot know the norm: leave out --actor.gradient_checkpointing_reentrant"
                )
            self._seen.add(name)
            self._squares += squared_norm(gradient)

        return add

    def _end(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        counts = torch.tensor([self._responses, self._squared_responses], dtype=torch.float64)
        sums = torch.cat([self._squares.reshape(1), counts.to(self._squares.device)])
        dist.all_reduce(sums)
        squares, responses, squared_responses = sums.tolist()
        # DeepSpeed averages over the ranks: a rank's gradient counts 1 / ranks in the sum
        squares /= dist.get_world_size() ** 2
        norm = self._engine.get_global_grad_norm()  # before clipping; -1 where it is infinite
        if norm is None:
            raise UpstreamMismatch("--js.gradient_variance: DeepSpeed gives no gradient norm")
        square_of_sum = float(norm) ** 2 if norm >= 0 else math.nan
        self.sums = GradientSums(squares, square_of_sum, int(responses), int(squared_responses))
        moments = self.sums.moments()
        if moments is None:
            logger.warning(
                "a step of one micro-batch has no gradient variance: lower "
                "--train.micro_batch_size or --train.max_tokens_per_gpu"
            )
        elif all(map(math.isfinite, moments)):
            self._measured.append(moments)
