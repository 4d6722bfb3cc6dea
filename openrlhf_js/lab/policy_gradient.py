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

from openrlhf_js.stats.estimate import Floats

Vector: TypeAlias = list[Tensor]  # one number for each trained parameter, in their order

PIECE = 1 << 24  # numbers that are taken to float64 at a time: 128 MB


class TokenSequence(NamedTuple):
    """Token ids of a prompt and of one response to it, the end token included; may be empty."""

    prompt: Sequence[int]
    response: Sequence[int] | NDArray[np.int32]

    @property
    def length(self) -> int:
        """Tokens of both."""
        return len(self.prompt) + len(self.response)


class ScoreTerm(NamedTuple):
    """A response, and the weight of its score gradient in a sum."""

    response: TokenSequence
    weight: float


ScoreTerms: TypeAlias = list[ScoreTerm]


def terms(responses: Sequence[TokenSequence], weights: Floats) -> ScoreTerms:
    """The responses that count: those with a token and a weight other than 0."""
    pairs = zip(responses, weights.tolist(), strict=True)
    return [
        ScoreTerm(response, weight)
        for response, weight in pairs
        if weight and len(response.response)
    ]


class ScoreSum:
    """A sum of weighted score gradients, and the passes that add to it.

    Attributes:
        parameters: those of the model that require a gradient.
        total: the sum, a tensor for each of them.

    The sum is float32 whatever the model is (float64 for a float64 model). In bfloat16, with 8
    bits, a sum over thousands of micro-batches stops growing: what is added is less than half of
    its last bit. So each parameter's gradient is added to the sum as soon as a backward pass has
    finished with it, and freed: besides the sum, only single parameters have a gradient in memory.

    The model runs without dropout, and the gradient is of its parameters that require one.
    """

    def __init__(self, model: PreTrainedModel, temperature: float = 1.0, max_tokens: int = 8192):
        self.model = model.eval()
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.total: Vector = []
        for parameter in self.parameters:
            total = torch.zeros_like(parameter, dtype=_at_least_float32(parameter))
            parameter.register_post_accumulate_grad_hook(partial(_add, total))
            self.total.append(total)

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
        ordered = sorted(terms, key=lambda term: -term.response.length)
        while done < len(ordered):
            longest = ordered[done].response.length
            size = max(1, self.max_tokens // longest)
            self._backward(ordered[done : done + size])
            done = min(done + size, len(ordered))
            on_pass(done)

    def _backward(self, terms: ScoreTerms) -> None:
        """Adds one micro-batch, by one pass forward and one back."""
        tokens, weights = _padded(terms)
        device = self.parameters[0].device
        tokens = tokens.to(device)
        weights = weights.to(device, self.total[0].dtype)
        # Padding follows a response, and no token of it attends there: no mask is needed. Logits of
        # what all prompts have in common would be computed for nothing.
        first = min(len(response.prompt) for response, _ in terms) - 1
        kept = torch.arange(first, weights.shape[1], device=device)
        output = self.model(tokens[:, :-1], use_cache=False, logits_to_keep=kept)
        weights = weights[:, first:]
        used = weights != 0
        used_weights = weights[used]
        targets = tokens[:, first + 1 :][used]
        logits = output.logits[used]
        logits = logits.to(_at_least_float32(logits)) / self.temperature
        surprise = cross_entropy(logits, targets, reduction="none")
        loss = -(used_weights * surprise).sum()
        loss.backward()


def _padded(terms: ScoreTerms) -> tuple[Tensor, Tensor]:
    """Tokens (b, T) of a micro-batch, padded at the end with any token, and weights (b, T - 1).

    A weight belongs to the prediction of the next token, and is 0 but where it is of the response.
    """
    width = max(response.length for response, _ in terms)
    tokens = torch.zeros(len(terms), width, dtype=torch.long)
    weights = torch.zeros(len(terms), width - 1, dtype=torch.float64)
    for row, (response, weight) in enumerate(terms):
        start = len(response.prompt)
        end = response.length
        tokens[row, :start] = torch.tensor(response.prompt)
        tokens[row, start:end] = torch.as_tensor(response.response)
        weights[row, start - 1 : end - 1] = weight
    return tokens, weights


def _at_least_float32(tensor: Tensor) -> torch.dtype:
    """The dtype of a tensor's sums."""
    return torch.promote_types(tensor.dtype, torch.float32)


def dot(a: Vector, b: Vector) -> float:
    """Inner product, in float64."""
    total = 0.0
    for left, right in zip(a, b, strict=True):
        left_pieces = left.flatten().split(PIECE)
        right_pieces = right.flatten().split(PIECE)
        product = 0.0
        for x, y in zip(left_pieces, right_pieces, strict=True):
            product += float(torch.dot(x.double(), y.double()))
        total += product
    return total


def _add(total: Tensor, parameter: Tensor) -> None:
    """Moves a parameter's gradient into the sum."""
    assert parameter.grad is not None
    total.add_(parameter.grad)
    parameter.grad = None
