"""Whether what was asked of the gradient and its micro-batches can be had, known before a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def gradient_problems(flat: dict[str, Any], prompts: int | None) -> Iterator[str]:
    """One line for each thing that stands in the way, with what to change.

    Args:
        flat: the parsed arguments by dotted name; all sizes at least 1.
        prompts: number of training prompts, None if only loading could tell.
    """
    every = flat["js.gradient_variance"]
    if every < 0:
        yield f"--js.gradient_variance must be at least 0, got {every}"
    if every > 0:
        yield from _cannot_be_measured(flat)
    if flat["js.group_micro_batches"]:
        yield from _cannot_be_grouped(flat, prompts)


def _cannot_be_measured(flat: dict[str, Any]) -> Iterator[str]:
    reasons = {
        "--ds.param_dtype fp16": (
            flat["ds.param_dtype"] == "fp16",
            "whose gradients bear a scale that changes: use bf16",
        ),
        "--actor.optim muon": (
            flat["actor.optim"] == "muon",
            "since DeepSpeed's gradient norm is then that of Muon's update: use adam",
        ),
        "--ds.deepcompile": (
            flat["ds.deepcompile"],
            "which reduces gradients before they can be seen: leave it out",
        ),
        "--ds.tensor_parallel_size > 1": (
            flat["ds.tensor_parallel_size"] > 1,
            "where no rank sees the gradient of a whole parameter",
        ),
        "--ds.ring_attn_size > 1": (
            flat["ds.ring_attn_size"] > 1,
            "where no rank sees the gradient of a whole micro-batch",
        ),
    }
    for flag, (given, why) in reasons.items():
        if given:
            yield f"--js.gradient_variance does not work with {flag}, {why}"
    train, micro = flat["train.batch_size"], flat["train.micro_batch_size"]
    if not flat["train.dynamic_batch_enable"] and train == micro:
        yield (
            f"--js.gradient_variance needs at least 2 micro-batches in an optimizer step, and "
            f"--train.batch_size {train} / --train.micro_batch_size {micro} is 1: use a smaller "
            "--train.micro_batch_size"
        )


def _cannot_be_grouped(flat: dict[str, Any], prompts: int | None) -> Iterator[str]:
    responses, micro = flat["rollout.n_samples_per_prompt"], flat["train.micro_batch_size"]
    if flat["train.dynamic_batch_enable"]:
        yield (
            "--js.group_micro_batches does not work with --train.dynamic_batch_enable, which "
            "forms micro-batches by length: leave out one of the two"
        )
    elif micro % responses:
        yield (
            f"--js.group_micro_batches needs a --train.micro_batch_size that is a multiple of "
            f"--rollout.n_samples_per_prompt {responses}, got {micro}: use "
            f"{-(-micro // responses) * responses}"
        )
    ranks = flat["actor.num_nodes"] * flat["actor.num_gpus_per_node"]
    batch = flat["rollout.batch_size"]
    for size in (batch, (prompts or 0) % batch):  # the second is an episode's last rollout
        if size % ranks:
            yield (
                f"--js.group_micro_batches needs rollouts whose prompts can be shared evenly by "
                f"the {ranks} ranks of the actor, got one of {size}: change --rollout.batch_size "
                "or --data.max_samples"
            )
