"""Values of trees, with enough bits to tell different values apart.

No fixed precision would do: 1 - 2^{-2024} is not 1. So each evaluation sums the sizes in bits (how
large or small) of its input numbers and of the results of powers and functions. Values that agree
to twice that sum plus `_GUARD_BITS` count as equal. Trees that would exceed the limits here are not
compared by value.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mpmath import mp  # type: ignore[import-untyped]

from answer_graders.math.compare import Undecided
from answer_graders.math.exact import OPERATIONS
from answer_graders.math.tree import Tree, subtrees, words

_GUARD_BITS = 128
MAX_EXPONENT = 1 << 20  # of a power of two that bounds a value
_LEAST_BITS = 384
MAX_BITS = 1 << 18
_MAX_WORK = 1 << 21  # bits of precision times nodes
_MAX_BITS_OF_FUNCTIONS = 1 << 15  # a logarithm takes time quadratic in the precision
_MOST_PASSES = 5
_VALUES = {"e": mp.e, "i": mp.mpc(0, 1), "\\pi": mp.pi}  # of the constants
Value = Any  # mpf or mpc


class NoValue(Exception):
    """The expression has no finite value here."""


# operations


def _power(base: Value, exponent: Value) -> Value:
    magnitude = abs(mp.mag(base)) + 1 if base else 1
    if magnitude * abs(exponent) > MAX_EXPONENT:
        raise NoValue
    if not mp.isint(2 * exponent):
        _limit_precision()
    if mp.im(base) == 0 > base and _is_odd_root(exponent):
        return -mp.power(-base, exponent)  # the real root, as at school
    return mp.power(base, exponent)


def _is_odd_root(exponent: Value) -> bool:
    if not exponent or mp.im(exponent):
        return False
    degree = mp.nint(1 / exponent)
    rounding = mp.ldexp(1, 8 - mp.prec)
    return bool(abs(degree * exponent - 1) < rounding and degree % 2)


def _limit_precision() -> None:
    if mp.prec > _MAX_BITS_OF_FUNCTIONS:
        raise Undecided


def _elementary(function: Callable[..., Value]) -> Callable[..., Value]:
    """A function that refuses arguments and precisions for which it would take long."""

    def bounded(*arguments: Value) -> Value:
        _limit_precision()
        for argument in arguments:
            if mp.mag(argument or 1) > 4_000:
                raise NoValue
        return function(*arguments)

    return bounded


def _combinatorial(
    function: Callable[..., Value], of_whole_numbers: Callable[..., int]
) -> Callable[..., Value]:
    """A function of small numbers, exact for non-negative whole numbers."""

    def bounded(*arguments: Value) -> Value:
        for argument in arguments:
            if mp.mag(argument or 1) > 16:
                raise NoValue
        if all(mp.isint(argument) and argument >= 0 for argument in arguments):
            return mp.mpf(of_whole_numbers(*map(int, arguments)))
        _limit_precision()
        return function(*arguments)

    return bounded


def _of_whole_numbers(function: Callable[..., int]) -> Callable[..., Value]:
    """A function that refuses arguments that are too large or not whole."""

    def checked(*arguments: Value) -> Value:
        for argument in arguments:
            if not mp.isint(argument) or mp.mag(argument or 1) > mp.prec:
                raise NoValue
        return mp.mpf(function(*map(int, arguments)))

    return checked


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    **OPERATIONS,
    "pow": _power,
    "root": lambda degree, radicand: _power(radicand, 1 / degree),
    "degree": lambda degrees: degrees * mp.pi / 180,
    "abs": abs,
    "floor": mp.floor,
    "ceil": mp.ceil,
    "max": max,
    "min": min,
    "ln": _elementary(mp.log),
    "lg": _elementary(mp.log10),
    "log_base": _elementary(mp.log),
    "arccot": _elementary(lambda cotangent: mp.pi / 2 - mp.atan(cotangent)),  # from 0 to pi
    "cis": _elementary(mp.expj),
    "exp": lambda exponent: _power(mp.e, exponent),
    "fact": _combinatorial(mp.factorial, functools.lru_cache(maxsize=16)(math.factorial)),
    "binom": _combinatorial(mp.binomial, math.comb),
    "gcd": _of_whole_numbers(math.gcd),
    "lcm": _of_whole_numbers(math.lcm),
}
for _name in words("sin cos sinh cosh arcsin arccos arctan arcsec arccsc arcsinh arccosh arctanh"):
    _FUNCTIONS[_name] = _elementary(getattr(mp, _name.replace("arc", "a")))
_SUMS = words("neg add mul apply div percent degree")  # and products, of operands counted before
_NEVER_NEAR_ZERO = words("neg mul div percent apply pow root exp fact binom abs max min")
_QUOTIENTS = {
    "tan": ("sin", "cos"),
    "cot": ("cos", "sin"),
    "sec": ("", "cos"),
    "csc": ("", "sin"),
    "tanh": ("sinh", "cosh"),
}


# evaluation


def _bits_for(size: int) -> int:
    """The bits needed to tell apart numbers computed from inputs of this total size."""
    return _GUARD_BITS + 2 * size


def _rounded(exact: Fraction) -> Value:
    return mp.mpf(exact.numerator) / exact.denominator


@dataclass
class Evaluation:
    r"""Evaluates trees with values for the names; `\log` means `log`: ln or lg."""

    names: Mapping[str, Value]
    is_real: bool  # whether all values must be real, also intermediate ones
    log: str
    bits: int  # values that agree in so many bits are equal
    size: int = 0  # of all numbers so far, in bits

    def value(self, tree: Tree) -> Value:
        """The value of a tree; NoValue if it has none, Undecided if that would take too long."""
        if tree.kind == "num":
            exact = tree.args[0]
            self._count(exact.numerator.bit_length() + exact.denominator.bit_length())
            return _rounded(exact)
        if tree.kind == "sym":
            result = self.names[tree.args[0]]
            self._count(abs(int(mp.mag(result or 1))))
        else:
            result = self._result(tree)
        if self.is_real and mp.im(result):
            raise NoValue
        return result

    def _result(self, tree: Tree) -> Value:
        """The result of a node's function on its operands."""
        name = tree.kind
        operands: Sequence[Any] = tree.args
        if tree.kind == "call":
            name = tree.args[0]
            operands = tree.args[1:]
        if name == "log":
            name = self.log
        if name not in _FUNCTIONS and name not in _QUOTIENTS:
            raise NoValue
        return self._applied(name, [self.value(operand) for operand in operands])

    def _applied(self, name: str, operands: Sequence[Value]) -> Value:
        """The value of a function; one with poles or saturation is a quotient of two others."""
        if name in _QUOTIENTS:
            above, below = _QUOTIENTS[name]
            numerator = self._applied(above, operands) if above else mp.one
            return self._applied("div", [numerator, self._applied(below, operands)])
        if name not in _SUMS:
            operands = [self._whole(operand) for operand in operands]
        try:
            result = mp.convert(_FUNCTIONS[name](*operands))
        except (ArithmeticError, ValueError, TypeError) as problem:
            raise NoValue from problem
        if not mp.isfinite(result):
            raise NoValue
        if not result:
            return mp.zero
        magnitude = int(mp.mag(result))
        if name not in _NEVER_NEAR_ZERO and self._is_rest(magnitude, operands):
            return mp.zero
        if abs(magnitude) > MAX_EXPONENT:
            raise NoValue
        if name not in _SUMS:
            self._count(abs(magnitude))
        return result

    def _count(self, bits: int) -> None:
        self.size += bits
        if _bits_for(self.size) > MAX_BITS:
            raise Undecided

    def _is_rest(self, magnitude: int, operands: Sequence[Value]) -> bool:
        """Whether a result is 0 up to rounding, by its size in bits and that of its operands."""
        largest = max(mp.mag(operand or 1) for operand in operands)
        return bool(magnitude <= max(largest, 1) - self.bits)

    def _whole(self, value: Value) -> Value:
        """The whole number that equals a value up to rounding; else the value."""
        if isinstance(value, mp.mpc) or mp.isint(value):
            return value
        whole = mp.nint(value)
        return whole if whole and self.same(value, whole) else value

    def same(self, left: Value, right: Value) -> bool:
        """Whether two values are equal up to rounding."""
        difference = left - right
        if not difference:
            return True
        largest = max(mp.mag(left or mp.zero), mp.mag(right or mp.zero))
        return bool(mp.mag(difference) <= largest - self.bits)


