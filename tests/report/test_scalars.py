"""Event files that grow, are cut off, are damaged, or were gone on with after a resume."""

from __future__ import annotations

import errno
import math
from pathlib import Path

import pytest

from openrlhf_js.report import scalars
from openrlhf_js.report.scalars import Scalars


def test_a_resumed_run_replaces_what_was_undone(log):
    folder = log("run", {"a": [1, 2, 3, 4, 5], "b": [1, 1]})
    log("run", {"a": {4: 40.0, 5: 50.0, 6: 60.0}}, began=1_700_000_100)
    logged = Scalars(folder)
    assert logged["a"] == ([1, 2, 3, 4, 5, 6], [1, 2, 3, 40, 50, 60])
    assert logged["b"] == ([1, 2], [1, 1])
    assert logged.last_step == 6
    log("run", {"a": {2: 20.0}}, began=1_700_000_200)
    logged.reload()
    assert logged["a"] == ([1, 2], [1, 20])  # steps 3 to 6 were undone


def test_a_record_in_the_making_is_read_once_it_is_whole(log):
    folder = log("run", {"a": [1, 2, 3]})
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    logged = Scalars(folder)
    assert logged["a"] == ([1, 2], [1, 2])
    assert list(logged.unread) == [path]
    assert logged.unreadable == []
    path.write_bytes(whole)
    logged.reload()
    assert logged["a"] == ([1, 2, 3], [1, 2, 3])
    assert logged.unread == {}


def test_damage_hides_what_comes_after_it_and_is_seen(log):
    folder = log("run", {"a": [1, 2, 3, 4]})
    (path,) = folder.iterdir()
    content = bytearray(path.read_bytes())
    record = len(content) // 4
    content[2 * record + 20] ^= 0xFF
    path.write_bytes(content)
    logged = Scalars(folder)
    assert logged["a"] == ([1, 2], [1, 2])
    assert logged.unread == {path: 2 * record}


@pytest.mark.parametrize("content", [b"not an event file at all, but long enough", b"x"])
def test_a_file_of_something_else_is_unreadable(tmp_path, content):
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(content)
    logged = Scalars(tmp_path)
    assert logged.unreadable == [path]
    assert logged.tags == []
    assert logged.last_step is None
    assert logged.written is None


def test_an_empty_file_is_a_run_that_has_just_begun(tmp_path):
    (tmp_path / "events.out.tfevents.1.host").touch()
    logged = Scalars(tmp_path)
    assert logged.unread == {}
    assert logged.tags == []


def test_what_is_not_finite_stays_what_it_is(log):
    values = Scalars(log("run", {"a": [math.inf, 1.0, math.nan]}))["a"].values
    assert values[:2] == [math.inf, 1.0]
    assert math.isnan(values[2])


@pytest.fixture
def meddled(monkeypatch):
    """Has something done to each event file once its first record is read: meddled(action)."""

    def after_the_first_record(action):
        class Meddled(scalars.RawEventFileLoader):
            def __init__(self, path):
                super().__init__(path)
                self.path = Path(path)

            def Load(self):
                for number, record in enumerate(super().Load()):
                    yield record
                    if number == 0:
                        action(self.path)

        monkeypatch.setattr(scalars, "RawEventFileLoader", Meddled)

    return after_the_first_record


def test_a_file_that_is_removed_while_it_is_read_leaves_the_others(log, meddled):
    folder = log("run", {"a": [1, 2, 3]})
    (first,) = folder.iterdir()
    log("run", {"b": [5]}, began=1_700_000_100)
    meddled(lambda path: path.unlink() if path == first else None)
    logged = Scalars(folder)
    assert logged["a"].values[:1] == [1]
    assert logged["b"] == ([1], [5])
    assert logged.lost == {first: "was removed while it was read"}
    assert logged.unread == {}


def test_a_file_that_is_gone_at_the_next_look_and_then_back(log):
    folder = log("run", {"a": [1, 2]})
    (path,) = folder.iterdir()
    logged = Scalars(folder)
    whole = path.read_bytes()
    path.unlink()
    for _ in range(2):
        logged.reload()
        assert logged["a"] == ([1, 2], [1, 2])
        assert logged.lost == {path: "was removed while it was read"}
    path.write_bytes(whole)
    log("run", {"a": {3: 3.0}})
    logged.reload()
    assert logged["a"] == ([1, 2, 3], [1, 2, 3])
    assert logged.lost == {}


def test_a_file_that_is_cut_off_while_it_is_read(log, meddled):
    folder = log("run", {"a": [1, 2, 3]})
    (path,) = folder.iterdir()
    meddled(lambda path: path.write_bytes(b""))
    logged = Scalars(folder)
    assert logged["a"].values[:1] == [1]
    assert logged.lost == {path: "was cut off or replaced while it was read"}
    assert logged.unread == {}
    logged.reload()
    assert logged["a"] == ([], [])  # it begins anew
    assert logged.lost == {}


def test_a_file_that_may_not_be_read(log, monkeypatch):
    folder = log("run", {"a": [1]})

    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(scalars, "RawEventFileLoader", refuse)
    logged = Scalars(folder)
    assert logged.lost == {logged.files[0]: "could not be read: Permission denied"}
