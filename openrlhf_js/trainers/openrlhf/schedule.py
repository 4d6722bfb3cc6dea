"""How long a run is: its rollouts, the updates after each, and how old responses get."""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

FLAGS = (  # the flags that determine how long a run is
    "rollout.batch_size",
    "rollout.n_samples_per_prompt",
    "rollout.vllm_generate_batch_size",
    "train.batch_size",
    "train.max_epochs",
    "train.num_episodes",
    "train.async_enable",
    "train.async_queue_size",
    "js.max_steps",
)


class Schedule(NamedTuple):
    """How long a run is. The learning rate's schedule has `rollouts * updates` steps."""

    rollouts: int
    """Rollouts in the whole run; with dynamic filtering, at most."""
    updates: int
    """Optimizer updates after each rollout."""
    oldest: int
    """The most policy updates between sampling a response and its last use."""

    @classmethod
    def of(cls, prompts: int, values: dict[str, Any]) -> Schedule:
        """The schedule for this number of prompts and these values of `FLAGS`.

        With a queue of rollouts, or several generated at once, a response waits while earlier ones
        are trained on.
        """
        batch = values["rollout.batch_size"]
        responses = batch * values["rollout.n_samples_per_prompt"]
        rollouts = prompts // batch * values["train.num_episodes"]
        if values["js.max_steps"]:
            rollouts = min(rollouts, values["js.max_steps"])
        updates = responses * values["train.max_epochs"] // values["train.batch_size"]
        at_once = values["rollout.vllm_generate_batch_size"] or batch
        waits = (batch - gcd(batch, at_once) + at_once - 1) // batch  # rollouts
        if values["train.async_enable"]:
            waits += values["train.async_queue_size"]
        return cls(rollouts, updates, oldest=(waits + 1) * updates - 1)
