"""Whether batch sizes, processes and the number of prompts fit each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from openrlhf_js.trainers.openrlhf.flags import Flat


def batch_size_problems(flat: Flat, prompts: int | None) -> list[str]:
    """Whether batch sizes, processes and the number of prompts fit each other.

    `prompts` is the number of prompts per episode, None if not known.

    Upstream checks little of this: it would drop samples, carry half a gradient into the next
    batch, or wait for ever for a rank that has run out of samples.
    """
    batch = flat["rollout.batch_size"]
    responses = flat["rollout.n_samples_per_prompt"]
    train = flat["train.batch_size"]
    at_once = flat["rollout.vllm_generate_batch_size"]
    problems = []
    if (flat["vllm.num_engines"] or 0) < 1:
        problems.append("--vllm.num_engines must be at least 1: vLLM writes the responses")
    else:
        problems += _placement_problems(flat)
    problems += _rank_problems(flat)
    problems += multiple_problems(
        batch * responses,
        of=train,
        what="responses of a rollout:",
        why="--train.batch_size",
        use=_larger(flat, train),
    )
    if prompts is not None:
        problems += too_few_prompts(prompts, batch)
    if at_once is not None and at_once < batch:
        problems.append(
            f"--rollout.vllm_generate_batch_size {at_once} is less than --rollout.batch_size "
            f"{batch}: upstream would train on rollouts of {at_once} prompts"
        )
    return list(dict.fromkeys(problems))


def too_few_prompts(prompts: int, batch: int) -> list[str]:
    """The problem of a data set that does not fill one rollout."""
    if prompts >= batch:
        return []
    return [
        f"there are {prompts} prompts, fewer than one rollout of --rollout.batch_size {batch}: "
        "use a smaller one, or more prompts"
    ]


def _placement_problems(flat: Flat) -> Iterator[str]:
    """Models that share GPUs in a way that does not fit.

    Upstream would refuse some of these once Ray runs, and wait for ever for GPUs in others.
    """
    together = flat["train.colocate_all"]
    actor = _layout(flat, "actor")
    engines = flat["vllm.num_engines"] * flat["vllm.tensor_parallel_size"]
    if together and not flat["train.async_enable"] and engines != math.prod(actor):
        yield (
            f"--vllm.num_engines x --vllm.tensor_parallel_size is {engines}, and with "
            f"--train.colocate_all the engines are on the actor's {math.prod(actor)} GPUs: "
            "change --vllm.num_engines or --actor.num_gpus_per_node"
        )
    has_critic = flat["algo.advantage.estimator"] == "gae"
    has_reward_model = not (flat["reward.remote_url"] or flat["train.agent_func_path"])
    guests = []  # a model, the one whose GPUs it shares, and whether it must have all of them
    if (together or flat["train.colocate_actor_ref"]) and flat["algo.kl.init_coef"] > 0:
        guests.append(("ref", "actor", True))
    if has_critic and flat["train.colocate_critic_reward"]:
        guests.append(("reward", "critic", True))
    elif together:
        guests += [("critic", "actor", False)] * has_critic
        guests += [("reward", "actor", False)] * has_reward_model
    for guest, host, all_of_them in guests:
        own, shared = _layout(flat, guest), _layout(flat, host)
        if own == shared or (not all_of_them and math.prod(own) <= math.prod(shared)):
            continue
        yield (
            f"--{guest}.num_nodes {own[0]} --{guest}.num_gpus_per_node {own[1]}: colocated, it "
            f"has the GPUs of the {host}: use {shared[0]} and {shared[1]}"
        )


def _layout(flat: Flat, role: str) -> tuple[int, int]:
    """The nodes of a model, and its GPUs on each."""
    return flat[f"{role}.num_nodes"], flat[f"{role}.num_gpus_per_node"]


def _rank_problems(flat: Flat) -> list[str]:
    """Whether the data-parallel ranks of every model get equal shares of all batches."""
    micro_batch = flat["train.micro_batch_size"]
    dynamic = flat["train.dynamic_batch_enable"]
    trained = 1 if dynamic else micro_batch
    roles = {"actor": trained}
    if flat["algo.advantage.estimator"] == "gae":
        roles["critic"] = trained
    # DeepSpeed wants a batch of whole micro-batches also for those that are not trained.
    if flat["algo.kl.init_coef"] > 0:
        roles["ref"] = micro_batch
    if not (flat["reward.remote_url"] or flat["train.agent_func_path"]):
        roles["reward"] = micro_batch
    problems = []
    found: dict[tuple[int, int], list[str]] = {}  # one role speaks for all that are laid out alike
    for role, of in roles.items():
        size = math.prod(_layout(flat, role)), of
        if size not in found:
            found[size] = _problems_of_ranks(flat, role, micro_batch=of)
            problems += found[size]
    if dynamic and not problems:
        problems += _dynamic_problems(flat, roles)
    return problems


def _problems_of_ranks(flat: Flat, role: str, *, micro_batch: int) -> list[str]:
    """Whether one model's ranks get equal shares of the optimizer's batch and the rollout."""
    gpus = math.prod(_layout(flat, role))
    gpus_per_rank = _gpus_per_rank(flat)
    problems = multiple_problems(
        gpus,
        of=gpus_per_rank,
        what=f"the number of GPUs of the {role}",
        why="--ds.ring_attn_size x --ds.tensor_parallel_size",
        use=f"change --{role}.num_gpus_per_node",
    )
    if problems:
        return problems
    ranks = gpus // gpus_per_rank
    or_other_ranks = "" if role == "actor" else f", or change --{role}.num_gpus_per_node"
    problems = multiple_problems(
        flat["train.batch_size"],
        of=ranks * micro_batch,
        what="--train.batch_size",
        why=f"--train.micro_batch_size x {ranks} ranks of the {role}",
        also=or_other_ranks,
    )
    if ranks > 1:  # one rank takes every sample, whatever the size of the last micro-batch
        rollout_multiple = ranks
        if not flat["train.dynamic_batch_enable"]:
            rollout_multiple *= flat["rollout.micro_batch_size"]
        problems += multiple_problems(
            flat["rollout.batch_size"] * flat["rollout.n_samples_per_prompt"],
            of=rollout_multiple,
            what="responses of a rollout:",
            why=f"--rollout.micro_batch_size x {ranks} ranks of the {role}",
            use=_larger(flat, rollout_multiple),
            also=or_other_ranks,
        )
    return problems


def _dynamic_problems(flat: Flat, roles: Iterable[str]) -> Iterator[str]:
    """Ranks that would get unequal numbers of dynamic batches, or none.

    Upstream makes as many batches as the actor has ranks, or a multiple of these.
    """
    actors = data_parallel_ranks(flat, "actor")
    for role in roles:
        ranks = data_parallel_ranks(flat, role)
        if actors % ranks:
            yield (
                f"--train.dynamic_batch_enable makes batches for the {actors} ranks of the actor, "
                f"which {ranks} ranks of the {role} cannot share equally: change "
                f"--{role}.num_gpus_per_node"
            )


def data_parallel_ranks(flat: Flat, role: str) -> int:
    """The ranks of a model, each of which has a share of every batch."""
    return max(1, math.prod(_layout(flat, role)) // _gpus_per_rank(flat))


def _gpus_per_rank(flat: Flat) -> int:
    return int(flat["ds.ring_attn_size"] * flat["ds.tensor_parallel_size"])


def multiple_problems(
    size: int, of: int, what: str, why: str, use: str = "", also: str = ""
) -> list[str]:
    advice = (use or f"use {math.ceil(size / of) * of}") + also
    return [f"{what} {size} is not a multiple of {why} = {of}: {advice}"] if size % of else []


def _larger(flat: Flat, of: int) -> str:
    """Advice: the next larger number of prompts whose responses are a multiple of `of`."""
    batch = flat["rollout.batch_size"]
    step = of // math.gcd(of, flat["rollout.n_samples_per_prompt"])
    return f"use --rollout.batch_size {math.ceil(batch / step) * step}"
