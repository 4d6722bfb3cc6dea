"""Judgments as a table for each category.

The margin of a game is in the model's view: 2 much better, 1 better, 0 a tie, -1 worse, -2 much
worse.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from answer_graders.programs.console import say
from paired_eval.arena import data, style
from paired_eval.arena.verdicts import MARGIN_OF_A, Rule

Questions = Mapping[str, data.Question]


class JudgedRow(NamedTuple):
    """One judgment, in the model's view."""

    judge: str
    model: str
    uid: str
    category: str
    baseline: str
    settings: str
    margin_1: float  # of the game in which A is the baseline; NaN without a verdict
    margin_2: float  # of the game in which A is the model
    read_otherwise: int  # games whose verdict differs by the official rule


class Pool(NamedTuple):
    """All judgments of some judges in one category against one baseline."""

    rule: Rule  # of the verdicts
    folder: data.Folder
    bench: data.Bench
    category: str
    baseline: str
    judged: pd.DataFrame  # columns of JudgedRow
    questions: int
    styles: pd.DataFrame  # counts of each answer by (model, uid), with the baseline's

    @property
    def judges(self) -> list[str]:
        """The judges, each once."""
        return list(self.judged.judge.unique())


def load(
    folder: data.Folder,
    judges: Sequence[str],
    categories: Sequence[str] = (),
    baseline: str = "",
    rule: Rule = "unquoted",
) -> list[Pool]:
    """The pools of these judges by category (default: all), against the bench's baseline or this.

    Judgments of unknown questions, of a judge's own answers, or against another baseline are left
    out.
    """
    bench = data.bench_of(folder.bench, baseline)
    questions = data.read_questions(folder)
    data.select(questions, categories)  # ValueError for an unknown category
    rows = list(_judged_rows(folder, judges, questions, rule))
    judged = pd.DataFrame(rows, columns=[*JudgedRow._fields])
    pools = []
    for category in categories or judged.category.unique():
        category_baseline = data.file_name(bench.category(category).baseline)
        kept = _judged_against(judged, category, category_baseline)
        if kept.empty:
            if categories:
                say(f"{category}: no judgment of it", error=True)
            continue
        asked = data.select(questions, [category])
        models = sorted({category_baseline, *kept.model})
        pool = Pool(
            rule=rule,
            folder=folder,
            bench=bench,
            category=category,
            baseline=category_baseline,
            judged=kept,
            questions=len(asked),
            styles=pd.concat([_styles(folder, model, asked) for model in models]),
        )
        pools.append(pool)
    if not pools:
        raise ValueError(f"{folder.root} holds nothing usable that {', '.join(judges)} judged")
    return pools


def _judged_rows(
    folder: data.Folder, judges: Sequence[str], questions: Questions, rule: Rule
) -> Iterator[JudgedRow]:
    """A row for each usable judgment of these judges; the number of others is printed."""
    for judge in judges:
        for path in sorted(folder.judgments(judge, "any").parent.glob("*.jsonl")):
            left_out = 0
            for judgment in data.read_judgments(path).values():
                if judgment.uid in questions and judgment.model not in judges:
                    yield _judged_row(judge, judgment, rule)
                else:
                    left_out += 1
            if left_out:
                why = "of an unknown question, or of a judge"
                say(f"{path}: {left_out} judgments left out: {why}", error=True)


def _judged_row(judge: str, judgment: data.Judgment, rule: Rule) -> JudgedRow:
    """A judgment, in the model's view."""
    first, second = judgment.games
    others = [game for game in judgment.games if game and game.unquoted != game.official]
    return JudgedRow(
        judge=judge,
        model=judgment.model,
        uid=judgment.uid,
        category=judgment.category,
        baseline=judgment.baseline,
        settings=judgment.settings,
        margin_1=-_margin_of_a(first, rule),
        margin_2=_margin_of_a(second, rule),
        read_otherwise=len(others) if rule == "unquoted" else 0,
    )


def _margin_of_a(game: data.GameResult | None, rule: Rule) -> float:
    """How A fared; NaN without a verdict."""
    verdict = game.verdict(rule) if game else None
    return MARGIN_OF_A[verdict] if verdict else math.nan


def _judged_against(judged: pd.DataFrame, category: str, baseline: str) -> pd.DataFrame:
    """The judgments of a category against this baseline, or without a named one."""
    rows = judged[(judged.category == category) & (judged.model != baseline)]
    fits = rows.baseline.isin(["", baseline])
    others = rows.baseline[~fits]
    if len(others):
        say(
            f"{len(others)} of {len(rows)} judgments of {category} are against "
            f"{others.mode()[0]}, not {baseline} (--baseline), and are left out",
            error=True,
        )
    return rows[fits]


def _styles(folder: data.Folder, model: str, questions: Questions) -> pd.DataFrame:
    """The style counts of a model's answers, where the file has them."""
    answers = data.read_answers(folder, model)
    counts = {
        uid: answer.style for uid, answer in answers.items() if uid in questions and answer.style
    }
    index = pd.MultiIndex.from_product([[model], list(counts)], names=["model", "uid"])
    return pd.DataFrame(
        counts.values(),
        index=index,
        columns=list(style.STYLE),
        dtype=float,
    )
