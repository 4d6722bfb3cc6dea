"""Scores of what judges judged: leaderboards, intervals, worst cases and paired comparisons.

The margin of a game is how the model fared: 2 much better, 1 better, 0 a tie, -1 and -2 the same
for the baseline. A game counts as one row, or as 3 (`much_weight`) for "much better"; the score is
the share of rows won, ties as half: the Bradley-Terry probability to win against the baseline.

The official intervals resample rows. A question has two games and up to six rows, which are not
independent, so they are too narrow: on Arena-Hard by a factor of 1.6 to 1.7.
"""

from __future__ import annotations

import logging
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from openrlhf_js import stats
from openrlhf_js.common.store import read_store
from openrlhf_js.evaluation.arena import data, protocol, style

log = logging.getLogger(__name__)

MARGIN_OF_A = {"A>>B": 2, "A>B": 1, "A=B": 0, "B>A": -1, "B>>A": -2}
LEVELS = {"v0.1": (0.025, 0.975), "v2.0": (0.05, 0.95)}  # percentiles of the official intervals
FLOOR = 5.0  # a score below it says little of a change
KEPT = ("judge", "model", "uid", "category", "baseline", "settings")  # of a judgment
Row = dict[str, Any]
Questions = Mapping[str, data.Question]
Scores = dict[str, stats.Estimate]  # by model, in [0, 1]


class Plan(NamedTuple):
    """How to score."""

    ci: Literal["clustered", "official"] = "clustered"
    style_control: str = "none"
    much_weight: float = protocol.MUCH_WEIGHT  # rows that a verdict of much better counts as


class Pool(NamedTuple):
    """Everything that some judges judged in one category against one baseline."""

    folder: data.Folder
    bench: data.Bench
    category: str
    baseline: str
    judged: pd.DataFrame  # KEPT, margin_1 and margin_2 in the model's view, failed, held
    questions: int
    styles: pd.DataFrame  # counts of each answer, by (model, uid), the baseline's too
    unanswered: Mapping[str, int]  # answers that could not be generated, by model
    judges: list[str]


def load(
    folder: data.Folder, judges: Sequence[str], categories: Sequence[str] = (), baseline: str = ""
) -> list[Pool]:
    """What judges judged, by category (default: all) in the bench's order.

    Judgments of unknown questions, against another baseline, or of the judge itself are left out.
    """
    questions = data.read_questions(folder)
    data.select(questions, categories)
    columns = [*KEPT, "margin_1", "margin_2", "failed", "held"]
    table = pd.DataFrame(_rows(folder, judges, questions), columns=columns)
    nothing = ValueError(f"{folder.root} holds nothing usable that {', '.join(judges)} judged")
    if table.empty:
        raise nothing
    seen, named = list(table.category.unique()), table[table.baseline != ""]
    own_bench = not baseline and folder.bench not in data.BENCHES
    baselines = dict(zip(named.category, named.baseline, strict=True)) if own_bench else {}
    bench = data.bench_of(folder.bench, baseline or "".join([*baselines.values()][:1]))
    pools = []
    for name in sorted(categories or seen, key=[*bench.categories, *seen, *categories].index):
        against = baselines.get(name) or data.file_name(bench.category(name).baseline)
        own = table[(table.category == name) & (table.model != against)]
        fits = own.baseline.isin(["", against])  # the older schema names none
        kept, others = own[fits], own.baseline[~fits]
        if len(others):
            said = f"{len(others)} of {len(own)} judgments of {name} are not against {against}"
            flags = f"--category {name} --baseline {others.mode()[0]}"
            log.warning("%s: score them with %s", said, flags)
        if len(kept):
            models, asked = sorted({against, *kept.model}), data.select(questions, [name])
            styles = pd.concat([_styles(folder, model, asked) for model in models])
            failed = {m: len(asked.keys() & data.failed_answers(folder, m)) for m in models}
            own = (kept, len(asked), styles, failed, list(kept.judge.unique()))
            pools.append(Pool(folder, bench, name, against, *own))
    if not pools:
        raise nothing
    return pools


