"""Leaderboards: a row for each model, with its score and counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import pandas as pd

from answer_graders.programs.store import Record, read_store
from paired_eval import stats
from paired_eval.arena import protocol
from paired_eval.arena.pool import Pool
from paired_eval.arena.score import (
    LEVELS,
    Scores,
    at_equal_style,
    clustered,
    compare,
    games,
    official,
)

CLUSTERED_LEVELS = (0.025, 0.975)
Interval = Literal["clustered", "official", "equal style"]
Row = dict[str, Any]  # a row of a board, for JSON
HALF = stats.Estimate(0.5, 0.5, 0.5)  # the baseline's score, by definition


class Board(NamedTuple):
    """A leaderboard: a row for each model, the best first, and notes."""

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
    intervals: Sequence[Interval],
    models: Sequence[str],
    pairs: Sequence[tuple[str, str]],
) -> Boards:
    """Boards of these models (default: all), and paired comparisons of two.

    What some judges or categories lack is listed as a problem; ValueError if all lack it.
    """
    scored = Boards([], [], [])
    for pool in pools:
        alone = [[judge] for judge in pool.judges]
        for judges in [*alone, pool.judges] if len(alone) > 1 else alone:
            for interval in intervals:
                with collected(scored.problems):
                    scored.boards.append(board(pool, judges, interval, models))
            for a, b in pairs:
                with collected(scored.problems):
                    judged = f"{pool.category}, judged by {' + '.join(judges)}"
                    scored.comparisons.append(f"{judged}: {compare(pool, judges, a, b)}")
    if not scored.boards or (pairs and not scored.comparisons):
        raise ValueError("\n".join(scored.problems))
    return scored


@contextmanager
def collected(problems: list[str]) -> Iterator[None]:
    """Adds the message of a ValueError to `problems`: another category or judge may do."""
    try:
        yield
    except ValueError as error:
        problems.append(str(error))


def board(
    pool: Pool, judges: Sequence[str], interval: Interval = "clustered", models: Sequence[str] = ()
) -> Board:
    """The board of these judges, pooled; style is fitted over all models, shown or not.

    Intervals are by question, except the official ones.
    """
    judged = pool.judged[pool.judged.judge.isin(list(judges))]
    every_verdict_counts = interval == "official" and pool.bench.rule == "v0.1"
    counted = games(judged, both=not every_verdict_counts)
    shown = [name for name in sorted(judged.model.unique()) if not models or name in models]
    if counted.empty or not shown:
        raise ValueError(
            f"{' + '.join(judges)} has no complete judgment of {', '.join(models or ['any model'])}"
            f" in {pool.category}; it judged {', '.join(sorted(judged.model.unique()))}"
        )
    not_judged = sorted(set(models) - set(shown))
    scores, notes = _scores_and_notes(pool, counted, interval)
    if not_judged:
        notes.append(f"Not judged here: {', '.join(not_judged)}.")
    deviations = _deviations(pool, judges, judged[judged.model.isin(shown)])
    if deviations:
        notes.append(f"Not the official protocol: {'; '.join(deviations)}.")
    confidence = _confidence(pool.bench.rule, interval)
    shared = {
        "category": pool.category,
        "judge": " + ".join(judges),
        "baseline": pool.baseline,
        "interval": interval,
        "verdict": pool.rule,
        "confidence": round(confidence, 3),
        "questions_of_category": pool.questions,
        "deviations": deviations,
    }
    games_a_model = 2 * len(judges) * pool.questions
    rows = [shared | _score_columns(pool, pool.baseline, HALF)]
    for model in shown:
        if model in scores:
            counts = _counts(counted[counted.model == model], games_a_model)
            rows.append(shared | _score_columns(pool, model, scores[model]) | counts)
    style = ", style controlled" if interval == "equal style" else ""
    return Board(
        title=f"{pool.category}, judged by {' + '.join(judges)}{style}",
        interval=f"{100 * confidence:.0f} %, by {_unit(pool.bench.rule, interval)}",
        baseline=pool.baseline,
        rows=sorted(rows, key=lambda row: (-row["score"], row["model"])),
        notes=notes,
    )


def _confidence(rule: str, interval: Interval) -> float:
    """The nominal coverage of the intervals."""
    low, high = LEVELS[rule] if interval == "official" else CLUSTERED_LEVELS
    return high - low


def _unit(rule: str, interval: Interval) -> str:
    """What an interval takes as one draw, in words."""
    if interval == "official":
        return f"row as the script of {rule} has it (too narrow)"
    return "question"


def _scores_and_notes(
    pool: Pool, counted: pd.DataFrame, interval: Interval
) -> tuple[Scores, list[str]]:
    """Score and interval by model, and which games style control leaves out."""
    if interval == "equal style":
        return at_equal_style(pool, counted)
    if interval == "official":
        return official(counted, pool.bench.rule), []
    return {str(model): clustered(rows) for model, rows in counted.groupby("model")}, []


def _deviations(pool: Pool, judges: Sequence[str], judged: pd.DataFrame) -> list[str]:
    """How judging deviated from the official protocol, and what is not known about it."""
    identities = {judge: _recorded_settings(pool, judge) for judge in judges}
    lines = protocol.deviations(pool.bench, pool.category, identities)
    read_otherwise = int(judged.read_otherwise.sum())
    if read_otherwise:
        lines.append(f"{read_otherwise} games have another official verdict (--verdict official)")
    if pool.bench.judges:
        for judge, identity in identities.items():
            known = judged.settings == (protocol.digest(identity) if identity else None)
            models = sorted(judged.model[(judged.judge == judge) & ~known].unique())
            if models:
                lines.append(
                    f"no record tells with which settings {judge} judged {', '.join(models[:5])}"
                )
    return lines


def _recorded_settings(pool: Pool, judge: str) -> Record:
    """The settings that a judge's ledger records; {} where another program judged."""
    path = pool.folder.ledger(judge, pool.category)
    if not path.is_file():
        return {}
    settings, _ = read_store(path)
    return settings


def _score_columns(pool: Pool, model: str, score: stats.Estimate) -> Row:
    """A score and its interval in per cent, and the mean length of the answers if it is known."""
    of_model = pool.styles.index.get_level_values("model") == model
    tokens = pool.styles.tokens[of_model]
    return {
        "model": model,
        "score": 100 * score.value,
        "ci_low": 100 * score.low,
        "ci_high": 100 * score.high,
        "mean_tokens": float(tokens.mean()) if tokens.notna().any() else None,
    }


def _counts(counted: pd.DataFrame, expected: int) -> Row:
    """A model's questions and games, and how many games are missing."""
    return {
        "questions": counted.uid.nunique(),
        "games_won": int((counted.points == 1.0).sum()),
        "games_lost": int((counted.points == 0.0).sum()),
        "games_tied": int((counted.points == 0.5).sum()),
        "games_missing": expected - len(counted),
    }
