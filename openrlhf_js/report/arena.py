"""Arena-Hard's scores as a table, a picture, and the page of every question, answer and verdict."""

from __future__ import annotations

import base64
import hashlib
import logging
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markdown_it import MarkdownIt
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from openrlhf_js import __version__
from openrlhf_js.evaluation.arena.data import (
    Judgment,
    read_answers,
    read_judgments,
    read_questions,
)
from openrlhf_js.evaluation.arena.score import MARGIN_OF_A, Board, Pool, Row
from openrlhf_js.report import style
from openrlhf_js.report.pages import TEMPLATES, render

log = logging.getLogger(__name__)

LARGEST_BYTES = 50_000_000  # that browsers open well
LONGEST_MARKDOWN = 50_000  # characters of a text; longer ones are shown as they are
TITLE_WIDTH, NAME_WIDTH = 44, 48
# Text stays text: no HTML, and links and pictures as they are written, which load nothing.
MARKDOWN = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table")
MARKDOWN.disable(["link", "autolink", "image", "reference", "entity"])
VERDICTS = {  # by the model's margin in a game: a sign for the list of questions, and words
    2: ("++", "the model is much better"),
    1: ("+", "the model is better"),
    0: ("=", "a tie"),
    -1: ("\u2212", "the baseline is better"),
    -2: ("\u2212\u2212", "the baseline is much better"),
    None: ("?", "the judge gave no verdict"),
}
KINDS: dict[tuple[int, ...], str] = {  # by the signs of both margins, the lower one first
    (1, 1): "the model wins",
    (-1, -1): "the baseline wins",
    (-1, 1): "the games name different winners",
    (-1, 0): "a tie and a winner",
    (0, 1): "a tie and a winner",
    (0, 0): "a tie",
}
MISSING, MUCH = "a verdict is missing", "much better, in a game"


def cells(board: Board) -> list[Row]:
    """A board's rows as texts for a table."""
    missing = any(row.get("games_missing") for row in board.rows)
    return [_cells(row, row["model"] == board.baseline, missing) for row in board.rows]


def _cells(row: Row, baseline: bool, missing: bool) -> Row:
    def number(name: str, form: str = ".1f", scale: float = 1, unit: str = "") -> str:
        return "" if row.get(name) is None else f"{scale * row[name]:{form}}{unit}"

    low, high = (None, None) if baseline else (row["ci_low"], row["ci_high"])
    found = {"model": row["model"], "score": style.interval(row["score"], low, high, ".1f")}
    if row["style_control"] != "none":
        found["without control"] = number("score_without_control")
    if missing:
        worst = [number(f"worst_case_{end}") for end in ("low", "high")]
        found["worst case"] = "" if baseline else " to ".join(worst)
    won = [number(each, "g") for each in ("wins", "losses", "ties")]
    of = "baseline" if baseline else f"{row['questions']} of {row['questions_of_category']}"
    return found | {
        "win/loss/tie": "/".join(filter(None, won)),
        "questions": of,
        "contradicts": number("contradictions", scale=100, unit=" %"),
        "first shown": number("side_a", scale=100, unit=" %"),
        "tokens": number("mean_tokens", ".0f"),
    }


def as_csv(rows: Sequence[Row]) -> str:
    """Rows of boards as a table."""
    flat = [{**row, "deviations": "; ".join(row["deviations"])} for row in rows]
    return pd.DataFrame(flat).to_csv(index=False, lineterminator="\n")


def markdown(text: str) -> Markup:
    """What a model or judge wrote, as HTML that holds nothing of its own."""
    if len(text) > LONGEST_MARKDOWN:
        return Markup('<pre class="plain">{}</pre>').format(text)
    return Markup(MARKDOWN.render(text))


