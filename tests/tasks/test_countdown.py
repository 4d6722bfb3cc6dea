"""Countdown problems need all their numbers, and answers are graded by exact arithmetic."""

import hashlib
import itertools
import json
import operator
import time
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.tasks import countdown

PAPER = json.dumps({"numbers": [55, 53, 59, 22], "target": 71})
OPERATIONS = [operator.add, operator.sub, operator.mul, operator.truediv]


def score(answer, label=PAPER):
    return countdown.score(f"<think> 1 + 1 </think> <answer> {answer} </answer>", label)


def values_of(numbers):
    """What expressions of exactly these numbers can equal: any two give way to what they make."""
    if len(numbers) == 1:
        return set(numbers)
    found = set()
    for i, j in itertools.permutations(range(len(numbers)), 2):
        rest = [numbers[k] for k in range(len(numbers)) if k not in (i, j)]
        for operation in OPERATIONS:
            if operation is not operator.truediv or numbers[j]:
                found |= values_of([*rest, operation(numbers[i], numbers[j])])
    return found


def values_of_fewer(numbers):
    """What can be made of some of the numbers, not of all."""
    subsets = [itertools.combinations(numbers, size) for size in range(1, len(numbers))]
    return set().union(*(values_of(subset) for subset in itertools.chain(*subsets)))


@pytest.mark.parametrize(
    ("options", "checked"),
    [
        ({"numbers": (3,)}, 30),
        ({"numbers": (4,)}, 3),
        ({"numbers": (2,), "largest": 9, "targets": (1, 81)}, 60),
        ({"numbers": (3,), "largest": 9, "targets": (1, 9)}, 30),
    ],
)
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_problem_takes_all_its_numbers(options, checked, split):
    items = countdown.generate(checked if split == "train" else 3, 5, split, **options)
    for item in items:
        numbers = [Fraction(number) for number in item["numbers"]]
        assert item["target"] in values_of(numbers)
        assert item["target"] not in values_of_fewer(numbers)


@pytest.mark.parametrize(("count", "split"), [(2000, "train"), (100, "test")])
def test_its_own_answers_are_right_and_its_wrong_ones_wrong(count, split):
    for item in countdown.generate(count, 1, split):
        label = countdown.label(item)
        assert countdown.score(countdown.right_response(label), label).status == "correct"
        assert countdown.score(countdown.wrong_response(label), label).status == "wrong"


@pytest.mark.parametrize("numbers", [(7,), (4, 4), (3, 3, 8), (25, 50, 75), (1, 2, 6), (5, 5, 5)])
def test_whatever_can_be_solved_is_solved(numbers):
    fractions = [Fraction(number) for number in numbers]
    reachable = values_of(fractions) | values_of_fewer(fractions)
    for target in range(1, 120):
        solution = countdown.solve(numbers, target)
        assert (solution is not None) == (target in reachable)
        if solution:
            label = json.dumps({"numbers": numbers, "target": target})
            assert score(solution, label).value == 1.0


def test_a_solution_through_fractions_is_found():
    assert score(countdown.solve([3, 3, 8, 8], 24), '{"numbers": [3, 3, 8, 8], "target": 24}').value


def test_items_are_varied_even_and_in_range():
    items = list(countdown.generate(1000, 3))
    assert Counter(len(item["numbers"]) for item in items) == {3: 500, 4: 500}
    assert len({(*sorted(item["numbers"]), item["target"]) for item in items}) == 1000
    numbers = {number for item in items for number in item["numbers"]}
    targets = {item["target"] for item in items}
    assert (min(numbers), max(numbers), min(targets), max(targets)) == (1, 99, 10, 99)
    assert all(len(set(item["numbers"])) == len(item["numbers"]) for item in items)


def test_no_set_of_numbers_is_in_both_splits_whatever_their_order_and_the_seeds():
    found = {"train": set(), "test": set()}
    for split, seed in itertools.product(found, range(4)):
        for item in countdown.generate(150, seed, split, numbers=(3,), largest=15):
            found[split].add(tuple(sorted(item["numbers"])))
    assert len(found["train"]) > 200 and len(found["test"]) > 30
    assert not found["train"] & found["test"]


def test_a_seed_gives_the_same_bytes_on_every_python():
    items = [list(countdown.generate(200, 7, split)) for split in ("train", "test")]
    assert (
        hashlib.sha256(json.dumps(items).encode()).hexdigest()
        == "2fb1093431224c374053f377a4cebf7d10a43ceeb3be9a04ee52ce6125142cff"
    )


