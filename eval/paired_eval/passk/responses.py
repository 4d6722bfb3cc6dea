"""Recorded responses, such as a trainer's log: their rows become items and a sampler."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from answer_graders.labels import is_message
from answer_graders.programs.console import progress, say
from answer_graders.programs.files import fingerprint, read_rows
from answer_graders.programs.store import json_line
from answer_graders.prompt_files import Example, example
from answer_graders.tasks import TASKS, task_of
from answer_graders.tasks import benchmarks as task_benchmarks
from answer_graders.thinking import with_opened_thinking
from paired_eval.passk.benchmarks import Asked, Benchmark, name_of, uid_of
from paired_eval.sampling.sampler import RecordedSampler

RESPONSE_KEYS = ("response", "responses")  # one of them, unless a flag names another


class Keys(NamedTuple):
    """The fields of a row; `response` None: one of `RESPONSE_KEYS`."""

    input: str = "prompt"
    response: str | None = None
    label: str = "label"


class Place(NamedTuple):
    """The label of a prompt, and the first row that has it."""

    label: str
    row: str


def read_responses(
    path: Path, task: str, keys: Keys, limit: int | None = None
) -> tuple[Asked, RecordedSampler]:
    """The (first `limit`) items of a file, and a sampler that returns their responses.

    Rows with the same prompt are one item, whether they have one response or a list of them. `task`
    names the grader: a task, a task/group, or a benchmark. ValueError names the place of a row that
    lacks a prompt, a response, or a label that can be graded against, or whose label is not that of
    an earlier row with its prompt.
    """
    datasource = _datasource(task)
    items: dict[str, Example] = {}
    texts: defaultdict[str, list[str]] = defaultdict(list)
    labels: dict[str, Place] = {}  # of prompts, by their key
    rows: dict[int, str] = {}  # by digest: the first place of the row
    repeated: list[tuple[str, str]] = []  # a place, and the earlier one that it repeats
    with progress(f"reading {path.name}") as bar:
        for row in read_rows(path):
            columns = row.object(path)
            try:
                item, responses = _read(columns, datasource, keys)
                uid = uid_of(item)
                _check_label(item, row.place, labels, is_new=uid not in items)
            except ValueError as error:
                raise ValueError(f"{path}, {row.place}: {error}") from None
            items.setdefault(uid, item)
            texts[uid] += responses
            digest = hash(repr(columns))
            if digest in rows:
                repeated.append((row.place, rows[digest]))
            rows.setdefault(digest, row.place)
            bar.advance()
    if not items:
        raise ValueError(f"{path} holds no response: it is empty")
    _say_repeated(path, repeated)
    first_items = dict(list(items.items())[:limit])
    source: dict[str, Any] = {"name": name_of(task), "file": path}
    asked = Asked(
        benchmark=Benchmark(**source),
        items=first_items,
        recorded={uid: len(texts[uid]) for uid in first_items},
    )
    return asked, RecordedSampler(str(path), fingerprint([path]), texts)


def _datasource(task: str) -> str:
    """The datasource of items, as `data build` writes it for a benchmark."""
    if task in task_benchmarks():
        grader, _ = task_benchmarks()[task]
        return task if task == grader.name else f"{grader.name}/{task}"
    try:
        task_of(task)
    except ValueError:
        known = ", ".join(sorted({*TASKS, *task_benchmarks()}))
        raise ValueError(f"no task {task!r} grades responses; choose from {known}") from None
    return task


def _read(row: Mapping[str, Any], datasource: str, keys: Keys) -> tuple[Example, list[str]]:
    """The item and the responses of a row."""
    present = [key for key in RESPONSE_KEYS if row.get(key) is not None]
    if keys.response is None and len(present) > 1:
        raise ValueError("it has both 'response' and 'responses': choose with --response_key")
    response_key = keys.response or (present or RESPONSE_KEYS)[0]
    for flag, key in (
        ("--input_key", keys.input),
        ("--response_key", response_key),
        ("--label_key", keys.label),
    ):
        if key in row and row[key] is None:
            raise ValueError(f"no value under {key!r}: it is null")
        if key not in row:
            raise ValueError(
                f"no value under {key!r}; the row has {', '.join(map(repr, row)) or 'no fields'}: "
                f"name the right one with {flag}"
            )
    item = example({**row, "datasource": datasource}, keys.input, keys.label)
    prompt = item.messages[-1]["content"]
    texts = _texts(row[response_key], response_key)
    return item, [with_opened_thinking(prompt, text) for text in texts]


def _texts(value: Any, key: str) -> list[str]:
    """The responses that a field holds: one, as text or as a message, or a list of them."""
    one = _text(value)
    responses = [one] if one is not None else value
    if isinstance(value, list) and one is None:
        responses = [_text(element) for element in value]
    if not isinstance(responses, list) or not responses or None in responses:
        raise ValueError(f"{key!r} must hold a response as text, or a list of them")
    return responses


def _text(value: Any) -> str | None:
    """A response that is text, or a list of one message, as chat logs have it; else None."""
    if isinstance(value, list) and len(value) == 1 and is_message(value[0]):
        return str(value[0]["content"])
    return value if isinstance(value, str) else None


def _check_label(item: Example, row: str, labels: dict[str, Place], is_new: bool) -> None:
    """ValueError unless the label can be graded against, and is that of the prompt's first row."""
    if is_new:
        item.task.check_label(item.label)
    prompt = json_line({"messages": item.messages, "images": item.images}).decode()
    first = labels.setdefault(prompt, Place(item.label, row))
    if first.label != item.label:
        raise ValueError(
            f"the label is {item.label!r:.80}, and {first.label!r:.80} in {first.row}, which has "
            "the same prompt: a prompt has one label"
        )


def _say_repeated(path: Path, repeated: list[tuple[str, str]]) -> None:
    """Reports repeated rows, which are kept: small models do repeat a response."""
    if repeated:
        later, earlier = repeated[0]
        say(
            f"{path}: {len(repeated):,} rows are the same as earlier ones (the first: {later} as "
            f"{earlier}); each counts as a response of its own",
            error=True,
        )
