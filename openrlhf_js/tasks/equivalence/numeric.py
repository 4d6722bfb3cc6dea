r"""Judge expressions by their values to 150 digits, and with math-verify where our grammar ends.

For a worker process, which is killed when it takes too long. Expressions that agree to 110 digits
wherever both are real are equal. Of math-verify only the LaTeX grammar is used: its reader of plain
expressions hands text to sympy's `parse_expr`, which runs it as Python.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import math_verify
from mpmath import mp  # type: ignore[import-untyped]

from openrlhf_js.tasks.equivalence.compare import Judge
from openrlhf_js.tasks.equivalence.exact import OPERATIONS
from openrlhf_js.tasks.equivalence.grader import decide
from openrlhf_js.tasks.equivalence.labels import golds_of
from openrlhf_js.tasks.equivalence.spelling import normal
from openrlhf_js.tasks.equivalence.tree import NotRead, Tree, names, words
from openrlhf_js.tasks.record import Status

mp.dps = 150
MAX_EXPONENT = 1 << 20  # of a power of two that bounds a value
MAX_BITS = 60_000  # of a value that is worked out to its last digit
_SAME = mp.mpf(10) ** -110  # a relative difference
_ZERO = mp.mpf(10) ** -130  # an absolute one
_LARGE = 128  # bits of a value before the point, past which it is worked out to more digits
_CONSTANTS = {"e": mp.e, "i": mp.mpc(0, 1), "\\pi": mp.pi}
Value = Any  # mpf or mpc


class _NoValue(Exception):
    """The expression has no finite value here, or none that may be worked out."""


# operations


def _power(base: Value, exponent: Value) -> Value:
    magnitude = abs(mp.mag(base)) + 1 if base else 1
    if magnitude * abs(exponent) > MAX_EXPONENT:
        raise _NoValue
    if mp.im(base) == 0 > base and _is_odd_root(exponent):
        return -mp.power(-base, exponent)  # the real root, as schools take it
    return mp.power(base, exponent)


def _is_odd_root(exponent: Value) -> bool:
    degree = 1 / exponent if exponent else 0
    is_whole = abs(degree - mp.nint(mp.re(degree))) < _SAME
    return bool(is_whole and degree % 2)


def _root(degree: Value, radicand: Value) -> Value:
    return mp.sqrt(radicand) if degree == 2 else _power(radicand, 1 / degree)


def _bounded(function: Callable[..., Value], most: int) -> Callable[..., Value]:
    """A function that refuses arguments at a cost that grows with their size."""

    def bounded(*arguments: Value) -> Value:
        for argument in arguments:
            is_cheap = mp.prec < 4_000 or mp.isint(argument)
            if not is_cheap or mp.mag(argument or 1) > most:
                raise _NoValue
        return function(*arguments)

    return bounded


def _of_whole_numbers(function: Callable[..., int]) -> Callable[..., Value]:
    """A function that refuses arguments that are not whole or too large."""

    def checked(*arguments: Value) -> Value:
        for argument in arguments:
            if not mp.isint(argument) or mp.mag(argument or 1) > mp.prec:
                raise _NoValue
        return mp.mpf(function(*map(int, arguments)))

    return checked


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    **OPERATIONS,
    "pow": _power,
    "root": _root,
    "degree": lambda degrees: degrees * mp.pi / 180,
    "abs": abs,
    "floor": mp.floor,
    "ceil": mp.ceil,
    "max": max,
    "min": min,
    "ln": mp.log,
    "lg": mp.log10,
    "log_base": mp.log,
    "cis": mp.expj,
    "exp": lambda exponent: _power(mp.e, exponent),
    "fact": _bounded(mp.factorial, 16),
    "binom": _bounded(mp.binomial, 16),
    "gcd": _of_whole_numbers(math.gcd),
    "lcm": _of_whole_numbers(math.lcm),
}
for _name in words("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh"):
    _FUNCTIONS[_name] = _bounded(getattr(mp, _name.replace("arc", "a")), 4_000)


# points


class _Point(NamedTuple):
    """Values of variables, in the order of their names, and whether only real results count."""

    coordinates: tuple[Value, ...]
    is_real: bool


_POSITIVE_POINTS = 3
_MOST_PATTERNS = 12
_LEAST_SIZE = mp.mpf(1) / 5
_NEAR = mp.mpf(4) / 5  # how much larger coordinates may be
_FAR = mp.mpf(4)


@lru_cache(maxsize=64)
def _points(count: int) -> tuple[tuple[_Point, ...], ...]:
    """Points for as many variables: of each tuple, the first at which all have a value counts.

    There are three with positive coordinates, where values may be complex, and one for every other
    pattern of signs of up to three variables. Of each pattern there is a near point, between 0.2
    and 1, and one further away: at one of them a logarithm or a root may have no real value.
    """
    if count == 0:
        return ((_Point((), False),),)
    points: list[tuple[_Point, ...]] = []
    for index in range(_POSITIVE_POINTS):
        sizes = _coordinates(index, count, _FAR if index else _NEAR)
        points.append((_Point(sizes, False),))
    patterns = _sign_patterns(count)
    if count == 1:
        patterns *= 2
    for index, signs in enumerate(patterns, _POSITIVE_POINTS):
        near_sizes = _coordinates(index, count, _NEAR)
        far_sizes = _coordinates(index, count, _FAR)
        near = _Point(_signed(signs, near_sizes), True)
        far = _Point(_signed(signs, far_sizes), True)
        points.append((far, near) if index % 2 else (near, far))
    return tuple(points)


def _sign_patterns(count: int) -> list[tuple[int, ...]]:
    """All patterns of signs with a minus for up to three variables, and a few for more."""
    if count <= 3:
        return [signs for signs in product((1, -1), repeat=count) if -1 in signs]
    patterns = [(-1,) * count]
    for index in range(min(count, _MOST_PATTERNS)):
        signs = [1] * count
        signs[index] = -1
        patterns.append(tuple(signs))
    return patterns


def _signed(signs: Sequence[int], sizes: Sequence[Value]) -> tuple[Value, ...]:
    return tuple(sign * size for sign, size in zip(signs, sizes, strict=True))


def _coordinates(index: int, count: int, reach: Value) -> tuple[Value, ...]:
    """The sizes of a point's coordinates, which depend on no name."""
    coordinates = []
    for place in range(count):
        digest = hashlib.sha256(f"{index}/{place}".encode()).digest()
        share = mp.mpf(int.from_bytes(digest, "big")) / (1 << 256)
        coordinates.append(_LEAST_SIZE + share * reach)
    return tuple(coordinates)


