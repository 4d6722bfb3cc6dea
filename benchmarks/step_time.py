"""What does the shrinkage baseline add to a training step?

The step between rollout and training, which alone knows the estimator, on the same rewards in one
process: upstream's experience maker with `rloo` against ours with `js`, diagnostics included. Given
the folder of `scripts/quickstart.sh --compare rloo,js`, also the times of its real steps.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from types import SimpleNamespace as Namespace
from typing import Any

import numpy as np
import torch

from openrlhf_js.plugin.run import prepare_device

PHASES = ("train/timing/make_experience", "train/timing/ppo_train")
WARM_UP_STEPS, ROUNDS = 3, 300
PROMPTS, RESPONSES, TOKENS, MICRO_BATCH = 64, 4, 6, 128


def median_step(tensorboard: Path) -> float:
    """Make-experience and training of a run's median step, in seconds."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tensorboard)).Reload()
    phases = [[event.value for event in events.Scalars(tag)] for tag in PHASES]
    return float(np.median(np.sum(phases, 0)[WARM_UP_STEPS:]))


def alone() -> dict[str, list[float]]:
    """Seconds of compute_advantages_and_returns, ROUNDS times each, in turn."""
    prepare_device("cpu")
    from openrlhf.trainer.ppo_utils.experience import Experience
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    from openrlhf_js.plugin.experience import ShrinkageExperienceMaker

    count = PROMPTS * RESPONSES
    rewards = (torch.rand(count, generator=torch.Generator().manual_seed(0)) > 0.5).float()

    def maker(cls: Any, estimator: str) -> Any:
        advantage = Namespace(estimator=estimator, gamma=1.0, no_std_norm=False)
        args = Namespace(
            algo=Namespace(advantage=advantage),
            rollout=Namespace(n_samples_per_prompt=RESPONSES),
            reward=Namespace(
                clip_range=(-10, 10), overlong_buffer_len=None, stop_properly_penalty_coef=None
            ),
            js=Namespace(
                shrinkage=None, max_masked_share=0.5, on_bad_reward="stop", save_batches=None
            ),
        )
        return cls(None, None, None, None, Namespace(value=0.0), Namespace(args=args), None)

    def experience(start: int) -> Any:
        own = rewards[start : start + MICRO_BATCH]
        return Experience(
            index=list(range(start, start + MICRO_BATCH)),
            rewards=own.clone(),
            kl=torch.zeros(MICRO_BATCH, TOKENS),
            action_mask=torch.ones(MICRO_BATCH, TOKENS, dtype=torch.bool),
            info={"reward": own},
        )

    classes = {"rloo": RemoteExperienceMaker, "js": ShrinkageExperienceMaker}
    makers = {name: maker(cls, name) for name, cls in classes.items()}
    times: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(ROUNDS):
        for name, made in makers.items():
            batch = [experience(start) for start in range(0, count, MICRO_BATCH)]
            began = time.perf_counter()
            made.compute_advantages_and_returns(batch)
            times[name].append(time.perf_counter() - began)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("quickstart", type=Path, nargs="?", help="its --out folder")
    folder, times = parser.parse_args().quickstart, alone()
    print("| advantages and returns | quartiles |\n|---|---:|")
    for name, values in times.items():
        low, middle, high = np.percentile(values, (25, 50, 75)) * 1e3
        print(f"| {name} | {low:.2f} / {middle:.2f} / {high:.2f} ms |")
    extra = np.median(times["js"]) - np.median(times["rloo"])
    print(f"\njs adds {extra * 1e3:.2f} ms to a step")
    if folder:
        logs = {name: next(folder.glob(f"stack/*-{name}-*/tensorboard/*")) for name in times}
        steps = {name: median_step(log) for name, log in logs.items()}
        print(
            f"of {steps['rloo']:.3f} s ({extra / steps['rloo']:.2%}); js took {steps['js']:.3f} s"
        )


if __name__ == "__main__":
    main()
