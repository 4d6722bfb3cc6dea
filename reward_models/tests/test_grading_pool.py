"""Every answer gets its score within its limits, whatever the others and the machine do."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from answer_graders import pool as pools
from answer_graders.pool import GradingPool
from answer_graders.record import Score

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = 0.3


@pytest.fixture(scope="module")
def pool() -> Iterator[GradingPool]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))  # where the workers find gradees.py
        with GradingPool(workers=3, timeout_seconds=LIMIT, memory_bytes=1 << 26) as pool:
            yield pool


@pytest.fixture(scope="module")
def patient(pool) -> Iterator[GradingPool]:
    """One worker, with a limit that a busy machine does not reach."""
    with GradingPool(workers=1, timeout_seconds=10, memory_bytes=1 << 26) as pool:
        yield pool


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def eventually(condition, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_the_function_decides(pool):
    assert pool.grade("gradees:compare", "123", "123") == Score(1.0, "correct", "3")
    assert pool.grade("gradees:compare", "123", "124") == Score(0.0, "wrong", "3")
    assert pools.grade("gradees:compare", "", "") == Score(1.0, "correct", "0")
    for answer in ("\ud800\udc00 \udfff", "\0", "\n\r\u2028", "é" * 10**6):
        expected = hashlib.md5(answer.encode("utf8", "surrogatepass")).hexdigest()
        assert pool.grade("gradees:digest", answer, answer).detail == expected


def test_a_grader_that_returns_a_plain_number_is_told_so(patient):
    score = patient.grade("gradees:plain_number", "1", "1")
    assert (score.status, score.value) == ("error", 0.0)
    assert score.detail == "TypeError: a grader returns a Score, not float"


def test_a_score_that_uses_the_pool_is_no_workers_function(patient):
    score = patient.grade("answer_graders.tasks.math:score", r"\boxed{\int_0^1 x dx}", "\\frac12")
    assert (score.status, score.value) == ("error", 0)
    assert "call it in threads" in score.detail


def test_an_answer_that_does_not_end_costs_its_own_time_alone(pool):
    deeds = ["loop", "in C", "in C, alarm off", "sleep", "stop"]

    def timed(deed: str) -> tuple[Score, float]:
        began = time.monotonic()
        return pool.grade("gradees:hostile", deed, ""), time.monotonic() - began

    with ThreadPoolExecutor(5) as threads:
        for score, seconds in threads.map(timed, deeds):
            assert score == Score(0.0, "timeout", f"grading took over {LIMIT} s")
            assert LIMIT <= seconds < LIMIT + 20  # with the start of a worker
    assert pool.grade("gradees:hostile", "sleep", "").status == "timeout"  # is not remembered


REFUSED = "PermissionError: grading may not do this: "
BROKEN = {
    "one block": "MemoryError",
    "pieces": "MemoryError",
    "exit": "SystemExit",
    "recurse": "RecursionError: maximum recursion depth exceeded",
    "leave": "the grading process died",
    "abort": "the grading process died",
    "fail": "KeyError: " + "a " * 244 + "a",
    "write": f"{REFUSED}open",
    "touch": f"{REFUSED}open",
    "mkdir": f"{REFUSED}os.mkdir",
    "system": f"{REFUSED}os.system",
    "fork": f"{REFUSED}os.fork",
    "remove": f"{REFUSED}os.remove",
    "spawn": f"{REFUSED}subprocess.Popen",
}


@pytest.mark.parametrize("deed", BROKEN)
def test_an_answer_that_breaks_its_grader_is_an_error(tmp_path, patient, deed):
    place = tmp_path / "made"
    score = patient.grade("gradees:hostile", deed, str(place))
    assert score == Score(0.0, "error", BROKEN[deed])
    assert not place.exists()
    assert patient.grade("gradees:compare", deed, deed).status == "correct"


def test_a_function_that_cannot_be_loaded_raises_and_says_why(pool, tmp_path, monkeypatch):
    (tmp_path / "deadly_gradee.py").write_text("import os; os._exit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))
    for function, reason in [
        ("gradees:nothing", "no attribute 'nothing'"),
        ("no_gradees:compare", "No module named 'no_gradees'"),
        ("deadly_gradee:compare", "did not start"),
    ]:
        with pytest.raises(RuntimeError, match=reason):
            pool.grade(function, "", "")


def test_an_idle_worker_killed_from_outside_costs_no_answer():
    with GradingPool(workers=1) as pool, ThreadPoolExecutor(1) as threads:
        pool.grade("gradees:nap", "", "0")
        [worker] = pool._alive
        worker.process.kill()
        worker.process.wait()
        assert pool.grade("gradees:nap", "idle", "0").status == "correct"
        call = threads.submit(pool.grade, "gradees:nap", "closed", "5")
        time.sleep(0.1)
        pool.close()
        assert call.result().status == "error"
        with pytest.raises(RuntimeError, match="closed"):
            pool.grade("gradees:nap", "", "0")


def test_a_worker_is_replaced_before_it_swells(patient):
    kept = [patient.grade("gradees:keep", str(n), str(10 << 20)) for n in range(4)]
    assert {score.status for score in kept} == {"correct"}
    assert 1 < len({score.detail for score in kept}) < 4  # at every second answer


def test_a_worker_is_cut_off(pool, patient):
    environment = pool.grade("gradees:environment", "1", "").detail.split()
    stdin, stdout, stderr, session, hash_of_a = environment
    assert stdin == stdout == stderr == os.devnull
    assert int(session) != os.getsid(0)
    other_environment = patient.grade("gradees:environment", "1", "").detail.split()
    assert other_environment[-1] == hash_of_a


def test_workers_that_die_do_not_add_up(pool):
    me = psutil.Process()
    descriptors = me.num_fds()
    processes = len(me.children())
    for number in range(3):
        assert pool.grade("gradees:hostile", "leave", f"again {number}").status == "error"
    assert me.num_fds() <= descriptors + 2
    assert len(me.children()) <= processes + 1


def test_a_fork_of_the_process_has_processes_of_its_own(patient):
    patient.grade("gradees:compare", "parent", "")
    before = {worker.process.pid for worker in patient._alive}
    child = os.fork()
    if child == 0:
        status = 1
        try:
            grades = patient.grade("gradees:compare", "child", "child").status == "correct"
            shares = before & {worker.process.pid for worker in patient._alive}
            patient.close()
            status = 0 if grades and not shares else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert {worker.process.pid for worker in patient._alive} == before
    assert patient.grade("gradees:compare", "parent again", "").status == "wrong"


RUNNING = """
import os, signal, sys, threading, time
import psutil
from answer_graders.pool import GradingPool

