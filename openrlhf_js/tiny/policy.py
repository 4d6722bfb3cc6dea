"""A small Qwen2 as plain tensor functions: what transformers computes, with far fewer calls.

For a model of under a million parameters on a CPU, most of transformers' time is Python. Here a
forward pass is a few fused operations per layer, and the prompts of a group are computed once for
all of its responses, in sampling and in training. tests/tiny/test_policy.py holds the
log-probabilities to those of transformers.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2ForCausalLM

Cache = list[tuple[Tensor, Tensor]]  # keys and values (b, heads, T, d) of each layer


class PaddedPrompts(NamedTuple):
    """A batch of prompts, padded on the left."""

    tokens: Tensor  # (n, P)
    mask: Tensor  # (n, P) bool, True where a token is

    @property
    def positions(self) -> Tensor:
        """(n, P) places in the prompt, 0 for padding."""
        return (self.mask.cumsum(1) - 1).clamp(min=0)

    def attention(self) -> Tensor:
        """(n, 1, P, P) bool: earlier tokens, and each place itself, so that no row is empty."""
        size = self.tokens.shape[1]
        causal = torch.ones(size, size, dtype=torch.bool).tril()
        return ((causal & self.mask[:, None]) | torch.eye(size, dtype=torch.bool))[:, None]


class Layer(NamedTuple):
    """The weights of one layer, those that take the same input side by side."""

    norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class TinyPolicy:
    """Samples from a `Qwen2ForCausalLM` in float32, and gives log-probabilities to train it by."""

    def __init__(self, model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast):
        config = model.config
        self.model, self.tokenizer = model, tokenizer
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.eps, self.size = config.rms_norm_eps, config.hidden_size // config.num_attention_heads
        self.inverse = model.model.rotary_emb.inv_freq.float()

    def prompts(self, texts: Sequence[str]) -> PaddedPrompts:
        """Prompts as tokens."""
        found = self.tokenizer(list(texts), return_tensors="pt", padding=True)
        return PaddedPrompts(found.input_ids, found.attention_mask.bool())

    @torch.no_grad()
    def sample(
        self, prompts: PaddedPrompts, responses: int, tokens: int, generator: torch.Generator | None
    ) -> Tensor:
        """Responses at temperature 1, greedy ones without a generator.

        Returns:
            (n * responses, T <= tokens), the responses of a prompt in a row, padded after the end.
        """
        layers, end, pad = self.layers(), self.tokenizer.eos_token_id, self.tokenizer.pad_token_id
        hidden, cache = self._forward(
            layers, prompts.tokens, prompts.positions, prompts.attention()
        )
        logits = self.model.lm_head(hidden[:, -1]).repeat_interleave(responses, 0)
        cache = [(k.repeat_interleave(responses, 0), v.repeat_interleave(responses, 0))
                 for k, v in cache]  # fmt: skip
        place = prompts.positions[:, -1:].repeat_interleave(responses, 0)
        mask = prompts.mask.repeat_interleave(responses, 0)[:, None, None]
        found: list[Tensor] = []
        ended = torch.zeros(len(place), dtype=torch.bool)
        while True:
            if generator is None:
                drawn = logits.argmax(-1)
            else:
                drawn = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
            found.append(drawn.masked_fill(ended, pad))
            ended |= drawn == end
            if len(found) == tokens or bool(ended.all()):
                return torch.stack(found, 1)
            place, mask = place + 1, F.pad(mask, (0, 1), value=True)
            hidden, cache = self._forward(layers, drawn[:, None], place, mask, cache)
            logits = self.model.lm_head(hidden[:, 0])

    def log_probs(self, prompts: PaddedPrompts, responses: Tensor) -> Tensor:
        """Log-probabilities (n * m, T) of responses as `sample` returns them, with gradient."""
        layers = self.layers()
        each = len(responses) // len(prompts.tokens)
        hidden, cache = self._forward(
            layers, prompts.tokens, prompts.positions, prompts.attention()
        )
        first = hidden[:, -1:].repeat_interleave(each, 0)
        cache = [(k.repeat_interleave(each, 0), v.repeat_interleave(each, 0)) for k, v in cache]
        inputs = responses[:, :-1]
        size = inputs.shape[1]
        place = prompts.positions[:, -1:].repeat_interleave(each, 0) + 1 + torch.arange(size)
        causal = torch.ones(size, size, dtype=torch.bool).tril().expand(len(inputs), size, size)
        seen = prompts.mask.repeat_interleave(each, 0)[:, None].expand(-1, size, -1)
        hidden, _ = self._forward(
            layers, inputs, place, torch.cat([seen, causal], 2)[:, None], cache
        )
        logits = self.model.lm_head(torch.cat([first, hidden], 1))
        return logits.log_softmax(-1).gather(-1, responses[..., None])[..., 0]

    def texts(self, responses: Tensor) -> list[str]:
        """Responses as text, up to their ends."""
        end = str(self.tokenizer.eos_token)
        return ["".join(each.partition(end)[:2]) for each in self.tokenizer.batch_decode(responses)]

    def layers(self) -> list[Layer]:
        """The weights now."""
        found = []
        for layer in self.model.model.layers:
            own, mlp = layer.self_attn, layer.mlp
            parts = own.q_proj, own.k_proj, own.v_proj
            found.append(
                Layer(
                    layer.input_layernorm.weight,
                    torch.cat([part.weight for part in parts]),
                    torch.cat([part.bias for part in parts]),
                    own.o_proj.weight,
                    layer.post_attention_layernorm.weight,
                    torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
                    mlp.down_proj.weight,
                )
            )
        return found

    def _forward(
        self,
        layers: list[Layer],
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor,
        past: Cache | None = None,
    ) -> tuple[Tensor, Cache]:
        """Last hidden states (b, T, hidden), and the cache with these tokens."""
        angle = positions[..., None] * self.inverse  # (b, T, d / 2)
        cos = torch.cat([angle.cos()] * 2, -1)[:, :, None]
        sin = torch.cat([-angle.sin(), angle.sin()], -1)[:, :, None]
        x, cache = self.model.model.embed_tokens(tokens), []
        shape, turned, half = tokens.shape, self.heads + self.kv_heads, self.size // 2
        for number, of in enumerate(layers):
            seen = F.linear(self._norm(x, of.norm), of.qkv, of.qkv_bias)
            seen = seen.view(*shape, turned + self.kv_heads, self.size)
            qk, v = seen[:, :, :turned], seen[:, :, turned:].transpose(1, 2)
            qk = (qk * cos + qk.roll(half, -1) * sin).transpose(1, 2)  # rotary positions
            q, k = qk[:, : self.heads], qk[:, self.heads :]
            if past is not None:
                k, v = torch.cat([past[number][0], k], 2), torch.cat([past[number][1], v], 2)
            cache.append((k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
            x = x + F.linear(mixed.transpose(1, 2).flatten(2), of.out)
            gate, up = F.linear(self._norm(x, of.mlp_norm), of.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, of.down)
        return self._norm(x, self.model.model.norm.weight), cache

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self.eps)


def load(folder: Path) -> TinyPolicy:
    """The model of a Hugging Face folder, in float32."""
    weights, tokenizer = _read(folder)
    return TinyPolicy(copy.deepcopy(weights), tokenizer)


@lru_cache(4)
def _read(folder: Path) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast]:
    weights = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return weights, AutoTokenizer.from_pretrained(folder, padding_side="left")
