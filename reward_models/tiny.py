"""Sort, the quickstart's own task: the digits of the prompt in order, then the end token."""

from __future__ import annotations

import torch

from answer_graders.tasks.sort import score_query

TASK = "sort"


def reward_func(
    queries: list[str], prompts: list[str], labels: list[str]
) -> dict[str, torch.Tensor | dict[str, torch.Tensor]]:
    """OpenRLHF's interface: one score for each query (prompt and response in one string)."""
    scores = torch.tensor(
        [score_query(*each).value for each in zip(queries, prompts, labels, strict=True)]
    )
    return {"rewards": scores, "scores": scores, "extra_logs": {}}
