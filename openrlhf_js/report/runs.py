"""Runs from their files: logged scalars and flags, by the names on a command line."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto import event_pb2

REWARD = "train/rollout/reward_mean"
GRADIENT_NORM = "train/actor_grad_norm"
SHRINKAGE = "train/js/shrinkage_mean"
BASELINE_MSE = "train/js/baseline_mse"
BASELINE_MSE_RLOO = "train/js/baseline_mse_rloo"
HELD_OUT = "eval/eval_{}_pass1"  # of a datasource

EVENT_FILES = "*tfevents*"
FRAME_BYTES = 16  # around each record of an event file: its length and two checksums
CONFIG = "openrlhf_js_config.json"
RUNNING_SECONDS = 15 * 60  # a run that logged something so recently may be going on
WHAT_TO_PASS = "pass what --logger.tensorboard_dir named, a folder above it, or a quickstart's"
PLACES = (  # where a run leaves its files does not matter to a comparison
    "ckpt.output_dir",
    "ckpt.path",
    "logger.tensorboard_dir",
    "logger.wandb.run_name",
    "js.save_batches",
)


class Series(NamedTuple):
    """One scalar over training."""

    steps: list[int]
    values: list[float]

    @property
    def mean(self) -> float | None:
        """The mean over all steps, None if there are none."""
        return fmean(self.values) if self.values else None

    def finite(self) -> Series:
        """Without the values that are infinite or NaN."""
        kept = [(s, v) for s, v in zip(*self, strict=True) if math.isfinite(v)]
        return Series([s for s, _ in kept], [v for _, v in kept])


class Scalars:
    """The scalars in the event files of one folder, which may grow and need not exist yet.

    Where a run was resumed, what was logged of later steps before was undone.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._loaders: dict[Path, RawEventFileLoader] = {}
        self._bytes: Counter[Path] = Counter()
        self._series: dict[str, dict[int, float]] = {}
        self.written: float | None = None  # when the last scalar was logged, in seconds since 1970
        self.reload()

    def reload(self) -> None:
        """Reads the complete records that have been written since."""
        for path in sorted(self._folder.glob(EVENT_FILES)):  # a name begins with its time
            if path not in self._loaders:
                self._loaders[path] = RawEventFileLoader(str(path))
            for record in self._loaders[path].Load():
                self._bytes[path] += len(record) + FRAME_BYTES
                event = event_pb2.Event.FromString(record)
                for value in event.summary.value:
                    if value.HasField("simple_value"):
                        series = self._series.setdefault(value.tag, {})
                        while series and next(reversed(series)) >= event.step:
                            series.popitem()
                        series[event.step] = value.simple_value
                        self.written = event.wall_time

    def __getitem__(self, tag: str) -> Series:
        """The series of a tag, empty if nothing was logged under it."""
        series = self._series.get(tag, {})
        return Series(list(series), list(series.values()))

    @property
    def tags(self) -> list[str]:
        """Everything that was logged, in alphabetical order."""
        return sorted(self._series)

    @property
    def last_step(self) -> int | None:
        """The last step of any scalar, None before the first."""
        return max((next(reversed(series)) for series in self._series.values()), default=None)

    @property
    def unread(self) -> dict[Path, int]:
        """Bytes at the end of an event file that are no record, or not yet."""
        left = {path: path.stat().st_size - self._bytes[path] for path in self._loaders}
        return {path: count for path, count in left.items() if count > 0}


class Config(NamedTuple):
    """How a run was started, from the file that training leaves beside its log."""

    settings: dict[str, str]  # flags, as `--train.seed`, and versions, as `torch (version)`
    outcome: str | None  # how it ended; None while it goes on


class Run(NamedTuple):
    """One training."""

    folder: Path  # of its event files
    logged: Scalars
    config: Config | None

    def running(self, now: float) -> bool:
        """Whether it logged something lately, and has not recorded its end."""
        ended = self.config is not None and self.config.outcome is not None
        return not ended and now - (self.logged.written or -math.inf) < RUNNING_SECONDS

    def status(self, now: float) -> str:
        """Whether it goes on, its last step, and when it last logged (local time)."""
        written = self.logged.written
        if written is None:
            return "nothing logged yet"
        today = time.localtime(now)[:3] == time.localtime(written)[:3]
        when = time.strftime("%H:%M" if today else "%Y-%m-%d %H:%M", time.localtime(written))
        state = (self.config and self.config.outcome) or "not running"
        if self.running(now):
            state = "running" if self.config else "perhaps running"
        return f"{state}, last step {self.logged.last_step}, last written {when}"

    def warnings(self, now: float) -> list[str]:
        """What is wrong with its log."""
        unread = {} if self.running(now) else self.logged.unread
        found = [f"{path} ends in {n:,} bytes that cannot be read." for path, n in unread.items()]
        odd = [tag for tag in self.logged.tags if self.logged[tag].finite() != self.logged[tag]]
        not_finite = f"{self.folder}: values that are not finite are left out: {', '.join(odd)}."
        return [*found, not_finite] if odd else found


