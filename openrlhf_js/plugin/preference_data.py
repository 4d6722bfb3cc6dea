"""The preference data of a training, read as upstream's loader would, and checked."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from openrlhf_js.plugin.errors import BadInput
from openrlhf_js.plugin.prompt_files import looks_local
from openrlhf_js.reward_model.check import Making, check
from openrlhf_js.reward_model.findings import Report
from openrlhf_js.reward_model.lengths import Budget
from openrlhf_js.reward_model.preferences import Keys
from openrlhf_js.reward_model.rows import ENDINGS, Row, file_rows
from openrlhf_js.tasks.hub import quiet_hub

Flat = dict[str, Any]  # "data.dataset" -> value
ROWS_AT_ONCE = 256
MARGIN = "margin"  # the column that upstream takes it from


class NotReachable(BadInput):
    """A hub does not give, here and now, what a training would load from it."""


class Checked(NamedTuple):
    """What a look at the data found.

    Attributes:
        report: of all of it.
        pairs: to train on; None where they are drawn, so that only upstream knows.
    """

    report: Report
    pairs: int | None


class Source(NamedTuple):
    """One file, or what upstream's loader makes of a folder or a name on a hub."""

    name: str
    rows: Iterator[Row]
    size_bytes: int | None  # None: unknown before it is loaded


def making(flat: Flat, tokenizer: Any) -> Making:
    """How rows become texts in a training with these flags.

    Args:
        flat: the parsed arguments by dotted name.
        tokenizer: the model's.
    """
    template = flat["data.input_template"]
    if flat["data.apply_chat_template"] and flat["data.tokenizer_chat_template"]:
        tokenizer.chat_template = flat["data.tokenizer_chat_template"]
    return Making(
        _keys(flat),
        tokenizer.eos_token,
        tokenizer.apply_chat_template if flat["data.apply_chat_template"] else None,
        template if template and "{}" in template else None,  # else upstream goes without
        Budget(tokenizer, flat["data.max_len"]),
    )


def _keys(flat: Flat) -> Keys:
    margin = MARGIN if flat["model.margin_loss_enable"] else None
    sides = (flat["data.prompt_key"], flat["data.chosen_key"], flat["data.rejected_key"])
    return Keys(*sides, subset=None, margin=margin)


def sources(flat: Flat) -> tuple[list[Source], list[Source]]:
    """What the flags name for training, and for evaluation; nothing is read yet.

    Raises:
        BadInput: what does not exist or is of no format that upstream reads, one per line.
    """
    problems: list[str] = []
    found = [
        [
            source
            for each in (flat[flag] or "").split(",")
            if each.strip()
            for source in _sources(each.strip(), f"--{flag}", flat[split], flat, problems)
        ]
        for flag, split in (("data.dataset", "data.dataset_split"), ("eval.dataset", "eval.split"))
    ]
    if problems:
        raise BadInput("\n".join(problems))
    return found[0], found[1]


def _sources(name: str, flag: str, split: str, flat: Flat, problems: list[str]) -> list[Source]:
    path = name.split("@")[0].strip()
    ending = os.path.splitext(path)[1]
    if ending in ENDINGS and "://" not in path:
        files = sorted(file for file in glob.glob(path) or [path] if os.path.isfile(file))
        if not files:
            problems.append(f"{flag} {path}: does not exist")
        elif split and split != "train":
            problems.append(f"{flag} {path}: a file has the split train only, not {split}")
        elif ending == ".csv":  # of which upstream's reader makes numbers, and None of "NA"
            return [Source(path, _loaded_rows(path, flag, "train", flat), None)]
        columns = [key for key in _keys(flat) if key]
        return [
            Source(file, file_rows(Path(file), columns), os.path.getsize(file)) for file in files
        ]
    if not os.path.exists(path) and looks_local(path) and "://" not in path:
        problems.append(f"{flag} {path}: does not exist")
    elif os.path.isfile(path) and ending not in (".arrow", ".py"):
        problems.append(f"{flag} {path}: is a file that does not end in {', '.join(ENDINGS)}")
    return [Source(name, _loaded_rows(name, flag, split, flat), None)]


def _loaded_rows(name: str, flag: str, split: str, flat: Flat) -> Iterator[Row]:
    """The rows of a folder or a name on a hub, loaded as upstream will load them again."""
    from openrlhf.datasets.utils import blending_datasets

    path = name.split("@")[0].strip()
    is_here = os.path.exists(path) or bool(glob.glob(path))
    if not is_here:
        print(f"openrlhf_js: loading {name} from a hub", flush=True)
    strategy = SimpleNamespace(
        print=lambda *_: None,
        is_rank_0=lambda: False,
        args=SimpleNamespace(use_ms=flat["use_ms"]),
    )
    try:
        with quiet_hub():
            data = blending_datasets(name, None, strategy, dataset_split=split)
    except Exception as error:  # whatever a hub, a folder of files or a loading script raises
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        kind = BadInput if is_here else NotReachable
        raise kind(f"{flag} {name}: cannot be loaded ({reason})") from error
    number = 0
    for table in data.with_format("arrow").iter(ROWS_AT_ONCE):
        for row in table.to_pylist():
            number += 1
            yield Row(number, "row", row, 0)


def check_data(
    flat: Flat,
    train: list[Source],
    evaluation: list[Source],
    making: Making,
    progress: Callable[[int, int], None],
) -> tuple[Checked, Report]:
    """Checks what training and evaluation will read.

    Args:
        flat: the parsed arguments by dotted name.
        train: the sources of the training pairs.
        evaluation: those of the others.
        making: how rows become texts.
        progress: told how many pairs, and bytes of their files, are done, now and then.

    Returns:
        What was found in the training pairs, and in the others.

    Raises:
        OSError, ValueError: something cannot be read or loaded.
    """
    most = flat["data.max_samples"]  # upstream's limit for each source, and for all of them
    first = [(source.name, islice(source.rows, most)) for source in train]
    report = check(first, making, progress=progress)
    pairs = None if flat["data.dataset_probs"] else min(report.pairs, most)
    other = check([(source.name, source.rows) for source in evaluation], making, progress=progress)
    return Checked(report, pairs), other