pool = GradingPool(workers=2, timeout_seconds=float(sys.argv[1]))
for deed in ("in C", "loop"):
    call = ("gradees:hostile", deed, "")
    threading.Thread(target=pool.grade, args=call, daemon=True).start()
while len(processes := psutil.Process().children(recursive=True)) < 2:
    time.sleep(0.01)
while not all(each.cpu_times().user > 0.2 for each in processes):
    time.sleep(0.01)
print(*(process.pid for process in processes), flush=True)
exec(sys.argv[2])
"""


def run(*arguments: str, cwd: Path = ROOT, path: str = f"{ROOT}:{HERE}") -> str:
    environment = os.environ | {"PYTHONPATH": path}
    command = [sys.executable, *arguments]
    ended = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.stdout


@pytest.mark.parametrize(
    ("limit", "end"), [("60", ""), ("2", "os.kill(os.getpid(), signal.SIGKILL)")]
)
def test_nothing_outlives_the_parent(limit, end):
    pids = [int(pid) for pid in run("-c", RUNNING, limit, end).split()]
    assert len(pids) == 2
    survivors = [pid for pid in pids if not eventually(lambda pid=pid: not alive(pid))]
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)
    assert not survivors


def test_an_unguarded_script_in_any_folder_with_odd_signals(tmp_path):
    home = tmp_path / "a folder: with spaces"
    (home / "also here").mkdir(parents=True)
    os.symlink(ROOT / "openrlhf_js", home / "also here" / "openrlhf_js")
    script = home / "unguarded script.py"  # multiprocessing would run it again
    script.write_text(
        f"import signal, sys; sys.path += ['also here', {str(HERE)!r}]\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGTERM])\n"
        "from answer_graders.pool import GradingPool\n"
        "with GradingPool(timeout_seconds=0.3) as pool:\n"
        "    print(pool.grade('gradees:hostile', 'loop', '').status)\n"
        "    print(pool.grade('gradees:compare', '1', '1').status)\n"
    )
    assert run(script.name, cwd=home, path="").split() == ["timeout", "correct"]
