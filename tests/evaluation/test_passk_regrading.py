import sys
from pathlib import Path

import pytest

from openrlhf_js import __version__
from openrlhf_js.evaluation.passk import regrading
from openrlhf_js.evaluation.passk.regrading import OF_THE_MACHINE, grade_again, places_of
from openrlhf_js.evaluation.passk.samples import Sample, SampleFile

sys.path.insert(0, str(Path(__file__).parent))
from passk_kit import items, lines

ITEMS = items(3)  # their answers are 1, 2 and 3
TEXT = r"so \boxed{1}"


def opened(folder):
    return SampleFile(folder, "toy", {}, ITEMS)


def sample(item, draw, status, answer="1", text=TEXT, graded_by=__version__):
    return Sample(item, draw, 7, text, 3, "stop", status, answer, 0.25, "hm", graded_by)


KEPT = [
    sample(0, 0, "timeout"),
    sample(0, 1, "wrong"),  # a mistake, which is corrected only if all is graded
    sample(1, 0, "error", "?"),
    sample(1, 1, "wrong"),
    sample(2, 0, "timeout", None, "nothing"),
    sample(2, 1, "correct", "3", r"\boxed{3}"),
]


def test_only_what_the_machine_failed_at(tmp_path):
    with opened(tmp_path) as file:
        file.append(KEPT)
        places = places_of(file, 3, OF_THE_MACHINE)
        assert places == [(0, 0), (1, 0), (2, 0)]
        assert places_of(file, 2, OF_THE_MACHINE) == places[:2]
        told = []
        assert grade_again(file, ITEMS, places, told.append) == 3
        assert told == [3]
    for _ in range(2):  # in memory, and as it is read anew
        assert {place: each.status for place, each in file.samples.items()} == {
            (0, 0): "correct",
            (0, 1): "wrong",
            (1, 0): "wrong",
            (1, 1): "wrong",
            (2, 0): "no_answer",
            (2, 1): "correct",
        }
        with opened(tmp_path) as file:
            assert places_of(file, 3, OF_THE_MACHINE) == []
    found = lines(file.path)
    assert len(found) == 6 + 3
    assert found[6] == {**found[0], "status": "correct"}  # the text and the rest are kept


def test_everything_in_batches_and_only_changes_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(regrading, "BATCH", 4)
    with opened(tmp_path) as file:
        file.append(KEPT)
        told = []
        assert grade_again(file, ITEMS, places_of(file, 3), told.append) == 4
        assert told == [4, 6]
        size = file.path.stat().st_size
        assert grade_again(file, ITEMS, places_of(file, 3), told.append) == 0
        assert file.path.stat().st_size == size
    assert file.samples[0, 1].status == "correct"


def test_who_graded_is_written_even_if_nothing_changes(tmp_path):
    with opened(tmp_path) as file:
        file.append([sample(0, 0, "correct", graded_by="0.0.1"), sample(1, 1, "wrong")])
    with opened(tmp_path) as file:
        assert file.samples[0, 0].graded_by == "0.0.1"
        assert grade_again(file, ITEMS, places_of(file, 3), list().append) == 0
    assert [each["graded_by"] for each in lines(file.path)] == ["0.0.1", __version__, __version__]


def test_a_text_that_is_none(tmp_path):
    with opened(tmp_path) as file:
        file.append([sample(0, 0, "timeout")])
    file.path.write_bytes(file.path.read_bytes().replace(b'"so \\\\boxed{1}"', b"17"))
    with pytest.raises(ValueError, match="line 2, is damaged"):
        opened(tmp_path)
