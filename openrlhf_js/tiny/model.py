"""The tiny model: Qwen2 with 3 layers of 128, 0.65M parameters, and few tokens, those of its task.

Before reinforcement it imitates careless demonstrations, in which each digit, move or operator is
wrong with probability `slip`: its most likely answer is right, but it often slips, so that
reinforcement has work left to do.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.nn.functional import cross_entropy
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from openrlhf_js.common.files import write_json
from openrlhf_js.tiny.tasks import END, TinyTask, draw

PAD = "<pad>"
CONTEXT = 8192  # tokens, so that evaluations need no flag; positions are rotary and cost nothing
VISION = {  # of a model that sees, as its configuration names them
    "vision_start_token_id": "<|vision_start|>",
    "image_token_id": "<|image_pad|>",
    "vision_end_token_id": "<|vision_end|>",
    "video_token_id": "<|video_pad|>",
}
FIGURE = "<|vision_start|><|image_pad|><|vision_end|>"
CHAT_TEMPLATE = (  # `sort(72)=27<eos>`, as the task writes it, from messages
    "{% for message in messages %}{% for part in message['content'] %}"
    f"{{{{ part if part is string else part['text'] or '{FIGURE}' }}}}{{% endfor %}}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
)
PIXELS = 56 * 56  # of a figure, whatever its size: 4 tokens
LEARNING_RATE = 2e-3
WARM_UP_STEPS = 10
IGNORED = -100  # cross_entropy's mark for "no loss here"


def make_tokenizer(task: TinyTask) -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are the task's own; decoding gives back the very text.

    Any other text becomes padding, so that the model can be asked anything.
    """
    vocabulary = {token: i for i, token in enumerate([PAD, END, *task.tokens])}
    any_token = Regex("|".join(map(re.escape, task.tokens)))
    words = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    words.pre_tokenizer = pre_tokenizers.Split(any_token, "isolated")
    words.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token=PAD,
        # OpenRLHF's reward training puts a space before an end that it adds itself.
        eos_token=AddedToken(END, lstrip=True, special=True),
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
    )


def make_model(
    tokenizer: PreTrainedTokenizerFast, seed: int, width: int = 128, layers: int = 3
) -> Qwen2ForCausalLM:
    """A model with random weights, in float32."""
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=False,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


def make_vision_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> PreTrainedModel:
    """A Qwen2.5-VL with random weights, in float32; the tokenizer must have the tokens `VISION`."""
    text = make_model(tokenizer, seed).config.to_dict()
    text["rope_parameters"]["mrope_section"] = [4, 6, 6]
    sizes = {"depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2}
    vision = {**sizes, "out_hidden_size": text["hidden_size"], "fullatt_block_indexes": [1]}
    tokens = {name: tokenizer.convert_tokens_to_ids(token) for name, token in VISION.items()}
    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(
            text_config=text, vision_config=vision, tie_word_embeddings=False, **tokens
        )
    )


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Writes a Hugging Face folder, in bfloat16 as OpenRLHF trains and vLLM samples."""
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if hasattr(model.config, "vision_config"):
        images = {"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": PIXELS}
        write_json(folder / "preprocessor_config.json", {**images, "max_pixels": PIXELS})


def imitate(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    task: TinyTask,
    train: list[list[Any]],
    *,
    seed: int,
    batch_size: int = 64,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Trains a float32 model in place on demonstrations for the training items (by kind).

    `on_step` is called after each step with its number, from 1, and its loss in nats per token.
    """
    rng, steps = random.Random(seed), task.warm_start_steps
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min(1.0, (done + 1) / WARM_UP_STEPS) * (1 - done / (steps + 1))
    )
    model.train()
    for step in range(1, steps + 1):
        tokens, targets = _demonstrations(tokenizer, task, draw(train, batch_size, rng), rng)
        logits = model(tokens, use_cache=False).logits
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        on_step(step, loss.item())


def _demonstrations(
    tokenizer: PreTrainedTokenizerFast, task: TinyTask, items: Sequence[Any], rng: random.Random
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (b, T), padded on the right, and the next token at each place of a response (b, T)."""
    shape = len(items), task.max_tokens
    tokens = torch.full(shape, tokenizer.pad_token_id)
    targets = torch.full(shape, IGNORED)
    slips = tokenizer.convert_tokens_to_ids(list(task.slips))
    for row, item in enumerate(items):
        asked = tokenizer.encode(task.prompt(item))
        response = tokenizer.encode(task.right_response(task.label(item)) + END)
        for i, right in enumerate(response):
            if right in slips and rng.random() < task.slip:
                response[i] = rng.choice([other for other in slips if other != right])
        end = len(asked) + len(response)
        tokens[row, :end] = torch.tensor(asked + response)
        targets[row, len(asked) - 1 : end - 1] = torch.tensor(response)
    return tokens, targets


def warm_start(
    folder: Path,
    task: TinyTask,
    train: list[list[Any]],
    *,
    seed: int,
    width: int = 128,
    layers: int = 3,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Makes a Hugging Face folder with a model that has imitated careless demonstrations."""
    tokenizer = make_tokenizer(task)
    model = make_model(tokenizer, seed, width, layers)
    imitate(model, tokenizer, task, train, seed=seed, on_step=on_step)
    save(model, tokenizer, folder)
