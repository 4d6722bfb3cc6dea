"""Advantages of one prompt group at a time, as asynchronous trainers hand groups over."""

from __future__ import annotations

import copy
import itertools
import math
import os
import threading
import uuid
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from openrlhf_js.estimators.advantages import LiveEstimator
from openrlhf_js.estimators.batch import Batch
from openrlhf_js.estimators.flat import as_plain
from openrlhf_js.estimators.gradient import squared_score_norms
from openrlhf_js.estimators.group_stats import as_tensor
from openrlhf_js.estimators.memory import key_of

GROUPS_KEPT = 10_000


class Group(NamedTuple):
    """A group that was handed over; it pickles, for other processes."""

    step: int
    key: int
    rewards: list[float]  # (m,)
    weights: list[float]  # (m,)
    worker: str
    number: int  # among the worker's groups


class OnlineBaseline:
    """An estimator that threads give one prompt group at a time, late and in any order.

    A group's baseline rests on its own other responses, and on what was known when the policy that
    sampled it began to sample: at `begin(step)`. All of that existed before the group's responses.
    So it depends neither on their rewards, nor on policies trained on them, nor on how long they
    took to write. The gradient of that policy is exactly unbiased, however late a group comes.

    Groups of one step, or parts of one, are not used for each other: *which* of them came earlier
    depends on the group's own lengths. If short responses come first and are right more often, a
    long one would have a lower baseline because it is late. That is a bias.

    - A step without `begin` begins with its first group. Without `step` a group rests on all that
      came before, and must not come twice. Both are exact only if the order of arrival does not
      depend on the responses.
    - A late group takes what was known at its own step, or at the last one before it that began
      here. `steps_kept` steps are kept (`js_grad`: 24 bytes for each prompt and step); an older
      group is treated as a run's first.
    - A group that comes again, with its step, gets the same advantages. It is learnt twice.
    - A first step rests on nothing: `js_grad` takes the weighted mean of the group's other
      responses. A group of one then has the advantage 0.

    Examples:
        >>> online = OnlineBaseline("js_grad")
        >>> online.begin(0)  # before the policy of step 0 samples
        >>> online.advantages("2 + 2 =", [1, 0], score_weights=[1, 2], step=0)
        tensor([ 1., -1.])
    """

    def __init__(self, name: str, *, steps_kept: int = 9):
        """`name` is a key of ESTIMATORS or `FILE.py:NAME`. With 9 steps a group may be 8 late.
        Raises ValueError for an estimator that shrinks towards the other prompts of a batch."""
        self._first = LiveEstimator(name)  # it never learns
        if self._first.record.shrink is not None and self._first.memory is None:
            raise ValueError(f"{name} needs the other prompts of a batch: take js_grad.")
        self._steps_kept = steps_kept
        self._states: dict[int, LiveEstimator] = {}  # what was known when each step began
        self._recent: deque[Group] = deque(maxlen=GROUPS_KEPT)
        self._unlearnt: list[Group] = []
        self._last_numbers: dict[str, int] = {}  # of each worker
        self._worker = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()

    def begin(self, step: int) -> None:
        """Learns what was handed over. Call it before the policy of `step` begins to sample.

        Raises ValueError for a step before all that are known, as of a count that began again.
        """
        with self._lock:
            if self._states and step < min(self._states):
                raise ValueError(
                    f"step {step} is before all that are known, {min(self._states)} to "
                    f"{max(self._states)}: count on after a restart, or keep more (steps_kept)."
                )
            if self._states and step <= max(self._states):
                return
            state = _copy(self._state_at(step))
            # in an order that depends neither on that of arrival nor on the size of the rewards
            new = sorted(self._unlearnt, key=lambda group: (group.step, key_of(repr(group[:4]))))
            for sampled_at, groups in itertools.groupby(new, key=lambda group: group.step):
                batch = self._batch(sampled_at, list(groups))
                if state.memory is not None:
                    state.memory.recall(batch)  # what always comes before `learn`
                state.learn(batch)
            self._unlearnt = []
            self._states[step] = state
            if len(self._states) > self._steps_kept:
                del self._states[min(self._states)]

    def advantages(
        self,
        prompt_id: Any,
        rewards: Any,
        log_probs: Tensor | Sequence[Tensor] | None = None,
        *,
        mask: Tensor | Sequence[Tensor] | None = None,
        score_weights: Any = None,
        step: int | None = None,
    ) -> Tensor:
        """Return the advantages (m,) of one group, in the order of its rewards.

        Args:
            prompt_id: the prompt's text, or another id under which it comes again.
            rewards: (m,) of the group's responses; groups may differ in size.
            log_probs: of the sampled tokens, which make the weights of `js_grad`: a list of m
                tensors (T,), or one (m, T) with its `mask`.
            mask: of the same form; True for the policy's own tokens.
            score_weights: (m,) `squared_score_norms`, in place of log-probabilities, for a loss
                that divides each response by its length. Without either, all weights are 1.
            step: the version of the policy that began to sample the group.

        Raises ValueError if an input does not fit the rewards, or the estimator needs another one.
        """
        rewards = as_tensor(rewards, "rewards")
        if log_probs is not None:
            score_weights = _score_weights(log_probs, mask)
        weights = None if score_weights is None else as_tensor(score_weights, "weights")[None]
        keys = torch.tensor([key_of(str(as_plain(prompt_id)))])
        with self._lock:
            step = max(self._states, default=-1) + 1 if step is None else step
            if step > max(self._states, default=-math.inf):  # else it comes late
                self.begin(step)
            state = self._state_at(step)
            batch = state.batch(rewards[None], squared_score_norms=weights, keys=keys, step=step)
            advantages = state.estimate(batch).advantages[0]
            columns = (batch.rewards[0].tolist(), batch.weights[0].tolist())
            worker = f"{self._worker} {os.getpid()}"  # a fork is another worker
            self._add(Group(step, int(keys), *columns, worker, next(self._numbers)))
        return advantages.to(torch.promote_types(rewards.dtype, torch.float32))

    def groups(self) -> list[Group]:
        """The last 10,000 groups, those merged included, for `merge` in another process."""
        with self._lock:
            return list(self._recent)

    def merge(self, other: OnlineBaseline | Iterable[Group]) -> None:
        """Adds another worker's groups, or what its `groups()` returned; none is added twice.

        They are learnt when the next step begins. Workers that merge before each `begin` know
        exactly what one that saw all groups knows. Later the sums differ: a group is described by
        what this worker knew at its step, and discounted as if it had just come.
        """
        groups = other.groups() if isinstance(other, OnlineBaseline) else other
        with self._lock:
            for group in groups:
                if group.number > self._last_numbers.get(group.worker, 0):
                    self._add(group)

    def _add(self, group: Group) -> None:
        self._last_numbers[group.worker] = group.number
        self._recent.append(group)
        self._unlearnt.append(group)

    def _state_at(self, step: int) -> LiveEstimator:
        """What was known when the step began, or the last one before it that is kept."""
        begun = [known for known in self._states if known <= step]
        return self._states[max(begun)] if begun else self._first

    def _batch(self, step: int, groups: list[Group]) -> Batch:
        """The groups of a step as one batch, with what was known when it began."""
        return self._state_at(step).batch(
            _padded([group.rewards for group in groups]),
            mask=_padded([[1.0] * len(group.rewards) for group in groups]).bool(),
            squared_score_norms=_padded([group.weights for group in groups]),
            keys=torch.tensor([group.key for group in groups]),
            step=step,
        )

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        with self._lock:
            states = {step: state.state_dict() for step, state in self._states.items()}
            return {
                "states": states,
                "groups": [tuple(group) for group in self._recent],
                "unlearnt": [tuple(group) for group in self._unlearnt],
                "last_numbers": dict(self._last_numbers),
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state from a checkpoint."""
        with self._lock:
            self._states = {step: _copy(self._first) for step in state["states"]}
            for step, loaded in self._states.items():
                loaded.load_state_dict(state["states"][step])
            self._recent = deque(map(Group._make, state["groups"]), maxlen=GROUPS_KEPT)
            self._unlearnt = list(map(Group._make, state["unlearnt"]))
            self._last_numbers = dict(state["last_numbers"])


def _copy(state: LiveEstimator) -> LiveEstimator:
    copied = copy.copy(state)
    copied.memory = copy.deepcopy(state.memory)
    return copied


def _score_weights(
    log_probs: Tensor | Sequence[Tensor], mask: Tensor | Sequence[Tensor] | None
) -> list[Tensor]:
    """`squared_score_norms` of each of m responses."""
    if mask is None:
        if isinstance(log_probs, Tensor):
            raise ValueError("log_probs (m, T) need a mask (m, T): without it, padding would count")
        mask = [torch.ones_like(row) for row in log_probs]
    return [squared_score_norms(*pair) for pair in zip(log_probs, mask, strict=True)]


def _padded(rows: list[list[float]]) -> Tensor:
    return pad_sequence([torch.tensor(row, dtype=torch.float64) for row in rows], batch_first=True)
