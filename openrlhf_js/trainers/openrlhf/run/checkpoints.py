"""Finds the checkpoint that a run resumes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from zipfile import is_zipfile

from answer_graders.programs.console import say
from openrlhf_js.trainers.openrlhf.flags import Flat
from openrlhf_js.trainers.openrlhf.upstream import BadInput

CHECKPOINT = re.compile(r"global_step\d+")  # upstream's name of one that is no best evaluation's


def latest_checkpoint(flat: Flat, role: str = "actor") -> Path:
    """The file that names the checkpoint to resume."""
    return Path(flat["ckpt.path"], f"_{role}", "latest")


def rank_problems(flat: Flat) -> Iterator[str]:
    """A problem for each role whose number of ranks differs from the checkpoint's.

    Under ZeRO each rank saves its shard of the optimizer's state in its own file, and DeepSpeed
    cannot reshard them.
    """
    for role in ("actor", "critic"):
        latest = latest_checkpoint(flat, role)
        name = latest.read_text(encoding="utf-8").strip() if latest.is_file() else ""
        if not name or flat["ds.use_universal_ckpt"]:
            continue
        checkpoint = latest.with_name(name)
        saved = _saved_ranks(checkpoint)
        ranks = _ranks(flat, role)
        if saved not in (0, ranks):
            yield (
                f"--ckpt.load_enable: {checkpoint} is of {saved} ranks, and --{role}.num_nodes x "
                f"--{role}.num_gpus_per_node is {ranks}: resume it on {saved}"
            )


def has_checkpoint(flat: Flat) -> bool:
    """Whether there is a checkpoint, if only one of other ranks, which is refused later.

    Says so where all are cut short.
    """
    if any(map(_is_readable, latest_checkpoint(flat).parent.glob("*"))):
        return True
    if latest_checkpoint(flat).is_file():
        say(f"openrlhf_js: {flat['ckpt.path']} has no complete checkpoint: the run begins again")
    return False


def choose_checkpoint(flat: Flat) -> None:
    """Makes `--ckpt.load_enable` resume the newest complete checkpoint; removes incomplete ones.

    Those are newer than the one to resume. Making room for the next checkpoint, upstream would
    count them, and remove a complete one, which is older. Raises BadInput if there is no complete
    one.
    """
    roles = ["actor", "critic"] if flat["algo.advantage.estimator"] == "gae" else ["actor"]
    latest_files = [latest_checkpoint(flat, role) for role in roles]
    whole = set.intersection(*(_whole_checkpoints(flat, role) for role in roles))
    if not whole:
        raise BadInput(
            f"--ckpt.load_enable: {flat['ckpt.path']} has no complete checkpoint: remove it to "
            "begin again"
        )
    latest = latest_files[0].read_text(encoding="utf-8").strip()
    tag = latest
    if latest not in whole:
        tag = max(whole, key=lambda name: _changed_at(latest_files[0].with_name(name)))
        damaged = latest or "named in `latest`"
        say(f"openrlhf_js: warning: checkpoint {damaged} is damaged, {tag} is resumed", error=True)
    for file in latest_files:
        if not file.is_file() or file.read_text(encoding="utf-8").strip() != tag:
            file.write_text(tag, encoding="utf-8")
        chosen_at = _changed_at(file.with_name(tag))
        for checkpoint in file.parent.iterdir():
            if not CHECKPOINT.fullmatch(checkpoint.name) or checkpoint.name in whole:
                continue
            is_folder = checkpoint.is_dir() and not checkpoint.is_symlink()
            if is_folder and _changed_at(checkpoint) > chosen_at:
                shutil.rmtree(checkpoint, ignore_errors=True)


def _changed_at(path: Path) -> float:
    """When a file or folder was last changed, in seconds."""
    return path.stat().st_mtime


def _is_readable(checkpoint: Path) -> bool:
    """Whether a folder has files of PyTorch, none cut short: zip archives, whose index is last."""
    files = list(checkpoint.glob("*.pt"))
    return bool(files) and all(map(is_zipfile, files))


def _whole_checkpoints(flat: Flat, role: str) -> set[str]:
    """The names of the complete ones, which have a file of each rank."""
    whole = set()
    for checkpoint in latest_checkpoint(flat, role).parent.glob("*"):
        is_sharded = flat["ds.zero_stage"] > 0 and not flat["ds.use_universal_ckpt"]
        if is_sharded and _saved_ranks(checkpoint) != _ranks(flat, role):
            continue
        if _is_readable(checkpoint):
            whole.add(checkpoint.name)
    return whole


def _saved_ranks(checkpoint: Path) -> int:
    """The number of ranks whose shard of the optimizer's state a checkpoint has."""
    return len(list(checkpoint.glob("*_optim_states.pt")))


def _ranks(flat: Flat, role: str) -> int:
    """The number of ranks that train a model."""
    ranks: int = flat[f"{role}.num_nodes"] * flat[f"{role}.num_gpus_per_node"]
    return ranks
