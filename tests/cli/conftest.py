"""A model with random weights, for the programs that sample."""

from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

REWARD = """
def reward_func(queries, prompts, labels):
    said = [query[len(prompt):] for query, prompt in zip(queries, prompts)]
    return {"rewards": [float(label in each) for label, each in zip(labels, said)]}
"""


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """A folder with a model of the letters a to h, and a reward for saying the label."""
    folder = tmp_path_factory.mktemp("letters")
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<eos>", *"abcdefgh"])}
    words = Tokenizer(models.WordLevel(vocabulary))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>"
    )
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=10,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=16,
        eos_token_id=1,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    (folder / "reward.py").write_text(REWARD)
    return folder
