"""What to know of a leaderboard, in sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from openrlhf_js import stats
from openrlhf_js.evaluation.arena import data
from openrlhf_js.evaluation.arena.score import clustered
from openrlhf_js.evaluation.arena.verdicts import Rule

FLOOR = 5.0  # a score below it says little of a change
NORMAL_95 = 1.96  # standard errors to either end of a 95 % interval
MISSING = {  # columns of games that do not count, and why
    "games_without_verdict": "without a verdict",
    "games_failed": "refused or failed",
    "games_left_out": "left out, as their question's other game is missing",
    "games_unanswered": "without an answer to judge",
    "games_not_judged": "not judged",
}
RULES: dict[Rule, str] = {
    "stated": "A verdict is the last that the judge states, not a label that it lists or quotes.",
    "official": "A verdict is the last label of the judge's text, stated or not (official rule).",
}
Row = Mapping[str, Any]  # one of a board, of a model


def of_scores(rows: Sequence[Row], shown: Sequence[str]) -> list[str]:
    """Which models have no score."""
    scored = [row["model"] for row in rows]
    without_score = [model for model in shown if model not in scored]
    if not without_score:
        return []
    return [f"No score: {', '.join(without_score)}."]


def of_the_floor(judge: str, games: pd.DataFrame, rows: Sequence[Row]) -> list[str]:
    """For weak models: which change would be missed, and how to see smaller ones."""
    weak = [row["model"] for row in rows if row["score"] < FLOOR]
    if not weak:
        return []
    changes = []
    for model in weak:
        points = _detectable_points(games[games.model == model])
        changes.append(f"{model} {points:.1f}")
    stronger = [row for row in rows if row["model"] not in weak]
    nearest = "NEARER"
    if stronger:
        nearest = min(stronger, key=lambda row: row["score"])["model"]
    judge_name = f"{data.file_name(judge)}-{nearest}"
    return [
        "Near the floor, where a change of fewer points than these is hardly found: "
        f"{', '.join(changes)}. A nearer baseline shows smaller ones: judge and score again with "
        f"--baseline {nearest}, and with --judge_name {judge_name} (score: --judge {judge_name}). "
        "All games are asked anew; --dry_run says what they cost."
    ]


def _detectable_points(games: pd.DataFrame) -> float:
    """The difference of two scores like this one that would be found, in points."""
    score = clustered(games)
    standard_error = (score.high - score.low) / 2 / NORMAL_95
    degrees_of_freedom = 2 * games.uid.nunique() - 2
    return 100 * stats.detectable_effect(math.sqrt(2) * standard_error, degrees_of_freedom)


def of_the_protocol(deviations: Sequence[str], much_weight: float, rule: Rule) -> list[str]:
    """What a score is a share of, how verdicts were read, and whether judging was official."""
    rows = (
        f"A game counts as one row, a much better answer as {much_weight:g}; the score is the "
        f"share of rows won, ties as half. {RULES[rule]}"
    )
    if deviations:
        return [rows, f"Not the official protocol: {'; '.join(deviations)}."]
    return [rows, "The official protocol was followed."]


def of_missing_games(rows: Sequence[Row]) -> list[str]:
    """For each model with missing games, how many and why; the reasons add up."""
    lines = []
    for row in rows:
        missing = row["games_missing"]
        if not missing:
            continue
        games = missing + row["games_won"] + row["games_lost"] + row["games_tied"]
        reasons = [f"{row[name]} {reason}" for name, reason in MISSING.items() if row[name]]
        why = ", ".join(reasons)
        lines.append(f"{row['model']}: {missing} of {games} games are missing: {why}.")
    if lines:
        lines.append("The worst case is the score if all of them were lost, or won, by much.")
    return lines


def of_sides(judged: Row) -> list[str]:
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
