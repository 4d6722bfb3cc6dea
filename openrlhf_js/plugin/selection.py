"""Prompts chosen by their earlier rewards: `--js.prompt_selection informative`.

A group whose rewards are all equal has no gradient, and that of binary rewards is largest in the
mean where their variance p (1 - p) is. docs/train.md.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from openrlhf_js.estimators import key_of
from openrlhf_js.plugin.upstream import BadInput

UNIFORM_SHARE = 0.1  # of the draws
PRIOR_RESPONSES = 0.25  # of the usual prompt, that are added to those of each prompt
PASSES = 2.0  # over the prompts until a response counts half


class PromptSelector:
    """Draws batches of prompts, each in proportion to the predicted variance of its rewards.

    Of each prompt it keeps discounted sums of its rewards and their squares. With c responses of
    mean y and mean square s, k = PRIOR_RESPONSES, and y_0, s_0 the means of y and s over all
    prompts that have been visited:

        variance_i = (c s + k s_0) / (c + k) - ((c y + k y_0) / (c + k))^2
        q_i  = (1 - u) variance_i / sum variance + u / N        u = UNIFORM_SHARE
        pi_i = min(1, a q_i), with the a for which they add up to b, the size of a batch

    A prompt that is not visited loses its past, so that it is predicted like the usual prompt.
    Batches are drawn by systematic sampling in a random order (Madow 1949), in which prompt i comes
    with probability pi_i exactly.
    """

    def __init__(self, keys: Tensor, batch_size: int, seed: int):
        """Knows nothing of the prompts yet.

        Args:
            keys: (N,) of the prompts, by `key_of`. A prompt that is there several times counts
                once, at its first row.
            batch_size: b, prompts in a batch.
            seed: of the draws; those of one seed and step are the same.

        Raises:
            BadInput: there are fewer prompts than a batch has.
        """
        self.keys, place = keys.unique(return_inverse=True)
        if batch_size > len(self.keys):
            raise BadInput(
                f"--js.prompt_selection: a batch of {batch_size} prompts cannot be drawn from "
                f"{len(self.keys)} different ones: take a smaller batch, or more prompts"
            )
        first = torch.full_like(self.keys, len(keys))
        self.rows = first.scatter_reduce(0, place, torch.arange(len(keys)), "amin")
        self.batch_size = batch_size
        self.seed = seed
        self.half_life = PASSES * len(self.keys) / batch_size  # in steps
        self.last = torch.full_like(self.keys, -1)  # step of the last visit
        # (3, N) discounted: of responses, rewards, squared rewards; as of the last visit
        self.sums = torch.zeros(3, len(self.keys), dtype=torch.float64)

    @property
    def next_step(self) -> int:
        """The step after the last one that was learnt."""
        return int(self.last.max()) + 1

    def choose(self) -> Tensor:
        """(b,) rows of the next step's prompts, counted from 0, none of them twice."""
        generator = torch.Generator().manual_seed(key_of(str(self.seed), str(self.next_step)))
        places = systematic_sample(self.probabilities(), generator)
        return self.rows[places[torch.randperm(len(places), generator=generator)]]

    def learn(self, keys: Tensor, rewards: Tensor, mask: Tensor) -> None:
        """Adds the rewards (n, m) of a step's prompts, by their keys (n,); those in `mask` alone.

        Raises ValueError for a prompt that is none of those that are drawn from.
        """
        step = self.next_step
        places = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        if not torch.equal(self.keys[places], keys):
            raise ValueError("rewards of a prompt that is not among those to choose from")
        rewards = rewards.double().where(mask, 0.0)
        added = torch.stack([mask.double().sum(1), rewards.sum(1), rewards.square().sum(1)])
        visited = places.unique()
        self.sums[:, visited] *= self._discount(step)[visited]
        self.last[visited] = step
        self.sums.index_add_(1, places, added)

    def state_dict(self) -> dict[str, Tensor]:
        """What is known of the prompts."""
        return {"keys": self.keys, "last": self.last, "sums": self.sums}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Takes what is known of the same prompts; what is known of others is of no use."""
        if torch.equal(state["keys"], self.keys):
            self.last = state["last"].clone()
            self.sums = state["sums"].clone()

    def probabilities(self) -> Tensor:
        """(N,) pi_i of the next step, in the order of the ascending keys."""
        variances = self._variances()
        if not variances.any():  # every reward has been the same, or none is known yet
            variances = torch.ones_like(variances)
        shares = (1 - UNIFORM_SHARE) * variances / variances.sum() + UNIFORM_SHARE / len(variances)
        return inclusion_probabilities(shares, self.batch_size)

    def _variances(self) -> Tensor:
        """(N,) predicted variance of a reward of each prompt; 0 before anything was learnt."""
        seen = self.sums[:, self.sums[0] > 0]
        if not seen.numel():
            return torch.zeros_like(self.sums[0])
        usual = (seen[1:] / seen[0]).mean(1, keepdim=True)  # (2, 1) over the prompts
        sums = self.sums * self._discount(self.next_step)
        mean, square = (sums[1:] + PRIOR_RESPONSES * usual) / (sums[0] + PRIOR_RESPONSES)
        return (square - mean.square()).clamp(min=0)

    def _discount(self, step: int) -> Tensor:
        """(N,) what a response of the last visit counts at a step."""
        return 0.5 ** ((step - self.last) / self.half_life)


def inclusion_probabilities(shares: Tensor, batch_size: int) -> Tensor:
    """(N,) min(1, a q_i) with the a for which they add up to the size of a batch, at most N.

    Args:
        shares: (N,) q_i > 0, which add up to 1.
        batch_size: b.
    """
    certain = torch.zeros_like(shares, dtype=torch.bool)
    while True:
        open_places = batch_size - int(certain.sum())
        probabilities = shares * open_places / shares[~certain].sum().clamp(min=1e-300)
        probabilities[certain] = 1.0
        new = ~certain & (probabilities >= 1)
        if not new.any():
            return probabilities
        certain |= new


def systematic_sample(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """(b,) places, each drawn with its probability; they add up to b, a whole number.

    The places are put in a random order, as intervals one after the other whose lengths are their
    probabilities; of points at U, U + 1, ..., with U uniform in [0, 1), each takes the place in
    whose interval it falls.
    """
    order = torch.randperm(len(probabilities), generator=generator)
    ends = probabilities[order].cumsum(0)
    batch_size = int(ends[-1].round())
    start = torch.rand((), generator=generator, dtype=torch.float64)
    points = start + torch.arange(batch_size)
    chosen = torch.searchsorted(ends, points, right=True).clamp(max=len(order) - 1)
    return order[chosen]


def start_selection(args: Any, dataset: Any) -> PromptSelector | None:
    """What chooses the prompts of a run with these nested arguments and `CheckedPrompts`.

    None where they are drawn uniformly. Raises BadInput where fewer prompts differ than a step
    trains on.
    """
    if args.js.prompt_selection == "uniform":
        return None
    return PromptSelector(dataset.keys(), args.rollout.batch_size, args.train.seed)
