"""The value tracker of Single-stream Policy Optimization (Xu and Ding, 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from openrlhf_js.study.rollout import Rollout, valid_tokens
from openrlhf_js.tiny.policy import PaddedPrompts, TinyPolicy

LEAST_KEPT = 0.875  # of the earlier responses' weight, at a visit
MOST_KEPT = 0.96
HALVING_DRIFT = 0.06  # nats a token


class Visit(NamedTuple):
    """The responses to a prompt in one step."""

    responses: Tensor  # (m, T)
    log_probs: Tensor  # (m, T) before the step's update


class ValueTracker:
    """The baseline is the past alone: a prompt's value is a / (a + b).

    a counts right responses and b wrong ones, at first those of `study --offline`. A visit
    multiplies both by rho = 2^(-D / 0.06), at least 0.875 and at most 0.96, and adds its responses;
    D is the mean absolute change of the log-probabilities of the last visit's tokens. Advantages
    are normalised over the batch. Constants and D are those of the authors' recipe; its sampling of
    uncertain prompts is left out, so that all estimators train on the same ones.
    """

    def __init__(self, keys: Tensor, right: Tensor, samples: int):
        """Of `samples` earlier responses to each prompt (n,), so many (n,) have been right."""
        weight = 1 / (1 - LEAST_KEPT) if samples else 1
        counts = (torch.stack([right, samples - right], 1) + 0.5) / (samples + 1) * weight
        self.counts = dict(zip(keys.tolist(), counts, strict=True))  # a and b, (2,)
        self.visits: dict[int, Visit] = {}  # the last one of each prompt

    def advantages(self, keys: Tensor, rewards: Tensor) -> Tensor:
        """(n, m) before the update."""
        counts = torch.stack([self.counts[key] for key in keys.tolist()])
        values = counts[:, :1] / counts.sum(1, keepdim=True)
        advantages = rewards - values
        return (advantages - advantages.mean()) / (advantages.std() + 1e-8)

    @torch.no_grad()
    def update(self, keys: Tensor, rollout: Rollout, policy: TinyPolicy) -> None:
        """Adds a step's responses."""
        responses_per_prompt = rollout.rewards.shape[1]
        log_probs = policy.log_probs(rollout.prompts, rollout.responses)
        groups = zip(
            rollout.responses.split(responses_per_prompt),
            log_probs.split(responses_per_prompt),
            strict=True,
        )
        visits = list(zip(keys.tolist(), map(Visit._make, groups), strict=True))
        last_visits = [self.visits.get(key, visit) for key, visit in visits]
        drift = _drift(policy, rollout.prompts, last_visits)
        kept = (0.5 ** (drift / HALVING_DRIFT)).clamp(LEAST_KEPT, MOST_KEPT)
        right = rollout.rewards.sum(1).double()
        added = torch.stack([right, responses_per_prompt - right], dim=1)
        for place, (key, visit) in enumerate(visits):
            self.counts[key] = kept[place] * self.counts[key] + added[place]
            self.visits[key] = visit


def _drift(policy: TinyPolicy, prompts: PaddedPrompts, visits: Sequence[Visit]) -> Tensor:
    """(n,) mean absolute change of the tokens' log-probabilities since these visits."""
    pad = policy.tokenizer.pad_token_id
    responses = _stacked([visit.responses for visit in visits], pad)
    former = _stacked([visit.log_probs for visit in visits], 0.0)
    valid = valid_tokens(policy, responses)
    change = (policy.log_probs(prompts, responses) - former).abs() * valid
    changes = change.view(len(visits), -1).sum(1)
    tokens = valid.view(len(visits), -1).sum(1)
    return changes / tokens


def _stacked(tensors: Sequence[Tensor], padding: float) -> Tensor:
    """(n * m, T) from tensors (m, T) of different T, padded on the right."""
    longest = max(tensor.shape[1] for tensor in tensors)
    padded = [F.pad(tensor, (0, longest - tensor.shape[1]), value=padding) for tensor in tensors]
    return torch.cat(padded)
