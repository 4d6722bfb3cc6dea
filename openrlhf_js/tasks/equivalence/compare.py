"""Whether two trees are the same answer: True, False, or None where the judge cannot tell.

Structure is compared here (lists in any order, tuples in order, intervals with their ends,
relations); whether two scalars are equal is asked of a `Judge`: first of `Exact`, which is cheap,
then of the numeric one in `numeric`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from openrlhf_js.tasks.equivalence import domains
from openrlhf_js.tasks.equivalence.judges import Judge, Verdict, every, matched, some
from openrlhf_js.tasks.equivalence.members import (
    has_ellipsis,
    is_many,
    is_name,
    is_name_sum,
    members,
    named_tuple,
)
from openrlhf_js.tasks.equivalence.quantities import quantity, readings
from openrlhf_js.tasks.equivalence.readings import as_ratio
from openrlhf_js.tasks.equivalence.tree import Tree
from openrlhf_js.tasks.equivalence.values import rational

MAX_MEMBERS = 64
_ROUNDING = Fraction(1, 20)  # of the value, at most
_STRUCTURES = frozenset((
    "group", "list", "ratio", "matrix", "rel", "union", "minus", "meet", "empty", "field",
    "text",
))  # fmt: skip
_COPULA = re.compile(r" (?:is|are) ")
_DENIALS = frozenset(("no", "not", "none", "never", "neither", "if", "nothing", "nobody"))
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def same(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    """Whether an answer is the gold answer."""
    answer, gold = _unnamed(answer), _unnamed(gold)
    if answer == gold:
        return True
    kinds = {answer.kind, gold.kind}
    if _is_rounding(answer) or _is_rounding(gold):
        return _rounded(answer, gold, judge)
    if "rel" in kinds or domains.is_domain(answer) or domains.is_domain(gold):
        return _relations(answer, gold, judge)
    if is_many(answer) or is_many(gold):
        return _collections(answer, gold, judge)
    if "ratio" in kinds:
        return _ratios(answer, gold, judge)
    if "group" in kinds:
        return _groups(_as_tuple(answer), _as_tuple(gold), judge)
    if "residue" in kinds:
        return _residues(answer, gold, judge)
    if kinds == {"matrix"}:
        if [len(row) for row in answer.args] != [len(row) for row in gold.args]:
            return False
        return _pairwise(sum(answer.args, ()), sum(gold.args, ()), judge)
    if kinds == {"text"}:
        return _texts(answer.args[0].lower(), gold.args[0].lower())
    if "clock" in kinds:
        return _clocks(answer, gold, judge)
    if "base" in kinds:
        return _based(answer, gold)
    if kinds & _STRUCTURES:
        return False
    return _quantities(answer, gold, judge)


def _is(gold: Tree, judge: Judge) -> Callable[[Tree], Verdict]:
    return lambda answer: same(answer, gold, judge)


def close(answer: Tree, gold: Tree, tolerance: Fraction, judge: Judge) -> Verdict:
    """Whether a number is the gold number within the tolerance."""
    gold = _sides(gold)[-1] if gold.kind == "rel" else gold
    if answer.kind == "rel":
        equation = set(answer.args[0]) <= {"=", "~"}
        return equation and every(close(side, gold, tolerance, judge) for side in _sides(answer))
    if answer.kind in _STRUCTURES or gold.kind in _STRUCTURES:
        return False
    pairs = readings(quantity(answer), quantity(gold))
    return some(judge.close(left, right, tolerance) for left, right in pairs)


def _unnamed(tree: Tree) -> Tree:
    r"""The interval that is said to hold an unknown, `x \in (1, 2)`; the place of a point."""
    if tree.kind == "mul" and tree.args[1].kind == "group" and len(tree.args[1].args) > 3:
        name = tree.args[0]
        return tree.args[1] if name.kind == "sym" and name.args[0][0].isupper() else tree
    if tree.kind == "rel" and tree.args[0] == ("in",) and is_name(tree.args[1]):
        return tree.args[2]
    return tree


def _sides(tree: Tree) -> tuple[Tree, ...]:
    """The values that an equation or chain gives to a name: `x = 2 + 3 = 5` gives `2 + 3` and 5."""
    sides = tree.args[1:]
    if is_name(sides[0]):
        sides = sides[1:]
    elif is_name(sides[-1]):
        sides = sides[:-1]
    elif len(sides) > 2 and is_name_sum(sides[0]):
        sides = sides[1:]
    return tuple(side for side in sides if not has_ellipsis(side)) or sides


def _is_rounding(tree: Tree) -> bool:
    return tree.kind == "rel" and "~" in tree.args[0]


def _rounded(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    """Where a value stands with its rounding: either may be meant, if they are close."""
    if _is_rounding(gold):
        return some(same(answer, part, judge) for part in _parts(gold) if not is_name(part))
    exact, rounded = _parts(answer)
    if is_name(exact):
        return same(rounded, gold, judge)
    value = _sides(exact)[-1] if exact.kind == "rel" else exact
    roundings = rounded.args[1:] if rounded.kind == "rel" else (rounded,)
    size = rational(roundings[0])
    size = rational(quantity(roundings[0]).value) if size is None else size
    if size is None:
        return False
    near = (close(value, side, abs(size) * _ROUNDING, judge) for side in roundings)
    fits = some(same(part, gold, judge) for part in (exact, rounded))
    return every((fits, *near))


def _parts(tree: Tree) -> tuple[Tree, Tree]:
    """What stands before the first sign of rounding, and after it."""
    operators, *sides = tree.args
    at = operators.index("~")
    parts = (operators[:at], sides[: at + 1]), (operators[at + 1 :], sides[at + 1 :])
    exact, rounded = (Tree("rel", (ops, *part)) if ops else part[0] for ops, part in parts)
    return exact, rounded


def _relations(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    """Where one is a relation or a set of reals."""
    equations = [tree.kind == "rel" and set(tree.args[0]) == {"="} for tree in (answer, gold)]
    if equations == [True, False]:
        return every(same(side, gold, judge) for side in _sides(answer))
    if equations == [False, True]:
        return (
            same(answer, gold.args[-1], judge)
            if is_name(gold.args[1]) and answer.kind != "rel"
            else False
        )
    if equations == [True, True]:
        return _equations(answer, gold, judge)
    if answer.kind == gold.kind == "rel":
        return _inequalities(answer, gold, judge)
    left, right = domains.pieces(answer), domains.pieces(gold)
    if left is None or right is None:
        return False
    return matched(left, [_is(wanted, judge) for wanted in right])


def _equations(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    heads = answer.args[1], gold.args[1]
    function = {head.kind for head in heads} == {"sym", "mul"} and all(map(is_name, heads))
    if (heads[0] == heads[1] and is_name(heads[0])) or function:  # `f(x) = ...` is `y = ...`
        return every(same(side, gold.args[-1], judge) for side in answer.args[2:])
    if (
        len(answer.args) != 3
        or len(gold.args) != 3
        or _STRUCTURES & {side.kind for side in answer.args[1:]}
    ):
        return False
    return judge.proportional(_difference(answer), _difference(gold), False)


def _inequalities(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    answer, gold = _ascending(answer), _ascending(gold)
    if answer.args[0] != gold.args[0]:
        return False
    if len(answer.args) == 3 and not _STRUCTURES & {side.kind for side in answer.args[1:]}:
        return judge.proportional(_difference(answer), _difference(gold), answer.args[0] != ("!=",))
    return _pairwise(answer.args[1:], gold.args[1:], judge)


def _ascending(tree: Tree) -> Tree:
    operators, *sides = tree.args
    if set(operators) <= {">", ">="}:
        return Tree("rel", (tuple(_FLIPPED[op] for op in operators[::-1]), *sides[::-1]))
    return tree


def _difference(tree: Tree) -> Tree:
    return Tree("add", (tree.args[1], Tree("neg", (tree.args[2],))))


def _collections(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    if answer.kind == "list" and gold.kind == "group" and gold.args[0] == "(":
        return _groups(named_tuple(answer), gold, judge)
    left, right = members(answer), members(gold)
    if "group" in (answer.kind, gold.kind):  # a set holds nothing twice
        left, right = list(dict.fromkeys(left)), list(dict.fromkeys(right))
    if max(len(left), len(right)) > MAX_MEMBERS:
        return False
    if (left, right) == ([answer], [gold]):
        return _quantities(answer, gold, judge)
    return matched(left, [_is(wanted, judge) for wanted in right])


def _ratios(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    answer, gold = (as_ratio(tree) if tree.kind == "clock" else tree for tree in (answer, gold))
    answer, gold = (
        _quotient(tree) if other.kind != "ratio" else tree
        for tree, other in ((answer, gold), (gold, answer))
    )
    if answer.kind != "ratio" or gold.kind != "ratio":
        return False if _STRUCTURES & {answer.kind, gold.kind} else _quantities(answer, gold, judge)
    if len(answer.args) != len(gold.args):
        return False
    first, wanted = answer.args[0], gold.args[0]
    return every(
        same(Tree("mul", (part, wanted)), Tree("mul", (other, first)), judge)
        for part, other in zip(answer.args[1:], gold.args[1:], strict=True)
    )


def _based(answer: Tree, gold: Tree) -> Verdict:
    """Numerals in a base, which is said with the numeral, or on one side only."""
    if answer.kind == gold.kind:
        return answer.args[1] == gold.args[1]
    based, plain = (answer, gold) if answer.kind == "base" else (gold, answer)
    return plain.kind == "num" and str(plain.args[0]) == based.args[1].partition("_")[0]


def _residues(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    r"""Residue classes, `5 \pmod 7`, which are no numbers."""
    if answer.kind != gold.kind or answer.args[1] != gold.args[1]:
        return False
    left, right, modulus = (rational(tree) for tree in (answer.args[0], *gold.args))
    if left is None or right is None or not modulus:
        return same(answer.args[0], gold.args[0], judge)
    return (left - right) % modulus == 0


def _texts(answer: str, gold: str) -> bool:
    """Words; of one side only, what comes before `is` may be a sentence's beginning."""
    if answer == gold:
        return True
    return any(
        subject and said == other and not _DENIALS.intersection(subject.split())
        for text, other in ((answer, gold), (gold, answer))
        for subject, _, said in (_COPULA.sub("\n", text, count=1).partition("\n"),)
    )


