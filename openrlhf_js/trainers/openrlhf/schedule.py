"""How long a run is: its rollouts, the updates after each, and how old responses get."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any, NamedTuple


class Schedule(NamedTuple):
    """How long a run is. The learning rate's schedule has `rollouts * updates` steps."""

    rollouts: int
    """Rollouts in the whole run; with dynamic filtering, at most."""
    updates: int
    """Optimizer updates after each rollout."""
    oldest: int
    """The most policy updates between sampling a response and its last use."""

    @classmethod
    def of(cls, prompts: int, value: Callable[[str], Any]) -> Schedule:
        """The schedule for this number of prompts; `value` returns the value of a flag.

        With a queue of rollouts, or several generated at once, a response waits while earlier ones
        are trained on.
        """
        batch = value("rollout.batch_size")
        responses = batch * value("rollout.n_samples_per_prompt")
        rollouts = prompts // batch * value("train.num_episodes")
        if value("js.max_steps"):
            rollouts = min(rollouts, value("js.max_steps"))
        updates = responses * value("train.max_epochs") // value("train.batch_size")
        at_once = value("rollout.vllm_generate_batch_size") or batch
        waits = (batch - gcd(batch, at_once) + at_once - 1) // batch  # rollouts
        if value("train.async_enable"):
            waits += value("train.async_queue_size")
        return cls(rollouts, updates, oldest=(waits + 1) * updates - 1)
