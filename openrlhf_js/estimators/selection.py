"""Prompts chosen by what is known of them: those whose rewards still vary are drawn more often.

A group whose rewards are all equal has no gradient, and that of binary rewards is largest in the
mean where their variance p (1 - p) is. docs/train.md.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from openrlhf_js.estimators.memory import key_of

UNIFORM_SHARE = 0.1  # of the draws; it also bounds the weights, at its inverse
PRIOR_RESPONSES = 0.25  # of the usual prompt, that are added to those of each prompt
SPO_LEAST = 0.05  # of the standard deviation that a prompt is drawn by
PASSES = 2.0  # over the prompts until a response counts half
RELIABILITY_BINS = 5  # of the predicted pass rate


Rule: TypeAlias = Literal["variance", "spo"]


class Choice(NamedTuple):
    """What a selector has said of the prompts of one step before it learned their rewards."""

    rows: Tensor  # (b,) of the prompts, counted from 0
    weights: Tensor  # (b,) of their advantages
    predicted: Tensor  # (b,) mean reward
    logged: dict[str, float]  # under `js/`


class PromptSelector:
    """Draws batches of prompts, each in proportion to the predicted variance of its rewards.

    Of each prompt it keeps discounted sums of its rewards and their squares. With c responses of
    mean y and mean square s, k = PRIOR_RESPONSES, and y_0, s_0 the means of y and s over all
    prompts that have been visited:

        variance_i = (c s + k s_0) / (c + k) - ((c y + k y_0) / (c + k))^2
        q_i  = (1 - u) variance_i / sum variance + u / N        u = UNIFORM_SHARE
        pi_i = min(1, a q_i), with the a for which they add up to b, the size of a batch

    With the rule "spo", q_i is proportional to sqrt(variance_i) + 0.05 instead, as in
    Single-stream Policy Optimization (Xu and Ding, 2025), whose rewards are 0 and 1.

    With binary rewards variance_i is p (1 - p). A prompt that is not visited loses its past, so
    that it is predicted like the usual prompt; so is a new one. Batches are drawn by systematic
    sampling in a random order (Madow 1949), in which prompt i comes with probability pi_i exactly.

    Examples:
        >>> keys = torch.tensor([1, 2, 3])  # as `key_of` makes them of prompts
        >>> selector = PromptSelector(keys, batch_size=1)
        >>> rewards = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
        >>> selector.learn(keys, rewards, step=0)
        >>> selector.probabilities(step=1)
        tensor([0.1755, 0.6490, 0.1755], dtype=torch.float64)
        >>> selector.means(step=1)
        tensor([0.9385, 0.5000, 0.0615], dtype=torch.float64)
    """

    def __init__(self, keys: Tensor, batch_size: int, seed: int = 0, *, rule: Rule = "variance"):
        """Knows nothing of the prompts yet.

        Args:
            keys: (N,) of the prompts, by `key_of`. A prompt that is there several times counts
                once, at its first row.
            batch_size: b, prompts in a batch.
            seed: of the draws; those of one seed and step are the same.
            rule: what q_i is made of.

        Raises:
            ValueError: there are fewer prompts than a batch has.
        """
        ascending, place = keys.unique(return_inverse=True)
        if not 1 <= batch_size <= len(ascending):
            raise ValueError(
                f"a batch of {batch_size} prompts cannot be drawn from {len(ascending)} different "
                "ones: take a smaller batch, or more prompts"
            )
        self.keys = ascending
        first = torch.full_like(ascending, len(keys))
        self.rows = first.scatter_reduce(0, place, torch.arange(len(keys)), "amin")
        self.batch_size = batch_size
        self.seed = seed
        self.rule = rule
        self.half_life = PASSES * len(ascending) / batch_size  # in steps
        self.last = torch.full_like(ascending, -1)  # step of the last visit
        # (3, N) discounted: of responses, rewards, squared rewards; as of the last visit
        self.sums = torch.zeros(3, len(ascending), dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.keys)

    def choose(self, step: int) -> Tensor:
        """(b,) the rows of the prompts of a step, counted from 0, given what was learnt before.

        No prompt comes twice. Their order is random, so that a part of them is a smaller batch of
        the same kind.
        """
        return self.rows[self._chosen_places(step)]

    def choice(self, step: int) -> Choice:
        """The prompts of a step, as `choose` has them, with what is to be known of them."""
        places = self._chosen_places(step)
        return Choice(
            rows=self.rows[places],
            weights=self.weights(self.keys[places], step),
            predicted=self.means(step)[places],
            logged=self.describe(step),
        )

    def _chosen_places(self, step: int) -> Tensor:
        """(b,) places among the ascending keys."""
        probabilities = self.probabilities(step)
        generator = torch.Generator().manual_seed(key_of(str(self.seed), str(step)))
        places = systematic_sample(probabilities, generator)
        return places[torch.randperm(len(places), generator=generator)]

    def describe(self, step: int) -> dict[str, float]:
        """What to log of a step's choice, under `js/`.

        `effective_prompts` is 1 / sum (pi_i / b)^2: so many prompts, drawn uniformly, would be as
        concentrated. `oldest_prompt` are the steps since the prompt that has waited longest was
        visited; of one that never was, all steps and one more.
        """
        shares = self.probabilities(step) / self.batch_size
        return {
            "js/effective_prompts": float(1 / shares.square().sum()),
            "js/oldest_prompt": float(step - self.last.min()),
        }

    def weights(self, keys: Tensor, step: int) -> Tensor:
        """(b,) w_i = b / (N pi_i) of a step's prompts, by their keys, before it is learnt.

        The mean of w_i x_i over the batch is an unbiased estimate of the mean of x over all N
        prompts (Horvitz and Thompson 1952). By variance no weight is above 1 / UNIFORM_SHARE.
        """
        probabilities = self.probabilities(step)[self._places(keys)]
        return self.batch_size / (len(self) * probabilities)

    @property
    def next_step(self) -> int:
        """The step after the last one that was learnt."""
        return int(self.last.max()) + 1

    def learn(self, keys: Tensor, rewards: Tensor, step: int, mask: Tensor | None = None) -> None:
        """Adds the rewards (n, m) of a step's prompts, by their keys (n,); those in `mask` alone.

        Raises:
            ValueError: a prompt is none of those that are drawn from.
        """
        places = self._places(keys)
        rewards = rewards.double()
        valid = torch.ones_like(rewards, dtype=torch.bool) if mask is None else mask
        rewards = rewards.where(valid, 0.0)
        added = torch.stack([valid.double().sum(1), rewards.sum(1), rewards.square().sum(1)])
        visited = places.unique()
        self.sums[:, visited] *= self._discount(step)[visited]
        self.last[visited] = step
        self.sums.index_add_(1, places, added)

    def variances(self, step: int) -> Tensor:
        """(N,) predicted variance of a reward of each prompt; 1 before anything was learnt."""
        if not (self.sums[0] > 0).any():
            return torch.ones_like(self.sums[0])
        mean, square = self._moments(step)
        return (square - mean.square()).clamp(min=0)

    def means(self, step: int) -> Tensor:
        """(N,) predicted mean reward of each prompt; NaN before anything was learnt."""
        mean, _ = self._moments(step)
        return mean

    def _moments(self, step: int) -> Tensor:
        """(2, N) predicted mean of each prompt's rewards and of their squares."""
        seen = self.sums[:, self.sums[0] > 0]
        usual = (seen[1:] / seen[0]).mean(1, keepdim=True)  # (2, 1) over the prompts
        sums = self.sums * self._discount(step)
        return (sums[1:] + PRIOR_RESPONSES * usual) / (sums[0] + PRIOR_RESPONSES)

    def probabilities(self, step: int) -> Tensor:
        """(N,) pi_i, in the order of the ascending keys."""
        variances = self.variances(step)
        if self.rule == "spo":
            worth = variances.sqrt() + SPO_LEAST
            return inclusion_probabilities(worth / worth.sum(), self.batch_size)
        total = variances.sum()
        if total == 0:  # every reward has been the same
            variances = torch.ones_like(variances)
            total = variances.sum()
        shares = (1 - UNIFORM_SHARE) * variances / total + UNIFORM_SHARE / len(self)
        return inclusion_probabilities(shares, self.batch_size)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {"keys": self.keys, "last": self.last, "sums": self.sums}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a checkpoint.

        Raises:
            ValueError: it is of other prompts.
        """
        if not torch.equal(state["keys"], self.keys):
            raise ValueError(
                f"what was known of {len(state['keys'])} prompts is not of these {len(self)}: "
                "resume with the same data"
            )
        self.last = state["last"].clone()
        self.sums = state["sums"].clone()

    def _places(self, keys: Tensor) -> Tensor:
        places = torch.searchsorted(self.keys, keys).clamp(max=len(self) - 1)
        if not torch.equal(self.keys[places], keys):
            raise ValueError(
                "rewards of a prompt that the selector does not know: give it all prompts, with "
                "keys of the same text, label and datasource"
            )
        return places

    def _discount(self, step: int) -> Tensor:
        """(N,) what a response of the last visit counts today."""
        return 0.5 ** ((step - self.last) / self.half_life)


def reliability(predicted: Tensor, rewards: Tensor, mask: Tensor) -> dict[str, float]:
    """What to log of a step's predictions: observed pass rates by bins of the predicted ones.

    Of bin k = 0, 1, ..., from k / K to (k + 1) / K with K = RELIABILITY_BINS, the mean prediction
    `js/predicted_rate_k` and the mean reward `js/observed_rate_k` over its valid responses, whose
    number is `js/rated_responses_k`. Nothing of an empty bin, and nothing at all before anything
    was learnt, or where a reward is not between 0 and 1.

    Args:
        predicted: (n,) mean rewards, as `Choice` has them.
        rewards: (n, m), of the same prompts.
        mask: (n, m) bool, the rewards that count.
    """
    valid = rewards[mask]
    if predicted.isnan().any() or ((valid < 0) | (valid > 1)).any():
        return {}
    bins = (predicted * RELIABILITY_BINS).long().clamp(max=RELIABILITY_BINS - 1)
    logged = {}
    for number in bins.unique().tolist():
        counted = mask & (bins == number)[:, None]
        if counted.any():
            predictions = predicted[:, None].expand_as(rewards)[counted]
            logged[f"js/predicted_rate_{number}"] = float(predictions.mean())
            logged[f"js/observed_rate_{number}"] = float(rewards[counted].double().mean())
            logged[f"js/rated_responses_{number}"] = float(counted.sum())
    return logged


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
