"""Arena-Hard's scores as a table, a picture, and the page of every question, answer and verdict."""

from __future__ import annotations

import base64
import hashlib
import textwrap
import time
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from markdown_it import MarkdownIt
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from openrlhf_js import __version__
from openrlhf_js.evaluation.arena import data
from openrlhf_js.evaluation.arena.board import Board, Row
from openrlhf_js.evaluation.arena.pool import MARGIN_OF_A, Pool
from openrlhf_js.report import style
from openrlhf_js.report.pages import TEMPLATES, render

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
KINDS = ("a tie", "the model wins", "the baseline wins")  # by the sign of a judgment's points
DIFFER = "the games name different winners"
MISSING = "a verdict is missing"


def cells(board: Board) -> list[Row]:
    """A board's rows as texts for a table."""
    missing = any(row.get("games_missing") for row in board.rows)
    refused = any(row.get("games_failed") for row in board.rows)
    return [_cells(row, row["model"] == board.baseline, missing, refused) for row in board.rows]


def _cells(row: Row, baseline: bool, missing: bool, refused: bool) -> Row:
    def number(name: str, form: str = ".1f", scale: float = 1, unit: str = "") -> str:
        return "" if row.get(name) is None else f"{scale * row[name]:{form}}{unit}"

    low, high = (None, None) if baseline else (row["ci_low"], row["ci_high"])
    found = {"model": row["model"], "score": style.interval(row["score"], low, high, ".1f")}
    if refused:
        found["refused"] = number("games_failed", "g")
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


def markdown(text: str) -> Markup:
    """What a model or judge wrote, as HTML that holds nothing of its own."""
    if len(text) > LONGEST_MARKDOWN:
        return Markup('<pre class="plain">{}</pre>').format(text)
    return Markup(MARKDOWN.render(text))


def image(board: Board, among: Sequence[Board]) -> Figure:
    """The scores with their intervals, the best model on top, over the x-axis of all boards."""
    ends = itemgetter("score", "ci_low", "ci_high")
    every = [ends(row) for each in among for row in each.rows]
    rows = board.rows[::-1]
    score, low, high = np.array([ends(row) for row in rows]).T
    with rc_context(style.HOUSE):
        figure = style.figure(width=8, height=1.3 + 0.3 * len(rows))
        axes, places = figure.axes[0], range(len(rows))
        axes.errorbar(score, places, xerr=[score - low, high - score], fmt="o", color=style.INK)
        axes.axvline(50, color=style.INK, linewidth=1, linestyle="--")
        axes.set_yticks(places, [style.printable(row["model"])[:NAME_WIDTH] for row in rows])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlim(np.min(every) - 2, np.max(every) + 2)
        style.dress(axes, "", f"score, per cent ({board.interval})", "")
        title = textwrap.fill(style.printable(board.title), TITLE_WIDTH)
        axes.set_title(title, loc="left", fontweight="bold", color=style.INK)
    return figure


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
        "verdict": [*KINDS, DIFFER, MISSING],
    }
    text = render(
        "arena.html",
        title=f"{pools[0].bench.name}, judged by {', '.join(judges)}",
        written=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=__version__,
        boards=[(b, cells(b), style.svg_source(image(b, boards))) for b in boards],
        compared=compared,
        filters=filters,
        questions=questions(pools, judges, shown),
        markdown=markdown,
        sides=("A is the baseline", "A is the model"),
        script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def questions(pools: Sequence[Pool], judges: Sequence[str], models: Sequence[str]) -> list[Row]:
    """All questions that were judged, with the answers of all, and the games of each judge."""
    folder, asked = pools[0].folder, data.read_questions(pools[0].folder)
    against = {pool.category: pool.baseline for pool in pools}
    answers = {name: data.read_answers(folder, name) for name in {*models, *against.values()}}
    judged = {
        (model, judge): data.read_judgments(folder.judgments(judge, model))
        for model in models
        for judge in judges
    }

    found = []
    for uid, question in asked.items():
        name, own = against.get(question.category), []
        for model in models if name else ():
            games = {judge: judged[model, judge].get(uid) for judge in judges}
            counted = {j: _judged(each) for j, each in games.items()
                       if each and each.baseline in ("", name)}  # fmt: skip
            if counted:
                own.append({"name": model, "answer": answers[model].get(uid), "judged": counted})
        if name and own:
            baseline = {"name": name, "answer": answers[name].get(uid)}
            found.append({"question": question, "baseline": baseline, "models": own})
    return found


def _judged(judgment: data.Judgment) -> dict[str, Any]:
    """Signs, kind and games of a judgment, as the model fared."""
    of_a = [game and MARGIN_OF_A.get(game.verdict or "") for game in judgment.games]
    margins = [None if of_a[0] is None else -of_a[0], of_a[1]]
    signs = sorted(int(np.sign(each)) for each in margins if each is not None)
    kind = DIFFER if signs == [-1, 1] else KINDS[int(np.sign(sum(signs)))]
    kind = MISSING if judgment.missing else kind
    verdicts = [VERDICTS[each] for each in margins]
    games = [
        {"verdict": game and game.verdict, "words": words, "text": game and game.text}
        for game, (_, words) in zip(judgment.games, verdicts, strict=True)
    ]
    return {"signs": " ".join(sign for sign, _ in verdicts), "kind": kind, "games": games}
