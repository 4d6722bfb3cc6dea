"""No response can hurt: whatever it holds, it gets its score in time, and nothing else happens."""

import itertools
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

from answer_graders import pool as pools
from answer_graders.tasks import STATUSES, Score, Task
from answer_graders.tasks import TASKS as ALL_TASKS

sys.path.insert(0, str(Path(__file__).parent))
import hostile

TASKS = {name: ALL_TASKS[name] for name in hostile.LABELS}  # test_reasoning_gym.py has the other
LIMIT_SECONDS = 0.5
MOST_OWN_SECONDS = 5  # of a thread of this process, which reads up to a megabyte
MOST_GROWTH = 50 << 20  # bytes
THREADS = 4
WATCHED = {
    "compile",
    "ctypes.dlopen",
    "exec",
    "import",
    "marshal.loads",
    "open",
    "os.exec",
    "os.fork",
    "os.mkdir",
    "os.posix_spawn",
    "os.remove",
    "os.rename",
    "os.system",
    "pickle.find_class",
    "socket.connect",
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
    results = []
    for name, task in TASKS.items():
        if name != "math" and task.score is TASKS["math"].score:
            continue
        first_label, *other_labels = hostile.LABELS[name]
        labels = [first_label]
        if other_labels:
            labels.append(other_labels[number % len(other_labels)])
        for place, response in enumerate(hostile.responses(name, kind.text)):
            for label in labels if place else [first_label]:
                results.append(graded_once(task, kind, response, label))
    return results


def graded_once(task: Task, kind: hostile.Kind, response: str, label: str) -> Graded:
    began = time.perf_counter()
    own_began = time.thread_time()
    try:
        score: Score | Exception = task.score(response, label)
    except Exception as error:  # which is what must not be
        score = error
    own_seconds = time.thread_time() - own_began
    return Graded(kind, score, time.perf_counter() - began, own_seconds)


class Watch:
    """What the threads of the test do that grading must not, by Python's audit events."""

    def __init__(self) -> None:
        self.running = True
        self.events: set[str] = set()
        sys.addaudithook(self.see)  # it stays for good

    def see(self, event: str, arguments: tuple[object, ...]) -> None:
        is_ours = threading.current_thread().name.startswith("hostile")
        if self.running and is_ours and event in WATCHED and not starts_a_worker():
            self.events.add(f"{event} {arguments!r:.200}")


def starts_a_worker() -> bool:
    """Whether the pool is at work: a worker is started for one that was killed."""
    frame = sys._getframe()
    while frame and not frame.f_code.co_filename.endswith("subprocess.py"):
        frame = frame.f_back
    return frame is not None


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_every_response_gets_a_score_in_time_none_a_reward_and_nothing_else_happens(pool):
    kinds = list(hostile.kinds())
    assert len(kinds) == len({kind.text for kind in kinds}) > 300
    assert TASKS["math"].score(r"\boxed{5 km}", "5000 m").value == 1  # units are loaded once
    children_before = children()
    memory_before = psutil.Process().memory_info().rss
    watch = Watch()
    with ThreadPoolExecutor(THREADS, "hostile") as threads:
        results = list(itertools.chain(*threads.map(graded, range(len(kinds)), kinds)))
    watch.running = False
    assert not watch.events
    assert_harmless(results)
    assert_in_time(results)
    assert os.listdir() == []
    assert not Path(tempfile.gettempdir(), hostile.CANARY).exists()
    assert psutil.Process().memory_info().rss - memory_before < MOST_GROWTH
    assert len(children() - children_before) <= THREADS
    assert_still_right(pool)


def assert_harmless(results: list[Graded]) -> None:
    """Each response has a score of 0 and a detail that a terminal can show."""
    for result in results:
        assert isinstance(result.score, Score), result
        assert result.score.value == 0, result
        assert result.score.status != "error", result
        assert result.score.detail.isprintable(), result
        assert len(result.score.detail) <= 700, result


def assert_in_time(results: list[Graded]) -> None:
    longest_seconds = max(result.seconds for result in results)
    assert longest_seconds < LIMIT_SECONDS + 60  # with the start of a worker
    assert [result.kind for result in results if result.own_seconds > MOST_OWN_SECONDS] == []


def assert_still_right(pool: pools.GradingPool) -> None:
    """After all that, right responses are right and wrong ones wrong."""
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
    assert score.status in STATUSES
    assert score.status != "error"
    assert score.value == (score.status == "correct")
    again = TASKS[name].score(response, label)
    assert again == score or "timeout" in (again.status, score.status)
