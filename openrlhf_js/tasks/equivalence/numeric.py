r"""Judge expressions by their values to 150 digits, and with math-verify where our grammar ends.

For a worker process, which is killed when it takes too long. Expressions that agree to 110 digits
wherever both are real are equal. Of math-verify only the LaTeX grammar is used: its reader of plain
expressions hands text to sympy's `parse_expr`, which runs it as Python.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import math_verify
from mpmath import mp  # type: ignore[import-untyped]

from openrlhf_js.tasks.base import Status
from openrlhf_js.tasks.equivalence.compare import OPERATIONS, Judge
from openrlhf_js.tasks.equivalence.grader import decide, gold
from openrlhf_js.tasks.equivalence.spelling import normal
from openrlhf_js.tasks.equivalence.syntax import NotRead, Tree, names, words

mp.dps = 150
MAX_EXPONENT = 1 << 20  # of a power of two that bounds a value
MAX_BITS = 60_000  # of a value that is worked out to its last digit
_SAME, _ZERO = mp.mpf(10) ** -110, mp.mpf(10) ** -130  # a relative and an absolute difference
_LARGE = 128  # bits of a value before the point, past which it is worked out to more digits
_POINTS, _POSITIVE_POINTS = 6, 3
_CONSTANTS = {"e": mp.e, "i": mp.mpc(0, 1), "\\pi": mp.pi}
Value = Any  # mpf or mpc


class _NoValue(Exception):
    """The expression has no finite value here, or none that may be worked out."""


def _power(base: Value, exponent: Value) -> Value:
    if (abs(mp.mag(base)) + 1 if base else 1) * abs(exponent) > MAX_EXPONENT:
        raise _NoValue
    inverse = 1 / exponent if exponent else 0
    if mp.im(base) == 0 > base and abs(inverse - mp.nint(mp.re(inverse))) < _SAME and inverse % 2:
        return -mp.power(-base, exponent)  # the real root, as schools take it
    return mp.power(base, exponent)


def _bounded(function: Callable[..., Value], most: int) -> Callable[..., Value]:
    """A function that refuses arguments at a cost that grows with their size."""

    def call(*arguments: Value) -> Value:
        exact = mp.prec < 4_000 or all(map(mp.isint, arguments))
        if not exact or any(mp.mag(argument or 1) > most for argument in arguments):
            raise _NoValue
        return function(*arguments)

    return call


_WORK: dict[str, Callable[..., Value]] = {
    **OPERATIONS,
    **{"pow": _power, "abs": abs, "floor": mp.floor, "ceil": mp.ceil, "max": max, "min": min},
    **{"ln": mp.log, "lg": mp.log10, "log_base": mp.log, "cis": mp.expj},
    "degree": lambda a: a * mp.pi / 180,
    "root": lambda degree, a: mp.sqrt(a) if degree == 2 else _power(a, 1 / degree),
    "exp": lambda a: _power(mp.e, a),
    "fact": _bounded(mp.factorial, 16),
    "binom": _bounded(mp.binomial, 16),
}
_WORK |= {
    name: _bounded(getattr(mp, name.replace("arc", "a")), 4_000)
    for name in words("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh")
}


@dataclass(frozen=True)
class Numeric(Judge):
    r"""Judges expressions with variables, roots, logarithms; `\log` is `log`: ln or lg."""

    log: str = "ln"

    def values(self, *trees: Tree) -> Iterator[tuple[Value, ...]]:
        """The values at the points where all have one; at negative points only if they are real."""
        variables = set().union(*map(names, trees)) - _CONSTANTS.keys()
        for k in range(_POINTS if variables else 1):
            point = _CONSTANTS | {name: _coordinate(name, k) for name in variables}
            real = k >= _POSITIVE_POINTS
            try:
                found = [self.value(tree, point, real) for tree in trees]
                digits = max(mp.mag(each or 1) for each in found)
                if _LARGE < digits <= MAX_BITS:  # 2^{2024} + 1 is not 2^{2024}
                    with mp.workprec(digits + mp.prec):
                        found = [self.value(tree, point, real) for tree in trees]
            except _NoValue:
                continue
            yield tuple(found)

    def agree(self, left: Value, right: Value) -> bool:
        if self.within:
            return bool(abs(left - right) <= mp.convert(self.within) + _SAME)
        size = max(abs(left), abs(right))
        scale = size if mp.mag(size) > MAX_BITS else min(size, mp.ldexp(1, _LARGE))
        return bool(size < _ZERO or abs(left - right) <= _SAME * scale)

    def size(self, tree: Tree) -> Any:
        size = super().size(tree)
        if size is None or mp.isinf(size):
            return size
        return None if mp.im(size) else mp.nint(mp.convert(size) / _SAME) * _SAME

    def value(self, tree: Tree, point: dict[str, Value], real: bool) -> Value:
        """The value at a point, with only real numbers on the way if so asked; or _NoValue."""
        kind, args = tree
        if kind == "num":
            return mp.mpf(args[0].numerator) / args[0].denominator
        name, operands = (args[0], args[1:]) if kind == "call" else (kind, args)
        work = _WORK.get(self.log if name == "log" else name)
        if kind != "sym" and work is None:
            raise _NoValue
        try:
            values = [self.value(operand, point, real) for operand in operands if work]
            result = work(*values) if work else +point[args[0]]
        except (ArithmeticError, ValueError, TypeError) as problem:
            raise _NoValue from problem
        bounded = mp.isfinite(result) and abs(mp.mag(result or 1)) <= MAX_EXPONENT
        if not bounded or (real and mp.im(result) != 0):
            raise _NoValue
        return mp.re(result) if mp.im(result) == 0 else result


def _coordinate(name: str, k: int) -> Value:
    """A variable's value at the k-th point: between 0.2 and 1 at the first, up to 4 at others."""
    digest = hashlib.sha256(f"{k}/{name}".encode("utf-8", "replace")).digest()
    share = mp.mpf(int.from_bytes(digest[:24], "big")) / (1 << 192)
    size = mp.mpf(1) / 5 + share * (mp.mpf(4) / 5 if k == 0 else 4)
    return -size if k >= _POSITIVE_POINTS and (digest[31] + k) % 2 else size


