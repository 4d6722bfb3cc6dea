"""How many tokens a text takes, and what is left of one that is too long."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from typing import Any

# Steps of byte-level tokenizers (GPT-2, Llama 3, Qwen) that cut text apart and add nothing to it.
_CUTTING = {"Sequence", "Split", "ByteLevel", "Digits"}


class Budget:
    """The longest text that is trained on whole.

    Args:
        tokenizer: of the model, as transformers loads it.
        max_len: in tokens, the end-of-sequence token among them (`--data.max_len`).
    """

    def __init__(self, tokenizer: Any, max_len: int):
        self.max_len = max_len
        self._tokenizer = tokenizer
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        self._token_is_byte = self._backend is not None and _token_is_byte(self._backend)

    def fits(self, text: str) -> bool:
        """Whether the text is known to be short enough without being tokenized.

        A token of a byte-level tokenizer stands for a byte or more.
        """
        return (
            self._token_is_byte
            and len(text.encode()) <= self.max_len
            and unicodedata.is_normalized("NFC", text)
        )

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """The tokens of each text, on several cores where the tokenizer can; `len` counts them.

        Raises:
            ValueError: the tokenizer cannot take one of them.
        """
        try:
            if self._backend is None:
                return list(self._tokenizer(list(texts), add_special_tokens=False)["input_ids"])
            self._backend.no_truncation()  # transformers sets both anew at every call of its own
            self._backend.no_padding()
            return list(self._backend.encode_batch_fast(list(texts), add_special_tokens=False))
        except Exception as error:  # tokenizers has no class of errors of its own
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise ValueError(f"the tokenizer cannot take a text ({reason})") from error

    def kept(self, encoded: Any) -> list[int]:
        """The ids that are trained on, but for the last, which becomes the end.

        Args:
            encoded: one of what `encode` gives.
        """
        ids = list(getattr(encoded, "ids", encoded))
        left = self._tokenizer.truncation_side == "left"
        return (ids[-self.max_len :] if left else ids[: self.max_len])[:-1]


def _token_is_byte(backend: Any) -> bool:
    """Whether a text cannot have more tokens than it has bytes in Unicode's composed form."""
    normalizer, steps = _described(backend.normalizer), _described(backend.pre_tokenizer)
    parts = [steps, *steps.get("pretokenizers", [])]
    kinds = {part.get("type") for part in parts}
    return (
        type(backend.model).__name__ == "BPE"
        and "ByteLevel" in kinds
        and kinds <= _CUTTING
        and not any(part.get("add_prefix_space") for part in parts)
        and normalizer.get("type") in (None, "NFC")
    )


def _described(part: Any) -> dict[str, Any]:
    return {} if part is None else json.loads(part.__getstate__())