class Condition(NamedTuple):
    """What is compared: one run, or several that differ in their seeds alone."""

    name: str
    runs: tuple[Run, ...]

    def series(self, tag: str) -> list[Series]:
        """The finite values that each run logged under a tag, without runs that logged none."""
        found = (run.logged[tag].finite() for run in self.runs)
        return [series for series in found if series.steps]

    @property
    def by_seed(self) -> dict[str, Run]:
        """The runs by --train.seed; by folder where a file does not say, or two have the same."""
        folders = [str(run.folder) for run in self.runs]
        seeds = [
            (run.config.settings if run.config else {}).get("--train.seed") for run in self.runs
        ]
        unknown = None in seeds or len(set(seeds)) < len(seeds)
        return dict(zip(folders if unknown else map(str, seeds), self.runs, strict=True))

    @property
    def tags(self) -> set[str]:
        """What any of its runs has logged."""
        return {tag for run in self.runs for tag in run.logged.tags}


def find_conditions(words: Sequence[str]) -> list[Condition]:
    """The conditions that the command line names.

    Each word is `FOLDER`, `NAME=FOLDER` or `NAME=FOLDER,FOLDER,...`, whose folders are seeds of one
    condition. Several runs below a folder are conditions, named after their folders.
    """
    found = [condition for word in words for condition in _conditions(word)]
    for name, count in Counter(name for name, _ in found).items():
        if count > 1:
            raise ValueError(f"{count} runs are called {name!r}; give each its own: NAME=FOLDER.")
    return [Condition(name, tuple(map(read_run, folders))) for name, folders in found]


def _conditions(word: str) -> list[tuple[str, list[Path]]]:
    """Of each condition in a word: its name, and a folder for each seed."""
    name, equals, rest = word.partition("=")
    if not equals or Path(word).is_dir():
        name, rest = "", word
    paths = [Path(rest)] if Path(rest).is_dir() else [Path(each) for each in rest.split(",")]
    below = [_event_folders(path) for path in paths]
    if all(len(folders) == 1 for folders in below):
        own = name or "+".join(path.resolve().name or str(path) for path in paths)
        return [(own, [next(iter(folders.values())) for folders in below])]
    if any(folders.keys() != below[0].keys() for folders in below):
        held = "; ".join(f"{p}: {', '.join(f)}" for p, f in zip(paths, below, strict=True))
        raise ValueError(f"the seeds of {word!r} must hold runs of the same names; got {held}.")
    prefix = f"{name}/" if name else ""
    return [(prefix + inner, [each[inner] for each in below]) for inner in below[0]]


def _event_folders(path: Path) -> dict[str, Path]:
    """The folders with event files at or below a path by name, in the order of their first file."""
    files = sorted(path.rglob(EVENT_FILES), key=lambda file: (file.name, file))  # by time
    folders = list(dict.fromkeys(file.parent for file in files))
    if not folders:
        raise ValueError(f"no TensorBoard event files in {path}; {WHAT_TO_PASS}.")
    if len({folder.name for folder in folders}) == len(folders):
        return {folder.name: folder for folder in folders}
    return {str(folder.relative_to(path)): folder for folder in folders}


def read_run(folder: Path) -> Run:
    """The run whose event files a folder holds; ValueError if they are of something else."""
    logged = Scalars(folder)
    if logged.last_step is None and logged.unread:
        raise ValueError(f"{next(iter(logged.unread))} is not a TensorBoard event file.")
    return Run(folder, logged, read_config(folder))


def read_config(folder: Path) -> Config | None:
    """How the run with this log was started; None where no file says."""
    path = folder / CONFIG
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        settings = {
            f"--{name}": " ".join(map(str, value)) if isinstance(value, list) else str(value)
            for name, value in found["flags"].items()
            if name not in PLACES
        }
        versions = {f"{name} (version)": str(value) for name, value in found["versions"].items()}
        return Config(settings | versions, found["outcome"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error}); remove it.") from error


def compare_flags(
    conditions: Sequence[Condition],
) -> tuple[list[tuple[str, ...]], list[tuple[str, str]]]:
    """Flags and versions that differ, with a value for each known condition, and those that agree.

    Seeds of one condition that differ have their values side by side.
    """
    settings = [[run.config.settings for run in c.runs if run.config] for c in conditions]
    known = [runs for runs in settings if runs]
    differing: list[tuple[str, ...]] = []
    agreeing: list[tuple[str, str]] = []
    for name in sorted({name for runs in known for run in runs for name in run}):
        values = [list(dict.fromkeys(run.get(name, "-") for run in runs)) for runs in known]
        if all(each == values[0] and len(each) == 1 for each in values):
            agreeing.append((name, values[0][0]))
        else:
            differing.append((name, *(" | ".join(each) for each in values)))
    return differing, agreeing
