"""What does `--js.gradient_variance` cost in training time and in memory?

Upstream's trainer on a real DeepSpeed engine, one rank, ZeRO-2, float32: of its optimizer steps,
every second one is measured, so that both kinds run side by side on the same model. Time is the
process's CPU time, in which other programs show less; the share that the hooks take of a measured
step is known more precisely than the difference between two steps. Memory is what a measurement
holds between micro-batches, and the most that its hook takes for a moment to square the largest
parameter's gradient, both as counted where they are allocated: next to nothing in float32, which is
squared where it lies. Two sizes of models show that neither grows. Micro-batches are small here
(512 tokens): the cost is one per gradient, so that larger ones pay less.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import math
import multiprocessing
import os
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

from scipy import stats

SIZES = {"small": (256, 768, 6), "large": (512, 1536, 6)}  # hidden, intermediate, layers
RESPONSES, TOKENS, MICRO_BATCHES, VOCABULARY = 4, 128, 4, 16_000
WARM_UP_STEPS = 2
MEBIBYTE = 2**20
HEADS = (
    "parameters",
    "step, off",
    "step, on",
    "hooks' share",
    "on against off (95 %)",
    "memory held + momentary",
    "a second gradient",
)


class Cost(NamedTuple):
    """Of one model."""

    parameters: int
    on: list[float]  # seconds of each measured step
    off: list[float]  # and of the others
    in_hooks: list[float]  # seconds of each measured step that its hooks took
    held_bytes: int
    momentary_bytes: int


def momentary_bytes(action: Callable[[], object]) -> int:
    """The most that torch holds at once during the action, of what it allocates there."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        action()
    events = found.profiler.kineto_results.events()  # `found.events()` lacks what an operator takes
    memory = sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns())
    return max(itertools.accumulate(e.nbytes() for e in memory), default=0)


def tensor_bytes() -> int:
    """Of all tensors that Python can reach, each storage once."""
    import torch

    found = {}
    for each in gc.get_objects():
        if isinstance(each, torch.Tensor):
            storage = each.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


def make_trainer(size: str) -> Any:
    """Upstream's policy trainer with a fresh model of the given size."""
    from openrlhf.models import Actor
    from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer
    from openrlhf.utils import get_strategy
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from openrlhf_js.plugin import flags
    from openrlhf_js.plugin.parser import upstream_parser, validate_upstream

    parser = upstream_parser()
    flags.add_flags(parser)
    batch = RESPONSES * MICRO_BATCHES
    given = (
        "--actor.model_name_or_path policy --data.prompt_dataset prompts --vllm.num_engines 1 "
        "--reward.remote_url reward.py --ds.attn_implementation sdpa --ds.zero_stage 2 "
        f"--train.batch_size {batch} --train.micro_batch_size {RESPONSES} "
        f"--rollout.batch_size {batch} --rollout.n_samples_per_prompt 1"
    )
    args = validate_upstream(parser.parse_args(given.split()))
    args.ds.param_dtype = "fp32"
    strategy = get_strategy(args)
    strategy.setup_distributed()
    hidden, intermediate, layers = SIZES[size]
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    )
    config._attn_implementation = "sdpa"
    config.use_cache = False
    actor = Actor(Qwen2ForCausalLM(config))
    actor.packing_samples = actor.is_vlm = False
    settings = {
        "optim": "adam",
        "muon": vars(args.actor.muon),
        "adam": vars(args.actor.adam),
        "lr_scheduler": "constant",
        "max_norm": 1.0,
        "scheduler_steps": 1000,
    }
    actor, optimizer, scheduler = strategy.prepare((actor, settings))
    return ActorPPOTrainer(strategy, actor, None, optimizer, scheduler, RESPONSES)


