"""Arena-Hard's scores as a table, a picture, and the page of every question, answer and verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markdown_it import MarkdownIt
from markupsafe import Markup

from paired_eval.arena import data
from paired_eval.arena.board import Board, Boards, Row
from paired_eval.arena.pool import Pool
from paired_eval.arena.verdicts import MARGIN_OF_A, Rule
from paired_eval.pages import figures
from paired_eval.pages.forest import Forest, ForestRow
from paired_eval.pages.pages import render, script_of
from paired_eval.pages.text import beginning, with_interval

LONGEST_MARKDOWN = 50_000  # characters of a text; longer ones are shown as they are
# Text stays text: no HTML, and links and pictures are shown as written and load nothing.
MARKDOWN = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table")
MARKDOWN.disable(["link", "autolink", "image", "reference", "entity"])
COLUMNS = ("model", "score", "questions", "games won/lost/tied", "games missing", "tokens")
# How a game ended for the model, by its margin in the game.
VERDICTS = {
    2: "the model is much better",
    1: "the model is better",
    0: "a tie",
    -1: "the baseline is better",
    -2: "the baseline is much better",
    None: "no verdict",
}
WON, LOST, TIED, NO_VERDICT, SPLIT = "won", "lost", "tied", "no verdict", "split"
KINDS = {  # of judgments, with their meaning
    WON: "the model won a game and lost none",
    LOST: "the baseline won a game and lost none",
    SPLIT: "the two games name different winners, so the judge contradicts itself",
    TIED: "no game has a winner",
    NO_VERDICT: "a game is without a verdict, so the question is in no score",
}


class ShownGame(NamedTuple):
    """A game as the page shows it; without text if the judge's call failed."""

    first_shown: str  # "baseline" or "model"
    verdict: str  # the judge's own, "" without one
    official: str  # the verdict by the official rule, if it differs
    words: str
    text: str | None


class ShownJudgment(NamedTuple):
    """The games over a model's answer to a question, and how they ended together."""

    words: str  # such as "won twice"
    kind: str  # one of KINDS
    games: list[ShownGame]


class ShownQuestion(NamedTuple):
    """A question that was judged, and how each model fared."""

    question: data.Question
    baseline: str
    models: dict[str, dict[str, ShownJudgment]]  # by model, and by judge


def cells(board: Board) -> list[dict[str, str]]:
    """A board's rows as texts for a table; a column that is empty in all rows is left out."""
    rows = [_cells(row) for row in board.rows]
    filled = [name for name in rows[0] if any(row[name] for row in rows)]
    return [{name: row[name] for name in filled} for row in rows]


def _cells(row: Row) -> dict[str, str]:
    def number(name: str) -> str:
        return "" if row.get(name) is None else f"{row[name]:.0f}"

    texts = {"model": row["model"], "tokens": number("mean_tokens")}
    if row["model"] == row["baseline"]:
        return {**dict.fromkeys(COLUMNS, ""), **texts, "score": "50.0", "questions": "baseline"}
    ended = [number(name) for name in ("games_won", "games_lost", "games_tied")]
    return {
        **dict.fromkeys(COLUMNS, ""),
        **texts,
        "score": with_interval(row["score"], row["ci_low"], row["ci_high"], ".1f"),
        "questions": f"{number('questions')} of {row['questions_of_category']}",
        "games won/lost/tied": "/".join(ended),
        "games missing": number("games_missing") if row["games_missing"] else "",
    }


def forest(board: Board) -> Forest:
    """A board's scores, with the baseline as a line."""
    scores = [row for row in board.rows if row["model"] != board.baseline]
    rows = [
        ForestRow("", row["model"], row["score"], row["ci_low"], row["ci_high"]) for row in scores
    ]
    return Forest(
        title=f"Score against {board.baseline}",
        note=f"intervals: {board.interval}",
        xlabel="score, %",
        rows=rows,
        series=list(dict.fromkeys(row.name for row in rows)),
        form=".1f",
        reference=50,
    )


