r"""Compares expressions by their values.

This runs in a worker process, which is killed when it takes too long. Expressions are equal if they
agree wherever both are real.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from mpmath import mp  # type: ignore[import-untyped]

from answer_graders.math.compare import Judge, Undecided
from answer_graders.math.conversion import registry
from answer_graders.math.evaluation import MAX_BITS, NoValue, evaluated
from answer_graders.math.exact import residue
from answer_graders.math.grader import decide, golds_of
from answer_graders.math.points import Point, are_physical, general_points, piece_points
from answer_graders.math.spelling import normal
from answer_graders.math.tree import CONSTANTS, NotRead, Tree, names
from answer_graders.record import Score, scored

_BITS_AT_PIECES = 16_000

registry()  # loads pint while the worker starts, not in the time of an answer


@dataclass(frozen=True)
class Numeric(Judge):
    r"""Compares expressions with variables, roots, logarithms; `\log` means `log`: ln or lg."""

    log: str = "ln"

    def same_value(self, left: Tree, right: Tree) -> bool:
        """Whether two expressions are equal: exactly, or wherever both have a real value."""
        with contextlib.suppress(Undecided):
            return super().same_value(left, right)
        if not self.within:
            left_residue = residue(left)
            right_residue = residue(right)
            if left_residue is not None and right_residue is not None:
                return left_residue == right_residue
        with contextlib.suppress(Undecided):
            return self._agree_at_points(left, right)
        return False  # if nothing can tell, different trees are different

    def _agree_at_points(self, left: Tree, right: Tree) -> bool:
        trees = (left, right)
        variables = sorted((names(left) | names(right)) - CONSTANTS)
        has_values = False
        are_positive = are_physical(variables)
        for choices in general_points(len(variables)):
            for point in choices:
                if are_positive and min(point.coordinates) < 0:
                    continue
                try:
                    if not self._agree_at(trees, variables, point):
                        return False
                except NoValue:
                    continue
                has_values = True
                break
        for coordinates in piece_points(trees, variables):
            if are_positive and min(coordinates) < 0:
                continue
            point = Point(coordinates, is_real=True)
            with contextlib.suppress(NoValue, Undecided):
                if not self._agree_at(trees, variables, point, _BITS_AT_PIECES):
                    return False
        return has_values

    def _agree_at(
        self,
        trees: tuple[Tree, Tree],
        variables: Sequence[str],
        point: Point,
        most_bits: int = MAX_BITS,
    ) -> bool:
        """Whether two expressions agree at a point; NoValue if one has no value there."""
        coordinates = dict(zip(variables, point.coordinates, strict=True))
        with evaluated(trees, coordinates, self.log, point.is_real, most_bits) as (run, values):
            left, right = values
            if not self.within:
                return run.same(left, right)
            difference = abs(left - right)
            within = mp.convert(self.within)
            return bool(difference <= within or run.same(difference, within))

    def sizes(self, trees: Sequence[Tree]) -> list[Fraction] | None:
        """The values of trees as whole multiples of one unit, small enough to lose nothing."""
        try:
            with evaluated(trees, {}, self.log) as (run, values):
                if any(mp.im(value) for value in values):
                    return None
                units = [mp.nint(mp.ldexp(value, run.bits)) for value in values]
                return [Fraction(int(unit)) for unit in units]
        except (NoValue, Undecided):
            return None


# one answer

_OF_TEN = re.compile(r"\\ln|\\log ?[({]? ?10+(?!\d)")  # `\log 100` is 2


def compare(answer: str, label: str) -> Score:
    """The score of an answer against a label; the detail says what was compared."""
    golds = golds_of(label)
    text = normal(answer)
    gold_text = " ".join(gold.text for gold in golds)
    logs = ["ln"]
    if "log" in text + gold_text:  # a gold `\\log` may mean either
        logs = ["lg"] if _OF_TEN.search(gold_text) else ["ln", "lg"]
    try:
        if any(decide(text, golds, Numeric(log=log)) for log in logs):
            return scored("correct", "equal value")
    except (NotRead, RecursionError) as error:
        return scored("malformed", f"cannot be read: {error}")
    return scored("wrong", "another value")
