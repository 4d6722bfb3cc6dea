"""Trains the runs of a study that are not in its store yet, several at once."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import connection, forkserver, resource_tracker
from multiprocessing.queues import SimpleQueue
from typing import Any

import psutil
import torch

from answer_graders.programs.console import progress, say
from answer_graders.programs.files import fingerprint, make_folder
from answer_graders.programs.store import Record, Store
from baseline_research.study import stack
from baseline_research.study.budget import all_runs
from baseline_research.study.design import StackStudy, Study
from baseline_research.study.runs import OWN, Cell, Run
from baseline_research.study.versions import task_version
from baseline_research.tiny.supervise import prepare_libraries
from baseline_research.tiny.tasks import TASKS

METHOD = 2  # increases when a run trains or measures differently: such runs must not mix
POLL_SECONDS = 1.0  # between looks at what workers say
INLINE_ENGINE = "baseline_research.study.inline.engine"


def run_all(settings: Study) -> list[Record]:
    """The records of all runs of the study, stored or newly trained.

    A study printed for a cluster trains none here and returns only its complete seeds.
    """
    with store_of(settings) as store:
        runs = all_runs(settings, store.records)
        there = sum(run in store for run in runs)
        if there:
            say(f"{there} of {len(runs)} runs are there already")
        is_printed = isinstance(settings, StackStudy) and (settings.out / stack.COMMANDS).is_file()
        unfinished = store_runs(settings, store, train_here=not is_printed)
        runs = all_runs(settings, store.records)
        incomplete = {_pair(run, settings) for run in unfinished}
        complete = [run for run in runs if _pair(run, settings) not in incomplete]
        if unfinished:
            count = f"{len(unfinished)} of {len(runs)} runs have not finished"
            count += f", first {unfinished[0].name}"
            advice = (
                f"--print writes their commands; without {stack.COMMANDS} they are trained here"
            )
            if not any(run.seed in settings.seed_range for run in complete):
                raise ValueError(f"{count}, and no seed is whole; {advice}")
            say(f"note: {count}: without their seeds here; {advice}", error=True)
        return [store.records[run] for run in complete]


def _pair(run: Run, settings: Study) -> Hashable:
    """What is shown only as a whole: with a budget, the seed of every split."""
    return run.seed if settings.budget else run.pair


def store_runs(settings: Study, store: Store, *, train_here: bool) -> list[Run]:
    """Stores the runs of the study, with a budget stage by stage.

    Those that have not finished are trained, or else returned: of the stage that they stop.
    """
    starts = prepare(settings)
    while True:
        missing = [run for run in all_runs(settings, store.records) if run not in store]
        unfinished = [run for run in missing if not train_here and not _finished(run, settings)]
        ready = [run for run in missing if run not in unfinished]
        _check_starts(missing, starts, store)
        if not ready:
            return unfinished
        _train(ready, settings, store, starts)


def _finished(run: Run, settings: Study) -> bool:
    """Whether a cluster has trained it."""
    return isinstance(settings, StackStudy) and stack.finished(run, settings)


def store_of(settings: Study) -> Store:
    """The store of runs on disk; refuses one with other settings or data."""
    make_folder(settings.out)
    identity = {
        **settings.identity(),
        "method": METHOD,
        "torch": torch.__version__,
        "files": settings.files(),
    }
    path = settings.out / f"runs-{settings.engine}.jsonl"
    return Store(path, identity, Run._fields, keeps_empty=True)  # of commands that were printed


def _check_starts(missing: Iterable[Run], starts: dict[str, str], store: Store) -> None:
    """Raises ValueError if runs of one pair would start from different models."""
    pairs = [(Run.of(record).pair, record["start"]) for record in store.records.values()]
    pairs += [(run.pair, starts.get(run.task)) for run in missing]
    known: dict[tuple[Cell, int], str | None] = {}
    for pair, start in pairs:
        if known.setdefault(pair, start) != start:
            cell, seed = pair
            raise ValueError(
                f"{store.path}: seed {seed} of {cell.task} began from another model or task; "
                "with the code and the warm_start/ of then it resumes, or give another --out"
            )


def prepare(settings: Study) -> dict[str, str]:
    """Makes the start of each task's runs; returns fingerprints of model and task."""
    if settings.device_name == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda needs a GPU, and torch sees none")
    tasks = {cell.task for cell in settings.cells()} - {OWN}
    if not tasks:
        return {}
    from baseline_research.study.inline import prompts  # slow to import

    prepare_libraries()
    starts = {}
    for task in sorted(tasks):
        steps = TASKS[task].warm_start_steps
        with progress(f"warm start for {task}", steps, "steps") as bar:
            folder = prompts.warm_start(task, settings, bar.update)
            if "alike" in settings.mixes:
                bar.update(steps, "choosing prompts that are alike")
                prompts.alike(task, settings)
        weights = fingerprint(folder.glob("*.safetensors"))[:12]
        starts[task] = f"{weights}-{task_version(TASKS[task])}"
    return starts


