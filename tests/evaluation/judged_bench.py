"""A bench of one's own on disk: questions, a baseline's and models' answers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BASELINE = "base"


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def answer_row(uid: str, model: str, text: str) -> dict[str, Any]:
    return {
        "uid": uid,
        "ans_id": f"{model}-{uid}",
        "model": model,
        "messages": [
            {"role": "user", "content": uid},
            {"role": "assistant", "content": {"answer": text}},
        ],
        "tstamp": 0.0,
    }


def write_bench(
    data: Path,
    questions: int = 4,
    models: Iterable[str] = ("m",),
    *,
    bench: str = "own",
    category: str = "all",
    characters: int = 0,
) -> Path:
    """Writes `data/BENCH`; every model's answers differ. Returns its folder."""
    folder = data / bench
    uids = [f"q{i}" for i in range(questions)]
    filling = "word " * (characters // 5)
    write_lines(
        folder / "question.jsonl",
        ({"uid": uid, "category": category, "prompt": f"What is {uid}?"} for uid in uids),
    )
    for model in (BASELINE, *models):
        write_lines(
            folder / "model_answer" / f"{model}.jsonl",
            (answer_row(uid, model, f"{model} says {uid}. {filling}") for uid in uids),
        )
    return folder