def test_a_larger_count_goes_on_and_another_seed_differs():
    items = list(countdown.generate(40, 7))
    assert items[:20] == list(countdown.generate(20, 7))
    assert items != list(countdown.generate(40, 8))
    assert list(countdown.generate(0, 7)) == []


@pytest.mark.parametrize(
    "options",
    [
        {"split": "validation"},
        {"numbers": ()},
        {"numbers": (1, 3)},
        {"numbers": (6,)},
        {"numbers": (4,), "largest": 3},
        {"targets": (0, 9)},
    ],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match=r"must .* got"):
        next(countdown.generate(1, 0, **options))


def test_both_splits_together_hold_every_problem_there_is():
    every = {
        (*numbers, target)
        for numbers in itertools.combinations(range(1, 7), 2)
        for target in values_of([Fraction(number) for number in numbers]) - set(numbers)
        if target in range(1, 37)
    }
    found = []
    for split in ("train", "test"):
        with pytest.raises(ValueError, match=rf"only \d+ different problems were found in {split}"):
            for item in countdown.generate(100, 0, split, numbers=(2,), largest=6, targets=(1, 36)):
                found.append((*sorted(item["numbers"]), item["target"]))
    assert sorted(found) == sorted(every)


def test_the_prompt_names_the_numbers_and_the_target():
    (message,) = countdown.prompt({"numbers": [55, 53, 59, 22], "target": 71})
    assert message["role"] == "user"
    for part in ("[55, 53, 59, 22]", "equals 71.", "</think>", "<answer> (1 + 2) / 3 </answer>"):
        assert part in message["content"]


@pytest.mark.parametrize(
    "answer",
    [
        *("53+22+55-59", "53 + 22 + 55 - 59 = 71", "((53)+22)+(55-59)", "53 + 22\n- (59 - 55)"),
        *("55 \u2212 59 + 53 + 22", "55 + 22 - (59 - 53)=71"),
        *("71 = 53 + 22 + 55 - 59", "53 + 22 + 55 - 59.", "**71 = 53 + 22 + 55 - 59**."),
    ],
)
def test_right_answers(answer):
    assert score(answer).status == "correct"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("53+22+55+59", "wrong"),
        ("53 + 22 - (55 - 59) * 0", "wrong"),  # 0 is not given
        ("71", "wrong"),
        ("22 + 49", "wrong"),
        ("55 + 22 - 59 + 53 + 22 - 22", "wrong"),  # 22 three times
        ("53 + 22 + 55 - 59 = 72", "wrong"),
        ("53 + 22 + 55 = 130", "wrong"),
        ("55 / (22 - 22)", "wrong"),
        ("5322 - 5559", "wrong"),  # digits put together
        ("59 + 22 - 53 + 55", "wrong"),  # 83
        ("-59 + 53 + 22 + 55", "malformed"),
        ("53.0 + 22 + 55 - 59", "malformed"),
        ("053 + 22 + 55 - 59", "malformed"),
        ("53 + 22 + 55 - 59 = x", "malformed"),
        ("53 + 22 + 55 - 59 = 70 + 1", "malformed"),
        ("53 + 22 = 75 + 55 - 59 = 71", "malformed"),
        ("72 = 53 + 22 + 55 - 59", "wrong"),
        ("71 = 53 + 22 + 55 - 59 = 71", "malformed"),
        ("$53 + 22 + 55 - 59 = 71$ and more", "malformed"),
        ("53 + 22 + 55 -\\left(-59\\right)", "malformed"),
        ("53 + 22 + 55 - 59 is 71", "malformed"),
        ("53 + 22 + 55 - 59..", "malformed"),
        ("= 71", "malformed"),
        ("9**9**9**9", "malformed"),
        ("__import__('os').system('true')", "malformed"),
        ("\u0665\u0665", "malformed"),
        ("(53 + 22 + 55 - 59" + " " * 500 + ")", "malformed"),
        ("", "no_answer"),
        (" \n ", "no_answer"),
    ],
)
def test_near_misses(answer, status):
    assert score(answer)[:2] == (0.0, status)


