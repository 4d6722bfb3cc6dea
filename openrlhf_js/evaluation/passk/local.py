"""Samples from an engine in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from openrlhf_js import __version__
from openrlhf_js.evaluation.passk.grading import grade_all
from openrlhf_js.evaluation.passk.items import Item
from openrlhf_js.evaluation.passk.samples import LENGTH, Sample, SampleFile
from openrlhf_js.sampling.engines import Engine, key
from openrlhf_js.sampling.prompts import Form, Prompt, asked

Progress = Callable[[int], None]  # samples that are done


def form_of(tokenizer: Any, form: str) -> str:
    """`chat` or `text`: what `auto` means for this tokenizer."""
    if form != "auto":
        return form
    return "chat" if getattr(tokenizer, "chat_template", None) else "text"


def prompts_of(items: Sequence[Item], tokenizer: Any, form: str) -> list[Prompt]:
    """The items as an engine is given them.

    Args:
        items: without images.
        tokenizer: of the model.
        form: `chat` takes the tokenizer's chat template, `text` the bare text, and `auto` the
            template where there is one.

    Raises:
        ValueError: an item has images, or there is no template.
    """
    if pictured := sum(bool(item.images) for item in items):
        raise ValueError(
            f"{pictured} of {len(items)} items have images, and an engine in this process takes "
            "text only: serve the model (`vllm serve MODEL --generation-config vllm`), and give "
            "its address, such as --model http://localhost:8000/v1"
        )
    chat = form_of(tokenizer, form) == "chat"
    if chat and not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            "the model's tokenizer has no chat template: take --prompt_form text, or add "
            "`chat_template` to its tokenizer_config.json"
        )
    rows = [
        {
            "input": item.messages if chat else item.text,
            "label": item.label,
            "datasource": item.datasource,
        }
        for item in items
    ]
    return asked(rows, Form(apply_chat_template=chat), tokenizer)


def sample_local(
    file: SampleFile,
    items: Sequence[Item],
    prompts: Sequence[Prompt],
    samples: int,
    engine: Engine,
    ends: Sequence[int],
    decode: Callable[[list[int]], str],
    seed: int,
    rows: int,
    progress: Progress,
) -> None:
    """Samples, grades and writes what is missing, batch after batch.

    Args:
        file: gets them.
        items: of the benchmark.
        prompts: the same, for the engine.
        samples: to each item.
        engine: samples.
        ends: the tokens that end a response; one of them is no part of its text.
        decode: text of tokens.
        seed: of the samples.
        rows: in a batch.
        progress: is told after each batch.
    """
    done = 0
    for batch in file.batches(len(items), samples, rows):
        keys = [key(seed, item, draw) for item, draw in batch]
        began = time.perf_counter()
        responses = engine.sample([prompts[item].tokens for item, _ in batch], keys)
        seconds = (time.perf_counter() - began) / len(batch)
        lists = [response.tolist() for response in responses]
        ended = [bool(tokens) and tokens[-1] in ends for tokens in lists]
        texts = [
            decode(tokens[:-1] if end else tokens) for tokens, end in zip(lists, ended, strict=True)
        ]
        graded = grade_all([items[item] for item, _ in batch], texts)
        file.append(
            Sample(item, draw, keys[i], texts[i], len(lists[i]), "stop" if ended[i] else LENGTH,
                   *graded[i], seconds, graded_by=__version__)
            for i, (item, draw) in enumerate(batch)
        )  # fmt: skip
        done += len(batch)
        progress(done)