def _most_bits(trees: Sequence[Tree]) -> int:
    nodes = sum(1 for tree in trees for _ in subtrees(tree))
    return _MAX_WORK // nodes


@contextmanager
def evaluated(
    trees: Sequence[Tree],
    coordinates: Mapping[str, Fraction],
    log: str,
    is_real: bool = False,
    most_bits: int = MAX_BITS,
) -> Iterator[tuple[Evaluation, list[Value]]]:
    """The values of trees at the precision that they need, set in mpmath inside the `with`.

    NoValue if a tree has none; Undecided if they need too many bits.
    """
    bits = _LEAST_BITS
    for _ in range(_MOST_PASSES):
        if bits > _LEAST_BITS and bits > min(most_bits, _most_bits(trees)):
            raise Undecided
        with mp.workprec(bits + bits // 2 + 64):
            names = {name: +value for name, value in _VALUES.items()}
            names |= {name: _rounded(value) for name, value in coordinates.items()}
            evaluation = Evaluation(names, is_real, log, bits)
            values: list[Value] | None = None
            try:
                values = [evaluation.value(tree) for tree in trees]
            except NoValue:
                if _bits_for(evaluation.size) <= bits:
                    raise
            bits = _bits_for(evaluation.size)
            if values is not None and bits <= evaluation.bits:
                yield evaluation, values
                return
    raise Undecided