def _rows(folder: data.Folder, judges: Sequence[str], questions: Questions) -> Iterator[Row]:
    for judge in judges:
        for path in sorted(folder.judgments(judge, "any").parent.glob("*.jsonl")):
            judged = data.read_judgments(path).values()
            own = [each for each in judged if each.uid in questions and each.model not in judges]
            if lost := len(judged) - len(own):
                log.warning("%s: %d of no known question, or of a judge, are left out", path, lost)
            for of in own:
                a = [MARGIN_OF_A[g.verdict] if g and g.verdict else math.nan for g in of.games]
                held = sum(of.held)
                margins = {"margin_1": -a[0], "margin_2": a[1], "held": held}
                margins["failed"] = of.games.count(None) - (2 - held)
                yield {name: getattr(of, name) for name in KEPT} | {"judge": judge} | margins


def _styles(folder: data.Folder, model: str, questions: Questions) -> pd.DataFrame:
    answers = {uid: a for uid, a in data.read_answers(folder, model).items() if uid in questions}
    found = {uid: each.style for uid, each in answers.items() if each.style}
    index = pd.MultiIndex.from_product([[model], list(found)], names=["model", "uid"])
    return pd.DataFrame(found.values(), index=index, columns=[*style.STYLE], dtype=float)


def games(
    judged: pd.DataFrame, much_weight: float = protocol.MUCH_WEIGHT, both: bool = True
) -> pd.DataFrame:
    """The games that count, a row each: model, uid, points in {0, 1/2, 1}, weight.

    With `both` a judgment counts only if all its games have a verdict, for fairness to both sides.
    """
    if both:
        judged = judged[judged[["margin_1", "margin_2"]].notna().sum(axis=1) == judged.held]
    long = judged.melt(["model", "uid"], ["margin_1", "margin_2"], value_name="margin").dropna()
    points = (np.sign(long.margin) + 1) / 2
    weight = np.where(long.margin.abs() == 2, float(much_weight), 1.0)
    rows = long[["model", "uid"]].assign(points=points, weight=weight)
    return rows.reset_index(drop=True)


def clustered(rows: pd.DataFrame) -> stats.Estimate:
    """The score of one model's rows in [0, 1], with a 95 % interval by question."""
    return stats.clustered_proportion(rows.points, rows.uid.to_numpy(), weights=rows.weight)


def official(rows: pd.DataFrame, rule: str, seed: int = 0, rounds: int = 100) -> Scores:
    """Each model's score with the interval that a version of Arena-Hard prints, from 100 rounds.

    v0.1 resamples the rows of all models together, v2.0 those of each (and prints the resamples'
    mean as the score). The official scripts are unseeded.
    """
    rng, drawn = np.random.default_rng(seed), []
    rows = rows.loc[rows.index.repeat(rows.weight.round().astype(int))]
    of = rows if rule == "v0.1" else rows.groupby("model")
    for _ in range(rounds):
        again = of.sample(frac=1, replace=True, random_state=rng)
        drawn.append(again.groupby("model").points.mean())
    low, high = (pd.DataFrame(drawn).quantile(level) for level in LEVELS[rule])
    return {
        str(model): stats.Estimate(float(score), float(low[model]), float(high[model]))
        for model, score in rows.groupby("model").points.mean().items()
    }