# the judge


@dataclass(frozen=True)
class Numeric(Judge):
    r"""Judges expressions with variables, roots, logarithms; `\log` is `log`: ln or lg."""

    log: str = "ln"

    def values(self, *trees: Tree) -> Iterator[tuple[Value, ...]]:
        """The values at the points where all have one; at negative points only if they are real."""
        all_names: set[str] = set()
        for tree in trees:
            all_names |= names(tree)
        variables = sorted(all_names - _CONSTANTS.keys())
        for choices in _points(len(variables)):
            for point in choices:
                bindings = _CONSTANTS | dict(zip(variables, point.coordinates, strict=True))
                try:
                    values = self._values_at(trees, bindings, point.is_real)
                except _NoValue:
                    continue
                yield tuple(values)
                break

    def _values_at(
        self, trees: Sequence[Tree], bindings: dict[str, Value], is_real: bool
    ) -> list[Value]:
        values = [self.value(tree, bindings, is_real) for tree in trees]
        bits = max(mp.mag(value or 1) for value in values)
        if bits <= _LARGE or bits > MAX_BITS:
            return values
        with mp.workprec(bits + mp.prec):  # 2^{2024} + 1 is not 2^{2024}
            return [self.value(tree, bindings, is_real) for tree in trees]

    def agree(self, left: Value, right: Value) -> bool:
        if self.within:
            return bool(abs(left - right) <= mp.convert(self.within) + _SAME)
        size = max(abs(left), abs(right))
        scale = size
        if mp.mag(size) <= MAX_BITS:
            scale = min(size, mp.ldexp(1, _LARGE))
        return bool(size < _ZERO or abs(left - right) <= _SAME * scale)

    def size(self, tree: Tree) -> Any:
        size = super().size(tree)
        if size is None or mp.isinf(size):
            return size
        if mp.im(size):
            return None
        return mp.nint(mp.convert(size) / _SAME) * _SAME

    def value(self, tree: Tree, bindings: dict[str, Value], is_real: bool) -> Value:
        """The value of a tree, with only real numbers on the way if so asked; or _NoValue."""
        if tree.kind == "num":
            exact = tree.args[0]
            return mp.mpf(exact.numerator) / exact.denominator
        if tree.kind == "sym":
            result = +bindings[tree.args[0]]
        else:
            result = self._result(tree, bindings, is_real)
        if not mp.isfinite(result) or abs(mp.mag(result or 1)) > MAX_EXPONENT:
            raise _NoValue
        if mp.im(result) == 0:
            return mp.re(result)
        if is_real:
            raise _NoValue
        return result

    def _result(self, tree: Tree, bindings: dict[str, Value], is_real: bool) -> Value:
        """What the function of a node makes of its operands."""
        name = tree.kind
        operands: Sequence[Any] = tree.args
        if tree.kind == "call":
            name = tree.args[0]
            operands = tree.args[1:]
        if name == "log":
            name = self.log
        function = _FUNCTIONS.get(name)
        if function is None:
            raise _NoValue
        try:
            values = [self.value(operand, bindings, is_real) for operand in operands]
            return function(*values)
        except (ArithmeticError, ValueError, TypeError) as problem:
            raise _NoValue from problem


