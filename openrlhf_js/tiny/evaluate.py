"""Scores on held-out prompts, by sampling: the same sampler before and after training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, Qwen2ForCausalLM

from openrlhf_js.tiny.tasks import END, TinyTask


def grade(
    task: TinyTask, items: Sequence[Any], texts: Sequence[Sequence[str]]
) -> list[list[float]]:
    """The scores of texts (prompts, samples), in the same order."""
    return [
        [task.score(text, task.label(item)).value for text in group]
        for item, group in zip(items, texts, strict=True)
    ]


@torch.no_grad()
def sample_texts(
    model_folder: Path,
    task: TinyTask,
    items: Sequence[Any],
    *,
    samples: int,
    seed: int,
    batch: int = 50,
) -> list[list[str]]:
    """Responses of a Hugging Face model at temperature 1, (prompts, samples), up to their ends."""
    tokenizer = AutoTokenizer.from_pretrained(model_folder, padding_side="left")
    model = Qwen2ForCausalLM.from_pretrained(model_folder, dtype=torch.bfloat16).eval()
    torch.manual_seed(seed)
    texts: list[list[str]] = []
    for start in range(0, len(items), batch):
        prompts = [task.prompt(item) for item in items[start : start + batch]]
        asked = tokenizer(prompts, return_tensors="pt", padding=True)
        generated = model.generate(
            input_ids=asked.input_ids,
            attention_mask=asked.attention_mask,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            num_return_sequences=samples,
            max_new_tokens=task.max_new_tokens,
            pad_token_id=tokenizer.pad_token_id,
        )[:, asked.input_ids.shape[1] :]
        found = [_up_to_end(text) for text in tokenizer.batch_decode(generated)]
        texts += [found[i : i + samples] for i in range(0, len(found), samples)]
    return texts


def _up_to_end(text: str) -> str:
    """Without the padding that follows a response's end; a response without end has none."""
    response, end, _ = text.partition(END)
    return response + end


def write_scores(path: Path, prompts: Sequence[str], scores: Sequence[Sequence[float]]) -> None:
    """Saves the scores of each prompt, from which every mean and interval can be computed."""
    rows = [{"prompt": p, "scores": list(row)} for p, row in zip(prompts, scores, strict=True)]
    path.write_text(json.dumps(rows), encoding="utf-8")
