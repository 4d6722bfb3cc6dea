"""A Bradley-Terry reward model, as OpenRLHF trains them, in plain transformers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from openrlhf_js.reward_model.checkpoint import (
    Normalisation,
    checkpoint_problems,
    head_prefix,
    local_folder,
    normalisation,
    read_config,
)
from openrlhf_js.reward_model.encoding import encode, micro_batches
from openrlhf_js.reward_model.weights import read_tensor

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "float32": torch.float32}
MAX_TOKENS = 16384  # of a batch with its padding
MAX_TEXTS = 64


@dataclass(frozen=True)
class Description:
    """What was loaded, and how it scores.

    Attributes:
        model: folder or name on the hub.
        architecture: its class in transformers, without the head.
        value_head: the head's name in the checkpoint.
        max_len: tokens of a text, EOS among them; what is longer is cut.
        truncation_side: where it is cut.
        normalized: whether scores are (reward - mean) / std.
        mean, std: as config.json has them, used or not; None if it has none.
    """

    model: str
    architecture: str
    value_head: str
    device: str
    dtype: str
    max_len: int
    truncation_side: str
    normalized: bool
    mean: float | None
    std: float | None


class RewardModel:
    """Scores texts. Made by `load`; to be used by one thread at a time.

    Attributes:
        description: what was loaded, and how it scores.
    """

    def __init__(
        self,
        backbone: Any,
        head: torch.nn.Linear,
        tokenizer: Any,
        scale: Normalisation | None,
        description: Description,
    ):
        self.description = description
        self._backbone = backbone
        self._head = head
        self._tokenizer = tokenizer
        self._scale = scale
        self._known_ids = backbone.get_input_embeddings().weight.shape[0]

    @classmethod
    def load(
        cls,
        name_or_path: str | Path,
        max_len: int = 2048,
        device: str = "cpu",
        dtype: str = "bf16",
        normalize: bool | None = None,
        value_head_prefix: str = "score",
        *,
        attention: str = "sdpa",
        pad_with_eos: bool = False,
    ) -> RewardModel:
        """Loads a checkpoint of OpenRLHF's reward model training, once nothing is wrong with it.

        Args:
            name_or_path: a folder, or a name on the hub.
            max_len: as in training (`--data.max_len`), in tokens.
            device: such as `cpu` or `cuda`.
            dtype: a key of `DTYPES`.
            normalize: whether scores are (reward - mean) / std, as OpenRLHF's
                `--reward.normalize_enable`; None is False.
            value_head_prefix: the head's name, unless config.json says another.
            attention: transformers' `attn_implementation`.
            pad_with_eos: whether EOS may stand in for a missing padding token.

        Raises:
            ValueError: one problem per line.
        """
        from transformers import AutoConfig, AutoModel, AutoTokenizer

        if dtype not in DTYPES:
            raise ValueError(f"dtype {dtype!r} is none of {', '.join(DTYPES)}")
        if max_len < 1:
            raise ValueError(f"max_len is {max_len}; it must be 1 or more tokens")
        place = _device(device)
        folder = local_folder(name_or_path)
        problems = checkpoint_problems(
            folder, value_head_prefix, normalize=bool(normalize), pad_with_eos=pad_with_eos
        )
        if problems:
            raise ValueError("\n".join(problems))
        config = read_config(folder)
        prefix = head_prefix(config, value_head_prefix)
        scale = _scale(config)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        try:
            with _quiet_transformers():
                backbone, loaded = AutoModel.from_pretrained(
                    folder,
                    config=AutoConfig.from_pretrained(folder, trust_remote_code=False),
                    dtype=DTYPES[dtype],
                    attn_implementation=attention,
                    trust_remote_code=False,
                    output_loading_info=True,
                )
        except (OSError, ValueError, RuntimeError, ImportError, KeyError, TypeError) as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise ValueError(f"{folder} cannot be loaded: {first}") from error
        wrong = [*loaded["missing_keys"], *loaded["mismatched_keys"]]
        if wrong:  # transformers would make random weights of them
            raise ValueError(
                f"{folder} lacks {len(wrong)} weights, such as {sorted(map(str, wrong))[0]}"
            )
        weight = read_tensor(folder, f"{prefix}.weight")
        head = torch.nn.Linear(weight.shape[1], 1, bias=False)
        head.weight = torch.nn.Parameter(weight, requires_grad=False)
        description = Description(
            model=str(name_or_path),
            architecture=type(backbone).__name__,
            value_head=prefix,
            device=str(place),
            dtype=dtype,
            max_len=max_len,
            truncation_side=tokenizer.truncation_side,
            normalized=bool(normalize),
            mean=scale.mean if scale else None,
            std=scale.std if scale else None,
        )
        return cls(
            backbone.to(place).eval(),
            head.to(place, DTYPES[dtype]),
            tokenizer,
            scale if normalize else None,
            description,
        )

    def score(self, texts: Sequence[str]) -> list[float]:
        """One finite score for each text, in their order.

        Raises:
            ValueError: a text has no finite score.
        """
        scores = [math.nan] * len(texts)
        for indices, values in self.score_batches(texts):
            for index, value in zip(indices, values, strict=True):
                scores[index] = value
        for number, (text, score) in enumerate(zip(texts, scores, strict=True)):
            if not math.isfinite(score):
                raise ValueError(f"text {number} has the score {score}, no number: {text!r:.80}")
        return scores

    def score_batches(
        self, texts: Sequence[str], max_tokens: int = MAX_TOKENS, max_texts: int = MAX_TEXTS
    ) -> Iterator[tuple[list[int], list[float]]]:
        """Indices of texts with their scores, batch by batch as they are computed.

        A score that is not finite is given as it is. NaN is also that of a text with a token that
        the model has no embedding for, which would break a GPU for good.

        Args:
            texts: prompt and response, as the chat template makes them of a conversation.
            max_tokens: of a batch with its padding.
            max_texts: in a batch.
        """
        ids = encode(self._tokenizer, texts, self.description.max_len)
        known = [index for index, each in enumerate(ids) if max(each) < self._known_ids]
        if len(known) < len(ids):
            unknown = sorted({*range(len(ids))} - {*known})
            yield unknown, [math.nan] * len(unknown)
        for batch in micro_batches([len(ids[index]) for index in known], max_tokens, max_texts):
            indices = [known[number] for number in batch]
            yield indices, self._forward([ids[index] for index in indices])

    @torch.inference_mode()
    def _forward(self, ids: list[list[int]]) -> list[float]:
        """The head's output at the last token, which is EOS; padding goes to the left."""
        longest = max(map(len, ids))
        pad = self._tokenizer.pad_token_id
        padded = torch.tensor([[pad] * (longest - len(each)) + each for each in ids])
        lengths = torch.tensor([len(each) for each in ids])
        position_ids = torch.arange(longest) - (longest - lengths)[:, None]
        mask = (position_ids >= 0).long()
        position_ids.masked_fill_(mask == 0, 1)
        device = self._head.weight.device
        hidden = self._backbone(
            padded.to(device), attention_mask=mask.to(device), position_ids=position_ids.to(device)
        ).last_hidden_state[:, -1]
        rewards = self._head(hidden).squeeze(-1).float()
        if self._scale:
            rewards = (rewards - self._scale.mean) / self._scale.std
        return rewards.tolist()


def _scale(config: dict[str, Any]) -> Normalisation | None:
    try:
        return normalisation(config)
    except ValueError:  # a problem of whoever wants to use it
        return None


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"device {name!r} cannot be used here: {first}") from None
    return device


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Keeps the report on the head, which is loaded apart, and the progress bar off the screen."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
