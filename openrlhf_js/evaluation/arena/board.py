"""Leaderboards: a row for each model, with what was counted and the worst case."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from openrlhf_js import stats
from openrlhf_js.common.store import Record, read_store
from openrlhf_js.evaluation.arena import notes, protocol
from openrlhf_js.evaluation.arena.pool import Pool
from openrlhf_js.evaluation.arena.score import (
    LEVELS,
    MARGINS,
    Plan,
    games,
    scores_and_notes,
)

CLUSTERED_LEVELS = (0.025, 0.975)
Row = dict[str, Any]  # one of a board, for JSON


class Board(NamedTuple):
    """A leaderboard: a row for each model, the best first, and what to know of it."""

    title: str
    interval: str  # in words
    baseline: str
    rows: list[Row]
    notes: list[str]


class _Scored(NamedTuple):
    """What one board is about."""

    pool: Pool
    judges: Sequence[str]
    plan: Plan
    judged: pd.DataFrame  # the judgments of these judges
    games: pd.DataFrame  # those of them that count


def board(pool: Pool, judges: Sequence[str], plan: Plan, models: Sequence[str] = ()) -> Board:
    """Scores what these judges judged, together; style is fitted over all models, shown or not."""
    scored = _scored(pool, judges, plan)
    judged = scored.judged
    shown = [name for name in sorted(judged.model.unique()) if not models or name in models]
    if scored.games.empty or not shown:
        raise _nothing_to_show(scored, models)
    recorded = _recorded_settings(pool, judges)
    deviations = protocol.deviations(
        bench=pool.bench,
        category=pool.category,
        judges=list(judges),
        recorded=recorded,
        judged=judged[judged.model.isin(shown)],
        much_weight=plan.much_weight,
    )
    scores, lines = scores_and_notes(pool, scored.games, plan)
    shared = _shared_columns(scored, deviations)
    rows = []
    for model in shown:
        if model in scores:
            rows.append(shared | _score_columns(model, scores[model]) | _counts(scored, model))
    lines += notes.of_scores(rows, shown)
    if plan.style_control == "none":
        judge_model = recorded.get(judges[0], {}).get("judge_model", judges[0])
        lines += notes.of_the_floor(judge_model, scored.games, rows)
    lines += notes.of_the_protocol(deviations, plan.much_weight, pool.rule)
    lines += notes.of_missing_games(rows)
    lines += notes.of_sides(judging(judged))
    rows.append(_baseline_row(pool, shared))
    return Board(
        title=_title(scored),
        interval=_interval_in_words(plan, pool.bench.rule),
        baseline=pool.baseline,
        rows=sorted(rows, key=lambda row: (-row["score"], row["model"])),
        notes=lines,
    )


def _scored(pool: Pool, judges: Sequence[str], plan: Plan) -> _Scored:
    """The judgments of these judges, and their games that count."""
    judged = pool.judged[pool.judged.judge.isin(list(judges))]
    every_verdict_counts = plan.ci == "official" and pool.bench.rule == "v0.1"
    counted = games(judged, plan.much_weight, both=not every_verdict_counts)
    return _Scored(
        pool=pool,
        judges=judges,
        plan=plan,
        judged=judged,
        games=counted,
    )


def _nothing_to_show(scored: _Scored, models: Sequence[str]) -> ValueError:
    """Why there is no board."""
    judges = " + ".join(scored.judges)
    wanted = ", ".join(models or ["any model"])
    present = ", ".join(sorted(scored.judged.model.unique()))
    return ValueError(
        f"{judges} has no complete judgment of {wanted} in {scored.pool.category}; it judged "
        f"{present}"
    )


def _title(scored: _Scored) -> str:
    """What a board is about."""
    title = f"{scored.pool.category}, judged by {' + '.join(scored.judges)}"
    if scored.plan.style_control == "none":
        return title
    return f"{title}, style controlled"


def _recorded_settings(pool: Pool, judges: Iterable[str]) -> dict[str, Record]:
    """The settings that each judge's ledger records; none where another program judged."""
    settings = {}
    for judge in judges:
        path = pool.folder.ledger(judge, pool.category)
        if path.is_file():
            settings[judge], _ = read_store(path)
    return settings


def _levels(plan: Plan, rule: str) -> tuple[float, float]:
    """The percentiles of the intervals."""
    return LEVELS[rule] if plan.ci == "official" else CLUSTERED_LEVELS


def _interval_in_words(plan: Plan, rule: str) -> str:
    """How wide the intervals are, and what they resample."""
    low, high = _levels(plan, rule)
    unit = "question"
    if plan.ci == "official":
        unit = f"row as the script of {rule} has it (too narrow)"
    return f"{100 * (high - low):.0f} %, by {unit}"


