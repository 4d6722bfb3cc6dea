"""What a run remembers of its prompts: discounted past rewards, the covariate of `js_memory`.

Rewards of earlier steps are independent of today's, given the policy, so that a baseline which
rests on them leaves the gradient unbiased.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from openrlhf_js.estimators.group_stats import group_statistics
from openrlhf_js.estimators.regression import Earlier, remember

HALF_LIVES = (16.0, 128.0, 1024.0)  # in steps, from which the data choose
PRIOR_RESPONSES = 2.0  # that a prompt's past is shrunk to that of all prompts by
PRIOR_PROMPTS = 8.0  # that lean the weights of the half-lives on equal ones
FORGET = 0.99  # of what taught those weights, a step
CHANCE = 6.0  # times the noise: what pasts explain of means by chance, and hardly more


def key_of(*texts: str | None) -> int:
    """A prompt's key, from its prompt, label and datasource: 63 bits, the same in every process."""
    digest = hashlib.blake2b(repr(texts).encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class Memory:
    """Discounted sums and numbers of each prompt's rewards: 12 + 8 r bytes for r half-lives.

    A response counts half after a half-life. With several half-lives a prompt's past is a weighted
    sum of its means, by the weights with which earlier steps' means were predicted best.

    Examples:
        >>> memory, keys = Memory(), torch.tensor([key_of("1 + 1 ="), key_of("2 + 2 =")])
        >>> memory.update(keys, torch.tensor([[1.0, 0.0], [1.0, 1.0]]), mask=None, step=1)
        >>> memory.covariate(keys[:1], step=2)  # 1/2, shrunk to the mean of all
        tensor([[0.6260]], dtype=torch.float64)
    """

    def __init__(self, half_lives: Sequence[float] = HALF_LIVES):
        r = len(half_lives)
        self.half_lives = torch.tensor(half_lives, dtype=torch.float64)
        self.keys = torch.zeros(0, dtype=torch.int64)  # (N,) ascending
        self.last = torch.zeros(0, dtype=torch.int32)  # (N,) step of the last visit
        self.sums = torch.zeros(0, r)  # (N, r) of rewards, as of the last visit
        self.counts = torch.zeros(0, r)  # (N, r) of responses
        self.gram = torch.zeros(r, r, dtype=torch.float64)  # of pasts that were remembered
        self.cross = torch.zeros(r, dtype=torch.float64)  # with the means that followed
        self.prompts = torch.zeros((), dtype=torch.float64)  # number in both
        self.squares = torch.zeros((), dtype=torch.float64)  # of those means
        self.total = torch.zeros(2, r, dtype=torch.float64)  # sums and counts of all prompts
        self.step = torch.zeros((), dtype=torch.int64)  # of the last update
        self.earlier: Earlier | None = None  # what the covariates of earlier steps were worth

    def __len__(self) -> int:
        return len(self.keys)

    def covariate(self, keys: Tensor, step: int) -> Tensor:
        """(n, 1) the past of these prompts (n,) as of a step; NaN where there is none, and where
        earlier pasts have told no more of the means that followed than chance does."""
        weights = self.weights()
        explained = 2 * weights @ self.cross - weights @ self.gram @ weights
        useless = explained * self.prompts < CHANCE * (self.squares - explained)
        return self._means(keys, step) @ torch.where(useless, torch.nan, weights)[:, None]

    def weights(self) -> Tensor:
        """(r,) of the half-lives."""
        r = len(self.half_lives)
        prior = PRIOR_PROMPTS * self.gram.trace() / (r * self.prompts.clamp(min=1)) + 1e-12
        ridge = prior * torch.eye(r, dtype=torch.float64)
        return torch.linalg.solve(self.gram + ridge, self.cross + prior / r)

    def update(
        self,
        keys: Tensor,
        rewards: Tensor,
        mask: Tensor | None,
        step: int,
        covariates: Tensor | None = None,
    ) -> None:
        """Adds a step's rewards (n, m) to their prompts (n,), once it has its advantages; with the
        covariates (n, k) that these rested on, the step counts in later regressions."""
        if covariates is not None:
            self.earlier = remember(self.earlier, group_statistics(rewards, mask), covariates)
        weight = torch.ones_like(rewards) if mask is None else mask.to(rewards.dtype)
        count = weight.sum(1).double()
        total = torch.where(weight > 0, rewards, 0.0).sum(1).double()
        self._learn(self._means(keys, step), total / count.clamp(min=1), count > 0)
        self.total *= self._discount(torch.as_tensor(step - int(self.step)))
        self.total += torch.stack([total.sum(), count.sum()])[:, None]
        self.step.fill_(step)
        self._insert(keys[count > 0].unique())
        place = torch.searchsorted(self.keys, keys[count > 0])
        seen = place.unique()
        aged = self._discount(step - self.last[seen]).float()
        self.last[seen] = step
        for held, more in ((self.sums, total), (self.counts, count)):
            held[seen] *= aged
            held.index_add_(0, place, more[count > 0].float()[:, None].expand(-1, held.shape[1]))

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return dict(vars(self))

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Memory:
        """The memory of a checkpoint."""
        made = cls(state["half_lives"].tolist())
        vars(made).update(state)
        return made

    def _discount(self, age: Tensor) -> Tensor:
        return 0.5 ** (age[..., None] / self.half_lives)

    def _means(self, keys: Tensor, step: int) -> Tensor:
        """(n, r) discounted means, shrunk to those of all prompts by `PRIOR_RESPONSES`."""
        known = self._known(keys)
        found = torch.full((len(keys), len(self.half_lives)), torch.nan, dtype=torch.float64)
        at = torch.searchsorted(self.keys, keys[known])
        typical = self.total[0] / self.total[1].clamp(min=1e-300)
        aged = self._discount(step - self.last[at])
        sums, counts = self.sums[at] * aged, self.counts[at] * aged
        found[known] = (sums + PRIOR_RESPONSES * typical) / (counts + PRIOR_RESPONSES)
        return found

    def _learn(self, pasts: Tensor, means: Tensor, valid: Tensor) -> None:
        """How well each half-life has predicted these means."""
        known = valid & pasts.isfinite().all(1)
        for held in (self.gram, self.cross, self.prompts, self.squares):
            held *= FORGET
        if known.sum() >= 2:
            x = pasts[known] - pasts[known].mean(0)
            self.gram += x.T @ x
            y = means[known] - means[known].mean()
            self.cross += x.T @ y
            self.squares += y @ y
            self.prompts += known.sum()

    def _insert(self, keys: Tensor) -> None:
        """Makes room for those of the keys, each there once, that are new."""
        new = keys[~self._known(keys)]
        if not len(new):
            return
        self.keys, order = torch.cat([self.keys, new]).sort()
        for name in ("last", "sums", "counts"):
            held = getattr(self, name)
            empty = held.new_zeros(len(new), *held.shape[1:])
            setattr(self, name, torch.cat([held, empty])[order])

    def _known(self, keys: Tensor) -> Tensor:
        """(n,) bool; without a look at all that are remembered."""
        if not len(self):
            return torch.zeros_like(keys, dtype=torch.bool)
        return self.keys[torch.searchsorted(self.keys, keys).clamp(max=len(self) - 1)] == keys
