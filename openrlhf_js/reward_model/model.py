"""A Bradley-Terry reward model, as OpenRLHF trains them, in plain transformers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from openrlhf_js.reward_model.checkpoint import (
    checkpoint_problems,
    head_prefix,
    normalisation,
    read_config,
    read_tensors,
)
from openrlhf_js.reward_model.preferences import encode
from openrlhf_js.sampling.models import model_folder

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "float32": torch.float32}
MAX_TOKENS = 16384  # in a batch, padding included
MAX_TEXTS = 64


@dataclass(frozen=True)
class RewardModel:
    """Scores texts, in one thread at a time; made by `load`. The description says what it is."""

    _backbone: Any
    _head: torch.nn.Linear
    _tokenizer: Any
    _scale: tuple[float, float] | None
    description: dict[str, Any]

    @classmethod
    def load(
        cls,
        name_or_path: str | Path,
        max_len: int = 2048,
        device: str | None = "cpu",
        dtype: str = "bf16",
        normalize: bool = False,
        value_head_prefix: str = "score",
        *,
        attention: str = "sdpa",
        trust_remote_code: bool = False,
    ) -> RewardModel:
        """Loads a folder, or a name on the hub, of OpenRLHF's reward model training.

        `max_len` is in tokens, as in training; the `device` is by default a GPU if there is one;
        `normalize` gives (reward - mean) / std. ValueError lists what is wrong.
        """
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging

        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        trust: dict[str, Any] = {"trust_remote_code": trust_remote_code}
        folder = model_folder(name_or_path, **trust)
        if problems := checkpoint_problems(folder, value_head_prefix, normalize=normalize, **trust):
            raise ValueError("\n".join(problems))
        config = read_config(folder, **trust)
        prefix = head_prefix(config, value_head_prefix)
        scale = normalisation(config) if normalize else None
        tokenizer = AutoTokenizer.from_pretrained(folder, **trust)
        if tokenizer.pad_token_id is None:  # padding is masked
            tokenizer.pad_token = tokenizer.eos_token
        logging.set_verbosity_error()  # the head, which is loaded separately, would be reported
        logging.disable_progress_bar()
        backbone, loaded = AutoModel.from_pretrained(
            folder,
            config=config,
            dtype=DTYPES[dtype],
            attn_implementation=attention,
            output_loading_info=True,
            **trust,
        )
        if wrong := [*loaded["missing_keys"], *loaded["mismatched_keys"]]:
            # transformers would initialise them at random
            raise ValueError(f"{folder} lacks {len(wrong)} weights, such as {min(map(str, wrong))}")
        weight = read_tensors(folder)[f"{prefix}.weight"].clone()
        head = torch.nn.Linear(weight.shape[1], 1, bias=False)
        head.weight = torch.nn.Parameter(weight, requires_grad=False)
        description = {
            **{"model": str(name_or_path), "architecture": type(backbone).__name__},
            **{"value_head": prefix, "device": str(place), "dtype": dtype, "max_len": max_len},
            **{"truncation_side": tokenizer.truncation_side, "normalized": normalize},
            **{name: getattr(config, name, None) for name in ("mean", "std")},
        }
        head = head.to(place, DTYPES[dtype])
        return cls(backbone.to(place).eval(), head, tokenizer, scale, description)

    def score(self, texts: Sequence[str]) -> list[float]:
        """One score for each text, in their order; ValueError if one is not finite."""
        scores = self.scores(texts)
        for text, score in zip(texts, scores, strict=True):
            if not math.isfinite(score):
                raise ValueError(f"the score {score} of {text!r:.80}")
        return scores

    def scores(
        self, texts: Sequence[str], max_tokens: int = MAX_TOKENS, max_texts: int = MAX_TEXTS
    ) -> list[float]:
        """One score for each text, in their order, computed in micro-batches of these sizes.

        It may be infinite or NaN, as where the model has no embedding for a token, which would
        abort a CUDA context. `max_tokens` includes padding.
        """
        ids = encode(self._tokenizer, texts, self.description["max_len"])
        embeddings = self._backbone.get_input_embeddings().weight.shape[0]
        known = [index for index, each in enumerate(ids) if max(each) < embeddings]
        scores = [math.nan] * len(texts)
        for batch in micro_batches([len(ids[index]) for index in known], max_tokens, max_texts):
            indices = [known[number] for number in batch]
            for index, score in zip(indices, self._forward([ids[i] for i in indices]), strict=True):
                scores[index] = score
        return scores

    @torch.inference_mode()
    def _forward(self, ids: list[list[int]]) -> list[float]:
        """The head's output at the last token, EOS; padding goes to the left."""
        padded = self._tokenizer.pad({"input_ids": ids}, padding_side="left", return_tensors="pt")
        padded = padded.to(self._head.weight.device)
        mask = padded["attention_mask"]
        places = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
        hidden = self._backbone(**padded, position_ids=places).last_hidden_state[:, -1]
        rewards = self._head(hidden).squeeze(-1).float()
        if self._scale:
            rewards = (rewards - self._scale[0]) / self._scale[1]
        return rewards.tolist()


def micro_batches(lengths: Sequence[int], max_tokens: int, max_count: int) -> list[list[int]]:
    """Indices of texts to score together: of similar lengths, the longest first.

    A batch has at most `max_count` texts; count x longest is at most `max_tokens`, or count is 1.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        last = batches[-1] if batches else []
        if last and len(last) < max_count and lengths[last[0]] * (len(last) + 1) <= max_tokens:
            last.append(index)
        else:
            batches.append([index])
    return batches
