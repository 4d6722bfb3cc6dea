"""Arena-Hard's scores as a table, a picture, and the page of every question, answer and verdict."""

from __future__ import annotations

import base64
import hashlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import altair as alt
from markdown_it import MarkdownIt
from markupsafe import Markup

from openrlhf_js.evaluation.arena import data
from openrlhf_js.evaluation.arena.board import Board, Row
from openrlhf_js.evaluation.arena.pool import MARGIN_OF_A, Pool
from openrlhf_js.report import style
from openrlhf_js.report.pages import TEMPLATES, render

LONGEST_MARKDOWN = 50_000  # characters of a text; longer ones are shown as they are
TITLE_WIDTH = 64  # characters
# Text stays text: no HTML, and links and pictures as they are written, which load nothing.
MARKDOWN = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table")
MARKDOWN.disable(["link", "autolink", "image", "reference", "entity"])


class Verdict(NamedTuple):
    """How a game ended for the model."""

    sign: str  # for the list of questions
    words: str


VERDICTS = {  # by the model's margin in a game
    2: Verdict("++", "the model is much better"),
    1: Verdict("+", "the model is better"),
    0: Verdict("=", "a tie"),
    -1: Verdict("\u2212", "the baseline is better"),
    -2: Verdict("\u2212\u2212", "the baseline is much better"),
    None: Verdict("?", "the judge gave no verdict"),
}
TIE, WIN, LOSS = "a tie", "the model wins", "the baseline wins"
DIFFER = "the games name different winners"
MISSING = "a verdict is missing"
KINDS = (TIE, WIN, LOSS, DIFFER, MISSING)


class ShownGame(NamedTuple):
    """A game as the page has it; no text where it was not held or the judge's call failed."""

    verdict: str | None
    words: str
    text: str | None


class ShownJudgment(NamedTuple):
    """Two games over a model's answer to a question."""

    signs: str
    kind: str  # one of KINDS
    games: list[ShownGame]


class ShownAnswer(NamedTuple):
    """What a model, or the baseline, answered to a question."""

    name: str
    answer: data.ModelAnswer | None
    judged: Mapping[str, ShownJudgment]  # by judge; none of the baseline


class ShownQuestion(NamedTuple):
    """A question that was judged, with all answers."""

    question: data.Question
    baseline: ShownAnswer
    models: list[ShownAnswer]


def cells(board: Board) -> list[Row]:
    """A board's rows as texts for a table."""
    games_missing = any(row.get("games_missing") for row in board.rows)
    refused = any(row.get("games_failed") for row in board.rows)
    return [
        _cells(row, row["model"] == board.baseline, games_missing, refused) for row in board.rows
    ]


def _cells(row: Row, is_baseline: bool, games_missing: bool, refused: bool) -> Row:
    def number(name: str, form: str = ".1f") -> str:
        return "" if row.get(name) is None else f"{row[name]:{form}}"

    def share(name: str) -> str:
        return "" if row.get(name) is None else f"{100 * row[name]:.1f} %"

    texts = {"model": row["model"]}
    if is_baseline:
        texts["score"] = number("score")
    else:
        texts["score"] = style.interval(row["score"], row["ci_low"], row["ci_high"], ".1f")
    if refused:
        texts["refused"] = number("games_failed", "g")
    if row["style_control"] != "none":
        texts["without control"] = number("score_without_control")
    if games_missing:
        worst_case = f"{number('worst_case_low')} to {number('worst_case_high')}"
        texts["worst case"] = "" if is_baseline else worst_case
    outcomes = [number(name, "g") for name in ("wins", "losses", "ties")]
    texts["win/loss/tie"] = "/".join(count for count in outcomes if count)
    if is_baseline:
        texts["questions"] = "baseline"
    else:
        texts["questions"] = f"{row['questions']} of {row['questions_of_category']}"
    texts["contradicts"] = share("contradictions")
    texts["first shown"] = share("side_a")
    texts["tokens"] = number("mean_tokens", ".0f")
    return texts


def markdown(text: str) -> Markup:
    """What a model or judge wrote, as HTML that holds nothing of its own."""
    if len(text) > LONGEST_MARKDOWN:
        return Markup('<pre class="plain">{}</pre>').format(text)
    return Markup(MARKDOWN.render(text))


