"""A run's flags, versions and outcome, kept beside its log."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from openrlhf_js.common.files import write_json
from openrlhf_js.plugin.flags.parser import SECRETS, changed
from openrlhf_js.plugin.run.device import versions

RECORD = "openrlhf_js_config.json"  # read by `openrlhf-js report`


@contextlib.contextmanager
def recorded(args: argparse.Namespace, parser: argparse.ArgumentParser) -> Iterator[None]:
    """Keeps the run's flags and versions beside its TensorBoard log, if it has one.

    The file is written at the start, and again at the end with the outcome: "done", "failed" or
    "interrupted"; a run that was killed has none. Of a resumed run it has every start. `args` is
    flat, after OpenRLHF's validation.
    """
    flags = vars(args)
    if not flags["logger.tensorboard_dir"]:
        yield
        return
    folder = Path(flags["logger.tensorboard_dir"], flags["logger.wandb.run_name"])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RECORD
    earlier: list[dict[str, Any]] = []
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        earlier = before.pop("earlier_starts")
        earlier.append(before)
    # strict JSON has no number that is not finite
    plain = json.loads(json.dumps(flags, sort_keys=True), parse_constant=str)
    record = {
        "started": _now(),
        "ended": None,
        "outcome": None,
        "flags": {**plain, **{name: "(hidden)" for name in SECRETS if flags[name]}},
        "changed": sorted(name for name in flags if changed(name, flags[name], parser)),
        "versions": versions(),
        "earlier_starts": earlier,
    }
    write_json(path, record)
    outcome = "failed"
    try:
        yield
        outcome = "done"
    except KeyboardInterrupt:
        outcome = "interrupted"
        raise
    finally:
        write_json(path, {**record, "ended": _now(), "outcome": outcome})


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
