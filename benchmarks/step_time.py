"""What does the shrinkage baseline cost in a training step?

Two measurements, side by side in one run:

1. The quickstart's own training, on the real stack, once with `js` and once with upstream's `rloo`,
   again and again in turn. A step's time is that of make-experience and of training, without
   generation and weight sync, which know nothing of the estimator. Both runs log the diagnostics.
2. The work between the two alone, on the same rollouts in one process: upstream's experience maker
   with `rloo` against ours with `js`, diagnostics included, as a share of the step.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from rich.console import Console

from openrlhf_js.plugin.run import prepare_device
from openrlhf_js.report.runs import Scalars
from openrlhf_js.tiny.quickstart import Quickstart, QuickstartSettings, prepare_libraries
from openrlhf_js.tiny.screen import Screen

PHASES = ("train/timing/make_experience", "train/timing/ppo_train")
WARM_UP_STEPS = 3


def seconds_per_step(tensorboard: Path) -> list[float]:
    """Make-experience and training of every step but the first few, in seconds."""
    scalars = Scalars(tensorboard)
    phases = [scalars[tag].values[WARM_UP_STEPS:] for tag in PHASES]
    return [sum(step) for step in zip(*phases, strict=True)]


def real_runs(pairs: int, steps: int) -> dict[str, list[float]]:
    """The median step of each run, in seconds, `pairs` runs of each estimator in turn."""
    medians: dict[str, list[float]] = {"rloo": [], "js": []}
    for pair in range(pairs):
        order = ("rloo", "js") if pair % 2 == 0 else ("js", "rloo")
        stages = ["warm start", *(f"train with {estimator}" for estimator in order)]
        screen = Screen(f"pair {pair + 1} of {pairs}", stages, Console(stderr=True))
        with tempfile.TemporaryDirectory() as name, screen:
            run = Quickstart(
                QuickstartSettings(steps=steps, curve_every=10 * steps), Path(name), screen
            )
            run.warm_start(run.make_data())
            for estimator in order:
                folder = run.folder / estimator
                folder.mkdir()
                logs = run.folder / "tensorboard" / estimator
                run.train(estimator, folder, progress=lambda: (0, "running"))
                medians[estimator].append(statistics.median(seconds_per_step(logs)))
    return medians


def isolated(rounds: int, prompts: int = 64, responses: int = 4) -> dict[str, list[float]]:
    """Seconds of compute_advantages_and_returns, `rounds` times each, in turn."""
    prepare_device("cpu")
    from openrlhf.trainer.ppo_utils.experience import Experience
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    from openrlhf_js.plugin.experience import ShrinkageExperienceMaker

    count, length = prompts * responses, 6
    rewards = (torch.rand(count, generator=torch.Generator().manual_seed(0)) > 0.5).float()

    def maker(cls: Any, estimator: str) -> Any:
        advantage = SimpleNamespace(estimator=estimator, gamma=1.0, no_std_norm=False)
        args = SimpleNamespace(
            algo=SimpleNamespace(advantage=advantage),
            rollout=SimpleNamespace(n_samples_per_prompt=responses),
            reward=SimpleNamespace(
                clip_range=(-10, 10), overlong_buffer_len=None, stop_properly_penalty_coef=None
            ),
            js=SimpleNamespace(
                shrinkage=None, half_life=None, on_bad_reward="stop", save_batches=None
            ),
        )
        strategy = SimpleNamespace(args=args)
        return cls(None, None, None, None, SimpleNamespace(value=0.0), strategy, None)

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
    for _ in range(rounds + 20):
        for name, made in makers.items():
            batch = experiences()
            began = time.perf_counter()
            made.compute_advantages_and_returns(batch)
            times[name].append(time.perf_counter() - began)
    return {name: values[20:] for name, values in times.items()}


def ratio_interval(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """Geometric mean of the paired ratios, and its 95 % interval by Student's t."""
    from scipy import stats

    logs = np.log(np.array(ours) / np.array(theirs))
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / len(logs) ** 0.5
    return tuple(np.exp(logs.mean() + x) for x in (0, -half, half))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=4, help="runs of each (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=40, help="of a run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=300, help="of part 2 (default: %(default)s)")
    options = parser.parse_args()

    prepare_libraries()
    medians = real_runs(options.pairs, options.steps)
    alone = isolated(options.rounds)

    print(
        "| median step, make-experience + training | rloo | js | js / rloo |\n|---|---:|---:|---:|"
    )
    for pair, (theirs, ours) in enumerate(zip(medians["rloo"], medians["js"], strict=True), 1):
        print(f"| pair {pair} | {theirs:.4f} s | {ours:.4f} s | {ours / theirs:.3f} |")
    if options.pairs > 1:
        mean, low, high = ratio_interval(medians["js"], medians["rloo"])
        print(f"| all pairs, 95 % interval | | | {mean:.3f} ({low:.3f} to {high:.3f}) |")
    step = statistics.median(medians["rloo"])
    extra = statistics.median(alone["js"]) - statistics.median(alone["rloo"])
    quartiles = {name: np.percentile(values, (25, 50, 75)) for name, values in alone.items()}
    print("\n| advantages and returns alone | quartiles |\n|---|---:|")
    for name, (low, middle, high) in quartiles.items():
        print(f"| {name} | {low * 1e3:.2f} / {middle * 1e3:.2f} / {high * 1e3:.2f} ms |")
    print(f"\njs adds {extra * 1e3:.2f} ms, {extra / step:.2%} of rloo's median step.")


if __name__ == "__main__":
    main()
