"""Scores as files, a picture, and the page with every question, answer and verdict.

What models and judges wrote is packed (JSON, gzip, base64), so that no text can end the element
that holds it, and shown with `textContent` by the page's own script, the only one that a browser
runs, by its hash.
"""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import json
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, select_autoescape
from matplotlib import rc_context
from matplotlib.figure import Figure

from openrlhf_js import __version__
from openrlhf_js.common.console import visible
from openrlhf_js.evaluation.arena.data import (
    Folder,
    ModelAnswer,
    read_answers,
    read_judgments,
    read_questions,
)
from openrlhf_js.evaluation.arena.score import Board, Pool, Row

log = logging.getLogger(__name__)

TEMPLATES = Path(__file__).parent / "templates"
LARGEST_BYTES = 20_000_000  # that browsers open well
GROUP = 50  # questions that are unpacked together
TITLE = 120  # characters of a question in the list
SHOWN_MODELS = 60
NAME_WIDTH = 36
INK, GRID = "#37352f", "#e3e2e0"
KEY = (
    "score: per cent of weighted rows won against the baseline, ties as half; first shown: share "
    "of points that went to the answer shown first, 50 % is fair; contradicts: share of judgments "
    "whose two games name different winners; tokens: mean length of the answers, and times the "
    "baseline's."
)


def cells(board: Board) -> list[Row]:
    """A board's rows as texts for a table."""
    missing = any(row.get("games_missing") for row in board.rows)
    return [_cells(row, row["model"] == board.baseline, missing) for row in board.rows]


def _cells(row: Row, baseline: bool, missing: bool) -> Row:
    def number(name: str, digits: int = 1) -> str:
        return "" if row.get(name) is None else f"{row[name]:.{digits}f}"

    def ends(low: str, high: str) -> str:
        known = row.get(low) is not None and row.get(high) is not None
        return f"{number(low)} to {number(high)}" if known else "not known"

    def share(name: str) -> str:
        return "" if row.get(name) is None else f"{100 * row[name]:.1f} %"

    found = {"model": row["model"], "score": number("score"), "interval": "baseline"}
    if row["style_control"] != "none":
        found["without control"] = number("score_without_control")
        found["equal style"] = number("score_at_equal_style")
    if missing:
        found["worst case"] = "" if baseline else ends("worst_case_low", "worst_case_high")
    found |= {"win/loss/tie": "", "questions": ""}
    if not baseline:
        found["interval"] = ends("ci_low", "ci_high")
        found["win/loss/tie"] = "/".join(f"{row[each]:g}" for each in ("wins", "losses", "ties"))
        found["questions"] = f"{row['questions']} of {row['questions_of_category']}"
    found |= {"contradicts": share("contradictions"), "first shown": share("side_a")}
    ratio = f" ({number('tokens_to_baseline', 2)})" if row.get("tokens_to_baseline") else ""
    return {**found, "tokens": number("mean_tokens", 0) + ("" if baseline else ratio)}


def as_json(boards: Sequence[Board]) -> str:
    """Every row of every board."""
    rows = [row for board in boards for row in board.rows]
    return json.dumps(rows, indent=1, allow_nan=False) + "\n"


