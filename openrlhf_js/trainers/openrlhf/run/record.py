"""The file of a run: its settings, versions and outcome; and what a resumed run may change."""

from __future__ import annotations

import argparse
import contextlib
import shlex
from collections.abc import Iterator
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from answer_graders.programs.console import say
from answer_graders.programs.files import atomic_write, read_yaml
from openrlhf_js.trainers.openrlhf.flags import Flat
from openrlhf_js.trainers.openrlhf.flags.parser import RECORD, changed, settings_text, yaml_text
from openrlhf_js.trainers.openrlhf.run.device import versions
from openrlhf_js.trainers.openrlhf.run.screen import log_of
from openrlhf_js.trainers.openrlhf.upstream import BadInput

SETTINGS = "openrlhf_js.yaml"  # read by `openrlhf-js study`
RUN_NAME = "logger.wandb.run_name"
OF_ONE_START = ("ckpt.load_enable", "js.requeued", "js.changed")
HEADER = """\
# The settings of a run. This starts it again, and with --ckpt.load_enable resumes it:
#   openrlhf-js train {file}

"""

# What a resumed run may change, since it trains the same. Every other flag must stay as it was.
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
        "train.num_episodes js.max_steps js.requeued js.on_bad_reward "
        "js.max_masked_share js.reward_timeout_seconds"
    ),
    "how it is started": (
        "local_rank use_ms js.changed js.dry_run js.trust_remote_code js.verbose"
    ),
}
PATTERNS = " ".join(MAY_CHANGE.values()).split()
BATCHES = (  # what begins the data again, or makes other numbers of steps from it
    "data.*",
    "rollout.batch_size",
    "rollout.n_samples_per_prompt",
    "train.batch_size",
    "train.max_epochs",
)
STEPS = ("train.num_episodes", "js.max_steps")  # they set the learning rate schedule


def settings_file(flat: Flat) -> Path:
    """The file of a run's settings, beside its log."""
    return log_of(flat).with_name(SETTINGS)


@contextlib.contextmanager
def recorded(args: argparse.Namespace, parser: argparse.ArgumentParser) -> Iterator[None]:
    """Saves the run's settings, beside its log and its checkpoints, in a file that can restart it.

    It is written at the start, and again at the end with the outcome: "done", "failed" or
    "interrupted"; a run that was killed has none. For a resumed run it lists every start. `args` is
    flat, as the parser returns it.
    """
    flags = vars(args)
    files = [Path(flags["ckpt.path"], SETTINGS), settings_file(flags)]
    record: dict[str, Any] = {
        "started": _now(),
        "ended": None,
        "outcome": None,
        "versions": versions(),
        "earlier_starts": [],
    }
    earlier = files[0] if flags["ckpt.load_enable"] and files[0].is_file() else files[1]
    if earlier.is_file():
        before = read_yaml(earlier)
        if RECORD not in before:
            raise BadInput(f"{earlier} was not written by a run: rename it")
        if flags["ckpt.load_enable"] or before[RUN_NAME] == flags[RUN_NAME]:
            record["earlier_starts"] = _starts(before, parser)
    of_any_start = flags | {name: parser.get_default(name) for name in OF_ONE_START}
    text = HEADER.format(file=shlex.quote(str(files[1]))) + settings_text(of_any_start, parser)

    def write() -> None:
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(file) as written:
                written.write(f"{text}\n{yaml_text({RECORD: record})}".encode())

    write()
    record["outcome"] = "failed"
    try:
        yield
        record["outcome"] = "done"
    except KeyboardInterrupt:
        record["outcome"] = "interrupted"
        raise
    finally:
        record["ended"] = _now()
        write()


def _starts(file: dict[str, Any], parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """The starts listed in a run's file, each with the settings that were not at their defaults."""
    record = file.pop(RECORD)
    earlier: list[dict[str, Any]] = record.pop("earlier_starts")
    was_set = {name: value for name, value in file.items() if changed(name, value, parser)}
    return [*earlier, {**record, "set": was_set}]


def resume_problems(flat: Flat) -> list[str]:
    """The flags whose new values would make the checkpoint's run a different one.

    Flags that `--js.changed` names may differ; the difference is printed.
    """
    folder = Path(flat["ckpt.path"])
    allowed = flat["js.changed"] or []
    unknown = [name for name in allowed if name not in flat]
    if unknown:
        return [f"--js.changed {name}: no such flag; write it as {STEPS[0]}" for name in unknown]
    if not (folder / SETTINGS).is_file():
        say(
            f"openrlhf_js: {folder} has no {SETTINGS}: whether the run of that checkpoint had "
            "these flags is not known"
        )
        return []
    before = read_yaml(folder / SETTINGS)
    now = {name: list(value) if isinstance(value, tuple) else value for name, value in flat.items()}
    differences = {
        name: f"--{name} {_shown(before[name])} (now {_shown(now[name])})"
        for name in sorted(before.keys() & now.keys())
        if before[name] != now[name]
    }
    refused = []
    has_schedule = flat["actor.lr_scheduler"] != "constant"
    for name, difference in differences.items():
        if name in allowed and has_schedule and any(fnmatchcase(name, one) for one in BATCHES):
            return [
                f"--js.changed {name}: the schedule of the learning rate would be over other "
                "steps, and may rise again: go on at a fixed rate, with --actor.lr_scheduler "
                "constant, which --js.changed must name, too"
            ]
        if name in allowed:
            say(f"openrlhf_js: the checkpoint's run had {difference}")
        elif name in STEPS and has_schedule:
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


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
