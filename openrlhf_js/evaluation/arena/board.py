"""Leaderboards: a row for each model, with what was counted and the worst case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from openrlhf_js import stats
from openrlhf_js.common.store import Record, read_store
from openrlhf_js.evaluation.arena import protocol
from openrlhf_js.evaluation.arena.pool import Pool
from openrlhf_js.evaluation.arena.score import (
    LEVELS,
    MARGINS,
    MUCH_WEIGHT,
    Plan,
    compare,
    games,
    scores_and_notes,
)

CLUSTERED_LEVELS = (0.025, 0.975)
GAMES = 2  # over each answer
Row = dict[str, Any]  # one of a board, for JSON


class Board(NamedTuple):
    """A leaderboard: a row for each model, the best first, and what to know of it."""

    title: str
    interval: str  # in words
    baseline: str
    rows: list[Row]
    notes: list[str]


class Boards(NamedTuple):
    """Leaderboards of each judge and of all pooled, comparisons in words, and what failed."""

    boards: list[Board]
    comparisons: list[str]
    problems: list[str]


def boards(
    pools: Sequence[Pool],
    plans: Sequence[Plan],
    models: Sequence[str],
    pairs: Sequence[tuple[str, str]],
) -> Boards:
    """Boards of these models (all where none is named), and paired comparisons of two.

    What only some of the judges and categories have is a problem; ValueError where none has it.
    """
    scored = Boards([], [], [])
    for pool in pools:
        alone = [[judge] for judge in pool.judges]
        for judges in [*alone, pool.judges] if len(alone) > 1 else alone:
            try:
                for plan in plans:
                    scored.boards.append(board(pool, judges, plan, models))
                for a, b in pairs:
                    judged = f"{pool.category}, judged by {' + '.join(judges)}"
                    scored.comparisons.append(f"{judged}: {compare(pool, judges, a, b)}")
            except ValueError as error:  # another category may have it
                scored.problems.append(str(error))
    if not scored.boards or (pairs and not scored.comparisons):
        raise ValueError("\n".join(scored.problems))
    return scored


def board(pool: Pool, judges: Sequence[str], plan: Plan, models: Sequence[str] = ()) -> Board:
    """Scores what these judges judged, together; style is fitted over all models, shown or not."""
    judged = pool.judged[pool.judged.judge.isin(list(judges))]
    every_verdict_counts = plan.official and pool.bench.rule == "v0.1"
    counted = games(judged, both=not every_verdict_counts)
    shown = [name for name in sorted(judged.model.unique()) if not models or name in models]
    if counted.empty or not shown:
        raise ValueError(
            f"{' + '.join(judges)} has no complete judgment of {', '.join(models or ['any model'])}"
            f" in {pool.category}; it judged {', '.join(sorted(judged.model.unique()))}"
        )
    deviations = protocol.deviations(
        bench=pool.bench,
        category=pool.category,
        judges=list(judges),
        recorded=_recorded_settings(pool, judges),
        judged=judged[judged.model.isin(shown)],
    )
    scores, notes = scores_and_notes(pool, counted, plan)
    shared = _shared_columns(pool, judges, plan, deviations)
    rows = [_baseline_row(pool, shared)]
    for model in shown:
        if model in scores:
            counts = _counts(
                judged=judged[judged.model == model],
                counted=counted[counted.model == model],
                expected=GAMES * len(judges) * pool.questions,
            )
            tokens = _mean_tokens(pool, model)
            rows.append(shared | _score_columns(model, scores[model]) | counts | tokens)
    if deviations:
        notes.append(f"Not the official protocol: {'; '.join(deviations)}.")
    style = "" if plan.style_control == "none" else ", style controlled"
    return Board(
        title=f"{pool.category}, judged by {' + '.join(judges)}{style}",
        interval=_interval_in_words(pool, plan),
        baseline=pool.baseline,
        rows=sorted(rows, key=lambda row: (-row["score"], row["model"])),
        notes=notes,
    )


def _recorded_settings(pool: Pool, judges: Sequence[str]) -> dict[str, Record]:
    """The settings that each judge's ledger records; none where another program judged."""
    settings = {}
    for judge in judges:
        path = pool.folder.ledger(judge, pool.category)
        if path.is_file():
            settings[judge], _ = read_store(path)
    return settings


