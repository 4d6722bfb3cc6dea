"""Runs from their files: logged scalars and flags, by the names on a command line."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

REWARD = "train/rollout/reward_mean"
BASELINE_MSE = "train/js/baseline_mse"
BASELINE_MSE_RLOO = "train/js/baseline_mse_rloo"

EVENT_FILES = "*tfevents*"
CONFIG = "openrlhf_js_config.json"
RUNNING_SECONDS = 15 * 60  # a run that logged something so recently may be going on
PAIRED = ("--train.seed", "--data.prompt_dataset", "--actor.model_name_or_path")  # of a pair
# Where a run leaves its files does not matter to a comparison.
PLACES = {"ckpt.output_dir", "ckpt.path", "logger.tensorboard_dir", "logger.wandb.run_name"}


class Scalars:
    """The scalars in the event files of one folder, which may grow and need not exist yet.

    Where a run was resumed, what was logged of later steps before was undone.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._loaders: dict[Path, LegacyEventFileLoader] = {}
        self._series: dict[str, dict[int, float]] = {}
        self.last_step: int | None = None  # None before the first scalar
        self.written: float | None = None  # when the last scalar was logged, in seconds since 1970
        self.reload()

    def reload(self) -> None:
        """Reads the complete records that have been written since."""
        for path in sorted(self._folder.glob(EVENT_FILES)):  # a name begins with its time
            if path not in self._loaders:
                self._loaders[path] = LegacyEventFileLoader(str(path))
            for event in self._loaders[path].Load():
                for value in event.summary.value:
                    if value.HasField("simple_value"):
                        self._add(value.tag, event.step, value.simple_value)
                        self.last_step = event.step
                        self.written = event.wall_time

    def _add(self, tag: str, step: int, value: float) -> None:
        series = self._series.setdefault(tag, {})
        while series and next(reversed(series)) >= step:
            series.popitem()
        series[step] = value

    def __getitem__(self, tag: str) -> pd.Series:
        """The finite values of a tag by step, empty if nothing was logged under it."""
        series = self._series.get(tag, {})
        finite = {step: value for step, value in series.items() if math.isfinite(value)}
        return pd.Series(finite, dtype=float)

    @property
    def tags(self) -> list[str]:
        """Everything that was logged, in alphabetical order."""
        return sorted(self._series)

    @property
    def not_finite(self) -> list[str]:
        """The tags under which something was logged that is no number."""
        return [tag for tag in self.tags if len(self[tag]) < len(self._series[tag])]


class Config(NamedTuple):
    """How a run was started, from the file that training leaves beside its log."""

    settings: dict[str, str]  # flags, as `--train.seed`, and versions, as `torch (version)`
    outcome: str | None  # how it ended; None while it goes on


class LoggedRun(NamedTuple):
    """One training."""

    folder: Path  # of its event files
    logged: Scalars
    config: Config | None

    def status(self, now: float) -> str:
        """Whether it goes on, its last step, and when it last logged (local time)."""
        written = self.logged.written
        if written is None:
            return "nothing logged yet"
        if self.config and self.config.outcome:
            state = self.config.outcome
        elif now - written < RUNNING_SECONDS:
            state = "running"
        else:
            state = "not running"
        local_time = time.strftime("%Y-%m-%d %H:%M", time.localtime(written))
        status = f"{state}, last step {self.logged.last_step}, last written {local_time}"
        not_finite = self.logged.not_finite
        if not_finite:
            status += f", values that are not finite left out of {', '.join(not_finite)}"
        return status


class Condition(NamedTuple):
    """What is compared: one run, or several that differ in their seeds alone."""

    name: str
    runs: tuple[LoggedRun, ...]

    def series(self, tag: str) -> list[pd.Series]:
        """The finite values that each run logged under a tag, without runs that logged none."""
        logged = [run.logged[tag] for run in self.runs]
        return [series for series in logged if not series.empty]

    @property
    def by_seed(self) -> dict[str, LoggedRun]:
        """The runs by what pairs share: seed, data and model.

        By folder where a file does not say, or where two have the same.
        """
        runs: dict[str, LoggedRun] = {}
        for run in self.runs:
            flags = run.config.settings if run.config else {}
            if "--train.seed" in flags:
                shared = [flags.get(flag, "") for flag in PAIRED]
                runs[" ".join(shared)] = run
        if len(runs) < len(self.runs):
            runs = {str(run.folder): run for run in self.runs}
        return runs


