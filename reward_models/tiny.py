"""Grader of the quickstart's task. Point a run at it with `--reward.remote_url` and this path."""

from __future__ import annotations

import torch

from openrlhf_js.tiny.task import score_query


def reward_func(
    queries: list[str], prompts: list[str], labels: list[str]
) -> dict[str, torch.Tensor | dict[str, torch.Tensor]]:
    """OpenRLHF's interface: one score for each query (prompt and response in one string)."""
    scores = torch.tensor(
        [score_query(*each) for each in zip(queries, prompts, labels, strict=True)]
    )
    return {"rewards": scores, "scores": scores, "extra_logs": {}}