# one answer

_OF_TEN = re.compile(r"\\ln|\\log ?[({]? ?10+(?!\d)")  # `\log 100` is 2
_LATEX = [math_verify.LatexExtractionConfig()]
_ADVANCED = re.compile(  # what math-verify may read: no words, lists, relations or towers of powers
    r"(?=.*\\(?:[io]*nt|sum|prod|lim|det|partial|nabla|frac\{ ?d)(?![a-z]))"
    r"(?!.*(?:\^ ?\{[^{}+-]*\^ ?\{|(?:[({] ?){6}))(?:_ ?\{[^{}]*\}|_(?! ?\{)|\d{1,8}(?!\d)"
    r"|(?:\\(?!approx)[a-zA-Z]+|[a-zA-Z]{1,3})(?![a-zA-Z])|[-+*/^(){}\[\]|. ]){1,400}"
)


def compare(answer: str, label: str) -> tuple[Status, str]:
    """The status of an answer against a label, and what was compared."""
    golds = golds_of(label)
    text = normal(answer)
    gold_text = " ".join(gold.text for gold in golds)
    logs = ["lg"] if _OF_TEN.search(gold_text) else ["ln", "lg"]  # a gold `\\log` may mean either
    verdict: tuple[Status, str] = ("wrong", "another value")
    try:
        for log in logs:
            if decide(text, golds, Numeric(log=log)):
                return "correct", "equal value"
    except (NotRead, RecursionError) as error:
        verdict = ("malformed", f"cannot be read: {error}")
    both_texts = f"{text} {gold_text}"
    is_advanced = len(golds) == 1 and _ADVANCED.fullmatch(both_texts)
    if is_advanced and _math_verify_agrees(text, gold_text):
        return "correct", "math-verify finds them equal"
    return verdict


def _math_verify_agrees(text: str, gold_text: str) -> bool:
    """Whether math-verify's LaTeX grammar finds both equal; the worker's own limit bounds it."""
    gold = _math_verify_parse(gold_text)
    answer = _math_verify_parse(text)
    return bool(math_verify.verify(gold, answer, timeout_seconds=None))


def _math_verify_parse(latex: str) -> list[Any]:
    trees: list[Any] = math_verify.parse(
        f"${latex}$", _LATEX, fallback_mode="no_fallback", parsing_timeout=None
    )
    return trees
