"""The mathematics grader without its worker processes."""

import pytest

from answer_graders import pool
from answer_graders.math import numeric


@pytest.fixture
def in_process(monkeypatch):
    """Grades without the pool, by the same function."""

    def grade(function, answer, label):
        assert function == "answer_graders.math.numeric:compare"
        return numeric.compare(answer, label)

    monkeypatch.setattr(pool, "grade", grade)
