"""What an arena found: rows for a table, and plain words."""

from __future__ import annotations

from collections.abc import Sequence

from openrlhf_js.evaluation.arena.board_line import Line
from openrlhf_js.evaluation.arena.compare import Comparison
from openrlhf_js.evaluation.arena.leaderboard import Board
from openrlhf_js.uncertainty import Estimate

Row = tuple[str, ...]
COLUMNS = (
    "model",
    "score",
    "interval",
    "win/loss/tie",
    "questions",
    "no verdict",
    "contradicts",
    "first shown",
    "tokens",
)
SHORT = ("model", "score", "interval", "questions", "tokens")
SHORT_CONTROLLED = ("model", "score", "interval", "without control", "equal style")
"""The columns that a terminal has room for."""
KEY = (
    "score: per cent of weighted rows won against the baseline, ties as half; win/loss/tie: those "
    "rows; no verdict: share of games; contradicts: share of judgments whose two games name "
    "different winners; first shown: share of points that went to the answer shown first, 50 % is "
    "fair; tokens: mean length of the answers, and times the baseline's."
)
MUCH_SILENCE = 0.02
FEW_QUESTIONS = 30
MANY_COMPARISONS = 5
MOST = 0.98  # of a category's questions: with fewer it is said


def title(board: Board) -> str:
    """What was judged, and by whom; pooled judges are named as such."""
    pooled = "pooled judges " if len(board.judges) > 1 else ""
    control = "" if board.plan.control == "none" else f", style controlled: {board.plan.control}"
    return f"{board.category}, judged by {pooled}{' + '.join(board.judges)}{control}"


def columns(board: Board) -> Row:
    """The names of the columns of `row`."""
    if board.plan.control == "none":
        return COLUMNS
    return (*COLUMNS[:3], "without control", "equal style", *COLUMNS[3:])


def row(line: Line) -> Row:
    """One line of a board, under `columns`."""
    baseline = line.wins is None
    cells = (
        line.model,
        f"{line.score:.1f}",
        "baseline" if baseline else interval(line.ci_low, line.ci_high),
        "" if baseline else f"{line.wins}/{line.losses}/{line.ties}",
        "" if line.questions is None else _of(line.questions, line.questions_of_category),
        _share(line.share_without_verdict),
        _share(line.contradictions),
        _share(line.side_a),
        ""
        if line.mean_tokens is None
        else f"{line.mean_tokens:.0f}"
        + (
            ""
            if baseline or line.tokens_to_baseline is None
            else f" ({line.tokens_to_baseline:.2f})"
        ),
    )
    if line.style_control == "none":
        return cells
    controlled = (_score(line.score_without_control), _score(line.score_at_equal_style))
    return (*cells[:3], *controlled, *cells[3:])


def interval(low: float | None, high: float | None) -> str:
    """Both ends, such as `20.0 to 26.8`; `not known` where the data do not bound them."""
    return "not known" if low is None or high is None else f"{low:.1f} to {high:.1f}"


def in_words(boards: Sequence[Board]) -> list[list[str]]:
    """For each board what to know of its scores, and of its judges unless that was said before."""
    told: set[str] = set()
    found = []
    for board in boards:
        of_judges = [sentence for sentence in of_judging(board) if sentence not in told]
        told |= set(of_judges)
        found.append([*of_scores(board), *of_judges])
    return found


def of_scores(board: Board) -> list[str]:
    """What to know of the scores; only what the figures bear out."""
    said = [f"Intervals: {board.interval}."]
    if board.plan.interval == "official":
        said[0] += " They count rows, not questions, and are too narrow."
    few = [line.model for line in board.lines if (line.questions or FEW_QUESTIONS) < FEW_QUESTIONS]
    if few:
        said.append(f"Few questions, so take the interval with caution: {', '.join(few)}.")
    partly = [
        line.model
        for line in board.lines
        if line.questions and line.questions < MOST * (line.questions_of_category or 0)
    ]
    if partly:
        said.append(
            f"Scored on a part of the questions: {', '.join(partly)}. --compare takes those that "
            "count for both models."
        )
    if board.coefficients:
        told = ", ".join(
            f"{name} {value.value:+.3f} ({value.low:+.3f} to {value.high:+.3f})"
            for name, value in board.coefficients.items()
        )
        said.append(
            f"Style, in log-odds of one standard deviation: {told}. The score is what a model "
            "would win at the pool's mean difference of style, as in the official script; equal "
            "style is what it would win at the baseline's own."
        )
    return [*said, *board.notes]


def of_judging(board: Board) -> list[str]:
    """What to know of the judges, whatever was made of their verdicts."""
    said = [board.protocol.words()] if board.protocol else []
    found = board.judging
    if found.share_without_verdict > MUCH_SILENCE:
        said.append(
            f"{_share(found.share_without_verdict)} of all games have no verdict "
            f"({found.games_failed} failed, {found.games_without_verdict} without one): judge "
            "again to have them held."
        )
    incomplete = found.judgments - found.complete
    if incomplete and board.lines[0].ci != "official v0.1":
        said.append(
            f"{incomplete} of {found.judgments} judgments lack a verdict and are left out whole."
        )
    if (side := found.side_a) and not side.low <= 0.5 <= side.high:
        which = "first" if side.value > 0.5 else "second"
        given = f"{_estimate(side)} of points go to the one shown first"
        said.append(f"The judge favours the answer shown {which}: {given}.")
    if clash := found.contradictions:
        said.append(
            f"The two games of a question name different winners in {_estimate(clash)} of "
            f"judgments; in {_share(found.tie_and_winner)} one alone is a tie."
        )
    return said


def compared(of: Comparison, where: str) -> list[str]:
    """A paired comparison in words.

    Args:
        of: shares in [0, 1].
        where: the title of its board.
    """
    found = of.difference
    ends = (
        interval(100 * found.low, 100 * found.high)
        if abs(found.low) < float("inf")
        else "not known"
    )
    probability = "p < 0.0001" if found.p_value < 1e-4 else f"p = {found.p_value:.2g}"
    better = of.a if found.value > 0 else of.b
    verdict = (
        f"{better} is better"
        if found.p_value < 0.05
        else "these questions do not tell which one is better"
    )
    seen = (
        f"This test would have seen a difference of {100 * of.detectable:.1f} points or more, with "
        "a probability of 80 %."
        if of.detectable < float("inf")
        else "One question tells nothing of others."
    )
    said = [
        f"{where}, {of.a} against {of.b}, paired by question: {100 * of.score_a:.1f} - "
        f"{100 * of.score_b:.1f} = {100 * found.value:+.1f} points (95 %: {ends}), {probability}; "
        f"{verdict}.",
        f"On the {of.questions} questions that count for both. {seen}",
    ]
    if of.only_a or of.only_b:
        said.append(
            f"Left out are questions that count for one alone: {of.only_a} for {of.a}, "
            f"{of.only_b} for {of.b}."
        )
    return said


def by_chance(comparisons: int) -> list[str]:
    """What to know where many pairs are compared; nothing for a few."""
    if comparisons < MANY_COMPARISONS:
        return []
    return [
        f"These are {comparisons} comparisons: were all models equally good, about "
        f"{0.05 * comparisons:.2g} of them would have p < 0.05 by chance. Say beforehand which one "
        f"counts, or ask for p < {0.05 / comparisons:.2g}."
    ]


def _of(count: int, whole: int | None) -> str:
    return f"{count}" if whole in (None, count) else f"{count} of {whole}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _estimate(of: Estimate) -> str:
    return f"{100 * of.value:.1f} % ({interval(100 * of.low, 100 * of.high)})"
