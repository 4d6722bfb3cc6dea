"""Read the scalars of a TensorBoard folder, while it grows or afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tensorboard.backend.event_processing import event_accumulator

REWARD = "train/rollout/reward_mean"
GRADIENT_NORM = "train/actor_grad_norm"
SHRINKAGE = "train/js/shrinkage_mean"
SHRINKAGE_MIN = "train/js/shrinkage_min"
SHRINKAGE_MAX = "train/js/shrinkage_max"
BASELINE_MSE = "train/js/baseline_mse"
BASELINE_MSE_RLOO = "train/js/baseline_mse_rloo"
HELD_OUT = "eval/eval_held_out_pass1"


class Series(NamedTuple):
    """One scalar over training."""

    steps: list[int]
    values: list[float]

    @property
    def mean(self) -> float | None:
        """The mean over all steps, None if there are none."""
        return sum(self.values) / len(self.values) if self.values else None


class Scalars:
    """The scalars under one folder. The folder need not exist yet.

    Args:
        folder: holds TensorBoard's event files.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._events = event_accumulator.EventAccumulator(
            str(folder),
            size_guidance={event_accumulator.SCALARS: 0},  # 0: keep all
        )
        self.reload()

    def reload(self) -> None:
        """Reads what has been written since."""
        if self._folder.is_dir():
            self._events.Reload()

    def __getitem__(self, tag: str) -> Series:
        """The series of a tag, empty if nothing was logged under it."""
        if tag not in self._events.scalars.Keys():
            return Series([], [])
        events = self._events.Scalars(tag)
        return Series([event.step for event in events], [event.value for event in events])