_OF_TEN = re.compile(r"\\ln|\\log ?[({]? ?10+(?!\d)")  # `\log 100` is 2
_LATEX = [math_verify.LatexExtractionConfig()]
_ADVANCED = re.compile(  # what math-verify may read: no words, lists, relations or towers of powers
    r"(?=.*\\(?:[io]*nt|sum|prod|lim|det|partial|nabla|frac\{ ?d)(?![a-z]))"
    r"(?!.*(?:\^ ?\{[^{}+-]*\^ ?\{|(?:[({] ?){6}))(?:_ ?\{[^{}]*\}|_(?! ?\{)|\d{1,8}(?!\d)"
    r"|(?:\\(?!approx)[a-zA-Z]+|[a-zA-Z]{1,3})(?![a-zA-Z])|[-+*/^(){}\[\]|. ]){1,400}"
)


def compare(answer: str, label: str) -> tuple[Status, str]:
    """The status of an answer against a label, and what was compared."""
    wanted, text = gold(label), normal(answer)
    golds = " ".join(each.text for each in wanted)
    logs = ["lg"] if _OF_TEN.search(golds) else ["ln", "lg"]  # a gold `\\log` may mean either
    found: tuple[Status, str] = "wrong", "another value"
    try:
        if any(decide(text, wanted, Numeric(log=log)) for log in logs):
            return "correct", "equal value"
    except (NotRead, RecursionError) as error:
        found = "malformed", f"cannot be read: {error}"
    if len(wanted) == 1 and _ADVANCED.fullmatch(f"{text} {golds}"):
        options = {"fallback_mode": "no_fallback", "parsing_timeout": None}
        left, right = (math_verify.parse(f"${each}$", _LATEX, **options) for each in (golds, text))
        if math_verify.verify(left, right, timeout_seconds=None):
            return "correct", "math-verify finds them equal"
    return found
