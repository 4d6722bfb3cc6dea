import logging
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def scale():
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))  # as for a script
    import scale

    yield scale
    sys.path.pop(0)
    logging.disable(logging.NOTSET)


def test_the_queue_model_of_the_pool(scale):
    service_seconds = [3.0, 1.0, 1.0, 1.0]
    # the caller works between answers
    assert scale.makespan(service_seconds, workers=1, caller_seconds=0.5) == 8.0
    assert scale.makespan(service_seconds, workers=2, caller_seconds=0.0) == 3.0
    assert scale.makespan(service_seconds, workers=2, caller_seconds=0.5) == 5.0
    many_workers = scale.makespan([1e-9] * 100, workers=64, caller_seconds=0.5)
    assert many_workers == pytest.approx(50)


def test_it_prints_its_tables_and_bytes_grow_with_ranks_and_tokens(scale, capsys):
    scale.main(scale=8, rounds=1)
    printed = capsys.readouterr().out
    tables = [table.splitlines() for table in printed[printed.index("|") :].strip().split("\n\n")]
    assert [len(table) - 2 for table in tables] == [8, 6, 5, 11]
    cells = [cell.strip() for cell in tables[0][-2].split("|")]
    assert cells[1] == "gigabytes through Ray" and cells[3] == "1.00 (1.00 to 1.00)"
    assert 0.9 < float(cells[4].split()[0]) < 1
    assert all(float(row.split("|")[2].replace(",", "")) > 0 for row in tables[1][2:])
