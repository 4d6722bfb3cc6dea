"""What tells one start from another: the model's weights, and all that a task says."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

from answer_graders.programs.files import fingerprint
from baseline_research.tiny.record import TinyTask

VERSION_ITEMS = 20  # of each kind, that a task's version is computed from


@cache
def model_hash(folder: Path) -> str:
    """Twelve characters that change with a model's weights.

    Raises ValueError if there are none.
    """
    weights = list(folder.glob("*.safetensors"))
    if not weights:
        raise ValueError(
            f"{folder} holds no *.safetensors: scripts/models/smollm2.sh makes such a folder"
        )
    return fingerprint(weights)[:12]


@cache
def task_version(task: TinyTask) -> str:
    """Eight characters that change with what a task asks, grades, imitates or writes with."""
    split = task.split(0, VERSION_ITEMS)
    items = list(split.held_out)
    for kind in split.train:
        items += kind[:VERSION_ITEMS]
    labels = [task.label(item) for item in items]
    responses = [task.right_response(label) for label in labels[:VERSION_ITEMS]]
    scores = [[task.score(response, label).value for label in labels] for response in responses]
    described = {
        "tokens": task.tokens,
        "slips": task.slips,
        "slip": task.slip,
        "warm_start_steps": task.warm_start_steps,
        "max_tokens": (task.max_prompt_tokens, task.max_new_tokens),
        "prompts": [task.prompt(item) for item in items],
        "labels": labels,
        "responses": responses,
        "scores": scores,
    }
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:8]
