"""The prompts of a run, before it begins: data sets that upstream can read, and their columns.

Data sets on a hub pass unseen. `checks.lengths` makes prompts of the rows and measures them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from openrlhf_js.plugin.data_files import first_rows, parse_probabilities, read_local
from openrlhf_js.plugin.flags import Flat
from openrlhf_js.plugin.upstream import BadInput

SPLITS = {"data.prompt_dataset": "data.prompt_split", "eval.dataset": "eval.split"}  # flags
BASE64_CHARACTERS = 256  # that upstream takes for an image; a shorter text is a path


def check_prompts(flat: Flat) -> tuple[list[str], int | None]:
    """The problems of both data sets, and the number of prompts of an episode.

    None if it is not known before the trainer has loaded and measured them.
    """
    if not flat["data.prompt_dataset"]:
        return ["--data.prompt_dataset is missing: a file, a folder or a name on a hub"], None
    problems, sizes = _check_data_sets(flat, "data.prompt_dataset")
    problems += _check_data_sets(flat, "eval.dataset")[0]
    shares = flat["data.prompt_probs"]
    if shares is not None:
        try:
            parse_probabilities(shares, len(sizes))
        except BadInput as error:
            problems.append(str(error))
    known = [size for size in sizes if size is not None]
    if shares is not None or len(known) < len(sizes) or flat["js.on_long_prompt"] == "drop":
        return problems, None
    return problems, min(sum(known), flat["data.max_samples"])


def _check_data_sets(flat: Flat, flag: str) -> tuple[list[str], list[int | None]]:
    """The problems of a comma-separated list of data sets, and the size of each, None if unseen."""
    problems: list[str] = []
    sizes: list[int | None] = []
    for name in flat[flag].split(",") if flat[flag] else ():
        size = None
        try:
            rows = read_local(name, flat[SPLITS[flag]])
            if rows is not None:
                _check_columns(rows.column_names, flat)
                columns = (flat["data.input_key"], flat["data.image_key"])
                used = first_rows(rows, flat["data.max_samples"], columns)
                for number, row in enumerate(used, 1):
                    _check_row(number, row, flat)
                size = len(used)
        except BadInput as error:
            problems.append(f"--{flag} {name.strip() or repr(name)}: {error}")
        sizes.append(size)
    return problems, sizes


def _check_columns(columns: list[str], flat: Flat) -> None:
    for flag in ("data.input_key", "data.label_key"):
        key = flat[flag]
        if key is not None and key not in columns:
            raise BadInput(f"no column {key!r} (--{flag}); there are {', '.join(columns)}")


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
    for path in _image_paths(row.get(flat["data.image_key"])):
        if not os.path.isfile(path):
            raise BadInput(f"row {number:,} shows an image that does not exist: {path}")


def _image_paths(images: Any) -> Iterator[str]:
    """Those of a row's images that upstream takes for paths."""
    for image in images if isinstance(images, list) else [images]:
        is_text = isinstance(image, str) and len(image) <= BASE64_CHARACTERS
        if is_text and not re.match("https?://|data:image", image):
            yield image
