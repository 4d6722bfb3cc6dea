"""A Bradley-Terry reward model, as OpenRLHF trains them, in plain transformers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from answer_graders.programs.model_folders import model_folder
from openrlhf_js.reward_model.checkpoint import (
    Normalisation,
    checkpoint_problems,
    head_prefix,
    normalisation,
    read_config,
    read_tensors,
)
from openrlhf_js.reward_model.preferences import encode

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "float32": torch.float32}
MAX_TOKENS = 16384  # in a batch, padding included
MAX_TEXTS = 64


@dataclass(frozen=True)
class RewardModel:
    """Scores texts, in one thread at a time; made by `load`. `description` says what it is."""

    _backbone: Any
    _head: torch.nn.Linear
    _tokenizer: Any
    _scale: Normalisation | None
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
        """Loads a model that OpenRLHF's reward training made: a folder, or a name on the hub.

        `max_len` is in tokens, as in training; `device` None is a GPU if there is one; `normalize`
        gives (reward - mean) / std. ValueError lists what is wrong.
        """
        from transformers import AutoTokenizer

        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        place = torch.device(device)
        folder = model_folder(name_or_path, trust_remote_code)
        problems = checkpoint_problems(
            folder,
            value_head_prefix,
            normalize=normalize,
            trust_remote_code=trust_remote_code,
        )
        if problems:
            raise ValueError("\n".join(problems))
        config = read_config(folder, trust_remote_code)
        prefix = head_prefix(config, value_head_prefix)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
        if tokenizer.pad_token_id is None:  # padding is masked
            tokenizer.pad_token = tokenizer.eos_token
        backbone = _load_backbone(
            folder,
            config=config,
            dtype=DTYPES[dtype],
            attn_implementation=attention,
            trust_remote_code=trust_remote_code,
        )
        return cls(
            _backbone=backbone.to(place).eval(),
            _head=_load_head(folder, prefix).to(place, DTYPES[dtype]),
            _tokenizer=tokenizer,
            _scale=normalisation(config) if normalize else None,
            description={
                "model": str(name_or_path),
                "architecture": type(backbone).__name__,
                "value_head": prefix,
                "device": str(place),
                "dtype": dtype,
                "max_len": max_len,
                "truncation_side": tokenizer.truncation_side,
                "normalized": normalize,
                "mean": getattr(config, "mean", None),
                "std": getattr(config, "std", None),
            },
        )

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

        A score may be infinite or NaN. A text with a token that has no embedding gets NaN, because
        the lookup would abort a CUDA context. `max_tokens` includes padding.
        """
        ids = encode(self._tokenizer, texts, self.description["max_len"])
        embeddings = self._backbone.get_input_embeddings().weight.shape[0]
        known = []
        lengths = []
        for index, tokens in enumerate(ids):
            if max(tokens) < embeddings:
                known.append(index)
                lengths.append(len(tokens))
        scores = [math.nan] * len(texts)
        for batch in micro_batches(lengths, max_tokens, max_texts):
            indices = [known[position] for position in batch]
            batch_scores = self._forward([ids[index] for index in indices])
            for index, score in zip(indices, batch_scores, strict=True):
                scores[index] = score
        return scores

    @torch.inference_mode()
    def _forward(self, ids: list[list[int]]) -> list[float]:
        """The head's output at the last token, EOS; padding goes to the left."""
        padded = self._tokenizer.pad({"input_ids": ids}, padding_side="left", return_tensors="pt")
        padded = padded.to(self._head.weight.device)
        mask = padded["attention_mask"]
        positions = mask.cumsum(-1) - 1
        positions = positions.masked_fill(mask == 0, 1)
        output = self._backbone(**padded, position_ids=positions)
        last_states = output.last_hidden_state[:, -1]
        rewards = self._head(last_states).squeeze(-1).float()
        if self._scale:
            rewards = (rewards - self._scale.mean) / self._scale.std
        return rewards.tolist()


def _load_backbone(folder: Path, **options: Any) -> Any:
    """The model below the head; `options` are those of `AutoModel.from_pretrained`."""
    from transformers import AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()  # the head, which is loaded separately, would be reported
    logging.disable_progress_bar()
    backbone, loaded = AutoModel.from_pretrained(folder, output_loading_info=True, **options)
    missing = set(map(str, loaded["missing_keys"])) | set(map(str, loaded["mismatched_keys"]))
    if missing:  # transformers would initialise them at random
        example = min(missing)
        raise ValueError(f"{folder} lacks {len(missing)} weights, such as {example}")
    return backbone


def _load_head(folder: Path, prefix: str) -> torch.nn.Linear:
    weight = read_tensors(folder)[f"{prefix}.weight"].clone()
    head = torch.nn.Linear(weight.shape[1], 1, bias=False)
    head.weight = torch.nn.Parameter(weight, requires_grad=False)
    return head


def micro_batches(lengths: Sequence[int], max_tokens: int, max_count: int) -> list[list[int]]:
    """Indices of texts to score together: of similar lengths, the longest first.

    A batch has at most `max_count` texts; count x longest is at most `max_tokens`, or count is 1.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batches and _has_room(batches[-1], lengths, max_tokens, max_count):
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def _has_room(batch: list[int], lengths: Sequence[int], max_tokens: int, max_count: int) -> bool:
    """Whether one more text, no longer than those of the batch, may join it."""
    longest = lengths[batch[0]]
    return len(batch) < max_count and longest * (len(batch) + 1) <= max_tokens
