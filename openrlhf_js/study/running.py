"""Trains the runs of a study that are not in its store yet, several at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import connection
from pathlib import Path
from typing import Any

import torch

from openrlhf_js.common.console import progress, say
from openrlhf_js.common.files import fingerprint
from openrlhf_js.common.store import Store
from openrlhf_js.study import inline, stack
from openrlhf_js.study.design import OWN, Run, StudySettings
from openrlhf_js.tiny.supervise import prepare_libraries

Record = dict[str, Any]
RUNS = "runs-{}.jsonl"  # of an engine
METHOD = 1  # one more with each change of what a run trains or measures: such runs do not mix


def run_all(settings: StudySettings) -> list[Record]:
    """The records of all runs of the study, those that it finds and those that it trains.

    Of a study that was printed for a cluster it trains none, and returns the seeds that are whole.
    """
    wanted = settings.runs()
    with store_of(settings) as store:
        left = [run for run in wanted if run not in store]
        if len(left) < len(wanted):
            say(f"{len(wanted) - len(left)} of {len(wanted)} runs are there already")
        printed = settings.stack and (settings.out / stack.COMMANDS).is_file()
        late = _late(settings, store) if printed else []
        left = [run for run in left if run not in late]
        starts = prepare(settings)
        known: dict[Any, Any] = {}
        new = [{**run._asdict(), "start": starts.get(run.task)} for run in left]
        for each in [*store.records.values(), *new]:
            if known.setdefault(_pair(each), each["start"]) != each["start"]:
                seed = f"seed {each['seed']} of {each['task']}"
                raise ValueError(
                    f"{store.path}: {seed} began from another model; with its warm_start/ it "
                    "resumes, or give another --out"
                )
        if left:
            _train(left, settings, store, starts)
        gaps = {_pair(run._asdict()) for run in late}
        return [store.records[run] for run in wanted if _pair(run._asdict()) not in gaps]


def store_of(settings: StudySettings) -> Store:
    """The runs on disk; refuses those of other settings or data."""
    path = settings.out / RUNS.format(settings.engine)
    made_by = {"method": METHOD, "torch": torch.__version__, "files": _files(settings)}
    return Store(path, {**settings.identity(), **made_by}, Run._fields)


def unfinished(settings: StudySettings, store: Store) -> list[Run]:
    """The runs of the stack that a cluster is to train."""
    left = [run for run in settings.runs() if run not in store]
    return [run for run in left if not stack.finished(run, settings)]


def _late(settings: StudySettings, store: Store) -> list[Run]:
    """The unfinished runs, of which it tells."""
    if late := unfinished(settings, store):
        of = f"{len(late)} of {len(settings.runs())} runs have not finished, first {late[0].name}"
        again = f"--print writes their commands; without {stack.COMMANDS} they are trained here"
        wanted, gone = ({_pair(run._asdict()) for run in each} for each in (settings.runs(), late))
        if wanted == gone:
            raise ValueError(f"{of}, and no seed is whole; {again}")
        say(f"note: {of}: without their seeds here; {again}", error=True)
    return late


def _pair(run: Mapping[str, Any]) -> tuple[Any, ...]:
    """What runs have in common that are compared with one another: they share a start."""
    return tuple(run[name] for name in Run._fields if name not in ("estimator", "learning_rate"))


def prepare(settings: StudySettings) -> dict[str, str]:
    """Makes what runs of each task start from; returns the fingerprints."""
    settings.out.mkdir(parents=True, exist_ok=True)
    starts = {}
    for task in sorted({run.task for run in settings.runs()} - {OWN}):
        with progress(
            f"warm start for {task}", inline.TASKS[task].warm_start_steps, "steps"
        ) as bar:
            folder = inline.warm_start(task, settings, bar.update)
            if "alike" in settings.mixes:
                inline.alike(task, settings)
        starts[task] = fingerprint(folder.glob("*.safetensors"))[:12]
    return starts


def _files(settings: StudySettings) -> dict[str, str]:
    """Fingerprints of files that flags of training name, and of folders with data and models."""
    found, flag = {}, ""
    for word in settings.train:
        flag, _, value = word.partition("=") if word.startswith("--") else (flag, "", word)
        for path in map(Path, {value, *value.split(",")} - {""}):
            if path.is_file():
                found[str(path)] = fingerprint([path])
            elif path.is_dir() and flag.endswith(("dataset", "name_or_path")):
                found[str(path)] = fingerprint(each for each in path.rglob("*") if each.is_file())
    return found


def _train(left: list[Run], settings: StudySettings, store: Store, starts: dict[str, str]) -> None:
    def keep(record: Record) -> None:
        store.append([{**record, "start": starts.get(record["task"])}])
        bar.advance()

    jobs = settings.jobs or (1 if settings.stack else len(os.sched_getaffinity(0)))
    with progress("study", len(left), "runs") as bar:
        if min(jobs, len(left)) == 1:
            for run in left:
                keep(_train_one(run, settings, lambda text: bar.update(bar.done, text)))
            return
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(min(jobs, len(left)), context, _start_worker)
        try:
            handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # workers leave it to us
            waiting = [pool.submit(_in_worker, run, settings) for run in left]
            signal.signal(signal.SIGINT, handler)
            for done in as_completed(waiting):
                keep(done.result())
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
        return stack.train(run, settings, note)
    return inline.train(run, settings)


def _in_worker(run: Run, settings: StudySettings) -> Record:
    try:
        return _train_one(run, settings)
    except KeyboardInterrupt:  # its programs have ended
        os._exit(130)


def _start_worker() -> None:
    """A worker leaves Ctrl-C to its parent, and ends with it and its own programs."""
    prepare_libraries()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