def markdown(text: str) -> Markup:
    """A model's or judge's text as HTML, in which any HTML of its own is escaped."""
    if len(text) > LONGEST_MARKDOWN:
        return Markup('<pre class="plain">{}</pre>').format(text)
    return Markup(MARKDOWN.render(text))


def page(pools: Sequence[Pool], scored: Boards) -> str:
    """The page of these scores: one file that opens offline.

    The texts of models and judges stay text. A browser runs only the page's own script, which the
    page names by its hash.
    """
    baselines = {pool.baseline for pool in pools}
    models = dict.fromkeys(row["model"] for board in scored.boards for row in board.rows)
    shown = [name for name in models if name not in baselines]
    judges = list(dict.fromkeys(judge for pool in pools for judge in pool.judges))
    filters = {
        "model": shown,
        "judge": judges,
        "category": [pool.category for pool in pools],
    }
    answers = {name: data.read_answers(pools[0].folder, name) for name in {*shown, *baselines}}
    text = render(
        "arena.html",
        beginning=beginning,
        title=f"{pools[0].bench.name}, judged by {', '.join(judges)}",
        boards=[(board, cells(board), figures.page([forest(board)])) for board in scored.boards],
        compared=scored.comparisons,
        filters=filters,
        kinds=KINDS,
        questions=questions(pools, judges, shown),
        answers=answers,
        markdown=markdown,
        script=script_of("arena.js"),
    )
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def questions(
    pools: Sequence[Pool], judges: Sequence[str], models: Sequence[str]
) -> list[ShownQuestion]:
    """All questions that were judged, with the games of each model and judge."""
    folder = pools[0].folder
    baselines = {pool.category: pool.baseline for pool in pools}
    judgments = {
        (model, judge): data.read_judgments(folder.judgments(judge, model))
        for model in models
        for judge in judges
    }
    shown = []
    for uid, question in data.read_questions(folder).items():
        baseline = baselines.get(question.category, "")
        judged: dict[str, dict[str, ShownJudgment]] = {}
        for (model, judge), of_model in judgments.items():
            judgment = of_model.get(uid)
            if baseline and judgment and judgment.baseline in ("", baseline):
                judged.setdefault(model, {})[judge] = _shown(judgment, pools[0].rule)
        if judged:
            shown.append(ShownQuestion(question, baseline, judged))
    return shown


def _shown(judgment: data.Judgment, rule: Rule) -> ShownJudgment:
    """A judgment in the model's view: the model is B in the first game, and A in the second."""
    shown = []
    outcomes: Counter[str] = Counter()
    for game, first_shown in zip(judgment.games, ("baseline", "model"), strict=True):
        verdict = game.verdict(rule) if game else None
        official = game.official if game else None
        margin = MARGIN_OF_A[verdict] if verdict else None
        if margin is not None and first_shown == "baseline":
            margin = -margin
        shown_game = ShownGame(
            first_shown=first_shown,
            verdict=verdict or "",
            official=(official or NO_VERDICT) if official != verdict else "",
            words=VERDICTS[margin],
            text=game.text if game else None,
        )
        shown.append(shown_game)
        outcomes[_outcome(margin)] += 1
    kind = _kind(outcomes)
    words = [
        f"{name} {'twice' if outcomes[name] == 2 else 'once'}" for name in KINDS if outcomes[name]
    ]
    return ShownJudgment(SPLIT if kind == SPLIT else ", ".join(words), kind, shown)


def _outcome(margin: int | None) -> str:
    if margin is None:
        return NO_VERDICT
    if margin == 0:
        return TIED
    return WON if margin > 0 else LOST


def _kind(outcomes: Mapping[str, int]) -> str:
    """How the games of a question ended together."""
    if outcomes[NO_VERDICT]:
        return NO_VERDICT
    if outcomes[WON] and outcomes[LOST]:
        return SPLIT
    return next(kind for kind in (WON, LOST, TIED) if outcomes[kind])
