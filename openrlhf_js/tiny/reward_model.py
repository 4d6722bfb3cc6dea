"""A reward model with random weights, in the layout that OpenRLHF's training saves."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from openrlhf_js.tiny.model import make_model, make_tokenizer, save
from openrlhf_js.tiny.tasks import sort

QUERY = sort.prompt("352") + sort.TASK.right_response("235")


def write(folder: Path, seed: int = 0) -> None:
    """Writes the quickstart's model with a value head in the place of its language head."""
    tokenizer = make_tokenizer(sort.TASK)
    model = make_model(tokenizer, seed)
    save(model, tokenizer, folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    head = torch.randn(1, model.config.hidden_size)
    save_file(tensors | {"score.weight": head.to(torch.bfloat16)}, folder / "model.safetensors")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(
        json.dumps(config | {"architectures": ["RewardModel"], "value_head_prefix": "score"})
    )
