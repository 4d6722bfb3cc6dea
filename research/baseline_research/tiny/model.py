"""The tiny model: Qwen2, 3 layers of width 128, 0.65M parameters; its few tokens are its task's.

Before reinforcement learning it imitates careless demonstrations, in which each digit, move or
operator is wrong with probability `slip`. Its most likely answer is then right, but it often slips,
so reinforcement learning has something left to improve.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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

from answer_graders.programs.files import write_json
from baseline_research.tiny.record import TinyTask
from baseline_research.tiny.tasks import END, sample_items

PAD = "<pad>"
CONTEXT = 8192  # tokens, so that evaluations need no flag; positions are rotary and cost nothing
VISION = {  # special tokens of a vision-language model, by their names in its configuration
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
PIXELS = 56 * 56  # per figure, whatever its size: 4 tokens
LEARNING_RATE = 2e-3
WARM_UP_STEPS = 10
IGNORED = -100  # cross_entropy's mark for "no loss here"


def make_tokenizer(tokens: Sequence[str]) -> PreTrainedTokenizerFast:
    """A tokenizer with these tokens, such as a task's; decoding returns exactly the encoded text.

    Any other text becomes padding, so any prompt can be encoded.
    """
    vocabulary = {PAD: 0, END: 1}
    for token in tokens:
        vocabulary.setdefault(token, len(vocabulary))
    any_token = Regex("|".join(map(re.escape, tokens)))
    words = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    words.pre_tokenizer = pre_tokenizers.Split(any_token, "isolated")
    words.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token=PAD,
        # OpenRLHF's reward training puts a space before the end token that it adds.
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
    text_config = make_model(tokenizer, seed).config.to_dict()
    text_config["rope_parameters"]["mrope_section"] = [4, 6, 6]
    vision_config = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "out_hidden_size": text_config["hidden_size"],
        "fullatt_block_indexes": [1],
    }
    token_ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in VISION.items()}
    config = Qwen2_5_VLConfig(
        text_config=text_config,
        vision_config=vision_config,
        tie_word_embeddings=False,
        **token_ids,
    )
    return Qwen2_5_VLForConditionalGeneration(config)


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Writes a Hugging Face folder, in bfloat16 as OpenRLHF trains and vLLM samples."""
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if hasattr(model.config, "vision_config"):
        image_processor = {
            "image_processor_type": "Qwen2VLImageProcessor",
            "min_pixels": PIXELS,
            "max_pixels": PIXELS,
        }
        write_json(folder / "preprocessor_config.json", image_processor)


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
    """Trains a float32 model in place on demonstrations for training items, listed by kind.

    `on_step` is called after each step with its number, from 1, and its loss in nats per token.
    """
    rng = random.Random(seed)
    steps = task.warm_start_steps

    def rate(done: int) -> float:
        warm_up = min(1.0, (done + 1) / WARM_UP_STEPS)
        return warm_up * (1 - done / (steps + 1))

    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    model.train()
    for step in range(1, steps + 1):
        items = sample_items(train, batch_size, rng)
        batch = _demonstrations(tokenizer, task, items, rng)
        logits = model(batch.tokens, use_cache=False).logits
        loss = cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        on_step(step, loss.item())


class Demonstrations(NamedTuple):
    """Prompts with careless responses, to be imitated."""

    tokens: torch.Tensor
    """(b, T), padded on the right."""
    targets: torch.Tensor
    """(b, T) the next token at each place of a response, elsewhere IGNORED."""


def _demonstrations(
    tokenizer: PreTrainedTokenizerFast, task: TinyTask, items: Sequence[Any], rng: random.Random
) -> Demonstrations:
    batch = Demonstrations(
        tokens=torch.full((len(items), task.max_tokens), tokenizer.pad_token_id),
        targets=torch.full((len(items), task.max_tokens), IGNORED),
    )
    slips = tokenizer.convert_tokens_to_ids(list(task.slips))
    for row, item in enumerate(items):
        prompt = tokenizer.encode(task.prompt(item))
        if task.demonstrate is not None:
            response = tokenizer.encode(task.demonstrate(item, rng) + END)
        else:
            right_response = task.right_response(task.label(item)) + END
            right_tokens = tokenizer.encode(right_response)
            response = _careless(right_tokens, slips, task.slip, rng)
        start = len(prompt)
        end = start + len(response)
        batch.tokens[row, :end] = torch.tensor(prompt + response)
        batch.targets[row, start - 1 : end - 1] = torch.tensor(response)
    return batch


def _careless(
    right_tokens: list[int], slips: list[int], probability: float, rng: random.Random
) -> list[int]:
    """The response with each token of `slips` replaced by another with this probability."""
    response = []
    for token in right_tokens:
        if token in slips and rng.random() < probability:
            token = rng.choice([slip for slip in slips if slip != token])
        response.append(token)
    return response


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
    """Writes a Hugging Face folder with a model that has imitated careless demonstrations."""
    tokenizer = make_tokenizer(task.tokens)
    model = make_model(tokenizer, seed, width, layers)
    imitate(model, tokenizer, task, train, seed=seed, on_step=on_step)
    save(model, tokenizer, folder)
