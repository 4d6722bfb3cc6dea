"""Scores as files, a picture, and the page with every question, answer and verdict.

What models and judges wrote is packed (JSON, gzip, base64), so that no text can end the element
that holds it, and shown with `textContent` by the page's own script, the only one that a browser
runs, by its hash.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader
from matplotlib import rc_context
from matplotlib.figure import Figure

from openrlhf_js import __version__
from openrlhf_js.common.console import visible
from openrlhf_js.evaluation.arena.data import read_answers, read_judgments, read_questions
from openrlhf_js.evaluation.arena.score import Board, Pool, Row

log = logging.getLogger(__name__)

TEMPLATES = Path(__file__).parent / "templates"
LARGEST_BYTES = 20_000_000  # that browsers open well
SHOWN_MODELS = 60
NAME_WIDTH = 36
INK, GRID = "#37352f", "#e3e2e0"


def cells(board: Board) -> list[Row]:
    """A board's rows as texts for a table."""
    missing = any(row.get("games_missing") for row in board.rows)
    return [_cells(row, row["model"] == board.baseline, missing) for row in board.rows]


def _cells(row: Row, baseline: bool, missing: bool) -> Row:
    def number(name: str, form: str = "{:.1f}") -> str:
        return "" if row.get(name) is None else form.format(row[name])

    def ends(name: str) -> str:
        low, high = number(f"{name}_low"), number(f"{name}_high")
        return f"{low} to {high}" if low and high else "" if baseline else "not known"

    found = {"model": row["model"], "score": number("score")}
    found["interval"] = "baseline" if baseline else ends("ci")
    if row["style_control"] != "none":
        found["without control"] = number("score_without_control")
    if missing:
        found["worst case"] = ends("worst_case")
    won = [f"{row[each]:g}" for each in ("wins", "losses", "ties") if each in row]
    of = "" if baseline else f"{row['questions']} of {row['questions_of_category']}"
    found |= {"win/loss/tie": "/".join(won), "questions": of}
    found["contradicts"] = number("contradictions", "{:.1%}")
    found["first shown"] = number("side_a", "{:.1%}")
    ratio = "" if baseline else number("tokens_to_baseline", " ({:.2f})")
    return {**found, "tokens": number("mean_tokens", "{:.0f}") + ratio}


def as_csv(rows: Sequence[Row]) -> str:
    """Rows of boards as a table."""
    flat = [{**row, "deviations": "; ".join(row["deviations"])} for row in rows]
    return pd.DataFrame(flat).to_csv(index=False, lineterminator="\n")


@rc_context({"svg.hashsalt": "arena", "svg.fonttype": "none", "text.parse_math": False})
def image(boards: Sequence[Board], kind: str) -> bytes:
    """The scores with their intervals, the best model on top; the diamond is the baseline.

    PNG or SVG, the same bytes for the same scores.
    """
    heights = [0.9 + 0.3 * min(len(board.rows), SHOWN_MODELS) for board in boards]
    figure = Figure(figsize=(8, sum(heights)), layout="constrained")
    grid = figure.subplots(len(boards), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, board in zip(grid, boards, strict=True):
        rows = board.rows[:SHOWN_MODELS][::-1]
        for place, row in enumerate(rows):
            baseline = row["model"] == board.baseline
            axes.plot([row["ci_low"], row["ci_high"]], [place] * 2, color=INK)  # None: no line
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
    made = io.BytesIO()
    dates: Any = {"Date": None} if kind == "svg" else {}
    figure.savefig(made, format=kind, dpi=150, metadata=dates)
    return made.getvalue()


def page(pools: Sequence[Pool], boards: Sequence[Board], compared: Sequence[str] = ()) -> str:
    """The page of what was scored: one file that opens offline."""
    baselines = {pool.baseline for pool in pools}
    models = dict.fromkeys(row["model"] for board in boards for row in board.rows)
    judges = list(dict.fromkeys(judge for pool in pools for judge in pool.judges))
    script = (TEMPLATES / "arena.js").read_text("utf-8")
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True)
    text = environment.get_template("arena.html").render(
        heading=f"{pools[0].bench.name}, judged by {', '.join(judges)}",
        written=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=__version__,
        boards=boards,
        cells=cells,
        picture=lambda board: base64.b64encode(image([board], "svg")).decode(),
        compared=compared,
        packed=pack(pools, judges, [name for name in models if name not in baselines]),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    if len(text) > LARGEST_BYTES:
        log.warning("the page has %.0f MB: choose --models for a smaller one", len(text) / 1e6)
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def pack(pools: Sequence[Pool], judges: Sequence[str], models: Sequence[str]) -> str:
    """All questions that were judged, with answers and games: JSON, gzip, base64.

    A question's models are by their place among `models`, their judges by that among `judges`.
    """
    folder = pools[0].folder
    baselines = {pool.category: pool.baseline for pool in pools}
    answers = {name: read_answers(folder, name) for name in {*models, *baselines.values()}}
    questions = read_questions(folder)

    def answer(model: str, uid: str) -> Row:
        of = answers[model].get(uid)
        return {"text": of and of.text, "thinking": of and of.thinking}

    found: dict[str, Row] = {}
    for place, model in enumerate(models):
        for number, judge in enumerate(judges):
            for uid, each in read_judgments(folder.judgments(judge, model)).items():
                against = baselines.get(each.category)
                if uid not in questions or not against or each.baseline not in ("", against):
                    continue
                if uid not in found:
                    baseline = {"name": against, **answer(against, uid)}
                    found[uid] = questions[uid]._asdict() | {"baseline": baseline, "models": {}}
                own = found[uid]["models"]
                own.setdefault(place, {**answer(model, uid), "judged": {}})
                own[place]["judged"][number] = each.games
    ordered = [found[uid] for uid in questions if uid in found]
    data = {"models": models, "judges": judges, "questions": ordered}
    text = json.dumps(data, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(text, 6, mtime=0)).decode()
