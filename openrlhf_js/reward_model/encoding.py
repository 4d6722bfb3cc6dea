"""Texts as token ids, exactly as OpenRLHF's reward model training makes them, and in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openrlhf_js.reward_model.preferences import ended


def encode(tokenizer: Any, texts: Sequence[str], max_len: int) -> list[list[int]]:
    """The token ids of each text, ending with EOS; at least 1 and at most `max_len` of them.

    As `openrlhf.datasets.RewardDataset` does it: newlines at the end go, EOS comes after a space
    unless the text ends with it, the tokenizer cuts on its own truncation side, and the last token
    becomes EOS whatever it was. `openrlhf.cli.serve_rm` does none of that but the cut, and so gives
    other scores than those that were trained.
    """
    if not texts:  # which tokenizers do not take
        return []
    ids = tokenizer(
        [ended(text, tokenizer.eos_token) for text in texts],
        max_length=max_len,
        truncation=True,
        padding=False,
        add_special_tokens=False,
    )["input_ids"]
    return [[*each[:-1], tokenizer.eos_token_id] for each in ids]


def micro_batches(lengths: Sequence[int], max_tokens: int, max_count: int) -> list[list[int]]:
    """Indices of texts that go through the model together: of similar lengths, longest first.

    Args:
        lengths: of the texts, in tokens.
        max_tokens: of a batch with its padding, count x longest. A longer text goes alone.
        max_count: texts in a batch.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        last = batches[-1] if batches else []
        tokens = lengths[last[0]] * (len(last) + 1) if last else 0
        if last and len(last) < max_count and tokens <= max_tokens:
            last.append(index)
        else:
            batches.append([index])
    return batches
