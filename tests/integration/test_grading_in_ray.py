"""Graders live inside Ray actors: several at a time, a hanging answer, and a clean end."""

import asyncio
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import ray

from openrlhf_js.tasks import pool as grading_pool
from openrlhf_js.tasks.base import Score

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
COUNT = 100


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    folder = tempfile.mkdtemp(prefix="ojs-")  # short, since it holds Ray's sockets
    runtime_env: dict[str, object] = {
        "env_vars": {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'tasks'}"}
    }
    if " " in sys.executable:  # Ray hands it to a shell as it is
        runtime_env["py_executable"] = shlex.quote(sys.executable)
    here = sys.modules[__name__]  # which the actors cannot import
    ray.cloudpickle.register_pickle_by_value(here)
    try:
        ray.init(
            address="local",
            num_cpus=4,
            num_gpus=0,
            include_dashboard=False,
            _temp_dir=folder,
            runtime_env=runtime_env,
        )
        yield
    finally:
        ray.shutdown()
        ray.cloudpickle.unregister_pickle_by_value(here)
        shutil.rmtree(folder, ignore_errors=True)


class Grader:
    """Grades in its own process's pool, one call after the other."""

    def processes(self) -> list[int]:
        return [child.pid for child in psutil.Process().children(recursive=True)]

    def grade(self, calls: list[tuple[str, str, str]]) -> tuple[list[Score], float]:
        began = time.monotonic()
        scores = [grading_pool.grade(*call) for call in calls]
        return scores, time.monotonic() - began


class AsyncGrader:
    """Grades as OpenRLHF's agents do: asyncio.to_thread, all calls at a time."""

    async def grade(self, calls: list[tuple[str, str, str]]) -> tuple[list[Score], float]:
        began = time.monotonic()
        scores = await asyncio.gather(
            *(asyncio.to_thread(grading_pool.grade, *call) for call in calls)
        )
        return scores, time.monotonic() - began


def calls(name: str) -> list[tuple[str, str, str]]:
    """Answers of which every other one is right."""
    return [("gradees:compare", f"{name} {n}", f"{name} {n - n % 2}") for n in range(COUNT)]


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_actors_grade_side_by_side_and_a_hang_costs_one_answer(cluster):
    actors = [ray.remote(Grader).options(num_cpus=0.5).remote() for _ in range(3)]
    actors.append(ray.remote(AsyncGrader).options(num_cpus=0.5).remote())
    ray.get([actor.grade.remote(calls("start")) for actor in actors])
    hang = ("gradees:hostile", "in C", "")
    work = [calls(str(number)) for number in range(4)]
    work[1].insert(COUNT // 2, hang)
    work[3].insert(COUNT // 2, hang)
    results = ray.get(
        [actor.grade.remote(each) for actor, each in zip(actors, work, strict=True)], timeout=60
    )
    for number in (1, 3):
        scores, seconds = results[number]
        assert scores.pop(COUNT // 2).status == "timeout"
        assert 5 <= seconds < 15
    for scores, _ in results:
        assert [score.value for score in scores] == [1.0, 0.0] * (COUNT // 2)
    assert results[0][1] < 5 and results[2][1] < 5

    pids = [pid for actor in actors[:3] for pid in ray.get(actor.processes.remote())]
    assert len(pids) >= 3  # in every actor a worker
    assert os.getpid() not in pids
    ray.kill(actors[0])
    del actors  # the others end by themselves
    deadline = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, pids))
