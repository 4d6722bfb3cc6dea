"""Records survive kills, and records of two settings never mix."""

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kit import until

from answer_graders.programs.store import Store, json_line, read_store

IDENTITY = {"model": "a", "temperature": 1.0, "versions": {"torch": "2"}}


def opened(path: Path, **changes: object) -> Store:
    return Store(path, {**IDENTITY, **changes}, ("item", "draw"), notes=("versions",))


def test_what_is_there_is_known_and_the_latest_record_of_a_key_counts(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "samples.jsonl"
    with opened(path) as store:
        store.append([{"item": 0, "draw": 0, "text": "a"}, {"item": 0, "draw": 1, "text": "b"}])
        store.append([{"item": 0, "draw": 0, "text": "again"}])
        assert (0, 1) in store
        assert (1, 0) not in store
    with opened(path, versions={"torch": "3"}) as store:  # a note may change
        assert store.records[0, 0]["text"] == "again"
        assert len(store.records) == 2
    identity, records = read_store(path)
    assert identity == IDENTITY
    assert [each["text"] for each in records] == ["a", "b", "again"]


def test_only_what_is_asked_for_stays_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    for _ in range(2):
        with Store(path, {}, ("n",), keep=lambda record: {"n": record["n"]}) as store:
            store.append([{"n": 1, "text": "long"}])
            assert store.records == {(1,): {"n": 1}}


def test_a_store_without_a_record_leaves_no_file(tmp_path: Path) -> None:
    with opened(tmp_path / "s.jsonl"):
        pass
    assert not (tmp_path / "s.jsonl").exists()
    with opened(tmp_path / "s.jsonl", temperature=0.5):
        pass


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    with opened(tmp_path / "s.jsonl") as store:
        store.append([{"item": 0, "draw": 0}])
    with pytest.raises(ValueError, match=r"temperature: 1\.0 there, 0\.5 now"):
        opened(tmp_path / "s.jsonl", temperature=0.5)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path / "s.jsonl"), pytest.raises(ValueError, match="another process"):
        opened(tmp_path / "s.jsonl")
    with opened(tmp_path / "s.jsonl"):
        pass


def test_a_record_cut_short_is_dropped_and_a_damaged_one_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.jsonl"
    with opened(path) as store:
        store.append([{"item": 0, "draw": 0}])
    whole = path.read_bytes()
    for cut in (b'{"item": 1, "dr', b'{"item": 1, "draw": 0}'):
        path.write_bytes(whole + cut)
        with opened(path) as store:
            assert list(store.records) == [(0, 0)]
        assert path.read_bytes() == whole
        left = f"{path}, line 3: an interrupted run left 1 line half written ({len(cut)} bytes)"
        assert capsys.readouterr().err.startswith(left)
    for bad in (b"[1]\n", b"{\n"):
        path.write_bytes(whole + bad)
        with pytest.raises(ValueError, match="line 3"):
            opened(path)
    path.write_bytes(b'{"mod')  # killed before the identity stood
    with opened(path) as store:
        assert not store.records
    assert ", line 1: an interrupted run left" in capsys.readouterr().err


WRITER = """
import sys
from pathlib import Path
from answer_graders.programs.store import Store
with Store(Path(sys.argv[1]), {}, ("n",)) as store:
    for n in range(len(store.records), 10**6):
        store.append([{"n": n, "text": "x" * 1000}])
"""


def test_kill_minus_nine_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    before = 0
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
        until(lambda most=before + 50_000: path.exists() and path.stat().st_size >= most)
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        with Store(path, {}, ("n",)) as store:
            assert list(store.records) == [(n,) for n in range(len(store.records))]
        before = path.stat().st_size


FULL = """
import resource, signal, sys
from pathlib import Path
from answer_graders.programs.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Store(Path(sys.argv[1]), {}, ("n",)) as store:
    store.append([{"n": 0}])
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
    try:
        store.append([{"n": 1, "text": "x" * 10000}])
    except OSError as error:
        print(error.filename)
    store.append([{"n": 2}])
"""


def test_a_full_disk_leaves_whole_records_and_names_the_file(tmp_path: Path) -> None:
    assert resource.RLIM_INFINITY
    path = tmp_path / "s.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(path)
    with Store(path, {}, ("n",)) as store:
        assert list(store.records) == [(0,), (2,)]


def test_every_text_is_one_line() -> None:
    line = json_line({"text": "a\u2028b\x85c\nd\ud800"})
    assert line.decode().splitlines() == [line.decode().rstrip("\n")]
    assert "\ufffd" in line.decode()
    with pytest.raises(ValueError):
        json_line({"reward": float("nan")})
