"""In which flags and versions the runs of a report differ, and in which they agree."""

from __future__ import annotations

from collections.abc import Sequence

from openrlhf_js.report.run_files import Config
from openrlhf_js.report.runs import Condition

PLACES = (  # where a run leaves its files says nothing about what it did
    "ckpt.output_dir",
    "ckpt.path",
    "logger.tensorboard_dir",
    "logger.wandb.run_name",
    "js.save_batches",
)
DEFAULT, UNKNOWN = "(default)", "-"

Row = tuple[str, ...]


def differing(conditions: Sequence[Condition]) -> list[Row]:
    """Flag or package, and its value in each condition, for those that are not all the same.

    Seeds of one condition that differ have their values side by side.
    """
    return [row for row in _rows(conditions) if len(set(row[1:])) > 1 or _varies(row)]


def agreeing(conditions: Sequence[Condition]) -> list[Row]:
    """Flag or package, and the one value that it has in all conditions."""
    return [row[:2] for row in _rows(conditions) if len(set(row[1:])) == 1 and not _varies(row)]


def without_flags(conditions: Sequence[Condition]) -> list[str]:
    """The conditions of which no file tells the flags."""
    return [c.name for c in conditions if not any(run.config.flags for run in c.runs)]


def _varies(row: Row) -> bool:
    return any(" | " in value for value in row[1:])


def _rows(conditions: Sequence[Condition]) -> list[Row]:
    known = [c for c in conditions if any(run.config.flags for run in c.runs)]
    in_full = all(run.config.changed is not None for c in known for run in c.runs)
    settings = [[_settings(run.config, in_full) for run in c.runs] for c in known]
    names = sorted({name for runs in settings for run in runs for name in run})
    return [
        (name, *(_values([_value(run, name) for run in runs]) for runs in settings))
        for name in names
    ]


def _settings(config: Config, in_full: bool) -> dict[str, str]:
    """What is compared of a run: its flags, without those at their default unless all are known."""
    shown = config.flags if in_full or config.changed is None else config.changed
    flags = {f"--{name}": config.flags[name] for name in shown if name not in PLACES}
    return flags | {f"{name} (version)": each for name, each in config.versions.items()}


def _value(of_run: dict[str, str], name: str) -> str:
    return of_run.get(name, DEFAULT if name.startswith("--") else UNKNOWN)


def _values(of_runs: list[str]) -> str:
    return " | ".join(of_runs) if len(set(of_runs)) > 1 else of_runs[0]
