"""Find the runs that a report is about: their logs, flags and evaluations, by name."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from openrlhf_js.report.bands import finite
from openrlhf_js.report.run_files import Config, read_config, read_evaluations
from openrlhf_js.report.scalars import EVENT_FILES, Scalars, Series

RUNNING_SECONDS = 15 * 60  # a run that logged something so recently is taken to go on
WHAT_TO_PASS = "pass what --logger.tensorboard_dir named, a folder above it, or a quickstart's"


class Run(NamedTuple):
    """One training."""

    folder: Path
    """Holds its event files."""
    logged: Scalars
    config: Config
    evaluations: dict[int, dict[str, float]]
    """Mean score of each held-out prompt by step, where the files tell."""

    def series(self, tag: str) -> Series:
        """What was logged under a tag, without values that are not finite."""
        return finite(self.logged[tag])

    def running(self, now: float | None = None) -> bool:
        """Whether it logged something lately, and has not recorded its end."""
        now = time.time() if now is None else now
        lately = now - (self.logged.written or -math.inf) < RUNNING_SECONDS
        return self.config.outcome is None and lately

    def status(self, now: float | None = None) -> str:
        """Whether it goes on, its last step, and when it was last heard of (local time).

        Where no file records the end of a run, one that logged lately may go on or not.
        """
        written, step = self.logged.written, self.logged.last_step
        if written is None:
            return "nothing logged yet"
        now = time.time() if now is None else now
        today = time.localtime(now)[:3] == time.localtime(written)[:3]
        when = time.strftime("%H:%M" if today else "%Y-%m-%d %H:%M", time.localtime(written))
        going = "running" if self.config.changed is not None else "perhaps running"
        state = going if self.running(now) else self.config.outcome or "not running"
        return f"{state}, last step {step}, last written {when}"


class Condition(NamedTuple):
    """What is compared: one run, or several that differ in their seeds alone."""

    name: str
    runs: tuple[Run, ...]

    def series(self, tag: str) -> list[Series]:
        """What each run logged under a tag; runs that logged nothing are left out."""
        return [series for series in (run.series(tag) for run in self.runs) if series.steps]

    @property
    def tags(self) -> set[str]:
        """What any of its runs has logged."""
        return {tag for run in self.runs for tag in run.logged.tags}


def find_conditions(words: Sequence[str]) -> list[Condition]:
    """The conditions that the command line names.

    Each word is `FOLDER`, `NAME=FOLDER` or `NAME=FOLDER,FOLDER,...`, whose folders are seeds of one
    condition. A folder may hold several runs below it, which are conditions of their own, named
    after their folders.

    Raises:
        ValueError: a folder is not there or holds no event files, seeds do not hold the same
            conditions, two conditions have one name, or a file cannot be read.
    """
    found = [condition for word in words for condition in _conditions(word)]
    counts = Counter(short for _, short, _ in found)
    names = [short if counts[short] == 1 else full for full, short, _ in found]
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"{count} runs are called {name!r}; give each its own: NAME=FOLDER.")
    return [
        Condition(name, tuple(_run(folder) for folder in folders))
        for name, (_, _, folders) in zip(names, found, strict=True)
    ]


def _conditions(word: str) -> list[tuple[str, str, list[Path]]]:
    """Of each condition in a word: its full name, its short one, and a folder for each seed."""
    name, equals, rest = word.partition("=")
    if not equals or Path(word).is_dir():
        name, rest = "", word
    if equals and not name and rest != word:
        raise ValueError(f"{word!r} has no name before the =; give NAME=FOLDER, or FOLDER alone.")
    paths = [Path(rest)] if Path(rest).is_dir() else [Path(each) for each in rest.split(",")]
    below = [_event_folders(path) for path in paths]
    own = name or "+".join(path.resolve().name or str(path) for path in paths)
    if all(len(folders) == 1 for folders in below):
        return [(own, own, [next(iter(folders.values())) for folders in below])]
    if any(folders.keys() != below[0].keys() for folders in below):
        held = "; ".join(f"{p}: {', '.join(f)}" for p, f in zip(paths, below, strict=True))
        raise ValueError(
            f"the seeds of {own!r} must hold runs of the same names; they hold {held}."
        )
    return [
        (f"{own}/{inner}", f"{name}/{inner}" if name else inner, [each[inner] for each in below])
        for inner in below[0]
    ]


def _event_folders(path: Path) -> dict[str, Path]:
    """The folders with event files at or below a path, the one that was first written to first.

    Each is named by what tells it from the others.

    Raises:
        ValueError: there is no such folder, or no event file in it.
    """
    if not path.is_dir():
        raise ValueError(f"there is no folder {path}; {WHAT_TO_PASS}.")
    files = [file for file in path.rglob(EVENT_FILES) if file.is_file()]
    files.sort(key=lambda file: (file.name, file))  # a name begins with the time
    folders = list(dict.fromkeys(file.parent for file in files))
    if not folders:
        raise ValueError(f"{path} holds no TensorBoard event files; {WHAT_TO_PASS}.")
    if len({folder.name for folder in folders}) == len(folders):
        return {folder.name: folder for folder in folders}
    return {str(folder.relative_to(path)): folder for folder in folders}


def _run(folder: Path) -> Run:
    logged = Scalars(folder)
    if logged.last_step is None and (logged.lost or not logged.files):
        path, why = next(iter(logged.lost.items()), (folder, "was removed while it was read"))
        raise ValueError(
            f"{path} {why}, and its run has nothing else to report. Mend that, or name other "
            "folders."
        )
    if logged.unreadable and logged.last_step is None:
        raise ValueError(
            f"{logged.unreadable[0]} cannot be read: it is no TensorBoard event file, or its first "
            "record is damaged. Remove it, or name other folders."
        )
    return Run(folder, logged, read_config(folder), read_evaluations(folder, logged.last_step))
