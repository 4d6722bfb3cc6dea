"""Every answer gets its score within its limits, whatever the others and the machine do."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrlhf_js.tasks import grading_pool, grading_processes
from openrlhf_js.tasks.base import Score
from openrlhf_js.tasks.grading_pool import GradingPool
from openrlhf_js.tasks.grading_slots import Slots
from openrlhf_js.tasks.grading_worker import LOW_PRIORITY

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = 0.5


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    """The template takes over `sys.path`, and finds gradees.py there."""
    sys.path.insert(0, str(HERE))
    yield
    sys.path.remove(str(HERE))


@pytest.fixture(scope="module")
def pool(importable: None) -> Iterator[GradingPool]:
    with GradingPool(workers=2, timeout_seconds=LIMIT, memory_bytes=1 << 26) as pool:
        pool.grade("gradees:compare", "warm", "up")
        yield pool


@pytest.fixture(scope="module")
def patient(importable: None) -> Iterator[GradingPool]:
    """For answers that may take their time on a busy machine."""
    with GradingPool(workers=2, memory_bytes=1 << 26) as pool:
        yield pool


def template_of(pool: GradingPool) -> psutil.Process:
    assert pool._template
    return psutil.Process(pool._template._process.pid)


def eventually(condition, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_the_function_decides(pool):
    assert pool.grade("gradees:compare", "123", "123") == Score(1.0, "correct", "3")
    assert pool.grade("gradees:compare", "123", "124") == Score(0.0, "wrong", "3")
    assert pool.grade("gradees:is_warm", "", "").status == "correct"
    assert grading_pool.grade("gradees:compare", "", "") == Score(1.0, "correct", "0")


ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too


@given(ANY_TEXT, ANY_TEXT)
def test_any_text_arrives_as_it_is(answer, label):
    expected = hashlib.md5(answer.encode("utf8", "surrogatepass")).hexdigest()
    score = grading_pool.grade("gradees:digest", answer, label)
    assert (score.status == "correct", score.detail) == (answer == label, expected)


@pytest.mark.parametrize(
    "answer", ["\ud800\udc00 \udfff", "\0", "\n\r\u2028", "é" * 10**6, "{" * 10**6]
)
def test_odd_text_arrives_as_it_is(patient, answer):
    expected = hashlib.md5(answer.encode("utf8", "surrogatepass")).hexdigest()
    assert patient.grade("gradees:digest", answer, answer) == Score(1.0, "correct", expected)


def test_an_answer_that_does_not_end_is_timed_out():
    deeds = ["loop", "in C", "in C, alarm off", "sleep", "stop"]

    def one(deed: str) -> tuple[Score, float]:
        began = time.monotonic()
        return pool.grade("gradees:hostile", deed, ""), time.monotonic() - began

    with GradingPool(workers=5, timeout_seconds=LIMIT) as pool, ThreadPoolExecutor(5) as threads:
        pool.grade("gradees:hostile", "abort", "")  # the template is ready
        for score, seconds in threads.map(one, deeds):
            assert score == Score(0.0, "timeout", "grading took over 0.5 s")
            assert LIMIT <= seconds < LIMIT + 3


@pytest.mark.parametrize(
    ("deed", "detail"),
    [
        ("one block", "MemoryError"),
        ("pieces", "MemoryError"),
        ("recurse", "RecursionError: maximum recursion depth exceeded"),
        ("leave", "the grading process died"),
        ("abort", "the grading process died"),
        ("exit", "SystemExit"),
        ("fail", "KeyError: " + "a " * 245),
        ("write", "PermissionError: grading may not do this: open"),
        ("touch", "PermissionError: grading may not do this: open"),
        ("mkdir", "PermissionError: grading may not do this: os.mkdir"),
        ("system", "PermissionError: grading may not do this: os.system"),
        ("spawn", "PermissionError: grading may not do this: subprocess.Popen"),
        ("fork", "PermissionError: grading may not do this: os.fork"),
        ("remove", "PermissionError: grading may not do this: os.remove"),
    ],
)
def test_an_answer_that_breaks_its_grader_is_an_error(patient, tmp_path, deed, detail):
    place = tmp_path / "made"
    score = patient.grade("gradees:hostile", deed, str(place))
    assert score == Score(0.0, "error", detail.strip())
    assert not place.exists()
    assert patient.grade("gradees:compare", deed, deed).status == "correct"


@pytest.mark.parametrize("function", ["no_pair", "no_status"])
def test_a_function_that_returns_no_status_is_an_error(pool, function):
    assert pool.grade(f"gradees:{function}", "", "").status == "error"


def test_a_function_that_cannot_be_loaded_raises_and_says_why(pool, tmp_path, monkeypatch):
    (tmp_path / "broken_gradee.py").write_text("raise OSError('no such table')")
    (tmp_path / "deadly_gradee.py").write_text(
        "import os, sys; print('out of luck', file=sys.stderr, flush=True); os._exit(3)"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"gradees:nothing'.*\n(.*\n)*.*no attribute"):
            pool.grade("gradees:nothing", "", "")
    with pytest.raises(RuntimeError, match="No module named 'no_gradees'"):
        pool.grade("no_gradees:compare", "", "")
    with GradingPool() as other:
        with pytest.raises(RuntimeError, match="no such table"):
            other.grade("broken_gradee:compare", "", "")
        with pytest.raises(RuntimeError, match=r"did not start.*out of luck"):
            other.grade("deadly_gradee:compare", "", "")
        assert other.grade("gradees:compare", "", "").status == "correct"
    with pytest.raises(RuntimeError, match="closed"):
        other.grade("gradees:compare", "1", "")


def test_many_threads_and_some_that_hang(pool):
    deeds = ["loop", "in C", "leave", "pieces", "one block"]

    def one(number: int) -> str:
        if number % 200 == 0:  # the label makes them differ
            return pool.grade("gradees:hostile", deeds[number // 200], "threads").status
        return pool.grade("gradees:compare", str(number), str(number - number % 2)).status

    with ThreadPoolExecutor(32) as threads:
        statuses = list(threads.map(one, range(1000)))
    hostile = [statuses.pop(number) for number in (800, 600, 400, 200, 0)]
    assert statuses == [
        "wrong" if number % 2 else "correct" for number in range(1000) if number % 200
    ]
    assert hostile[2:] == ["error", "timeout", "timeout"]
    assert set(hostile[:2]) <= {"error", "timeout"}  # under load, filling memory may take too long


def test_asyncio(pool):
    async def batch() -> list[Score]:
        calls = (("gradees:compare", f"async {n}", f"async {n - n % 2}") for n in range(100))
        hang = asyncio.to_thread(pool.grade, "gradees:hostile", "loop", "asyncio")
        return await asyncio.gather(hang, *(asyncio.to_thread(pool.grade, *c) for c in calls))

    hung, *scores = asyncio.run(batch())
    assert hung.status == "timeout"
    assert [score.value for score in scores] == [1.0, 0.0] * 50


def test_slow_answers_give_up_their_slot_and_their_priority():
    usual = str(os.getpriority(os.PRIO_PROCESS, 0))
    with GradingPool(workers=1, timeout_seconds=20) as pool, ThreadPoolExecutor(8) as threads:
        assert pool.grade("gradees:priority", "", "0").detail == usual
        hangs = [threads.submit(pool.grade, "gradees:hostile", "sleep", str(n)) for n in range(3)]
        slow = threads.submit(pool.grade, "gradees:priority", "", "1.5")
        quick = [pool.grade("gradees:compare", str(number), "") for number in range(50)]
        assert {score.status for score in quick} == {"wrong"}
        assert slow.result() == Score(1.0, "correct", str(LOW_PRIORITY))
        assert pool.grade("gradees:priority", "not with a lowered one", "0").detail == usual
        assert not any(hang.done() for hang in hangs)
        pool.close()
        for hang in hangs:
            with pytest.raises(RuntimeError, match="closed"):
                hang.result()


def test_a_slot_goes_to_whoever_has_waited_longest():
    slots = Slots(1)
    served: list[str] = []

    def one(name: str) -> None:
        slots.acquire()
        served.append(name)
        slots.release()

    slots.acquire()
    threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in "abcd"]
    for waiting, thread in enumerate(threads, start=1):
        thread.start()
        assert eventually(lambda count=waiting: len(slots._waiting) == count)
    slots.release()
    slots.acquire()  # the one that has just let go of it comes last
    assert served == list("abcd")
    slots.release()
    assert slots._free == 1


def test_an_interrupted_wait_keeps_no_slot(monkeypatch):
    slots = Slots(1)

    def interrupted(turn: threading.Event) -> None:
        if came:
            slots.release()
        raise KeyboardInterrupt

    for came in (False, True):  # before its turn, and just when it comes
        slots.acquire()
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(threading.Event, "wait", interrupted)
            slots.acquire()
        if not came:
            slots.release()
        assert (slots._free, len(slots._waiting)) == (1, 0)


def test_an_answer_on_a_busy_machine_keeps_its_slot_and_priority(monkeypatch):
    monkeypatch.setattr(grading_processes, "_activity", lambda _: (True, 0.01))
    usual = str(os.getpriority(os.PRIO_PROCESS, 0))
    with GradingPool(workers=1) as pool, ThreadPoolExecutor(2) as threads:
        starved = threads.submit(pool.grade, "gradees:priority", "", "0.3")
        assert eventually(lambda: pool._running)
        assert pool.grade("gradees:compare", "", "").status == "correct"
        assert starved.done()
        assert starved.result().detail == usual


def test_a_timeout_is_remembered_if_the_answer_was_slow_and_not_if_the_machine_was(monkeypatch):
    with GradingPool(workers=1, timeout_seconds=LIMIT) as pool:
        assert pool.grade("gradees:hostile", "sleep", "").status == "timeout"
        assert len(pool._scores) == 1
        monkeypatch.setattr(grading_processes, "_activity", lambda _: (True, 0.01))
        assert pool.grade("gradees:hostile", "loop", "").status == "timeout"
        assert len(pool._scores) == 1


def test_equal_answers_are_graded_once(pool):
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(lambda _: pool.grade("gradees:nap", "twin", "0.2"), range(8)))
    assert len(set(together)) == 1
    assert pool.grade("gradees:nap", "twin", "0.2") == together[0]
    assert pool.grade("gradees:nap", "other", "0.2") != together[0]
    assert pool.grade("gradees:nap", "twin", "0.20") != together[0]


def test_the_least_recently_used_score_is_forgotten(pool, monkeypatch):
    monkeypatch.setattr(grading_pool, "CACHED_SCORES", 2)
    with GradingPool(workers=1) as pool:
        one, two = (pool.grade("gradees:nap", answer, "0") for answer in "12")
        assert pool.grade("gradees:nap", "1", "0") == one
        pool.grade("gradees:nap", "3", "0")
        assert pool.grade("gradees:nap", "1", "0") == one
        assert pool.grade("gradees:nap", "2", "0") != two


def test_workers_killed_from_outside_in_mid_batch_cost_no_answer(pool):
    done = threading.Event()
    killed = 0

    def kill() -> None:
        nonlocal killed
        while not done.wait(0.4):  # an answer has but one more try
            for worker in template_of(pool).children():
                worker.kill()
                killed += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with ThreadPoolExecutor(8) as threads:
            calls = [threads.submit(pool.grade, "gradees:nap", str(n), "0.01") for n in range(200)]
        assert {call.result().status for call in calls} == {"correct"}
    finally:
        done.set()
        killer.join()
    assert killed >= 2


def test_a_template_killed_from_outside_is_replaced(pool):
    first = template_of(pool)
    first.kill()
    for worker in first.children():
        worker.kill()
    assert pool.grade("gradees:compare", "after the template", "").status == "wrong"
    with ThreadPoolExecutor(8) as threads:  # more at a time than idle workers can be left
        calls = [threads.submit(pool.grade, "gradees:nap", f"new {n}", "0.1") for n in range(8)]
    assert {call.result().status for call in calls} == {"correct"}


def test_a_death_without_known_cause_is_not_remembered():
    with GradingPool(workers=1) as pool, ThreadPoolExecutor(1) as threads:
        pool.grade("gradees:nap", "", "0")
        call = threads.submit(pool.grade, "gradees:nap", "killed twice", "0.5")
        killed: set[int] = set()
        for _ in range(2):
            assert eventually(lambda: {w.pid for w in template_of(pool).children()} - killed)
            time.sleep(0.1)  # the worker has the answer by now
            for worker in template_of(pool).children():
                worker.kill()
                killed.add(worker.pid)
        assert call.result() == Score(0.0, "error", "the grading process died")
        assert pool.grade("gradees:nap", "killed twice", "0.5").status == "correct"


def test_a_worker_is_replaced_before_it_swells_or_grows_old():
    with GradingPool(workers=1, memory_bytes=1 << 26) as pool:
        kept = [pool.grade("gradees:keep", str(n), str(10 << 20)) for n in range(12)]
        assert {score.status for score in kept} == {"correct"}
        # at every second answer; on a busy machine also where one was slow
        assert 6 <= len({score.detail for score in kept}) < 12
        naps = [pool.grade("gradees:nap", str(n), "0").detail.split() for n in range(2001)]
        assert 3 <= len({pid for pid, _ in naps}) < 20


def test_nothing_adds_up_in_the_parent(pool):
    me = psutil.Process()
    template = template_of(pool)
    pool.grade("gradees:compare", "before", "")
    descriptors, threads = me.num_fds(), me.num_threads()
    for number in range(50):
        assert pool.grade("gradees:hostile", "leave", f"again {number}").status == "error"
    assert me.num_fds() <= descriptors + 2
    assert me.num_threads() == threads
    assert template.num_fds() < 10
    assert eventually(lambda: all(c.status() != "zombie" for c in template.children()))
    assert len(template.children()) <= 8


def test_workers_are_cut_off_from_the_terminal(pool):
    *descriptors, session, hashed = pool.grade("gradees:environment", "1", "").detail.split()
    assert descriptors == [os.devnull] * 3
    assert int(session) != os.getsid(0)
    with GradingPool() as other:
        assert other.grade("gradees:environment", "1", "").detail.split()[-1] == hashed


def test_a_fork_of_the_process_has_processes_of_its_own(pool):
    pool.grade("gradees:compare", "parent", "")
    template = template_of(pool).pid
    with ThreadPoolExecutor(1) as threads:
        busy = threads.submit(pool.grade, "gradees:nap", "fork", "0.3")
        assert eventually(lambda: pool._running)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                own = pool.grade("gradees:compare", "child", "child").status == "correct"
                with_default = grading_pool.grade("gradees:nap", "fork", "0").status == "correct"
                status = 0 if own and with_default and template_of(pool).pid != template else 2
                pool.close()
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert busy.result().status == "correct"
    assert template_of(pool).pid == template
    assert pool.grade("gradees:compare", "parent again", "").status == "wrong"


RUNNING = """
import os, signal, sys, threading, time
import psutil
from openrlhf_js.tasks.grading_pool import GradingPool
from openrlhf_js.tasks.grading_slots import Slots
from openrlhf_js.tasks.grading_worker import LOW_PRIORITY

