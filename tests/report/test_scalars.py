"""Event files that grow, are cut off, are damaged, or were resumed."""

import math

import pytest

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


@pytest.mark.parametrize("content", [b"not an event file at all, but long enough", b"x"])
def test_a_file_of_something_else_is_refused(tmp_path, content):
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{path} is not a TensorBoard event file"):
        find_conditions([str(tmp_path)])
