"""Pass@1 on held-out prompts, by sampling: the same sampler before and after training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, Qwen2ForCausalLM

from openrlhf_js.tiny.tasks import TinyTask


@torch.no_grad()
def sample_scores(
    model_folder: Path,
    task: TinyTask,
    items: Sequence[Any],
    *,
    samples: int,
    seed: int,
    batch: int = 50,
) -> list[list[float]]:
    """The scores of `samples` responses to each prompt, drawn at temperature 1.

    Args:
        model_folder: a Hugging Face folder with model and tokenizer.
        task: says how to ask and how to grade.
        items: one for each prompt.
        samples: responses per prompt.
        seed: of the sampler.
        batch: prompts per call of `generate`.

    Returns:
        One list of `samples` scores, each 0.0 or 1.0, for each prompt.
    """
    tokenizer = AutoTokenizer.from_pretrained(model_folder, padding_side="left")
    model = Qwen2ForCausalLM.from_pretrained(model_folder, dtype=torch.bfloat16).eval()
    torch.manual_seed(seed)
    scores: list[list[float]] = []
    for start in range(0, len(items), batch):
        part = items[start : start + batch]
        asked = tokenizer([task.prompt(item) for item in part], return_tensors="pt", padding=True)
        said = model.generate(
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
        texts = [text.replace(tokenizer.pad_token, "") for text in tokenizer.batch_decode(said)]
        for i, item in enumerate(part):
            label = task.label(item)
            group = texts[i * samples : (i + 1) * samples]
            scores.append([task.score(text, label).value for text in group])
    return scores


def write_scores(path: Path, prompts: Sequence[str], scores: Sequence[Sequence[float]]) -> None:
    """Saves the scores of each prompt, from which every mean and interval can be made."""
    rows = [
        {"prompt": prompt, "scores": list(row)} for prompt, row in zip(prompts, scores, strict=True)
    ]
    path.write_text(json.dumps(rows), encoding="utf-8")
