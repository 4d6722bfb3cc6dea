"""Leaderboards: a row for each model, worst cases, and what to know of them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from openrlhf_js import stats
from openrlhf_js.common.store import Record, read_store
from openrlhf_js.evaluation.arena import data, protocol
from openrlhf_js.evaluation.arena.pool import Pool
from openrlhf_js.evaluation.arena.score import (
    LEVELS,
    MARGINS,
    Plan,
    clustered,
    games,
    scores_and_notes,
)

FLOOR = 5.0  # a score below it says little of a change
CLUSTERED_LEVELS = (0.025, 0.975)
NORMAL_95 = 1.96  # standard errors to either end of a 95 % interval
MISSING = {  # columns of games that do not count, and why
    "games_without_verdict": "without a verdict",
    "games_failed": "refused or failed",
    "games_left_out": "left out, as their question's other game is missing",
    "games_unanswered": "without an answer to judge",
    "games_not_judged": "not judged",
}
Row = dict[str, Any]  # one of a board, for JSON


class Board(NamedTuple):
    """A leaderboard: a row for each model, the best first, and what to know of it."""

    title: str
    interval: str  # in words
    baseline: str
    rows: list[Row]
    notes: list[str]


def board(pool: Pool, judges: Sequence[str], plan: Plan, models: Sequence[str] = ()) -> Board:
    """Scores what these judges judged, together; style is fitted over all models, shown or not."""
    by_these_judges = pool.judged.judge.isin(list(judges))
    judged = pool.judged[by_these_judges]
    every_verdict_counts = plan.ci == "official" and pool.bench.rule == "v0.1"
    rows = games(judged, plan.much_weight, both=not every_verdict_counts)
    shown = [name for name in sorted(judged.model.unique()) if not models or name in models]
    if rows.empty or not shown:
        raise _nothing_to_show(pool, judges, judged, models)
    scores, notes = scores_and_notes(pool, rows, plan)
    without_score = [model for model in shown if model not in scores]
    if without_score:
        notes.append(f"No score: {', '.join(without_score)}.")
    recorded = _recorded_settings(pool, judges)
    deviations = protocol.deviations(
        bench=pool.bench,
        category=pool.category,
        judges=list(judges),
        recorded=recorded,
        judged=judged[judged.model.isin(shown)],
        much_weight=plan.much_weight,
    )
    shared = _shared_columns(pool, judges, plan, int(judged.held.max()), deviations)
    model_rows: list[Row] = []
    for model in shown:
        if model in scores:
            model_rows.append(shared | _model_row(pool, judges, plan, model, judged, rows))
            model_rows[-1] |= _score_columns(model, scores[model])
    if plan.style_control == "none":
        judge_model = recorded.get(judges[0], {}).get("judge_model", judges[0])
        points = {row["model"]: row["score"] for row in model_rows}
        notes += _floor_notes(pool, judge_model, rows, points)
    notes.append(
        f"A game counts as one row, a much better answer as {plan.much_weight:g}; the score is the "
        "share of rows won, ties as half."
    )
    notes += _protocol_notes(deviations)
    notes += _missing_notes(model_rows)
    notes += _side_notes(judging(judged))
    all_rows = [_baseline_row(pool, shared), *model_rows]
    return Board(
        title=_title(pool, judges, plan),
        interval=_interval_in_words(plan, pool.bench.rule),
        baseline=pool.baseline,
        rows=sorted(all_rows, key=lambda row: (-row["score"], row["model"])),
        notes=notes,
    )


def _model_row(
    pool: Pool,
    judges: Sequence[str],
    plan: Plan,
    model: str,
    judged: pd.DataFrame,
    rows: pd.DataFrame,
) -> Row:
    """What is known of a model beside its score."""
    counted = rows[rows.model == model]
    counts = _counts(counted)
    missing = _missing_games(pool, model, judged[judged.model == model], len(counted), judges)
    worst_case = _worst_case(counts, missing["games_missing"], plan.much_weight)
    return {**counts, **missing, **worst_case, "mean_tokens": _mean_tokens(pool, model)}


def _nothing_to_show(
    pool: Pool, judges: Sequence[str], judged: pd.DataFrame, models: Sequence[str]
) -> ValueError:
    wanted = ", ".join(models or ["any model"])
    present = ", ".join(sorted(judged.model.unique()))
    return ValueError(
        f"{' + '.join(judges)} has no complete judgment of {wanted} in {pool.category}; it judged "
        f"{present}"
    )


def _title(pool: Pool, judges: Sequence[str], plan: Plan) -> str:
    title = f"{pool.category}, judged by {' + '.join(judges)}"
    return title if plan.style_control == "none" else f"{title}, style controlled"


def _mean_tokens(pool: Pool, model: str) -> float | None:
    """The mean length of a model's answers; None where nobody counted."""
    tokens = pool.styles.tokens[pool.styles.index.get_level_values("model") == model]
    return float(tokens.mean()) if tokens.notna().any() else None


