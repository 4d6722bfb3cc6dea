"""Texts are cut as the tokenizer cuts them, and end in EOS."""

import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from openrlhf_js.reward_model import preferences
from openrlhf_js.reward_model.preferences import encode, ended

END = "<|im_end|>"
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PIECES = [
    *("the baseline", " shrinks", "  towards", " 12345", "\n\n", "    return", " isn't", ", ", "."),
    *("<|im_start|>user\n", END, "\n", " é", "报酬", "🙂", "\t", " {'a': [1, 2]}", "---", " " * 40),
    " " + "1234567" * 4,  # at most 28 tokens, all of which change where it begins elsewhere
]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE with Llama 3's pattern, trained on this package."""
    made = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(LLAMA_3), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    package = Path(preferences.__file__).parents[1]
    special = ["<|im_start|>", END]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train(
        [str(path) for path in sorted(package.rglob("*.py"))],
        trainers.BpeTrainer(vocab_size=4000, special_tokens=special, initial_alphabet=alphabet),
    )
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END, pad_token=END)


def cut_by_the_tokenizer(tokenizer: Any, text: str, max_len: int) -> list[int]:
    options = {"max_length": max_len, "truncation": True, "add_special_tokens": False}
    ids = tokenizer([ended(text, END)], **options)["input_ids"][0]
    return [*ids[:-1], tokenizer.eos_token_id]


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_tokens_are_those_that_the_tokenizer_keeps(side, tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "truncation_side", side)
    rng = random.Random(0)
    for number in range(100):
        max_len = rng.randint(1, 40)
        text = "".join(rng.choices(PIECES, k=rng.choice([0, 5, 30])))
        expected = cut_by_the_tokenizer(tokenizer, text, max_len)
        assert encode(tokenizer, [text, "a", text], max_len)[::2] == [expected] * 2, number