def _levels(pool: Pool, plan: Plan) -> tuple[float, float]:
    """The percentiles of the intervals."""
    return LEVELS[pool.bench.rule] if plan.official else CLUSTERED_LEVELS


def _interval_in_words(pool: Pool, plan: Plan) -> str:
    """How wide the intervals are, and what they resample."""
    low, high = _levels(pool, plan)
    unit = "question"
    if plan.official:
        unit = f"row as the script of {pool.bench.rule} has it (too narrow)"
    return f"{100 * (high - low):.0f} %, by {unit}"


def _shared_columns(
    pool: Pool, judges: Sequence[str], plan: Plan, deviations: Sequence[str]
) -> Row:
    """What is the same in all rows of a board."""
    low, high = _levels(pool, plan)
    return {
        "category": pool.category,
        "judge": " + ".join(judges),
        "baseline": pool.baseline,
        "ci": f"official {pool.bench.rule}" if plan.official else "clustered",
        "confidence": round(high - low, 3),
        "style_control": plan.style_control,
        "verdict": pool.rule,
        "questions_of_category": pool.questions,
        "deviations": deviations,
    }


def _baseline_row(pool: Pool, shared: Row) -> Row:
    """The baseline has half the points by definition."""
    half = stats.Estimate(0.5, 0.5, 0.5)
    return shared | _score_columns(pool.baseline, half) | _mean_tokens(pool, pool.baseline)


def _score_columns(model: str, score: stats.Estimate) -> Row:
    """A score and its interval, in per cent."""
    return {
        "model": model,
        "score": 100 * score.value,
        "ci_low": 100 * score.low,
        "ci_high": 100 * score.high,
    }


def _counts(judged: pd.DataFrame, counted: pd.DataFrame, expected: int) -> Row:
    """What is counted of a model: its games, the weighted rows, and how many games are missing.

    The worst case is the score if all missing games were lost, or won, by much.
    """
    won = counted[counted.points == 1.0]
    lost = counted[counted.points == 0.0]
    tied = counted[counted.points == 0.5]
    verdicts = int(judged[MARGINS].notna().sum().sum())
    missing = expected - len(counted)
    points = float((counted.points * counted.weight).sum())
    total = float(counted.weight.sum())
    most = total + MUCH_WEIGHT * missing
    row = {
        "questions": counted.uid.nunique(),
        "games_won": len(won),
        "games_lost": len(lost),
        "games_tied": len(tied),
        "wins": float(won.weight.sum()),
        "losses": float(lost.weight.sum()),
        "ties": float(tied.weight.sum()),
        "games_without_verdict": GAMES * len(judged) - verdicts,
        "games_missing": missing,
        "score_without_control": 100 * points / total,
        "worst_case_low": 100 * points / most,
        "worst_case_high": 100 * (points + MUCH_WEIGHT * missing) / most,
    }
    return row | sides(judged)


def sides(judged: pd.DataFrame) -> Row:
    """The share of points of the answer shown first, and of questions with two winners."""
    signs = np.sign(judged[MARGINS].dropna().to_numpy())
    if not len(signs):
        return {}
    points_of_a = ((signs * [-1, 1]).mean(axis=1) + 1) / 2
    return {
        "side_a": float(points_of_a.mean()),
        "contradictions": float((signs[:, 0] * signs[:, 1] < 0).mean()),
    }


def _mean_tokens(pool: Pool, model: str) -> Row:
    """The mean length of a model's answers; None where nobody counted."""
    of_model = pool.styles.index.get_level_values("model") == model
    tokens = pool.styles.tokens[of_model]
    return {"mean_tokens": float(tokens.mean()) if tokens.notna().any() else None}
