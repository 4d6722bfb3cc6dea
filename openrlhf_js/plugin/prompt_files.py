"""Local prompt files: whether every line can become a prompt, before anything is loaded.

What counts as local, and how a file is read, follows upstream's `datasets.utils.blending_datasets`.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.reward_model.rows import Row, file_rows
from openrlhf_js.tasks import task_of

READ_AS_FILE = (
    ".json",
    ".jsonl",
    ".csv",
    ".parquet",
    ".arrow",
)  # upstream: by ending, case matters
SHOWN_PER_FILE = 3


class Keys(NamedTuple):
    """What every line must have."""

    input: str
    label: str | None
    chat: bool  # the input may be a list of messages
    datasource: bool = False  # a task must grade the datasource


class Checked(NamedTuple):
    """What a look at the data found."""

    problems: list[str]
    prompts: int | None  # None where only loading could tell


def looks_local(name: str) -> bool:
    """Whether a name can only be meant as a path, not as a name on a hub (`name`, `org/name`)."""
    return not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith(".")


def check_datasets(names: str, flag: str, keys: Keys, split: str) -> Checked:
    """Checks every local data set of a comma-separated list; names on a hub pass unseen.

    Args:
        names: as upstream takes them: `file`, `folder`, `org/name` or `name@folder`, with commas.
        flag: where they were given, for the messages.
        keys: what every line must have.
        split: the split that upstream will pick where there are several.
    """
    problems: list[str] = []
    prompts: int | None = 0
    for name in names.split(","):
        path = name.split("@")[0].strip()
        found = _check_one(path, keys, split)
        problems += [f"{flag} {path or repr(name)}: {problem}" for problem in found.problems]
        prompts = None if prompts is None or found.prompts is None else prompts + found.prompts
    return Checked(problems, prompts)


def _check_one(path: str, keys: Keys, split: str) -> Checked:
    ending = os.path.splitext(path)[1]
    if "://" in path:
        return Checked([], None)
    if ending not in READ_AS_FILE:
        if os.path.isfile(path) and ending != ".py":
            return Checked([f"is a file that does not end in {', '.join(READ_AS_FILE)}"], None)
        if os.path.isdir(path) and not os.listdir(path):
            return Checked(["is an empty folder"], None)
        if not os.path.exists(path) and (looks_local(path) or ending == ".py"):
            return Checked(["does not exist"], None)
        return Checked([], None)
    files = sorted(glob.glob(path)) or [path]
    if not all(os.path.isfile(file) for file in files):
        return Checked(["does not exist"], None)
    if split and split != "train":
        return Checked([f"a file has the split train only, not {split}"], None)
    checked = [_check_file(file, ending, keys) for file in files]
    counts = [found.prompts for found in checked]
    total = None if None in counts else sum(count or 0 for count in counts)
    return Checked([problem for found in checked for problem in found.problems], total)


def _check_file(path: str, ending: str, keys: Keys) -> Checked:
    if os.path.getsize(path) == 0:
        return Checked(["is empty"], None)
    if ending == ".arrow":
        return Checked([], None)
    try:
        if ending == ".parquet":
            return _check_parquet(path, keys)
        return _check_rows(file_rows(Path(path)), keys)
    except OSError as error:
        return Checked([f"cannot be read ({error.strerror or error})"], None)


def _check_rows(rows: Iterable[Row], keys: Keys) -> Checked:
    problems: dict[str, str] = {}  # place -> problem, each said once
    count = 0
    for row in rows:
        count += 1
        problem = _row_problem(row.value, keys)
        if problem and problem not in problems.values() and len(problems) < SHOWN_PER_FILE:
            problems[row.place] = problem
    if not count:
        return Checked(["holds no prompt"], None)
    found = [f"{place}: {problem}" for place, problem in problems.items()]
    return Checked(found, None if found else count)


def _row_problem(row: dict[str, Any] | ValueError, keys: Keys) -> str | None:
    if isinstance(row, ValueError):
        return str(row)
    for flag, key in (("--data.input_key", keys.input), ("--data.label_key", keys.label)):
        if key is not None and row.get(key) is None:
            seen = ", ".join(map(str, row)) or "none"
            return f"no value under the key {key!r} ({flag}); keys seen: {seen}"
    if keys.datasource and (problem := _datasource_problem(row.get("datasource"))):
        return problem
    prompt = row[keys.input]
    if not isinstance(prompt, str) and not (keys.chat and isinstance(prompt, list)):
        messages = "" if keys.chat else ", or with --data.apply_chat_template a list of messages"
        return f"{keys.input!r} holds {type(prompt).__name__}; it must hold text{messages}"
    return None


def _datasource_problem(datasource: Any) -> str | None:
    if not isinstance(datasource, str):
        return "no text under the key 'datasource', by which the reward file grades"
    try:
        task_of(datasource)
    except ValueError as error:
        return str(error)
    return None


def _check_parquet(path: str, keys: Keys) -> Checked:
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
    except ArrowInvalid as error:
        return Checked([f"is not a Parquet file ({error})"], None)
    columns = file.schema_arrow.names
    problems = [
        f"no column {key!r} ({flag}); columns seen: {', '.join(columns)}"
        for flag, key in (("--data.input_key", keys.input), ("--data.label_key", keys.label))
        if key is not None and key not in columns
    ]
    if keys.datasource:
        column = file.read(["datasource"])["datasource"] if "datasource" in columns else None
        seen = [None] if column is None else column.unique().to_pylist()
        problems += list(filter(None, map(_datasource_problem, seen)))[:SHOWN_PER_FILE]
    count = file.metadata.num_rows
    return Checked(problems or ([] if count else ["holds no prompt"]), count)