def _baseline_row(pool: Pool, shared: Row) -> Row:
    """The baseline has half the points by definition."""
    return {
        "model": pool.baseline,
        "score": 50.0,
        "ci_low": 50.0,
        "ci_high": 50.0,
        **shared,
        "mean_tokens": _mean_tokens(pool, pool.baseline),
    }


def _recorded_settings(pool: Pool, judges: Iterable[str]) -> dict[str, Record]:
    """The settings that each judge's ledger records; none where another program judged."""
    settings = {}
    for judge in judges:
        path = pool.folder.ledger(judge, pool.category)
        if path.is_file():
            settings[judge], _ = read_store(path)
    return settings


def _levels(plan: Plan, rule: str) -> tuple[float, float]:
    return LEVELS[rule] if plan.ci == "official" else CLUSTERED_LEVELS


def _interval_in_words(plan: Plan, rule: str) -> str:
    low, high = _levels(plan, rule)
    unit = "question"
    if plan.ci == "official":
        unit = f"row as the script of {rule} has it (too narrow)"
    return f"{100 * (high - low):.0f} %, by {unit}"


def _shared_columns(
    pool: Pool, judges: Sequence[str], plan: Plan, held: int, deviations: Sequence[str]
) -> Row:
    """What is the same in all rows of a board."""
    rule = pool.bench.rule
    low, high = _levels(plan, rule)
    return {
        "category": pool.category,
        "judge": " + ".join(judges),
        "baseline": pool.baseline,
        "ci": f"official {rule}" if plan.ci == "official" else "clustered",
        "confidence": round(high - low, 3),
        "style_control": plan.style_control,
        "much_weight": plan.much_weight,
        "games": held,
        "questions_of_category": pool.questions,
        "deviations": deviations,
    }


def _score_columns(model: str, score: stats.Estimate) -> Row:
    return {
        "model": model,
        "score": 100 * score.value,
        "ci_low": 100 * score.low,
        "ci_high": 100 * score.high,
    }


def _counts(counted: pd.DataFrame) -> Row:
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


def _missing_games(
    pool: Pool, model: str, judged: pd.DataFrame, counted: int, judges: Sequence[str]
) -> Row:
    """Why games of a model do not count; the parts add up to `games_missing`."""
    row = judging(judged)
    games_judged = int(judged.held.sum())
    row["games_left_out"] = (
        games_judged - counted - row["games_without_verdict"] - row["games_failed"]
    )
    held = int(judged.held.max())
    failed_answers = pool.unanswered[model] | pool.unanswered[pool.baseline]
    unanswered = 0
    for judge in judges:
        judged_questions = set(judged.uid[judged.judge == judge])
        unanswered += held * len(failed_answers - judged_questions)
    expected = held * len(judges) * pool.questions
    row["games_unanswered"] = unanswered
    row["games_not_judged"] = max(0, expected - games_judged - unanswered)
    row["games_missing"] = sum(row[name] for name in MISSING)
    row["answers_failed"] = len(pool.unanswered[model])
    return row