pool = GradingPool(workers=4, timeout_seconds=float(sys.argv[1]))
for deed in ("in C", "loop", "sleep"):
    call = ("gradees:hostile", deed, "")
    threading.Thread(target=pool.grade, args=call, daemon=True).start()
while len(processes := psutil.Process().children(recursive=True)) < 4:
    time.sleep(0.01)
print(*(process.pid for process in processes), flush=True)
exec(sys.argv[2])
"""


def run(*arguments: str, cwd: Path = ROOT, path: str = f"{ROOT}:{HERE}") -> str:
    finished = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert finished.returncode in (0, -signal.SIGKILL), finished.stderr
    assert not finished.stderr
    return finished.stdout


@pytest.mark.parametrize(
    ("limit", "end"),
    [
        ("60", "os.kill(os.getpid(), signal.SIGKILL)"),
        ("60", ""),
        ("60", "pool.close()"),
        ("0.5", "pool._template._process.kill(); os.kill(os.getpid(), signal.SIGKILL)"),
    ],
)
def test_nothing_outlives_the_parent(limit, end):
    pids = [int(pid) for pid in run("-c", RUNNING, limit, end).split()]
    assert len(pids) == 4  # the template and three workers
    survivors = [pid for pid in pids if not eventually(lambda pid=pid: not alive(pid))]
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)
    assert not survivors


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_any_folder_and_any_path(tmp_path):
    home = tmp_path / "a folder: with spaces"
    (home / "also here").mkdir(parents=True)
    os.symlink(ROOT / "openrlhf_js", home / "also here" / "openrlhf_js")
    script = home / "unguarded script.py"  # multiprocessing would run it again
    script.write_text(
        f"import sys; sys.path += ['also here', {str(HERE)!r}]\n"
        "from openrlhf_js.tasks.grading_pool import grade\n"
        "print(grade('gradees:compare', '1', '1').status)\n"
    )
    for name in ("json", "socket", "gradees", "signal"):
        (home / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    shadowed = home / "cwd"
    shadowed.mkdir()
    (shadowed / "also here").symlink_to(home / "also here")
    for name in ("json", "socket", "resource", "importlib", "gradees"):
        (shadowed / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    script = script.rename(home / "also here" / script.name)
    assert run(str(script), cwd=shadowed, path="") == "correct\n"


def test_a_parent_with_odd_signals_in_a_deleted_folder(tmp_path):
    program = (
        "import os, signal, sys, tempfile; sys.path += ['']\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGTERM])\n"
        "folder = tempfile.mkdtemp(); os.chdir(folder); os.rmdir(folder)\n"
        "from openrlhf_js.tasks.grading_pool import GradingPool\n"
        "with GradingPool(timeout_seconds=0.3) as pool:\n"
        "    print(pool.grade('gradees:hostile', 'loop', '').status)\n"
        "    template = pool._template\n"
        "    print(pool.grade('gradees:compare', '', '').status, pool._template is template)\n"
    )
    assert run("-c", program).split() == ["timeout", "correct", "True"]