def _train(runs: Sequence[Run], settings: Study, store: Store, starts: dict[str, str]) -> None:
    jobs = min(settings.jobs or _default_jobs(settings), len(runs))
    with progress("study", len(runs), "runs") as bar:

        def keep(record: Record) -> None:
            store.append([{**record, "start": starts.get(record["task"])}])
            bar.advance()

        def note(text: str) -> None:
            bar.update(bar.done, text)

        if jobs > 1:
            bar.show(f"starting {jobs} processes")
            _train_in_workers(runs, settings, jobs, keep, note)
            return
        for run in runs:
            bar.show(run.name)
            keep(_train_one(run, settings, note))


def _default_jobs(settings: Study) -> int:
    """The number of runs at once: one on a GPU, whose memory may hold no more."""
    if isinstance(settings, StackStudy) or settings.device_name == "cuda":
        return 1
    return len(os.sched_getaffinity(0))


def _train_in_workers(
    runs: Sequence[Run],
    settings: Study,
    jobs: int,
    keep: Callable[[Record], None],
    note: Callable[[str], None],
) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, INLINE_ENGINE])  # takes seconds, once for all
    resource_tracker.ensure_running()  # it unblocks SIGINT
    with _interrupts_blocked():  # the server and its forks leave interrupts to us
        forkserver.ensure_running()
    notes = context.SimpleQueue()
    pool = ProcessPoolExecutor(jobs, context, _start_worker, (notes,))
    try:
        unfinished = {pool.submit(_train_in_worker, run, settings) for run in runs}
        while unfinished:
            finished, unfinished = wait(unfinished, POLL_SECONDS, FIRST_COMPLETED)
            for future in finished:
                keep(future.result())
            while not notes.empty():
                note(notes.get())
    except BaseException:
        for server in psutil.Process().children():
            for process in (server, *server.children()):
                process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes started in the block never get SIGINT; this one gets it at the end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _train_one(run: Run, settings: Study, note: Callable[[str], None]) -> Record:
    """Trains one run on the study's engine and returns its record; `note` gets the progress."""
    if isinstance(settings, StackStudy):
        figures = stack.train(run, settings, note)
    else:
        from baseline_research.study.inline import engine  # slow to import

        figures = engine.train(run, settings, note)
    return {**run._asdict(), **figures._asdict()}


_notes: SimpleQueue  # of a worker: what its parent shows


def _train_in_worker(run: Run, settings: Study) -> Record:
    try:
        return _train_one(run, settings, _notes.put)
    except KeyboardInterrupt:  # the run's programs have ended
        os._exit(130)


def _start_worker(notes: SimpleQueue) -> None:
    """Sets up a worker to leave Ctrl-C to its parent, and to end with it, programs included."""
    global _notes
    _notes = notes
    prepare_libraries()
    signal.signal(signal.SIGINT, lambda *_: None)  # its child processes have the default again
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: Any) -> None:
    connection.wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