def _clocks(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    """Times of day; one without its half of the day fits both halves of the other."""
    if answer.kind != gold.kind:
        return False
    (left, left_half, *_), (right, right_half, *_) = answer.args, gold.args
    if bool(left_half) == bool(right_half):
        return left == right
    return left == right or (
        (left if right_half else right) < 13 * 60 and left % 720 == right % 720
    )


def _quotient(tree: Tree) -> Tree:
    return Tree("div", tree.args) if tree.kind == "ratio" and len(tree.args) == 2 else tree


def _as_tuple(tree: Tree) -> Tree:
    """A column as a tuple: both are ways to write a vector."""
    if tree.kind == "matrix" and all(len(row) == 1 for row in tree.args):
        return Tree("group", ("(", ")", *(row[0] for row in tree.args)))
    return tree


def _groups(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    if answer.kind != "group" or gold.kind != "group" or answer.args[:2] != gold.args[:2]:
        return False
    return _pairwise(answer.args[2:], gold.args[2:], judge)


def _pairwise(answers: Sequence[Tree], golds: Sequence[Tree], judge: Judge) -> Verdict:
    if len(answers) != len(golds):
        return False
    return every(same(left, right, judge) for left, right in zip(answers, golds, strict=True))


def _quantities(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    pairs = readings(quantity(answer), quantity(gold))
    return some(judge.equal(left, right) for left, right in pairs)
