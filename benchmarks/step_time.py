"""Claim: the shrinkage baseline adds next to nothing to a training step.

    python benchmarks/step_time.py              # half a minute
    python benchmarks/step_time.py RUN          # also the steps of a finished quickstart

The step between rollout and training, which alone knows the estimator, on the same rewards in one
process: ours with `js`, diagnostics included, is compared to upstream's experience maker with
`rloo`. Given the folder of `scripts/quickstart.sh --compare rloo,js`, also the times of its real
steps.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from types import SimpleNamespace as Namespace
from typing import Any

import numpy as np
import torch
from markdown_table import print_table
from run_arguments import run_arguments

from openrlhf_js.plugin.run.device import prepare_device

PHASES = ("train/timing/make_experience", "train/timing/ppo_train")
WARM_UP_STEPS = 3
ROUNDS = 300
PROMPTS = 64
RESPONSES = 4
TOKENS = 6
MICRO_BATCH = 128


def median_step_seconds(tensorboard: Path) -> float:
    """Making the experience and training, in a run's median step."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = EventAccumulator(str(tensorboard)).Reload()
    seconds_by_phase = [[event.value for event in log.Scalars(tag)] for tag in PHASES]
    step_seconds = np.sum(seconds_by_phase, axis=0)
    return float(np.median(step_seconds[WARM_UP_STEPS:]))


def make_maker(maker_class: Any, estimator: str) -> Any:
    """An experience maker that has what computing advantages needs."""
    args = run_arguments(
        f"--algo.advantage.estimator {estimator} --rollout.n_samples_per_prompt {RESPONSES}"
    )
    kl_controller = Namespace(value=0.0)
    strategy = Namespace(args=args)
    return maker_class(None, None, None, None, kl_controller, strategy, None)


def make_experience(start: int, rewards: torch.Tensor) -> Any:
    """A micro-batch: the responses from `start` on."""
    from openrlhf.trainer.ppo_utils.experience import Experience

    return Experience(
        index=list(range(start, start + MICRO_BATCH)),
        rewards=rewards.clone(),
        kl=torch.zeros(MICRO_BATCH, TOKENS),
        action_mask=torch.ones(MICRO_BATCH, TOKENS, dtype=torch.bool),
        info={"reward": rewards},
    )


def time_makers() -> dict[str, list[float]]:
    """Seconds of compute_advantages_and_returns, ROUNDS times by each maker in turn."""
    prepare_device("cpu")
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    from openrlhf_js.plugin.experience import ShrinkageExperienceMaker

    makers = {
        "rloo": make_maker(RemoteExperienceMaker, "rloo"),
        "js": make_maker(ShrinkageExperienceMaker, "js"),
    }
    generator = torch.Generator().manual_seed(0)
    rewards = (torch.rand(PROMPTS * RESPONSES, generator=generator) > 0.5).float()
    seconds: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(ROUNDS):
        for name, maker in makers.items():
            batch = [
                make_experience(start, rewards[start : start + MICRO_BATCH])
                for start in range(0, len(rewards), MICRO_BATCH)
            ]
            began = time.perf_counter()
            maker.compute_advantages_and_returns(batch)
            seconds[name].append(time.perf_counter() - began)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("quickstart", type=Path, nargs="?", help="its --out folder")
    quickstart = parser.parse_args().quickstart

    seconds = time_makers()
    rows = []
    for name, maker_seconds in seconds.items():
        quartiles = np.percentile(maker_seconds, (25, 50, 75)) * 1e3
        rows.append((name, " / ".join(f"{quartile:.2f}" for quartile in quartiles) + " ms"))
    print_table(columns=["advantages and returns", "quartiles"], rows=rows)
    extra_seconds = np.median(seconds["js"]) - np.median(seconds["rloo"])
    print(f"\njs adds {extra_seconds * 1e3:.2f} ms to a step")
    if quickstart:
        step_seconds = {}
        for name in seconds:
            log = next(quickstart.glob(f"stack/*-{name}-*/tensorboard/*"))
            step_seconds[name] = median_step_seconds(log)
        share = extra_seconds / step_seconds["rloo"]
        print(f"of {step_seconds['rloo']:.3f} s ({share:.2%}); js took {step_seconds['js']:.3f} s")


if __name__ == "__main__":
    main()
