"""Checks the estimator of a run, and the measurement of its gradient's variance."""

from __future__ import annotations

from collections.abc import Iterator

from openrlhf_js.estimators.catalogue import ADDED, in_training
from openrlhf_js.trainers.openrlhf.checks.batch_sizes import data_parallel_ranks, multiple_problems
from openrlhf_js.trainers.openrlhf.flags import Flat

MEASURABLE = {  # the values with which some rank sees whole, final gradients
    "actor.optim": ("adam",),  # DeepSpeed's norm for Muon is that of Muon's update
    "ds.zero_stage": (1, 2, 3),  # without ZeRO DeepSpeed does not always compute a norm
    "ds.deepcompile": (False,),
    "ds.tensor_parallel_size": (1,),
    "ds.ring_attn_size": (1,),
}
DISCOUNTING = ("gae", "reinforce")


def estimator_problems(flat: Flat) -> Iterator[str]:
    name = flat["algo.advantage.estimator"]
    shrinkage = flat["js.shrinkage"]
    try:
        estimator = in_training(name)
    except ValueError as error:
        yield f"--algo.advantage.estimator: {error}"
        return
    record = estimator.record if estimator.is_ours else None
    prompts = flat["rollout.batch_size"]
    responses = flat["rollout.n_samples_per_prompt"]
    lacking = None if record is None else record.lacks(prompts, responses)
    if lacking:
        yield f"--rollout.batch_size, --rollout.n_samples_per_prompt: {name} {lacking}"
    if shrinkage is not None and name != "js_fixed":
        yield f"--js.shrinkage is for js_fixed, not {name}: leave it out"
    if name == "js_fixed" and shrinkage is None:
        yield "js_fixed needs --js.shrinkage, from 0 (rloo) to 1 (bloo)"
    gamma = flat["algo.advantage.gamma"]
    if gamma != 1 and name not in DISCOUNTING:
        allowed = " and ".join(DISCOUNTING)
        yield f"--algo.advantage.gamma {gamma:g} is for {allowed}, not {name}: leave it out"
    truncated = flat["reward.stop_properly_penalty_coef"]  # a factor, or the reward itself
    is_lowered = flat["reward.overlong_buffer_len"] or (truncated is not None and truncated < 0)
    if record and record.needs_unit_rewards and is_lowered:
        yield (
            f"{name} takes rewards from 0 to 1, and --reward.overlong_buffer_len or a negative "
            "--reward.stop_properly_penalty_coef makes some negative: leave it out"
        )
    loss = flat["js.loss"]
    if loss in ("token_mean", "constant") and flat["actor.policy_loss_type"] == "gspo":
        yield f"--js.loss {loss} does not work with gspo, which takes the mean of each sequence"
    if flat["algo.dynamic_filtering_enable"] and record and shrinkage != 0:  # 0 is rloo
        yield (
            "--algo.dynamic_filtering_enable drops groups of equal rewards. They have no gradient "
            f"under rloo but teach under {name}, so dropping them biases the gradient: leave it out"
        )
    if flat["js.on_bad_reward"] == "mask" and record is None:
        yield (
            f"--js.on_bad_reward mask leaves responses out of a baseline, which upstream's {name} "
            f"cannot: choose one of {', '.join(ADDED)} (js_fixed with --js.shrinkage 0 is rloo)"
        )


def correction_problems(flat: Flat) -> Iterator[str]:
    """Corrections of importance sampling that upstream's loss refuses when the actors are made."""
    level, mode, gating, threshold = (
        flat[f"algo.advantage.is_correction_{name}"]
        for name in ("level", "mode", "gating", "threshold")
    )
    if mode == "clip" and (level == "seq" or gating != "ratio"):
        yield (
            "--algo.advantage.is_correction_mode clip clips the ratios of tokens: use "
            "--algo.advantage.is_correction_level token and "
            "--algo.advantage.is_correction_gating ratio, or the mode mask"
        )
    elif level != "off" and gating != "ratio" and len(threshold) > 1 and threshold[0] > 0:
        yield (
            f"--algo.advantage.is_correction_gating {gating} has only an upper bound: give one "
            "number as --algo.advantage.is_correction_threshold"
        )


def gradient_problems(flat: Flat) -> Iterator[str]:
    """Flags that do not work with measuring the variance, or with whole groups in micro-batches."""
    for flag, works in MEASURABLE.items():
        if flat["js.gradient_variance"] and flat[flag] not in works:
            yield (
                f"--js.gradient_variance does not work with --{flag} {flat[flag]}, only with "
                f"{' or '.join(map(str, works))} (docs/studies.md)"
            )
    if flat["js.group_micro_batches"] and flat["train.dynamic_batch_enable"]:
        yield "--js.group_micro_batches: --train.dynamic_batch_enable groups by length"
    elif flat["js.group_micro_batches"]:
        yield from multiple_problems(
            flat["train.micro_batch_size"],
            of=flat["rollout.n_samples_per_prompt"],
            what="--js.group_micro_batches: --train.micro_batch_size",
            why="the responses to a prompt",
        )
        yield from multiple_problems(
            flat["rollout.batch_size"],
            of=data_parallel_ranks(flat, "actor"),
            what="--js.group_micro_batches: --rollout.batch_size",
            why="the ranks of the actor",
        )
