"""What a judge said, as numbers: a table of judgments, and the weighted rows of a score.

The margin of a game is how the model fared in it, whichever side it stood on: 2 much better, 1
better, 0 tie, -1 and -2 the same for the baseline. Axes: n judgments, 2 games, g rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from openrlhf_js.evaluation.arena.benches import MUCH_WEIGHT
from openrlhf_js.evaluation.arena.records import Game, Judgment

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

MARGINS_OF_A = {"A>>B": 2.0, "A>B": 1.0, "A=B": 0.0, "B>A": -1.0, "B>>A": -2.0}


class Table(NamedTuple):
    """All judgments of one category against one baseline, one a row."""

    baseline: str
    judges: tuple[str, ...]
    models: tuple[str, ...]
    questions: tuple[str, ...]
    """Their uids, in order of first appearance."""
    judge: Ints
    """(n,) its place in `judges`; `model` and `question` likewise."""
    model: Ints
    question: Ints
    margins: Floats
    """(n, 2) in the model's view; nan where there is no verdict. In game 0 A is the baseline."""
    failed: Bools
    """(n, 2) whether there is no game at all, which is why there is no verdict."""

    @property
    def complete(self) -> Bools:
        """(n,) whether both games have a verdict."""
        return np.asarray(np.isfinite(self.margins).all(1))

    def only(self, keep: Bools) -> Table:
        """The same names with these judgments alone."""
        return self._replace(
            judge=self.judge[keep],
            model=self.model[keep],
            question=self.question[keep],
            margins=self.margins[keep],
            failed=self.failed[keep],
        )

    def of_model(self, name: str) -> Table:
        """The judgments of one model.

        Raises:
            ValueError: there is none.
        """
        if name not in self.models:
            raise ValueError(
                f"no judgment of {name!r}; {', '.join(self.judges)} judged {_some(self.models)}"
            )
        return self.only(self.model == self.models.index(name))

    def of_judges(self, names: Iterable[str]) -> Table:
        """What some of the judges said."""
        return self.only(np.isin(self.judge, [self.judges.index(name) for name in names]))

    def judged_models(self) -> list[str]:
        """The models that have a judgment here, by name."""
        return [self.models[place] for place in np.unique(self.model)]


class Rows(NamedTuple):
    """Games with a verdict, one a row, each with its weight."""

    model: Ints
    """(g,) place in the table's models."""
    question: Ints
    """(g,) place in the table's questions: the cluster."""
    points: Floats
    """(g,) 1 where the model won, 1/2 for a tie, else 0."""
    weight: Floats
    """(g,) how many rows the game stands for."""

    def only(self, keep: Bools) -> Rows:
        """These rows alone."""
        return Rows(self.model[keep], self.question[keep], self.points[keep], self.weight[keep])


class Tally(NamedTuple):
    """Weighted rows by outcome, as published tables give them."""

    wins: int
    losses: int
    ties: int

    @property
    def rows(self) -> int:
        """Their sum."""
        return sum(self)

    @property
    def score(self) -> float:
        """The share of wins, ties as half, in [0, 1]."""
        return (self.wins + self.ties / 2) / self.rows


def margin(game: Game | None, model_is_a: bool) -> float:
    """How the model fared; nan without a verdict.

    Raises:
        ValueError: a verdict that nobody knows.
    """
    if game is None or game.verdict is None:
        return float("nan")
    if game.verdict not in MARGINS_OF_A:
        raise ValueError(
            f"verdict {game.verdict!r} is none of {', '.join(MARGINS_OF_A)}; judge the game again"
        )
    of_a = MARGINS_OF_A[game.verdict]
    return of_a if model_is_a else -of_a


def table(judgments: Iterable[Judgment], baseline: str) -> Table:
    """The judgments against one baseline as a table, without what the judges said.

    Args:
        judgments: of one category; read once, so that a generator holds one at a time.
        baseline: judgments against another one must have been left out.

    Raises:
        ValueError: another baseline, a model against itself, or an unknown verdict.
    """
    judges: dict[str, int] = {}
    models: dict[str, int] = {}
    questions: dict[str, int] = {}
    places: list[tuple[int, int, int]] = []
    margins: list[tuple[float, float]] = []
    failed: list[tuple[bool, bool]] = []
    for each in judgments:
        if each.baseline != baseline:
            raise ValueError(
                f"question {each.uid}: {each.model} was judged against {each.baseline}, "
                f"not {baseline}"
            )
        if each.model == baseline:
            raise ValueError(f"question {each.uid}: {each.model} was judged against itself")
        places.append(
            (
                judges.setdefault(each.judge, len(judges)),
                models.setdefault(each.model, len(models)),
                questions.setdefault(each.uid, len(questions)),
            )
        )
        first, second = each.games
        margins.append((margin(first, model_is_a=False), margin(second, model_is_a=True)))
        failed.append((first is None, second is None))
    judge, model, question = np.array(places, int).reshape(-1, 3).T
    order = sorted(models)
    sorted_place = np.empty(len(models), int)
    sorted_place[[models[name] for name in order]] = np.arange(len(models))
    return Table(
        baseline=baseline,
        judges=tuple(judges),
        models=tuple(order),
        questions=tuple(questions),
        judge=judge,
        model=sorted_place[model],
        question=question,
        margins=np.array(margins, float).reshape(-1, 2),
        failed=np.array(failed, bool).reshape(-1, 2),
    )


def rows(judged: Table, both: bool = True, much_weight: int = MUCH_WEIGHT) -> Rows:
    """The games that count, by judgment and then by game.

    Args:
        judged: the judgments.
        both: whether a judgment counts only if both games have a verdict. One game alone would
            tilt the score towards the side that the judge favours.
        much_weight: rows that "much better" counts as.
    """
    known = np.isfinite(judged.margins)
    if both:
        known = known & known.all(1, keepdims=True)
    place, _ = np.nonzero(known)
    margins = judged.margins[known]
    return Rows(
        model=judged.model[place],
        question=judged.question[place],
        points=(np.sign(margins) + 1) / 2,
        weight=np.where(np.abs(margins) == 2, float(much_weight), 1.0),
    )


def tally(of: Rows) -> Tally:
    """Weighted rows by outcome."""
    won, lost, tied = (int(of.weight[of.points == points].sum()) for points in (1.0, 0.0, 0.5))
    return Tally(won, lost, tied)


def _some(names: Iterable[str]) -> str:
    known = list(names)
    return ", ".join(known[:10]) + (f" and {len(known) - 10} more" if len(known) > 10 else "")
