"""Gets a benchmark's files into a folder, from the hub or from a folder that the user has."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from openrlhf_js.evaluation.arena.benches import Bench, baseline_of
from openrlhf_js.evaluation.arena.files import Folder, read_answers, read_questions
from openrlhf_js.evaluation.arena.judge_prompts import PROMPTS_FILE, fetched_texts
from openrlhf_js.evaluation.arena.lines import Warn, records
from openrlhf_js.evaluation.arena.official_texts import (
    Texts,
    by_category,
    texts_of_clone,
    texts_of_judgments,
)
from openrlhf_js.evaluation.arena.records import file_name
from openrlhf_js.whole_file import whole_file

HUB = "lmarena-ai/arena-hard-auto"  # the data set that the official repository points to
TEXTS_BENCH = "arena-hard-v2.0"  # whose published judgments hold what the judge was told

Get = Callable[[str], Path]  # a path inside of the source -> the file; FileNotFoundError


class Source(NamedTuple):
    """Where files are from.

    Attributes:
        name: for messages and the record.
        get: gives a file.
        listed: the paths that begin with a text.
        clone: the folder of the official repository, where it is one.
    """

    name: str
    get: Get
    listed: Callable[[str], list[str]]
    clone: Path | None = None


def folder_source(root: Path, bench: str) -> Source:
    """A folder that the user has: a clone, a download of the data set, or the bench's own folder.

    Raises:
        ValueError: it has no such bench.
    """
    tops = [root, *root.parents[:2]]  # the folder that holds `data/BENCH`
    asked = f"data/{bench}/question.jsonl"
    top = next((each for each in tops if (each / asked).is_file()), None)
    if top is None:
        raise ValueError(
            f"{root} holds no {asked}. Give a clone of the official repository with its data, or a "
            f"download of the data set {HUB}"
        )

    def get(path: str) -> Path:
        if not (top / path).is_file():
            raise FileNotFoundError(f"{top} has no {path}")
        return top / path

    def listed(start: str) -> list[str]:
        folder = top / start
        return sorted(str(each.relative_to(top)) for each in folder.rglob("*.jsonl"))

    return Source(str(top), get, listed, top)


def copy_files(source: Source, folder: Folder, names: Iterable[str], warn: Warn) -> dict[str, str]:
    """Copies files of the bench; those that are there already stay as they are.

    Args:
        source: has them.
        folder: gets them.
        names: inside of the bench's folder; those that the source does not have are told of.
        warn: told of what is missing, or is there and differs.

    Returns:
        The sha256 of each file that is now there as the source has it.
    """
    hashes = {}
    for name in names:
        try:
            found = source.get(f"data/{folder.bench}/{name}")
        except FileNotFoundError:
            warn(f"{source.name} has no data/{folder.bench}/{name}")
            continue
        digest, path = _sha256(found), folder.root / name
        if path.exists() and _sha256(path) != digest:
            warn(f"{path} is there and differs from the one of {source.name}; it is left as it is")
            continue
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with found.open("rb") as theirs, whole_file(path) as ours:
                shutil.copyfileobj(theirs, ours, 2**20)
        hashes[name] = digest
    return hashes


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def wanted_names(bench: Bench, models: Sequence[str]) -> list[str]:
    """The files to fetch: the questions, the baselines' answers, and those of other models."""
    baselines = [each.baseline for each in bench.categories.values()] or [bench.baseline]
    names = dict.fromkeys(file_name(each) for each in (*baselines, *models))
    return ["question.jsonl", *(f"model_answer/{name}.jsonl" for name in names)]


def judgment_names(source: Source, bench: str, judge: str) -> list[str]:
    """The files of a judge's published judgments."""
    start = f"data/{bench}/"
    return [path.removeprefix(start) for path in source.listed(f"{start}model_judgment/{judge}/")]


def judge_texts(source: Source, bench: Bench, warn: Warn) -> Texts:
    """What the official judge is told, from wherever the source has it; empty if nowhere.

    Raises:
        OSError: a file cannot be read. ValueError: one is not as it should be.
    """
    if source.clone:
        texts = texts_of_clone(source.clone, bench.name)
        if texts.template and texts.system:
            return texts
    start = f"data/{TEXTS_BENCH}/"
    listed = source.listed(f"{start}model_judgment/")
    if not listed:
        return Texts("", {}, ())
    try:
        questions = read_questions(source.get(f"{start}question.jsonl"), warn)
        baselines = sorted({baseline_of(each.category) for each in questions.values()})
        answers = {
            name: read_answers(source.get(f"{start}model_answer/{name}.jsonl"), warn)
            for name in baselines
        }
    except FileNotFoundError as error:
        warn(f"{error}; without it the judge's texts cannot be told from published judgments")
        return Texts("", {}, ())
    rows = (row for _, row in records(source.get(listed[0]), _as_it_is, warn))
    return texts_of_judgments(rows, questions, answers)._replace(sources=(listed[0],))


def _as_it_is(row: Mapping[str, Any], _: Warn) -> Mapping[str, Any]:
    return row


def write_texts(folder: Folder, bench: Bench, texts: Texts, source: str, warn: Warn) -> None:
    """Keeps the judge's texts beside the questions; those that are there already stay.

    Raises:
        OSError: they cannot be written. ValueError: what is there is broken.
    """
    system = by_category(texts, {k: each.system_sha256 for k, each in bench.categories.items()})
    if not texts.template or not system:
        return
    path = folder.root / PROMPTS_FILE
    if path.exists():
        if fetched_texts(folder) != (texts.template, system):
            warn(f"{path} is there and differs from the texts of {source}; it is left as it is")
        return
    kept = {
        "template": texts.template,
        "system": system,
        "source": f"{source}: {', '.join(texts.sources)}",
    }
    with whole_file(path) as file:
        file.write(json.dumps(kept, indent=1, ensure_ascii=False).encode() + b"\n")