def _worst_case(counts: Row, missing: int, much_weight: float) -> Row:
    """The score, and what it would be if all missing games were lost, or won, by much."""
    points = counts["wins"] + counts["ties"] / 2
    total = counts["wins"] + counts["losses"] + counts["ties"]
    missing_weight = missing * much_weight
    return {
        "score_without_control": 100 * points / total,
        "worst_case_low": 100 * points / (total + missing_weight),
        "worst_case_high": 100 * (points + missing_weight) / (total + missing_weight),
    }


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
        points_of_a = ((signs * [-1, 1]).mean(axis=1) + 1) / 2
        side = stats.clustered_proportion(points_of_a, judged.uid.to_numpy()[both])
        row["side_a"] = side.value
        row["side_a_low"] = side.low
        row["side_a_high"] = side.high
        row["contradictions"] = float((signs[:, 0] * signs[:, 1] < 0).mean())
    return row


def _floor_notes(
    pool: Pool, judge: str, rows: pd.DataFrame, scores: Mapping[str, float]
) -> list[str]:
    """For weak models: which change would be missed, and how to see smaller ones."""
    weak = [model for model, score in scores.items() if score < FLOOR]
    if not weak:
        return []
    changes = [f"{model} {_detectable_points(rows[rows.model == model]):.1f}" for model in weak]
    stronger = [model for model in scores if model not in weak]
    nearest = min(stronger, key=lambda model: scores[model], default="NEARER")
    judge_name = f"{data.file_name(judge)}-{nearest}"
    program = ["openrlhf-js", "eval", "arena"]
    place = ["--data", str(pool.folder.root.parent), "--bench", pool.folder.bench]
    place += ["--category", pool.category, "--baseline", nearest]
    ask = [*program, "judge", *place, "--models", *weak, "--judge", judge]
    ask += ["--judge_name", judge_name]
    return [
        "Near the floor, where a change of fewer points than these is hardly found: "
        f"{', '.join(changes)}. A nearer baseline shows smaller ones. All games are asked anew; "
        "--dry_run says what they cost. Judge, with the --settings, --url and --key_env of before, "
        "and score:",
        shlex.join(ask),
        shlex.join([*program, "score", *place, "--judge", judge_name]),
    ]


def _detectable_points(rows: pd.DataFrame) -> float:
    """The difference of two scores like this one that would be found, in points."""
    score = clustered(rows)
    standard_error = (score.high - score.low) / 2 / NORMAL_95
    degrees_of_freedom = 2 * rows.uid.nunique() - 2
    return 100 * stats.detectable_effect(math.sqrt(2) * standard_error, degrees_of_freedom)


def _protocol_notes(deviations: Sequence[str]) -> list[str]:
    if deviations:
        return [f"Not the official protocol: {'; '.join(deviations)}."]
    return ["The official protocol was followed."]


def _missing_notes(rows: Sequence[Row]) -> list[str]:
    """For each model with missing games, how many and why; the reasons add up."""
    notes = []
    for row in rows:
        missing = row["games_missing"]
        if not missing:
            continue
        games = missing + row["games_won"] + row["games_lost"] + row["games_tied"]
        reasons = [f"{row[name]} {reason}" for name, reason in MISSING.items() if row[name]]
        notes.append(
            f"{row['model']}: {missing} of {games} games are missing: {', '.join(reasons)}."
        )
    if notes:
        notes.append("The worst case is the score if all of them were lost, or won, by much.")
    return notes


def _side_notes(judged: Row) -> list[str]:
    """Whether the judge favours the answer that is shown first, or second."""
    low = judged.get("side_a_low", 0.5)
    high = judged.get("side_a_high", 0.5)
    if low <= 0.5 <= high:
        return []
    favoured = "first" if low > 0.5 else "second"
    return [
        f"The judge favours the answer shown {favoured}: {100 * judged['side_a']:.1f} % "
        f"({100 * low:.1f} to {100 * high:.1f}) of points go to the one shown first."
    ]
