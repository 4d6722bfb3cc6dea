"""Trains the runs of a study that are not in its store yet, several at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import connection
from typing import Any

from openrlhf_js import __version__
from openrlhf_js.common.console import progress, say
from openrlhf_js.common.files import fingerprint
from openrlhf_js.common.store import Store
from openrlhf_js.study.design import OWN, Run, StudySettings

Record = dict[str, Any]
RUNS = "runs.jsonl"


def run_all(settings: StudySettings) -> list[Record]:
    """The records of all runs of the study, those that it finds and those that it trains."""
    wanted = settings.runs()
    with Store(
        settings.out / RUNS,
        {**settings.identity(), "version": __version__, "starts": prepare(settings)},
        key=Run._fields,
        notes=("version",),
    ) as store:
        left = [run for run in wanted if run not in store]
        if len(left) < len(wanted):
            say(f"{len(wanted) - len(left)} of {len(wanted)} runs are there already")
        if left:
            _train(left, settings, store)
        return [store.records[run] for run in wanted]


def prepare(settings: StudySettings) -> dict[str, str]:
    """Makes what runs start from; returns the fingerprints, so that no other start mixes in."""
    from openrlhf_js.study import inline

    starts = {}
    for task in sorted({run.task for run in settings.runs()} - {OWN}):
        with progress(
            f"warm start for {task}", inline.TASKS[task].warm_start_steps, "steps"
        ) as bar:
            folder = inline.warm_start(task, settings, bar.update)
            if "alike" in settings.mixes:
                inline.alike(task, settings, folder)
        starts[task] = fingerprint(folder.glob("*.safetensors"))
    return starts


def _train(left: list[Run], settings: StudySettings, store: Store) -> None:
    jobs = settings.jobs or (1 if settings.stack else len(os.sched_getaffinity(0)))
    pool = ProcessPoolExecutor(
        min(jobs, len(left)), multiprocessing.get_context("spawn"), _start_worker
    )
    waiting, running = iter(left), set[Future[Record]]()
    try:
        with progress("study", len(left), "runs") as bar:
            while True:
                while len(running) < jobs and (run := next(waiting, None)):
                    running.add(pool.submit(train_one, run, settings))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    record = each.result()
                    store.append([record])
                    bar.advance()
    except BaseException:
        for process in list(pool._processes.values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def train_one(run: Run, settings: StudySettings) -> Record:
    """One run by the engine of the study, in a process of its own."""
    if settings.stack:
        from openrlhf_js.study.stack import train

        return train(run, settings)
    from openrlhf_js.study import inline

    return inline.train(run, settings, settings.out / "warm_start" / run.task)


def _start_worker() -> None:
    """A worker has one thread, leaves Ctrl-C to its parent, and ends with it."""
    from openrlhf_js.tiny.quickstart import prepare_libraries

    prepare_libraries()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
