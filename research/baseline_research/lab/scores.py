"""Score gradients of single responses, s = grad log pi(y | x), as sketches.

log pi is the sum of the log-probabilities that a response's tokens, the end token included, were
sampled with: those of softmax(logits / temperature). It is not divided by the length: the expected
gradient of a mean over tokens depends on the baseline.

A sketch is K sums of the gradient's entries with random signs. Inner products of sketches are
unbiased for those of gradients, with a standard deviation of about |s| |s'| / sqrt(K).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

NUMBERS = 1 << 14  # K
SIGNS_SEED = 0


class TokenSequence(NamedTuple):
    """Token ids of a prompt and of one response with its end token; the response may be empty."""

    prompt: Sequence[int]
    response: Sequence[int] | NDArray[np.int32]


class Score(NamedTuple):
    """The results of one pass over a response."""

    sketch: Tensor
    """(K,) of its score gradient, float32, on the CPU."""
    squared_norm: float
    """||s||^2, of the gradient itself."""
    log_probs: Tensor
    """(T,) of its tokens, on the CPU."""


class ScoreSketcher:
    """Sketches a model's score gradients, for parameters that require gradients, without dropout.

    Each parameter's gradient is sketched and freed as soon as the backward pass has finished with
    it. Beyond the model, memory holds one byte per parameter and the gradients of a few.
    """

    def __init__(self, model: PreTrainedModel, temperature: float = 1.0, numbers: int = NUMBERS):
        self.model = model.eval()
        self.temperature = temperature
        self.numbers = numbers
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.dtype = parameters[0].dtype
        self._sketch = torch.zeros(numbers, device=model.device)
        self._squared_norm = torch.zeros((), dtype=torch.float64, device=model.device)
        generator = torch.Generator().manual_seed(SIGNS_SEED)  # the same on every device
        first = 0
        for parameter in parameters:
            bits = torch.randint(2, (parameter.numel(),), generator=generator, dtype=torch.int8)
            signs = (2 * bits - 1).to(parameter.device)
            parameter.register_post_accumulate_grad_hook(partial(self._add, signs, first))
            first += parameter.numel()

    def __call__(self, response: TokenSequence) -> Score:
        """Runs one forward and one backward pass."""
        self._sketch.zero_()
        self._squared_norm.zero_()
        log_probs = torch.zeros(0)
        if len(response.response):
            log_probs = self._log_probs(response)
            log_probs.sum().backward()
        return Score(
            sketch=self._sketch.cpu().clone(),
            squared_norm=float(self._squared_norm),
            log_probs=log_probs.detach().cpu(),
        )

    def _log_probs(self, response: TokenSequence) -> Tensor:
        """(T,) log-probabilities, with gradient."""
        tokens = torch.tensor([[*response.prompt, *response.response]], device=self.model.device)
        start = len(response.prompt)
        kept = torch.arange(start - 1, tokens.shape[1] - 1, device=tokens.device)
        logits = self.model(tokens[:, :-1], use_cache=False, logits_to_keep=kept).logits[0]
        logits = logits.float() / self.temperature
        return -F.cross_entropy(logits, tokens[0, start:], reduction="none")

    def _add(self, signs: Tensor, first: int, parameter: Tensor) -> None:
        """Adds a parameter's gradient to the sketch; its entries are numbered from `first` on."""
        assert parameter.grad is not None
        gradient = parameter.grad.flatten().float()
        parameter.grad = None
        self._squared_norm += gradient.square().sum()
        front = first % self.numbers
        back = -(front + len(gradient)) % self.numbers
        padded = F.pad(gradient.mul_(signs), (front, back))
        self._sketch += padded.view(-1, self.numbers).sum(0)
