"""What samples responses: a small interface, and transformers behind it.

Every response has random numbers of its own, so that it depends neither on what else is in its
batch nor on what was sampled before, but for the rounding of the model's logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig

Response = NDArray[np.int32]  # token ids, the end token included where the model ended
ROWS = {"transformers": 64, "vllm": 2048}  # responses at once, where nobody says


@dataclass(frozen=True)
class Policy:
    """A model and how responses are drawn from it.

    Attributes:
        folder: a Hugging Face folder.
        device: "cpu" or "cuda".
        dtype: "float32", "bfloat16" or "float16".
        temperature: that logits are divided by, above 0.
        top_p: the smallest set of tokens with this probability is drawn from; 1 is all of them.
        max_new_tokens: of a response.
        ends: the tokens that end one.
        longest_prompt: in tokens.
    """

    folder: Path
    device: str
    dtype: str
    temperature: float
    top_p: float
    max_new_tokens: int
    ends: tuple[int, ...]
    longest_prompt: int


class Engine(Protocol):
    """Samples from one policy.

    Attributes:
        policy: may be replaced by one that draws from the same model in another way: with prompts
            and responses that together are no longer than before.
    """

    policy: Policy

    def sample(self, prompts: Sequence[Sequence[int]], keys: Sequence[int]) -> list[Response]:
        """One response to each prompt, at random.

        Args:
            prompts: token ids.
            keys: one a prompt: the same one gives the same response.
        """

    def greedy(self, prompts: Sequence[Sequence[int]]) -> list[Response]:
        """The response to each prompt that takes the likeliest token at every place."""


class Transformers:
    """transformers on one device, everything given to it as one batch."""

    def __init__(self, policy: Policy):
        dtype = getattr(torch, policy.dtype)
        model = AutoModelForCausalLM.from_pretrained(policy.folder, dtype=dtype)
        self.policy = policy
        self.model: Any = model.to(policy.device).eval()
        # Not the folder's own defaults, which may hold a top_k or a repetition penalty.
        self.model.generation_config = GenerationConfig(
            eos_token_id=list(policy.ends) or None,
            pad_token_id=policy.ends[0] if policy.ends else 0,
        )

    def sample(self, prompts: Sequence[Sequence[int]], keys: Sequence[int]) -> list[Response]:
        """As `Engine`: with a uniform number for each token, by inverting the distribution."""
        draws = np.stack([np.random.default_rng(key).random(self._most) for key in keys])
        uniform = torch.from_numpy(draws).to(self.policy.device)
        width = max(map(len, prompts))

        def choose(tokens: Tensor, logits: Tensor) -> Tensor:
            place = tokens.shape[1] - width
            chosen = invert(logits, uniform[:, place], self.policy.temperature, self.policy.top_p)
            return torch.full_like(logits, -torch.inf).scatter_(1, chosen[:, None], 0.0)

        return self._generate(prompts, [choose])

    def greedy(self, prompts: Sequence[Sequence[int]]) -> list[Response]:
        """As `Engine`."""
        return self._generate(prompts, [])

    @property
    def _most(self) -> int:
        return self.policy.max_new_tokens

    @torch.no_grad()
    def _generate(self, prompts: Sequence[Sequence[int]], processors: list[Any]) -> list[Response]:
        width = max(map(len, prompts))
        tokens = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros_like(tokens)
        for row, prompt in enumerate(prompts):  # padded on the left
            tokens[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        made = self.model.generate(
            input_ids=tokens.to(self.policy.device),
            attention_mask=mask.to(self.policy.device),
            max_new_tokens=self._most,
            do_sample=False,  # the likeliest token, which a processor has made the drawn one
            logits_processor=processors,
        )
        return [cut(row, self.policy.ends) for row in made[:, width:].int().cpu().numpy()]


def invert(logits: Tensor, uniform: Tensor, temperature: float, top_p: float) -> Tensor:
    """Tokens drawn from softmax(logits / temperature): where its cumulative sum passes u.

    Args:
        logits: (b, V).
        uniform: (b,) float64 in [0, 1).
        temperature: above 0.
        top_p: in (0, 1]; below 1 the least likely tokens beyond this probability are left out.

    Returns:
        (b,) int64.
    """
    probabilities = (logits.double() / temperature).softmax(-1)
    if top_p < 1:
        descending, order = probabilities.sort(dim=-1, descending=True, stable=True)
        before = descending.cumsum(-1) - descending
        probabilities = probabilities.masked_fill(
            (before >= top_p).gather(-1, order.argsort(-1)), 0.0
        )
    cumulative = probabilities.cumsum(-1)
    passed = uniform[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, passed, right=True)[:, 0]


def key(seed: int, prompt: int, draw: int) -> int:
    """The seed of one response, another one for each, below 2^63."""
    return int(np.random.SeedSequence([seed, prompt, draw]).generate_state(1, np.uint64)[0] >> 1)


def cut(tokens: NDArray[np.int32], ends: Sequence[int]) -> Response:
    """The tokens up to the first end, that included; all of them if there is none."""
    found = np.flatnonzero(np.isin(tokens, ends))
    return tokens[: found[0] + 1].copy() if len(found) else tokens.copy()
