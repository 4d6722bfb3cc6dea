"""Trains the runs of a study that are not in its store yet, several at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import connection
from typing import Any

from openrlhf_js import __version__
from openrlhf_js.common.console import progress, say
from openrlhf_js.common.files import fingerprint
from openrlhf_js.common.store import Store
from openrlhf_js.study.design import OWN, Run, StudySettings
from openrlhf_js.tiny.supervise import prepare_libraries

Record = dict[str, Any]
RUNS = "runs-{}.jsonl"  # of an engine


def run_all(settings: StudySettings) -> list[Record]:
    """The records of all runs of the study, those that it finds and those that it trains."""
    wanted = settings.runs()
    with Store(
        settings.out / RUNS.format(settings.engine),
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
    with progress("study", len(left), "runs") as bar:
        if min(jobs, len(left)) == 1:
            for run in left:
                store.append([_train_one(run, settings, lambda text: bar.update(bar.done, text))])
                bar.advance()
            return
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(min(jobs, len(left)), context, _start_worker)
        try:
            for done in as_completed([pool.submit(_train_one, run, settings) for run in left]):
                store.append([done.result()])
                bar.advance()
        except BaseException:
            for process in list(pool._processes.values()):
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _train_one(
    run: Run, settings: StudySettings, note: Callable[[str], None] = lambda text: None
) -> Record:
    """One run by the engine of the study; `note` is told of its progress."""
    if settings.stack:
        from openrlhf_js.study.stack import train

        return train(run, settings, note)
    from openrlhf_js.study import inline

    return inline.train(run, settings, settings.out / "warm_start" / run.task)


def _start_worker() -> None:
    """A worker leaves Ctrl-C to its parent, and ends with it."""
    prepare_libraries()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
