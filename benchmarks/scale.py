"""Claim: what we add to a run grows no faster than what the run does, up to 64 GPUs.

    OMP_NUM_THREADS=1 python benchmarks/scale.py       # 2 minutes on two quiet CPU cores

What grows with what: the controller's work on a rollout batch, the estimators, grading. Upstream's
and our own code run as they stand, with pickle in Ray's place, so that ours is compared to the rest
of the same step; seconds are CPU time. A slope is of log cost over log size between two sizes:
median of the rounds (least to largest).
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from types import SimpleNamespace as Namespace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from grading_pool import against_model, makespan
from markdown_table import print_table
from ray import cloudpickle
from run_arguments import run_arguments

from openrlhf_js.estimators import LiveEstimator
from openrlhf_js.plugin.run.device import prepare_device
from openrlhf_js.tasks.pool import MOST_WORKERS

RESPONSES = 8  # to a prompt
WORDS = 143_262  # of a tokenizer
RANKS = (1, 4, 16, 64)
REWARDS = 1_000_000
TITLES = {  # of what a step costs
    "arrive": "responses become tensors",
    "split_rollout_samples": "padded into micro-batches",
    "make_experience": "to policy and reference, log-probs back",
    "ours": "**ours**: rewards gathered, `js_grad`, diagnostics",
    "_train_on": "**ours**: advantages spread over the tokens",
    "append": "experiences to the ranks",
    "GB": "gigabytes through Ray",
    "loop": "upstream in the place of ours: a loop over the tokens",
}
OF_UPSTREAM = ("split_rollout_samples", "make_experience")  # methods of its experience maker
WRITE_TOKENIZER = f"a tokenizer of {WORDS:,} words, once a run; upstream for each prompt"
READ_TOKENIZER = "the same, read by its engine"
UPSTREAMS_TOKENIZERS = "upstream in the place of ours: a tokenizer for each prompt"
ALL_OF_IT = "**all of it, seconds**"
GPUS_AT_5_PERCENT = "GPUs at which that is 5 % of a step"
POOL_WORKERS = (1, 2, MOST_WORKERS, 64, 1024)
ANSWERS_OF_THE_MODEL = 10_000

Costs = dict[str, float]  # by what they are of


class RunSize(NamedTuple):
    """The size of a step; `step_seconds` are assumed, without what is measured here."""

    prompts: int
    responses: int
    tokens: int
    micro_batch: int
    gpus: int
    step_seconds: float


RUNS = {
    "0.5B, 1 GPU, b = 8": RunSize(128, 1024, 1024, 8, 1, 60),
    "8B, 64 GPUs, b = 8": RunSize(1024, 16_384, 8192, 8, 64, 1200),
    "8B, 64 GPUs, b = 1": RunSize(1024, 16_384, 8192, 1, 64, 1200),
}


def cpu_seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


# --- the controller's work on a rollout batch --------------------------------------------------


class Clock:
    """CPU seconds of calls, by name."""

    def __init__(self) -> None:
        self.seconds: Costs = {}

    def call(self, name: str, function: Callable[..., Any], *args: Any, **settings: Any) -> Any:
        began = time.process_time()
        result = function(*args, **settings)
        self.seconds[name] = time.process_time() - began
        return result

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: self.call(name, function, *args)


class PickleForRay:
    """`put` and `get` as Ray's, with the bytes in the place of a reference to them."""

    def __init__(self) -> None:
        self.bytes_sent = 0

    def put(self, value: Any) -> bytes:
        sent = cloudpickle.dumps(value)
        self.bytes_sent += len(sent)
        return sent

    def get(self, references: bytes | list[bytes]) -> Any:
        if isinstance(references, bytes):
            return pickle.loads(references)
        return [pickle.loads(reference) for reference in references]


