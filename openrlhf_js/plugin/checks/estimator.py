"""The estimator of a run, how its prompts are chosen, and what is measured of its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from openrlhf_js.plugin.checks.batch_sizes import multiple_problems
from openrlhf_js.plugin.flags import OURS, our_estimator
from openrlhf_js.plugin.prompts import Flat
from openrlhf_js.sampling.complete import ITEMS

MEASURABLE = {  # values with which some rank sees whole and final gradients
    "ds.param_dtype": ("bf16", "fp32"),  # fp16 has a loss scale that changes
    "actor.optim": ("adam",),  # DeepSpeed's norm for Muon is that of Muon's update
    "ds.zero_stage": (1, 2, 3),  # without ZeRO DeepSpeed does not always compute a norm
    "ds.deepcompile": (False,),
    "ds.tensor_parallel_size": (1,),
    "ds.ring_attn_size": (1,),
}
OF_ONE_ESTIMATOR = {
    "js.shrinkage": "js_fixed",
}


def estimator_problems(flat: Flat) -> Iterator[str]:
    name = flat["algo.advantage.estimator"]
    shrinkage = flat["js.shrinkage"]
    try:
        record = our_estimator(name)
    except ValueError as error:
        yield f"--algo.advantage.estimator: {error}"
        return
    prompts = flat["rollout.batch_size"]
    responses = flat["rollout.n_samples_per_prompt"]
    lacking = None if record is None else record.lacks(prompts, responses)
    if lacking:
        yield f"--rollout.batch_size, --rollout.n_samples_per_prompt: {name} {lacking}"
    for flag, owner in OF_ONE_ESTIMATOR.items():
        if flat[flag] is not None and name != owner:
            yield f"--{flag} is for {owner}, not {name}: leave it out"
    if name == "js_fixed" and shrinkage is None:
        yield "js_fixed needs --js.shrinkage, from 0 (rloo) to 1 (bloo)"
    if flat["js.warm_memory"] and (record is None or not record.remembers_prompts):
        remembering = ", ".join(key for key, ours in OURS.items() if ours.remembers_prompts)
        yield f"--js.warm_memory is for {remembering}, not {name}: leave it out"
    elif flat["js.warm_memory"]:
        yield from _warm_memory(Path(flat["js.warm_memory"]))
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
            f"cannot: choose one of {', '.join(OURS)} (js_fixed with --js.shrinkage 0 is rloo)"
        )


def selection_problems(flat: Flat) -> Iterator[str]:
    """What prompts that are chosen do not go with."""
    selection = flat["js.prompt_selection"]
    if selection == "uniform":
        return
    if flat["algo.dynamic_filtering_enable"]:
        yield (
            f"--js.prompt_selection {selection} and --algo.dynamic_filtering_enable both choose "
            "prompts by their rewards: leave one out"
        )
    if not flat["train.async_enable"]:
        return
    # the next step is sampled during this one's update
    if not flat["reward.remote_url"] and not flat["train.agent_func_path"]:
        yield (
            f"--js.prompt_selection {selection} with --train.async_enable learns rewards when the "
            "responses are sampled, and a reward model in the run grades later: serve it "
            "(--reward.remote_url), or leave --train.async_enable out"
        )
    at_once = flat["rollout.vllm_generate_batch_size"]
    if at_once and at_once != flat["rollout.batch_size"]:
        yield (
            f"--js.prompt_selection {selection} chooses --rollout.batch_size "
            f"{flat['rollout.batch_size']} prompts at once: leave "
            f"--rollout.vllm_generate_batch_size {at_once} out"
        )


def _warm_memory(samples: Path) -> Iterator[str]:
    for file in (samples, samples.with_suffix(ITEMS)):
        if not file.is_file():
            yield (
                f"--js.warm_memory {samples}: {file} does not exist; `openrlhf-js eval passk` "
                "writes samples/NAME.jsonl and samples/NAME.items.jsonl"
            )
            return


def gradient_problems(flat: Flat) -> Iterator[str]:
    """What measuring its variance, and keeping prompts in one micro-batch, do not go with."""
    for flag, works in MEASURABLE.items():
        if flat["js.gradient_variance"] and flat[flag] not in works:
            yield (
                f"--js.gradient_variance does not work with --{flag} {flat[flag]}, only with "
                f"{' or '.join(map(str, works))} (docs/lab.md)"
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
