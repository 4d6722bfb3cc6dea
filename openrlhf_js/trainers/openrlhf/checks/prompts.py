"""Checks a run's prompts before it begins: whether upstream can read them, and their columns.

For data sets on a hub only the columns are checked, when a run starts. `checks.lengths` makes
prompts from the rows and measures them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

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


def data_sets(flat: Flat, flag: str) -> list[str]:
    """The names in a comma-separated list of data sets."""
    return flat[flag].split(",") if flat[flag] else []


def check_prompts(flat: Flat, download: bool = False) -> tuple[list[str], int | None]:
    """The problems of both data sets, and the number of prompts per episode.

    The number is None if only the trainer can find it, by loading and measuring the prompts.
    `download` says whether a hub may be asked.
    """
    if not flat["data.prompt_dataset"]:
        return ["--data.prompt_dataset is missing: a file, a folder or a name on a hub"], None
    problems, sizes = _check_data_sets(flat, "data.prompt_dataset", download)
    problems += _check_data_sets(flat, "eval.dataset", download)[0]
    shares = flat["data.prompt_probs"]
    if shares is not None:
        try:
            parse_probabilities(shares, len(sizes))
        except BadInput as error:
            problems.append(str(error))
    known = [size for size in sizes if size is not None]
    drops = flat["js.on_long_prompt"] == "drop" and not flat["train.agent_func_path"]
    if shares is not None or len(known) < len(sizes) or drops:
        return problems, None
    return problems, min(sum(known), flat["data.max_samples"])


def _check_data_sets(flat: Flat, flag: str, download: bool) -> tuple[list[str], list[int | None]]:
    """The problems of a list of data sets, and the size of each, None if unseen."""
    problems: list[str] = []
    sizes: list[int | None] = []
    for name in data_sets(flat, flag):
        size = None
        try:
            rows = usable_rows(name, flag, flat)
            if rows is not None:
                size = min(len(rows), flat["data.max_samples"])
            elif download and not flat["use_ms"]:
                columns = columns_on_hub(name, flat[SPLITS[flag]])
                if columns is not None:
                    _check_columns(columns, flat)
        except BadInput as error:
            problems.append(f"--{flag} {name.strip() or repr(name)}: {error}")
        sizes.append(size)
    return problems, sizes


def usable_rows(name: str, flag: str, flat: Flat) -> Any:
    """The rows of a local data set, as `read_local` returns them; None for one on a hub.

    Raises BadInput unless they have the run's columns and every row has a prompt.
    """
    rows = read_local(name, flat[SPLITS[flag]])
    if rows is not None:
        _check_columns(rows.column_names, flat)
        columns = (flat["data.input_key"], flat["data.image_key"])
        for number, row in enumerate(first_rows(rows, flat["data.max_samples"], columns), 1):
            _check_row(number, row, flat)
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
