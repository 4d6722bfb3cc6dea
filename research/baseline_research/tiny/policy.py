"""A small Qwen2 or Llama as plain tensor functions: what transformers computes, with fewer calls.

For a model of under a million parameters on a CPU, transformers spends most of its time in Python.
Here a forward pass is a few fused operations per layer. In sampling and in training, each prompt is
computed once for all of its responses, and the prompts' common beginning once for all prompts.
research/tests/tiny/test_policy.py compares the log-probabilities with those of transformers.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

ARCHITECTURES = ("qwen2", "llama")  # their layers differ only in a bias

Cache = list[tuple[Tensor, Tensor]]  # keys and values (b, heads, T, d) of each layer


class PaddedPrompts(NamedTuple):
    """A batch of prompts, padded on the left, without their common beginning."""

    tokens: Tensor  # (n, P)
    mask: Tensor  # (n, P) bool, True where a token is
    beginning: Tensor  # (C,) the tokens that all prompts begin with

    @property
    def positions(self) -> Tensor:
        """(n, P) positions in the prompt, C for padding."""
        return len(self.beginning) + (self.mask.cumsum(1) - 1).clamp(min=0)

    @property
    def whole_mask(self) -> Tensor:
        """(n, C + P) bool, True where a token is."""
        return F.pad(self.mask, (len(self.beginning), 0), value=True)

    def at(self, places: Tensor) -> PaddedPrompts:
        """The prompts at these indices, or where this mask is True."""
        return self._replace(tokens=self.tokens[places], mask=self.mask[places])

    def attention(self) -> Tensor:
        """(n, 1, P, C + P) bool: earlier tokens, and the token itself, so that no row is empty."""
        size = self.tokens.shape[1]
        own = (_causal(size) & self.mask[:, None]) | torch.eye(size, dtype=torch.bool)
        return F.pad(own, (len(self.beginning), 0), value=True)[:, None]

    def positions_after(self, repeats: int, size: int) -> Tensor:
        """(n * repeats, size) positions of responses' first tokens, `repeats` to a prompt."""
        last_positions = self.positions[:, -1:].repeat_interleave(repeats, 0)
        return last_positions + 1 + torch.arange(size)

    def attention_after(self, repeats: int, size: int) -> Tensor:
        """(n * repeats, 1, size, C + P + size) bool: the prompt and the response up to a token."""
        prompt_mask = self.whole_mask.repeat_interleave(repeats, 0)[:, None].expand(-1, size, -1)
        causal = _causal(size).expand(len(prompt_mask), -1, -1)
        return torch.cat([prompt_mask, causal], 2)[:, None]


class Layer(NamedTuple):
    """The weights of one layer; those with the same input are concatenated."""

    norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Weights(NamedTuple):
    """All weights except the input embeddings."""

    layers: list[Layer]
    norm: Tensor
    head: Tensor


