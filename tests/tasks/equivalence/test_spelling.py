"""LaTeX, unicode and plain text are spelt in one way, in linear time."""

# ruff: noqa: RUF001

import contextlib
import time

import pytest

from openrlhf_js.tasks.equivalence.spelling import normal
from openrlhf_js.tasks.equivalence.syntax import NotRead, read

SPELLINGS = r"""
42 ~ 42
 42.  ~ 42
\boxed{42} ~ {42}
<answer>42</answer> ~ 42
$5$ and $6$ ~ 5 and 6
$5 and $6 ~ 5 usd and 6 usd
\$5 ~ 5 usd
\dfrac12 ~ \frac{1}{2}
\left( 1,\, 2 \right) ~ ( 1, 2 )
\mathrm{cm} ~ cm
5\text{ m} ~ 5 \m
1\,000\,000 ~ 1000000
1 234 567 ~ 1234567
1,234 ~ 1,234
3{,}14 ~ 3.14
3½ ~ {3+1/2}
-2\dfrac13 ~ -{2+\frac{1}{3}}
3\frac{5}{4} ~ 3\frac{5}{4}
½ ~ 1/2
10⁻³ ~ 10^{-3}
a₁₂ ~ a_{12}
−5 ~ -5
λ ~ \lambda
21^{\text{st}} ~ 21
12^{st} ~ 12st
\varnothing ~ \emptyset
0.1666... ~ 0.1\bar{6}
1011 (base 2) ~ 1011_{2}
\underline{\textcolor{red}{\Large 7}} ~ {{ 7}}
{a \over 2} ~ \frac{a }{2}
18 sq. ft. ~ 18 sq ft
2x \text{ for all } x > 0 ~ 2x
\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} ~ ([ 1, 2 ],[3, 4 ])
"""


@pytest.mark.parametrize("row", SPELLINGS.strip("\n").splitlines())
def test_spelling(row):
    text, spelling = row.split(" ~ ")
    assert normal(text) == spelling
    assert normal(spelling) == spelling


PIECES = [
    *r"{}()[]$\^_,.1a '~½²",
    *(r"\frac", r"\text{", r"\boxed{", "1,", "1 ", "base", "{,}", r"\,", "(1)_", "12", "for all "),
    *("x for any ", "th", "_{1", r"\over", "C_1", "0.1", "A1 base ", "1 1/", r"1\frac{1}{2}"),
]


@pytest.mark.parametrize("piece", PIECES)
def test_time_grows_with_the_text_alone(piece):
    text = piece * (2_000 // len(piece))
    began = time.process_time()
    with contextlib.suppress(NotRead, RecursionError):
        read(normal(text))
    assert time.process_time() - began < 0.2
