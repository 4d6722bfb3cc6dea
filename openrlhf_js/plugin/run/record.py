"""A run's flags, versions and outcome, and what a resumed run has changed of them."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from openrlhf_js.common.console import say
from openrlhf_js.common.files import write_json
from openrlhf_js.plugin.flags import Flat
from openrlhf_js.plugin.flags.parser import SECRETS, changed
from openrlhf_js.plugin.run.device import versions

RECORD = "openrlhf_js_config.json"  # read by `openrlhf-js study`

# What a resumed run may change: it trains the same. Every other flag must be as it was.
MAY_CHANGE = {
    "what is logged, saved and evaluated": (
        "ckpt.* eval.* logger.* critic.save_value_network js.save_batches js.gradient_variance"
    ),
    "where and how fast it computes": (
        "*.num_nodes *.num_gpus_per_node ref.offload reward.offload vllm.* train.colocate_* "
        "*.gradient_checkpointing_* *.max_tokens_per_gpu *.micro_batch_size ds.adam_offload "
        "ds.attn_implementation ds.deepcompile ds.enable_sleep ds.experts_implementation "
        "ds.overlap_comm ds.use_liger_kernel ds.use_universal_ckpt ds.zpg js.device"
    ),
    "when it ends, and what it does instead of ending": (
        "train.num_episodes js.max_steps js.restarts js.requeued js.on_bad_reward "
        "js.max_masked_share js.reward_timeout_seconds"
    ),
    "how it is started": (
        "local_rank use_ms js.changed js.dry_run js.trust_remote_code js.verbose js.warm_memory"
    ),
}
PATTERNS = " ".join(MAY_CHANGE.values()).split()
STEPS = ("train.num_episodes", "js.max_steps")  # of which the schedule of the learning rate is made


@contextlib.contextmanager
def recorded(args: argparse.Namespace, parser: argparse.ArgumentParser) -> Iterator[None]:
    """Keeps the run's flags and versions beside its checkpoints, and its TensorBoard log if any.

    The file is written at the start, and again at the end with the outcome: "done", "failed" or
    "interrupted"; a run that was killed has none. Of a resumed run it has every start. `args` is
    flat, after OpenRLHF's validation.
    """
    flags = vars(args)
    folders = [Path(flags["ckpt.path"])]
    if flags["logger.tensorboard_dir"]:
        folders.append(Path(flags["logger.tensorboard_dir"], flags["logger.wandb.run_name"]))
    earlier: list[dict[str, Any]] = []
    before = _read(folders[-1])
    if before and (len(folders) > 1 or flags["ckpt.load_enable"]):
        earlier = before.pop("earlier_starts")
        earlier.append(before)
    record = {
        "started": _now(),
        "ended": None,
        "outcome": None,
        "flags": {**_plain(flags), **{name: "(hidden)" for name in SECRETS if flags[name]}},
        "changed": sorted(name for name in flags if changed(name, flags[name], parser)),
        "versions": versions(),
        "earlier_starts": earlier,
    }

    def write(ended: str | None, outcome: str | None) -> None:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / RECORD, {**record, "ended": ended, "outcome": outcome})

    write(None, None)
    outcome = "failed"
    try:
        yield
        outcome = "done"
    except KeyboardInterrupt:
        outcome = "interrupted"
        raise
    finally:
        write(_now(), outcome)


def resume_problems(flat: Flat) -> list[str]:
    """The flags with which the run of the checkpoint would be continued as another one.

    Those that `--js.changed` names may differ, which is printed.
    """
    folder = Path(flat["ckpt.path"])
    allowed = flat["js.changed"] or []
    unknown = [name for name in allowed if name not in flat]
    if unknown:
        return [f"--js.changed {name}: no such flag; write it as {STEPS[0]}" for name in unknown]
    record = _read(folder)
    if record is None:
        say(
            f"openrlhf_js: {folder} has no {RECORD}: whether the run of that checkpoint had these "
            "flags is not known"
        )
        return []
    before = record["flags"]
    now = _plain(flat)
    differences = {
        name: f"--{name} {_shown(before[name])} (now {_shown(now[name])})"
        for name in sorted(before.keys() & now.keys())
        if before[name] != now[name]
    }
    refused = []
    for name, difference in differences.items():
        if name in allowed:
            say(f"openrlhf_js: the checkpoint's run had {difference}")
        elif name in STEPS and flat["actor.lr_scheduler"] != "constant":
            say(
                f"openrlhf_js: the checkpoint's run had {difference}: the schedule of the learning "
                "rate is now over the new number of steps"
            )
        elif not any(fnmatchcase(name, pattern) for pattern in PATTERNS):
            refused.append(name)
    if not refused:
        return []
    described = ", ".join(differences[name] for name in refused)
    return [
        f"--ckpt.load_enable: the run in {folder} had {described}: give that again, or continue "
        f"with what is new by --js.changed {' '.join(refused)}"
    ]


def _read(folder: Path) -> dict[str, Any] | None:
    """The record in a folder, if there is one."""
    path = folder / RECORD
    record: dict[str, Any] | None = None
    if path.is_file():
        record = json.loads(path.read_text(encoding="utf-8"))
    return record


def _plain(flags: Flat) -> dict[str, Any]:
    """The flags as strict JSON, which has no number that is not finite."""
    plain: dict[str, Any] = json.loads(json.dumps(flags, sort_keys=True), parse_constant=str)
    return plain


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
