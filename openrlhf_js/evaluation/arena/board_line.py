"""One line of a leaderboard: everything that is said of one model."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from openrlhf_js.evaluation.arena.judging import judging
from openrlhf_js.evaluation.arena.rows import Rows, Table, tally
from openrlhf_js.evaluation.arena.style_control import Styles
from openrlhf_js.uncertainty import Estimate


class Line(NamedTuple):
    """One model's figures. Scores and their ends are in per cent, all other shares in [0, 1].

    What is not known, or does not apply, is None.
    """

    model: str
    score: float
    ci_low: float | None
    ci_high: float | None
    category: str
    judge: str
    """The names of all joined by " + " where several judges are pooled."""
    judges: tuple[str, ...]
    baseline: str
    style_control: str
    ci: str
    """"clustered", "official v0.1" or "official v2.0"."""
    confidence: float
    seed: int | None
    """None where nothing is drawn."""
    rounds: int | None
    questions_of_category: int | None
    questions: int | None = None
    """With a judgment that counts."""
    wins: int | None = None
    """Weighted rows, as are losses and ties."""
    losses: int | None = None
    ties: int | None = None
    bootstrap_mean: float | None = None
    """What v2.0's script prints as the score, in per cent."""
    score_without_control: float | None = None
    score_at_equal_style: float | None = None
    """At the baseline's own style, in per cent; `score` is at the pool's mean difference."""
    equal_style_low: float | None = None
    equal_style_high: float | None = None
    judgments: int | None = None
    judgments_complete: int | None = None
    games_failed: int | None = None
    games_without_verdict: int | None = None
    share_without_verdict: float | None = None
    side_a: float | None = None
    """Share of points that went to the answer shown first; 1/2 is fair."""
    side_a_low: float | None = None
    side_a_high: float | None = None
    contradictions: float | None = None
    """Share of complete judgments whose two games name different winners."""
    contradictions_low: float | None = None
    contradictions_high: float | None = None
    tie_and_winner: float | None = None
    other_strength: float | None = None
    mean_tokens: float | None = None
    """Of the answers to the questions judged."""
    tokens_to_baseline: float | None = None
    """Their sum divided by that of the baseline's answers to the same questions."""
    protocol_followed: bool | None = None
    """Whether the official one was, as far as it is recorded; see `standing`."""
    protocol: tuple[str, ...] = ()
    """In what it was not, or what is not known."""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {**self._asdict(), "judges": list(self.judges), "protocol": list(self.protocol)}


def line_of(
    base: Line,
    score: Estimate,
    judged: Table,
    counted: Rows,
    styles: Styles,
    *,
    bootstrap_mean: float | None = None,
    at_equal_style: Estimate | None = None,
) -> Line:
    """The line of one model.

    Args:
        base: what all lines of the board share, and the model's name.
        score: in [0, 1].
        judged: its judgments.
        counted: its rows that count.
        styles: of all models.
        bootstrap_mean: in [0, 1].
        at_equal_style: in [0, 1].
    """
    won = tally(counted)
    found = judging(judged)
    side, clash, equal = found.side_a, found.contradictions, at_equal_style
    tokens, ratio = lengths(base.model, base.baseline, judged, styles)
    return base._replace(
        score=100 * score.value,
        ci_low=_percent(score.low),
        ci_high=_percent(score.high),
        questions=len(set(counted.question.tolist())),
        wins=won.wins,
        losses=won.losses,
        ties=won.ties,
        bootstrap_mean=_percent(bootstrap_mean),
        score_without_control=None if base.style_control == "none" else 100 * won.score,
        score_at_equal_style=_percent(equal and equal.value),
        equal_style_low=_percent(equal and equal.low),
        equal_style_high=_percent(equal and equal.high),
        judgments=found.judgments,
        judgments_complete=found.complete,
        games_failed=found.games_failed,
        games_without_verdict=found.games_without_verdict,
        share_without_verdict=found.share_without_verdict,
        side_a=side and side.value,
        side_a_low=side and side.low,
        side_a_high=side and side.high,
        contradictions=clash and clash.value,
        contradictions_low=clash and clash.low,
        contradictions_high=clash and clash.high,
        tie_and_winner=found.tie_and_winner,
        other_strength=found.other_strength,
        mean_tokens=tokens,
        tokens_to_baseline=ratio,
    )


def line_of_baseline(base: Line, questions: tuple[str, ...], styles: Styles) -> Line:
    """The line of the baseline, which scores 50 against itself."""
    own = styles.get(base.baseline, {})
    tokens = [own[uid].tokens for uid in questions if uid in own]
    return base._replace(
        model=base.baseline,
        mean_tokens=sum(tokens) / len(tokens) if tokens else None,
        tokens_to_baseline=1.0 if tokens else None,
    )


def lengths(
    model: str, baseline: str, judged: Table, styles: Styles
) -> tuple[float | None, float | None]:
    """Mean tokens of the model's answers that were judged, and their ratio to the baseline's."""
    uids = {judged.questions[place] for place in judged.question}
    ours, theirs = styles.get(model, {}), styles.get(baseline, {})
    tokens = [ours[uid].tokens for uid in uids if uid in ours]
    both = [(ours[uid].tokens, theirs[uid].tokens) for uid in uids if uid in ours and uid in theirs]
    of_baseline = sum(length for _, length in both)
    return (
        sum(tokens) / len(tokens) if tokens else None,
        sum(length for length, _ in both) / of_baseline if of_baseline else None,
    )


def _percent(share: float | None) -> float | None:
    return None if share is None or not math.isfinite(share) else 100 * share
