"""Grade a mathematical answer: at once where that is cheap and exact, else in a worker process."""

from __future__ import annotations

import re

from openrlhf_js.tasks import grading_pool
from openrlhf_js.tasks.base import Score, scored
from openrlhf_js.tasks.equivalence.decision import decide
from openrlhf_js.tasks.equivalence.judges import Exact
from openrlhf_js.tasks.equivalence.labels import MAX_CHARS, Gold, check_label, gold
from openrlhf_js.tasks.equivalence.text import normal
from openrlhf_js.tasks.equivalence.tokens import NotRead, decimal

__all__ = ["check_label", "grade"]
_NUMERAL = re.compile(r"-?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?\Z", re.ASCII)
_EXACT = Exact()


def grade(answer: str | None, label: str) -> Score:
    """The score of an extracted answer.

    Args:
        answer: what the response's last box holds, or None if there is none.
        label: the gold answer; `labels.gold` says what it may be.

    Raises:
        ValueError: if the label is malformed, never because of the answer.
    """
    wanted = gold(label)
    if answer is None:
        return scored("no_answer", "no final answer")
    if len(answer) > MAX_CHARS:
        return scored("malformed", f"{len(answer)} characters: at most {MAX_CHARS} are graded")
    try:
        text, verdict, problem = _at_once(answer, wanted)
    except Exception as bug:  # a bug of ours costs the answer that shows it, not the training run
        return scored("error", f"{type(bug).__name__} on {_shown(answer)}")
    if not text:
        return scored("malformed", "an empty answer")
    compared = f"{_shown(text)} against {_shown(' ; '.join(wanted.texts))}"
    if problem and "\\" not in text and all(wanted.trees):
        return scored("malformed", f"{compared}: {problem}")
    if verdict is not None:
        return scored("correct" if verdict else "wrong", compared)
    score = grading_pool.grade("openrlhf_js.tasks.equivalence.symbolic:compare", answer, label)
    return score._replace(detail=f"{compared}: {score.detail}")


def _at_once(answer: str, wanted: Gold) -> tuple[str, bool | None, str]:
    """The canonical text, whether it is the gold answer if that is cheap to tell, or why not."""
    text = normal(answer)
    try:
        if wanted.value is not None and _NUMERAL.match(text):
            sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text)
            return text, sign * decimal(digits) == wanted.value, ""
        return text, decide(text, wanted, _EXACT) if text else None, ""
    except NotRead as problem:
        return text, None, str(problem)


def _shown(text: str) -> str:
    text = ascii(text)[1:-1].replace("\\\\", "\\")
    return text if len(text) <= 60 else text[:57] + "..."
