"""Whether two trees are the same answer: True, False, or None where the judge cannot tell.

Structure is compared here (lists in any order, tuples in order, intervals with their ends,
relations); whether two scalars are equal is asked of a `Judge`: first of `Exact`, which is cheap,
then of the numeric one in `numeric`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from openrlhf_js.tasks.equivalence import domains
from openrlhf_js.tasks.equivalence.equations import (
    ascending,
    difference,
    is_rounding,
    parts,
    rounding_error,
    sides_of,
)
from openrlhf_js.tasks.equivalence.judges import Judge, Verdict, every, matched, some
from openrlhf_js.tasks.equivalence.marks import same_numeral, same_time, same_words
from openrlhf_js.tasks.equivalence.members import (
    is_many,
    is_name,
    members,
    named_tuple,
    renaming,
)
from openrlhf_js.tasks.equivalence.quantities import quantity, readings
from openrlhf_js.tasks.equivalence.readings import as_ratio
from openrlhf_js.tasks.equivalence.tree import Tree
from openrlhf_js.tasks.equivalence.values import rational

MAX_MEMBERS = 64
_STRUCTURES = frozenset((
    "group", "list", "ratio", "matrix", "rel", "union", "minus", "meet", "empty", "field",
    "text",
))  # fmt: skip


def same(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    """Whether an answer is the gold answer."""
    answer, gold = _unnamed(answer), _unnamed(gold)
    if answer == gold:
        return True
    kinds = {answer.kind, gold.kind}
    if is_rounding(answer) or is_rounding(gold):
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
        return same_words(answer.args[0].lower(), gold.args[0].lower())
    if "clock" in kinds:
        return same_time(answer, gold)
    if gold.kind == "base":
        return same_numeral(answer, gold)
    if kinds & _STRUCTURES:
        return False
    return _quantities(answer, gold, judge)


def _is(gold: Tree, judge: Judge) -> Callable[[Tree], Verdict]:
    return lambda answer: same(answer, gold, judge)


def close(answer: Tree, gold: Tree, tolerance: Fraction, judge: Judge) -> Verdict:
    """Whether a number is the gold number within the tolerance."""
    gold = sides_of(gold)[-1] if gold.kind == "rel" else gold
    if answer.kind == "rel":
        equation = set(answer.args[0]) <= {"=", "~"}
        return equation and every(close(side, gold, tolerance, judge) for side in sides_of(answer))
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


def _rounded(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    """Where a value stands with its rounding: either may be meant, if they are close."""
    if is_rounding(gold):
        return some(same(answer, part, judge) for part in parts(gold) if not is_name(part))
    exact, rounded = parts(answer)
    if is_name(exact):
        return same(rounded, gold, judge)
    values = sides_of(exact) if exact.kind == "rel" else (exact,)
    roundings = rounded.args[1:] if rounded.kind == "rel" else (rounded,)
    size = rational(roundings[0])
    size = rational(quantity(roundings[0]).value) if size is None else size
    if size is None:
        return False
    near = (
        close(value, side, rounding_error(size), judge) for value in values for side in roundings
    )
    fits = some(same(part, gold, judge) for part in (exact, rounded))
    return every((fits, *near))


def _relations(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    """Where one is a relation or a set of reals."""
    equations = [tree.kind == "rel" and set(tree.args[0]) == {"="} for tree in (answer, gold)]
    if equations == [True, False]:
        return every(same(side, gold, judge) for side in sides_of(answer))
    if equations == [False, True]:
        return (
            same(answer, gold.args[-1], judge)
            if is_name(gold.args[1]) and answer.kind != "rel"
            else False
        )
    if equations == [True, True]:
        return _equations(answer, gold, judge)
    if answer.kind == gold.kind == "rel" and len(answer.args) == len(gold.args):
        return _inequalities(answer, gold, judge)
    left, right = domains.pieces(answer), domains.pieces(gold)
    if left is None or right is None:
        both = answer.kind == gold.kind == "list"
        return _collections(answer, gold, judge) if both else False
    return matched(left, [_is(wanted, judge) for wanted in right])


def _equations(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    heads = answer.args[1], gold.args[1]
    function = {head.kind for head in heads} == {"sym", "mul"} and all(map(is_name, heads))
    if (heads[0] == heads[1] and is_name(heads[0])) or function:  # `f(x) = ...` is `y = ...`
        return every(same(side, gold.args[-1], judge) for side in answer.args[2:])
    said, wanted = map(_argument, heads)
    if said and wanted and heads[0].args[0] == heads[1].args[0]:
        renamed = renaming(answer, said, wanted)
        return renamed is not None and _equations(renamed, gold, judge)
    if (
        len(answer.args) != 3
        or len(gold.args) != 3
        or _STRUCTURES & {side.kind for side in answer.args[1:]}
    ):
        return False
    return judge.proportional(difference(answer), difference(gold), False)


def _argument(head: Tree) -> Tree | None:
    """The variable of `f(x)`."""
    called = head.kind == "mul" and head.args[0].kind == head.args[1].kind == "sym"
    named = called and head.args[1].args[0] not in "ei" and head.args[1].args[0].islower()
    return head.args[1] if named and head.args[0].args[0] in "fghFGHPQ" else None


def _inequalities(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    answer, gold = ascending(answer), ascending(gold)
    if answer.args[0] != gold.args[0]:
        return False
    if len(answer.args) == 3 and not _STRUCTURES & {side.kind for side in answer.args[1:]}:
        return judge.proportional(difference(answer), difference(gold), answer.args[0] != ("!=",))
    return _pairwise(answer.args[1:], gold.args[1:], judge)


def _collections(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    for one, other in ((answer, gold), (gold, answer)):
        if domains.is_discrete(one) and domains.is_continuous(other):
            return False
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
    kinds = {answer.kind, gold.kind}
    answer, gold = (as_ratio(tree) if tree.kind == "clock" else tree for tree in (answer, gold))
    if kinds == {"clock", "ratio"}:  # a time is not reduced
        return answer == gold
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


def _residues(answer: Tree, gold: Tree, judge: Judge) -> Verdict:
    r"""Residue classes, `5 \pmod 7`, which are no numbers."""
    if answer.kind != gold.kind or answer.args[1] != gold.args[1]:
        return False
    left, right, modulus = (rational(tree) for tree in (answer.args[0], *gold.args))
    if left is None or right is None or not modulus:
        return same(answer.args[0], gold.args[0], judge)
    return (left - right) % modulus == 0


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