def run(size: str, steps: int) -> Cost:
    """Trains, every second step with the measurement."""
    from openrlhf_js.plugin.run import prepare_device

    prepare_device("cpu")
    import torch
    import torch.distributed as dist
    from openrlhf.trainer.ppo_utils.experience import Experience

    from openrlhf_js.plugin import gradient_variance

    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    store = f"file://{tempfile.mkdtemp()}/store"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    trainer = make_trainer(size)

    squared_norm = gradient_variance.squared_norm
    largest = max(trainer.actor.parameters(), key=lambda parameter: parameter.numel())
    gradient = torch.zeros_like(largest)
    momentary = momentary_bytes(lambda: squared_norm(gradient))
    in_hooks = 0.0

    def timed(gradient: Any) -> Any:
        nonlocal in_hooks
        began = time.process_time()
        found = squared_norm(gradient)
        in_hooks += time.process_time() - began
        return found

    gradient_variance.squared_norm = timed
    tracemalloc.start()
    recorder = gradient_variance.GradientVariance(trainer, every=2)
    recorder._begin()  # the first training step finds the hooks in place
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    seconds: list[list[float]] = [[], []]
    tensors: list[list[int]] = [[], []]
    hooks = []
    for step in range(WARM_UP_STEPS + steps):
        in_hooks = taken = 0.0
        for number in range(MICRO_BATCHES):
            if number == MICRO_BATCHES - 1 and step >= WARM_UP_STEPS:
                tensors[step % 2].append(tensor_bytes())
            shape = RESPONSES, TOKENS - 1
            experience = Experience(
                sequences=torch.randint(0, VOCABULARY, (RESPONSES, TOKENS)),
                attention_mask=torch.ones(RESPONSES, TOKENS, dtype=torch.long),
                action_mask=torch.ones(shape, dtype=torch.bool),
                action_log_probs=torch.full(shape, -math.log(VOCABULARY)),
                advantages=torch.randn(RESPONSES, 1).expand(shape),
                info={},
            )
            began = time.process_time()
            trainer.training_step(experience, 0.0, step)
            taken += time.process_time() - began
        print(f"{size}: step {step} took {taken:.2f} s, its hooks {in_hooks:.3f} s", flush=True)
        if step >= WARM_UP_STEPS:
            seconds[step % 2].append(taken)
            if step % 2 == 0:
                hooks.append(in_hooks)
    parameters = sum(p.numel() for p in trainer.actor.parameters())
    held += statistics.median_high(tensors[0]) - statistics.median_high(tensors[1])
    return Cost(parameters, *seconds, hooks, held, momentary)


def ratio_interval(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """Geometric mean of the paired ratios, and its 95 % interval by Student's t."""
    logs = [math.log(a / b) for a, b in zip(ours, theirs, strict=True)]
    half = stats.t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / len(logs) ** 0.5
    mean = statistics.fmean(logs)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=40, help="even (default: %(default)s)")
    options = parser.parse_args()
    rows = []
    for size in SIZES:  # each in a process of its own, which has its own process group
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            cost = pool.apply(run, (size, options.steps))
        ratio, low, high = ratio_interval(cost.on, cost.off)
        share = statistics.median(h / s for h, s in zip(cost.in_hooks, cost.on, strict=True))
        rows.append(
            f"| {cost.parameters / 1e6:.1f}M | {statistics.median(cost.off):.2f} s | "
            f"{statistics.median(cost.on):.2f} s | {100 * share:.2f} % | "
            f"{100 * (ratio - 1):+.1f} % ({100 * (low - 1):+.1f} to {100 * (high - 1):+.1f}) | "
            f"{cost.held_bytes / MEBIBYTE:.2f} + {cost.momentary_bytes / MEBIBYTE:.2f} MiB | "
            f"{4 * cost.parameters / MEBIBYTE:.0f} MiB |"
        )
    print(f"| {' | '.join(HEADS)} |", "|---:" * len(HEADS) + "|", *rows, sep="\n")
    print("\nMemory: held from one micro-batch to the next + the most to square one gradient.")


if __name__ == "__main__":
    main()
