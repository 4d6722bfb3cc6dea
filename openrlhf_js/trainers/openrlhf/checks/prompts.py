"""Checks a run's prompts before it begins: whether upstream can read them, and their columns.

For data sets on a hub only the columns are checked, when a run starts. `checks.lengths` makes
prompts from the rows and measures them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from openrlhf_js.trainers.openrlhf.data_files import (
    columns_on_hub,
    first_rows,
    parse_probabilities,
    read_local,
)
from openrlhf_js.trainers.openrlhf.flags import Flat
from openrlhf_js.trainers.openrlhf.upstream import BadInput

SPLITS = {"data.prompt_dataset": "data.prompt_split", "eval.dataset": "eval.split"}  # flags
BASE64_CHARACTERS = 256  # a longer text is an image to upstream, a shorter one a path


class DataSet(NamedTuple):
    """A data set that a flag names."""

    flag: str
    name: str
    rows: Any
    """As `read_local` returns them; None if it is on a hub or cannot be used."""


class Prompts(NamedTuple):
    """What `check_prompts` has found out."""

    problems: list[str]
    data_sets: list[DataSet]
    per_episode: int | None
    """None if only the trainer can find it, by loading and measuring the prompts."""


def check_prompts(flat: Flat, download: bool = False) -> Prompts:
    """Reads the data sets of both flags; `download` says whether a hub may be asked."""
    if not flat["data.prompt_dataset"]:
        missing = "--data.prompt_dataset is missing: a file, a folder or a name on a hub"
        return Prompts([missing], [], None)
    problems: list[str] = []
    data_sets: list[DataSet] = []
    for flag in SPLITS:
        for name in flat[flag].split(",") if flat[flag] else ():
            rows = None
            try:
                rows = _usable_rows(name, flag, flat, download)
            except BadInput as error:
                problems.append(f"--{flag} {name.strip() or repr(name)}: {error}")
            data_sets.append(DataSet(flag, name.strip(), rows))
    trained = [each.rows for each in data_sets if each.flag == "data.prompt_dataset"]
    shares = flat["data.prompt_probs"]
    if shares is not None:
        try:
            parse_probabilities(shares, len(trained))
        except BadInput as error:
            problems.append(str(error))
    problems += _image_problems(trained, flat)
    drops = flat["js.on_long_prompt"] == "drop" and not flat["train.agent_func_path"]
    is_unseen = any(rows is None for rows in trained)
    if shares is not None or is_unseen or drops:
        return Prompts(problems, data_sets, None)
    return Prompts(problems, data_sets, min(sum(map(len, trained)), flat["data.max_samples"]))


def _image_problems(trained: Sequence[Any], flat: Flat) -> Iterator[str]:
    """A problem if prompts may have images, and no data set has a column of them."""
    key = flat["data.image_key"]
    known = [rows.column_names for rows in trained if rows is not None]
    has_images = len(known) < len(trained) or any(key in columns for columns in known)
    if flat["data.max_images_per_prompt"] and not has_images:
        there = ", ".join(dict.fromkeys(chain.from_iterable(known)))
        yield f"--data.image_key: no data set has a column {key!r}; there are {there}"


def _usable_rows(name: str, flag: str, flat: Flat, download: bool) -> Any:
    """The rows of a local data set, as `read_local` returns them; None for one on a hub.

    Raises BadInput unless they have the run's columns and every row has a prompt.
    """
    rows = read_local(name, flat[SPLITS[flag]])
    if rows is not None:
        _check_columns(rows.column_names, flat)
        columns = (flat["data.input_key"], flat["data.image_key"])
        for number, row in enumerate(first_rows(rows, flat["data.max_samples"], columns), 1):
            _check_row(number, row, flat)
    elif download and not flat["use_ms"]:
        column_names = columns_on_hub(name, flat[SPLITS[flag]])
        if column_names is not None:
            _check_columns(column_names, flat)
    return rows


def _check_columns(columns: list[str], flat: Flat) -> None:
    missing = []
    for flag in ("data.input_key", "data.label_key"):
        key = flat[flag]
        if key is not None and key not in columns:
            missing.append(f"no column {key!r} (--{flag})")
    if missing:
        raise BadInput(f"{', '.join(missing)}; there are {', '.join(columns)}")


def _check_row(number: int, row: Mapping[str, Any], flat: Flat) -> None:
    """Raises BadInput for a prompt that is neither text nor, with a chat template, messages, and
    for one that shows an image that does not exist."""
    prompt = row[flat["data.input_key"]]
    allowed: tuple[type, ...] = (str,)
    advice = ", or with --data.apply_chat_template a list of messages"
    if flat["data.apply_chat_template"]:
        allowed = (str, list)
        advice = ""
    if not isinstance(prompt, allowed):
        kind = type(prompt).__name__
        raise BadInput(f"row {number:,}: {flat['data.input_key']!r} holds {kind}, not text{advice}")
    sees = flat["data.max_images_per_prompt"] > 0
    for path in _image_paths(row.get(flat["data.image_key"])) if sees else ():
        if not os.path.isfile(path):
            raise BadInput(f"row {number:,} shows an image that does not exist: {path}")


def _image_paths(images: Any) -> Iterator[str]:
    """The images of a row that upstream takes for paths."""
    for image in images if isinstance(images, list) else [images]:
        is_text = isinstance(image, str) and len(image) <= BASE64_CHARACTERS
        if is_text and not re.match("https?://|data:image", image):
            yield image
