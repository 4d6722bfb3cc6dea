"""Majority vote: the answer that most samples give, right or wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

VOTES = ("correct", "wrong", "timeout", "error")  # others have no answer that could be voted for


def majority(
    statuses: Sequence[str], answers: Sequence[str | None], same: Callable[[str, str], bool]
) -> float:
    """The probability that a vote among the samples of one item gives a right answer.

    Samples with the same answer vote together. All right answers are the same one: a problem that
    can be solved in several ways, such as a maze, is solved by each. Samples without an answer, or
    with one that cannot be read, do not vote; where nobody does, the vote is lost. A tie is decided
    by lot, so that it counts as the share of right answers among those that tie.

    Args:
        statuses: of the samples.
        answers: of the samples.
        same: whether two different answers that are wrong are the same.
    """
    right = sum(status == "correct" for status in statuses)
    wrong = Counter(
        answer or ""
        for status, answer in zip(statuses, answers, strict=True)
        if status in VOTES and status != "correct"
    )
    if not right or wrong.total() < right:
        return float(right > 0)
    groups: list[tuple[str, int]] = []
    for answer, votes in wrong.items():  # in the order of the samples
        for place, (other, there) in enumerate(groups):
            if same(answer, other):
                groups[place] = (other, there + votes)
                break
        else:
            groups.append((answer, votes))
    most = max(votes for _, votes in groups)
    if right != most:
        return float(right > most)
    return 1 / (1 + sum(votes == most for _, votes in groups))