def find_conditions(words: Sequence[str]) -> list[Condition]:
    """The conditions that the command line names.

    `NAME=FOLDER,FOLDER,...` is one condition, and each folder a seed of it. `FOLDER` is one,
    too, or with several runs below it one for each, named after the run's own folder.
    """
    conditions: list[Condition] = []
    for word in words:
        name, equals, seeds = word.partition("=")
        if equals and not Path(word).is_dir():
            conditions.append(_condition(name, [_only_folder(seed) for seed in seeds.split(",")]))
        else:
            folders = _event_folders(Path(word))
            conditions += [_condition(name, [folder]) for name, folder in folders.items()]
    names = [condition.name for condition in conditions]
    if len(set(names)) < len(names):
        raise ValueError(f"names of runs must differ, not {', '.join(names)}; give NAME=FOLDER")
    return conditions


def _condition(name: str, folders: Sequence[Path]) -> Condition:
    runs = [LoggedRun(folder, Scalars(folder), read_config(folder)) for folder in folders]
    return Condition(name, tuple(runs))


def _only_folder(path: str) -> Path:
    """The one folder with event files at or below a path."""
    folders = list(_event_folders(Path(path)).values())
    if len(folders) > 1:
        raise ValueError(f"{path!r} has several runs in a folder; name each: NAME=FOLDER.")
    return folders[0]


def _event_folders(path: Path) -> dict[str, Path]:
    """The folders with event files at or below a path by name, in the order of their first file.

    One alone is named after the path.
    """
    files = sorted(path.rglob(EVENT_FILES), key=lambda file: (file.name, file))  # by time
    folders = list(dict.fromkeys(file.parent for file in files))
    if not folders:
        raise ValueError(
            f"no TensorBoard event files in {path}; "
            "pass what --logger.tensorboard_dir named, or a folder above it"
        )
    if len(folders) == 1:
        return {path.resolve().name: folders[0]}
    if len({folder.name for folder in folders}) == len(folders):
        return {folder.name: folder for folder in folders}
    return {str(folder.relative_to(path)): folder for folder in folders}


def read_config(folder: Path) -> Config | None:
    """How the run with this log was started; None where no file says."""
    path = folder / CONFIG
    if not path.is_file():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    settings = {}
    for name, value in record["flags"].items():
        if name not in PLACES:
            settings[f"--{name}"] = _on_one_line(value)
    for name, version in record["versions"].items():
        settings[f"{name} (version)"] = str(version)
    return Config(settings, record["outcome"])


def _on_one_line(value: Any) -> str:
    """The value of a flag as on the command line."""
    if not isinstance(value, list):
        return str(value)
    return " ".join(str(word) for word in value)


def compare_flags(
    conditions: Sequence[Condition],
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Flags and versions that differ, with a value for each known condition, and those that agree.

    Seeds of one condition that differ have their values side by side.
    """
    known: dict[str, list[dict[str, str]]] = {}
    flags: set[str] = set()
    for condition in conditions:
        for run in condition.runs:
            if run.config:
                known.setdefault(condition.name, []).append(run.config.settings)
                flags.update(run.config.settings)
    differing = []
    agreeing = []
    for flag in sorted(flags):
        row = {"flag": flag}
        different: set[str] = set()
        for name, seeds in known.items():
            values = dict.fromkeys(settings.get(flag, "-") for settings in seeds)
            row[name] = " | ".join(values)
            different.update(values)
        if len(different) > 1:
            differing.append(row)
        else:
            agreeing.append({"flag": flag, "value": different.pop()})
    return differing, agreeing
