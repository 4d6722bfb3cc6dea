"""Countdown problems need all their numbers, and answers are graded by exact arithmetic."""

import itertools
import json
import operator
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from answer_graders.tasks import countdown
from answer_graders.tasks.countdown import MAX_EXPRESSION_CHARACTERS, evaluate

PAPER = json.dumps({"numbers": [55, 53, 59, 22], "target": 71})
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def score(answer, label=PAPER):
    return countdown.score(f"<think> 1 + 1 </think> <answer> {answer} </answer>", label)


def values_of(numbers):
    """The values of expressions of exactly these numbers: any two are replaced by a result."""
    if len(numbers) == 1:
        return set(numbers)
    values = set()
    for i, j in itertools.permutations(range(len(numbers)), 2):
        others = [numbers[k] for k in range(len(numbers)) if k not in (i, j)]
        for operation in OPERATIONS.values():
            if operation is not operator.truediv or numbers[j]:
                values |= values_of([*others, operation(numbers[i], numbers[j])])
    return values


def values_of_fewer(numbers):
    values = set()
    for size in range(1, len(numbers)):
        for subset in itertools.combinations(numbers, size):
            values |= values_of(subset)
    return values


# Generated problems


@pytest.mark.parametrize(
    ("options", "checked"),
    [({"numbers": (3,)}, 30), ({"numbers": (4,)}, 3), ({"numbers": (2,), "largest": 9}, 9)],
)
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_problem_takes_all_its_numbers(options, checked, split):
    for item in countdown.generate(checked if split == "train" else 3, 5, split, **options):
        numbers = [Fraction(number) for number in item["numbers"]]
        assert item["target"] in values_of(numbers) - values_of_fewer(numbers)


def test_problems_are_different_of_each_size_in_their_ranges_and_solved():
    thousand = list(countdown.generate(1000, 3))
    assert Counter(len(item["numbers"]) for item in thousand) == {3: 500, 4: 500}
    assert len({(*sorted(item["numbers"]), item["target"]) for item in thousand}) == 1000
    numbers = {number for item in thousand for number in item["numbers"]}
    targets = {item["target"] for item in thousand}
    assert (min(numbers), max(numbers)) == (1, 99)
    assert (min(targets), max(targets)) == (10, 99)
    assert all(len(set(item["numbers"])) == len(item["numbers"]) for item in thousand)
    for item in thousand[:300]:
        label = countdown.label(item)
        assert countdown.score(countdown.right_response(label), label).status == "correct"
        assert countdown.score(countdown.wrong_response(label), label).status == "wrong"


@pytest.mark.parametrize("numbers", [(7,), (4, 4), (3, 3, 8), (25, 50, 75), (5, 5, 3, 7)])
@pytest.mark.parametrize("use_all", [False, True])
def test_whatever_can_be_solved_is_solved(numbers, use_all):
    fractions = [Fraction(number) for number in numbers]
    reachable = values_of(fractions) | (set() if use_all else values_of_fewer(fractions))
    for target in range(1, 100):
        label = json.dumps({"numbers": numbers, "target": target, "use_all": use_all})
        if target in reachable:  # also 7 = 7 + 3 * (5 - 5)
            assert countdown.score(countdown.right_response(label), label).value == 1
        else:
            with pytest.raises(ValueError, match="cannot be reached"):
                countdown.right_response(label)
        assert countdown.score(countdown.wrong_response(label), label).status == "wrong"


def test_both_splits_together_hold_every_problem_there_is():
    every_problem = set()
    for numbers in itertools.combinations(range(1, 7), 2):
        values = values_of([Fraction(number) for number in numbers])
        for target in range(1, 37):
            if target in values and target not in numbers:
                every_problem.add((*numbers, target))
    options = {"numbers": (2,), "largest": 6, "targets": (1, 36)}
    generated = []
    for split in ("train", "test"):
        with pytest.raises(ValueError, match=rf"only \d+ different {split} problems"):
            for item in countdown.generate(100, 0, split, **options):
                generated.append((*sorted(item["numbers"]), item["target"]))
    assert sorted(generated) == sorted(every_problem)


def test_the_papers_wording_is_the_papers_example():
    (item,) = countdown.generate(1, 0, numbers=(4,), wording="paper")
    [message] = countdown.prompt({**item, "numbers": [55, 53, 59, 22], "target": 71})
    assert message["content"] == (
        "Using the numbers [55, 53, 59, 22], create an equation that equals 71. You can use basic "
        "arithmetic operations (+, -, *, /) and each number can only be used once. Show your work "
        "in <think> </think> tags. And return the final answer in <answer> </answer> tags, for "
        "example <answer> (1 + 2) / 3 </answer>."
    )