def styled(pool: Pool, rows: pd.DataFrame, decided: bool = False) -> tuple[pd.DataFrame, list[str]]:
    """The rows that style control can use, with all features, and what is left out.

    With `decided`, models that won, or lost, every game stay; their fit has no end.
    """
    ours, theirs = (
        pool.styles.reindex(pd.MultiIndex.from_arrays([side, rows.uid])).to_numpy()
        for side in (rows.model, [pool.baseline] * len(rows))
    )
    values = style.differences(ours, theirs)
    known = rows.assign(**dict(zip(style.FEATURES, values.T, strict=True)))
    known = known[np.isfinite(values).all(axis=1)]
    notes, alone = [], []
    for model, own in rows.groupby("model"):
        here = known[known.model == model]
        if lost := own.uid.nunique() - here.uid.nunique():
            notes.append(f"{model}: {lost} questions without style counts are left out.")
        if not decided and here.points.nunique() == 1 and here.points.iloc[0] != 0.5:
            known = known[known.model != model]
            alone.append(str(model))
    if alone:
        notes.append(f"They won, or lost, every game, which has no fit: {', '.join(alone)}.")
    if known.empty:
        raise ValueError(f"no game is left for style control: {' '.join(notes)}")
    return known, notes


class Board(NamedTuple):
    """A leaderboard: a row for each model, the best first, and what to know of it."""

    title: str
    interval: str  # in words
    baseline: str
    rows: list[Row]
    notes: list[str]


def board(pool: Pool, judges: Sequence[str], plan: Plan, models: Sequence[str] = ()) -> Board:
    """Scores what these judges judged, together; style is fitted over all models, shown or not."""
    judged = pool.judged[pool.judged.judge.isin(list(judges))]
    shown = [name for name in sorted(judged.model.unique()) if not models or name in models]
    by_rule = plan.ci == "official"
    rule = pool.bench.rule
    rows = games(judged, plan.much_weight, both=not by_rule or rule == "v2.0")
    if rows.empty or not shown:
        of = f"of {', '.join(models or ['any model'])} in {pool.category}"
        there = ", ".join(sorted({*judged.model}))
        raise ValueError(f"{' + '.join(judges)} has no complete judgment {of}; it judged {there}")
    scores, notes = _scores(pool, rows, plan)
    low, high = LEVELS[rule] if by_rule else (0.025, 0.975)
    paths = {name: pool.folder.ledger(name, pool.category) for name in judges}
    recorded = {name: read_store(path)[0] for name, path in paths.items() if path.is_file()}
    departures = protocol.deviations(
        *(pool.bench, pool.category, list(judges), recorded),
        *(judged[judged.model.isin(shown)], plan.much_weight),
    )
    base: Row = {
        "category": pool.category,
        "judge": " + ".join(judges),
        "baseline": pool.baseline,
        "ci": f"official {rule}" if by_rule else "clustered",
        "confidence": round(high - low, 3),
        "style_control": plan.style_control,
        "much_weight": plan.much_weight,
        "games": int(judged.held.max()),
        "questions_of_category": pool.questions,
        "deviations": departures,
    }
    mean_tokens = pool.styles.tokens.groupby("model").mean().dropna().to_dict()
    even = {"model": pool.baseline, "score": 50.0, "ci_low": 50.0, "ci_high": 50.0}
    board_rows: list[Row] = [{**even, **base, "mean_tokens": mean_tokens.get(pool.baseline)}]
    if without := [model for model in shown if model not in scores]:
        notes.append(f"No score: {', '.join(without)}.")
    for model in [each for each in shown if each in scores]:
        own, counted = judged[judged.model == model], rows[rows.model == model]
        counts = _counts(pool, model, own, counted, len(judges), plan) | judging(own)
        score, low_end, high_end = (100 * each for each in scores[model])
        figures = {"model": model, "score": score, "ci_low": low_end, "ci_high": high_end}
        board_rows.append({**figures, **base, **counts, "mean_tokens": mean_tokens.get(model)})
    controlled = "" if plan.style_control == "none" else ", style controlled"
    by = f"row as the script of {rule} has it (too narrow)" if by_rule else "question"
    points = {row["model"]: row["score"] for row in board_rows[1:]}
    if not controlled and min(points.values(), default=FLOOR) < FLOOR:
        asked = recorded.get(judges[0], {}).get("judge_model", judges[0])
        notes += _floor(pool, asked, rows, points)
    notes += _notes(board_rows, judging(judged), departures)
    return Board(
        f"{pool.category}, judged by {' + '.join(judges)}{controlled}",
        f"{100 * (high - low):.0f} %, by {by}",
        pool.baseline,
        sorted(board_rows, key=lambda row: (-row["score"], row["model"])),
        notes,
    )


