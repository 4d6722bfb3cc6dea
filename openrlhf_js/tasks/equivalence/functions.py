"""The functions that answers use, to 150 digits, each refusing what would take long.

Meant for a worker process: `mpmath.mp` and its precision are one for the whole process.
"""

from __future__ import annotations

from typing import Any

from mpmath import mp  # type: ignore[import-untyped]

mp.dps = 150
MAX_EXPONENT = 1 << 20  # of a power of two that bounds a value
SAME = mp.mpf(10) ** -110  # the relative difference of two values that are taken to be equal

Value = Any  # mpf or mpc


class NoValue(Exception):
    """The expression has no finite value here, or none that may be worked out."""


def _power(base: Value, exponent: Value) -> Value:
    size = abs(mp.mag(base)) + 1 if base else 1
    if size * abs(exponent) > MAX_EXPONENT:
        raise NoValue
    if mp.im(base) == 0 and base < 0 and mp.im(exponent) == 0:
        odd = _odd_root(exponent)
        if odd is not None:  # the real root, as schools take it
            return odd * mp.power(-base, exponent)
    return mp.power(base, exponent)


def _odd_root(exponent: Value) -> int | None:
    """The sign of (-1)^(p/q) for a small odd q, or None where the exponent is no such fraction."""
    for q in range(3, 10, 2):
        p = mp.nint(exponent * q)
        if abs(exponent * q - p) < SAME and int(p) % q:
            return -1 if int(p) % 2 else 1
    return None


def _root(radicand: Value, degree: Value) -> Value:
    if degree == 2:
        return mp.sqrt(radicand)
    return _power(radicand, 1 / degree)


def _exp(exponent: Value) -> Value:
    return _power(mp.e, exponent)


def _factorial(argument: Value) -> Value:
    if abs(argument) > 100_000:
        raise NoValue
    return mp.factorial(argument)


def _binomial(n: Value, k: Value) -> Value:
    if abs(n) > 100_000 or abs(k) > 100_000:
        raise NoValue
    return mp.binomial(n, k)


def _bounded(function: Any) -> Any:
    """A function whose argument is first reduced, at a cost that grows with its size."""

    def call(argument: Value) -> Value:
        if argument and mp.mag(argument) > 4_000:
            raise NoValue
        return function(argument)

    return call


WORK = {
    "neg": lambda a: -a,
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": _power,
    "fact": _factorial,
    "deg": lambda a: a * mp.pi / 180,
    "pct": lambda a: a / 100,
    "root": _root,
    "abs": abs,
    "floor": mp.floor,
    "ceil": mp.ceil,
    "binom": _binomial,
    "exp": _exp,
    "cis": mp.expj,
    "ln": mp.log,
    "lg": mp.log10,
    "log_base": lambda a, b: mp.log(a) / mp.log(b),
    "max": lambda *args: max(args),
    "min": lambda *args: min(args),
    **{
        name: _bounded(getattr(mp, function))
        for name, function in {
            "sin": "sin", "cos": "cos", "tan": "tan", "cot": "cot", "sec": "sec", "csc": "csc",
            "arcsin": "asin", "arccos": "acos", "arctan": "atan", "sinh": "sinh", "cosh": "cosh",
            "tanh": "tanh",
        }.items()
    },
}  # fmt: skip
