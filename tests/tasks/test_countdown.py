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

from openrlhf_js.tasks import countdown
from openrlhf_js.tasks.countdown import MAX_EXPRESSION_CHARACTERS, evaluate

PAPER = json.dumps({"numbers": [55, 53, 59, 22], "target": 71})
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def score(answer, label=PAPER):
    return countdown.score(f"<think> 1 + 1 </think> <answer> {answer} </answer>", label)


def values_of(numbers):
    """The values of expressions of exactly these numbers: any two are replaced by a result."""
    if len(numbers) == 1:
        return set(numbers)
    found = set()
    for i, j in itertools.permutations(range(len(numbers)), 2):
        rest = [numbers[k] for k in range(len(numbers)) if k not in (i, j)]
        for operation in OPERATIONS.values():
            if operation is not operator.truediv or numbers[j]:
                found |= values_of([*rest, operation(numbers[i], numbers[j])])
    return found


def values_of_fewer(numbers):
    subsets = [itertools.combinations(numbers, size) for size in range(1, len(numbers))]
    return set().union(*(values_of(subset) for subset in itertools.chain(*subsets)))


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


def test_problems_are_varied_even_in_range_and_solved():
    items = list(countdown.generate(1000, 3))
    assert Counter(len(item["numbers"]) for item in items) == {3: 500, 4: 500}
    assert len({(*sorted(item["numbers"]), item["target"]) for item in items}) == 1000
    numbers = {number for item in items for number in item["numbers"]}
    targets = {item["target"] for item in items}
    assert (min(numbers), max(numbers), min(targets), max(targets)) == (1, 99, 10, 99)
    assert all(len(set(item["numbers"])) == len(item["numbers"]) for item in items)
    for item in items[:300]:
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
    every = {
        (*numbers, target)
        for numbers in itertools.combinations(range(1, 7), 2)
        for target in values_of([Fraction(number) for number in numbers]) - set(numbers)
        if target in range(1, 37)
    }
    found = []
    for split in ("train", "test"):
        with pytest.raises(ValueError, match=rf"only \d+ different {split} problems"):
            for item in countdown.generate(100, 0, split, numbers=(2,), largest=6, targets=(1, 36)):
                found.append((*sorted(item["numbers"]), item["target"]))
    assert sorted(found) == sorted(every)


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


def each(kind):
    """What `countdown_expressions.txt` holds."""
    text = Path(__file__).with_name("countdown_expressions.txt").read_text("utf-8")
    return text.partition(f"[{kind}]\n")[2].partition("\n\n[")[0].split("\n")


def test_presentation_makes_no_difference_but_is_not_all_that_is_left_out():
    for kind, numbers, target, status in (
        ("presented", [8, 3, 2, 2], 24, "correct"),
        ("malformed", [8, 2, 4, 3, 1, 9], 8, "malformed"),
    ):
        label = json.dumps({"numbers": numbers, "target": target})
        assert {text for text in each(kind) if score(text, label).status != status} == set()


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


def test_long_and_deep_expressions():
    assert evaluate("9" * LONG).value == 10**LONG - 1
    assert evaluate("(" * 99 + "1" + ")" * 99).value == 1


def test_what_is_no_expression():
    odd = "1\u00a0+ 2", "1\x00+2", "\ud800", "1" * (LONG + 1), "(" * 100_000
    for text in (*each("no expression"), *odd):
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
    texts = [written(left), written(right)]
    inner = [part[0] if isinstance(part, tuple) else "" for part in (left, right)]
    if symbol in "*/" and inner[0] in ("+", "-"):
        texts[0] = f"({texts[0]})"
    if inner[1] in ("+", "-") or (symbol in "*/" and inner[1]):
        texts[1] = f"({texts[1]})"
    return f"{texts[0]} {symbol} {texts[1]}"


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
