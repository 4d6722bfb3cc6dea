"""How far the policy has moved since it last answered each prompt: what `spo` forgets by.

The last responses to each prompt are kept with their log-probabilities, and scored once more by the
policy of today: one more forward pass a step, and 8 bytes a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from torch import Tensor

from openrlhf_js.plugin.upstream import BadInput

VISITS = "js_last_visits"  # the key in the states that upstream saves with the actor


class Visit(NamedTuple):
    """One response, without padding: t tokens with the prompt, a of which may be trained on."""

    sequence: Tensor  # (t,) int32
    action_mask: Tensor  # (a,) bool
    log_probs: Tensor  # (a,) float32


class LastVisits:
    """The last responses to each prompt, by its key and the number of the response."""

    def __init__(self) -> None:
        self.visits: dict[tuple[int, int], Visit] = {}

    def replace(self, maker: Any, experiences: Sequence[Any], keys: Tensor) -> Tensor:
        """Keeps a step's responses, and returns the drift (n,) since the visits before.

        That is the mean absolute change of the log-probabilities of the former visits' tokens; 0
        for a prompt that is visited for the first time.

        Args:
            maker: the experience maker, whose actor scores the former responses.
            experiences: the step's micro-batches, scored.
            keys: (n,) of the step's prompts, in their order.
        """
        responses = maker.args.rollout.n_samples_per_prompt
        today = []  # visits, each with its place: the prompt's key, and which of its responses
        former = []
        known = torch.zeros(len(keys), dtype=torch.bool)
        for experience in experiences:
            if any(experience.mm_train_inputs):
                raise BadInput(
                    "spo scores each prompt's last responses once more, which is not built for "
                    "images: choose another --algo.advantage.estimator"
                )
            for row, number in enumerate(experience.index):
                place = (int(keys[number // responses]), number % responses)
                visit = _visit(experience, row)
                today.append((place, visit))
                known[number // responses] |= place in self.visits
                former.append(self.visits.get(place, visit))
        drift = torch.zeros(len(keys), dtype=torch.float64)
        if known.any():
            drift = _drift(maker, experiences, former, len(keys))
            drift[~known] = 0.0  # scored twice today, which differs by rounding
        self.visits.update(today)
        return drift


def _visit(experience: Any, row: int) -> Visit:
    tokens = int(experience.attention_mask[row].sum())
    padding = experience.sequences.shape[1] - tokens
    actions = experience.action_mask.shape[1] - padding
    # cloned: a view would keep the whole micro-batch
    return Visit(
        sequence=experience.sequences[row, :tokens].int().clone(),
        action_mask=experience.action_mask[row, :actions].bool().clone(),
        log_probs=experience.action_log_probs[row, :actions].float().clone(),
    )


def _drift(maker: Any, experiences: Sequence[Any], former: Sequence[Visit], n: int) -> Tensor:
    """(n,) from the former visits of every response, in micro-batches as large as today's."""
    batches = []
    start = 0
    for experience in experiences:
        visits = former[start : start + len(experience.index)]
        batches.append(_micro_batch(visits, maker.tokenizer.pad_token_id))
        start += len(visits)
    args = maker.args
    scored = maker._dispatch_forward(
        maker.actor_model_group,
        args.train.colocate_all or args.train.colocate_actor_ref,
        sequences=[batch.sequences for batch in batches],
        action_mask=[batch.action_mask for batch in batches],
        attention_mask=[batch.attention_mask for batch in batches],
    )
    copies = args.ds.ring_attn_size * args.ds.tensor_parallel_size
    log_probs = maker._flatten_results(scored, copies)
    change = torch.zeros(n, dtype=torch.float64)
    tokens = torch.zeros(n, dtype=torch.float64)
    for experience, batch, now in zip(experiences, batches, log_probs, strict=True):
        prompts = torch.tensor(experience.index) // args.rollout.n_samples_per_prompt
        moved = (now.float() - batch.action_log_probs).abs() * batch.action_mask
        change.index_add_(0, prompts, moved.sum(1).double())
        tokens.index_add_(0, prompts, batch.action_mask.sum(1).double())
    return change / tokens.clamp(min=1)


def _micro_batch(visits: Sequence[Visit], pad: int) -> Any:
    """The visits padded as upstream pads its samples."""
    rows = []
    for visit in visits:
        sequence = visit.sequence.long()[None]
        row = Experience(
            sequences=sequence,
            attention_mask=torch.ones_like(sequence),
            action_mask=visit.action_mask[None],
            action_log_probs=visit.log_probs[None],
            index=[0],
        )
        rows.append(row)
    return Experience.concat_experiences(rows, pad)
