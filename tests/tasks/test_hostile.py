"""No response can hurt: whatever it holds, it gets its score in time, and nothing else happens."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openrlhf_js.tasks import STATUSES, TASKS, Score, grading_pool
from openrlhf_js.tasks.grading_pool import GradingPool

sys.path.insert(0, str(Path(__file__).parent))
import hostile
import hostile_strategies

LIMIT_SECONDS = 1.0
MOST_OWN_SECONDS = 0.5  # of a thread of this process, which reads up to a megabyte
MOST_GROWTH = 50 << 20  # bytes
THREADS = 8
WATCHED = frozenset(("open", "exec", "compile", "import", "subprocess.Popen", "socket.connect")) | {
    *("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.remove", "os.rename", "os.mkdir"),
    *("pickle.find_class", "marshal.loads", "ctypes.dlopen"),
}


class Graded(NamedTuple):
    """What became of one response."""

    kind: hostile.Kind
    task: str
    score: Score | Exception
    seconds: float
    own_seconds: float  # of this process's thread


@dataclass(repr=False)
class Campaign:
    """What became of all of them."""

    graded: list[Graded]
    events: set[str]
    growth: int  # bytes
    left: list[str]  # files where the graders ran
    processes: set[int]  # that were not there before


@pytest.fixture(scope="module")
def pool() -> Iterator[GradingPool]:
    """The pool of the process, with a shorter limit and a worker for each of the test's threads."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.chdir(folder)  # the template's folder as well
        with GradingPool(THREADS, LIMIT_SECONDS, memory_bytes=1 << 28) as pool:
            patch.setattr(grading_pool, "_POOL", pool)
            warm = [TASKS["math"].score(r"\boxed{\sqrt{2}}", label) for label in ("2", "x")]
            assert [score.status for score in warm] == ["wrong", "wrong"]
            yield pool
        assert os.listdir(folder) == []


@pytest.fixture(scope="module")
def campaign(pool: GradingPool) -> Campaign:
    kinds = list(hostile.kinds())
    process = psutil.Process()
    events: set[str] = set()
    running = True

    def watch(event: str, arguments: tuple[object, ...]) -> None:  # it stays for good
        if running and event in WATCHED and threading.current_thread().name.startswith("hostile"):
            seen = f"{event} {arguments!r:.200}"
            if not seen.startswith("open ('/proc/"):  # the pool looks at its workers
                events.add(seen)

    sys.addaudithook(watch)
    children, before = processes(), process.memory_info().rss
    with ThreadPoolExecutor(THREADS, "hostile") as threads:
        graded = [each for some in threads.map(grade, range(len(kinds)), kinds) for each in some]
    running = False
    growth = process.memory_info().rss - before
    return Campaign(graded, events, growth, os.listdir(), processes() - children)


def processes() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def grade(number: int, kind: hostile.Kind) -> list[Graded]:
    """A kind by every task: as each response, against its first label and another one in turn."""
    graded = []
    for name, task in TASKS.items():
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
                graded.append(Graded(kind, name, score, seconds, own))
    return graded


def test_there_are_many_kinds_and_none_twice():
    kinds = list(hostile.kinds())
    assert len(kinds) == len({kind.text for kind in kinds}) > 300


def test_every_response_gets_a_score_and_none_a_reward(campaign):
    bad = {
        (graded.kind.family, graded.kind.name, graded.task): graded.score
        for graded in campaign.graded
        if not isinstance(graded.score, Score)
        or graded.score.value != 0.0
        or graded.score.status not in ("wrong", "no_answer", "malformed", "timeout")
    }
    assert not bad
    assert {graded.task for graded in campaign.graded} == set(TASKS)


def test_every_detail_is_one_short_line_that_can_be_logged(campaign):
    details = {graded.score.detail for graded in campaign.graded if type(graded.score) is Score}
    assert not [detail for detail in details if not detail.isprintable() or len(detail) > 700]


def test_every_response_is_answered_in_time(campaign):
    slowest = max(campaign.graded, key=lambda graded: graded.seconds)
    assert slowest.seconds < LIMIT_SECONDS + 3, slowest
    busy = {each.kind for each in campaign.graded if each.own_seconds > MOST_OWN_SECONDS}
    for kind in busy:  # once more, since a garbage collection may have fallen into its time
        assert max(each.own_seconds for each in grade(0, kind)) < MOST_OWN_SECONDS, kind


def test_no_file_is_made_nothing_is_run_and_memory_is_flat(campaign):
    assert campaign.events == set()
    assert campaign.left == []
    assert not Path(tempfile.gettempdir(), hostile.CANARY).exists()
    assert campaign.growth < MOST_GROWTH
    assert len(campaign.processes) <= THREADS  # the workers


@pytest.mark.parametrize("name", TASKS)
def test_later_answers_are_graded_as_ever(campaign, name):
    task = TASKS[name]
    for label in hostile.LABELS[name]:
        assert task.score(task.right_response(label), label).status == "correct"
        assert task.score(task.wrong_response(label), label).status == "wrong"


def test_the_pool_still_tells_right_from_wrong(campaign):
    score = TASKS["math"].score
    assert score(r"\boxed{\sqrt{12}}", r"2\sqrt{3}").status == "correct"
    assert score(r"\boxed{\sqrt{13}}", r"2\sqrt{3}").status == "wrong"


@pytest.mark.parametrize("name", TASKS)
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_response_gets_the_same_score_each_time(pool, name, data):
    response = data.draw(hostile_strategies.responses(name))
    label = data.draw(st.sampled_from(hostile.LABELS[name]))
    began = time.thread_time()
    score = TASKS[name].score(response, label)
    assert time.thread_time() - began < 4 * MOST_OWN_SECONDS
    assert type(score) is Score
    assert score.status in STATUSES and score.status != "error"
    assert score.value == (score.status == "correct")
    assert TASKS[name].score(response, label) == score
