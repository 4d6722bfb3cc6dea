import sys
from pathlib import Path

import pytest

BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")


@pytest.fixture(scope="module", autouse=True)
def benchmarks_on_the_path():
    sys.path.insert(0, BENCHMARKS)  # as for a script
    yield
    sys.path.remove(BENCHMARKS)
