"""LaTeX, unicode and plain text are spelt in one way, in linear time."""

import contextlib
import time
from pathlib import Path

from openrlhf_js.tasks.equivalence.spelling import normal
from openrlhf_js.tasks.equivalence.syntax import read
from openrlhf_js.tasks.equivalence.tree import NotRead

SPELLINGS = Path(__file__).with_name("spellings.txt").read_text("utf-8").splitlines()[2:]


def test_spelling():
    for text, spelling in (row.split(" ~ ") for row in SPELLINGS):
        assert normal(text) == normal(spelling) == spelling


PIECES = [
    *r"{}()[]$\^_,.1a '~½²",
    *(r"\frac", r"\text{", r"\boxed{", "1,", "1 ", "base", "{,}", r"\,", "(1)_", "12", "for all "),
    *("x for any ", "th", "_{1", r"\over", "C_1", "0.1", "A1 base ", "1 1/", r"1\frac{1}{2}"),
]


def test_time_grows_with_the_text_alone():
    for piece in PIECES:
        text = piece * (2_000 // len(piece))
        began = time.process_time()
        with contextlib.suppress(NotRead, RecursionError):
            read(normal(text))
        assert time.process_time() - began < 0.2, piece
