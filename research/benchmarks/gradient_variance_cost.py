"""Claim: `--js.gradient_variance` takes some two percent of a training step.

    OMP_NUM_THREADS=1 python research/benchmarks/gradient_variance_cost.py      # some minutes

Measures its hooks' share of a measured step's CPU time, in upstream's trainer on a real DeepSpeed
engine: one rank, ZeRO-2, float32. The micro-batches are small (512 tokens). The cost arises once
per gradient, so its share is lower with larger ones.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import tempfile
import time
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from baseline_research.markdown_table import print_table


class Size(NamedTuple):
    """The size of a Qwen2."""

    hidden: int
    intermediate: int
    layers: int


SIZES = (Size(256, 768, 6), Size(512, 1536, 6))
RESPONSES = 4  # per micro-batch
TOKENS = 128
MICRO_BATCHES = 4
BATCH = RESPONSES * MICRO_BATCHES
VOCABULARY = 16_000
HEADS = 8
WARM_UP_STEPS = 2
MEASURED_STEPS = 20
FLAGS = (
    "--actor.model_name_or_path policy --data.prompt_dataset prompts --vllm.num_engines 1 "
    "--reward.remote_url reward.py --ds.attn_implementation sdpa --ds.zero_stage 2 "
    f"--train.batch_size {BATCH} --train.micro_batch_size {RESPONSES} "
    f"--rollout.batch_size {BATCH} --rollout.n_samples_per_prompt 1"
)


class StepTimes(NamedTuple):
    """The parameters of a model, and the CPU seconds of each step and of the hooks in it."""

    parameters: int
    step_seconds: np.ndarray
    hook_seconds: np.ndarray


def make_trainer(size: Size) -> Any:
    """Our policy trainer with a fresh model of the given size."""
    from openrlhf.models import Actor
    from openrlhf.utils import get_strategy
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from openrlhf_js.trainers.openrlhf.flags import add_flags
    from openrlhf_js.trainers.openrlhf.flags.parser import upstream_parser, validate_upstream
    from openrlhf_js.trainers.openrlhf.learner.actors import OurPolicyTrainer

    parser = upstream_parser()
    add_flags(parser)
    args = validate_upstream(parser.parse_args(FLAGS.split()))
    args.ds.param_dtype = "fp32"
    args.js.gradient_variance = 1  # every step
    strategy = get_strategy(args)
    strategy.setup_distributed()

    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        tie_word_embeddings=True,
        use_cache=False,
    )
    config._attn_implementation = "sdpa"
    actor = Actor(Qwen2ForCausalLM(config))
    actor.packing_samples = False
    actor.is_vlm = False
    optimizer_settings = {
        "optim": "adam",
        "adam": vars(args.actor.adam),
        "muon": vars(args.actor.muon),
        "lr_scheduler": "constant",
        "max_norm": 1.0,
        "scheduler_steps": 1000,
    }
    actor, optimizer, scheduler = strategy.prepare((actor, optimizer_settings))
    return OurPolicyTrainer(strategy, actor, None, optimizer, scheduler, RESPONSES)


def start_process_group() -> None:
    """A process group of this process alone."""
    import torch

    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    store = f"file://{tempfile.mkdtemp()}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)


def random_experience() -> Any:
    """A micro-batch of responses to train on."""
    import torch
    from openrlhf.trainer.ppo_utils.experience import Experience

    action_shape = (RESPONSES, TOKENS - 1)
    return Experience(
        sequences=torch.randint(0, VOCABULARY, (RESPONSES, TOKENS)),
        attention_mask=torch.ones(RESPONSES, TOKENS, dtype=torch.long),
        action_mask=torch.ones(action_shape, dtype=torch.bool),
        action_log_probs=torch.full(action_shape, -math.log(VOCABULARY)),
        advantages=torch.randn(RESPONSES, 1).expand(action_shape),
        info={},
    )


def measure(size: Size) -> StepTimes:
    """Trains a model of a size; every step is measured."""
    from openrlhf_js.trainers.openrlhf.run.device import prepare_device

    prepare_device("cpu")
    from openrlhf_js.trainers.openrlhf.learner import gradient_variance

    start_process_group()
    step_seconds = np.zeros(WARM_UP_STEPS + MEASURED_STEPS)
    hook_seconds = np.zeros(WARM_UP_STEPS + MEASURED_STEPS)
    squared_norm = gradient_variance.squared_norm

    def timed_squared_norm(gradient: Any) -> Any:
        began = time.process_time()
        result = squared_norm(gradient)
        hook_seconds[step] += time.process_time() - began
        return result

    gradient_variance.squared_norm = timed_squared_norm
    trainer = make_trainer(size)
    for step in range(len(step_seconds)):
        for _ in range(MICRO_BATCHES):
            experience = random_experience()
            began = time.process_time()
            trainer.training_step(experience, 0.0, step)
            step_seconds[step] += time.process_time() - began
    return StepTimes(
        parameters=sum(parameter.numel() for parameter in trainer.actor.parameters()),
        step_seconds=step_seconds[WARM_UP_STEPS:],
        hook_seconds=hook_seconds[WARM_UP_STEPS:],
    )


def row(size: Size) -> list[str]:
    """A row of the table, measured in a separate process with its own process group."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        measured = pool.apply(measure, (size,))
    return [
        f"{measured.parameters / 1e6:.1f}M",
        f"{median(measured.step_seconds):.2f} s",
        f"{100 * median(measured.hook_seconds / measured.step_seconds):.2f} %",
    ]


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    print_table(columns=["parameters", "step", "hooks' share"], rows=map(row, SIZES))
