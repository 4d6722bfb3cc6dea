"""What does the shrinkage baseline add to a training step?

The step between rollout and training, which alone knows the estimator, on the same rewards in one
process: upstream's experience maker with `rloo` against ours with `js`, diagnostics included. Given
the folder of `scripts/quickstart.sh --compare rloo,js`, also the times of its real steps.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from openrlhf_js.plugin.run import prepare_device

PHASES = ("train/timing/make_experience", "train/timing/ppo_train")
WARM_UP_STEPS = 3


def median_step(tensorboard: Path) -> float:
    """Make-experience and training of a run's median step, in seconds."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tensorboard)).Reload()
    phases = [[event.value for event in events.Scalars(tag)] for tag in PHASES]
    return statistics.median(map(sum, list(zip(*phases, strict=True))[WARM_UP_STEPS:]))


def alone(rounds: int, prompts: int = 64, responses: int = 4) -> dict[str, list[float]]:
    """Seconds of compute_advantages_and_returns, `rounds` times each, in turn."""
    prepare_device("cpu")
    from openrlhf.trainer.ppo_utils.experience import Experience
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    from openrlhf_js.plugin.experience import ShrinkageExperienceMaker

    count, length = prompts * responses, 6
    rewards = (torch.rand(count, generator=torch.Generator().manual_seed(0)) > 0.5).float()

    def maker(cls: Any, estimator: str) -> Any:
        js = {"shrinkage": None, "half_life": None, "on_bad_reward": "stop", "save_batches": None}
        reward = {"overlong_buffer_len": None, "stop_properly_penalty_coef": None}
        args = SimpleNamespace(
            algo=SimpleNamespace(
                advantage=SimpleNamespace(estimator=estimator, gamma=1.0, no_std_norm=False)
            ),
            rollout=SimpleNamespace(n_samples_per_prompt=responses),
            reward=SimpleNamespace(clip_range=(-10, 10), **reward),
            js=SimpleNamespace(**js),
        )
        kl = SimpleNamespace(value=0.0)
        return cls(None, None, None, None, kl, SimpleNamespace(args=args), None)

    def experiences() -> list[Any]:
        return [
            Experience(
                index=list(range(i, i + 128)),
                rewards=rewards[i : i + 128].clone(),
                kl=torch.zeros(128, length),
                action_mask=torch.ones(128, length, dtype=torch.bool),
                info={"reward": rewards[i : i + 128]},
            )
            for i in range(0, count, 128)
        ]

    makers = {
        "rloo": maker(RemoteExperienceMaker, "rloo"),
        "js": maker(ShrinkageExperienceMaker, "js"),
    }
    times: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(rounds):
        for name, made in makers.items():
            batch = experiences()
            began = time.perf_counter()
            made.compute_advantages_and_returns(batch)
            times[name].append(time.perf_counter() - began)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("quickstart", type=Path, nargs="?", help="its --out folder")
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    times = alone(options.rounds)
    print("| advantages and returns | quartiles |\n|---|---:|")
    for name, values in times.items():
        low, middle, high = np.percentile(values, (25, 50, 75)) * 1e3
        print(f"| {name} | {low:.2f} / {middle:.2f} / {high:.2f} ms |")
    extra = statistics.median(times["js"]) - statistics.median(times["rloo"])
    print(f"\njs adds {extra * 1e3:.2f} ms to a step")
    if options.quickstart:
        steps = {name: median_step(options.quickstart / "tensorboard" / name) for name in times}
        print(
            f"of {steps['rloo']:.3f} s ({extra / steps['rloo']:.2%}); js took {steps['js']:.3f} s"
        )


if __name__ == "__main__":
    main()
