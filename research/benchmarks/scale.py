"""Claim: ours is a small part of the controller's work on a step, even on 64 GPUs.

    OMP_NUM_THREADS=1 python research/benchmarks/scale.py       # a minute on a quiet core

The controller is the process that every rollout batch passes through. Upstream's code and ours run
unchanged, with pickle in Ray's place, on a part of a step; the result is scaled linearly. Ours is
compared to the rest of the same step, and to the upstream code that it replaces. In CPU seconds,
the median of the rounds.
"""

from __future__ import annotations

import argparse
import logging
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from statistics import median
from types import SimpleNamespace as Namespace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from ray import cloudpickle

from baseline_research.markdown_table import print_table
from openrlhf_js.trainers.openrlhf.run.device import prepare_device

RESPONSES = 8  # to a prompt
WORDS = 143_262  # in a tokenizer
PART = 64  # responses that are measured of a step
ROUNDS = 3
TITLES = {  # of the parts of a step's cost
    "arrive": "responses become tensors",
    "split_rollout_samples": "padded into micro-batches",
    "make_experience": "to policy and reference, log-probs back",
    "ours": "**ours**: rewards gathered, `js_grad`, diagnostics",
    "_spread": "**ours**: advantages spread over the tokens",
    "append": "experiences to the ranks",
    "GB": "gigabytes through Ray",
    "loop": "upstream in the place of ours: a loop over the tokens",
}
OF_UPSTREAM = ("split_rollout_samples", "make_experience")  # methods of its experience maker
UPSTREAMS_TOKENIZERS = "upstream in the place of ours: a tokenizer for each prompt"
ALL_OF_IT = "**all of it, seconds**"
GPUS_AT_5_PERCENT = "GPUs at which that is 5 % of a step"

Costs = dict[str, float]  # by the part they are for


class RunSize(NamedTuple):
    """The size of a step; `step_seconds` is assumed, and excludes what is measured here."""

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


def run_arguments(flags: str) -> argparse.Namespace:
    """Upstream's nested arguments and ours, at their defaults except for these flags."""
    from openrlhf.utils.config import hierarchize

    from openrlhf_js.trainers.openrlhf.flags import add_flags
    from openrlhf_js.trainers.openrlhf.flags.parser import upstream_parser

    parser = upstream_parser()
    add_flags(parser)
    return hierarchize(parser.parse_args(flags.split()))


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
    """Ray's `put` and `get`, with the bytes themselves as the reference."""

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
    from openrlhf_js.trainers.openrlhf.records import Outcome
    from openrlhf_js.trainers.openrlhf.rollout import OUTCOME

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
            OUTCOME: Outcome(prompt_number=number // RESPONSES, prompt_key=number // RESPONSES),
        }
        arriving.append(pickle.dumps(response))
    return arriving


def one_rank(log_probs: bytes) -> Any:
    """Upstream's actor group, with a single actor that answers with these log-probs."""
    from openrlhf.trainer.ray import launcher

    group = launcher.RayActorGroup.__new__(launcher.RayActorGroup)
    group.duplicate_actors = 1
    actor = Namespace(execute_batch=Namespace(remote=lambda *_: log_probs))
    group._actor_handlers = [actor]
    return group


@contextmanager
def measuring(clock: Clock, ray_stand_in: PickleForRay) -> Iterator[None]:
    """Times upstream's methods and ours, and puts pickle in Ray's place."""
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    from openrlhf_js.trainers.openrlhf.experience import ShrinkageExperienceMaker

    timed_upstream = {
        name: clock.timed(name, getattr(RemoteExperienceMaker, name)) for name in OF_UPSTREAM
    }
    timed_spread = clock.timed("_spread", ShrinkageExperienceMaker._spread)
    with (
        patch.multiple(RemoteExperienceMaker, **timed_upstream),
        patch.multiple(ShrinkageExperienceMaker, _spread=timed_spread),
        patch.multiple("ray", put=ray_stand_in.put, get=ray_stand_in.get),
    ):
        yield


def controller(responses: int, tokens: int, micro_batch: int) -> Costs:
    """The cost of each of TITLES for one rollout batch."""
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    from openrlhf_js.trainers.openrlhf.experience import ShrinkageExperienceMaker
    from openrlhf_js.trainers.openrlhf.rollout import OrderedSamples

    micro_batches = responses // micro_batch
    log_probs = torch.zeros(micro_batches, micro_batch, tokens - 1)
    answer = cloudpickle.dumps([rows.clone() for rows in log_probs])
    group = one_rank(answer)
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
    for name in (*OF_UPSTREAM, "_spread"):  # they ran inside it
        costs["ours"] -= costs[name]

    def upstreams_loop() -> None:
        for _ in range(micro_batches):
            RemoteExperienceMaker.get_cumulative_returns(
                None, log_probs[0], log_probs[0] > 0, gamma=1.0
            )

    costs["loop"] = cpu_seconds(upstreams_loop)
    bytes_arrived = sum(len(response) for response in arriving)
    bytes_answered = 2 * len(answer)  # by policy and reference
    costs["GB"] = (bytes_arrived + ray_stand_in.bytes_sent + bytes_answered) / 1e9
    return costs


def seconds_to_send_a_tokenizer(words: int = WORDS) -> float:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    letters = [f"{number:03}" for number in range(int(words**0.5))]
    merges = list(product(letters, letters))
    tokens = [*letters, *(first + second for first, second in merges)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(vocabulary, merges)))
    return cpu_seconds(lambda: cloudpickle.dumps(tokenizer))


def step_costs(run: RunSize, tokenizer_seconds: float) -> Costs:
    """The cost of one step of a run, from a small part of it."""
    rounds = [controller(PART, run.tokens, run.micro_batch) for _ in range(ROUNDS)]
    of_part = {title: median(costs[name] for costs in rounds) for name, title in TITLES.items()}
    costs = {title: run.responses / PART * cost for title, cost in of_part.items()}
    # An estimator's cost does not scale linearly from few rewards to many.
    many = [controller(1024, 16, run.micro_batch) for _ in range(ROUNDS)]
    median_of_ours = median(costs["ours"] for costs in many)
    costs[TITLES["ours"]] = run.responses / 1024 * median_of_ours
    seconds = sum(costs.values()) - costs[TITLES["GB"]] - costs[TITLES["loop"]]
    costs[UPSTREAMS_TOKENIZERS] = run.prompts * tokenizer_seconds
    costs[ALL_OF_IT] = seconds
    costs[GPUS_AT_5_PERCENT] = 0.05 * run.step_seconds * run.gpus / seconds
    return costs


def main(runs: dict[str, RunSize] = RUNS) -> None:
    prepare_device("cpu")
    logging.disable()
    tokenizer_seconds = seconds_to_send_a_tokenizer()
    costs_by_run = [step_costs(run, tokenizer_seconds) for run in runs.values()]
    rows = []
    for title in costs_by_run[0]:
        costs = [costs[title] for costs in costs_by_run]
        rows.append([title, *(f"{cost:,.0f}" if cost > 99 else f"{cost:.3g}" for cost in costs)])
    print_table(columns=["one step", *runs], rows=rows)


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    main()
