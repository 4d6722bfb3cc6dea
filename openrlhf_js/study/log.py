"""What a training run of the stack has left: its logged scalars, and how it ended."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

REWARD = "train/rollout/reward_mean"
RECORD = "openrlhf_js_config.json"  # as `plugin.run.record` writes it
DONE = "done"  # its outcome


class Scalars:
    """The scalars in the event files of one folder, which may grow and need not exist yet.

    Where a run was resumed, what was logged of later steps before was undone.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._events = EventAccumulator(str(folder), size_guidance={"scalars": 0})  # keep all
        self.reload()

    def reload(self) -> None:
        """Reads the complete records that have been written since."""
        if self._folder.is_dir():
            self._events.Reload()

    def __getitem__(self, tag: str) -> pd.Series:
        """The finite values of a tag by step; empty if nothing was logged under it."""
        events = self._events.Scalars(tag) if tag in self.tags else []
        values = {event.step: event.value for event in events if math.isfinite(event.value)}
        return pd.Series(values, dtype=float)

    @property
    def tags(self) -> list[str]:
        """Everything that was logged."""
        return list(self._events.Tags()["scalars"])


def is_done(folder: Path) -> bool:
    """Whether the record beside a log says that the run was trained to its end."""
    path = folder / RECORD
    return path.is_file() and json.loads(path.read_bytes())["outcome"] == DONE
