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

from openrlhf_js.estimators.batch import Batch, Evidence, Past
from openrlhf_js.estimators.group_stats import ratio

HALF_LIVES = (4.0, 32.0, 1024.0)  # in steps; the one that has predicted best is taken
FADE = 0.9  # weight of what a step showed of the worth of a past, one step later


def key_of(*texts: str | None) -> int:
    """A prompt's key, from its prompt, label and datasource: 63 bits, the same in every process."""
    digest = hashlib.blake2b(repr(texts).encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def keys_of(batch: Batch) -> Tensor:
    """(n,) the keys of a batch, on the CPU."""
    assert batch.keys is not None  # LiveEstimator has seen to it
    return batch.keys.cpu()


class PromptTable:
    """Numbers that are remembered of each prompt, by its key: columns (N, ...)."""

    def __init__(self, **columns: Tensor):
        """Columns without a row, of the shape and type that they will have."""
        self.keys = torch.zeros(0, dtype=torch.int64)  # (N,) ascending
        self.columns = columns

    def __len__(self) -> int:
        return len(self.keys)

    def known(self, keys: Tensor) -> Tensor:
        """(n,) bool: which prompts have a row; without a look at all of them."""
        if not len(self):
            return torch.zeros_like(keys, dtype=torch.bool)
        return self.keys[self.place(keys).clamp(max=len(self) - 1)] == keys

    def place(self, keys: Tensor) -> Tensor:
        """(n,) the rows of prompts that have one."""
        return torch.searchsorted(self.keys, keys)

    def insert(self, keys: Tensor) -> None:
        """Makes rows of zeros for those of the keys, each there once, that are new."""
        new = keys[~self.known(keys)]
        if not len(new):
            return
        self.keys, order = torch.cat([self.keys, new]).sort()
        for name, column in self.columns.items():
            empty = column.new_zeros(new.shape + column.shape[1:])
            self.columns[name] = torch.cat([column, empty])[order]

    def get(self, name: str, batch: Batch, new: float) -> Tensor:
        """(n, ...) a column's values of a batch's prompts; `new` for those without a row."""
        keys = keys_of(batch)
        known = self.known(keys)
        column = self.columns[name]
        values = column.new_full(keys.shape + column.shape[1:], new)
        values[known] = column[self.place(keys[known])]
        return values.to(batch.rewards)

    def put(self, batch: Batch, **columns: Tensor) -> None:
        """Replaces the values (n, ...) of a batch's prompts that have a valid response."""
        answered = batch.mask.any(1).cpu()
        keys = keys_of(batch)[answered]
        self.insert(keys.unique())
        place = self.place(keys)
        for name, values in columns.items():
            self.columns[name][place] = values.cpu()[answered]

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {"keys": self.keys, **self.columns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a checkpoint."""
        self.keys = state["keys"]
        self.columns = {name: state[name] for name in self.columns}


class PromptMemory:
    """Discounted sums and numbers of each prompt's rewards: 12 + 8 h bytes for h half-lives.

    It is kept on the CPU, wherever the batches are.

    A response counts half after a half-life. What the pasts of a step were worth fades sooner, so
    that it is soon known of a policy that has jumped.

    Examples:
        >>> memory, keys = PromptMemory(), torch.tensor([key_of("1 + 1 ="), key_of("2 + 2 =")])
        >>> from openrlhf_js.estimators import make_batch
        >>> rewards = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
        >>> memory.learn(make_batch(rewards, keys=keys, step=1))
        >>> memory.recall(make_batch(rewards, keys=keys, step=2)).means
        tensor([0.5000, 1.0000], dtype=torch.float64)
    """

    def __init__(self, half_lives: Sequence[float] = HALF_LIVES):
        h = len(half_lives)
        self.half_lives = torch.tensor(half_lives, dtype=torch.float64)
        self.table = PromptTable(
            last=torch.zeros(0, dtype=torch.int32),  # (N,) step of the last visit
            sums=torch.zeros(0, h),  # (N, h) of rewards, as of the last visit
            counts=torch.zeros(0, h),  # (N, h) of responses
        )
        self.evidence = torch.zeros(len(Evidence._fields), h, dtype=torch.float64)
        self.step = torch.zeros((), dtype=torch.int64)  # of the last one learnt from

    def __len__(self) -> int:
        return len(self.table)

    def recall(self, batch: Batch) -> Past:
        """The past of these prompts as of this step, at the half-life that has predicted best."""
        faded = self.evidence * FADE ** (batch.step - self.step)
        earlier = Evidence._make(faded)
        residual = earlier.yy - ratio(earlier.xy.clamp(min=0).square(), earlier.xx)
        best = int(ratio(residual, earlier.degrees).argmin())
        return Past(
            means=self._means(keys_of(batch))[:, best].to(batch.rewards),
            earlier=Evidence._make(faded[:, best]),
        )

    def learn(self, batch: Batch) -> None:
        """Adds a step's rewards to their prompts, once it has its advantages."""
        self._learn_worth(self._means(keys_of(batch)), batch)
        answered = batch.mask.any(1).cpu()
        keys = keys_of(batch)[answered]
        self.table.insert(keys.unique())
        rows = self.table.place(keys)
        visited = rows.unique()  # a prompt may be in the batch twice
        columns = self.table.columns
        discount = self._discount(batch.step - columns["last"][visited]).float()
        columns["last"][visited] = batch.step
        for name, values in (("sums", batch.rewards), ("counts", batch.mask)):
            column = columns[name]
            column[visited] *= discount
            totals = values.sum(1).float().cpu()[answered, None]
            column.index_add_(0, rows, totals.expand(-1, len(self.half_lives)))

    start = learn

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {
            "half_lives": self.half_lives,
            "evidence": self.evidence,
            "step": self.step,
            **self.table.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a checkpoint."""
        self.half_lives = state["half_lives"]
        self.evidence = state["evidence"]
        self.step = state["step"]
        self.table.load_state_dict(state)

    def _discount(self, age: Tensor) -> Tensor:
        return 0.5 ** (age[..., None] / self.half_lives)

    def _means(self, keys: Tensor) -> Tensor:
        """(n, h) discounted means; NaN for a prompt without a past."""
        known = self.table.known(keys)
        place = self.table.place(keys[known])
        columns = self.table.columns
        means = torch.full((len(keys), len(self.half_lives)), torch.nan, dtype=torch.float64)
        means[known] = (columns["sums"][place] / columns["counts"][place]).double()
        return means

    def _learn_worth(self, means: Tensor, batch: Batch) -> None:
        """Adds what the pasts (n, h) of this step's prompts were worth."""
        valid = batch.statistics.valid_responses.cpu()
        today = batch.statistics.prompt_mean.cpu()
        known = means.isfinite().all(1) & (valid >= 1)
        paired = valid >= 2
        variance = batch.statistics.reward_variance.cpu()[paired]
        pairs = paired.sum().clamp(min=1)
        x = means[known] - means[known].mean(0)
        y = today[known, None] - today[known].mean()
        degrees = (known.sum() - 1).clamp(min=0).double()
        new = Evidence(
            degrees=degrees,
            xx=x.square().sum(0),
            xy=(x * y).sum(0),
            yy=y.square().sum(),
            noise=degrees * (variance / valid[paired]).sum() / pairs,
            variance=degrees * variance.sum() / pairs,
        )
        self.evidence *= FADE ** (batch.step - self.step)
        self.evidence += torch.stack([value.expand(len(self.half_lives)) for value in new])
        self.step.fill_(batch.step)
