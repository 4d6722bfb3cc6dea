"""What a run remembers of its prompts: their discounted past rewards, and what these were worth.

Rewards of earlier steps are independent of today's, given the policy, so that a baseline which
rests on them leaves the gradient unbiased.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from openrlhf_js.estimators.batch import Evidence, Past
from openrlhf_js.estimators.group_stats import group_statistics, ratio

HALF_LIVES = (4.0, 32.0, 1024.0)  # in steps; the one that has predicted best is taken
FADE = 0.9  # weight of what a step showed of the worth of a past, one step later


def key_of(*texts: str | None) -> int:
    """A prompt's key, from its prompt, label and datasource: 63 bits, the same in every process."""
    digest = hashlib.blake2b(repr(texts).encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class PromptMemory:
    """Discounted sums and numbers of each prompt's rewards: 12 + 8 h bytes for h half-lives.

    A response counts half after a half-life. What the pasts of a step were worth fades sooner, so
    that it is soon known of a policy that has jumped.

    Examples:
        >>> memory, keys = PromptMemory(), torch.tensor([key_of("1 + 1 ="), key_of("2 + 2 =")])
        >>> memory.learn(keys, torch.tensor([[1.0, 0.0], [1.0, 1.0]]), step=1)
        >>> memory.recall(keys[:1], step=2).means
        tensor([0.5000], dtype=torch.float64)
    """

    def __init__(self, half_lives: Sequence[float] = HALF_LIVES):
        h = len(half_lives)
        self.half_lives = torch.tensor(half_lives, dtype=torch.float64)
        self.keys = torch.zeros(0, dtype=torch.int64)  # (N,) ascending
        self.last = torch.zeros(0, dtype=torch.int32)  # (N,) step of the last visit
        self.sums = torch.zeros(0, h)  # (N, h) of rewards, as of the last visit
        self.counts = torch.zeros(0, h)  # (N, h) of responses
        self.evidence = torch.zeros(len(Evidence._fields), h, dtype=torch.float64)
        self.step = torch.zeros((), dtype=torch.int64)  # of the last one learnt from

    def __len__(self) -> int:
        return len(self.keys)

    def recall(self, keys: Tensor, step: int) -> Past:
        """The past of these prompts (n,) as of a step, at the half-life that has predicted best."""
        earlier = Evidence(*(self.evidence * FADE ** (step - self.step)))
        residual = earlier.yy - ratio(earlier.xy.clamp(min=0).square(), earlier.xx)
        best = int(ratio(residual, earlier.degrees).argmin())
        return Past(
            means=self._means(keys)[:, best],
            earlier=Evidence(*(value[best] for value in earlier)),
        )

    def learn(self, keys: Tensor, rewards: Tensor, step: int, mask: Tensor | None = None) -> None:
        """Adds a step's rewards (n, m) to their prompts (n,), once it has its advantages."""
        self._learn_worth(self._means(keys), rewards, mask, step)
        weight = torch.ones_like(rewards) if mask is None else mask.to(rewards.dtype)
        count = weight.sum(1).float()
        total = torch.where(weight > 0, rewards, 0.0).sum(1).float()
        answered = count > 0
        self._insert(keys[answered].unique())
        place = torch.searchsorted(self.keys, keys[answered])
        visited = place.unique()
        aged = self._discount(step - self.last[visited]).float()
        self.last[visited] = step
        for held, added in ((self.sums, total), (self.counts, count)):
            held[visited] *= aged
            held.index_add_(0, place, added[answered, None].expand(-1, held.shape[1]))

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a checkpoint."""
        vars(self).update(state)

    def _discount(self, age: Tensor) -> Tensor:
        return 0.5 ** (age[..., None] / self.half_lives)

    def _means(self, keys: Tensor) -> Tensor:
        """(n, h) discounted means; NaN for a prompt without a past."""
        known = self._known(keys)
        place = torch.searchsorted(self.keys, keys[known])
        means = torch.full((len(keys), len(self.half_lives)), torch.nan, dtype=torch.float64)
        means[known] = (self.sums[place] / self.counts[place]).double()
        return means

    def _learn_worth(self, means: Tensor, rewards: Tensor, mask: Tensor | None, step: int) -> None:
        """Adds what the pasts (n, h) of this step's prompts were worth."""
        statistics = group_statistics(rewards.double(), mask)
        known = means.isfinite().all(1) & (statistics.valid_responses >= 1)
        paired = statistics.valid_responses >= 2
        variance = statistics.reward_variance[paired]
        pairs = paired.sum().clamp(min=1)
        x = means[known] - means[known].mean(0)
        y = statistics.prompt_mean[known, None] - statistics.prompt_mean[known].mean()
        degrees = (known.sum() - 1).clamp(min=0).double()
        new = Evidence(
            degrees=degrees,
            xx=x.square().sum(0),
            xy=(x * y).sum(0),
            yy=y.square().sum(),
            noise=degrees * (variance / statistics.valid_responses[paired]).sum() / pairs,
            variance=degrees * variance.sum() / pairs,
        )
        self.evidence *= FADE ** (step - self.step)
        self.evidence += torch.stack([value.expand(len(self.half_lives)) for value in new])
        self.step.fill_(step)

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
        place = torch.searchsorted(self.keys, keys).clamp(max=len(self) - 1)
        return self.keys[place] == keys