class Rotation(NamedTuple):
    """Rotary positions, by which queries and keys are rotated, (b, T, 1, d)."""

    cos: Tensor
    sin: Tensor

    def turn(self, heads: Tensor) -> Tensor:
        """Rotates queries or keys (b, T, heads, d)."""
        swapped = heads.roll(heads.shape[-1] // 2, -1)
        return heads * self.cos + swapped * self.sin


class Sampled(NamedTuple):
    """Responses of a policy, padded on the right."""

    tokens: Tensor
    """(n * responses, T), the responses of a prompt in a row."""
    log_probs: Tensor
    """(n * responses, T) of the tokens; anything after the end."""


class TinyPolicy:
    """Samples from a Qwen2 or Llama, and computes log-probabilities to train it with.

    With `chat`, prompts are questions that the model's chat template puts into a conversation.
    Computes in `dtype` on the model's device; gradients are those of the model's weights, in the
    weights' dtype. Inputs and outputs are on the CPU; `generator` makes one for the device.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        *,
        chat: bool = False,
        dtype: torch.dtype = torch.float32,
    ):
        config = model.config
        if config.model_type not in ARCHITECTURES:
            raise ValueError(
                f"the model is a {config.model_type}; it must be one of {', '.join(ARCHITECTURES)}"
            )
        self.model = model
        self.tokenizer = tokenizer
        self.chat = chat
        self.dtype = dtype
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads
        self.head_size = config.hidden_size // config.num_attention_heads
        self.norm_epsilon = config.rms_norm_eps
        self.inverse_frequencies = model.model.rotary_emb.inv_freq.float()

    def generator(self, seed: int) -> torch.Generator:
        """A generator for `sample`."""
        return torch.Generator(self.model.device).manual_seed(seed)

    def prompts(self, texts: Sequence[str]) -> PaddedPrompts:
        """Tokenizes prompts."""
        size = 0
        if self.chat:
            texts = [self._conversation(text) for text in texts]
            encoded = self.tokenizer(texts, add_special_tokens=False).input_ids
            # Each prompt keeps at least one token, which predicts the response's first.
            are_same = (len(set(tokens)) == 1 for tokens in zip(*encoded, strict=False))
            size = min(sum(takewhile(bool, are_same)), min(map(len, encoded)) - 1)
        encoded = self.tokenizer(
            list(texts), return_tensors="pt", padding=True, add_special_tokens=False
        )
        return _without_beginning(encoded.input_ids, encoded.attention_mask.bool(), size)

    def _conversation(self, question: str) -> str:
        messages = [{"role": "user", "content": question}]
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return str(text)

    @torch.no_grad()
    def sample(
        self, prompts: PaddedPrompts, responses: int, tokens: int, generator: torch.Generator | None
    ) -> Sampled:
        """Samples responses at temperature 1 up to a maximum length; greedy without a generator."""
        weights = self.weights()
        hidden, cache = self._prompt_states(weights, prompts, responses)
        filled = cache[0][0].shape[2]
        cache = [
            (F.pad(keys, (0, 0, 0, tokens)), F.pad(values, (0, 0, 0, tokens)))
            for keys, values in cache
        ]
        positions = prompts.positions[:, -1:].repeat_interleave(responses, 0)
        mask = prompts.whole_mask.repeat_interleave(responses, 0)[:, None, None]
        columns: list[Tensor] = []  # each the tokens at one position of all responses
        log_probs: list[Tensor] = []
        ended = torch.zeros(len(positions), dtype=torch.bool)
        for place in range(1, tokens + 1):
            logits = F.linear(hidden[:, 0], weights.head)
            chosen, chosen_log_probs = _next_tokens(logits.float(), generator)
            log_probs.append(chosen_log_probs)
            columns.append(chosen.masked_fill(ended, self.tokenizer.pad_token_id))
            ended |= chosen == self.tokenizer.eos_token_id
            if place == tokens or ended.all():
                break
            mask = F.pad(mask, (0, 1), value=True)
            hidden, _ = self._forward(
                weights, chosen[:, None], positions + place, mask, cache, filled=filled
            )
            filled += 1
        return Sampled(tokens=torch.stack(columns, 1), log_probs=torch.stack(log_probs, 1))

    def log_probs(self, prompts: PaddedPrompts, responses: Tensor) -> Tensor:
        """Log-probabilities (n * m, T) of responses from `sample`, with gradient."""
        weights = self.weights()
        repeats = len(responses) // len(prompts.tokens)
        inputs = responses[:, :-1]  # the last token predicts nothing
        first, cache = self._prompt_states(weights, prompts, repeats)
        others, _ = self._forward(
            weights,
            inputs,
            prompts.positions_after(repeats, inputs.shape[1]),
            prompts.attention_after(repeats, inputs.shape[1]),
            cache,
        )
        hidden = torch.cat([first, others], 1)
        logits = F.linear(hidden, weights.head)
        log_probs = logits.float().log_softmax(-1)  # (n * m, T, V)
        sampled = responses[..., None].to(log_probs.device)
        return log_probs.gather(-1, sampled)[..., 0].cpu()

    def texts(self, responses: Tensor) -> list[str]:
        """Responses as text, up to the end token."""
        end = str(self.tokenizer.eos_token)
        texts = []
        for decoded in self.tokenizer.batch_decode(responses):
            text, ending, _ = decoded.partition(end)
            texts.append(text + ending)
        return texts

    def weights(self) -> Weights:
        """The current weights."""
        layers = []
        for layer in self.model.model.layers:
            attention = layer.self_attn
            mlp = layer.mlp
            projections = (attention.q_proj, attention.k_proj, attention.v_proj)
            bias = None
            if attention.q_proj.bias is not None:
                bias = self._joined([projection.bias for projection in projections])
            joined = Layer(
                norm=layer.input_layernorm.weight.to(self.dtype),
                qkv=self._joined([projection.weight for projection in projections]),
                qkv_bias=bias,
                out=attention.o_proj.weight.to(self.dtype),
                mlp_norm=layer.post_attention_layernorm.weight.to(self.dtype),
                gate_up=self._joined([mlp.gate_proj.weight, mlp.up_proj.weight]),
                down=mlp.down_proj.weight.to(self.dtype),
            )
            layers.append(joined)
        return Weights(
            layers,
            norm=self.model.model.norm.weight.to(self.dtype),
            head=self.model.lm_head.weight.to(self.dtype),
        )

    def _joined(self, tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(tensors)).to(self.dtype)

    def _prompt_states(
        self, weights: Weights, prompts: PaddedPrompts, repeats: int
    ) -> tuple[Tensor, Cache]:
        """Each prompt's last hidden state (n * repeats, 1, hidden) and cache, for each response."""
        past = None
        if len(prompts.beginning):
            past = self._beginning_cache(weights, prompts)
        attention = prompts.attention()
        hidden, cache = self._forward(weights, prompts.tokens, prompts.positions, attention, past)
        repeated: Cache = []
        for keys, values in cache:
            response_keys = keys.repeat_interleave(repeats, 0)
            response_values = values.repeat_interleave(repeats, 0)
            repeated.append((response_keys, response_values))
        return hidden[:, -1:].repeat_interleave(repeats, 0), repeated

    def _beginning_cache(self, weights: Weights, prompts: PaddedPrompts) -> Cache:
        """The cache of the common beginning, repeated for each prompt."""
        size = len(prompts.beginning)
        positions = torch.arange(size)[None]
        _, cache = self._forward(weights, prompts.beginning[None], positions, _causal(size))
        count = len(prompts.tokens)
        return [
            (keys.expand(count, -1, -1, -1), values.expand(count, -1, -1, -1))
            for keys, values in cache
        ]

    def _forward(
        self,
        weights: Weights,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor,
        past: Cache | None = None,
        filled: int | None = None,
    ) -> tuple[Tensor, Cache]:
        """Last hidden states (b, T, hidden), and the cache extended by these tokens.

        With `filled`, only so many places of the `past` hold a token, and these tokens are written
        into the next ones.
        """
        device = self.model.device
        mask = mask.to(device)
        rotation = self._rotation(positions.to(device))
        hidden = self.model.model.embed_tokens(tokens.to(device)).to(self.dtype)
        cache: Cache = []
        for number, layer in enumerate(weights.layers):
            query, key, value = self._query_key_value(layer, hidden, rotation)
            if past is not None:
                key = _extended(past[number][0], key, filled)
                value = _extended(past[number][1], value, filled)
            cache.append((key, value))
            mixed = F.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)
            mixed = mixed.transpose(1, 2).flatten(2).to(self.dtype)
            hidden = hidden + F.linear(mixed, layer.out)
            hidden = hidden + self._mlp(layer, hidden)
        return self._norm(hidden, weights.norm), cache

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
        """(b, heads, T, d) each, in float32: attention on CPU is slower in bfloat16."""
        normed = self._norm(hidden, layer.norm)
        projected = F.linear(normed, layer.qkv, layer.qkv_bias)
        heads = projected.unflatten(-1, (-1, self.head_size))
        query, key, value = heads.split((self.heads, self.kv_heads, self.kv_heads), 2)
        query = rotation.turn(query)  # values have no position
        key = rotation.turn(key)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2).float()

    def _mlp(self, layer: Layer, hidden: Tensor) -> Tensor:
        normed = self._norm(hidden, layer.mlp_norm)
        gate, up = F.linear(normed, layer.gate_up).chunk(2, -1)
        return F.linear(F.silu(gate) * up, layer.down)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(hidden, weight.shape, weight, self.norm_epsilon)


