"""Decide about expressions by their values to 150 digits at a few fixed points.

Two expressions that agree to 110 digits wherever both are real are taken to be equal. Every
operation's size is looked at before it is done: a tower of powers is refused, not worked out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from fractions import Fraction

from openrlhf_js.tasks.equivalence.functions import MAX_EXPONENT, SAME, WORK, NoValue, Value, mp
from openrlhf_js.tasks.equivalence.tree import Tree
from openrlhf_js.tasks.equivalence.values import rational

MAX_BITS = 60_000  # of an exact integer
_ZERO = mp.mpf(10) ** -130
_MAX_TERMS = 1_000
_LARGE = 128  # bits of a value before the point, past which it is worked out to more digits
_POINTS = 6
_POSITIVE_POINTS = 3
_CONSTANTS = {"e": mp.e, "i": mp.mpc(0, 1), "\\pi": mp.pi}


class Numeric:
    """A judge of expressions with variables, roots, logarithms and the like.

    Attributes:
        log: what `\\log` without a base means: `ln` or `lg`.
    """

    def __init__(self, log: str = "ln"):
        self.log = log

    def equal(self, answer: Tree, gold: Tree) -> bool | None:
        if answer == gold:
            return True
        left, right = rational(answer, MAX_BITS), rational(gold, MAX_BITS)
        if left is not None and right is not None:
            return left == right
        compared = 0
        for first, second in self.values(answer, gold):
            compared += 1
            if not _agree(first, second):
                return False
        return True if compared else None

    def proportional(self, answer: Tree, gold: Tree, positive: bool) -> bool | None:
        ratios = []
        for first, second in self.values(answer, gold):
            if abs(second) < _ZERO or abs(first) < _ZERO:
                return False
            ratios.append(first / second)
        if len(ratios) < 2:
            return None
        if positive and not (mp.im(ratios[0]) == 0 and ratios[0] > 0):
            return False
        return all(_agree(ratio, ratios[0]) for ratio in ratios)

    def close(self, answer: Tree, gold: Tree, tolerance: Fraction) -> bool | None:
        left, right = rational(answer), rational(gold)
        if left is not None and right is not None:
            return abs(left - right) <= tolerance
        allowed = mp.mpf(tolerance.numerator) / tolerance.denominator + SAME
        compared = [abs(first - second) <= allowed for first, second in self.values(answer, gold)]
        return all(compared) if compared else None

    def values(self, answer: Tree, gold: Tree) -> Iterator[tuple[Value, Value]]:
        """The pairs of values at the points where both have one.

        At a negative point a root or logarithm may leave the reals: it then says nothing of an
        identity that holds for positive variables.
        """
        answer, gold = _with_log(answer, self.log), _with_log(gold, self.log)
        names = _variables(answer) | _variables(gold)
        counted = _has_series(answer) or _has_series(gold)
        for k in range(_POINTS if names else 1):
            point = {name: _count(name, k) if counted else _coordinate(name, k) for name in names}
            try:
                real = k >= _POSITIVE_POINTS
                pair = value(answer, point, real), value(gold, point, real)
                digits = max(mp.mag(each) if each else 0 for each in pair)
                if _LARGE < digits <= MAX_BITS:  # 2^{2024} + 1 is not 2^{2024}
                    with mp.workprec(digits + mp.prec):
                        pair = value(answer, point, real), value(gold, point, real)
            except NoValue:
                continue
            yield pair


def _agree(first: Value, second: Value) -> bool:
    size = max(abs(first), abs(second))
    if size < _ZERO:
        return True
    scale = size if mp.mag(size) > MAX_BITS else min(size, mp.ldexp(1, _LARGE))
    return bool(abs(first - second) <= SAME * scale)


def _with_log(tree: Tree, log: str) -> Tree:
    r"""The tree with `log` in the place of a `\log` without a base."""
    args = [_with_log(arg, log) if isinstance(arg, Tree) else arg for arg in tree.args]
    if tree.kind == "call" and args[0] == "log":
        args[0] = log
    return Tree(tree.kind, tuple(args))


def _variables(tree: Tree) -> set[str]:
    if tree.kind == "sym":
        return set() if tree.args[0] in _CONSTANTS else {tree.args[0]}
    found = set().union(*(_variables(arg) for arg in tree.args if isinstance(arg, Tree)))
    return found - {tree.args[0].args[0]} if tree.kind == "series" else found


def _coordinate(name: str, k: int) -> Value:
    """A variable's value at the k-th point: between 0.2 and 1 at the first, up to 4 at others."""
    digest = hashlib.sha256(f"{k}/{name}".encode("utf-8", "replace")).digest()
    share = mp.mpf(int.from_bytes(digest[:24], "big")) / (1 << 192)
    size = mp.mpf(1) / 5 + share * (mp.mpf(4) / 5 if k == 0 else 4)
    return -size if k >= _POSITIVE_POINTS and (digest[31] + k) % 2 else size


def _count(name: str, k: int) -> Value:
    """A variable's value where it may bound a sum: a whole number from 1 up."""
    return mp.mpf(k + 1 + len(name) + ord(name[0]) % 7)


def _has_series(tree: Tree) -> bool:
    return tree.kind == "series" or any(
        isinstance(arg, Tree) and _has_series(arg) for arg in tree.args
    )


def value(tree: Tree, point: dict[str, Value], real: bool) -> Value:
    """The value at a point, with only real numbers on the way if so asked.

    Raises:
        NoValue: if there is none, or the work would be too much.
    """
    kind, args = tree
    if kind in ("num", "base"):
        return mp.mpf(args[0].numerator) / args[0].denominator
    if kind == "sym":
        return point[args[0]] if args[0] in point else +_CONSTANTS[args[0]]
    if kind == "series":
        return _series(tree, point, real)
    name, operands = (args[0], args[1:]) if kind == "call" else (kind, args)
    work = WORK.get(name)
    if work is None:
        raise NoValue
    try:
        result = work(*(value(operand, point, real) for operand in operands))
    except (ArithmeticError, ValueError, TypeError, RecursionError) as problem:
        raise NoValue from problem
    if not mp.isfinite(result) or abs(mp.mag(result) if result else 0) > MAX_EXPONENT:
        raise NoValue
    if mp.im(result) == 0:
        return mp.re(result)
    if real:
        raise NoValue
    return result


def _series(tree: Tree, point: dict[str, Value], real: bool) -> Value:
    variable, first, last, term, name = tree.args
    if _has_series(term):
        raise NoValue
    bounds = value(first, point, real), value(last, point, real)
    if not all(mp.isint(bound) for bound in bounds) or bounds[1] - bounds[0] > _MAX_TERMS:
        raise NoValue
    product = name == "prod"
    total = mp.mpf(product)
    for i in range(int(bounds[0]), int(bounds[1]) + 1):
        now = value(term, {**point, variable.args[0]: mp.mpf(i)}, real)
        total = total * now if product else total + now
    return total