def image(boards: Sequence[Board], among: Sequence[Board] = ()) -> Figure:
    """The scores with their intervals, the best model on top; the baseline has 50.

    All axes are alike, and like those of the boards `among` which these are shown.
    """
    every = [_ends(row) for board in among or boards for row in board.rows]
    most = max(len(board.rows) for board in boards)
    with rc_context(style.HOUSE):
        figure = style.figure(len(boards), width=8, height=1.3 + 0.3 * most)
        for axes, board in zip(figure.axes, boards, strict=True):
            rows = board.rows[::-1]
            score, low, high = np.array([_ends(row) for row in rows]).T
            names = [style.printable(row["model"])[:NAME_WIDTH] for row in rows]
            reach, places = [score - low, high - score], range(len(rows))
            axes.errorbar(score, places, xerr=reach, fmt="o", color=style.INK)
            axes.axvline(50, color=style.INK, linewidth=1, linestyle="--")
            axes.set_yticks(places, names)
            axes.set_ylim(-0.6, len(rows) - 0.4)
            axes.set_xlim(np.nanmin(every) - 2, np.nanmax(every) + 2)
            style.dress(axes, "", f"score, per cent ({board.interval})", "")
            title = textwrap.fill(style.printable(board.title), TITLE_WIDTH)
            axes.set_title(title, loc="left", fontweight="bold", color=style.INK)
    return figure


def _ends(row: Row) -> list[float]:
    """Score and interval; NaN, which is not drawn, where there is none."""
    values = (row[name] for name in ("score", "ci_low", "ci_high"))
    return [np.nan if each is None else each for each in values]


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
    filters = {
        "model": shown,
        "judge": judges,
        "category": [pool.category for pool in pools],
        "verdict": [*dict.fromkeys(KINDS.values()), MISSING, MUCH],
    }
    text = render(
        "arena.html",
        title=f"{pools[0].bench.name}, judged by {', '.join(judges)}",
        written=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=__version__,
        boards=[(b, cells(b), style.svg_source(image([b], boards))) for b in boards],
        compared=compared,
        filters=filters,
        questions=questions(pools, judges, shown),
        markdown=markdown,
        sides=("A is the baseline", "A is the model"),
        script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    if len(text) > LARGEST_BYTES:
        log.warning("the page has %.0f MB: choose --models for a smaller one", len(text) / 1e6)
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def questions(pools: Sequence[Pool], judges: Sequence[str], models: Sequence[str]) -> list[Row]:
    """All questions that were judged, with the answers of all, and the games of each judge."""
    folder, asked = pools[0].folder, read_questions(pools[0].folder)
    against = {pool.category: pool.baseline for pool in pools}
    answers = {name: read_answers(folder, name) for name in {*models, *against.values()}}
    judged = {
        (model, judge): read_judgments(folder.judgments(judge, model))
        for model in models
        for judge in judges
    }

    def answered(uid: str, category: str) -> Iterator[Row]:
        for model in models:
            games = {judge: judged[model, judge].get(uid) for judge in judges}
            counted = {
                judge: _judged(each)
                for judge, each in games.items()
                if each and each.baseline in ("", against[category])
            }
            if counted:
                yield {"name": model, "answer": answers[model].get(uid), "judged": counted}

    found = []
    for uid, question in asked.items():
        if question.category in against and (own := [*answered(uid, question.category)]):
            name = against[question.category]
            baseline = {"name": name, "answer": answers[name].get(uid)}
            found.append({"question": question, "baseline": baseline, "models": own})
    return found


def _judged(judgment: Judgment) -> dict[str, Any]:
    """Signs, kinds and games of a judgment, as the model fared."""
    of_a = [game and MARGIN_OF_A.get(game.verdict or "") for game in judgment.games]
    margins = [None if of_a[0] is None else -of_a[0], of_a[1]]
    signs = sorted(int(np.sign(each)) for each in margins if each is not None)
    kinds = [KINDS.get(tuple(signs if all(judgment.held) else signs * 2), MISSING)]
    if any(each and abs(each) == 2 for each in margins):
        kinds.append(MUCH)
    verdicts = [VERDICTS[each] for each in margins]
    games = [
        {"verdict": game and game.verdict, "words": words, "text": game and game.text}
        for game, (_, words) in zip(judgment.games, verdicts, strict=True)
    ]
    return {"signs": " ".join(sign for sign, _ in verdicts), "kinds": kinds, "games": games}