def as_csv(boards: Sequence[Board]) -> str:
    """The same as CSV; a text that a spreadsheet would take for a formula gets a ' before it."""

    def plain(value: Any) -> Any:
        text = "; ".join(value) if isinstance(value, list) else value
        return (
            f"'{text}" if isinstance(text, str) and text.startswith(("=", "+", "-", "@")) else text
        )

    rows = [row for board in boards for row in board.rows]
    text = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: plain(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def forest(boards: Sequence[Board]) -> Figure:
    """The scores with their intervals, the best model on top; the diamond is the baseline."""
    heights = [0.9 + 0.3 * min(len(board.rows), SHOWN_MODELS) for board in boards]
    figure = Figure(figsize=(8, sum(heights)), layout="constrained")
    grid = figure.subplots(len(boards), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, board in zip(grid, boards, strict=True):
        rows = board.rows[:SHOWN_MODELS][::-1]
        for place, row in enumerate(rows):
            baseline = row["model"] == board.baseline
            if not baseline and row["ci_low"] is not None and row["ci_high"] is not None:
                axes.plot([row["ci_low"], row["ci_high"]], [place] * 2, color=INK)
            face = "white" if baseline else INK
            axes.plot(row["score"], place, "D" if baseline else "o", color=INK, mfc=face)
        axes.axvline(50, color=INK, linewidth=1, linestyle="--")
        names = [visible(row["model"])[:NAME_WIDTH] for row in rows]
        axes.set_yticks(range(len(rows)), names)
        axes.set_xlabel(f"score, per cent ({board.interval})")
        title = visible(board.title)
        axes.set_title(title, loc="left", fontsize=min(12.0, 800 / len(title)))
        axes.grid(axis="x", color=GRID, linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def image(boards: Sequence[Board], kind: str) -> bytes:
    """The picture of `forest` as PNG or SVG, the same bytes for the same scores."""
    made = io.BytesIO()
    with rc_context({"svg.hashsalt": "arena", "svg.fonttype": "none", "text.parse_math": False}):
        dates: Any = {"Date": None} if kind == "svg" else {}
        forest(boards).savefig(made, format=kind, dpi=150, metadata=dates)
    return made.getvalue()


def page_of(pools: Sequence[Pool], boards: Sequence[Board], compared: Sequence[str]) -> str:
    """The page of what was scored."""
    baselines = {pool.baseline for pool in pools}
    models = dict.fromkeys(row["model"] for board in boards for row in board.rows)
    data = questions_of(pools[0].folder, pools, [name for name in models if name not in baselines])
    heading = f"{pools[0].bench.name}, judged by {', '.join(data['judges'])}"
    return page(heading, boards, data, compared)


def page(heading: str, boards: Sequence[Board], data: Row, compared: Sequence[str] = ()) -> str:
    """The page: one file that opens offline.

    Args:
        data: of `questions_of`.
    """
    script = (TEMPLATES / "arena.js").read_text("utf-8")
    pictures = [base64.b64encode(image([board], "svg")).decode() for board in boards]
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=select_autoescape(), trim_blocks=True
    )
    text = environment.get_template("arena.html").render(
        heading=heading,
        written=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=__version__,
        boards=[(board, cells(board), each) for board, each in zip(boards, pictures, strict=True)],
        compared=compared,
        key=KEY,
        packed=packed(data),
        style=(TEMPLATES / "arena.css").read_text("utf-8"),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    if len(text) > LARGEST_BYTES:
        log.warning("the page has %.0f MB: choose --models for a smaller one", len(text) / 1e6)
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def questions_of(folder: Folder, pools: Sequence[Pool], models: Sequence[str]) -> Row:
    """The questions that one of the models was judged on, with all texts, for JSON.

    Each has uid, category, cluster, prompt, baseline {name, text, thinking} and models {place of
    the model: {text, thinking, judged: {place of the judge: [game, game]}}}; a game is [verdict,
    text], or None if it failed.
    """
    asked = read_questions(folder)
    judges = list(dict.fromkeys(judge for pool in pools for judge in pool.judges))
    baselines = {pool.category: pool.baseline for pool in pools}
    answers = {name: read_answers(folder, name) for name in {*models, *baselines.values()}}
    found: dict[str, Row] = {}
    for place, model in enumerate(models):
        for number, judge in enumerate(judges):
            for uid, each in read_judgments(folder.judgments(judge, model)).items():
                against = baselines.get(each.category, "")
                if uid not in asked or not against or (each.baseline or against) != against:
                    continue
                question = found.setdefault(
                    uid,
                    asked[uid]._asdict()
                    | {"baseline": {"name": against, **_answer(answers[against].get(uid))}}
                    | {"models": {}},
                )
                own = question["models"].setdefault(
                    str(place), {**_answer(answers[model].get(uid)), "judged": {}}
                )
                own["judged"][str(number)] = [game and list(game) for game in each.games]
    ordered = [found[uid] for uid in asked if uid in found]
    return {"models": list(models), "judges": judges, "questions": ordered}


def _answer(of: ModelAnswer | None) -> dict[str, str | None]:
    return {"text": None} if of is None else {"text": of.text, "thinking": of.thinking}


def packed(data: Row) -> dict[str, str]:
    """By name, the listing that filters need, and the texts in groups of questions."""
    entries, texts = [], []
    for question in data["questions"]:
        own = question["models"]
        shown = {place: _sides(each["judged"], 0) for place, each in own.items()}
        entries.append(
            {
                **{name: question[name] for name in ("uid", "category", "cluster")},
                "title": " ".join(question["prompt"][: 4 * TITLE].split())[:TITLE],
                "baseline": question["baseline"]["name"],
                "models": shown,
            }
        )
        texts.append(
            {
                "prompt": question["prompt"],
                "baseline": question["baseline"],
                "models": {
                    place: {**each, "judged": _sides(each["judged"], 1)}
                    for place, each in own.items()
                },
            }
        )
    index = {"models": data["models"], "judges": data["judges"], "group": GROUP}
    groups = [texts[start : start + GROUP] for start in range(0, len(texts), GROUP)]
    return {
        "listing": _pack({**index, "questions": entries}),
        **{f"texts-{number}": _pack(group) for number, group in enumerate(groups)},
    }


def _sides(judged: Mapping[str, Sequence[Any]], part: int) -> Row:
    """Verdicts (0) or texts (1) of the games by judge; None where a game failed."""
    return {
        judge: [None if game is None else game[part] for game in games]
        for judge, games in judged.items()
    }


def _pack(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(text, 6, mtime=0)).decode()