def _shared_columns(scored: _Scored, deviations: Sequence[str]) -> Row:
    """What is the same in all rows of a board."""
    pool = scored.pool
    plan = scored.plan
    rule = pool.bench.rule
    low, high = _levels(plan, rule)
    return {
        "category": pool.category,
        "judge": " + ".join(scored.judges),
        "baseline": pool.baseline,
        "ci": f"official {rule}" if plan.ci == "official" else "clustered",
        "confidence": round(high - low, 3),
        "style_control": plan.style_control,
        "much_weight": plan.much_weight,
        "verdict": pool.rule,
        "games": int(scored.judged.held.max()),
        "questions_of_category": pool.questions,
        "deviations": deviations,
    }


def _baseline_row(pool: Pool, shared: Row) -> Row:
    """The baseline has half the points by definition."""
    half = stats.Estimate(0.5, 0.5, 0.5)
    tokens = {"mean_tokens": _mean_tokens(pool, pool.baseline)}
    return shared | _score_columns(pool.baseline, half) | tokens


def _score_columns(model: str, score: stats.Estimate) -> Row:
    """A score and its interval, in per cent."""
    return {
        "model": model,
        "score": 100 * score.value,
        "ci_low": 100 * score.low,
        "ci_high": 100 * score.high,
    }


def _counts(scored: _Scored, model: str) -> Row:
    """What is counted of a model beside its score."""
    counted = scored.games[scored.games.model == model]
    judged = scored.judged[scored.judged.model == model]
    row = judging(judged)
    row["games_read_otherwise"] = int(judged.read_otherwise.sum())
    row |= _outcomes(counted)
    row |= _missing_games(scored, model, row)
    row |= _worst_case(row, scored.plan.much_weight)
    row["mean_tokens"] = _mean_tokens(scored.pool, model)
    return row


def judging(judged: pd.DataFrame) -> Row:
    """How the judge judged: missing verdicts, the side it favours, contradictions of itself."""
    margins = judged[MARGINS].to_numpy()
    verdicts = np.isfinite(margins).sum(axis=1)
    failed = int(judged.failed.sum())
    row: Row = {
        "games_failed": failed,
        "games_without_verdict": int(judged.held.sum() - verdicts.sum()) - failed,
    }
    both = verdicts == 2
    if both.any():
        signs = np.sign(margins[both])
        contradicts = signs[:, 0] * signs[:, 1] < 0
        points_of_a = ((signs * [-1, 1]).mean(axis=1) + 1) / 2
        side = stats.clustered_proportion(points_of_a, judged.uid.to_numpy()[both])
        row["side_a"] = side.value
        row["side_a_low"] = side.low
        row["side_a_high"] = side.high
        row["contradictions"] = float(contradicts.mean())
    return row


def _outcomes(counted: pd.DataFrame) -> Row:
    """The questions that count, and the games and weighted rows that a model won, lost, tied."""
    won = counted[counted.points == 1.0]
    lost = counted[counted.points == 0.0]
    tied = counted[counted.points == 0.5]
    return {
        "questions": counted.uid.nunique(),
        "games_won": len(won),
        "games_lost": len(lost),
        "games_tied": len(tied),
        "wins": float(won.weight.sum()),
        "losses": float(lost.weight.sum()),
        "ties": float(tied.weight.sum()),
    }


def _missing_games(scored: _Scored, model: str, row: Row) -> Row:
    """How many games do not count, and why: the parts add up to `games_missing`."""
    pool = scored.pool
    judged = scored.judged[scored.judged.model == model]
    games_judged = int(judged.held.sum())
    games_counted = row["games_won"] + row["games_lost"] + row["games_tied"]
    lost_verdicts = row["games_without_verdict"] + row["games_failed"]
    games_of_question = int(judged.held.max())
    failed_answers = pool.unanswered[model] | pool.unanswered[pool.baseline]
    unanswered = 0
    for judge in scored.judges:
        judged_questions = set(judged.uid[judged.judge == judge])
        unanswered += games_of_question * len(failed_answers - judged_questions)
    expected = games_of_question * len(scored.judges) * pool.questions
    left_out = games_judged - games_counted - lost_verdicts
    not_judged = max(0, expected - games_judged - unanswered)
    return {
        "games_left_out": left_out,
        "games_unanswered": unanswered,
        "games_not_judged": not_judged,
        "games_missing": lost_verdicts + left_out + unanswered + not_judged,
        "answers_failed": len(pool.unanswered[model]),
    }


def _worst_case(row: Row, much_weight: float) -> Row:
    """The score, and what it would be if all missing games were lost, or won, by much."""
    points = row["wins"] + row["ties"] / 2
    total = row["wins"] + row["losses"] + row["ties"]
    missing = row["games_missing"] * much_weight
    return {
        "score_without_control": 100 * points / total,
        "worst_case_low": 100 * points / (total + missing),
        "worst_case_high": 100 * (points + missing) / (total + missing),
    }


def _mean_tokens(pool: Pool, model: str) -> float | None:
    """The mean length of a model's answers; None where nobody counted."""
    of_model = pool.styles.index.get_level_values("model") == model
    tokens = pool.styles.tokens[of_model]
    return float(tokens.mean()) if tokens.notna().any() else None