def _floor(pool: Pool, judge: str, rows: pd.DataFrame, scores: Mapping[str, float]) -> list[str]:
    """For weak models: which change would be missed, and how to see smaller ones."""
    changes = {}
    for model in (name for name, score in scores.items() if score < FLOOR):
        _, low, high = clustered(own := rows[rows.model == model])
        error = math.sqrt(2) * (high - low) / 2 / 1.96  # of the difference of two such scores
        changes[model] = 100 * stats.detectable_effect(error, 2 * own.uid.nunique() - 2)
    near = min(scores.keys() - changes.keys(), key=scores.__getitem__, default="NEARER")
    command, name = ("openrlhf-js", "eval", "arena"), f"{data.file_name(judge)}-{near}"
    place = ["--data", str(pool.folder.root.parent), "--bench", pool.folder.bench]
    place += ["--category", pool.category, "--baseline", near]
    ask = [*command, "judge", *place, "--models", *changes, "--judge", judge, "--judge_name", name]
    said = (
        "Near the floor, where a change of fewer points than these is hardly found: "
        f"{', '.join(f'{model} {change:.1f}' for model, change in changes.items())}. A nearer "
        "baseline shows smaller ones. All games are asked anew; --dry_run says what they cost. "
        "Judge, with the --settings, --url and --key_env of before, and score:"
    )
    return [said, shlex.join(ask), shlex.join([*command, "score", *place, "--judge", name])]


def _scores(pool: Pool, rows: pd.DataFrame, plan: Plan) -> tuple[Scores, list[str]]:
    """Score and interval by model, and what to know of them."""
    if plan.style_control == "none":
        if plan.ci == "official":
            return official(rows, pool.bench.rule), []
        return {str(model): clustered(own) for model, own in rows.groupby("model")}, []
    if pool.bench.rule == "v0.1":
        raise ValueError(
            "arena-hard-v0.1 has a style control of its own, another model than v2.0's, which is "
            "not offered: leave out --style_control"
        )
    known, notes = styled(pool, rows, decided=plan.ci == "official")
    if plan.ci == "official":
        notes.append(
            f"As in the official script, fits end after {style.OFFICIAL_STEPS} steps of L-BFGS; "
            "they have not converged. --ci clustered converges."
        )
        return style.official_control(known), notes
    scores = style.control(known)
    notes.append(
        "The score is what a model would win at the pool's mean difference of style. The fit has "
        f"converged; the official script stops after {style.OFFICIAL_STEPS} steps (--ci official)."
    )
    if far := style.extrapolated(known):
        notes.append(f"No score at equal style, as no answer is near it: {', '.join(sorted(far))}.")
    return {name: each for name, each in scores.items() if name not in far}, notes


def _counts(
    pool: Pool, model: str, own: pd.DataFrame, rows: pd.DataFrame, judges: int, plan: Plan
) -> Row:
    """Tally, and the score if all missing games were lost, or won, by much."""
    won, lost, tied = (float(rows.weight[rows.points == each].sum()) for each in (1.0, 0.0, 0.5))
    missing = max(0, int(own.held.max()) * judges * pool.questions - len(rows))
    more, points, total = missing * plan.much_weight, won + tied / 2, won + lost + tied
    return {
        **{"questions": rows.uid.nunique(), "wins": won, "losses": lost, "ties": tied},
        **{"games_missing": missing, "answers_failed": pool.unanswered[model]},
        "score_without_control": 100 * points / total,
        "worst_case_low": 100 * points / (total + more),
        "worst_case_high": 100 * (points + more) / (total + more),
    }


