"""What was fetched: the record of where it is from, and what is missing of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from openrlhf_js.evaluation.arena.benches import Bench
from openrlhf_js.evaluation.arena.files import Folder, only_known, read_answers, read_questions
from openrlhf_js.evaluation.arena.lines import Warn
from openrlhf_js.whole_file import whole_file

FETCHED_FILE = "fetched.json"  # where each file is from


def record(folder: Folder, source: str, hashes: Mapping[str, str], complete: bool) -> None:
    """Adds where the files are from to what is recorded beside them.

    Args:
        folder: of the bench.
        source: of the files.
        hashes: of `copy_files`.
        complete: whether `check` misses nothing; eval/arena_hard.sh fetches again until then.

    Raises:
        OSError: it cannot be written. ValueError: what is there is broken.
    """
    path = folder.root / FETCHED_FILE
    try:
        kept = json.loads(path.read_bytes())["files"] if path.exists() else {}
        files = {name: dict(each) for name, each in dict(kept).items()}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError(f"{path} is no record of this program: move it away") from None
    for name, digest in hashes.items():
        if files.get(name, {}).get("sha256") != digest:
            files[name] = {"source": source, "sha256": digest}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"complete": complete, "files": files}, indent=1, ensure_ascii=False)
    with whole_file(path) as file:
        file.write(text.encode() + b"\n")


class Check(NamedTuple):
    """What is in a bench's folder.

    Attributes:
        questions: how many, by category.
        missing: what is not there and should be, a line each.
    """

    questions: Mapping[str, int]
    missing: list[str]


def check(folder: Folder, bench: Bench, warn: Warn) -> Check:
    """Looks whether the questions and the baselines' answers are all there.

    Args:
        folder: of the bench.
        bench: says how many there should be.
        warn: told of lines that cannot be read.

    Raises:
        OSError: a file cannot be read.
        ValueError: a question's category is none of the bench's.
    """
    if not folder.questions.exists():
        return Check({}, [f"{folder.questions} is not there"])
    questions = read_questions(folder.questions, warn)
    counts = Counter(question.category for question in questions.values())
    missing = [
        f"{folder.questions}: {counts[name]} questions of {name}; officially {category.questions}"
        for name, category in bench.categories.items()
        if counts[name] != category.questions
    ]
    for name in counts:
        baseline = bench.category(name).baseline
        path = folder.answers(baseline)
        asked = {uid: each for uid, each in questions.items() if each.category == name}
        if not path.exists():
            missing.append(f"{path} is not there: the baseline of {name}")
            continue
        answers = only_known(read_answers(path, warn), questions, path, warn)
        lacks = [uid for uid in asked if uid not in answers]
        if lacks:
            missing.append(
                f"{path}: no answer to {len(lacks)} of {len(asked)} questions of {name}, the "
                f"first is {lacks[0]!r:.60}"
            )
        if any(answers[uid].style is None for uid in asked if uid in answers):
            missing.append(f"{path}: answers without style counts; style control needs them")
    return Check(dict(counts), missing)
