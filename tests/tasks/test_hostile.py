"""No response can hurt: whatever it holds, it gets its score in time, and nothing else happens."""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openrlhf_js.tasks import STATUSES, Score
from openrlhf_js.tasks import TASKS as ALL_TASKS
from openrlhf_js.tasks import pool as pools

sys.path.insert(0, str(Path(__file__).parent))
import hostile

TASKS = {name: ALL_TASKS[name] for name in hostile.LABELS}  # test_reasoning_gym.py has the other
LIMIT_SECONDS = 0.5
MOST_OWN_SECONDS = 0.5  # of a thread of this process, which reads up to a megabyte
MOST_GROWTH = 50 << 20  # bytes
THREADS = 4
WATCHED = frozenset(("open", "exec", "compile", "import", "socket.connect", "os.system")) | {
    *("os.exec", "os.fork", "os.posix_spawn", "os.remove", "os.rename", "os.mkdir"),
    *("pickle.find_class", "marshal.loads", "ctypes.dlopen"),
}


class Graded(NamedTuple):
    """What became of one response; `own_seconds` are of this process's thread."""

    kind: hostile.Kind
    score: Score | Exception
    seconds: float
    own_seconds: float


@pytest.fixture(scope="module")
def pool() -> Iterator[pools.GradingPool]:
    """The pool of the process, with a shorter limit and a worker for each of the test's threads."""
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as folder,
        pools.GradingPool(THREADS, LIMIT_SECONDS, memory_bytes=1 << 28) as pool,
    ):
        patch.chdir(folder)
        patch.setattr(pools, "_POOL", pool)
        yield pool
        assert os.listdir(folder) == []
        patch.undo()


def graded(number: int, kind: hostile.Kind) -> list[Graded]:
    """A kind by every task: as each response, against its first label and another one in turn."""
    found = []
    for name, task in TASKS.items():
        if name != "math" and task.score is TASKS["math"].score:
            continue
        first, *others = hostile.LABELS[name]
        labels = [first, others[number % len(others)]] if others else [first]
        for place, response in enumerate(hostile.responses(name, kind.text)):
            for label in labels if place else [first]:
                began, own = time.perf_counter(), time.thread_time()
                try:
                    score: Score | Exception = task.score(response, label)
                except Exception as error:  # which is what must not be
                    score = error
                own, seconds = time.thread_time() - own, time.perf_counter() - began
                found.append(Graded(kind, score, seconds, own))
    return found


def test_every_response_gets_a_score_in_time_none_a_reward_and_nothing_else_happens(pool):
    kinds, events, running = list(hostile.kinds()), set(), True
    assert len(kinds) == len({kind.text for kind in kinds}) > 300

    def watch(event: str, arguments: tuple[object, ...]) -> None:  # it stays for good
        own = threading.current_thread().name.startswith("hostile")
        if running and own and event in WATCHED and not pool_at_work():
            events.add(f"{event} {arguments!r:.200}")

    def pool_at_work() -> bool:  # a worker is started for one that was killed
        frame = sys._getframe()
        while frame and not frame.f_code.co_filename.endswith("subprocess.py"):
            frame = frame.f_back
        return frame is not None

    others = {child.pid for child in psutil.Process().children(recursive=True)}
    before = psutil.Process().memory_info().rss
    sys.addaudithook(watch)
    with ThreadPoolExecutor(THREADS, "hostile") as threads:
        results = [each for some in threads.map(graded, range(len(kinds)), kinds) for each in some]
    running = False
    bad = [each for each in results if not isinstance(each.score, Score) or each.score.value]
    bad += [each for each in results if getattr(each.score, "status", "error") == "error"]
    assert not bad
    assert not events
    details = {each.score.detail for each in results if isinstance(each.score, Score)}
    assert not [detail for detail in details if not detail.isprintable() or len(detail) > 700]
    assert max(each.seconds for each in results) < LIMIT_SECONDS + 20  # with the start of a worker
    for kind in {each.kind for each in results if each.own_seconds > MOST_OWN_SECONDS}:
        # once more, since a garbage collection may have fallen into its time
        assert max(each.own_seconds for each in graded(0, kind)) < MOST_OWN_SECONDS, kind
    assert os.listdir() == []
    assert not Path(tempfile.gettempdir(), hostile.CANARY).exists()
    assert psutil.Process().memory_info().rss - before < MOST_GROWTH
    now = {child.pid for child in psutil.Process().children(recursive=True)}
    assert len(now - others) <= THREADS
    pool.timeout_seconds = 10  # for a machine that is busy; the worker's own limit stays
    for name, task in TASKS.items():
        for label in hostile.LABELS[name]:
            assert task.score(task.right_response(label), label).status == "correct"
            assert task.score(task.wrong_response(label), label).status == "wrong"
    pool.timeout_seconds = LIMIT_SECONDS


@pytest.mark.parametrize("name", TASKS)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_response_gets_the_same_score_each_time(pool, name, data):
    response = data.draw(hostile.drawn_responses(name))
    label = data.draw(st.sampled_from(hostile.LABELS[name]))
    score = TASKS[name].score(response, label)
    assert type(score) is Score
    assert score.status in STATUSES and score.status != "error"
    assert score.value == (score.status == "correct")
    again = TASKS[name].score(response, label)
    assert again == score or "timeout" in (again.status, score.status)
