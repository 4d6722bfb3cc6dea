r"""Compare an answer with a gold one numerically, and with math-verify where our grammar ends.

For a worker process alone: it imports sympy, sets no time limit of its own, and relies on being
killed.

Of math-verify only the LaTeX grammar is used. Its reader of plain expressions hands text to sympy's
`parse_expr`, which evaluates it as Python: it is never switched on here.
"""

from __future__ import annotations

import logging
import re

import math_verify
from math_verify import LatexExtractionConfig

from openrlhf_js.tasks.base import Status
from openrlhf_js.tasks.equivalence.decision import decide
from openrlhf_js.tasks.equivalence.labels import gold
from openrlhf_js.tasks.equivalence.numeric import Numeric
from openrlhf_js.tasks.equivalence.text import normal
from openrlhf_js.tasks.equivalence.tokens import NotRead

_LATEX_ALONE = [LatexExtractionConfig(boxed_match_priority=0)]
_ADVANCED = re.compile(
    r"\\(?:i*nt|sum|prod|lim|det|oint|partial|nabla|overline|frac ?\{ ?d)(?![a-z])"
)
_BOUNDS = re.compile(r"_ ?\{[^{}]*\}")  # where `k = 1` and `x \to 0` stand
_UNFIT = re.compile(
    r"[=,;<>$!]|\\(?:to|or|and|text|approx|sim|neq)(?![a-z])|\d{9}|(?:[({] ?){6}|\^[^+\-]*\^ ?\{"
)
_OF_TEN = re.compile(r"\\log ?[({]? ?10+(?!\d)")  # `\log 100` is 2
_MAX_CHARS = 400  # of what math-verify reads
logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it warns that there is no time limit


def warm_up() -> None:
    """Compares a few answers in every way, so that nothing is imported or built later."""
    for answer, label in [
        (r"\sin \frac{x}{7}", r"\sin(x/7)"),
        (r"\int_0^1 x \, dx", r"\int_0^1 t \, dt"),
        (r"\sum_{k=1}^{\infty} \frac{1}{2^k}", "1"),
        (r"\lim_{x \to 0} \frac{\sin x}{x}", r"\frac{3}{4} \cdot \sqrt{2}"),
    ]:
        compare(answer, label)


def compare(answer: str, label: str) -> tuple[Status, str]:
    """The status of an answer against a label, and what was compared.

    Raises:
        ValueError: if the label is malformed.
    """
    wanted, text = gold(label), normal(answer)
    try:
        for log in _readings_of_log(text, " ".join(wanted.texts)):
            verdict = decide(text, wanted, Numeric(log))
            if verdict:
                break
    except NotRead as problem:
        if _by_math_verify(text, wanted.texts[0]):
            return "correct", "math-verify finds them equal"
        return "malformed", f"cannot be read: {problem}"
    if verdict is None and len(wanted.texts) == 1 and _by_math_verify(text, wanted.texts[0]):
        return "correct", "math-verify finds them equal"
    return ("correct", "equal value") if verdict else ("wrong", "another value")


def _readings_of_log(answer: str, label: str) -> tuple[str, ...]:
    r"""What `\log` without a base may mean: either, where the label leaves it open."""
    if r"\log" not in answer + label:
        return ("ln",)
    settled = r"\ln" in label or _OF_TEN.search(label)
    return ("lg",) if settled else ("ln", "lg")


def _by_math_verify(answer: str, wanted: str) -> bool:
    """Whether math-verify finds two expressions equal; lists and relations are ours alone."""
    if max(len(answer), len(wanted)) > _MAX_CHARS or not (
        _ADVANCED.search(answer) or _ADVANCED.search(wanted)
    ):
        return False
    if any(_UNFIT.search(_BOUNDS.sub("", text)) for text in (answer, wanted)):
        return False
    left, right = (
        math_verify.parse(
            f"${text}$", _LATEX_ALONE, fallback_mode="no_fallback", parsing_timeout=None
        )
        for text in (answer, wanted)
    )
    return bool(left and right) and math_verify.verify(right, left, timeout_seconds=None)
