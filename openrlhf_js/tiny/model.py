"""The model: Qwen2 with 3 layers of 128, 0.65M parameters, and few tokens, those of its task."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from openrlhf_js.tiny.tasks import END, TinyTask

PAD = "<pad>"


def make_tokenizer(task: TinyTask) -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are the task's own; decoding gives back the very text."""
    vocabulary = {token: i for i, token in enumerate([PAD, END, *task.tokens])}
    any_token = Regex("|".join(map(re.escape, task.tokens)))
    words = Tokenizer(models.WordLevel(vocabulary))
    words.pre_tokenizer = pre_tokenizers.Split(any_token, "isolated")
    words.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token=PAD,
        # OpenRLHF's reward training puts a space before an end that it adds itself.
        eos_token=AddedToken(END, lstrip=True, special=True),
        clean_up_tokenization_spaces=False,
        model_max_length=task.max_tokens,
        padding_side="left",
    )


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen2ForCausalLM:
    """A model with random weights, in float32."""
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=64,
            tie_word_embeddings=False,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


def save(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Writes a Hugging Face folder, in bfloat16 as OpenRLHF trains and vLLM samples."""
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
