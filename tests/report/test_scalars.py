"""Event files that grow, are cut off, or were resumed."""

import math

from openrlhf_js.report.runs import Scalars


def test_a_resumed_run_replaces_what_was_undone(log):
    folder = log("run", {"a": [1, 2, 3, 4, 5], "b": [1, 1]})
    log("run", {"a": {4: 40.0, 5: 50.0, 6: 60.0}}, began=1_700_000_100)
    logged = Scalars(folder)
    assert logged["a"].to_dict() == {1: 1, 2: 2, 3: 3, 4: 40, 5: 50, 6: 60}
    assert logged["b"].to_dict() == {1: 1, 2: 1}
    assert logged.last_step == 6
    log("run", {"a": {2: 20.0}}, began=1_700_000_200)
    logged.reload()
    assert logged["a"].to_dict() == {1: 1, 2: 20}  # steps 3 to 6 were undone


def test_a_record_in_the_making_is_read_once_it_is_whole(log):
    folder = log("run", {"a": [1, 2, 3]})
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    logged = Scalars(folder)
    assert list(logged["a"]) == [1, 2]
    path.write_bytes(whole)
    logged.reload()
    assert list(logged["a"]) == [1, 2, 3]


def test_a_run_that_has_just_begun_and_what_is_not_finite(tmp_path, log):
    (tmp_path / "events.out.tfevents.1.host").touch()
    logged = Scalars(tmp_path)
    assert (logged.tags, logged.last_step, logged.written) == ([], None, None)
    logged = Scalars(log("run", {"a": [math.inf, 1.0, math.nan], "b": [2.0]}))
    assert logged["a"].to_dict() == {2: 1.0} and logged.not_finite == ["a"]


def test_a_folder_that_appears_and_grows_is_followed(tmp_path, log):
    logged = Scalars(tmp_path / "run")
    assert logged["a"].empty
    for step in (1, 2, 3):
        log("run", {"a": {step: step / 4}})
        logged.reload()
        assert list(logged["a"].index) == list(range(1, step + 1))
    assert logged["a"].mean() == 0.5
