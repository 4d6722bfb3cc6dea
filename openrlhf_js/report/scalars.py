"""Read the scalars of a TensorBoard folder, while it grows or afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat import tf
from tensorboard.compat.proto import event_pb2

REWARD = "train/rollout/reward_mean"
GRADIENT_NORM = "train/actor_grad_norm"
SHRINKAGE = "train/js/shrinkage_mean"
SHRINKAGE_MIN = "train/js/shrinkage_min"
SHRINKAGE_MAX = "train/js/shrinkage_max"
BASELINE_MSE = "train/js/baseline_mse"
BASELINE_MSE_RLOO = "train/js/baseline_mse_rloo"
HELD_OUT = "eval/eval_held_out_pass1"
EVENT_FILES = "*tfevents*"
FRAME_BYTES = 16  # around each record of an event file: its length, and two checksums


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

    Where a run was resumed, each of its event files counts from its first step on: what an earlier
    file says about later steps was undone.

    Args:
        folder: holds TensorBoard's event files.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._files: dict[Path, _EventFile] = {}
        self.reload()

    def reload(self) -> None:
        """Reads what has been written since."""
        for path in self._folder.glob(EVENT_FILES) if self._folder.is_dir() else ():
            if path not in self._files:
                self._files[path] = _EventFile(path)
        for file in self._files.values():
            file.read()

    def __getitem__(self, tag: str) -> Series:
        """The series of a tag, empty if nothing was logged under it."""
        merged: dict[int, float] = {}
        for path in self.files:
            logged = self._files[path].values.get(tag)
            if logged:
                first = min(logged)
                merged = {step: value for step, value in merged.items() if step < first} | logged
        steps = sorted(merged)
        return Series(steps, [merged[step] for step in steps])

    @property
    def files(self) -> list[Path]:
        """The event files, the one that was begun first first."""
        return sorted(self._files)  # their names begin with the time

    @property
    def tags(self) -> list[str]:
        """Everything that was logged, in alphabetical order."""
        return sorted({tag for file in self._files.values() for tag in file.values})

    @property
    def last_step(self) -> int | None:
        """The last step of any scalar, None before the first."""
        steps = [max(series) for file in self._files.values() for series in file.values.values()]
        return max(steps, default=None)

    @property
    def written(self) -> float | None:
        """When the last scalar was logged, in seconds since 1970, None before the first."""
        return max((f.written for f in self._files.values() if f.written), default=None)

    @property
    def unread(self) -> dict[Path, int]:
        """The event files that end in something unreadable, and how many bytes of them that is.

        A run that is still going may be in the middle of a record.
        """
        return {path: file.unread for path, file in self._files.items() if file.unread}

    @property
    def lost(self) -> dict[Path, str]:
        """The event files that could not be read to their end, and what happened to them."""
        return {path: file.lost for path, file in self._files.items() if file.lost}

    @property
    def unreadable(self) -> list[Path]:
        """The files with bytes in them of which not one record can be read."""
        return [path for path in self.unread if self._files[path].bytes == 0]


class _EventFile:
    """What has been read of one event file so far.

    Attributes:
        values: by tag and step.
        bytes: of the records that were read.
        unread: bytes that were behind them.
        written: when the last one was logged, in seconds since 1970.
        lost: what happened to a file that could not be read to its end, None where nothing did.
    """

    def __init__(self, path: Path):
        self._path = path
        self._loader: RawEventFileLoader | None = None
        self.values: dict[str, dict[int, float]] = {}
        self.bytes = self.unread = 0
        self.written: float | None = None
        self.lost: str | None = None

    def read(self) -> None:
        """Reads the whole records that are there by now; after a failure, from the first one."""
        self.lost, self.unread = None, 0
        try:
            if self._loader is None:
                self._loader = RawEventFileLoader(str(self._path))
                self.values, self.bytes, self.written = {}, 0, None
            self._take(self._loader)
            left = self._path.stat().st_size - self.bytes
        except (FileNotFoundError, tf.errors.NotFoundError):
            self.lost = "was removed while it was read"
        except OSError as error:
            self.lost = f"could not be read: {error.strerror}"
        else:
            self.unread = max(left, 0)
            if left < 0:
                self.lost = "was cut off or replaced while it was read"
        if self.lost:
            self._loader = None  # which has lost its place

    def _take(self, loader: RawEventFileLoader) -> None:
        for record in loader.Load():
            self.bytes += len(record) + FRAME_BYTES
            event = event_pb2.Event.FromString(record)
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    self.values.setdefault(value.tag, {})[event.step] = value.simple_value
                    self.written = event.wall_time
