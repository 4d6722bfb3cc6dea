"""A leaderboard: the scores of one category by one judge, or by several pooled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from openrlhf_js.evaluation.arena.board_line import Line, line_of, line_of_baseline
from openrlhf_js.evaluation.arena.judging import Judging, judging
from openrlhf_js.evaluation.arena.pool import Pool
from openrlhf_js.evaluation.arena.rows import Rows, Table, rows
from openrlhf_js.evaluation.arena.score import (
    LEVELS,
    OFFICIAL_BOTH,
    OFFICIAL_ROUNDS,
    clustered,
    of_model,
    official,
    tallies,
)
from openrlhf_js.evaluation.arena.standing import Standing
from openrlhf_js.evaluation.arena.style_control import ROUNDS, control, differences, features_of
from openrlhf_js.uncertainty import CONFIDENCE, Estimate

ALIKE = 0.98  # of the judgments of the judge that has most: with fewer by another it is said

Interval: TypeAlias = Literal["clustered", "official"]


@dataclass(frozen=True)
class Plan:
    """How to score.

    Attributes:
        interval: "clustered": 95 %, by question. "official": as the bench's own script has it.
        control: of style, see `style_control.CONTROLS`.
        seed: of the bootstraps.
        rounds: resamples; None: 100 for official intervals, as there, else 1000. Clustered
            intervals without style control need none.
    """

    interval: Interval = "clustered"
    control: str = "none"
    seed: int = 0
    rounds: int | None = None

    @property
    def resamples(self) -> int:
        """Those to draw, 0 for none."""
        if self.interval == "official":
            return self.rounds or OFFICIAL_ROUNDS
        return 0 if self.control == "none" else self.rounds or ROUNDS


class Scores(NamedTuple):
    """In [0, 1], by model; what has no score is in `notes`."""

    scores: dict[str, Estimate]
    bootstrap_means: Mapping[str, float] = {}
    at_equal_style: Mapping[str, Estimate] = {}
    coefficients: Mapping[str, Estimate] = {}
    """Log-odds of one standard deviation of a feature, shared by all models."""
    notes: tuple[str, ...] = ()


class Board(NamedTuple):
    """A leaderboard."""

    category: str
    baseline: str
    judges: tuple[str, ...]
    plan: Plan
    interval: str
    """In words, such as "95 %, by question"."""
    lines: list[Line]
    """The best first; the baseline is one of them."""
    judging: Judging
    """Of all models of the pool together."""
    protocol: Standing | None
    coefficients: Mapping[str, Estimate]
    notes: list[str]


def board(
    pool: Pool,
    judges: Sequence[str],
    plan: Plan,
    *,
    models: Sequence[str] = (),
    protocol: Standing | None = None,
) -> Board:
    """Score what these judges said, together.

    Args:
        pool: one category.
        judges: some of the pool's.
        plan: how.
        models: those to show; none: all. What is fitted over the pool uses all in any case.
        protocol: how far the official one was followed; None: not looked at.

    Raises:
        ValueError: an unknown model, no game with a verdict, or no style to control.
    """
    judged = pool.judged.of_judges(judges)
    there = judged.judged_models()
    if strange := [name for name in models if name not in (*there, judged.baseline)]:
        raise ValueError(
            f"{' + '.join(judges)} judged nothing of {strange[0]!r} in {pool.category}; judged "
            f"were {', '.join(there[:20])}"
        )
    rule = pool.bench.official_ci
    by_rule = plan.interval == "official"
    counted = rows(judged, OFFICIAL_BOTH[rule] if by_rule else True, pool.bench.weight)
    if not len(counted.model):
        raise ValueError(f"no judgment of {pool.category} by {' + '.join(judges)} is complete")
    found = _scores(pool, judged, counted, plan)
    confidence = LEVELS[rule][1] - LEVELS[rule][0] if by_rule else CONFIDENCE
    shown = [name for name in models or there if name in found.scores]
    base = Line(
        model="",
        score=50.0,
        ci_low=50.0,
        ci_high=50.0,
        category=pool.category,
        judge=" + ".join(judges),
        judges=tuple(judges),
        baseline=judged.baseline,
        style_control=plan.control,
        ci=f"official {rule}" if by_rule else "clustered",
        confidence=round(confidence, 3),
        seed=plan.seed if plan.resamples else None,
        rounds=plan.resamples or None,
        questions_of_category=pool.questions or None,
        protocol_followed=protocol and protocol.followed,
        protocol=protocol.said if protocol else (),
    )
    own = {name: judged.of_model(name) for name in shown}
    lines = [
        line_of(
            base._replace(model=name),
            found.scores[name],
            own[name],
            of_model(counted, judged.models.index(name)),
            pool.styles,
            bootstrap_mean=found.bootstrap_means.get(name),
            at_equal_style=found.at_equal_style.get(name),
        )
        for name in shown
    ]
    lines.append(line_of_baseline(base, judged.questions, pool.styles))
    unscored = [name for name in models or there if name not in found.scores]
    notes = [
        *found.notes,
        *(said for name in shown if (said := _unequal(name, own[name], judges))),
        *(f"{name} has no score." for name in unscored if name != judged.baseline),
    ]
    return Board(
        pool.category,
        judged.baseline,
        tuple(judges),
        plan,
        f"{100 * confidence:.0f} %, "
        + (f"by row as the script of {rule} has it" if by_rule else "by question"),
        sorted(lines, key=lambda line: (-line.score, line.model)),
        judging(judged),
        protocol,
        found.coefficients,
        notes,
    )


def _unequal(name: str, own: Table, judges: Sequence[str]) -> str:
    """What to say of a model that pooled judges have not judged alike often; "" where they have."""
    by = own.judge[own.complete]
    counts = {judge: int((by == own.judges.index(judge)).sum()) for judge in judges}
    if min(counts.values()) >= ALIKE * max(counts.values()):
        return ""
    said = ", ".join(f"{count} by {judge}" for judge, count in counts.items())
    return f"{name} is pooled from unequal numbers of judgments ({said}): compare it with care."


def _scores(pool: Pool, judged: Table, counted: Rows, plan: Plan) -> Scores:
    """The scores of the whole pool."""
    rule, by_rule = pool.bench.official_ci, plan.interval == "official"
    present = [name for name in judged.models if (counted.model == judged.models.index(name)).any()]
    if plan.control != "none":
        return _controlled(pool, judged, counted, plan)
    if by_rule:
        found = official(tallies(counted, judged.models), rule, plan.seed, plan.resamples)
        return Scores(
            {name: each.estimate for name, each in found.items()},
            {name: each.bootstrap_mean for name, each in found.items()},
        )
    return Scores(
        {name: clustered(of_model(counted, judged.models.index(name))) for name in present}
    )


def _controlled(pool: Pool, judged: Table, counted: Rows, plan: Plan) -> Scores:
    features = features_of(plan.control)
    by_rule = plan.interval == "official"
    with_style = differences(counted, judged, pool.styles, features)
    fitted = control(
        with_style, judged, features, seed=plan.seed, rounds=plan.resamples, by_row=by_rule
    )
    models = [name for name in fitted.bootstrap.fit.models if name != judged.baseline]
    levels = LEVELS[pool.bench.official_ci]
    notes = [
        f"{name}: {count} questions without counts of style are left out of style control."
        for name, count in with_style.without_style.items()
    ]
    if fitted.constant:
        notes.append(f"No difference of {', '.join(fitted.constant)} in any game: no coefficient.")
    if unbounded := [name for name in fitted.bootstrap.fit.unbounded if name in models]:
        notes.append(
            f"{', '.join(unbounded)} won, or lost, every game: with style control the interval has "
            "no width; take the one without."
        )
    if by_rule and pool.bench.official_ci == "v0.1":
        notes.append("Style control is v2.0's, with v0.1's percentiles: v0.1's was another one.")
    return Scores(
        {name: fitted.official(name, levels) if by_rule else fitted.score(name) for name in models},
        at_equal_style={name: fitted.score_at_equal_style(name) for name in models},
        coefficients={feature: fitted.coefficient(feature) for feature in features},
        notes=tuple(notes),
    )
