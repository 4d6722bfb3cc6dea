"""Expressions of one small grammar have exact values, and nothing else is an expression."""

import ast
import operator
import re
from fractions import Fraction

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from openrlhf_js.tasks.countdown import MAX_EXPRESSION_CHARACTERS as MAX_CHARACTERS, evaluate, sides


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", "7"),
        ("0", "0"),
        ("  53+22+55-59\n", "71"),
        ("9 - 4 - 3", "2"),
        ("9 - (4 - 3)", "8"),
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("2 * 3 + 4", "10"),
        ("48 / 4 / 2", "6"),
        ("48 / (4 / 2)", "24"),
        ("6 / 4 * 2", "3"),
        ("8 - 6 / 3 + 1", "7"),
        ("1 / 3 + 1 / 3 + 1 / 3", "1"),
        ("8 / (3 - 8 / 3)", "24"),
        ("3 - 5", "-2"),
        ("((((5))))", "5"),
        ("6 \u00d7 2 \u00f7 4 \u2212 1 \u00b7 2", "1"),
        (r"6 \times 2 \div 4 - 1\cdot 2", "1"),
        ("8 x 3 + 2x4 - (1)X(2) + 10x1", "40"),
        ("2 \u2217 3 \u22c5 4 \\ast 5", "120"),
        ("99999999999999999999 * 10", "999999999999999999990"),
    ],
)
def test_values(text, value):
    assert evaluate(text).value == Fraction(value)


def test_the_numbers_are_those_written_as_often_as_written():
    assert evaluate("(12 + 3) / 12 - 3 * 0").numbers == [12, 3, 12, 3, 0]


@pytest.mark.parametrize(
    "text", ["1 / 0", "3 / (5 - 5)", "1 / (1 / 2 - 1 / 2)", "1 / 0 + 1", "1 - 1 / 0"]
)
def test_division_by_zero(text):
    with pytest.raises(ZeroDivisionError):
        evaluate(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "()", "(", ")", "1)", "(1", "(1))", "1 +", "* 2", "+", "1 + * 2", "( + 1)"),
        *("-5", "+5", "(-5) + 9", "5 * -1", "1 - - 2", "--5"),
        *("1.5", ".5", "5.", "1e3", "1,000", "1_000", "0x10", "07", "00", "5j"),
        *("2**3", "7//2", "7 % 2", "2^3", "5!", "1 < 2", "1 = 1", "~1", "1 & 3", "1 if 1 else 2"),
        *(
            "2(3)",
            "(2)(3)",
            "(2)3",
            "1 2",
            "2x",
            "x * 2",
            "x",
            "0X10",
            "2 xx 3",
            "2a",
            "[1]",
            "{1}",
            "1;2",
        ),
        *(
            "\u0663",
            "1\u0663",
            "\uff15",
            "\u00b2",
            "1\u00a0+\u00a02",
            "\u00bd",
            "1\x00+2",
            "\ud800",
        ),
        *(
            r"\frac{1}{2}",
            r"2 \timesx 3",
            r"\sqrt 4",
            "$2$",
            "`2`",
            "__import__('os')",
            "{0}",
            "%s",
        ),
        *("1" * (MAX_CHARACTERS + 1), "1+" * MAX_CHARACTERS + "1", "(" * 100_000, "9**9**9**9"),
    ],
)
def test_what_is_no_expression(text):
    with pytest.raises(ValueError):
        evaluate(text)


@pytest.mark.parametrize(
    ("equation", "expected"),
    [
        ("8 * 3", ("8 * 3", "")),
        ("8 * 3 = 24", ("8 * 3", "24")),
        ("24 = 8 * 3", ("8 * 3", "24")),
        ("8 = 24", ("8", "24")),
        ("8 * 3 =", "neither side"),
        ("8 * 3 = 20 + 4", "neither side"),
        ("8 * 3 = \u0662\u0664", "neither side"),
        ("24 = 8 * 3 = 24", "more than one"),
    ],
)
def test_the_sides_of_an_equation(equation, expected):
    if isinstance(expected, tuple):
        assert sides(equation) == expected
    else:
        with pytest.raises(ValueError, match=expected):
            sides(equation)


def test_as_long_and_as_deep_as_is_allowed():
    depth = MAX_CHARACTERS // 2 - 1
    assert evaluate("(" * depth + "1" + ")" * depth).value == 1
    assert evaluate("9" * MAX_CHARACTERS).value == 10**MAX_CHARACTERS - 1


OPERATIONS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
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
    assume(len(text) <= MAX_CHARACTERS)
    try:
        value = exact(tree)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            evaluate(text)
    else:
        assert evaluate(text) == (value, leaves(tree))


OURS = (ast.Expression, ast.Constant, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div)


def of_pythons_tree(node):
    """The exact value of a Python syntax tree of our operators."""
    match node:
        case ast.Expression(body):
            return of_pythons_tree(body)
        case ast.Constant(int() as number):
            return Fraction(number)
        case ast.BinOp(left, ast.Add(), right):
            return of_pythons_tree(left) + of_pythons_tree(right)
        case ast.BinOp(left, ast.Sub(), right):
            return of_pythons_tree(left) - of_pythons_tree(right)
        case ast.BinOp(left, ast.Mult(), right):
            return of_pythons_tree(left) * of_pythons_tree(right)
        case ast.BinOp(left, ast.Div(), right):
            return of_pythons_tree(left) / of_pythons_tree(right)


@given(st.text("0123+-*/() ", max_size=12))
@example("2(3)")
@example("1 - -1")
@example("0 / 0 /")
@example("0 / 0 / -1")
def test_it_accepts_what_pythons_grammar_does_of_these_operators(text):
    assume(not re.search(r"\b00", text))  # the one number with leading zeros that Python allows
    try:
        tree = ast.parse(text.strip(), mode="eval")
        is_ours = all(isinstance(node, OURS) for node in ast.walk(tree))
        expected = of_pythons_tree(tree) if is_ours else ValueError
    except ZeroDivisionError:
        expected = ZeroDivisionError
    except SyntaxError:
        expected = ValueError
    try:
        found = evaluate(text).value
    except (ValueError, ZeroDivisionError) as error:
        found = type(error)
    assert found == expected
