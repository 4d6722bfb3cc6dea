"""Benches on disk, and judgments from margins: 2 the model is much better, ..., -2 much worse."""

import json
import sys
from collections.abc import Iterable, Sequence
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
    folder: Path, models: Iterable[str], uids: Sequence[str], characters: int
) -> None:
    """Every model's answers differ, and later models write more."""
    filling = " word" * (characters // 5)
    for place, model in enumerate(models):
        rng = np.random.default_rng(place)
        rows = []
        for uid in uids:
            tokens = int(rng.integers(50, 800)) + 60 * place
            headers, lists, bold = rng.integers(0, 9, 3).tolist()
            style = counts(tokens, headers, lists, bold)
            rows.append(answer_row(uid, model, f"{model} says {uid}.{filling}", style))
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
        "uid": uid,
        "category": category,
        "judge": judge,
        "model": model,
        "baseline": baseline,
        "games": [game(first, -1), game(second, 1)],
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
    difficulty = rng.normal(size=questions)
    rows = []
    for model in range(models):
        strength = spread * (model - models / 2)
        for question in range(questions):
            outcomes = rng.normal(size=2) + strength + difficulty[question]
            margins: list[int | None] = []
            for outcome in outcomes:
                margin = int(np.clip(round(outcome), -2, 2))
                margins.append(None if rng.random() < missing else margin)
            rows.append(judgment_row(f"q{question}", *margins, model=f"m{model}", **named))
    return rows


def rows_with(wins: int, losses: int, ties: int, questions: int) -> list[Any]:
    """Judgments whose weighted rows are these: as many much-better games as needed."""
    decided = 2 * questions - ties
    heavy = (wins + losses - decided) // 2  # x games of weight 3, y of 1: x + y games, 3x + y rows
    heavy_losses = min(heavy, losses // 3)
    heavy_wins = heavy - heavy_losses
    games = [0] * ties
    games += [-2] * heavy_losses
    games += [-1] * (losses - 3 * heavy_losses)
    games += [2] * heavy_wins
    games += [1] * (wins - 3 * heavy_wins)
    shuffled = np.random.default_rng(0).permutation(games).tolist()
    rows = []
    for number in range(questions):
        first, second = shuffled[2 * number : 2 * number + 2]
        rows.append(judgment_row(f"q{number}", first, second))
    return rows


def write_judged(
    data: Path, rows: list[dict[str, Any]], *, bench: str = "own", characters: int = 0
) -> Path:
    """Writes a bench with these judgments, and questions and answers for all of them."""
    folder = data / bench
    files: dict[Path, list[Any]] = {}
    questions = {}
    baselines = {}
    for row in rows:
        path = folder / "model_judgment" / row["judge"] / f"{row['model']}.jsonl"
        files.setdefault(path, []).append(row)
        uid = row["uid"]
        questions[uid] = {
            "uid": uid,
            "category": row["category"],
            "prompt": f"prompt of {uid}",
        }
        baselines[row["baseline"]] = None
    for path, judgments in files.items():
        write_lines(path, judgments)
    write_lines(folder / "question.jsonl", questions.values())
    models = sorted({row["model"] for row in rows})
    write_answers(folder, [*baselines, *models], list(questions), characters)
    return folder
