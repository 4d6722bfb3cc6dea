"""What a store lacks is sampled, graded and kept, whatever stops it."""

from typing import NamedTuple

import pytest

from answer_graders.programs.store import Store
from paired_eval.sampling.complete import Sample, complete, in_batches, missing, read_samples
from paired_eval.sampling.endpoint import NoReply


class Job(NamedTuple):
    uid: str
    draw: int


JOBS = [Job(uid, draw) for uid in "abc" for draw in range(2)]


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "samples.jsonl", {"model": "m"}, ("uid", "draw")) as opened:
        yield opened


def grade(outcomes):
    return [{**job._asdict(), "text": text, "status": "correct"} for job, text in outcomes]


def fill(store, respond, retry_refused=False):
    """Completes the store two jobs at a time; returns the jobs that were worked on and are lost."""
    jobs = missing(store, JOBS, retry_refused)
    work = in_batches(2, lambda batch: [respond(job) for job in batch])
    return jobs, complete(store, jobs, work, grade, title="sampling")


def test_only_what_is_missing_is_worked_on(store):
    store.append(grade([(JOBS[3], "before")]))
    jobs, unanswered = fill(store, lambda job: f"{job.uid}{job.draw}")
    assert jobs == [JOBS[0], JOBS[1], JOBS[2], JOBS[4], JOBS[5]]
    assert unanswered == []
    texts = [store.records[job]["text"] for job in JOBS]
    assert texts == ["a0", "a1", "b0", "before", "c0", "c1"]
    assert missing(store, JOBS) == []
    store.append(grade([(JOBS[0], "new")]))  # the last record of a sample counts
    assert [sample.text for sample in read_samples(store.path)][:3] == ["before", "new", "a1"]


def test_refusals_are_recorded_and_what_has_no_reply_stays_missing(store):
    def respond(job):
        if job.uid == "a":
            return NoReply("too long", refused=True)
        if job.uid == "b":
            return NoReply("slow")
        return "text"

    _, unanswered = fill(store, respond)
    assert [(job, str(reply)) for job, reply in unanswered] == [
        (JOBS[2], "slow"),
        (JOBS[3], "slow"),
    ]
    assert missing(store, JOBS) == JOBS[2:4]
    assert missing(store, JOBS, retry_refused=True) == JOBS[:4]
    refused = Sample("a", 0, finish_reason="refused", refused="too long")
    assert read_samples(store.path)[0] == refused