def _extended(past: Tensor, new: Tensor, filled: int | None) -> Tensor:
    """Keys or values (b, heads, T, d) of past and new tokens; with `filled`, in place."""
    if filled is None:
        return torch.cat([past, new], 2)
    end = filled + new.shape[2]
    past[:, :, filled:end] = new
    return past[:, :, :end]


def _causal(size: int) -> Tensor:
    """(size, size) bool: each position and those before it."""
    return torch.ones(size, size, dtype=torch.bool).tril()


def _next_tokens(logits: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """(b,) the next token of each row and its log-probability, both on the CPU.

    The token is sampled, or without a generator the most likely one.
    """
    if generator is None:
        tokens = logits.argmax(-1, keepdim=True)
    else:
        tokens = torch.multinomial(logits.softmax(-1), 1, generator=generator)
    log_probs = logits.log_softmax(-1).gather(1, tokens)
    return tokens[:, 0].cpu(), log_probs[:, 0].cpu()


def _without_beginning(tokens: Tensor, mask: Tensor, size: int) -> PaddedPrompts:
    """Left-padded prompts (n, P) without their first `size` tokens, which are the same in all."""
    beginning = tokens[0, mask[0]][:size]
    after_beginning = mask.cumsum(1) > size
    own_width = int(after_beginning.sum(1).max())
    return PaddedPrompts(
        tokens=tokens[:, -own_width:],
        mask=after_beginning[:, -own_width:],
        beginning=beginning,
    )


def load(
    folder: Path,
    *,
    chat: bool = False,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> TinyPolicy:
    """A `TinyPolicy` of the model in a Hugging Face folder, with weights in float32."""
    weights, tokenizer = _read(folder)
    model = copy.deepcopy(weights).to(device)
    return TinyPolicy(model, tokenizer, chat=chat, dtype=dtype)


@lru_cache(4)
def _read(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    weights = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return weights, AutoTokenizer.from_pretrained(folder, padding_side="left")
