"""Whether the batch sizes, the processes and the number of prompts fit each other.

Upstream checks little of it: it would drop samples, carry half a gradient into the next batch, or
wait for ever for a rank that has run out of samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from openrlhf_js.estimators import ESTIMATORS
from openrlhf_js.plugin.flags import ESTIMATORS as OURS

COUNTS = (
    "rollout.batch_size",
    "rollout.n_samples_per_prompt",
    "rollout.micro_batch_size",
    "train.batch_size",
    "train.micro_batch_size",
    "train.num_episodes",
    "train.max_epochs",
    "data.max_samples",
    "data.max_len",
    "actor.num_nodes",
    "actor.num_gpus_per_node",
    "critic.num_nodes",
    "critic.num_gpus_per_node",
    "vllm.tensor_parallel_size",
    "ds.ring_attn_size",
    "ds.tensor_parallel_size",
)


def batch_problems(flat: dict[str, Any], prompts: int | None) -> list[str]:
    """One line for each size that does not fit, with what to change.

    Args:
        flat: the parsed arguments by dotted name; all of `COUNTS` at least 1.
        prompts: number of training prompts, None if only loading could tell.
    """
    batch = flat["rollout.batch_size"]
    last = kept = 0  # prompts that an episode's last rollout is left with; those before them
    if prompts is not None and prompts >= batch and not flat["algo.dynamic_filtering_enable"]:
        last, kept = prompts % batch, prompts - prompts % batch
    problems = [*_shared_gpus(flat)]
    roles = ["actor", *(["critic"] if flat["algo.advantage.estimator"] == "gae" else [])]
    for role in roles:
        gpus = flat[f"{role}.num_nodes"] * flat[f"{role}.num_gpus_per_node"]
        per_rank = flat["ds.ring_attn_size"] * flat["ds.tensor_parallel_size"]
        if gpus % per_rank:
            problems.append(
                f"the {role} has {gpus} GPUs (--{role}.num_nodes x --{role}.num_gpus_per_node), "
                f"not a multiple of --ds.ring_attn_size x --ds.tensor_parallel_size = {per_rank}"
            )
        else:
            problems += _per_rank(flat, role, gpus // per_rank, last, kept)
    problems += _rollout(flat, prompts, last, kept)
    return list(dict.fromkeys(problems))


def _shared_gpus(flat: dict[str, Any]) -> Iterator[str]:
    engines, per_engine = flat["vllm.num_engines"], flat["vllm.tensor_parallel_size"]
    actor = flat["actor.num_nodes"] * flat["actor.num_gpus_per_node"]
    together = flat["train.colocate_all"]
    if not engines or engines < 1:
        yield f"--vllm.num_engines must be at least 1, got {engines}: vLLM writes the responses"
    elif together and not flat["train.async_enable"] and actor != engines * per_engine:
        yield (
            f"--train.colocate_all puts the actor and vLLM on the same GPUs, but the actor has "
            f"{actor} (--actor.num_nodes x --actor.num_gpus_per_node) and vLLM "
            f"{engines * per_engine} (--vllm.num_engines x --vllm.tensor_parallel_size)"
        )
    if flat["algo.kl.init_coef"] > 0 and (together or flat["train.colocate_actor_ref"]):
        yield from _same_gpus(flat, "actor", "ref")
    if flat["algo.advantage.estimator"] == "gae" and flat["train.colocate_critic_reward"]:
        yield from _same_gpus(flat, "critic", "reward")


def _same_gpus(flat: dict[str, Any], one: str, other: str) -> Iterator[str]:
    for count in ("num_nodes", "num_gpus_per_node"):
        a, b = flat[f"{one}.{count}"], flat[f"{other}.{count}"]
        if a != b:
            yield (
                f"{one} and {other} share their GPUs, so --{one}.{count} {a} and "
                f"--{other}.{count} {b} must be equal"
            )


def _per_rank(flat: dict[str, Any], role: str, ranks: int, last: int, kept: int) -> Iterator[str]:
    """The optimizer's batch and the rollout, each cut evenly among the data-parallel ranks."""
    dynamic = flat["train.dynamic_batch_enable"]
    train, micro = flat["train.batch_size"], 1 if dynamic else flat["train.micro_batch_size"]
    if train % (micro * ranks):
        yield (
            f"--train.batch_size {train} is not a multiple of {micro * ranks} "
            f"(--train.micro_batch_size {micro} x {ranks} ranks of the {role}): "
            f"use {_round_up(train, micro * ranks)}"
        )
    responses = flat["rollout.n_samples_per_prompt"]
    share = ranks * (1 if dynamic else flat["rollout.micro_batch_size"])
    # one rank takes every sample, whatever the size of the last micro-batch
    if ranks > 1 and flat["rollout.batch_size"] * responses % share:
        yield (
            f"--rollout.batch_size {flat['rollout.batch_size']} x --rollout.n_samples_per_prompt "
            f"{responses} is not a multiple of {share} (--rollout.micro_batch_size x {ranks} ranks "
            f"of the {role}), so the ranks would not get equally many responses: use "
            f"--rollout.batch_size {_next_batch(flat, share)}"
        )
    elif ranks > 1 and last * responses % share:
        yield (
            f"an episode's last rollout has only {last} prompts, and their "
            f"responses cannot be shared evenly by {ranks} ranks of the {role} in "
            f"--rollout.micro_batch_size {share // ranks}: use --data.max_samples {kept}"
        )


def _rollout(flat: dict[str, Any], prompts: int | None, last: int, kept: int) -> Iterator[str]:
    name, batch = flat["algo.advantage.estimator"], flat["rollout.batch_size"]
    responses, train = flat["rollout.n_samples_per_prompt"], flat["train.batch_size"]
    if batch * responses % train:
        yield (
            f"--rollout.batch_size {batch} x --rollout.n_samples_per_prompt {responses} = "
            f"{batch * responses} responses, not a multiple of --train.batch_size {train}: use "
            f"--rollout.batch_size {_next_batch(flat, train)}, or a --train.batch_size that "
            f"divides {batch * responses}"
        )
    if prompts is not None and prompts < batch:
        yield (
            f"there are {prompts} prompts, fewer than one rollout of --rollout.batch_size {batch}: "
            "use a smaller one, or more prompts"
        )
    if last * responses % train and not flat["train.dynamic_batch_enable"]:
        yield (
            f"an episode's last rollout has only {last * responses} responses, not a multiple of "
            f"--train.batch_size {train}, so a gradient would be left half: use --data.max_samples "
            f"{kept}"
        )
    at_once = flat["rollout.vllm_generate_batch_size"]
    if at_once is not None and at_once < batch:
        yield (
            f"--rollout.vllm_generate_batch_size {at_once} is less than --rollout.batch_size "
            f"{batch}: upstream would train on rollouts of {at_once} prompts"
        )
    if name in OURS and last:
        needs = ESTIMATORS[name]
        if last < needs.least_prompts or last * responses < needs.least_rewards:
            yield (
                f"an episode's last rollout has only {last} prompts, too few for {name}: "
                f"use --data.max_samples {kept}"
            )


def _round_up(number: int, step: int) -> int:
    return math.ceil(number / step) * step


def _next_batch(flat: dict[str, Any], divisor: int) -> int:
    """The next larger number of prompts whose responses are a multiple of `divisor`."""
    step = divisor // math.gcd(divisor, flat["rollout.n_samples_per_prompt"])
    return _round_up(flat["rollout.batch_size"], step)