def arriving_responses(responses: int, tokens: int) -> list[bytes]:
    """Responses as vLLM's actors send them."""
    from openrlhf_js.plugin.rollout import PROMPT_NUMBER

    token_ids = torch.randint(WORDS, (tokens,)).tolist()
    arriving = []
    for number in range(responses):
        response = {
            "observation_tokens": token_ids,
            "label": "1",
            "action_ranges": [(tokens // 8, tokens)],
            "rollout_log_probs": None,
            "prompt": f"{number // RESPONSES}",
            "reward": number % 3 / 2,
            PROMPT_NUMBER: 0,
        }
        arriving.append(pickle.dumps(response))
    return arriving


def group_of_ranks(ranks: int, log_probs: bytes) -> Any:
    """Upstream's group of actors, each of which answers with the same log-probs."""
    from openrlhf.trainer.ray import launcher

    group = launcher.RayActorGroup.__new__(launcher.RayActorGroup)
    group.duplicate_actors = 1
    actor = Namespace(execute_batch=Namespace(remote=lambda *_: log_probs))
    group._actor_handlers = [actor] * ranks
    return group


@contextmanager
def measuring(clock: Clock, ray_stand_in: PickleForRay) -> Iterator[None]:
    """Times upstream's methods and ours, and puts pickle in Ray's place."""
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    from openrlhf_js.plugin.experience import ShrinkageExperienceMaker

    timed_upstream = {
        name: clock.timed(name, getattr(RemoteExperienceMaker, name)) for name in OF_UPSTREAM
    }
    timed_train_on = clock.timed("_train_on", ShrinkageExperienceMaker._train_on)
    with (
        patch.multiple(RemoteExperienceMaker, **timed_upstream),
        patch.multiple(ShrinkageExperienceMaker, _train_on=timed_train_on),
        patch.multiple("ray", put=ray_stand_in.put, get=ray_stand_in.get),
    ):
        yield


def controller(responses: int, tokens: int, micro_batch: int, ranks: int) -> Costs:
    """The cost of each of TITLES for one rollout batch."""
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    from openrlhf_js.plugin.experience import ShrinkageExperienceMaker
    from openrlhf_js.plugin.rollout import OrderedSamples

    micro_batches = responses // micro_batch
    log_probs = torch.zeros(micro_batches // ranks, micro_batch, tokens - 1)  # of a rank
    answer_of_rank = cloudpickle.dumps([rows.clone() for rows in log_probs])
    group = group_of_ranks(ranks, answer_of_rank)
    args = run_arguments(
        "--algo.advantage.estimator js_grad "
        f"--rollout.n_samples_per_prompt {RESPONSES} --rollout.micro_batch_size {micro_batch}"
    )
    samples_generator = OrderedSamples.__new__(OrderedSamples)
    samples_generator.args = args
    maker = ShrinkageExperienceMaker(
        group,
        None,
        None,
        group,
        Namespace(value=0.01),
        Namespace(args=args),
        Namespace(pad_token_id=0),
    )
    arriving = arriving_responses(responses, tokens)

    def read_all() -> list[Any]:
        read = samples_generator._process_response_into_experience
        return [read(pickle.loads(response), max_len=tokens) for response in arriving]

    clock = Clock()
    ray_stand_in = PickleForRay()
    with measuring(clock, ray_stand_in):
        samples = clock.call("arrive", read_all)
        experiences = clock.call("ours", maker.make_experience_batch, samples)
        clock.call("append", group.async_run_method_batch, "append", experience=experiences)
    costs = dict(clock.seconds)
    for name in (*OF_UPSTREAM, "_train_on"):  # which ran within it
        costs["ours"] -= costs[name]

    def upstreams_loop() -> None:
        for _ in range(micro_batches):
            RemoteExperienceMaker.get_cumulative_returns(
                None, log_probs[0], log_probs[0] > 0, gamma=1.0
            )

    costs["loop"] = cpu_seconds(upstreams_loop)
    bytes_arrived = sum(len(response) for response in arriving)
    bytes_answered = 2 * ranks * len(answer_of_rank)  # by policy and reference
    costs["GB"] = (bytes_arrived + ray_stand_in.bytes_sent + bytes_answered) / 1e9
    return costs


# --- what else a step does ---------------------------------------------------------------------


def other_costs(share: float) -> Costs:
    """Seconds of what else a step does, at a share of the sizes that the names say."""
    return {
        **estimator_costs(share),
        "`js_grad` notes 1,000 prompts of 1,000,000": memory_cost(share),
        "upstream: dynamic batches, 1,024 responses": balancing_cost(share),
        **tokenizer_costs(share),
    }


def estimator_costs(share: float) -> Costs:
    prompts = int(share * REWARDS) // RESPONSES
    rewards = torch.rand(prompts, RESPONSES)
    norms = torch.rand(prompts, RESPONSES)
    keys = torch.randint(2**62, (prompts,))

    def seconds_of(name: str) -> float:
        estimator = LiveEstimator(name)
        first = estimator.batch(rewards, squared_score_norms=norms, keys=keys, step=1)
        estimator.learn(first)

        def second_step() -> None:
            batch = estimator.batch(rewards, squared_score_norms=norms, keys=keys, step=2)
            estimator.describe(batch, estimator.estimate(batch))

        return cpu_seconds(second_step)

    return {
        f"`{name}` and its diagnostics, 1,000,000 rewards": seconds_of(name)
        for name in ("js", "js_grad")
    }


def memory_cost(share: float) -> float:
    prompts = int(share * REWARDS)
    keys = torch.randint(2**62, (prompts,))
    estimator = LiveEstimator("js_grad")
    estimator.learn(estimator.batch(torch.rand(prompts, 1), keys=keys, step=1))
    visit = estimator.batch(torch.rand(1000, RESPONSES), keys=keys[:1000], step=2)
    return cpu_seconds(lambda: estimator.learn(visit))


def balancing_cost(share: float) -> float:
    from openrlhf.utils.seqlen_balancing import get_seqlen_balanced_partitions

    lengths = torch.randint(2048, 8193, (int(1024 * share),)).tolist()
    batches = sum(lengths) // 16_384
    return cpu_seconds(lambda: get_seqlen_balanced_partitions(lengths, batches, False))


def tokenizer_costs(share: float) -> Costs:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    letters = [f"{number:03}" for number in range(int((WORDS * share) ** 0.5))]
    merges = list(product(letters, letters))
    words = [*letters, *(first + second for first, second in merges)]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(vocabulary, merges)))
    sent = cloudpickle.dumps(tokenizer)
    return {
        WRITE_TOKENIZER: cpu_seconds(lambda: cloudpickle.dumps(tokenizer)),
        READ_TOKENIZER: cpu_seconds(lambda: pickle.loads(sent)),
    }


# --- the tables --------------------------------------------------------------------------------


class Growth(NamedTuple):
    """The median cost at the last size, and the slope between the last two, shown."""

    cost: str
    slope: str


def spread(values: Sequence[float]) -> str:
    return f"{np.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def growth(
    measure: Callable[[Any], Costs],
    sizes: Sequence[float],
    rounds: int,
) -> dict[str, Growth]:
    """Measures all sizes in every round."""
    costs_by_round = [[measure(size) for size in sizes] for _ in range(rounds)]
    *_, smaller_size, largest_size = sizes
    growths = {}
    for name in costs_by_round[0][0]:
        smaller = np.array([costs[-2][name] for costs in costs_by_round])
        largest = np.array([costs[-1][name] for costs in costs_by_round])
        slopes = np.log(largest / smaller) / np.log(largest_size / smaller_size)
        growths[name] = Growth(cost=f"{np.median(largest):.3g}", slope=spread(slopes))
    return growths