def image(board: Board, boards: Sequence[Board]) -> alt.LayerChart:
    """The scores with their intervals, the best model on top, over the x-axis of all boards."""
    rows = [
        {
            "model": style.printable(row["model"]),
            "score": row["score"],
            "low": row["ci_low"],
            "high": row["ci_high"],
        }
        for row in board.rows
    ]
    scale = _scale(boards)
    label = f"score, per cent ({board.interval})"
    scores = alt.Chart(alt.InlineData(values=rows)).encode(
        y=alt.Y("model:N", sort=None, title=None, axis=alt.Axis(grid=True)),
        x=alt.X("score:Q", scale=scale, title=label),
    )
    points = scores.mark_point(filled=True, size=60, color=style.INK, opacity=1)
    intervals = scores.mark_rule(color=style.INK).encode(x=alt.X("low:Q", title=label), x2="high:Q")
    even = alt.Chart(alt.InlineData(values=[{}])).mark_rule(color=style.INK, strokeDash=[5, 3])
    title = textwrap.wrap(style.printable(board.title), TITLE_WIDTH)
    return alt.layer(even.encode(x=alt.datum(50)), intervals, points).properties(
        width=560, height=alt.Step(28), title=alt.Title(title)
    )


def _scale(boards: Sequence[Board]) -> alt.Scale:
    """From the lowest to the highest end of an interval, with a margin of two points."""
    lows = [row["ci_low"] for board in boards for row in board.rows]
    highs = [row["ci_high"] for board in boards for row in board.rows]
    return alt.Scale(domain=[min(lows) - 2, max(highs) + 2], nice=False, zero=False)


def page(pools: Sequence[Pool], boards: Sequence[Board], compared: Sequence[str] = ()) -> str:
    """The page of what was scored: one file that opens offline.

    What models and judges wrote stays text, and the page's own script is the only one that a
    browser runs, by its hash.
    """
    baselines = {pool.baseline for pool in pools}
    models = dict.fromkeys(row["model"] for board in boards for row in board.rows)
    shown = [name for name in models if name not in baselines]
    judges = list(dict.fromkeys(judge for pool in pools for judge in pool.judges))
    script = TEMPLATES.get_template("arena.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    filters = {
        "model": shown,
        "judge": judges,
        "category": [pool.category for pool in pools],
        "verdict": KINDS,
    }
    text = render(
        "arena.html",
        title=f"{pools[0].bench.name}, judged by {', '.join(judges)}",
        boards=[(board, cells(board), style.svg_source(image(board, boards))) for board in boards],
        compared=compared,
        filters=filters,
        questions=questions(pools, judges, shown),
        markdown=markdown,
        sides=("A is the baseline", "A is the model"),
        script=Markup(script),
        digest=digest,
    )
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def questions(
    pools: Sequence[Pool], judges: Sequence[str], models: Sequence[str]
) -> list[ShownQuestion]:
    """All questions that were judged, with the answers of all, and the games of each judge."""
    folder = pools[0].folder
    baselines = {pool.category: pool.baseline for pool in pools}
    answers = {name: data.read_answers(folder, name) for name in {*models, *baselines.values()}}
    judgments = {
        (model, judge): data.read_judgments(folder.judgments(judge, model))
        for model in models
        for judge in judges
    }

    shown = []
    for uid, question in data.read_questions(folder).items():
        baseline = baselines.get(question.category)
        if baseline is None:
            continue
        answered = []
        for model in models:
            judged = {}
            for judge in judges:
                judgment = judgments[model, judge].get(uid)
                if judgment and judgment.baseline in ("", baseline):
                    judged[judge] = _shown(judgment)
            if judged:
                answered.append(ShownAnswer(model, answers[model].get(uid), judged))
        if answered:
            by_baseline = ShownAnswer(baseline, answers[baseline].get(uid), {})
            shown.append(ShownQuestion(question, by_baseline, answered))
    return shown


def _shown(judgment: data.Judgment) -> ShownJudgment:
    """A judgment as the model fared, which is A in the second game."""
    margins = []
    games = []
    for game, sign in zip(judgment.games, (-1, 1), strict=True):
        margin_of_a = MARGIN_OF_A.get(game.verdict or "") if game else None
        margin = None if margin_of_a is None else sign * margin_of_a
        margins.append(margin)
        shown = ShownGame(
            verdict=game.verdict if game else None,
            words=VERDICTS[margin].words,
            text=game.text if game else None,
        )
        games.append(shown)
    signs = " ".join(VERDICTS[margin].sign for margin in margins)
    kind = MISSING if judgment.missing else _kind([margin or 0 for margin in margins])
    return ShownJudgment(signs, kind, games)


def _kind(margins: Sequence[int]) -> str:
    """How two games ended together; one that was not held counts as a tie."""
    if min(margins) < 0 < max(margins):
        return DIFFER
    if max(margins) > 0:
        return WIN
    return LOSS if min(margins) < 0 else TIE
