"""How a judge judged: missing verdicts, the side it favours, whether it agrees with itself.

The two games of a judgment show the same answers in both orders, so a judge that looks at nothing
but the answers says the same twice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from openrlhf_js.evaluation.arena.rows import Table
from openrlhf_js.uncertainty import Estimate, clustered_proportion


class Judging(NamedTuple):
    """Figures of one table of judgments; shares in [0, 1], None where there is nothing to count."""

    judgments: int
    complete: int
    """Judgments with two verdicts."""
    games_failed: int
    """Games that were never held: the call to the judge failed, and was stored so."""
    games_without_verdict: int
    """Games in which the judge gave no verdict that could be read."""
    side_a: Estimate | None = None
    """Share of points that went to the answer shown first, by question; 1/2 is fair."""
    contradictions: Estimate | None = None
    """Share of judgments whose games name different winners."""
    tie_and_winner: float | None = None
    """Share in which one game is a tie and the other is not."""
    other_strength: float | None = None
    """Share with one winner, which is much better in one game only."""

    @property
    def share_without_verdict(self) -> float:
        """Of all games."""
        return (self.games_failed + self.games_without_verdict) / max(1, 2 * self.judgments)


def judging(judged: Table) -> Judging:
    """The figures of some judgments: of one model, or of many.

    The side that the judge favours is taken over complete judgments alone: there, each model
    stands on each side equally often, and its strength drops out. Points are not weighted.

    Args:
        judged: may be empty.
    """
    silent = np.isnan(judged.margins) & ~judged.failed
    complete = judged.only(judged.complete)
    counted = Judging(
        judgments=len(judged.model),
        complete=len(complete.model),
        games_failed=int(judged.failed.sum()),
        games_without_verdict=int(silent.sum()),
    )
    if not counted.complete:
        return counted
    # In the first game A is the baseline, in the second it is the model.
    for_a = np.sign(complete.margins) * [-1, 1]
    first, second = np.sign(complete.margins).T
    swapped = first * second < 0
    one_tie = (first == 0) != (second == 0)
    strength = (first == second) & (complete.margins[:, 0] != complete.margins[:, 1])
    return counted._replace(
        side_a=clustered_proportion((for_a.mean(1) + 1) / 2, complete.question),
        contradictions=clustered_proportion(swapped, complete.question),
        tie_and_winner=float(one_tie.mean()),
        other_strength=float(strength.mean()),
    )