def print_controller(scale: int, rounds: int) -> None:
    tokens = 256 // scale
    in_ranks = growth(
        lambda ranks: controller(
            responses=16 * ranks, tokens=tokens, micro_batch=RESPONSES, ranks=ranks
        ),
        sizes=RANKS,
        rounds=rounds,
    )
    in_tokens = growth(
        lambda tokens: controller(responses=128, tokens=tokens, micro_batch=RESPONSES, ranks=8),
        sizes=(4 * tokens, 16 * tokens),
        rounds=rounds,
    )
    print_table(
        columns=[f"64 ranks x 16 responses x {tokens} tokens", "seconds", "in ranks", "in tokens"],
        rows=[
            (title, in_ranks[name].cost, in_ranks[name].slope, in_tokens[name].slope)
            for name, title in TITLES.items()
        ],
    )


def print_others(scale: int, rounds: int) -> float:
    """Prints what else a step does; the seconds of a tokenizer that is sent."""
    growths = growth(other_costs, sizes=(1 / 8 / scale, 1 / scale), rounds=rounds)
    print()
    print_table(
        columns=["what else", "seconds", "slope"],
        rows=[(name, of_name.cost, of_name.slope) for name, of_name in growths.items()],
    )
    return float(growths[WRITE_TOKENIZER].cost)


