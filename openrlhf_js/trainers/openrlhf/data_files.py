"""Reads the data sets of a run, in the same way for the checks and for the trainer.

Upstream reads a JSON file into Arrow, whose columns have one type each: the label "1" beside a 1
becomes 1, a date becomes a datetime, and data sets whose labels differ in type cannot be joined.
Here the rows of JSON files keep their types.
"""

from __future__ import annotations

import glob
import math
import os
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from answer_graders.programs.files import read_rows
from openrlhf_js.reward_model.checkpoint import first_line
from openrlhf_js.trainers.openrlhf.upstream import BadInput

DATASOURCE = "datasource"  # the one column that upstream reads and no flag names
JSON = "json"
BUILDERS = {  # file extension, in lower case and without .gz -> builder of `datasets`
    ".jsonl": JSON,
    ".json": JSON,
    ".csv": "csv",
    ".txt": "text",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
SAVED = ("state.json", "dataset_dict.json")  # `save_to_disk` writes one of them


class Rows(list[dict[str, Any]]):
    """Rows with the parts of `datasets.Dataset` that upstream and the checks need."""

    @property
    def column_names(self) -> list[str]:
        return list(dict.fromkeys(chain.from_iterable(self)))

    def select(self, places: Iterable[int]) -> Rows:
        return Rows(self[place] for place in places)


def looks_local(name: str) -> bool:
    """Whether a name can only be a path, and not a name on a hub (`name`, `org/name`)."""
    return not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith(".")


def read_local(name: str, split: str) -> Any:
    """The rows of local files or of a folder, as `Rows` or a `Dataset`; None for a name on a hub.

    A name is `file`, a pattern of files, `folder`, or `folder@part` for files in a subfolder.
    Raises BadInput for what cannot be read.
    """
    path, _, part = (word.strip() for word in name.partition("@"))
    if os.path.isdir(path):
        return _read_folder(path, part or None, split)
    builder = _builder_of(path)
    files = sorted(glob.glob(path))
    if not files:
        if "://" not in path and (builder or looks_local(path)):
            raise BadInput("does not exist")
        return None
    if builder is None:
        raise BadInput(
            f"is none of the files that can be read: {', '.join(BUILDERS)}; texts also with .gz"
        )
    if split and split != "train":  # upstream would take what it loaded without a split
        raise BadInput(f"a file has the split train only, not {split}")
    if builder == JSON:
        return _read_json(files)
    from datasets import load_dataset

    try:
        return load_dataset(builder, data_files=path, split="train")
    except Exception as error:  # of Arrow, pandas and the file
        raise _unreadable(error) from error


def columns_on_hub(name: str, split: str) -> list[str] | None:
    """The columns of a data set on the hub, read from its first row; None if that fails.

    Upstream loads the data set after the model, and then reports why it cannot.
    """
    from datasets import load_dataset

    path, _, part = (word.strip() for word in name.partition("@"))
    try:
        splits = load_dataset(path, data_dir=part or None, streaming=True)
        rows = splits[split]
        return list(rows.column_names or next(iter(rows)))
    except Exception:  # of the network, the hub and its files
        return None


def _builder_of(path: str) -> str | None:
    lowered = path.lower().removesuffix(".gz")
    return next((name for ending, name in BUILDERS.items() if lowered.endswith(ending)), None)


def _read_folder(path: str, part: str | None, split: str) -> Any:
    """The rows of one split, from a folder that `save_to_disk` wrote or a folder of data files."""
    from datasets import Dataset, load_dataset, load_dataset_builder, load_from_disk

    try:
        if any(Path(path, file).is_file() for file in SAVED):
            splits: Any = load_from_disk(path)
        else:
            splits = load_dataset_builder(path, data_dir=part).config.data_files
            files = chain.from_iterable(splits.values())
            if not all(os.path.isfile(file) and _builder_of(file) == JSON for file in files):
                splits = load_dataset(path, data_dir=part)
    except Exception as error:  # of Arrow, pandas, the files and their names
        raise _unreadable(error) from error
    if isinstance(splits, Dataset):
        return splits
    if split not in splits:
        raise BadInput(f"has no split {split!r}; there are {', '.join(map(str, splits))}")
    rows = splits[split]
    return rows if isinstance(rows, Dataset) else _read_json(rows)


def _read_json(files: Iterable[str]) -> Rows:
    """The rows of JSON files; each row gets every column, as in a table."""
    rows = Rows()
    for file in files:
        try:
            rows.extend(row.object(Path(file)) for row in read_rows(Path(file)))
        except (OSError, ValueError) as error:
            raise _unreadable(error) from error
    if not rows:
        raise BadInput("is empty")
    nothing = dict.fromkeys(rows.column_names)
    return Rows(row if row.keys() == nothing.keys() else {**nothing, **row} for row in rows)


def first_rows(rows: Any, most: int, columns: Collection[str | None]) -> Sequence[dict[str, Any]]:
    """The first `most` rows; from a `Dataset`, only those of `columns` that it has."""
    if isinstance(rows, Rows):
        return rows[:most]
    used = [column for column in rows.column_names if column in columns]
    return rows.select_columns(used).select(range(min(most, len(rows))))


def _unreadable(error: Exception) -> BadInput:
    cause = error.__cause__ or error
    if isinstance(cause, UnicodeDecodeError):
        return BadInput(f"is not text in UTF-8 ({cause}): convert it, as with iconv")
    return BadInput(f"cannot be read ({first_line(cause)})")


# --- several data sets as one ------------------------------------------------------------------


def parse_probabilities(text: str, data_sets: int) -> list[float]:
    """The shares in `--data.prompt_probs`; BadInput unless there is one for each data set."""
    try:
        shares = [float(share) for share in text.split(",")]
    except ValueError:
        shares = []
    fit = len(shares) == data_sets and min(shares) > 0 and math.isclose(sum(shares), 1)
    if not fit:
        raise BadInput(
            f"--data.prompt_probs {text}: give {data_sets} numbers above 0 that sum to 1, one for "
            "each data set of --data.prompt_dataset"
        )
    return shares


def _drawn(sizes: Sequence[int], shares: Sequence[float], seed: int) -> list[tuple[int, int]]:
    """The rows of an episode, each as (number of its data set, number of its row there).

    They are drawn as upstream draws them: with replacement, until each data set is used up.
    """
    from datasets import Dataset, interleave_datasets

    places = [
        Dataset.from_dict({"set": [number] * size, "row": list(range(size))})
        for number, size in enumerate(sizes)
    ]
    drawn = interleave_datasets(
        places, probabilities=list(shares), seed=seed, stopping_strategy="all_exhausted"
    )
    return list(zip(drawn["set"], drawn["row"], strict=True))


def blend(
    names: str,
    probabilities: str | None,
    strategy: Any,
    seed: int = 42,
    max_count: float = 1e8,
    dataset_split: str = "train",
) -> Rows:
    """Replaces upstream's `blending_datasets`, which it still calls for data sets on a hub."""
    from openrlhf.datasets.utils import blending_datasets

    data = strategy.args.data
    columns = (data.input_key, data.label_key, data.image_key, DATASOURCE)
    data_sets = []
    for name in names.split(","):
        rows = read_local(name, dataset_split)
        if rows is None:
            rows = blending_datasets(name, None, strategy, dataset_split=dataset_split)
        data_sets.append(list(first_rows(rows, int(max_count), columns)))
    if probabilities is None:
        return Rows(chain.from_iterable(data_sets))
    shares = parse_probabilities(probabilities, len(data_sets))
    drawn = _drawn([len(rows) for rows in data_sets], shares, seed)
    return Rows(data_sets[number][row] for number, row in drawn)
