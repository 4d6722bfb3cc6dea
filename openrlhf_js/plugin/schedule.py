"""How long a run is: its rollouts, the updates after each, and how old responses get."""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

from openrlhf_js.plugin.flags import Flat

FLAGS = (  # that say how long a run is
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
    """Of the whole run; with a dynamic filter at most."""
    updates: int
    """Of the optimizer after each rollout."""
    oldest: int
    """Updates of the policy between writing a response and its last use, at most."""

    @classmethod
    def of(cls, prompts: int, values: dict[str, Any]) -> Schedule:
        """The schedule for so many prompts and the values of `FLAGS`.

        With a queue of rollouts, or several generated at once, a response waits while earlier ones
        are trained.
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


def summary(flat: Flat, prompts: int | None) -> str:
    """One line on a run that is about to begin: how long it is, and what it saves where."""
    schedule = Schedule.of(prompts or 0, flat)
    batch = flat["rollout.batch_size"]
    rollout = f"{batch:,} prompts x {flat['rollout.n_samples_per_prompt']:,} responses"
    updates = f"{_count(schedule.updates, 'update')} after each"
    if prompts is None:
        length = f"rollouts of {rollout}, as many as the prompts that are not loaded yet make"
    else:
        most = "at most " if flat["algo.dynamic_filtering_enable"] else ""
        length = f"{most}{_count(schedule.rollouts, 'rollout')} of {rollout}"
        if prompts % batch:
            length += f" (in each episode {prompts % batch:,} of {prompts:,} prompts are left out)"
        updates += f", {schedule.rollouts * schedule.updates:,} in all"
    age = "no response is older than the policy that it trains"
    if schedule.oldest:
        age = f"a response gets up to {_count(schedule.oldest, 'update')} old"
    longest = flat["rollout.max_new_tokens"] or flat["data.max_len"]
    tokens = batch * flat["rollout.n_samples_per_prompt"] * longest
    generated = f"at most {tokens:,} tokens a rollout"
    return "; ".join([length, updates, age, generated, _saved(flat)])


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _saved(flat: Flat) -> str:
    """What is saved where."""
    saved = [f"the model in {flat['ckpt.output_dir']} at the end"]
    if flat["ckpt.save_steps"] > 0:
        every = _count(flat["ckpt.save_steps"], "rollout")
        saved.append(f"checkpoints in {flat['ckpt.path']} every {every}")
    else:
        saved.append("no checkpoints on the way (--ckpt.save_steps)")
    if flat["logger.tensorboard_dir"]:
        saved.append(f"curves in {flat['logger.tensorboard_dir']}")
    if flat["js.save_batches"]:
        saved.append(f"batches in {flat['js.save_batches']}")
    return f"saves {', '.join(saved)}"