def print_pool(scale: int, rounds: int) -> None:
    measured = against_model(96 // scale, rounds)
    service_seconds = np.resize(measured.service_seconds, ANSWERS_OF_THE_MODEL)
    rows = []
    for workers in POOL_WORKERS:
        seconds = makespan(service_seconds, workers, measured.caller_seconds)
        ratios = measured.ratios.get(workers)
        rows.append(
            (
                workers,
                f"{ANSWERS_OF_THE_MODEL / seconds:,.0f}",
                spread(ratios) if ratios else "",
            )
        )
    print()
    print_table(columns=["workers", "answers a second", "real / model"], rows=rows)


def step_costs(run: RunSize, scale: int, rounds: int, tokenizer_seconds: float) -> Costs:
    """What one step of a run costs, from smaller batches of it."""
    small_responses = 64
    many_responses = 1024 // scale
    repeats = (rounds + 1) // 2
    small = [
        controller(small_responses, run.tokens // scale, run.micro_batch, ranks=1)
        for _ in range(repeats)
    ]
    many = [controller(many_responses, 16, run.micro_batch, ranks=1) for _ in range(repeats)]
    costs = {}
    for name, title in TITLES.items():
        median_cost = np.median([measured[name] for measured in small])
        costs[title] = run.responses / small_responses * median_cost
    median_of_ours = np.median([measured["ours"] for measured in many])  # whatever the tokens
    costs[TITLES["ours"]] = run.responses / many_responses * median_of_ours
    seconds = sum(costs.values()) - costs[TITLES["GB"]] - costs[TITLES["loop"]]
    costs[UPSTREAMS_TOKENIZERS] = run.prompts * tokenizer_seconds
    costs[ALL_OF_IT] = seconds
    costs[GPUS_AT_5_PERCENT] = 0.05 * run.step_seconds * run.gpus / seconds
    return costs


def print_steps(scale: int, rounds: int, tokenizer_seconds: float) -> None:
    costs_by_run = [step_costs(run, scale, rounds, tokenizer_seconds) for run in RUNS.values()]
    rows = []
    for title in costs_by_run[0]:
        costs = [costs[title] for costs in costs_by_run]
        rows.append([title, *(f"{cost:,.0f}" if cost > 99 else f"{cost:.3g}" for cost in costs)])
    print()
    print_table(columns=["one step", *RUNS], rows=rows)


def main(scale: int = 1, rounds: int = 5) -> None:
    """Prints the tables; `scale` divides the sizes."""
    prepare_device("cpu")
    logging.disable()
    print_controller(scale, rounds)
    tokenizer_seconds = print_others(scale, rounds)
    print_pool(scale, rounds)
    print_steps(scale, rounds, tokenizer_seconds)


if __name__ == "__main__":
    main()
