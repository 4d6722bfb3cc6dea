r"""Compare numbers exactly that are too long to write out: `2^{100000}`, `\binom{2024}{1012}`.

Sums, products, quotients, whole powers and factorials are worked out modulo a prime of 128 bits,
which is drawn when the process first needs it. Equal expressions have the same residue; different
ones of N bits share it with a probability of about N / 2^{127}. Names, \pi and e stand for residues
that are drawn, too.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable

from openrlhf_js.tasks.equivalence.exact import rational
from openrlhf_js.tasks.equivalence.tree import Tree

_PRIME_BITS = 128
_MOST_FACTORS = 1 << 17  # of a factorial


@functools.cache
def _prime() -> int:
    """A random prime with a square root of -1: random numbers that pass the test are prime."""
    while True:
        candidate = secrets.randbits(_PRIME_BITS - 2) << 2 | 1 | 1 << (_PRIME_BITS - 1)
        if all(pow(base, candidate - 1, candidate) == 1 for base in (2, 3, 5)):
            return candidate


@functools.lru_cache(maxsize=1 << 10)
def _residue_of_name(name: str) -> int:
    prime = _prime()
    if name != "i":
        return secrets.randbelow(prime)
    while True:
        root = pow(secrets.randbelow(prime), (prime - 1) // 4, prime)
        if root * root % prime == prime - 1:
            return root


def residue(tree: Tree) -> int | None:
    """The residue of a value, or None where it has another operation or cannot be worked out."""
    kind, args = tree
    if kind == "num":
        return _quotient(args[0].numerator, args[0].denominator)
    if kind == "sym":
        return _residue_of_name(args[0])
    if kind == "pow":
        return _power(residue(args[0]), args[1])
    if kind == "fact":
        return _factorial(args[0])
    if kind == "call" and args[0] == "binom":
        return _binomial(args[1], args[2])
    if kind == "call" and args[0] == "exp":
        return _power(_residue_of_name("e"), args[1])
    if kind not in _OPERATIONS:
        return None
    operands = [residue(arg) for arg in args]
    if None in operands:
        return None
    return _OPERATIONS[kind](*operands)


def _quotient(numerator: int, denominator: int) -> int | None:
    """The residue of a quotient, None where it has none."""
    if denominator % _prime() == 0:
        return None
    return numerator * pow(denominator, -1, _prime()) % _prime()


_OPERATIONS: dict[str, Callable[..., int | None]] = {
    "neg": lambda value: -value % _prime(),
    "add": lambda left, right: (left + right) % _prime(),
    "mul": lambda left, right: left * right % _prime(),
    "apply": lambda left, right: left * right % _prime(),
    "div": _quotient,
    "percent": lambda value: _quotient(value, 100),
    "degree": lambda value: _quotient(value * _residue_of_name("\\pi"), 180),
}


def _power(base: int | None, exponent_tree: Tree) -> int | None:
    exponent = rational(exponent_tree)
    if base is None or exponent is None or exponent.denominator > 1:
        return None
    if base == 0 and exponent <= 0:
        return None
    return pow(base, int(exponent), _prime())


def _whole(tree: Tree) -> int | None:
    """The value of a tree where it is whole and has a factorial here."""
    value = rational(tree)
    if value is None or value.denominator > 1 or not 0 <= value <= _MOST_FACTORS:
        return None
    return int(value)


def _factorial(tree: Tree) -> int | None:
    count = _whole(tree)
    return None if count is None else _product_up_to(count)


def _binomial(of: Tree, chosen: Tree) -> int | None:
    count = _whole(of)
    chosen_count = _whole(chosen)
    if count is None or chosen_count is None:
        return None
    if chosen_count > count:
        return 0
    below = _product_up_to(chosen_count) * _product_up_to(count - chosen_count)
    return _quotient(_product_up_to(count), below)


def _product_up_to(count: int) -> int:
    """The residue of a factorial, out of a table that grows as far as was asked."""
    factorials = _factorials()
    for factor in range(len(factorials), count + 1):
        factorials.append(factorials[-1] * factor % _prime())
    return factorials[count]


@functools.cache
def _factorials() -> list[int]:
    return [1]
