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

    def positions_after(self, repeats: int, size: int) -> Tensor:
        """(n * repeats, size) places of the first tokens of responses, `repeats` to a prompt."""
        last_positions = self.positions[:, -1:].repeat_interleave(repeats, 0)
        return last_positions + 1 + torch.arange(size)

    def attention_after(self, repeats: int, size: int) -> Tensor:
        """(n * repeats, 1, size, P + size) bool: the prompt, and earlier tokens of the response."""
        prompt_mask = self.mask.repeat_interleave(repeats, 0)[:, None].expand(-1, size, -1)
        causal = torch.ones(size, size, dtype=torch.bool).tril()
        causal = causal.expand(len(prompt_mask), size, size)
        return torch.cat([prompt_mask, causal], 2)[:, None]


class Layer(NamedTuple):
    """The weights of one layer, those that take the same input side by side."""

    norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Rotation(NamedTuple):
    """Rotary positions: what queries and keys are turned by, (b, T, 1, d)."""

    cos: Tensor
    sin: Tensor

    def turn(self, heads: Tensor) -> Tensor:
        """Turns queries or keys (b, T, heads, d)."""
        swapped = heads.roll(heads.shape[-1] // 2, -1)
        return heads * self.cos + swapped * self.sin


class TinyPolicy:
    """Samples from a `Qwen2ForCausalLM` in float32, and gives log-probabilities to train it by."""

    def __init__(self, model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast):
        config = model.config
        self.model = model
        self.tokenizer = tokenizer
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads
        self.head_size = config.hidden_size // config.num_attention_heads
        self.norm_epsilon = config.rms_norm_eps
        self.inverse_frequencies = model.model.rotary_emb.inv_freq.float()

    def prompts(self, texts: Sequence[str]) -> PaddedPrompts:
        """Prompts as tokens."""
        encoded = self.tokenizer(list(texts), return_tensors="pt", padding=True)
        return PaddedPrompts(tokens=encoded.input_ids, mask=encoded.attention_mask.bool())

    @torch.no_grad()
    def sample(
        self, prompts: PaddedPrompts, responses: int, tokens: int, generator: torch.Generator | None
    ) -> Tensor:
        """Responses at temperature 1, greedy ones without a generator.

        Returns:
            (n * responses, T <= tokens), the responses of a prompt in a row, padded after the end.
        """
        layers = self.layers()
        hidden, cache = self._prompt_states(layers, prompts, responses)
        logits = self.model.lm_head(hidden[:, 0])
        positions = prompts.positions[:, -1:].repeat_interleave(responses, 0)
        mask = prompts.mask.repeat_interleave(responses, 0)[:, None, None]
        columns: list[Tensor] = []  # the tokens at one place of every response
        ended = torch.zeros(len(positions), dtype=torch.bool)
        while True:
            chosen = _next_tokens(logits, generator)
            columns.append(chosen.masked_fill(ended, self.tokenizer.pad_token_id))
            ended |= chosen == self.tokenizer.eos_token_id
            if len(columns) == tokens or bool(ended.all()):
                return torch.stack(columns, 1)
            positions = positions + 1
            mask = F.pad(mask, (0, 1), value=True)
            hidden, cache = self._forward(layers, chosen[:, None], positions, mask, cache)
            logits = self.model.lm_head(hidden[:, 0])

    def log_probs(self, prompts: PaddedPrompts, responses: Tensor) -> Tensor:
        """Log-probabilities (n * m, T) of responses as `sample` returns them, with gradient."""
        layers = self.layers()
        repeats = len(responses) // len(prompts.tokens)
        first, cache = self._prompt_states(layers, prompts, repeats)
        inputs = responses[:, :-1]  # the last token predicts nothing
        size = inputs.shape[1]
        positions = prompts.positions_after(repeats, size)
        mask = prompts.attention_after(repeats, size)
        others, _ = self._forward(layers, inputs, positions, mask, cache)
        hidden = torch.cat([first, others], 1)
        log_probs = self.model.lm_head(hidden).log_softmax(-1)
        chosen = responses.unsqueeze(-1)
        return log_probs.gather(-1, chosen).squeeze(-1)

    def texts(self, responses: Tensor) -> list[str]:
        """Responses as text, up to their ends."""
        end = str(self.tokenizer.eos_token)
        texts = []
        for decoded in self.tokenizer.batch_decode(responses):
            text, ending, _ = decoded.partition(end)
            texts.append(text + ending)
        return texts

    def layers(self) -> list[Layer]:
        """The weights now."""
        layers = []
        for layer in self.model.model.layers:
            attention = layer.self_attn
            mlp = layer.mlp
            projections = (attention.q_proj, attention.k_proj, attention.v_proj)
            weights = Layer(
                norm=layer.input_layernorm.weight,
                qkv=torch.cat([projection.weight for projection in projections]),
                qkv_bias=torch.cat([projection.bias for projection in projections]),
                out=attention.o_proj.weight,
                mlp_norm=layer.post_attention_layernorm.weight,
                gate_up=torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
                down=mlp.down_proj.weight,
            )
            layers.append(weights)
        return layers

    def _prompt_states(
        self, layers: list[Layer], prompts: PaddedPrompts, repeats: int
    ) -> tuple[Tensor, Cache]:
        """Each prompt's last hidden state (n * repeats, 1, hidden) and cache, for each response."""
        attention = prompts.attention()
        hidden, cache = self._forward(layers, prompts.tokens, prompts.positions, attention)
        repeated: Cache = []
        for keys, values in cache:
            response_keys = keys.repeat_interleave(repeats, 0)
            response_values = values.repeat_interleave(repeats, 0)
            repeated.append((response_keys, response_values))
        return hidden[:, -1:].repeat_interleave(repeats, 0), repeated

    def _forward(
        self,
        layers: list[Layer],
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor,
        past: Cache | None = None,
    ) -> tuple[Tensor, Cache]:
        """Last hidden states (b, T, hidden), and the cache with these tokens."""
        rotation = self._rotation(positions)
        hidden = self.model.model.embed_tokens(tokens)
        cache: Cache = []
        for number, layer in enumerate(layers):
            query, key, value = self._query_key_value(layer, hidden, rotation)
            if past is not None:
                past_key, past_value = past[number]
                key = torch.cat([past_key, key], 2)
                value = torch.cat([past_value, value], 2)
            cache.append((key, value))
            mixed = F.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)
            mixed = mixed.transpose(1, 2).flatten(2)
            hidden = hidden + F.linear(mixed, layer.out)
            normed = self._norm(hidden, layer.mlp_norm)
            gate, up = F.linear(normed, layer.gate_up).chunk(2, -1)
            hidden = hidden + F.linear(F.silu(gate) * up, layer.down)
        return self._norm(hidden, self.model.model.norm.weight), cache

    def _rotation(self, positions: Tensor) -> Rotation:
        angle = positions[..., None] * self.inverse_frequencies  # (b, T, d / 2)
        cos = angle.cos()
        sin = angle.sin()
        return Rotation(
            cos=torch.cat([cos, cos], -1)[:, :, None],
            sin=torch.cat([-sin, sin], -1)[:, :, None],
        )

    def _query_key_value(
        self, layer: Layer, hidden: Tensor, rotation: Rotation
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(b, heads, T, d) each."""
        normed = self._norm(hidden, layer.norm)
        projected = F.linear(normed, layer.qkv, layer.qkv_bias)
        heads = projected.unflatten(-1, (-1, self.head_size))
        query, key, value = heads.split((self.heads, self.kv_heads, self.kv_heads), 2)
        query = rotation.turn(query)  # values have no position
        key = rotation.turn(key)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(hidden, weight.shape, weight, self.norm_epsilon)


def _next_tokens(logits: Tensor, generator: torch.Generator | None) -> Tensor:
    """The next token of each row (b,): drawn, or without a generator the most likely."""
    if generator is None:
        return logits.argmax(-1)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]


def load(folder: Path) -> TinyPolicy:
    """The model of a Hugging Face folder, in float32."""
    weights, tokenizer = _read(folder)
    return TinyPolicy(copy.deepcopy(weights), tokenizer)


@lru_cache(4)
def _read(folder: Path) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast]:
    weights = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return weights, AutoTokenizer.from_pretrained(folder, padding_side="left")
