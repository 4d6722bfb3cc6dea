"""LaTeX, unicode and plain text are spelt in one way, in linear time."""

# ruff: noqa: RUF001

import contextlib
import time

import pytest

from openrlhf_js.tasks.equivalence.text import normal
from openrlhf_js.tasks.equivalence.tokens import NotRead, tokens


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("42", "42"),
        (" 42. ", "42"),
        (r"\boxed{42}", "42"),
        ("$42$", "42"),
        ("$$x$$", "x"),
        (r"\(42\)", "42"),
        ("**42**", "42"),
        ("$5$ and $6$", "5 and 6"),
        ("$5 and $6", r"\usd 5 and \usd 6"),
        (r"\$5", r"\usd 5"),
        ("£5", r"\gbp 5"),
        (r"\dfrac12", r"\frac{1}{2}"),
        (r"\frac1{23}", r"\frac{1}{23}"),
        (r"\left( 1,\, 2 \right)", "( 1, 2 )"),
        (r"\mathrm{cm}", r"\text{cm}"),
        (r"50\%", "50%"),
        (r"1\,000\,000", "1000000"),
        (r"10{,}080", "10080"),
        ("1 234 567", "1234567"),
        ("1,234", "1,234"),
        (r"3{,}14", "3.14"),
        ("½", r"\frac{1}{2}"),
        ("x²", "x^{2}"),
        ("10⁻³", "10^{-3}"),
        ("a₁₂", "a_{12}"),
        ("−5", "-5"),
        ("１２", "12"),
        ("5\u200b", "5"),
        (r"21^{\text{st}}", "21"),
        ("4th", "4"),
        (r"\varnothing", r"\emptyset"),
        (r"a \leqslant b", r"a \leq b"),
        ("0.333...", "0.333..."),
        (r"1011 (base 2)", "1011_{2}"),
        (r"\underline{\textcolor{red}{\Large 7}}", "{{ 7}}"),
        (r"\text{$\frac12$}", r"\frac{1}{2}"),
        (r"{}_5C_2", r"\binom{5}{2}"),
        (r"5 \ (\text{mod } 7)", r"5 \pmod{7}"),
        ("18 sq. ft.", "18 sq ft"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
    ],
)
def test_spelling(text, spelling):
    assert normal(text) == spelling
    assert normal(spelling) == spelling


@pytest.mark.parametrize(
    "piece",
    [
        *r"{}()[]$\^_,.1a '~½²",
        r"\frac",
        r"\text{",
        r"\boxed{",
        "1,",
        "1 ",
        "base",
        "{,}",
        r"\,",
        "(1)_",
    ],
)
def test_time_grows_with_the_text_alone(piece):
    began = time.process_time()
    normal(piece * (2_000 // len(piece)))
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize(
    "text",
    ["base " + "A" * 1_990, "base (" + "1A" * 990, "1A" * 1_000, "(" + "1" * 1_990, "the " * 500],
)
def test_no_run_of_digits_is_read_from_each_of_its_places(text):
    began = time.process_time()
    with contextlib.suppress(NotRead):
        tokens(normal(text))
    assert time.process_time() - began < 0.01
