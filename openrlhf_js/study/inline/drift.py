"""How far a policy has moved since it last answered each prompt: what `spo` forgets by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from openrlhf_js.study.inline.rollout import Rollout, valid_tokens
from openrlhf_js.tiny.policy import PaddedPrompts, TinyPolicy


class GroupVisit(NamedTuple):
    """The responses to a prompt in one step."""

    responses: Tensor  # (m, T)
    log_probs: Tensor  # (m, T) before the step's update


class LastVisits:
    """The last visit of each prompt, by its key."""

    def __init__(self) -> None:
        self._visits: dict[int, GroupVisit] = {}

    @torch.no_grad()
    def replace(self, keys: Tensor, rollout: Rollout, policy: TinyPolicy) -> Tensor:
        """Keeps a rollout's responses, and returns the drift (n,) since the visits before.

        That is the mean absolute change of the log-probabilities of the former visit's tokens; 0
        for a prompt that is visited for the first time.
        """
        responses_per_prompt = rollout.rewards.shape[1]
        log_probs = policy.log_probs(rollout.prompts, rollout.responses)
        groups = zip(
            rollout.responses.split(responses_per_prompt),
            log_probs.split(responses_per_prompt),
            strict=True,
        )
        former: list[GroupVisit] = []
        is_known: list[bool] = []
        for key, (responses, group_log_probs) in zip(keys.tolist(), groups, strict=True):
            visit = GroupVisit(responses, group_log_probs)
            is_known.append(key in self._visits)
            former.append(self._visits.get(key, visit))
            self._visits[key] = visit
        drift = _drift(policy, rollout.prompts, former)
        return drift.where(torch.tensor(is_known), 0.0)  # scored twice today: rounding alone


def _drift(policy: TinyPolicy, prompts: PaddedPrompts, visits: Sequence[GroupVisit]) -> Tensor:
    """(n,) mean absolute change of the tokens' log-probabilities since these visits."""
    pad = policy.tokenizer.pad_token_id
    responses = _stacked([visit.responses for visit in visits], pad)
    former = _stacked([visit.log_probs for visit in visits], 0.0)
    valid = valid_tokens(policy, responses)
    changes = (policy.log_probs(prompts, responses) - former).abs() * valid  # (n * m, T)
    n = len(visits)
    return changes.view(n, -1).sum(1) / valid.view(n, -1).sum(1)


def _stacked(tensors: Sequence[Tensor], padding: float) -> Tensor:
    """(n * m, T) from tensors (m, T) of different T, padded on the right."""
    rows = [row for tensor in tensors for row in tensor]
    return pad_sequence(rows, batch_first=True, padding_value=padding)
