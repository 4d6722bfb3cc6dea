"""Fills a store: samples and grades the records that it lacks. The same call resumes.

complete(store, missing(store, requests), sample, grade, title="sampling")

pass@k, the arena and the lab keep their responses in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from answer_graders.programs.console import progress
from answer_graders.programs.store import Record, Store, read_store
from paired_eval.sampling.endpoint import EndpointError, NoReply

REFUSED = "refused"  # the finish reason of a request that was refused
ITEMS = ".items.jsonl"  # suffix of the file with the prompts of a store of samples
MOST_FAILURES = 8  # requests in a row without a reply, after which a run ends
MOST_REFUSALS = 100  # requests refused before the first reply, after which a run ends

Job: TypeAlias = Any  # with the fields of its store's key as attributes
Outcomes: TypeAlias = Sequence[tuple[Job, Any]]  # each job with its result or NoReply
HandOver: TypeAlias = Callable[[Outcomes], None]
Work: TypeAlias = Callable[[Sequence[Job], HandOver], None]


class Sample(NamedTuple):
    """A record of one request: the response and its grade, or why it was refused.

    A field that a program does not store has its default.
    """

    uid: str  # of the prompt
    draw: int = 0
    text: str = ""
    thinking: str = ""
    finish_reason: str = ""  # "stop", "length" or "refused"; "" if unknown
    tokens: int | None = None
    seed: int = 0
    refused: str | None = None  # why the request was refused
    status: str = ""  # of the grade
    answer: str | None = None
    graded_by: str = ""
    tstamp: float = 0.0  # when it came

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Sample:
        """Builds the sample from its record."""
        values = {name: record[name] for name in cls._fields if name in record}
        return cls(**values)


def read_samples(path: Path) -> list[Sample]:
    """Reads the samples of a store in order, the last one of each key, without a lock."""
    _, records = read_store(path)
    samples = {}
    for record in records:
        sample = Sample.of(record)
        samples[sample.uid, sample.draw] = sample
    return list(samples.values())


def missing(store: Store, jobs: Iterable[Job], retry_refused: bool = False) -> list[Job]:
    """Returns the jobs without a record; with `retry_refused`, refused ones too."""
    open_jobs = []
    for job in jobs:
        record = store.records.get(tuple(_key_fields(store, job).values()))
        if record is None or (retry_refused and record.get("refused") is not None):
            open_jobs.append(job)
    return open_jobs


class AllRefusedError(ValueError):
    """The model or server refused every request, so the run ends."""


class Triage:
    """Sorts results into what to record now and what stays open; ends a run that gets nowhere.

    A server with a wrong setting refuses every request. So refusals are held back, and recorded
    only once any request has had a reply.

    Args:
        has_reply: whether an earlier run had a reply.
    """

    def __init__(self, has_reply: bool):
        self.unanswered: list[tuple[Job, NoReply]] = []  # neither a reply nor a refusal
        self._has_reply = has_reply
        self._held_refusals: list[tuple[Job, NoReply]] = []
        self._failures = 0  # requests without a reply since the last reply

    def sort(self, results: Outcomes) -> tuple[list[tuple[Job, Any]], list[tuple[Job, NoReply]]]:
        """Returns the replies and the refusals that are to be recorded now."""
        replies = []
        for job, result in results:
            if not isinstance(result, NoReply):
                replies.append((job, result))
                self._failures = 0
            elif result.refused:
                self._held_refusals.append((job, result))
            else:
                self.unanswered.append((job, result))
                self._failures += 1
        self._has_reply = self._has_reply or bool(replies)
        refusals = []
        if self._has_reply:
            refusals = self._held_refusals
            self._held_refusals = []
        return replies, refusals

    def check(self, at_end: bool = False) -> None:
        """Raises if the run should end: `at_end` too if all that came was refusals.

        AllRefusedError: nothing was answered. EndpointError: the server no longer replies.
        """
        refusals = len(self._held_refusals)
        if refusals >= MOST_REFUSALS or (at_end and refusals):
            _, first = self._held_refusals[0]
            count = f"{refusals:,} requests were" if refusals > 1 else "the request was"
            raise AllRefusedError(
                f"{count} refused and none was answered; the first: {first}. Nothing was recorded: "
                "correct the model, the key or the setting that this names (--omit, or null in a "
                "judge's parameters, leaves out a field that the server does not take)"
            )
        if self._failures >= MOST_FAILURES:
            _, last = self.unanswered[-1]
            raise EndpointError(
                f"{self._failures} requests in a row had no reply, retries included; the last: "
                f"{last}"
            )


def complete(
    store: Store,
    jobs: Sequence[Job],
    work: Work,
    grade: Callable[[Outcomes], Iterable[Record]],
    title: str,
    unit: str = "responses",
    describe: Callable[[Job], Record] = lambda job: {},
) -> list[tuple[Job, NoReply]]:
    """Works on jobs (see `missing`), and appends a record of each to a store.

    Args:
        store: gets each record as soon as it exists, so a stop loses none.
        jobs: the jobs to do.
        work: `work(jobs, hand_over)` hands over results as they come, such as a sampler's `run`.
        grade: turns results into records, with the fields of the store's key.
        title: names the work, for the progress bar.
        unit: names the jobs, for the progress bar.
        describe: the fields of a refused job's record beside its key and the reason.

    Returns:
        The jobs without a record, and why. A refused job has a record that says so.

    Raises:
        AllRefusedError, EndpointError: as `Triage.check`.
    """
    triage = Triage(any(record.get("refused") is None for record in store.records.values()))

    def keep(results: Outcomes) -> None:
        replies, refusals = triage.sort(results)
        refused = [
            {
                **_key_fields(store, job),
                **describe(job),
                "finish_reason": REFUSED,
                "refused": str(reason),
            }
            for job, reason in refusals
        ]
        store.append([*grade(replies), *refused])
        bar.advance(len(results))
        triage.check()

    if not jobs:
        return []
    with progress(title, len(jobs), unit) as bar:
        work(jobs, keep)
    triage.check(at_end=True)
    return triage.unanswered


def in_batches(size: int, work: Callable[[Sequence[Job]], Sequence[Any]]) -> Work:
    """Returns work for `complete` that does `size` jobs at a time in this process."""

    def run(jobs: Sequence[Job], hand_over: HandOver) -> None:
        for start in range(0, len(jobs), size):
            batch = jobs[start : start + size]
            hand_over(list(zip(batch, work(batch), strict=True)))

    return run


def _key_fields(store: Store, job: Job) -> Record:
    return {name: getattr(job, name) for name in store.key_fields}