def judging(judged: pd.DataFrame) -> Row:
    """How the judge judged: missing verdicts, the side it favours, contradictions of itself."""
    margins = judged[["margin_1", "margin_2"]].to_numpy()
    verdicts, failed = np.isfinite(margins).sum(axis=1), int(judged.failed.sum())
    both = verdicts == 2
    found: Row = {
        "games_failed": failed,
        "games_without_verdict": int(judged.held.sum() - verdicts.sum()) - failed,
    }
    if both.any():
        signs, uids = np.sign(margins[both]), judged.uid.to_numpy()[both]
        for_a = ((signs * [-1, 1]).mean(axis=1) + 1) / 2
        side = stats.clustered_proportion(for_a, uids)
        found |= zip(("side_a", "side_a_low", "side_a_high"), side, strict=True)
        found["contradictions"] = float((signs[:, 0] * signs[:, 1] < 0).mean())
    return found


def _notes(rows: Sequence[Row], judged: Row, departures: Sequence[str]) -> list[str]:
    """What to know of a board, in words."""
    said = ["The official protocol was followed."]
    if departures:
        said = [f"Not the official protocol: {'; '.join(departures)}."]
    missing = [f"{r['games_missing']} of {r['model']}" for r in rows if r.get("games_missing")]
    if missing:
        failed = sum(row.get("answers_failed", 0) for row in rows)
        said.append(
            f"Games are missing: {', '.join(missing)}; {judged['games_without_verdict']} without a "
            f"verdict, {judged['games_failed']} refused or failed, {failed} answers failed. The "
            "worst case is the score if all of them were lost, or won, by much."
        )
    low, high = (judged.get(f"side_a_{end}", 0.5) for end in ("low", "high"))
    if not low <= 0.5 <= high:
        which = "first" if low > 0.5 else "second"
        said.append(
            f"The judge favours the answer shown {which}: {100 * judged['side_a']:.1f} % "
            f"({100 * low:.1f} to {100 * high:.1f}) of points go to the one shown first."
        )
    return said


def compare(
    pool: Pool, judges: Sequence[str], plan: Plan, a: str, b: str
) -> tuple[stats.Difference, str]:
    """Score of a minus score of b in [0, 1], paired by the questions of both; and in words.

    What makes a question hard is the same for both and drops out. Style is not held equal.
    """
    rows = games(pool.judged[pool.judged.judge.isin(list(judges))], plan.much_weight)
    pair = rows[rows.model.isin([a, b])].assign(won=rows.points * rows.weight)
    sums = pair.pivot_table(["won", "weight"], "uid", "model", "sum").reindex(
        columns=[(name, model) for name in ("won", "weight") for model in (a, b)]
    )
    both = sums.dropna()
    if both.empty or a == b:
        raise ValueError(
            f"{a} and {b} have no question in common, or are the same; of questions that count "
            f"there are those of {', '.join(sorted(rows.model.unique()))}"
        )
    won, weight = both.won[[a, b]], both.weight[[a, b]]
    points = (won / weight).to_numpy().T
    found = stats.paired_difference(*points, weights_a=weight[a], weights_b=weight[b])
    scores = 100 * won.sum() / weight.sum()
    p_value = "p < 0.0001" if found.p_value < 1e-4 else f"p = {found.p_value:.2g}"
    better = f"{a if found.value > 0 else b} is better"
    detectable = stats.detectable_effect(found.standard_error, found.degrees_of_freedom)
    return found, (
        f"{a} against {b}, paired by question: {scores[a]:.1f} - {scores[b]:.1f} = "
        f"{100 * found.value:+.1f} points (95 %: {100 * found.low:.1f} to {100 * found.high:.1f}), "
        f"{p_value}; {better if found.p_value < 0.05 else 'no difference is shown'}. On the "
        f"{len(both)} questions of both ({len(sums) - len(both)} left out); a difference of "
        f"{100 * detectable:.1f} points would have been found with a probability of 80 %."
    )