@pytest.mark.parametrize(
    "answer",
    [
        *(
            r"$8 \times 3$",
            r"\[ 8 \times 3 = 24 \]",
            r"\(8 \cdot 3\)",
            "$$8 * 3$$",
            "$24 = 8 * 3$.",
        ),
        *(
            r"\left( 8 \right) \times 3",
            r"\boxed{8*3}",
            r"\boxed{8*3} = 24",
            r"$\boxed{8 \, x \, 3}$",
        ),
        *(
            r"\text{8 * 3}",
            r"\mathrm{8 * 3}",
            "`8 * 3`",
            "```\n8 * 3\n```",
            "**8 * 3**",
            "**8 * 3.**",
        ),
        *(
            "**8 * 3**.",
            '"8 * 3"',
            "'8 * 3'",
            "\u201c8 * 3.\u201d",
            "8 x 3",
            "8x3",
            "8 \u2217 3 = 24.",
        ),
    ],
)
def test_presentation_makes_no_difference(answer):
    assert score(answer, '{"numbers": [8, 3, 2], "target": 24}').status == "correct"


@pytest.mark.parametrize(
    "answer",
    [
        *(
            "8**2",
            "9**-1",
            "**9**-1",
            "2**(3)",
            "2(4)",
            "$2$(4)",
            r"2 \left(4\right)",
            r"2{4}",
            "8.0",
        ),
        *("8//1", "-2 * -4", "+8", r"\frac{8}{1}", r"\text{eight}", "8 * 1 = 8 = 8", "10 \u2013 2"),
    ],
)
def test_presentation_is_not_all_that_is_left_out(answer):
    assert score(answer, '{"numbers": [8, 2, 4, 3, 1, 9], "target": 8}').status == "malformed"


def test_only_the_last_complete_answer_of_the_response_counts():
    right, wrong = "<answer> 53+22+55-59 </answer>", "<answer> 55 </answer>"
    assert countdown.score(wrong + right + "<answer> 5", PAPER).status == "correct"
    assert countdown.score(right + wrong, PAPER).status == "wrong"
    assert countdown.score("53+22+55-59", PAPER).status == "no_answer"
    assert countdown.score("<answer> 53+22+55-59", PAPER).status == "no_answer"


def test_a_number_given_twice_can_be_used_twice_and_a_shorter_solution_is_right():
    label = '{"numbers": [4, 4, 9], "target": 8}'
    assert score("4 + 4", label).status == "correct"
    assert score("4 + 4 + 4 - 4", label).status == "wrong"
    assert score("8 * 1", label).status == "wrong"


def test_a_fraction_that_is_nearly_the_target_is_wrong():
    label = '{"numbers": [1, 3, 99999999999999999999], "target": 33333333333333333333}'
    assert score("99999999999999999999 / 3", label).status == "correct"
    assert score("(99999999999999999999 + 1) / 3", label).status == "wrong"


@pytest.mark.parametrize(
    "label",
    ["", "71", "[]", "null", "{}", '{"numbers": [1, 2]}', '{"target": 3}', "{'numbers': [1]}"]
    + ['{"numbers": [], "target": 3}', '{"numbers": 3, "target": 3}', '{"numbers": [3, 4]']
    + [f'{{"numbers": [1, 2], "target": {target}}}' for target in ("3.0", "true", '"3"', "0", "-3")]
    + [f'{{"numbers": {numbers}, "target": 3}}' for numbers in ("[1, 2.0]", "[true, 2]", '"12"')]
    + [f'{{"numbers": {numbers}, "target": 3}}' for numbers in ("[0, 3]", "[-1, 4]", '["1", 2]')],
)
def test_malformed_labels_are_errors(label):
    for grade in (lambda: countdown.score("", label), lambda: countdown.right_response(label)):
        with pytest.raises(ValueError, match="a label is JSON like"):
            grade()


def test_items_without_a_right_answer_are_errors():
    with pytest.raises(ValueError, match="a label is JSON like"):
        countdown.label({"numbers": [1, 2], "target": 0})
    with pytest.raises(ValueError, match="cannot be reached"):
        countdown.right_response('{"numbers": [1, 2], "target": 50}')
    with pytest.raises(ValueError, match="at most 5 numbers"):
        countdown.right_response('{"numbers": [1, 2, 3, 4, 5, 6], "target": 50}')


@given(st.text("0123456789+-*/()= .<>answer\\times\u00d7\ud800\x00", max_size=60) | st.text())
def test_no_answer_makes_it_raise(text):
    assert score(text).status in {"correct", "wrong", "malformed", "no_answer"}


@pytest.mark.parametrize(
    "piece", ["(", "9", "1+", "1/", "= ", "<answer>", "\\times", "$", "\\left(", "\x00", "-", " "]
)
def test_a_megabyte_of_anything_takes_no_time(piece):
    began = time.process_time()
    assert score(piece * (1_000_000 // len(piece))).value == 0.0
    assert time.process_time() - began < 2
