"""Answers are graded by what they say, labels are checked, and hostile text is refused unrun."""

from __future__ import annotations

import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openrlhf_js.tasks import grading_pool
from openrlhf_js.tasks.base import scored
from openrlhf_js.tasks.equivalence import grader, labels, symbolic
from openrlhf_js.tasks.equivalence.syntax import read
from openrlhf_js.tasks.equivalence.text import normal
from openrlhf_js.tasks.equivalence.values import rational


def examples() -> list:
    """The rows of math_examples.txt: the kind of answer, whether it is right, answer and label."""
    rows, kind = [], ""
    for line in (Path(__file__).parent / "math_examples.txt").read_text("utf-8").splitlines()[1:]:
        if line.startswith("# "):
            kind = line[2:]
        elif line:
            answer, label = line[2:].split(" ~ ")
            rows.append(pytest.param(line[0] == "=", answer, label, id=f"{kind}: {line}"))
    return rows


@pytest.fixture
def in_process(monkeypatch):
    """Grades without the pool, by the same function."""

    def grade(function, answer, label):
        assert function == "openrlhf_js.tasks.equivalence.symbolic:compare"
        return scored(*symbolic.compare(answer, label))

    monkeypatch.setattr(grading_pool, "grade", grade)


@pytest.mark.parametrize(("right", "answer", "label"), examples())
def test_examples(in_process, right, answer, label):
    score = grader.grade(answer, label)
    assert (score.status == "correct") == right, score
    assert score.value == float(right)
    assert "\n" not in score.detail
    assert len(score.detail) < 300


def test_every_gold_answer_is_its_own_right_answer(in_process):
    for example in examples():
        label = example.values[2]
        if not label.startswith("{"):
            assert grader.grade(label, label).status == "correct"


@pytest.mark.parametrize(
    ("answer", "label", "status"),
    [
        (None, "5", "no_answer"),
        ("", "5", "malformed"),
        ("  ", "5", "malformed"),
        (r"\frac{1}{", "5", "malformed"),
        ("5" * 2001, "5", "malformed"),
        ("5" * 401 + "x", "5", "malformed"),
        ("5" * 400 + "x", "5", "wrong"),
        ("five apples or so", "5", "wrong"),
        ("6", "5", "wrong"),
        ("x", "5", "wrong"),
    ],
)
def test_statuses(in_process, answer, label, status):
    assert grader.grade(answer, label).status == status


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("", "not empty"),
        (" \n", "not empty"),
        (None, "not empty"),
        (r"\text{}", "empty answer"),
        ('{"answer": "5", "units": "cm"}', "units"),
        ('{"unit": "cm"}', "allowed are"),
        ('{"answer": 5}', "list of texts"),
        ('{"answer": []}', "list of texts"),
        ('{"answer": "5", "tolerance": 0.1}', "are texts"),
        ('{"answer": "5", "tolerance": "small"}', "1e-2"),
        ('{"answer": ["5", "6"], "tolerance": "1,2,3"}', "3 answers, and there are 2"),
        ('{"answer": "5"', "looks like JSON"),
        (r"\frac{1}{2", "braces"),
        ("5\x00", "holds"),
        ("5\ud800", "holds"),
        ("x" * 2001, "2001 characters"),
    ],
)
def test_a_malformed_label_is_an_error(label, message):
    with pytest.raises(ValueError, match=message):
        grader.check_label(label)
    with pytest.raises(ValueError, match=message):
        grader.grade("5", label)


@pytest.mark.parametrize(
    "label", ["5", r"\{1,2\}", "{1,2}", r"\text{even}", "[1,2]", r"\int_0^1 x\,dx", "27.0", "#"]
)
def test_any_text_may_be_a_label(label):
    grader.check_label(label)