# Grading


def expressions(kind):
    """The lines below a heading of `countdown_expressions.txt`."""
    text = Path(__file__).with_name("countdown_expressions.txt").read_text("utf-8")
    _, _, below = text.partition(f"[{kind}]\n")
    section, _, _ = below.partition("\n\n[")
    return section.split("\n")


@pytest.mark.parametrize(
    ("kind", "numbers", "target", "status"),
    [
        ("presented", [8, 3, 2, 2], 24, "correct"),
        ("malformed", [8, 2, 4, 3, 1, 9], 8, "malformed"),
    ],
)
def test_presentation_makes_no_difference_but_is_not_all_that_is_left_out(
    kind, numbers, target, status
):
    label = json.dumps({"numbers": numbers, "target": target})
    for expression in expressions(kind):
        assert score(expression, label).status == status, expression


def test_a_number_given_twice_can_be_used_twice_and_values_are_exact():
    label = '{"numbers": [4, 4, 9], "target": 8}'
    values = [score(answer, label).value for answer in ("4 + 4", "4 + 4 + 4 - 4", "8 * 1")]
    assert values == [1, 0, 0]
    label = '{"numbers": [1, 3, 99999999999999999999], "target": 33333333333333333333}'
    assert score("99999999999999999999 / 3", label).status == "correct"
    assert score("(99999999999999999999 + 1) / 3", label).status == "wrong"


def test_a_label_can_ask_for_all_numbers():
    label = {"numbers": [4, 4, 9], "target": 9}
    answers = {"9": 0, "9 + 4 - 4": 1, "9 + 4": 0, "9 * (4 / 4)": 1, "9 + 4 - 4 + 9 - 9": 0}
    asked = json.dumps({**label, "use_all": True})
    for answer, value in answers.items():
        assert score(answer, asked).value == value
    assert score("9", asked)[1:] == ("wrong", "it does not use 4")
    for free in (label, {**label, "use_all": False}):
        assert score("9", json.dumps(free)).value == 1


def test_items_without_a_right_answer_are_errors():
    with pytest.raises(ValueError, match="a label is JSON like"):
        countdown.label({"numbers": [1, 2], "target": 0})
    with pytest.raises(ValueError, match="cannot be reached"):
        countdown.right_response('{"numbers": [1, 2], "target": 50}')
    with pytest.raises(ValueError, match="at most 5 numbers"):
        countdown.right_response('{"numbers": [1, 2, 3, 4, 5, 6], "target": 50}')


# Expressions


LONG = MAX_EXPRESSION_CHARACTERS


def test_long_and_deep_expressions_and_what_is_none():
    assert evaluate("9" * LONG).value == 10**LONG - 1
    assert evaluate("(" * 99 + "1" + ")" * 99).value == 1
    odd = ["1\u00a0+ 2", "1\x00+2", "\ud800", "1" * (LONG + 1), "(" * 100_000]
    for text in [*expressions("no expression"), *odd]:
        with pytest.raises(ValueError):
            pytest.fail(f"{text!r:.50} is {evaluate(text)}")


trees = st.recursive(
    st.integers(0, 999),
    lambda part: st.tuples(st.sampled_from(sorted(OPERATIONS)), part, part),
    max_leaves=12,
)


def exact(tree):
    if isinstance(tree, int):
        return Fraction(tree)
    symbol, left, right = tree
    return OPERATIONS[symbol](exact(left), exact(right))


def written(tree):
    """With no more parentheses than the usual rules need."""
    if isinstance(tree, int):
        return str(tree)
    symbol, left, right = tree
    left_text = written(left)
    right_text = written(right)
    left_symbol = "" if isinstance(left, int) else left[0]
    right_symbol = "" if isinstance(right, int) else right[0]
    if symbol in "*/" and left_symbol in ("+", "-"):
        left_text = f"({left_text})"
    if right_symbol in ("+", "-") or (symbol in "*/" and right_symbol):
        right_text = f"({right_text})"
    return f"{left_text} {symbol} {right_text}"


def leaves(tree):
    return [tree] if isinstance(tree, int) else leaves(tree[1]) + leaves(tree[2])


@given(trees)
def test_every_tree_has_the_value_of_its_fractions(tree):
    text = written(tree)
    assume(len(text) <= LONG)
    try:
        value = exact(tree)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            evaluate(text)
    else:
        assert evaluate(text) == (value, leaves(tree))
