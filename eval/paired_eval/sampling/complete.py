"""One way to fill a store: what it lacks is sampled, graded and kept; the same call resumes.

complete(store, missing(store, requests), sample, grade, title="sampling")

pass@k, the arena and the lab keep responses so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from answer_graders.programs.console import progress
from answer_graders.programs.store import Record, Store, read_store
from paired_eval.sampling.endpoint import NoReply

REFUSED = "refused"  # the finish reason of a request that gets no response
ITEMS = ".items.jsonl"  # ends the name of the file with the prompts of a store of samples

Job: TypeAlias = Any  # with the fields of its store's key as attributes
Outcomes: TypeAlias = Sequence[tuple[Job, Any]]  # NoReply where there is none
HandOver: TypeAlias = Callable[[Outcomes], None]
Work: TypeAlias = Callable[[Sequence[Job], HandOver], None]


class Sample(NamedTuple):
    """What a store holds of one request: the response and its grade, or why there is none.

    A field that a program does not store has its default.
    """

    uid: str  # of the prompt
    draw: int = 0
    text: str = ""
    thinking: str = ""
    finish_reason: str = ""  # "stop", "length" or "refused"; "" where nobody knows
    tokens: int | None = None
    seed: int = 0
    refused: str | None = None  # the endpoint's words, where it refuses the request
    status: str = ""  # of the grade
    answer: str | None = None
    graded_by: str = ""
    tstamp: float = 0.0  # when it came

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Sample:
        """The sample that a record holds."""
        values = {name: record[name] for name in cls._fields if name in record}
        return cls(**values)


def read_samples(path: Path) -> list[Sample]:
    """The samples of a store in order, the last one of each key, without a lock."""
    _, records = read_store(path)
    samples = {}
    for record in records:
        sample = Sample.of(record)
        samples[sample.uid, sample.draw] = sample
    return list(samples.values())


def missing(store: Store, jobs: Iterable[Job], retry_refused: bool = False) -> list[Job]:
    """The jobs that a store has no record of, or only that it was refused."""
    open_jobs = []
    for job in jobs:
        record = record_of(store, job)
        if record is None or (retry_refused and record.get("refused") is not None):
            open_jobs.append(job)
    return open_jobs


def record_of(store: Store, job: Job) -> Record | None:
    """What a store holds of a job; None where it is missing."""
    return store.records.get(tuple(_key_fields(store, job).values()))


def complete(
    store: Store,
    jobs: Sequence[Job],
    work: Work,
    grade: Callable[[Outcomes], Iterable[Record]],
    title: str,
    unit: str = "responses",
) -> list[tuple[Job, NoReply]]:
    """Works on jobs (see `missing`), and appends to a store what comes of them.

    Args:
        store: gets records as soon as they are there, so that a stop costs none of them.
        jobs: what is done.
        work: `work(jobs, hand_over)` hands over results as they come, such as a sampler's `run`.
        grade: the records of some results, with the fields of the store's key.
        title: what is being done, for the progress.
        unit: of the jobs.

    Returns:
        The jobs that are still missing, and why. One that is refused has a record that says so.
    """
    unanswered: list[tuple[Job, NoReply]] = []

    def keep(results: Outcomes) -> None:
        answered = []
        refusals = []
        for job, result in results:
            if not isinstance(result, NoReply):
                answered.append((job, result))
            elif result.refused:
                reason = {"finish_reason": REFUSED, "refused": str(result)}
                refusals.append({**_key_fields(store, job), **reason})
            else:
                unanswered.append((job, result))
        store.append([*grade(answered), *refusals])
        bar.advance(len(results))

    if jobs:
        with progress(title, len(jobs), unit) as bar:
            work(jobs, keep)
    return unanswered


def in_batches(size: int, work: Callable[[Sequence[Job]], Sequence[Any]]) -> Work:
    """Work for `complete` that is done in this process, so many jobs at a time."""

    def run(jobs: Sequence[Job], hand_over: HandOver) -> None:
        for start in range(0, len(jobs), size):
            batch = jobs[start : start + size]
            hand_over(list(zip(batch, work(batch), strict=True)))

    return run


def _key_fields(store: Store, job: Job) -> Record:
    return {name: getattr(job, name) for name in store.key_fields}
