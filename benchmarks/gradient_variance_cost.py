"""What does `--js.gradient_variance` cost in training time?

Upstream's trainer on a real DeepSpeed engine, one rank, ZeRO-2, float32: every second optimizer
step is measured, so that both kinds run side by side. Time is the process's CPU time; the hooks'
share of a measured step is known more precisely than the difference between two steps. The
micro-batches are small (512 tokens): the cost is one per gradient, so larger ones pay less.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import tempfile
import time
from statistics import median
from typing import Any

import numpy as np
from markdown_table import print_table

from openrlhf_js.stats import clustered_mean

SIZES = ((256, 768, 6), (512, 1536, 6))  # hidden, intermediate, layers
RESPONSES, TOKENS, MICRO_BATCHES, VOCABULARY = 4, 128, 4, 16_000
WARM_UP_STEPS, MEASURED_STEPS = 2, 40  # an even number
FLAGS = (
    "--actor.model_name_or_path policy --data.prompt_dataset prompts --vllm.num_engines 1 "
    "--reward.remote_url reward.py --ds.attn_implementation sdpa --ds.zero_stage 2 "
    f"--train.batch_size {RESPONSES * MICRO_BATCHES} --train.micro_batch_size {RESPONSES} "
    f"--rollout.batch_size {RESPONSES * MICRO_BATCHES} --rollout.n_samples_per_prompt 1"
)


def make_trainer(hidden: int, intermediate: int, layers: int) -> Any:
    """Upstream's policy trainer with a fresh model of the given size."""
    from openrlhf.models import Actor
    from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer
    from openrlhf.utils import get_strategy
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from openrlhf_js.plugin.flags import add_flags
    from openrlhf_js.plugin.parser import upstream_parser, validate_upstream

    parser = upstream_parser()
    add_flags(parser)
    args = validate_upstream(parser.parse_args(FLAGS.split()))
    args.ds.param_dtype = "fp32"
    strategy = get_strategy(args)
    strategy.setup_distributed()
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=8,
        tie_word_embeddings=True,
        use_cache=False,
    )
    config._attn_implementation = "sdpa"
    actor = Actor(Qwen2ForCausalLM(config))
    actor.packing_samples = actor.is_vlm = False
    settings = {name: vars(getattr(args.actor, name)) for name in ("muon", "adam")}
    settings |= {"optim": "adam", "lr_scheduler": "constant"}
    settings |= {"max_norm": 1.0, "scheduler_steps": 1000}
    actor, optimizer, scheduler = strategy.prepare((actor, settings))
    return ActorPPOTrainer(strategy, actor, None, optimizer, scheduler, RESPONSES)


def run(size: tuple[int, int, int]) -> tuple[int, np.ndarray, np.ndarray]:
    """Parameters, and the CPU seconds of each step and of the hooks in it."""
    from openrlhf_js.plugin.run import prepare_device

    prepare_device("cpu")
    import torch
    from openrlhf.trainer.ppo_utils.experience import Experience

    from openrlhf_js.plugin import gradient_variance

    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    store = f"file://{tempfile.mkdtemp()}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    squared_norm = gradient_variance.squared_norm
    seconds, hooks = np.zeros((2, WARM_UP_STEPS + MEASURED_STEPS))

    def timed(gradient: Any) -> Any:
        began = time.process_time()
        found = squared_norm(gradient)
        hooks[step] += time.process_time() - began
        return found

    gradient_variance.squared_norm = timed
    trainer = make_trainer(*size)
    gradient_variance.GradientVariance(trainer, every=2)
    shape = RESPONSES, TOKENS - 1
    for step in range(len(seconds)):
        for _ in range(MICRO_BATCHES):
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
            seconds[step] += time.process_time() - began
    parameters = sum(p.numel() for p in trainer.actor.parameters())
    return parameters, seconds[WARM_UP_STEPS:], hooks[WARM_UP_STEPS:]


def row(size: tuple[int, int, int]) -> list[str]:
    """Of the table, measured in a process of its own, which has its own process group."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        parameters, seconds, hooks = pool.apply(run, (size,))
    on, off = seconds[::2], seconds[1::2]
    ratio, low, high = (100 * math.expm1(x) for x in clustered_mean(np.log(on / off)))
    return [
        f"{parameters / 1e6:.1f}M",
        *(f"{median(each):.2f} s" for each in (off, on)),
        f"{100 * median(hooks[::2] / on):.2f} %",
        f"{ratio:+.1f} % ({low:+.1f} to {high:+.1f})",
    ]


if __name__ == "__main__":
    print_table(["parameters", "off", "on", "hooks' share", "on/off (95 %)"], map(row, SIZES))
