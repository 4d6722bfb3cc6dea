r"""Judge expressions by their values to 150 digits, and with math-verify where our grammar ends.

For a worker process alone: it sets no time limit of its own, and relies on being killed. Two
expressions that agree to 110 digits wherever both are real are taken to be equal. Every operation's
size is looked at before it is done: a tower of powers is refused.

Of math-verify only the LaTeX grammar is used. Its reader of plain expressions hands text to sympy's
`parse_expr`, which evaluates it as Python: it is never switched on here.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import math_verify
from mpmath import mp  # type: ignore[import-untyped]

from openrlhf_js.tasks.base import Status
from openrlhf_js.tasks.equivalence.compare import Judge, Verdict, rational
from openrlhf_js.tasks.equivalence.grader import decide, gold
from openrlhf_js.tasks.equivalence.spelling import normal
from openrlhf_js.tasks.equivalence.syntax import NotRead, Tree, names, words

mp.dps = 150
MAX_EXPONENT = 1 << 20  # of a power of two that bounds a value
MAX_BITS = 60_000  # of an exact integer
_SAME, _ZERO = mp.mpf(10) ** -110, mp.mpf(10) ** -130  # a relative and an absolute difference
_LARGE = 128  # bits of a value before the point, past which it is worked out to more digits
_POINTS, _POSITIVE_POINTS = 6, 3
_CONSTANTS = {"e": mp.e, "i": mp.mpc(0, 1), "\\pi": mp.pi}
Value = Any  # mpf or mpc


class _NoValue(Exception):
    """The expression has no finite value here, or none that may be worked out."""


def _power(base: Value, exponent: Value) -> Value:
    size = abs(mp.mag(base)) + 1 if base else 1
    if size * abs(exponent) > MAX_EXPONENT:
        raise _NoValue
    if mp.im(base) == 0 and base < 0 and mp.im(exponent) == 0:
        for q in range(3, 10, 2):  # the real root, as schools take it
            p = mp.nint(exponent * q)
            if abs(exponent * q - p) < _SAME and int(p) % q:
                return mp.power(-base, exponent) * (-1 if int(p) % 2 else 1)
    return mp.power(base, exponent)


def _bounded(function: Callable[..., Value], most: Callable[[Value], bool]) -> Any:
    """A function that refuses arguments at a cost that grows with their size."""

    def call(*arguments: Value) -> Value:
        if not all(map(most, arguments)):
            raise _NoValue
        return function(*arguments)

    return call


_WORK: dict[str, Callable[..., Value]] = {
    "neg": lambda a: -a,
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": _power,
    "deg": lambda a: a * mp.pi / 180,
    "pct": lambda a: a / 100,
    "root": lambda a, degree: mp.sqrt(a) if degree == 2 else _power(a, 1 / degree),
    "abs": abs,
    "floor": mp.floor,
    "ceil": mp.ceil,
    "fact": _bounded(mp.factorial, lambda n: abs(n) < 100_000),
    "binom": _bounded(mp.binomial, lambda n: abs(n) < 100_000),
    "exp": lambda a: _power(mp.e, a),
    "cis": mp.expj,
    "ln": mp.log,
    "lg": mp.log10,
    "log_base": lambda a, b: mp.log(a) / mp.log(b),
    "max": lambda *args: max(args),
    "min": lambda *args: min(args),
}
for _name in words("sin cos tan cot sec csc asin acos atan sinh cosh tanh"):
    _WORK[_name.replace("a", "arc", 1) if _name[0] == "a" else _name] = _bounded(
        getattr(mp, _name), lambda a: not a or mp.mag(a) < 4_000
    )


class Numeric(Judge):
    r"""Judges expressions with variables, roots, logarithms; `\log` is `log`: ln or lg."""

    def __init__(self, log: str = "ln"):
        self.log = log

    def pairs(self, left: Tree, right: Tree) -> list[tuple[Value, Value]]:
        """The values at the points where both have one.

        At a negative point a root or logarithm may leave the reals: it then says nothing of an
        identity that holds for positive variables.
        """
        exact = rational(left, MAX_BITS), rational(right, MAX_BITS)
        if None not in exact:
            return [exact]
        variables = (names(left) | names(right)) - _CONSTANTS.keys()
        found = []
        for k in range(_POINTS if variables else 1):
            point = {name: _coordinate(name, k) for name in variables}
            with contextlib.suppress(_NoValue):
                pair = [self.value(tree, point, k >= _POSITIVE_POINTS) for tree in (left, right)]
                digits = max(mp.mag(each) if each else 0 for each in pair)
                if _LARGE < digits <= MAX_BITS:  # 2^{2024} + 1 is not 2^{2024}
                    with mp.workprec(digits + mp.prec):
                        pair = [self.value(tree, point, False) for tree in (left, right)]
                found.append((pair[0], pair[1]))
        return found

    def agree(self, left: Value, right: Value, within: Fraction = Fraction(0)) -> bool:
        if isinstance(left, Fraction):
            return super().agree(left, right, within)
        if within:
            return bool(abs(left - right) <= mp.convert(within) + _SAME)
        size = max(abs(left), abs(right))
        scale = size if mp.mag(size) > MAX_BITS else min(size, mp.ldexp(1, _LARGE))
        return bool(size < _ZERO or abs(left - right) <= _SAME * scale)

    def size(self, tree: Tree) -> Any:
        try:
            point = {name: _coordinate(name, 0) for name in names(tree)}
            return mp.nint(self.value(tree, point, True) / _SAME) * _SAME
        except _NoValue:
            return None

    def value(self, tree: Tree, point: dict[str, Value], real: bool) -> Value:
        """The value at a point, with only real numbers on the way if so asked; or _NoValue."""
        kind, args = tree
        if kind in ("num", "base"):
            return mp.mpf(args[0].numerator) / args[0].denominator
        if kind == "sym":
            if real and args == ("i",):
                raise _NoValue
            return +_CONSTANTS[args[0]] if args[0] in _CONSTANTS else point[args[0]]
        name, operands = (args[0], args[1:]) if kind == "call" else (kind, args)
        work = _WORK.get(self.log if name == "log" else name)
        if work is None:
            raise _NoValue
        try:
            result = work(*(self.value(operand, point, real) for operand in operands))
        except (ArithmeticError, ValueError, TypeError) as problem:
            raise _NoValue from problem
        if not mp.isfinite(result) or abs(mp.mag(result) if result else 0) > MAX_EXPONENT:
            raise _NoValue
        if real and mp.im(result) != 0:
            raise _NoValue
        return mp.re(result) if mp.im(result) == 0 else result


def _coordinate(name: str, k: int) -> Value:
    """A variable's value at the k-th point: between 0.2 and 1 at the first, up to 4 at others."""
    digest = hashlib.sha256(f"{k}/{name}".encode("utf-8", "replace")).digest()
    share = mp.mpf(int.from_bytes(digest[:24], "big")) / (1 << 192)
    size = mp.mpf(1) / 5 + share * (mp.mpf(4) / 5 if k == 0 else 4)
    return -size if k >= _POSITIVE_POINTS and (digest[31] + k) % 2 else size


_LATEX_ALONE = [math_verify.LatexExtractionConfig(boxed_match_priority=0)]
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
    """The status of an answer against a label, and what was compared."""
    wanted, text = gold(label), normal(answer)
    # `\log` without a base may mean either where the label leaves it open.
    settled = r"\ln" in " ".join(wanted.texts) or _OF_TEN.search(" ".join(wanted.texts))
    logs = ("ln", "lg") if r"\log" in text + " ".join(wanted.texts) else ("ln",)
    verdict: Verdict = None
    try:
        for log in ("lg",) if settled and len(logs) == 2 else logs:
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


def _by_math_verify(answer: str, wanted: str) -> bool:
    """Whether math-verify finds two expressions equal; lists and relations are ours alone."""
    if max(len(answer), len(wanted)) > _MAX_CHARS or not _ADVANCED.search(answer + " " + wanted):
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