@pytest.mark.parametrize(
    "answer",
    [
        *(r"5 \pmod \infty", r"5 \pmod{\emptyset}", "0000-00-00", "00/12/2000", "12/00/2000"),
        *("0 cm^", r"\max0", r"\min(5)", "5" + "%" * 500, "2" + "^2" * 400, "5 m " * 400),
    ],
)
def test_what_once_broke_the_reader_is_graded(in_process, answer):
    for label in ("7", "6 m", r"\sqrt{7}"):
        assert grader.grade(answer, label).status in ("wrong", "malformed")


def test_a_bug_of_ours_costs_its_answer_alone(monkeypatch):
    def broken(*_):
        raise IndexError("a bug")

    monkeypatch.setattr(grader, "decide", broken)
    assert grader.grade("x", "7") == scored("error", "IndexError on x")
    with pytest.raises(ValueError, match="not empty"):
        grader.grade("x", "")


def test_nothing_is_imported_for_an_answer_after_the_warm_up():
    program = r"""
import sys
from openrlhf_js.tasks.equivalence import symbolic
symbolic.warm_up()
loaded = set(sys.modules)
assert symbolic.compare(r"\int_0^2 x^2 \, dx", r"\int_0^2 t^2 \, dt")[0] == "correct"
assert symbolic.compare(r"\lim_{x \to 0} \frac{\sin 2x}{x}", r"2")[0] == "correct"
print(*set(sys.modules) - loaded)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not run.stdout.strip()


def test_cheap_answers_never_enter_the_pool(monkeypatch):
    monkeypatch.setattr(grading_pool, "grade", None)
    for answer, label, status in [
        ("1,234", "1234", "correct"),
        (r"\$18.00", "18", "correct"),
        ("18 apples", "18", "correct"),
        (r"\frac{6}{4}", "1.5", "correct"),
        ("2", "3", "wrong"),
        (r"\text{Even}", "even", "correct"),
        ("(1, 2)", "(2, 1)", "wrong"),
        ("2,1", "1,2", "correct"),
    ]:
        assert grader.grade(answer, label).status == status


def test_what_is_left_goes_through_the_pool():
    assert grader.grade(r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}").status == "correct"
    assert grader.grade(r"\sqrt{3}", r"\sqrt{2}").status == "wrong"


def expression(depth: int) -> st.SearchStrategy:
    """A random expression over integers, as LaTeX and as its value, None where it has none."""
    leaf = st.integers(0, 40).map(lambda n: (str(n), Fraction(n)))
    if depth == 0:
        return leaf
    part = expression(depth - 1)

    def join(left, right, sign):
        (a, x), (b, y) = left, right
        if x is None or y is None or (sign == "/" and y == 0):
            return rf"\frac{{{a}}}{{{b}}}", None
        texts = {"+": f"({a}+{b})", "-": f"({a}-({b}))", "*": rf"({a})\cdot({b})"}
        values = {"+": x + y, "-": x - y, "*": x * y, "/": x / y if y else None}
        return texts.get(sign, rf"\frac{{{a}}}{{{b}}}"), values[sign]

    return leaf | st.builds(join, part, part, st.sampled_from("+-*/"))


@given(expression(3))
def test_rational_values_are_exact(pair):
    text, value = pair
    if value is not None:
        assert rational(read(normal(text))) == value


HOSTILE = [
    *(char * 1999 for char in r"{}()[]|$-+*/^_!%&,;:=<>.'1aeE~\ ²½"),
    *("9^{9^{9^{9}}}", "9**9**9**9", "10^{10^{10}}", "99999999!", "((99!)!)!", "5" + "!" * 500),
    *(r"\binom{10^9}{5\cdot 10^8}", r"\sum_{k=1}^{10^9} k", r"\lfloor 10^{300000} \rfloor"),
    *(r"\frac{" * 300, r"\frac{1}{" * 150 + "1", r"\sqrt{" * 100 + "2" + "}" * 100, "2^{-" * 300),
    *(r"\left" * 300, r"\sin" * 400 + "x", r"\text{" * 300, r"\text{a}" * 250, "A_" * 800),
    *("1," * 900, "1 " * 900, "(1,2),x" * 100, "1=" * 900 + "1", "1<" * 900 + "1"),
    *(r"(1,2)\cup" * 200 + "(1,2)", r"\pm" * 500 + "1", r"\pi+" * 450 + "1"),
    *("1" * 401 + ".5", "1e999999", "1e-401", "0." + "3" * 450 + "...", "5 m^999 s^999"),
    *("\x00", "\ud800", "5\u200b\ud83d", "\u0661" * 500, "\uff11" * 500, "a\u0310" * 500, "🙂"),
    *(r"\infty-\infty", r"\frac{0}{0}", "0^0", "0^{-1}", "1/0", r"\ln 0", r"i^{i^{i^i}}"),
    *(r"e^{e^{e^{e^{9}}}}", "(1+x)^{100000}", r"(1+\sqrt2)^{1000000}", r"\sin(10^{100000})"),
    *(r"\begin{pmatrix}" * 90, r"\begin{matrix}" + "1&" * 500 + r"1\end{matrix}"),
    *(r"1.0000001^{100000000}", r"\gcd(10^{399},10^{398})", "\\\\" * 900),
    *("{0.__class__.__mro__}", "%s%n%x", "().__class__.__bases__[0]", "lambda: 5"),
]


@pytest.mark.parametrize(
    "label", ["5", r"x^2+\sqrt{2}", '{"answer": ["1", "2"], "tolerance": "0.1"}']
)
def test_hostile_answers_are_refused_at_once(in_process, label):
    for answer in HOSTILE:
        began = time.process_time()
        score = grader.grade(answer, label)
        assert score.status in ("wrong", "malformed"), answer[:60]
        assert len(score.detail) < 300
        assert score.detail.isascii()
        assert time.process_time() - began < 2, answer[:60]


def test_a_megabyte_is_refused_unread():
    began = time.process_time()
    for piece in ("{", "1", "$", "\\frac{1}{", "\\text{"):
        assert grader.grade(piece * (1 << 20), "5").status == "malformed"
    assert time.process_time() - began < 0.1


PIECES = [
    *r"0123456789xyie{}()[]|^_!%,.;:=<>+-*/\ $&'½",
    *(
        r"\frac",
        r"\sqrt",
        r"\text{",
        r"\pm",
        r"\infty",
        r"\cup",
        r"\left",
        r"\{",
        r"\}",
        " or ",
        "km",
    ),
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_no_answer_raises_or_passes_for_another(text):
    status, detail = symbolic.compare(text, r"\{271828, \sqrt{314159}\}")
    assert status in ("wrong", "malformed"), detail


CODE = [
    '__import__("os").system("touch {path}")',
    "open('{path}', 'w')",
    'exec(\'open("{path}","w")\')',
    r"\text{{__import__('os').system('touch {path}')}}",
    r"\operatorname{{open}}('{path}','w')",
    r"\int_0^1 __import__('os').system('touch {path}') dx",
    r"\sum_{{k=1}}^{{2}} open('{path}','w')",
    "$__import__('os').system('touch {path}')$",
    "5; import os; os.system('touch {path}')",
    r"\int_0^1 \unknown 2 + 3*4 dx",
]


@pytest.mark.parametrize("code", CODE)
def test_no_answer_is_run_as_code(in_process, monkeypatch, tmp_path, code):
    evaluated = []
    monkeypatch.setattr("math_verify.parser.parse_expr", lambda text, **_: evaluated.append(text))
    path = tmp_path / "touched"
    for label in ("5", r"\int_0^1 x\,dx", r"\text{even}"):
        assert grader.grade(code.format(path=path), label).status in ("wrong", "malformed")
    assert not path.exists()
    assert not evaluated


def test_importing_the_grader_loads_no_mathematics_package():
    program = "import sys, openrlhf_js.tasks.equivalence.grader; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not {"sympy", "mpmath", "math_verify", "torch", "numpy"} & set(run.stdout.split())


def test_a_label_is_read_once():
    assert labels.gold("12345") is labels.gold("12345")
