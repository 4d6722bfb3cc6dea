"""Judgments as numbers make them, and folders as the official repository has them."""

from __future__ import annotations

import json

import numpy as np

from openrlhf_js.evaluation.arena.records import Game, Judgment

SWAPPED = {"A>>B": "B>>A", "A>B": "B>A", "A=B": "A=B", "B>A": "A>B", "B>>A": "A>>B", None: None}
BY_MARGIN = {2: "A>>B", 1: "A>B", 0: "A=B", -1: "B>A", -2: "B>>A", None: None}


def judgment(uid, first, second, model="m", judge="j", baseline="base", category="hard"):
    """A judgment with the model's margins in both games; None: no verdict, "failed": no game."""
    games = tuple(
        None if margin == "failed" else Game(verdict, "because")
        for margin, verdict in (
            (first, SWAPPED[BY_MARGIN.get(first)]),
            (second, BY_MARGIN.get(second)),
        )
    )
    return Judgment(uid, category, judge, model, baseline, games)


def with_rows(wins, losses, ties, questions, **named):
    """Judgments whose weighted rows are these: as many much-better games as fit, then single ones.

    Every question has two games, so the numbers must be reachable with 2 * questions games.
    """
    games = [0] * ties
    left = 2 * questions - ties
    # x games of weight 3 and y of weight 1: x + y games, 3x + y rows
    heavy = (wins + losses - left) // 2
    assert wins + losses == 3 * heavy + (left - heavy)
    heavy_losses = min(heavy, losses // 3)
    heavy_wins = heavy - heavy_losses
    games += [-2] * heavy_losses + [-1] * (losses - 3 * heavy_losses)
    games += [2] * heavy_wins + [1] * (wins - 3 * heavy_wins)
    assert len(games) == 2 * questions
    order = np.random.default_rng(0).permutation(len(games))
    drawn = [games[place] for place in order]
    return [
        judgment(f"q{number}", drawn[2 * number], drawn[2 * number + 1], **named)
        for number in range(questions)
    ]


def random_pool(models=4, questions=30, seed=0, judge="j", baseline="base", missing=0.0):
    """Judgments of several models, with questions of different difficulty."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(size=questions)
    found = []
    for number in range(models):
        for question in range(questions):
            drawn = rng.normal(size=2) + number - models / 2 + hard[question]
            margins = [int(np.clip(round(value), -2, 2)) for value in drawn]
            shown = [None if rng.random() < missing else margin for margin in margins]
            found.append(
                judgment(f"q{question}", *shown, model=f"m{number}", judge=judge, baseline=baseline)
            )
    return found


def metadata(tokens, headers=0, lists=0, bold=0):
    """Counts as the files have them."""
    return {
        "token_len": tokens,
        "header_count": {f"h{level}": headers * (level == 2) for level in range(1, 7)},
        "list_count": {"ordered": 0, "unordered": lists},
        "bold_count": {"**": bold, "__": 0},
    }


def write_lines(path, rows):
    """JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def answer_row(uid, model, text, counts=None):
    """A line of v2.0's answers."""
    row = {
        "uid": uid,
        "ans_id": f"{model}-{uid}",
        "model": model,
        "messages": [
            {"role": "user", "content": "asked"},
            {"role": "assistant", "content": {"answer": text}},
        ],
        "tstamp": 0,
    }
    return row if counts is None else {**row, "metadata": counts}


def judgment_row(of, texts=("first text", "second text")):
    """A line of v2.0's judgments."""
    games = [
        game and {"score": game.verdict, "judgment": {"answer": text}, "prompt": []}
        for game, text in zip(of.games, texts, strict=True)
    ]
    return {**of._asdict(), "games": games}


def write_judgments(root, judgments):
    """Files of judges and models below `root/model_judgment`."""
    files = {}
    for each in judgments:
        files.setdefault((each.judge, each.model), []).append(judgment_row(each))
    for (judge, model), rows in files.items():
        write_lines(root / "model_judgment" / judge / f"{model}.jsonl", rows)


def write_bench(root, judgments, *, categories=None, counts=True, text="text"):
    """Questions, answers and judgments of a bench.

    Args:
        root: the bench's folder.
        judgments: may be of several categories.
        categories: more questions, {uid: category}, that nobody judged.
        counts: whether answers have metadata.
        text: of every answer, after model and uid.
    """
    of_question = {each.uid: each.category for each in judgments} | (categories or {})
    questions = [
        {"uid": uid, "category": category, "subcategory": "", "prompt": f"prompt of {uid}"}
        for uid, category in of_question.items()
    ]
    write_lines(root / "question.jsonl", questions)
    answered = {}
    for each in judgments:
        answered.setdefault(each.model, set()).add(each.uid)
        answered.setdefault(each.baseline, set()).add(each.uid)
    for place, (model, uids) in enumerate(sorted(answered.items())):
        rng = np.random.default_rng(place)
        rows = []
        for uid in sorted(uids):
            tokens = int(rng.integers(50, 800)) + 60 * place
            meta = metadata(tokens, *rng.integers(0, 9, 3).tolist()) if counts else None
            rows.append(answer_row(uid, model, f"{model} on {uid}: {text}", meta))
        write_lines(root / "model_answer" / f"{model}.jsonl", rows)
    write_judgments(root, judgments)
