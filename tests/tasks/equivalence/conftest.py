"""The mathematics grader without its worker processes."""

import pytest

from openrlhf_js.tasks import pool
from openrlhf_js.tasks.equivalence import numeric


@pytest.fixture
def in_process(monkeypatch):
    """Grades without the pool, by the same function."""

    def grade(function, answer, label):
        assert function == "openrlhf_js.tasks.equivalence.numeric:compare"
        return numeric.compare(answer, label)

    monkeypatch.setattr(pool, "grade", grade)
