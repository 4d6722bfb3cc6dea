"""Weighted sums of score gradients, sum_k w_k grad log pi(y_k | x_k), of many responses.

log pi is the sum over the tokens of a response, the end token included, of the log-probabilities
that they were sampled with: of softmax(logits / temperature). It is not divided by the length: a
mean over tokens has no gradient that all baselines share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

Vector: TypeAlias = list[Tensor]  # one number for each trained parameter, in their order

PIECE = 1 << 24  # numbers that are taken to float64 at a time: 128 MB


class Response(NamedTuple):
    """Token ids of a prompt and of one response to it, the end token included; may be empty."""

    prompt: Sequence[int]
    response: Sequence[int] | NDArray[np.int32]

    @property
    def length(self) -> int:
        """Tokens of both."""
        return len(self.prompt) + len(self.response)


ScoreTerms: TypeAlias = list[tuple[Response, float]]  # with the weight of its score gradient


def terms(responses: Sequence[Response], weights: NDArray[np.float64]) -> ScoreTerms:
    """The responses that count: those with a token and a weight other than 0."""
    pairs = zip(responses, weights.tolist(), strict=True)
    return [(each, weight) for each, weight in pairs if weight and len(each.response)]


class ScoreSum:
    """A sum of weighted score gradients, and the passes that add to it.

    The sum is float32 whatever the model is (float64 for a float64 model). In bfloat16, with 8
    bits, a sum over thousands of micro-batches stops growing: what is added is less than half of
    its last bit. So each parameter's gradient is added to the sum as soon as a backward pass has
    finished with it, and freed: besides the sum, only single parameters have a gradient in memory.

    The model runs without dropout, and the gradient is of its parameters that require one.
    """

    def __init__(self, model: PreTrainedModel, temperature: float = 1.0, max_tokens: int = 8192):
        self.model, self.temperature, self.max_tokens = model.eval(), temperature, max_tokens
        self.parameters = [each for each in model.parameters() if each.requires_grad]
        self.total: Vector = [
            torch.zeros_like(each, dtype=torch.promote_types(each.dtype, torch.float32))
            for each in self.parameters
        ]
        for parameter, total in zip(self.parameters, self.total, strict=True):
            parameter.register_post_accumulate_grad_hook(partial(_add, total))

    def clear(self) -> None:
        """Sets the sum to 0."""
        for total in self.total:
            total.zero_()

    def add(
        self, terms: ScoreTerms, done: int = 0, on_pass: Callable[[int], None] = lambda done: None
    ) -> None:
        """Adds sum_k w_k grad log pi(y_k | x_k), except the `done` that an earlier call has added.

        `on_pass` is called after each micro-batch with how many have been added.
        """
        # Longest first, so that too little memory shows at once.
        ordered = sorted(terms, key=lambda term: -term[0].length)
        while done < len(ordered):
            most = max(1, self.max_tokens // ordered[done][0].length)
            self._backward(ordered[done : done + most])
            done = min(done + most, len(ordered))
            on_pass(done)

    def _backward(self, terms: ScoreTerms) -> None:
        width = max(each.length for each, _ in terms)
        tokens = torch.zeros(len(terms), width, dtype=torch.long)  # padded with any token
        weight = torch.zeros(len(terms), width - 1, dtype=torch.float64)
        for row, (each, w) in enumerate(terms):
            tokens[row, : each.length] = torch.tensor([*each.prompt, *each.response])
            weight[row, len(each.prompt) - 1 : each.length - 1] = w  # where a token is predicted
        device = self.parameters[0].device
        tokens, weight = tokens.to(device), weight.to(device, self.total[0].dtype)
        # Padding follows a response, and no token of it attends there: no mask is needed. Logits of
        # what all prompts have in common would be computed for nothing.
        first = min(len(each.prompt) for each, _ in terms) - 1
        kept = torch.arange(first, width - 1, device=device)
        logits = self.model(tokens[:, :-1], use_cache=False, logits_to_keep=kept).logits
        weight = weight[:, first:]
        used = weight != 0
        logits = logits[used].to(torch.promote_types(logits.dtype, torch.float32))
        targets = tokens[:, first + 1 :][used]
        surprise = cross_entropy(logits / self.temperature, targets, reduction="none")
        (-weight[used] * surprise).sum().backward()


def dot(a: Vector, b: Vector) -> float:
    """Inner product, in float64."""
    total = 0.0
    for x, y in zip(a, b, strict=True):
        pieces = zip(x.flatten().split(PIECE), y.flatten().split(PIECE), strict=True)
        total += sum(float(torch.dot(u.double(), v.double())) for u, v in pieces)
    return total


def _add(total: Tensor, parameter: Tensor) -> None:
    assert parameter.grad is not None
    total.add_(parameter.grad)
    parameter.grad = None
