"""Rewards on disk as they come, so that an evaluation that was stopped goes on where it was.

The first line says of what the rewards are; every other line holds both rewards of one pair. A line
that a kill cut short is dropped; a file of another model or of other pairs is not gone on with.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

BLOCK_BYTES = 1 << 20
MODEL_FILES = (
    *("*.safetensors", "*.bin", "config.json", "*.index.json"),
    *("tokenizer*", "special_tokens_map.json", "vocab*", "merges.txt", "chat_template*"),
)


class Rewards(NamedTuple):
    """Both rewards of one pair, finite."""

    chosen: float
    rejected: float


class ScoreFile:
    """An append-only file of rewards; a context manager, which holds it for itself.

    Args:
        path: made if it is not there.
        identity: of model, pairs and options: what must be the same to go on.
        pairs: how many pairs there are.

    Raises:
        ValueError: the file is of something else, or is damaged, or another process writes it.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any], pairs: int):
        self.path = path
        self.rewards: dict[int, Rewards] = {}
        self._file: IO[bytes] = path.open("a+b")
        try:
            self._lock()
            self._read(json.loads(json.dumps(identity)), pairs)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> ScoreFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, rewards: Mapping[int, Rewards]) -> None:
        """Adds rewards, by the number of their pair from 0, and waits until they are on disk."""
        lines = (
            json.dumps({"pair": pair, "chosen": each.chosen, "rejected": each.rejected})
            for pair, each in rewards.items()
        )
        self._write("".join(f"{line}\n" for line in lines))
        self.rewards.update(rewards)

    def _write(self, text: str) -> None:
        self._file.write(text.encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{self.path} is being written by another evaluation") from None

    def _read(self, identity: dict[str, Any], pairs: int) -> None:
        self._file.seek(0)
        whole = self._file.read()
        kept = whole[: whole.rfind(b"\n") + 1]
        self._file.truncate(len(kept))
        header, *lines = kept.splitlines() or [b""]
        if not header:
            self._write(json.dumps(identity) + "\n")
            return
        self._compare(header, identity)
        for number, line in enumerate(lines, 2):
            pair, rewards = self._parsed(line, number)
            if not 0 <= pair < pairs:
                raise self._damaged(number)
            self.rewards[pair] = rewards

    def _compare(self, header: bytes, identity: dict[str, Any]) -> None:
        try:
            found = json.loads(header)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._damaged(1)
        names = [name for name in identity if found.get(name) != identity[name]]
        if names:
            raise ValueError(
                f"{self.path} has rewards that were given with another {', another '.join(names)}; "
                "name a new folder, or delete that file to begin again"
            )

    def _parsed(self, line: bytes, number: int) -> tuple[int, Rewards]:
        try:
            row = json.loads(line)
            pair, rewards = row["pair"], Rewards(row["chosen"], row["rejected"])
        except (ValueError, KeyError, TypeError):
            raise self._damaged(number) from None
        if type(pair) is not int or not all(is_reward(each) for each in rewards):
            raise self._damaged(number)
        return pair, rewards

    def _damaged(self, number: int) -> ValueError:
        return ValueError(f"{self.path}, line {number}: no reward of a pair; delete that file")


def is_reward(value: object) -> bool:
    """Whether it is a finite number; True and False are not."""
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def model_files(folder: Path) -> list[Path]:
    """The files that decide what a model scores."""
    return sorted({path for pattern in MODEL_FILES for path in folder.glob(pattern)})


def hash_of_model(folder: Path, progress: Callable[[int], None] = lambda size_bytes: None) -> str:
    """SHA-256 over `model_files`, their names included, in hex digits.

    Args:
        folder: the model's.
        progress: called with the bytes read so far, of all files together.

    Raises:
        OSError: a file cannot be read.
    """
    found, done = hashlib.sha256(), 0
    for path in model_files(folder):
        found.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                found.update(block)
                done += len(block)
                progress(done)
    return found.hexdigest()
