"""Benches on disk, and judgments from margins: 2 the model is much better, ..., -2 much worse."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "eval"))
from scripted_server import answer_row, write_lines

BASELINE = "base"
OF_A = {2: "A>>B", 1: "A>B", 0: "A=B", -1: "B>A", -2: "B>>A"}


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def counts(tokens: int, headers: int = 0, lists: int = 0, bold: int = 0) -> dict[str, Any]:
    return {
        "token_len": tokens,
        "header_count": {"h1": 0, "h2": headers},
        "list_count": {"ordered": 0, "unordered": lists},
        "bold_count": {"**": bold, "__": 0},
    }


def write_answers(
    folder: Path, models: Iterable[str], uids: Iterable[str], characters: int
) -> None:
    """Every model's answers differ, and later models write more."""
    filling, uids = " word" * (characters // 5), list(uids)
    for place, model in enumerate(models):
        rng = np.random.default_rng(place)
        rows = []
        for uid in uids:
            tokens = int(rng.integers(50, 800)) + 60 * place
            of = counts(tokens, *rng.integers(0, 9, 3).tolist())
            rows.append(answer_row(uid, model, f"{model} says {uid}.{filling}", of))
        write_lines(folder / "model_answer" / f"{model}.jsonl", rows)


def write_bench(
    data: Path, questions: int = 4, models: Iterable[str] = ("m",), *, characters: int = 0
) -> Path:
    """Writes `data/own`, and returns it."""
    uids = [f"q{i}" for i in range(questions)]
    rows = [{"uid": uid, "category": "all", "prompt": f"What is {uid}?"} for uid in uids]
    write_lines(data / "own" / "question.jsonl", rows)
    write_answers(data / "own", (BASELINE, *models), uids, characters)
    return data / "own"


def judgment_row(
    uid: str,
    first: int | str | None,
    second: int | str | None,
    model: str = "m",
    judge: str = "j",
    baseline: str = BASELINE,
    category: str = "all",
) -> dict[str, Any]:
    """A row from the model's margins in both games; None: no verdict, "failed": no game."""

    def game(margin: Any, sign: int) -> dict[str, Any] | None:
        if margin == "failed":
            return None
        score = None if margin is None else OF_A[sign * margin]
        return {"score": score, "judgment": {"answer": "because"}, "prompt": []}

    return {
        **{"uid": uid, "category": category, "judge": judge, "model": model},
        **{"baseline": baseline, "games": [game(first, -1), game(second, 1)]},
    }


def random_rows(
    models: int = 4,
    questions: int = 30,
    seed: int = 0,
    missing: float = 0.0,
    spread: float = 1.0,
    **named: Any,
) -> list[dict[str, Any]]:
    """Judgments of models of rising strength, on questions of different difficulty."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(size=questions)
    found = []
    for model in range(models):
        for question in range(questions):
            drawn = rng.normal(size=2) + spread * (model - models / 2) + hard[question]
            margins = [int(np.clip(round(value), -2, 2)) for value in drawn]
            shown = [None if rng.random() < missing else margin for margin in margins]
            found.append(judgment_row(f"q{question}", *shown, model=f"m{model}", **named))
    return found


def rows_with(wins: int, losses: int, ties: int, questions: int, **named: Any) -> list[Any]:
    """Judgments whose weighted rows are these: as many much-better games as needed."""
    left = 2 * questions - ties
    heavy = (wins + losses - left) // 2  # x games of weight 3 and y of 1: x + y games, 3x + y rows
    heavy_losses = min(heavy, losses // 3)
    heavy_wins = heavy - heavy_losses
    games = [0] * ties + [-2] * heavy_losses + [-1] * (losses - 3 * heavy_losses)
    games += [2] * heavy_wins + [1] * (wins - 3 * heavy_wins)
    drawn = np.random.default_rng(0).permutation(games).tolist()
    pairs = zip(drawn[::2], drawn[1::2], strict=True)
    return [judgment_row(f"q{number}", *pair, **named) for number, pair in enumerate(pairs)]


def write_judged(
    data: Path, rows: list[dict[str, Any]], *, bench: str = "own", characters: int = 0
) -> Path:
    """Writes a bench with these judgments, and questions and answers for all of them."""
    folder = data / bench
    models = sorted({row["model"] for row in rows})
    files: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        files.setdefault((row["judge"], row["model"]), []).append(row)
    for (judge, model), own in files.items():
        write_lines(folder / "model_judgment" / judge / f"{model}.jsonl", own)
    asked = {row["uid"]: row["category"] for row in rows}
    questions = ({"uid": u, "category": c, "prompt": f"prompt of {u}"} for u, c in asked.items())
    write_lines(folder / "question.jsonl", questions)
    baselines = dict.fromkeys(row["baseline"] for row in rows)
    write_answers(folder, [*baselines, *models], asked, characters)
    return folder
