"""A reward model with random weights, in the layout that OpenRLHF's training saves."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from openrlhf_js.tiny.model import make_model, make_tokenizer, save
from openrlhf_js.tiny.tasks import TinyTask, sort

QUERY = sort.prompt("352") + sort.TASK.right_response("235")


def write(
    folder: Path, seed: int = 0, task: TinyTask = sort.TASK, chat_template: str | None = None
) -> None:
    """Writes the quickstart's model with a value head in the place of its language head.

    Args:
        folder: made if it is not there.
        seed: of the weights.
        task: whose tokens it reads.
        chat_template: the tokenizer's.
    """
    tokenizer = make_tokenizer(task)
    tokenizer.chat_template = chat_template
    model = make_model(tokenizer, seed)
    save(model, tokenizer, folder)
    width = model.config.hidden_size
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    tensors["score.weight"] = torch.randn(1, width).to(torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["RewardModel"], "value_head_prefix": "score"}
    config |= {"mean": 0.0, "std": width**0.5}  # what the head makes of normalised values
    (folder / "config.json").write_text(json.dumps(config))
