"""Event files that grow, are cut off, are damaged, or were resumed."""

from __future__ import annotations

import errno
import math
from pathlib import Path

import pytest

from openrlhf_js.report import runs
from openrlhf_js.report.runs import Scalars, find_conditions


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


def test_a_run_that_has_just_begun_and_what_is_not_finite(tmp_path, log):
    (tmp_path / "events.out.tfevents.1.host").touch()
    logged = Scalars(tmp_path)
    assert (logged.unread, logged.tags, logged.last_step, logged.written) == ({}, [], None, None)
    series = Scalars(log("run", {"a": [math.inf, 1.0, math.nan]}))["a"]
    assert series.values[:2] == [math.inf, 1.0] and math.isnan(series.values[2])
    assert series.finite() == ([2], [1.0])


def test_a_folder_that_appears_and_grows_is_followed(tmp_path, log):
    logged = Scalars(tmp_path / "run")
    assert logged["a"] == ([], []) and logged["a"].mean is None
    for step in (1, 2, 3):
        log("run", {"a": {step: step / 4}})
        logged.reload()
        assert logged["a"].steps == list(range(1, step + 1))
    assert logged["a"].mean == 0.5


@pytest.fixture
def meddled(monkeypatch):
    """Has something done to each event file once its first record is read: meddled(action)."""

    def after_the_first_record(action):
        class Meddled(runs.RawEventFileLoader):
            def __init__(self, path):
                super().__init__(path)
                self.path = Path(path)

            def Load(self):
                for number, record in enumerate(super().Load()):
                    yield record
                    if number == 0:
                        action(self.path)

        monkeypatch.setattr(runs, "RawEventFileLoader", Meddled)

    return after_the_first_record


@pytest.mark.parametrize(
    ("action", "lost"),
    [
        (lambda path: path.unlink(), "was removed while it was read"),
        (lambda path: path.write_bytes(b""), "was cut off or replaced while it was read"),
    ],
)
def test_a_file_that_vanishes_while_it_is_read_leaves_the_others(log, meddled, action, lost):
    folder = log("run", {"a": [1, 2, 3]})
    (first,) = folder.iterdir()
    log("run", {"b": [5]}, began=1_700_000_100)
    meddled(lambda path: action(path) if path == first else None)
    logged = Scalars(folder)
    assert logged["a"].values[:1] == [1]
    assert logged["b"] == ([1], [5])
    assert (logged.lost, logged.unread) == ({first: lost}, {})


def test_a_file_that_is_gone_at_the_next_look_and_then_back(log):
    folder = log("run", {"a": [1, 2]})
    (path,) = folder.iterdir()
    logged, content = Scalars(folder), path.read_bytes()
    path.unlink()
    for _ in range(2):
        logged.reload()
        assert logged["a"] == ([1, 2], [1, 2])
        assert logged.lost == {path: "was removed while it was read"}
    path.write_bytes(content)
    log("run", {"a": {3: 3.0}})
    logged.reload()
    assert logged["a"] == ([1, 2, 3], [1, 2, 3])
    assert logged.lost == {}


def forbidden(path):
    raise PermissionError(errno.EACCES, "Permission denied", path)


@pytest.mark.parametrize(
    ("replaced", "by", "complaint"),
    [
        ("RawEventFileLoader", forbidden, "could not be read: Permission denied"),
        ("RawEventFileLoader", "too late", "was removed while it was read"),
        ("Scalars", "too late", "was removed"),
    ],
)
def test_a_run_of_which_nothing_can_be_read_is_refused(log, monkeypatch, replaced, by, complaint):
    folder, former = log("run", {"a": [1]}), getattr(runs, replaced)
    (path,) = folder.iterdir()

    def too_late(where):
        path.unlink()
        return former(where)

    monkeypatch.setattr(runs, replaced, too_late if by == "too late" else by)
    with pytest.raises(ValueError, match=f"{complaint}.*name other folders"):
        find_conditions([str(folder)])


@pytest.mark.parametrize("content", [b"not an event file at all, but long enough", b"x"])
def test_a_file_of_something_else_is_refused(tmp_path, content):
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{path} is not a TensorBoard event file"):
        find_conditions([str(tmp_path)])
